"""Commands that name no tests: red before and after verifies nothing, and what somebody named must pass in any case."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import holdfast
from delegated import configured
from guarded import ME, Ground, fill, put
from holdfast.engine.checking import Verified
from holdfast.engine.patching import Sent
from holdfast.engine.roadmap_runs import Crew
from holdfast.errors import AgentFailed, VerificationFailed
from holdfast.model.patch import Patch, rendered
from holdfast.model.patch_make import make
from holdfast.model.plan import CommandCheck, Plan, Write
from holdfast.model.run import RunOptions
from holdfast.model.task import TaskRecord
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import WriteFile

# Red until there is a `good`.
MAKEFILE = {"Makefile": b"test:\n\ttest -e good\n"}
UNITTEST = {
    "setup.py": b"",
    "test_a.py": b"import os, unittest\n\n\nclass TestIt(unittest.TestCase):\n"
    b"    def test_it(self):\n        self.assertTrue(os.path.exists('good'))\n",
}
TYPES = {"setup.py": b"", "mypy.ini": b"[mypy]\nfiles = a.py\n", "a.py": b"x: int = 'no'\n"}
LINT = {"Makefile": b"test:\n\ttrue\nlint:\n\ttest -e good\n"}
NOTES = put("notes.txt", b"x\n")


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")


def place(path: Path, files: Mapping[str, bytes]) -> Ground:
    path.mkdir()
    fill(path, files)
    holdfast.init(str(path))
    return Ground(path)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Ground]:
    ground = place(tmp_path / "workspace", MAKEFILE)
    yield ground
    ground.hf.close()


def checked(ground: Ground, *steps: Write, verify: tuple[CommandCheck, ...] = (), words: str = "") -> Verified:
    plan = Plan("a test", steps, verify=verify, words=(words or "Run all checks",))
    return ground.hf.verify(ground.hf.simulate(plan))


def driven(ground: Ground, title: str, file: str = "notes.txt") -> TaskRecord:
    """A run over one task, with a yes for everything."""
    (ground / "ROADMAP.md").write_text(f"# R\n\n- [ ] {title}\n")
    crew = Crew({"hand": ScriptedAgent(WriteFile(file, "x\n"))}, lambda event: None)
    run = ground.hf.runs.start("ROADMAP.md", RunOptions(agent="hand", attempts=1, mends=1), crew, yes=True)
    (record,) = ground.hf.runs.standing(run.id).records.values()
    return record


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (MAKEFILE, "make test"),
        (UNITTEST, "python3 -m unittest"),
        (TYPES, "python3 -m mypy"),
        (LINT, "make lint"),
    ],
)
def test_red_before_and_after_is_unverified(tmp_path: Path, files: Mapping[str, bytes], name: str) -> None:
    """Whatever else passed: nothing failed, nothing is verified, the reason names the command, and the gate asks."""
    ground = place(tmp_path / "workspace", files)
    simulated = ground.hf.simulate(Plan("a test", (NOTES,), words=("Run all checks",)))
    verified = ground.hf.verify(simulated)
    why = f"`{name}` failed before this change too"
    assert all(receipt.passed for receipt in verified.receipts), verified.receipts
    assert why in verified.unverified and verified.why_unverified(verified.lands_as) == why
    decision = ground.hf.evaluate(simulated, verified)
    assert decision.verdict == "NEED_APPROVAL"
    assert any(reason.detail == f"unverified: {why}" for reason in decision.reasons), decision.reasons
    ground.hf.close()


def test_green_before_and_red_after_fails(tmp_path: Path) -> None:
    """As ever; and so does the same command where the base ran another one."""
    ground = place(tmp_path / "workspace", {**MAKEFILE, "good": b""})
    ground.apply(put("notes.txt", b"x\n"))
    (ground / "Makefile").write_bytes(b"test:\n\ttest ! -e bad\n")
    verified = checked(ground, put("bad", b""))
    assert [receipt.passed for receipt in verified.receipts if receipt.kind == "tests"] == [False]
    ground.hf.close()


def test_red_before_and_green_after_is_verified(made: Ground) -> None:
    """The change that mends it is verified by it."""
    verified = checked(made, put("good", b""))
    assert all(receipt.passed for receipt in verified.receipts) and verified.doubt == verified.unverified == ""
    assert verified.why_unverified(verified.lands_as) == ""


def test_what_a_plan_names_must_pass(made: Ground) -> None:
    """As a command, as a level in words: red before is no excuse there."""
    named = checked(made, NOTES, verify=(CommandCheck(("make", "test"), 60_000),))
    assert [(r.passed, r.unverified) for r in named.receipts if r.origin == "plan"] == [(False, "")]
    in_words = checked(made, NOTES, words="Run tests")
    assert [(r.passed, r.unverified) for r in in_words.receipts if r.kind == "tests"] == [(False, "")]


def test_a_run_waits_for_a_person_with_it(made: Ground) -> None:
    """`--yes` does not land it, and the record says why; the user's own configuration lets it land, marked."""
    why = "`make test` failed before this change too"
    record = driven(made, "Add notes.txt")
    assert (record.state, record.unverified) == ("NEEDS_REVIEW", why), record
    configured('[run]\nunverified = "land"\n')
    record = driven(made, "Add more.txt", "more.txt")
    assert (record.state, record.unverified) == ("COMPLETED", why), record


def test_a_command_that_did_not_come_to_its_end_fails(made: Ground) -> None:
    """Nobody knows what it would have said: killed before and after, it fails the change."""
    (made / "Makefile").write_bytes(b"test:\n\tkill -9 $$PPID\n")
    verified = checked(made, NOTES)
    assert [(r.passed, r.unverified) for r in verified.receipts if r.kind == "tests"] == [(False, "")]


def test_words_that_only_sound_like_a_check_ask_for_none(tmp_path: Path) -> None:
    """A task about MIME types or a style sheet is not about what was red."""
    for number, (files, title) in enumerate(((TYPES, "Add MIME types"), (LINT, "Add a style sheet"))):
        ground = place(tmp_path / f"workspace{number}", files)
        record = driven(ground, title)
        assert record.state == "NEEDS_REVIEW" and "failed before this change too" in record.unverified, record
        ground.hf.close()


@pytest.mark.parametrize(
    "title", ["Add notes.txt\n  Verify: `make test`", "Mend the failing tests", "Let make test pass"]
)
def test_what_a_task_names_must_pass(made: Ground, title: str) -> None:
    """The command that says when it is done, or the failure that it is about."""
    assert driven(made, title).state == "FAILED"


def test_a_patch_lands_with_a_yes_and_counts_as_unverified(made: Ground) -> None:
    """It is not refused for what was red before; the ledger of patches does not call it verified."""
    data = rendered(Patch((make(None, b"c\n", "c.txt"),)))
    planned = made.hf.patches.planned(Sent(data, "fix.patch"))
    assert planned.plan is not None
    made.hf.execute(made.hf.simulate(planned.plan), approved_by=ME, consent=planned.plan.id)
    made.hf.patches.ended(planned.patch, None)
    history = made.hf.patches.history.history(planned.patch)
    assert [move.state for move in history][-2:] == ["applied", "committed"]
    assert history[-1].reason == "unverified: `make test` failed before this change too"


def test_a_fix_mends_one_of_two_red_commands(tmp_path: Path) -> None:
    """The one it is about must pass; the other one, red before and after, leaves the repair unverified."""
    makefile = b"test:\n\ttest -e good\nlint:\n\ttest -e clean\n"
    ground = place(tmp_path / "workspace", {"Makefile": makefile})
    broken = ground.hf.broken()
    assert broken is not None and broken.receipt.command == ("make", "test")
    agents = {name: ScriptedAgent(WriteFile(name, ""), name=name) for name in ("idle", "good")}
    with pytest.raises((AgentFailed, VerificationFailed)):
        ground.hf.fix(broken, agent="idle", attempts=1, agents=agents)
    fixed = ground.hf.fix(broken, agent="good", attempts=1, agents=agents)
    assert fixed.record.good and fixed.verified.doubt == "`make lint` failed before this change too"
    ground.hf.close()


def test_a_run_that_broke_is_not_let_pass(tmp_path: Path) -> None:
    """pytest names its tests: where it cannot even start, before and after, the change fails."""
    files = {"pyproject.toml": b"[tool.pytest.ini_options]\n", "conftest.py": b"import nothing\n", "test_a.py": b""}
    ground = place(tmp_path / "workspace", files)
    verified = checked(ground, NOTES)
    assert [receipt.passed for receipt in verified.receipts if receipt.kind == "tests"] == [False]
    ground.hf.close()
