"""Rows edited in `holdfast.db`: they may hide something or make somebody look twice; they make nothing done or landed.

Approvals, decisions and simulations in the tables are tried in `engine/test_cheating.py`.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from engine.papers import edit_tables
from guarded import ME, Ground, contents, guard, put
from holdfast.errors import HoldfastError
from holdfast.store.journal import log_chunks, parse_log

FILES = {"a": b"old\n", "b": b"b\n"}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return guard(tmp_path / "workspace", FILES)


def test_a_row_does_not_make_a_plan_done(ground: Ground) -> None:
    """The digest of a plan written into the row of another one: that plan is not taken for applied, and is applied."""
    plan = ground.plan(put("a", b"wanted\n"))
    done = ground.apply(put("a", b"other\n"))
    assert ground.hf.already_done(plan) is None
    assert edit_tables(ground, "UPDATE executions SET plan_digest=:digest", digest=plan.digest) == 1
    assert ground.hf.already_done(plan) is None
    # The control: what the ledger knows as done is known as done.
    assert edit_tables(ground, "UPDATE executions SET plan_digest=:digest", digest=done.plan_digest) == 1
    row = ground.hf.already_done(ground.plan(put("a", b"other\n")))
    assert row is not None and row.id == done.id


def test_a_row_of_what_never_happened_counts_for_nothing(ground: Ground) -> None:
    """A row without an entry in the ledger is no landing: not of a task, and not of a plan."""
    plan = ground.plan(put("a", b"wanted\n"))
    done = ground.apply(put("b", b"B\n"))
    columns = "plan_id, plan_digest, intent, status, at_ns, changes, live, kept, summary"
    planted = f"INSERT INTO executions (id, {columns}) SELECT 'x-planted', {columns} FROM executions"
    assert edit_tables(ground, planted) == 1
    assert edit_tables(ground, "UPDATE executions SET plan_digest=:d WHERE id='x-planted'", d=plan.digest) == 1
    assert ground.hf.pipeline.records.landed_with_plan(plan.digest), "the row is there to be believed"
    assert ground.hf.pipeline.landed(plan.digest) == []
    assert [row.id for row in ground.hf.pipeline.landed(done.plan_digest)] == [done.id]


def test_a_failed_execution_is_not_made_a_landing(ground: Ground) -> None:
    """COMPLETED written over the end of one that landed nothing."""
    plan = ground.plan(put("a", b"wanted\n"))
    ready = ground.ready(plan)
    (ground / "a").write_bytes(b"somebody else\n")
    with pytest.raises(HoldfastError):
        ground.hf.execute(ready.simulated, verified=ready.verified, decision=ready.decision)
    assert edit_tables(ground, "UPDATE executions SET status='COMPLETED', live=1, kept=1") == 1
    assert ground.hf.pipeline.landed(plan.digest) == [] and ground.hf.already_done(plan) is None
    (row,) = ground.hf.log()
    with pytest.raises(HoldfastError):
        ground.hf.undo(row.id, approved_by=ME)
    assert (ground / "a").read_bytes() == b"somebody else\n"


def test_a_forged_log_does_not_make_a_plan_stand(ground: Ground) -> None:
    """The kept log says that what stands now is what was put there: by its root it is not the ledger's."""
    plan = ground.plan(put("a", b"wanted\n"))
    done = ground.hf.execute(ground.hf.simulate(plan), approved_by=ME)
    assert ground.hf.already_done(plan) is not None
    path = ground.state / "kept" / done.id / "log"
    log = parse_log(path.read_bytes())
    path.write_bytes(b"".join(log_chunks({**log.header, "reads": ["b"]}, (), log.parents)))
    (ground / "a").unlink()
    assert ground.hf.already_done(plan) is None


@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE executions SET live=0",
        "UPDATE executions SET status='ROLLED_BACK'",
        'UPDATE executions SET summary=\'{"undoes": ["x-other"], "revives": ["x-other"]}\'',
        "UPDATE executions SET at_ns=4102444800000000000",
        "UPDATE executions SET at_ns=0",
        "UPDATE executions SET changes=0",
        "UPDATE executions SET id='x-other'",
        "DELETE FROM executions",
    ],
)
def test_an_edited_row_puts_nothing_wrong_back(ground: Ground, edit: str) -> None:
    """Undo brings exactly the old bytes, or refuses with nothing changed; never a third thing."""
    done = ground.apply(put("a", b"new\n"))
    before = contents(ground.tree())
    assert edit_tables(ground, edit) == 1
    refusal = None
    try:
        ground.hf.undo(done.id, approved_by=ME)
    except HoldfastError as error:
        refusal = error
    if refusal is not None:
        assert not refusal.changed and contents(ground.tree()) == before
    else:
        assert contents(ground.tree()) == FILES
    assert ground.hf.audit().ok


def test_what_the_tables_say_is_compared_with_the_ledger(ground: Ground) -> None:
    """After changes, a redo, a failure and a gc nothing differs; one column written, or one row put in, is named."""
    first = ground.apply(put("a", b"new\n"))
    ground.hf.undo(first.id, approved_by=ME)
    last = ground.apply(put("b", b"B\n"))
    plan = ground.plan(put("a", b"wanted\n"))
    ready = ground.ready(plan)
    (ground / "a").write_bytes(b"somebody else\n")
    with pytest.raises(HoldfastError):
        ground.hf.execute(ready.simulated, verified=ready.verified, decision=ready.decision)
    ground.hf.gc(keep_days=0)
    assert ground.hf.rows_unlike_the_ledger() == []
    assert edit_tables(ground, "UPDATE executions SET live=1 WHERE id=:id", id=first.id) == 1
    assert ground.hf.rows_unlike_the_ledger() == [f"executions {first.id}"]
    assert edit_tables(ground, "DELETE FROM executions WHERE id=:id", id=last.id) == 1
    assert sorted(ground.hf.rows_unlike_the_ledger()) == sorted([f"executions {first.id}", f"executions {last.id}"])
    assert edit_tables(ground, "INSERT INTO approvals VALUES ('v-planted', 's-1', 1, '{}')") == 1
    assert "approvals v-planted" in ground.hf.rows_unlike_the_ledger()


def test_a_ledger_that_was_put_back_with_its_anchor_is_older_than_the_tables(ground: Ground) -> None:
    """Both were kept and put back after another change: the ledger is whole, and the rows that it lacks are named."""
    ground.apply(put("a", b"first\n"))
    places = [ground.state / "ledger.jsonl", Path(os.environ["XDG_STATE_HOME"]) / "holdfast" / "anchors"]
    kept = ground.path.parent / "kept"
    for number, place in enumerate(places):
        (shutil.copytree if place.is_dir() else shutil.copy2)(place, kept.with_name(f"kept-{number}"))
    last = ground.apply(put("b", b"B\n"))
    ground.hf.close()
    for number, place in enumerate(places):
        if place.is_dir():
            shutil.rmtree(place)
            shutil.copytree(kept.with_name(f"kept-{number}"), place)
        else:
            shutil.copy2(kept.with_name(f"kept-{number}"), place)
    again = Ground(ground.path)
    assert again.hf.audit().ok
    assert f"executions {last.id}" in again.hf.rows_unlike_the_ledger()
