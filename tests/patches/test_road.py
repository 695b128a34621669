"""Patches through the real product: applied, undone, reversed, refused, quarantined, and killed on the way."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from guarded import ME, Ground, contents, guard, in_child
from holdfast.engine.patching import Planned, Sent
from holdfast.errors import ApprovalNeeded, Blocked, Denied, HoldfastError, InvalidInput, VerificationFailed
from holdfast.model.execution import Execution
from holdfast.model.patch import Patch, rendered
from holdfast.model.patch_make import make
from holdfast.model.patch_state import MOVES, Standing
from holdfast.model.plan import CommandCheck
from holdfast.testing import FaultyCalls, Kill, KillAt
from holdfast.workspace import keeping

FILES = {"a.txt": b"one\ntwo\nthree\n", "b.txt": b"b\n"}
NEW = b"one\nTWO\nthree\n"
PATCH = rendered(Patch((make(FILES["a.txt"], NEW, "a.txt"), make(None, b"c\n", "c.txt"))))
STALE = rendered(Patch((make(b"never\nso\n", b"there\n", "a.txt"),)))
# Without checks, and with one that passed.
ROAD = ["created", "validated", "queued", "applied", "committed"]
VERIFIED = [*ROAD[:-1], "verified", "committed"]


def sent(data: bytes = PATCH, *, reverse: bool = False, unverified: str = "a test") -> Sent:
    """Most of these are about states; checks that are found have tests of their own."""
    return Sent(data, "fix.patch", reverse, unverified)


def applied(ground: Ground, what: Sent) -> Execution | Planned:
    """What `holdfast apply` does with a patch."""
    hf = ground.hf
    found = hf.patches.planned(what)
    if found.plan is None:
        return found
    try:
        simulated = hf.simulate(found.plan)
        execution = hf.execute(simulated, approved_by=ME, consent=found.plan.id)
    except HoldfastError as error:
        hf.patches.ended(found.patch, error)
        raise
    hf.patches.ended(found.patch, None)
    return execution


def standing(ground: Ground) -> Standing:
    ground.hf.patches.settle()
    return ground.hf.patches.history.standings()[-1]


def states(ground: Ground) -> list[str]:
    """Of the patch that moved last."""
    return [move.state for move in ground.hf.patches.history.history(standing(ground).patch)]


def configured(home: Path, text: str) -> None:
    folder = home / "xdg_config_home" / "holdfast"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / "config.toml").write_text(text)
    (folder / "config.toml").chmod(0o600)


# ── there and back ──


def test_a_patch_goes_the_whole_road(tmp_path: Path) -> None:
    """Each state is passed in order, the last ones name the execution, and the files are what the patch says."""
    ground = guard(tmp_path / "w", FILES)
    execution = applied(ground, sent())
    assert isinstance(execution, Execution)
    assert contents(ground.tree()) == {**FILES, "a.txt": NEW, "c.txt": b"c\n"}
    assert states(ground) == ROAD
    assert (standing(ground).execution, standing(ground).plan) == (execution.id, execution.plan_digest)


def test_applied_again_it_is_done_already(tmp_path: Path) -> None:
    """The same patch, whose effect stands, is answered with its execution and moves nowhere."""
    ground = guard(tmp_path / "w", FILES)
    first = applied(ground, sent())
    again = applied(ground, sent(PATCH + b"-- \nsent once more\n"))
    assert isinstance(first, Execution)
    assert isinstance(again, Planned)
    assert again.done is not None
    assert again.done.id == first.id
    assert states(ground) == ROAD


def test_an_undo_takes_it_back_and_it_can_be_applied_again(tmp_path: Path) -> None:
    """Undone, it is rolled_back; the undo undone, committed; undone and sent again, it goes the road once more."""
    ground = guard(tmp_path / "w", FILES)
    before = ground.tree()
    execution = applied(ground, sent())
    assert isinstance(execution, Execution)
    undo = ground.hf.undo(execution.id, approved_by=ME)
    assert ground.tree() == before
    assert standing(ground).state == "rolled_back"
    again = ground.hf.undo(undo.id, approved_by=ME)
    assert standing(ground).state == "committed"
    ground.hf.undo(again.id, approved_by=ME)
    assert (standing(ground).state, standing(ground).failures) == ("rolled_back", 0)
    assert isinstance(applied(ground, sent()), Execution)
    assert states(ground)[-3:] == ROAD[-3:]


def test_reversed_it_takes_back_what_it_did(tmp_path: Path) -> None:
    """The reverse is a patch of its own, with its own road, and gives back the old contents."""
    ground = guard(tmp_path / "w", FILES)
    applied(ground, sent())
    applied(ground, sent(reverse=True))
    assert contents(ground.tree()) == FILES
    assert len(ground.hf.patches.history.standings()) == 2
    assert standing(ground).source == "reverse of fix.patch"
    applied(ground, sent())
    assert contents(ground.tree())["a.txt"] == NEW


def test_planned_by_one_command_and_executed_by_another(tmp_path: Path) -> None:
    """A plan that was kept carries its patch along: whoever executes it, the ledger of patches follows."""
    ground = guard(tmp_path / "w", FILES)
    plan = ground.hf.patches.planned(sent()).plan
    assert plan is not None
    ground.hf.keep_plan(plan)
    assert standing(ground).state == "queued"
    ground = ground.reopened()
    kept = ground.hf.kept_plan(plan.id)
    ground.hf.execute(ground.hf.simulate(kept), approved_by=ME)
    assert states(ground) == ROAD


def test_a_look_at_a_patch_wants_nothing(tmp_path: Path) -> None:
    """A preview leaves the patch validated; one that does not apply is no failure of it."""
    ground = guard(tmp_path / "w", FILES)
    assert ground.hf.patches.planned(sent(), wanted=False).plan is not None
    assert states(ground) == ["created", "validated"]
    with pytest.raises(Blocked):
        ground.hf.patches.planned(sent(STALE), wanted=False)
    assert (states(ground), standing(ground).failures) == (["created", "validated"], 0)


def test_every_check_that_is_found_is_run_over_a_patch(tmp_path: Path) -> None:
    """A patch that breaks the tests of the project fails in the shadow: nothing lands, and it is apply_failed."""
    files = {
        "app.py": b"def answer():\n    return 42\n",
        "tests/__init__.py": b"",
        "tests/test_app.py": b"import unittest\nfrom app import answer\n\nclass TestAnswer(unittest.TestCase):\n"
        b"    def test_answer(self):\n        self.assertEqual(answer(), 42)\n",
        "setup.cfg": b"",
    }
    ground = guard(tmp_path / "w", files)
    broken = rendered(Patch((make(files["app.py"], files["app.py"].replace(b"42", b"41"), "app.py"),)))
    with pytest.raises(VerificationFailed):
        applied(ground, sent(broken, unverified=""))
    assert contents(ground.tree()) == files
    assert (standing(ground).state, standing(ground).failures) == ("apply_failed", 1)
    good = rendered(Patch((make(files["app.py"], b"# The answer.\n" + files["app.py"], "app.py"),)))
    applied(ground, sent(good, unverified=""))
    assert states(ground) == VERIFIED
    moves = ground.hf.patches.history.history(standing(ground).patch)
    assert [move.reason for move in moves if move.state == "verified"] == ["1 check passed"]


def test_a_patch_that_no_check_ran_over_says_so(tmp_path: Path) -> None:
    """That a data file parses is a receipt, and no check that passed: the patch is committed, and never verified."""
    ground = guard(tmp_path / "w", {"data.json": b"{}\n"})
    patch = rendered(Patch((make(b"{}\n", b"[]\n", "data.json"),)))
    applied(ground, sent(patch, unverified=""))
    assert states(ground) == ROAD
    assert standing(ground).reason == "unverified: no check ran"


# ── failures, and what is none ──


def test_three_failures_are_a_quarantine_until_a_person_releases_it(tmp_path: Path) -> None:
    """The third failure says so, the fourth attempt is denied with the way out, and a release begins anew."""
    ground = guard(tmp_path / "w", FILES)
    for _ in range(2):
        with pytest.raises(Blocked) as caught:
            applied(ground, sent(STALE))
        assert "quarantined" not in caught.value.hint
    with pytest.raises(Blocked, match=r"a\.txt") as caught:
        applied(ground, sent(STALE))
    patch = standing(ground).patch
    assert f"holdfast patches release {patch}" in caught.value.hint
    (ground / "a.txt").write_bytes(b"never\nso\n")
    with pytest.raises(Denied, match="3 failures") as denied:
        applied(ground, sent(STALE))
    assert f"holdfast patches release {patch}" in denied.value.hint
    assert ground.hf.patches.release(patch, reason="looked at").by == ground.hf.pipeline.governance.me()
    applied(ground, sent(STALE))
    assert (ground / "a.txt").read_bytes() == b"there\n"
    assert standing(ground).failures == 0


@pytest.mark.parametrize("name", ["claude", "Claude", "mine", " "])
def test_no_agent_releases_a_patch(tmp_path: Path, home: Path, name: str) -> None:
    """An agent's name, ours or configured, in any spelling, decides nothing about a patch."""
    configured(home, '[agents.mine]\ncommand = ["/usr/bin/true"]\n')
    ground = guard(tmp_path / "w", FILES)
    with pytest.raises(Denied):
        applied(ground, sent(b"--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n"))
    patch = standing(ground).patch
    for decide in (ground.hf.patches.release, ground.hf.patches.drop):
        with pytest.raises(Denied, match="person"):
            decide(patch, by=name or "\0")
    assert standing(ground).state == "quarantined"


@pytest.mark.parametrize("path", ["../out.txt", ".git/hooks/pre-commit", ".holdfast/ledger.jsonl", "a/../../b"])
def test_a_path_out_of_reach_is_a_quarantine_at_once(tmp_path: Path, path: str) -> None:
    """A patch that reaches for what nobody may change is quarantined by its first attempt, and changes nothing."""
    ground = guard(tmp_path / "w", FILES)
    before = ground.tree()
    text = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n".encode()
    with pytest.raises(Denied) as caught:
        applied(ground, sent(text))
    assert "quarantined now" in caught.value.hint
    assert standing(ground).state == "quarantined"
    with pytest.raises(Denied, match="is quarantined"):
        applied(ground, sent(text))
    assert ground.tree() == before


def test_what_policy_forbids_is_a_quarantine_at_once(tmp_path: Path, home: Path) -> None:
    """A rule of the user's that denies a path makes the patch that touches it grave; other operations it leaves."""
    configured(
        home,
        '[[policy.rules]]\nname = "Keeps b"\npaths = ["b.txt"]\noperations = ["delete"]\nverdict = "deny"\n'
        'match = ["b.txt"]\nnot_match = ["a.txt"]\n',
    )
    ground = guard(tmp_path / "w", FILES)
    applied(ground, sent(rendered(Patch((make(b"b\n", b"B\n", "b.txt"),)))))
    assert states(ground) == ROAD
    with pytest.raises(Denied, match="must not be changed"):
        applied(ground, sent(rendered(Patch((make(b"B\n", None, "b.txt"),)))))
    assert standing(ground).state == "quarantined"
    assert (ground / "b.txt").read_bytes() == b"B\n"


@pytest.mark.parametrize("kind", ["copy", "rename"])
def test_a_patch_brings_nothing_hidden_into_sight(tmp_path: Path, home: Path, kind: str) -> None:
    """Copying or renaming a hidden file would show its content to every check: quarantined, and nothing is planned."""
    configured(home, '[workspace]\nhidden = ["secrets/**"]\n')
    ground = guard(tmp_path / "w", {**FILES, "secrets/k": b"key\n"})
    text = f"diff --git a/secrets/k b/seen\nsimilarity index 100%\n{kind} from secrets/k\n{kind} to seen\n"
    with pytest.raises(Denied, match="hidden"):
        applied(ground, sent(text.encode()))
    assert standing(ground).state == "quarantined"
    assert not (ground / "seen").exists()


def test_too_much_is_refused_by_the_limits_of_policy(tmp_path: Path, home: Path) -> None:
    """More lines than policy lets one change have are denied before anything is planned; that is no quarantine."""
    configured(home, "[policy.limits]\nlines = 2\n")
    ground = guard(tmp_path / "w", FILES)
    with pytest.raises(Denied, match="lines"):
        applied(ground, sent())
    assert (standing(ground).state, standing(ground).failures) == ("created", 1)


def test_a_text_that_is_no_sound_patch_is_known_too(tmp_path: Path) -> None:
    """What cannot be read is recorded with the line, and counts; the message names file and line."""
    ground = guard(tmp_path / "w", FILES)
    with pytest.raises(InvalidInput, match=r"fix\.patch: line 3"):
        applied(ground, sent(b"--- a/a.txt\n+++ b/a.txt\n@@ nonsense 1 2 -\n"))
    assert (standing(ground).state, standing(ground).failures) == ("created", 1)
    assert "line 3" in standing(ground).reason


def test_a_missing_approval_is_no_failure(tmp_path: Path) -> None:
    """Where a person has not said yes, the patch stays queued, and lands when they do."""
    ground = guard(tmp_path / "w", FILES)
    found = ground.hf.patches.planned(sent())
    assert found.plan is not None
    with pytest.raises(ApprovalNeeded) as caught:
        ground.hf.execute(ground.hf.simulate(found.plan))
    assert ground.hf.patches.ended(found.patch, caught.value).state == "queued"
    assert isinstance(applied(ground, sent()), Execution)
    assert standing(ground).failures == 0


def test_rolled_back_by_its_health_it_is_a_failure(tmp_path: Path) -> None:
    """Applied and taken back, because what it left was not healthy: rolled_back, with one failure and the reason."""
    from dataclasses import replace

    ground = guard(tmp_path / "w", FILES)
    found = ground.hf.patches.planned(sent(), wanted=False)
    assert found.plan is not None
    plan = replace(found.plan, health=(CommandCheck(("/usr/bin/false",), within_ms=200),))
    ground.hf.patches.history.move(found.patch, "queued", 1, plan=plan.digest)
    with pytest.raises(VerificationFailed):
        ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id)
    assert (standing(ground).state, standing(ground).failures) == ("rolled_back", 1)
    assert states(ground)[-2:] == ["applied", "rolled_back"]
    assert contents(ground.tree()) == FILES


def test_a_dropped_patch_is_not_applied_and_one_that_stands_is_not_dropped(tmp_path: Path) -> None:
    """Dropping is for good, by name; what landed has to be undone first."""
    ground = guard(tmp_path / "w", FILES)
    ground.hf.patches.planned(sent())
    patch = standing(ground).patch
    assert ground.hf.patches.drop(patch, by="ann").by == "ann"
    with pytest.raises(Denied, match="dropped by ann"):
        applied(ground, sent())
    applied(ground, sent(reverse=False, data=rendered(Patch((make(b"b\n", b"B\n", "b.txt"),)))))
    with pytest.raises(Blocked, match="committed"):
        ground.hf.patches.drop(standing(ground).patch, by="ann")


def test_collecting_keeps_the_texts_of_patches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After gc a patch can still be shown and sent again."""
    ground = guard(tmp_path / "w", FILES)
    applied(ground, sent())
    other = ground.hf.pipeline.simulator._save_log(b"the log of nothing")
    # Change times cannot be set, so everything counts as old instead.
    monkeypatch.setattr(keeping, "_YOUNG_NS", 0)
    ground.hf.gc(keep_days=0)
    assert not (ground.state / "objects" / other[:2] / other[2:]).exists()
    assert ground.hf.patches.history.text(standing(ground).patch) == PATCH


def test_an_id_is_found_by_its_beginning(tmp_path: Path) -> None:
    """Ids of patches resolve like all others, also where there is no patch yet."""
    ground = guard(tmp_path / "w", FILES)
    with pytest.raises(InvalidInput, match="nothing called"):
        ground.hf.resolve("x-")
    applied(ground, sent())
    assert ground.hf.resolve("x-") == standing(ground).patch


# ── killed on the way ──


def _agree(ground: Ground) -> None:
    """Where the patch stands is where its execution says, and every move was legal."""
    ground.hf.recover()
    found = standing(ground)
    moves = [move.state for move in ground.hf.patches.history.history(found.patch)]
    assert all(after in MOVES[before] for before, after in zip(moves, moves[1:], strict=False))
    landed = contents(ground.tree()) != FILES
    live = [row for row in ground.hf.log(limit=-1) if row.live and row.status == "COMPLETED"]
    assert (found.state == "committed") == landed == bool(live)
    if landed:
        assert found.execution == live[0].id
        assert contents(ground.tree())["a.txt"] == NEW
    assert found.failures == 0
    assert ground.hf.audit().ok


POINTS = ("staged", "prepared", "flipped", "applied", "commit", "committed", "in-ledger", "in-tables", "put-away")


@pytest.mark.crash
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_any_point_patches_and_executions_agree(tmp_path: Path, point: str) -> None:
    """After recovery the patch is committed exactly when its execution stands, and can be applied if it does not."""
    ground = guard(tmp_path / "w", FILES)
    ground.hf.close()
    status = in_child(lambda: applied(Ground(tmp_path / "w", FaultyCalls(KillAt(point))), sent()))
    assert status == -9
    ground = Ground(tmp_path / "w")
    _agree(ground)
    applied(ground, sent())
    assert standing(ground).state == "committed"
    assert contents(ground.tree())["a.txt"] == NEW


@pytest.mark.crash
@pytest.mark.parametrize("time", range(1, len(ROAD) + 1))
def test_killed_after_any_line_of_the_patch_ledger_they_agree(tmp_path: Path, time: int) -> None:
    """The same for a kill right after each of its own lines, the ones after the landing too."""
    ground = guard(tmp_path / "w", FILES)
    ground.hf.close()
    fault = KillAt("patch-ledger.durable", time)
    assert in_child(lambda: applied(Ground(tmp_path / "w", FaultyCalls(fault)), sent())) == -9
    ground = Ground(tmp_path / "w")
    _agree(ground)
    applied(ground, sent())
    assert standing(ground).state == "committed"


@pytest.mark.crash
@pytest.mark.long
def test_killed_at_calls_all_along_they_agree(tmp_path: Path) -> None:
    """Killed before every fortieth system call of the whole road."""
    counting = FaultyCalls()
    ground = guard(tmp_path / "count", FILES)
    ground.hf.close()
    applied(Ground(tmp_path / "count", counting), sent())
    numbers = range(1, counting.count, max(1, counting.count // 25))
    for number in numbers:
        path = tmp_path / f"w{number}"
        ground = guard(path, FILES)
        ground.hf.close()
        assert in_child(lambda: applied(Ground(path, FaultyCalls(Kill(number))), sent())) == -9  # noqa: B023
        ground = Ground(path)
        if os.path.exists(path / ".holdfast/patch_ledger.jsonl") and ground.hf.patches.history.standings():
            _agree(ground)
        applied(ground, sent())
        assert standing(ground).state == "committed"
        ground.hf.close()
