"""However an execution ends, its record has steps, history, divergence and the true reason."""

from __future__ import annotations

import errno
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from guarded import ME, Ground, Interloper, guard, in_child, put
from holdfast.cli.documents import execution_document
from holdfast.engine.recovered import HEADER
from holdfast.errors import HoldfastError, NeedsHuman
from holdfast.model.execution import TAKEN_BACK, TAKEN_BACK_IN_PART
from holdfast.model.plan import Call, CommandCheck, HealthCheck, Launch, Plan, Service
from holdfast.store.documents import packed
from holdfast.testing import At, FaultyCalls, KillAt
from holdfast.workspace.transaction import Transaction

_FILES = {"a": b"old a", "b": b"old b"}
_STEPS = (put("b", b"new b"), put("a", b"new a"))
_UNWELL = CommandCheck(("false",), 1_000)
_MEDDLER = CommandCheck(("sh", "-c", "echo theirs > b; exit 1"), 5_000)
_CALL = Service(Call("http://127.0.0.1:9/x"), Call("http://127.0.0.1:9/x", "DELETE"))


def _press() -> None:
    raise KeyboardInterrupt


def _fail() -> None:
    raise OSError(errno.EIO, "the disk is broken")


def _refused(act: Callable[[], object], *kinds: type[BaseException]) -> None:
    with pytest.raises(kinds or (HoldfastError,)):
        act()


def _completed(path: Path) -> Ground:
    ground = guard(path, _FILES)
    ground.apply(*_STEPS)
    return ground


def _partial(path: Path) -> Ground:
    ground = guard(path, _FILES)
    plan = Plan("go on", (*_STEPS, _CALL), on_failure="continue")
    ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id)
    return ground


def _rolled_back(path: Path) -> Ground:
    ground = guard(path, _FILES)
    _refused(lambda: ground.apply(*_STEPS, health=(_UNWELL,)))
    return ground


def _check_failed(path: Path) -> Ground:
    ground = guard(path, _FILES)
    plan = ground.plan(*_STEPS, verify=(CommandCheck(("/bin/false",)),))
    _refused(lambda: ground.hf.execute(ground.hf.simulate(plan), approved_by=ME))
    return ground


def _hard_gate(path: Path) -> Ground:
    ground = guard(path, _FILES)
    ready = ground.ready(ground.plan(*_STEPS))
    ground.hf.reject(ready.decision, by=ME)
    _refused(ready.execute)
    return ground


def _moved_underneath(path: Path) -> Ground:
    ground = guard(path, _FILES)
    ready = ground.ready(ground.plan(*_STEPS))
    (ground / "a").write_bytes(b"edited since")
    _refused(ready.execute)
    return ground


def _not_staged(path: Path) -> Ground:
    ground = guard(path, _FILES, calls := FaultyCalls())
    ready = ground.ready(ground.plan(*_STEPS))
    calls.arm(At("staged", _fail))
    _refused(ready.execute)
    return ground


def _died(path: Path, point: str) -> Ground:
    guard(path, _FILES).hf.close()

    def die() -> None:
        there = Ground(path, calls := FaultyCalls())
        ready = there.ready(there.plan(*_STEPS))
        calls.arm(KillAt(point))
        ready.execute()

    assert in_child(die) == -9
    ground = Ground(path)
    ground.hf.recover()
    return ground


def _left(path: Path) -> Ground:
    ground = guard(path, _FILES)
    _refused(lambda: ground.apply(*_STEPS, health=(_MEDDLER,)))
    return ground


def _accepted(path: Path) -> Ground:
    ground = _left(path)
    ground.hf.recover(accept=True)
    return ground


def _put_right(path: Path) -> Ground:
    ground = _left(path)
    _put_back(ground)
    ground.hf.recover(accept=True)
    return ground


def _put_back(ground: Ground) -> None:
    """As a person does: the old file, from where the message says that it is kept."""
    (ground / "b").unlink()
    (folder,) = (ground.state / "journal").glob("e-*")
    slot = next(slot for slot in folder.iterdir() if slot.name.isdecimal() and slot.read_bytes() == b"old b")
    slot.rename(ground / "b")


def _interrupted(path: Path) -> Ground:
    ground = guard(path, _FILES, calls := Interloper())
    ready = ground.ready(ground.plan(*_STEPS))
    calls.arm("exchange", _press, skip=1)
    _refused(ready.execute, KeyboardInterrupt)
    return ground


def _interrupted_early(path: Path) -> Ground:
    ground = guard(path, _FILES, calls := Interloper())
    ready = ground.ready(ground.plan(*_STEPS))
    calls.arm("fsync", _press)
    _refused(ready.execute, KeyboardInterrupt)
    return ground


def _interrupted_on_the_way_back(path: Path, call: str, skip: int) -> Ground:
    """Ctrl-C while a failed change is being taken back; the next verb goes on with that."""
    ground = guard(path, _FILES, calls := Interloper())
    ready = ground.ready(ground.plan(*_STEPS, health=(_UNWELL,)))
    calls.arm(call, _press, skip=skip)
    _refused(ready.execute, KeyboardInterrupt)
    assert calls.struck == 1
    ground.hf.recover()
    _, document = ground.hf.show(ground.hf.log()[0].id)
    assert document is not None
    assert [receipt["passed"] for receipt in document["receipts"]] == [False]  # type: ignore[union-attr,index,call-overload]
    assert "taking it back was interrupted" in document["errors"]  # type: ignore[operator]
    return ground


class Ending(NamedTuple):
    """`state` is how it ended, `before` the status before that, `reason` a part of the reason that is told."""

    make: Callable[[Path], Ground]
    state: str
    before: str
    reason: str = ""
    divergence: tuple[str, ...] = ()
    done: tuple[bool, ...] = (False, False)


_ENDINGS = {
    "completed": Ending(_completed, "COMPLETED", "HEALTH_CHECKING", done=(True, True)),
    "partial": Ending(_partial, "PARTIAL", "HEALTH_CHECKING", "127.0.0.1:9", done=(True, True, False)),
    "rolled back": Ending(_rolled_back, "ROLLED_BACK", "FAILED", "false"),
    "check failed": Ending(_check_failed, "ABORTED", "PENDING", "/bin/false"),
    "hard gate failed": Ending(_hard_gate, "ABORTED", "PENDING", "rejected"),
    "moved underneath": Ending(_moved_underneath, "ABORTED", "BACKING_UP", "a was", ("a",)),
    "not staged": Ending(_not_staged, "ABORTED", "BACKING_UP", "could not be prepared"),
    "killed": Ending(lambda path: _died(path, "flipped"), "ROLLED_BACK", "FAILED", "not finished by the process"),
    "killed after the commit": Ending(
        lambda path: _died(path, "committed"), "COMPLETED", "HEALTH_CHECKING", done=(True, True)
    ),
    "killed after the entry": Ending(
        lambda path: _died(path, "in-ledger"), "COMPLETED", "HEALTH_CHECKING", done=(True, True)
    ),
    "left to a person": Ending(_left, "FAILED", "HEALTH_CHECKING", "theirs > b", ("b",)),
    "accepted": Ending(_accepted, "FAILED", "HEALTH_CHECKING", "theirs > b", ("b",)),
    "put right": Ending(_put_right, "ROLLED_BACK", "FAILED", "theirs > b", ("b",)),
    "interrupted": Ending(_interrupted, "ROLLED_BACK", "FAILED", "interrupted"),
    "interrupted on the way back": Ending(
        lambda path: _interrupted_on_the_way_back(path, "exchange", 2), "ROLLED_BACK", "FAILED", "false"
    ),
    "interrupted in the middle of it": Ending(
        lambda path: _interrupted_on_the_way_back(path, "exchange", 3), "ROLLED_BACK", "FAILED", "false"
    ),
    "interrupted at its end": Ending(
        lambda path: _interrupted_on_the_way_back(path, "fdatasync", 1), "ROLLED_BACK", "FAILED", "false"
    ),
    "interrupted early": Ending(_interrupted_early, "ABORTED", "BACKING_UP", "interrupted"),
}


@pytest.mark.parametrize("name", _ENDINGS)
def test_every_ending_is_recorded_whole(tmp_path: Path, name: str) -> None:
    """`show` has every step, the history up to the end, what others changed, and why."""
    ending = _ENDINGS[name]
    ground = ending.make(tmp_path / "workspace")
    row, document = ground.hf.show(ground.hf.log()[0].id)
    shown: dict[str, Any] = execution_document(row, document)
    assert (shown["state"], shown["status"]) == (ending.state, ending.state.replace("COMPLETED", "SUCCESS"))
    assert [(step["target"], step["success"]) for step in shown["steps"]][:2] == list(
        zip(("b", "a"), ending.done, strict=False)
    )
    assert [step["success"] for step in shown["steps"]] == list(ending.done)
    statuses = [moment["status"] for moment in shown["history"]]
    assert statuses[0] == "PENDING"
    assert statuses[-2:] == [ending.before, ending.state]
    assert [item["path"] for item in shown["divergence"]] == list(ending.divergence)
    assert shown["divergence_detected"] is bool(ending.divergence)
    assert ending.reason in "\n".join(shown["errors"])
    assert bool(shown["errors"]) is bool(ending.reason) is bool(shown["abort_reason"])
    # What nobody lived to tell is not said to be nothing.
    assert bool(shown["divergence_not_looked_at"]) is (name in ("killed", "killed after the commit"))
    assert shown["undoable"] is (ending.state in ("COMPLETED", "PARTIAL"))
    # Checks come before the gates; whatever ended later names the decision that it ended under.
    assert bool(shown["decision_id"]) is (name != "check failed")
    # Proven is what went back, and never what landed.
    assert not (shown["undoable"] and shown["paths_proven"])
    assert ground.hf.audit().ok


@pytest.mark.parametrize("name", ["left to a person", "accepted", "put right", "killed", "partial"])
def test_each_step_tells_whether_its_own_paths_went_back(tmp_path: Path, name: str) -> None:
    """Where one path was left to somebody else, the step on another one was rolled back all the same."""
    ground = _ENDINGS[name].make(tmp_path / "workspace")
    steps = _document(ground, ground.hf.log()[0].id)["steps"][:2]
    went_back = {"partial": [False, False], "put right": [True, True], "killed": [True, True]}.get(name, [False, True])
    assert [step["rollback_succeeded"] for step in steps] == went_back
    assert [step["rollback_invoked"] for step in steps] == [name != "partial"] * 2


@pytest.mark.parametrize("name", ["accepted", "rolled back", "interrupted"])
def test_a_lost_table_costs_only_the_steps(tmp_path: Path, name: str) -> None:
    """Rebuilt from the ledger, the record still has history, divergence and reason."""
    ending = _ENDINGS[name]
    ground = ending.make(tmp_path / "workspace")
    ground.hf.close()
    for part in ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm"):
        (ground.state / part).unlink(missing_ok=True)
    ground = Ground(ground.path)
    ground.hf.recover()
    row, document = ground.hf.show(ground.hf.log()[0].id)
    shown: dict[str, Any] = execution_document(row, document)
    assert shown["state"] == ending.state
    assert [moment["status"] for moment in shown["history"]][-2:] == [ending.before, ending.state]
    assert [item["path"] for item in shown.get("divergence", ())] == list(ending.divergence)
    assert ending.reason in "\n".join(shown["errors"])


def _edited_after_a_crash(path: Path) -> Ground:
    guard(path, _FILES).hf.close()

    def die() -> None:
        there = Ground(path, calls := FaultyCalls())
        ready = there.ready(there.plan(*_STEPS))
        calls.arm(KillAt("flipped"))
        ready.execute()

    assert in_child(die) == -9
    (path / "b").write_bytes(b"theirs")
    return Ground(path)


def _killed_while_saying_that_it_waits(path: Path) -> Ground:
    guard(path, _FILES).hf.close()

    def die() -> None:
        there = Ground(path, calls := FaultyCalls())
        ready = there.ready(there.plan(*_STEPS, health=(_MEDDLER,)))
        calls.arm(KillAt("in-ledger"))
        ready.execute()

    assert in_child(die) == -9
    return Ground(path)


@pytest.mark.parametrize("made", [_edited_after_a_crash, _killed_while_saying_that_it_waits])
def test_what_recovery_leaves_to_a_person_can_be_looked_at(tmp_path: Path, made: Callable[[Path], Ground]) -> None:
    """Before anybody has decided it has a record with steps, history and divergence, and one end when they have."""
    ground = made(tmp_path / "workspace")
    for _ in range(2):  # asked twice it is recorded once
        _refused(ground.hf.recover, NeedsHuman)
    (row,) = ground.hf.log()
    assert (row.status, row.undoable) == ("FAILED", False)
    shown = _document(ground, row.id)
    assert [moment["status"] for moment in shown["history"]][-1] == "FAILED"
    assert [item["path"] for item in shown["divergence"]] == ["b"]
    assert shown["errors"]
    assert len([entry for entry in ground.hf.ledger.entries() if entry.kind == "execution"]) == 1
    ground.hf.recover(accept=True)
    shown = _document(ground, row.id)
    assert (shown["state"], [step["target"] for step in shown["steps"]]) == ("FAILED", ["b", "a"])
    assert [item["path"] for item in shown["divergence"]] == ["b"]
    assert [moment["status"] for moment in shown["history"]].count("FAILED") == 1
    assert ground.ledger_statuses() == ["FAILED"]


@pytest.mark.parametrize("accept", [True, False])
def test_recovery_says_that_it_rolled_back_only_where_it_did(tmp_path: Path, accept: bool) -> None:
    """With a file left to others the reason says so, also when that is accepted; put right, all was rolled back."""
    ground = _edited_after_a_crash(tmp_path / "workspace")
    _refused(ground.hf.recover, NeedsHuman)
    (row,) = ground.hf.log()
    assert row.summary["errors"] == [TAKEN_BACK_IN_PART]
    if not accept:
        _put_back(ground)
    ground.hf.recover(accept=accept)
    (row,) = ground.hf.log()
    assert row.status == ("FAILED" if accept else "ROLLED_BACK")
    errors = row.summary["errors"]
    assert isinstance(errors, list) and errors[0] == (TAKEN_BACK_IN_PART if accept else TAKEN_BACK)
    assert [str(error).partition(" ")[0] for error in errors[1:]] == ["b"] * accept


def test_recovery_records_what_it_took_back_and_what_nobody_saw(tmp_path: Path) -> None:
    """Killed while its program ran: the record names the program that recovery ended, also where the table is lost."""
    ground = guard(tmp_path / "workspace", _FILES)
    ground.hf.close()
    plan = Plan("stay", (*_STEPS, Service(Launch(("sleep", "300")))))

    def die() -> None:
        there = Ground(ground.path, calls := FaultyCalls())
        ready = there.ready(plan)
        calls.arm(KillAt("commit"))
        ready.execute()

    assert in_child(die) == -9
    ground = Ground(ground.path)
    ground.hf.recover()
    id = ground.hf.log()[0].id
    shown = _document(ground, id)
    assert (shown["state"], shown["services_taken_back"]) == ("ROLLED_BACK", ["ended sleep 300"])
    ground.hf.close()
    for part in ("holdfast.db", "holdfast.db-wal", "holdfast.db-shm"):
        (ground.state / part).unlink(missing_ok=True)
    ground = Ground(ground.path)
    ground.hf.recover()
    assert ground.hf.log()[0].summary["taken_back"] == ["ended sleep 300"]
    assert _document(ground, id)["divergence_not_looked_at"] == shown["divergence_not_looked_at"] != ""


@pytest.mark.parametrize("accept", [True, False])
def test_what_the_first_process_measured_stays_when_a_person_decides(tmp_path: Path, *, accept: bool) -> None:
    """What the health checks said, with their log, and what was taken back outside the files are told as before."""
    ground = guard(tmp_path / "workspace", _FILES)
    plan = Plan("stay", (*_STEPS, Service(Launch(("sleep", "300")))), health=(_MEDDLER,))
    _refused(lambda: ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id))
    id = ground.hf.log()[0].id
    before = _document(ground, id)
    assert [receipt["passed"] for receipt in before["receipts"]] == [False]
    assert before["services_taken_back"]
    if not accept:
        _put_back(ground)
    ground.hf.recover(accept=accept)
    after = _document(ground, id)
    assert after["state"] == ("FAILED" if accept else "ROLLED_BACK")
    kept = ("receipts", "services_taken_back", "divergence_not_looked_at", "approval_time")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}


def _document(ground: Ground, id: str) -> dict[str, Any]:
    return execution_document(*ground.hf.show(id))


@pytest.mark.parametrize("record", ["garbage", "another release"])
def test_a_record_that_nobody_can_read_keeps_nothing_from_being_settled(tmp_path: Path, record: str) -> None:
    """A journal that another release left open is rolled back and settled, if without its steps."""
    ground = guard(tmp_path / "workspace", _FILES)
    odd = {"began_ns": 1, "approved_at_ns": 0, "receipts": [{"verdict": "good"}]}
    written = "AAAA" if record == "garbage" else b64encode(packed(odd, [{"done": True}])).decode("ascii")
    ground.hf.close()

    def die() -> None:
        there = Ground(ground.path, calls := FaultyCalls())
        ready = there.ready(there.plan(*_STEPS))
        empty = dict.fromkeys(("plan_id", "plan_digest", "change_set", "base", "intent", "approved_by"), "")
        header: dict[str, Any] = {**empty, "undoes": [], "revives": [], HEADER: written}
        transaction = Transaction(there.hf.site, "e-aaaaaaaa", header)
        transaction.prepare(ready.change_set, ready.simulated.seen, ready.simulated.sources)
        calls.arm(KillAt("flipped"))
        transaction.apply()

    assert in_child(die) == -9
    ground = Ground(ground.path)
    ground.hf.recover()
    assert {name: (ground / name).read_bytes() for name in _FILES} == _FILES
    assert ground.statuses() == ground.ledger_statuses() == ["ROLLED_BACK"]


@pytest.mark.parametrize(
    ("point", "between"),
    [("prepared", []), ("flipped", ["APPLYING"]), ("committed", ["APPLYING", "VERIFYING", "HEALTH_CHECKING"])],
)
def test_a_killed_one_tells_how_far_it_came(tmp_path: Path, point: str, between: list[str]) -> None:
    """What the disk proves is in the history, with the time at which recovery found it; the rest is left out."""
    before = time.time_ns()
    ground = _died(tmp_path / "workspace", point)
    row, document = ground.hf.show(ground.hf.log()[0].id)
    history = execution_document(row, document)["history"]
    end = ["COMPLETED"] if point == "committed" else ["FAILED", "ROLLED_BACK"]
    assert [moment["status"] for moment in history] == ["PENDING", "VALIDATING", "BACKING_UP", *between, *end]
    times = [moment["at_ns"] for moment in history]
    assert times == sorted(times) and before <= times[0] <= times[2] < times[-1] <= time.time_ns()
    assert len(set(times[3:])) == 1


@pytest.mark.parametrize("point", ["in-ledger", "in-tables", "put-away"])
@pytest.mark.parametrize(("health", "status"), [((_UNWELL,), "ROLLED_BACK"), ((), "SUCCESS")])
def test_steps_outlast_a_record_that_was_broken_off(
    tmp_path: Path, health: tuple[HealthCheck, ...], status: str, point: str
) -> None:
    """Killed between the entry of a change, its row and its folder: its steps are known all the same."""
    ground = guard(tmp_path, _FILES)

    def die() -> None:
        again = Ground(tmp_path, FaultyCalls(KillAt(point)))
        again.ready(again.plan(*_STEPS, health=health)).execute()

    assert in_child(die) == -9
    ground.hf.recover()
    _, document = ground.hf.show(ground.hf.log()[0].id)
    assert document is not None
    assert (document["status"], document["steps_executed"]) == (status, len(_STEPS))
    assert document["snapshot_after"]
