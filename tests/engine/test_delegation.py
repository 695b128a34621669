"""Work given to agents: measured, fed back, refused or landed; whatever the agent says of it."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from delegated import (
    APP,
    FILES,
    FIXED,
    ONCE,
    TEST,
    Given,
    Returning,
    asking_agent,
    configured,
    delegations,
    give,
    plan_for,
    project,
)
from guarded import ME, Ground, contents, put
from holdfast.agents.protocol import Bench, Health
from holdfast.engine.checking import ShadowKind
from holdfast.engine.transcript import work_in
from holdfast.errors import (
    AgentFailed,
    ApprovalNeeded,
    Conflict,
    Denied,
    HoldfastError,
    InvalidInput,
    LimitReached,
)
from holdfast.model.agent import Claim, Ending, Happening, Request, Result, Said, Spent
from holdfast.model.plan import Agent as AgentStep
from holdfast.model.plan import Plan, Run
from holdfast.store.blobs import Blobs
from holdfast.testing import ScriptedAgent, ScriptedModel
from holdfast.testing.agents import Act, Delete, Exit
from holdfast.testing.script import Error, Hang, Say, Shell, WriteFile

MEND = WriteFile("app.py", FIXED.decode())
KINDS: tuple[ShadowKind, ShadowKind] = ("overlay", "copy")
WRITE = Given(task="Write it down.")
# Before a program that asks its model: told of an attempt before, it does the work alone.
ALONE_LATER = """\
import os, sys
if "last attempt" in os.environ["HOLDFAST_TASK"]:
    open("own.txt", "w").write("x")
    sys.exit()
"""
# Has the shape of a key, and opens nothing.
SHAPED = "sk-ant-" + "x9" * 20


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return project(tmp_path / "workspace")


@pytest.fixture
def repository(tmp_path: Path) -> Ground:
    """The same under git, with ignored caches."""
    place = tmp_path / "workspace"
    place.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=place, check=True)
    return project(place, {**FILES, ".gitignore": b"cache/\n__pycache__/\n"})


def refused(ground: Ground, agent: Any, given: Given = ONCE, **more: Any) -> HoldfastError:
    """What stops it; and whatever that is, nothing was changed and the ledger is whole."""
    before = ground.tree()
    with pytest.raises(HoldfastError) as stopped:
        give(ground, agent, given, **more)
    assert ground.tree() == before
    assert ground.hf.audit().ok
    assert stopped.value.changed is False
    return stopped.value


# ── good ──


def test_good_work_lands_once_and_can_be_undone(ground: Ground) -> None:
    """One attempt, one change, tests run in a layer; it lands by an approval and goes back to the byte."""
    before = ground.tree()
    simulated = give(ground, ScriptedAgent(MEND, Say("I made it 42.")))
    assert ground.tree() == before
    assert tuple(simulated.change_set.paths) == ("app.py",)
    verified = ground.hf.verify(simulated)
    assert verified.receipts and all(receipt.passed for receipt in verified.receipts)
    done = ground.hf.execute(simulated, approved_by=ME, verified=verified)
    assert contents(ground.tree())["app.py"] == FIXED
    ground.hf.undo(done.id, approved_by="me")
    assert contents(ground.tree()) == contents(before)
    (entry,) = delegations(ground)
    assert (entry["good"], len(entry["attempts"])) == (True, 1)
    assert entry["attempts"][0]["claimed"]["words"] == "I made it 42."


def test_the_author_of_the_decision_is_the_agent(ground: Ground) -> None:
    """Policy by author sees who did it, not who asked for it."""
    simulated = give(ground, ScriptedAgent(MEND, name="robot"))
    assert ground.hf.evaluate(simulated).author == "robot"


def test_the_kind_of_shadow_makes_no_difference(ground: Ground) -> None:
    """Files made, changed, removed and linked by an agent are one and the same change set."""
    shell = Shell("ln -s deep.txt new/link; chmod 755 new/deep.txt; rm setup.cfg")
    agent = ScriptedAgent(MEND, WriteFile("new/deep.txt", "x\n"), shell)
    overlay, copy = (give(ground, agent, shadow=kind) for kind in KINDS)
    assert (overlay.report.shadow, copy.report.shadow) == KINDS
    assert overlay.change_set.digest == copy.change_set.digest
    assert len(tuple(overlay.change_set.paths)) == 5


# ── measured, and fed back ──

WRONG: dict[str, tuple[tuple[Act, ...], Given, str]] = {
    "a failing test": (
        (WriteFile("app.py", "def answer():\n    return 40\n"), Say("All tests pass.")),
        Given(),
        "A check failed",
    ),
    "a missing file": ((MEND,), Given(expected=("docs/answer.md",)), "docs/answer.md"),
    "a syntax error": ((WriteFile("app.py", "def answer(:\n"),), Given(), "A check failed"),
    "nothing done": ((Say("Everything is done."),), Given(), "Nothing was changed in the files."),
    "an exit with 1": ((MEND, Say("Done."), Exit(1)), Given(), "You did not finish: it exited with 1"),
    "a fifo": ((MEND, Shell("mkfifo -m 600 pipe || true")), Given(), "This cannot become part of a change"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_told_and_can_be_mended(ground: Ground, what: str) -> None:
    """The second attempt gets the evidence of the first, and good work then counts."""
    acts, given, words = WRONG[what]
    mending = (WriteFile("app.py", FIXED.decode()), WriteFile("docs/answer.md", "42\n"), Shell("rm -f pipe"))
    heard: list[Happening] = []
    agent = ScriptedAgent(*acts, later={2: mending})
    simulated = give(ground, agent, given._replace(attempts=2), watcher=heard.append)
    assert set(simulated.change_set.paths) >= {"app.py", "docs/answer.md"}
    began = [one for one in heard if one.kind == "began"]
    assert [one.attempt for one in began] == [1, 2]
    assert words in began[1].because
    (entry,) = delegations(ground)
    assert [bool(attempt["evidence"]) for attempt in entry["attempts"]] == [True, False]


@pytest.mark.parametrize("what", WRONG)
def test_attempts_that_are_used_up_change_nothing(ground: Ground, what: str) -> None:
    """Exit 11, with what was measured; the ledger holds claim and measurement side by side."""
    acts, given, words = WRONG[what]
    error = refused(ground, ScriptedAgent(*acts), given._replace(attempts=2))
    assert isinstance(error, AgentFailed) and error.exit_status == 11
    assert words in error.message
    (entry,) = delegations(ground)
    assert (entry["good"], len(entry["attempts"])) == (False, 2)
    for attempt in entry["attempts"]:
        assert attempt["claimed"]["success"] is True
        assert words in attempt["evidence"]
        assert set(attempt["measured"]) >= {"ending", "exit_code", "changed", "missing", "checks_failed"}


def test_a_lie_stands_beside_what_was_measured(ground: Ground) -> None:
    """That all tests pass is in the ledger as a claim, and beside it how many failed."""
    error = refused(
        ground, ScriptedAgent(WriteFile("app.py", "def answer():\n    return 40\n"), Say("All tests pass."))
    )
    assert 'it says: "All tests pass."' in error.message
    (attempt,) = delegations(ground)[0]["attempts"]
    assert attempt["claimed"]["words"] == "All tests pass."
    assert attempt["measured"]["checks_failed"] >= 1
    assert attempt["measured"]["ending"] == "finished"


class Sick(Returning):
    """Says of itself that it cannot work."""

    def health(self) -> Health:
        return Health(installed=True, usable=False, why_not="sick")


class Broken(Returning):
    """An adapter that is itself in error, where `where` says."""

    def __init__(self, where: str, does: Callable[[], Any]) -> None:
        super().__init__(name="broken")
        setattr(self, where, lambda *_: does())


def nought() -> Any:
    return 1 // 0


def test_an_agent_that_says_it_cannot_work_is_not_asked_to(ground: Ground) -> None:
    """Its health is asked before anything is started, and its reason is told."""
    agent = Sick(Result("returning", "api", "finished", Claim()))
    error = refused(ground, agent)
    assert isinstance(error, InvalidInput) and "the agent returning cannot be used: sick" in error.message
    assert agent.requests == [] and delegations(ground) == []


@pytest.mark.parametrize(
    ("does", "told"),
    [
        (nought, "it raised ZeroDivisionError: "),
        (lambda: None, "its work returned NoneType"),
        (lambda: Result("broken", "api", "finished", None), "its work returned Result"),  # type: ignore[arg-type]
    ],
)
def test_an_adapter_in_error_is_an_agent_that_failed(ground: Ground, does: Callable[[], Any], told: str) -> None:
    """What it raises, and what is no result, is told with its name, tried again, and recorded like any failed work."""
    error = refused(ground, Broken("work", does), Given(attempts=2))
    assert isinstance(error, AgentFailed) and error.exit_status == 11 and error.ill
    assert "broken did not do the task" in error.message and told in error.message
    (entry,) = delegations(ground)
    assert (entry["good"], len(entry["attempts"])) == (False, 2)
    assert told in entry["attempts"][0]["measured"]["detail"]


@pytest.mark.parametrize("where", ["health", "validate"])
@pytest.mark.parametrize("does", [nought, lambda: 7])
def test_an_adapter_that_cannot_be_asked_failed(ground: Ground, where: str, does: Callable[[], Any]) -> None:
    """An error in its own health or validation has its name too, and nothing was started."""
    error = refused(ground, Broken(where, does))
    assert isinstance(error, AgentFailed) and "broken cannot be asked whether it can work" in error.message
    assert delegations(ground) == []


def test_earlier_steps_are_not_the_work_of_an_agent(ground: Ground) -> None:
    """A plan that writes a file itself does not make an idle agent look busy."""
    error = refused(ground, ScriptedAgent(Say("Done.")), before=(put("note.txt", b"x\n"),))
    assert "Nothing was changed in the files." in error.message
    assert delegations(ground)[0]["attempts"][0]["measured"]["changed"] == []
    simulated = give(ground, ScriptedAgent(MEND), before=(put("note.txt", b"x\n"),))
    assert set(simulated.change_set.paths) == {"app.py", "note.txt"}
    assert delegations(ground)[1]["attempts"][0]["measured"]["changed"] == ["app.py"]


def test_an_expected_file_that_stands_already_is_enough(ground: Ground) -> None:
    """What must be there afterwards may have been there before; what the agent removed is missing."""
    give(ground, ScriptedAgent(MEND), Given(expected=("tests/test_app.py",)))
    error = refused(ground, ScriptedAgent(MEND, Delete("tests/test_app.py")), Given(expected=("tests/test_app.py",)))
    assert "tests/test_app.py" in error.message


def test_an_expected_file_that_is_ignored_does_not_count(repository: Ground) -> None:
    """By-products do not land, so one cannot be what was asked for."""
    error = refused(
        repository, ScriptedAgent(MEND, WriteFile("cache/out.txt", "x")), Given(expected=("cache/out.txt",))
    )
    assert "cache/out.txt" in error.message


# ── how a program can end ──


def test_a_killed_program_is_no_finished_one(ground: Ground) -> None:
    """Good-looking work of a program that was killed does not count."""
    error = refused(ground, ScriptedAgent(MEND, Shell("kill -9 $PPID")))
    assert isinstance(error, AgentFailed) and error.ill
    measured = delegations(ground)[0]["attempts"][0]["measured"]
    assert (measured["ending"], measured["signal"]) == ("killed", 9)
    assert measured["changed"] == ["app.py"]


def test_time_is_a_limit(ground: Ground) -> None:
    """Exit 10 when its time is over, at once and not after all attempts; nothing of it lands."""
    started = time.monotonic()
    error = refused(ground, ScriptedAgent(MEND, Hang(600)), Given(within_ms=1_500, attempts=5))
    assert isinstance(error, LimitReached) and error.exit_status == 10
    assert time.monotonic() - started < 30
    (entry,) = delegations(ground)
    assert [attempt["measured"]["limit"] for attempt in entry["attempts"]] == ["time"]


@pytest.mark.long
def test_the_time_is_for_all_attempts_together(ground: Ground) -> None:
    """Each attempt gets what those before it left: of nine that take a quarter of it, four at most begin."""
    later = {number: (Hang(1.5), WriteFile("notes.txt", f"try {number}\n")) for number in range(2, 10)}
    error = refused(ground, ScriptedAgent(Hang(1.5), Say("no"), later=later), Given(within_ms=6_000, attempts=9))
    assert isinstance(error, LimitReached)
    assert 2 <= len(delegations(ground)[0]["attempts"]) <= 4


IGNORED = "does not land, since git ignores it or it is a cache: cache"


def test_that_git_ignores_what_was_made_is_told(repository: Ground) -> None:
    """To the agent and to whoever asked, with the key that keeps it; beside every other reason."""
    made = WriteFile("cache/out.txt", "x")
    error = refused(repository, ScriptedAgent(made))
    assert "Nothing was changed in the files." in error.message and IGNORED in error.message
    assert "named by keep under [workspace]" in error.message
    error = refused(repository, ScriptedAgent(made), Given(expected=("cache/out.txt", "docs/why.md")))
    for reason in (
        "Nothing was changed in the files.",
        "expected and are not there: cache/out.txt, docs/why.md",
        IGNORED,
    ):
        assert reason in error.message
        assert reason in delegations(repository)[-1]["attempts"][0]["evidence"]
    error = refused(repository, ScriptedAgent(MEND, made), Given(expected=("cache/out.txt",)))
    assert IGNORED in error.message and "Nothing was changed" not in error.message
    error = refused(repository, ScriptedAgent(MEND, made), Given(expected=("docs/why.md",)))
    assert "git ignores" not in error.message
    configured('[workspace]\nkeep = ["cache/out.txt"]\n')
    simulated = give(repository, ScriptedAgent(MEND, made), Given(expected=("cache/out.txt",)))
    assert "cache/out.txt" in simulated.change_set.paths


def test_output_is_a_limit(ground: Ground) -> None:
    """Who prints without end is ended, and that is what is told: how much, and where more can be allowed."""
    configured("[agents.scripted]\nlimits = { output = '1MB' }\n")
    error = refused(ground, ScriptedAgent(MEND, Shell("yes 'something to say' | head -c 40000000")))
    assert isinstance(error, LimitReached)
    assert "scripted was ended: it wrote more than 1 MB of output" in error.message
    assert "[agents.scripted]" in error.hint
    assert delegations(ground)[0]["attempts"][0]["measured"]["limit"] == "output"


def test_a_daemon_left_behind_is_gone_and_told(ground: Ground) -> None:
    """It cannot write later; that there was one is measured."""
    daemon = "setsid sh -c 'sleep 1; echo late > late.txt' >/dev/null 2>&1 &"
    simulated = give(ground, ScriptedAgent(MEND, Shell(daemon)))
    assert delegations(ground)[0]["attempts"][0]["measured"]["left_behind"] >= 1
    time.sleep(1.2)
    assert tuple(simulated.change_set.paths) == ("app.py",)
    ground.hf.execute(simulated, approved_by=ME)
    assert "late.txt" not in ground.tree()


def test_by_products_do_not_land(repository: Ground) -> None:
    """What the repository ignores is listed, and stays behind."""
    simulated = give(repository, ScriptedAgent(MEND, WriteFile("cache/big.bin", "x" * 1000)))
    assert tuple(simulated.change_set.paths) == ("app.py",)
    assert any(product.path.startswith("cache") for product in simulated.report.by_products)


def test_what_is_done_to_git_is_discarded_and_told(repository: Ground) -> None:
    """Hooks, configuration and commits in the shadow never arrive; that somebody tried is in the report."""
    before = {path: thing for path, thing in repository.tree().items() if path.startswith(".git/")}
    acts = (MEND, WriteFile(".git/hooks/pre-commit", "#!/bin/sh\n"), Shell("git config user.name x"))
    simulated = give(repository, ScriptedAgent(*acts))
    assert tuple(simulated.change_set.paths) == ("app.py",)
    assert any("hooks" in text for text in simulated.report.suspicious)
    repository.hf.execute(simulated, approved_by=ME, consent=simulated.plan.id)
    after = {path: thing for path, thing in repository.tree().items() if path.startswith(".git/")}
    assert contents(after).keys() == contents(before).keys()
    assert contents(after)[".git/config"] == contents(before)[".git/config"]


# ── while it works ──


class Meanwhile(ScriptedAgent):
    """Somebody edits a file of the workspace after the agent has done its work and before it is captured."""

    def __init__(self, path: Path, *acts: Act) -> None:
        super().__init__(*acts)
        self._path = path

    def work(self, request: Request, bench: Bench) -> Result:
        result = super().work(request, bench)
        self._path.write_text("somebody else\n")
        return result


def test_an_edit_where_the_agent_works_is_a_conflict(ground: Ground) -> None:
    """Exit 8, at once, and the person's edit stands; the agent is not blamed for it."""
    with pytest.raises(Conflict) as stopped:
        give(ground, Meanwhile(ground / "app.py", MEND), Given(attempts=5))
    assert "app.py" in stopped.value.message
    assert (ground / "app.py").read_text() == "somebody else\n"
    assert len(delegations(ground)[0]["attempts"]) == 1


def test_bad_work_beside_a_conflict_is_not_tried_again(ground: Ground) -> None:
    """What stands there is no longer what the agent was given, so more attempts would be wasted: exit 8, not 11."""
    with pytest.raises(Conflict):
        give(ground, Meanwhile(ground / "app.py", MEND), Given(expected=("missing.md",), attempts=5))
    (entry,) = delegations(ground)
    assert (entry["good"], len(entry["attempts"])) == (False, 1)


def test_an_edit_elsewhere_does_not_matter(ground: Ground) -> None:
    """Other people may go on working; their edit and the agent's both stand afterwards."""
    simulated = give(ground, Meanwhile(ground / "other.txt", MEND))
    ground.hf.execute(simulated, approved_by=ME)
    assert contents(ground.tree())["app.py"] == FIXED
    assert (ground / "other.txt").read_text() == "somebody else\n"


# ── policy ──


def test_a_plan_has_one_agent(ground: Ground) -> None:
    """What an agent may change is policy by its name; work of two could not be told apart."""
    steps = (Given().step("one"), Given().step("two"))
    with pytest.raises(InvalidInput, match="one agent, not 2: one, two"):
        ground.hf.simulate(Plan("two", steps), agents={name: ScriptedAgent(MEND, name=name) for name in ("one", "two")})


@pytest.mark.parametrize("by", ["robot", "ROBOT", "ｒobot"])
def test_an_agent_cannot_approve_its_own_work(ground: Ground, by: str) -> None:
    """Not under its name, however that is spelled; also where no configuration knows the agent."""
    configured('[policy]\nlow_risk = "ask"\n')
    simulated = give(ground, ScriptedAgent(MEND, name="robot"))
    decision = ground.hf.evaluate(simulated)
    assert decision.verdict == "NEED_APPROVAL"
    with pytest.raises(ApprovalNeeded, match="not by an agent"):
        ground.hf.approve(decision, by=by)
    with pytest.raises(ApprovalNeeded):
        ground.hf.execute(simulated, approved_by=by, consent=simulated.plan.id)
    assert contents(ground.tree())["app.py"] == APP


REACHES = {
    "may_change": 'may_change = ["docs/**"]',
    "must_not_change": 'must_not_change = ["app.py"]',
}


@pytest.mark.parametrize("reach", REACHES)
def test_an_agent_stays_within_its_reach(ground: Ground, reach: str) -> None:
    """Exit 4 for paths that are not this agent's; nobody can approve that; other agents are free."""
    configured(f"[policy.agents.robot]\n{REACHES[reach]}\n")
    simulated = give(ground, ScriptedAgent(MEND, name="robot"))
    decision = ground.hf.evaluate(simulated)
    assert decision.verdict == "DENY"
    with pytest.raises(Denied) as stopped:
        ground.hf.execute(simulated, approved_by=ME, consent=simulated.plan.id)
    assert stopped.value.exit_status == 4
    assert contents(ground.tree())["app.py"] == APP
    assert ground.hf.evaluate(give(ground, ScriptedAgent(MEND, name="other"))).verdict != "DENY"


# ── secrets ──


def test_hidden_paths_are_not_there_for_an_agent(ground: Ground) -> None:
    """Their content cannot be read in the shadow, nor copied out of it."""
    (ground / ".env").write_text("PASSWORD=quite-hidden-7731\n")
    (ground / "holdfast.toml").write_text('[workspace]\nhidden = [".env"]\n')
    simulated = give(ground, ScriptedAgent(MEND, Shell("cat .env > copy.txt; cat .env; true")))
    copied = next(change for change in simulated.change_set.changes if change.path == "copy.txt")
    assert copied.post is not None and copied.post.size == 0
    assert not any(b"quite-hidden-7731" in data for data in kept_bytes(ground))


def kept_bytes(ground: Ground) -> list[bytes]:
    """Every file of our state, as it is on the disk, and every blob."""
    files = [path for path in ground.state.rglob("*") if path.is_file() and "shadows" not in path.parts]
    return [path.read_bytes() for path in files]


def test_what_looks_like_a_secret_is_masked_everywhere(ground: Ground) -> None:
    """In the transcript, the ledger, the words, the errors and the live view; the mask says what was there."""
    heard: list[Happening] = []
    acts = (Say(f"the key is {SHAPED}"), Shell(f"echo printed {SHAPED}"))
    given = Given(task=f"Use {SHAPED} to answer.")
    error = refused(ground, ScriptedAgent(*acts), given, watcher=heard.append)
    said = "\n".join(one.text for one in heard if isinstance(one, Said))
    (entry,) = delegations(ground)
    transcript = Blobs(ground.hf.site.state).get(entry["attempts"][0]["transcript"])
    for text in (error.message, said, str(entry), transcript.decode()):
        assert SHAPED not in text
        assert "[Anthropic key masked]" in text
    assert SHAPED not in (ground.state / "ledger.jsonl").read_text()


def test_a_failing_check_that_prints_a_secret_tells_the_agent_nothing_of_it(tmp_path: Path) -> None:
    """The evidence is made of logs, and those are masked before they are cut."""
    test = TEST + f"        print('{SHAPED}')\n        self.fail()\n".encode()
    ground = project(tmp_path / "workspace", {**FILES, "tests/test_app.py": test})
    error = refused(ground, ScriptedAgent(MEND), Given(task="Let all tests pass."))
    assert "A check failed" in error.message
    assert SHAPED not in str(delegations(ground)) + error.message


def test_each_attempt_has_a_transcript_of_its_own(ground: Ground) -> None:
    """What was said first is not said again in the second one's."""
    agent = ScriptedAgent(Say("the first words"), later={2: (Say("the second words"), MEND)})
    give(ground, agent, Given(attempts=2))
    blobs = Blobs(ground.hf.site.state)
    first, second = (blobs.get(attempt["transcript"]) for attempt in delegations(ground)[0]["attempts"])
    assert b"the first words" in first and b"the first words" not in second
    assert b"the second words" in second


# ── when a model or a key fails ──


def failing(ending: Ending, **more: Any) -> Result:
    return Result("returning", "command", ending, Claim(), f"it ended with {ending}", **more)


@pytest.mark.parametrize(
    ("ending", "tries"),
    [("unauthorized", 1), ("limit", 1), ("failed", 2), ("killed", 2), ("finished", 2), ("model_error", 2)],
)
def test_only_what_may_pass_is_tried_again(ground: Ground, ending: Ending, tries: int) -> None:
    """The next attempt would have the same key and the same limit; everything else is tried again."""
    agent = Returning(failing(ending, limit="disk" if ending == "limit" else ""))
    error = refused(ground, agent, Given(attempts=2))
    assert len(agent.requests) == tries
    assert error.exit_status == (10 if ending == "limit" else 11)


def test_an_overloaded_model_is_given_time(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error of the model there is a pause with a growing bound; after others there is none."""
    slept: list[float] = []
    monkeypatch.setattr("holdfast.engine.delegation.time.sleep", slept.append)
    agent = Returning(failing("model_error"), failing("model_error"), failing("finished"))
    refused(ground, agent, Given(attempts=4))
    assert len(slept) == 2
    assert 0 <= slept[0] <= 1 and 0 <= slept[1] <= 2


def test_a_breaker_opens_and_says_so(ground: Ground) -> None:
    """After three failures in a row the agent is left alone, in this task and the next; others go on working."""
    agent = Returning(failing("failed"))
    error = refused(ground, agent, Given(attempts=9))
    assert len(agent.requests) == 3
    assert "failed 3 times in a row" in error.hint
    again = refused(ground, agent, Given(attempts=9))
    assert isinstance(again, AgentFailed) and again.ill
    assert len(agent.requests) == 3
    assert "is not asked at the moment" in again.message and "Try again in " in again.hint
    assert 20_000 < again.pause_ms <= 30_000 and isinstance(error, AgentFailed) and not error.pause_ms
    assert len(delegations(ground)) == 1
    give(ground, ScriptedAgent(MEND))


def test_an_agent_that_is_ours_to_blame_does_not_count_against_it(ground: Ground) -> None:
    """An adapter that raises says nothing about its program: the breaker stays closed, however often."""

    class Broken(Returning):
        def work(self, request: Request, bench: Bench) -> Result:
            raise InvalidInput("there is no such program")

    for _ in range(4):
        assert isinstance(refused(ground, Broken(failing("failed"))), InvalidInput)
    assert delegations(ground) == []


# ── models ──


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LOCAL_MODEL_KEY", "scripted-key")
    return "scripted-key"


def asked(ground: Ground, given: Given = WRITE) -> Any:
    return ground.hf.simulate(plan_for("mine", given))


def stopped_by(ground: Ground, given: Given = WRITE) -> HoldfastError:
    before = ground.tree()
    with pytest.raises(HoldfastError) as stopped:
        asked(ground, given)
    assert ground.tree() == before
    return stopped.value


@pytest.fixture
def plain(tmp_path: Path) -> Ground:
    """A workspace in which no checks are found."""
    return project(tmp_path / "workspace", {"notes.txt": b"nothing yet\n"})


def test_what_a_task_spends_is_counted_by_us(plain: Ground, key: str) -> None:
    """Requests and tokens are those of the model's own count; what was asked and answered is a blob."""
    heard: list[Happening] = []
    with ScriptedModel(Say("forty-two")) as model:
        configured(asking_agent(model.url, times=2))
        simulated = plain.hf.simulate(plan_for("mine"), watcher=heard.append)
        assert model.usage.requests == 2
    assert tuple(simulated.change_set.paths) == ("answer.txt",)
    (entry,) = delegations(plain)
    counted = model.usage
    usage = {name: entry["usage"][name] for name in ("requests", "input_tokens", "output_tokens")}
    assert usage == {"requests": 2, "input_tokens": counted.input_tokens, "output_tokens": counted.output_tokens}
    spent = [one.usage.requests for one in heard if isinstance(one, Spent)]
    assert spent == sorted(spent) and spent[-1] == 2
    talk = Blobs(plain.hf.site.state).get(entry["asked"]).decode()
    assert talk.count("forty-two") == 2
    assert key not in talk and not any(key.encode() in data for data in kept_bytes(plain))


def test_a_transcript_tells_what_the_model_was_asked(plain: Ground, key: str) -> None:
    """Each request stands between what the agent was told and what it said, with its tokens; the words of request and
    answer come only where all of it is asked for, and the key never."""
    with ScriptedModel(Say("forty-two")) as model:
        configured(asking_agent(model.url, times=2))
        plain.hf.simulate(plan_for("mine"))
    (entry,) = (entry for entry in plain.hf.ledger.entries() if entry.kind == "delegation")
    (one,) = work_in(plain.hf.site.state, entry).rounds
    assert [row.kind for row in one.rows] == ["told", "model", "model", "said"]
    moments = [row.at_ns for row in one.rows]
    assert moments == sorted(moments) and moments[0] > 0
    assert re.match(r"scripted was asked: [1-9]\d* tokens, [1-9]\d* answered in \d", one.rows[1].text), one.rows[1]
    assert "forty-two" not in str(one)
    (whole,) = work_in(plain.hf.site.state, entry, everything=True).rounds
    assert "task xxxx" in dict(whole.rows[1].more)["asked"] and "forty-two" in dict(whole.rows[1].more)["answered"]
    assert key not in str(whole)


def test_a_transcript_of_an_earlier_release_is_read(plain: Ground) -> None:
    """Without moments, with plain output between the rows: all of it is shown, and nothing twice."""
    ground, blobs = plain, Blobs(plain.hf.site.state)
    refused(ground, ScriptedAgent(Say("words")))
    (entry,) = (entry for entry in ground.hf.ledger.entries() if entry.kind == "delegation")
    old = b'{"text": "hello", "kind": "said"}\nhello\nplain \xff output\n{"broken'
    (attempt,) = entry.body["attempts"]  # type: ignore[misc]
    body = {**entry.body, "attempts": [{**attempt, "transcript": blobs.put(old)}]}  # type: ignore[dict-item]
    (one,) = work_in(ground.hf.site.state, entry._replace(body=body)).rounds
    assert [(row.at_ns, row.kind, row.text) for row in one.rows] == [
        (0, "said", "hello"), (0, "printed", "plain \ufffd output"), (0, "printed", '{"broken'),
    ]  # fmt: skip


@pytest.mark.parametrize("limit", ["turns = 2", "tokens = 300"])
def test_a_budget_ends_the_task(plain: Ground, key: str, limit: str) -> None:
    """Exit 10, with the sentence that says which part was used up; not one request more."""
    with ScriptedModel(Say("forty-two")) as model:
        configured(asking_agent(model.url, times=9, more=f"limits = {{ {limit} }}"))
        error = stopped_by(plain, WRITE._replace(attempts=3))
        assert model.usage.requests <= 3
    assert isinstance(error, LimitReached)
    assert "reached its limit: " in error.message and "budget" in error.message
    (attempt,) = delegations(plain)[0]["attempts"]
    assert attempt["measured"]["limit"] == "budget"


@pytest.mark.parametrize("exit_code", [0, 1])
def test_a_refused_key_is_not_tried_twice(plain: Ground, key: str, exit_code: int) -> None:
    """The proxy knows what happened, also where the program exits with 0."""
    with ScriptedModel(Say("no"), unauthorized=True) as model:
        configured(asking_agent(model.url, on_error=exit_code))
        error = stopped_by(plain, WRITE._replace(attempts=3))
        assert len(model.seen) == 1
    assert isinstance(error, AgentFailed) and error.ill
    assert "the provider refused the key" in error.message and "holdfast agents" in error.hint


def test_a_model_that_fails_is_asked_again_later(plain: Ground, key: str) -> None:
    """An error of the model is no failure of the work; the next attempt may do it."""
    with ScriptedModel(Error(500, "overloaded", times=1), Say("forty-two")) as model:
        configured(asking_agent(model.url, on_error=0))
        simulated = asked(plain, WRITE._replace(attempts=2))
    assert tuple(simulated.change_set.paths) == ("answer.txt",)
    first, second = delegations(plain)[0]["attempts"]
    assert (first["measured"]["ending"], second["measured"]["ending"]) == ("model_error", "finished")


def test_an_error_of_the_model_counts_for_its_own_attempt_only(plain: Ground, key: str) -> None:
    """A second attempt that needs no model is not blamed for what the first one met."""
    with ScriptedModel(Error(500, "overloaded")) as model:
        text = asking_agent(model.url, on_error=0)
        program = Path(os.environ["HOME"]) / "asking.py"
        program.write_text(ALONE_LATER + program.read_text())
        configured(text)
        simulated = asked(plain, WRITE._replace(attempts=2))
    assert tuple(simulated.change_set.paths) == ("own.txt",)
    endings = [attempt["measured"]["ending"] for attempt in delegations(plain)[0]["attempts"]]
    assert endings == ["model_error", "finished"]


def test_no_model_at_all_is_said(plain: Ground, key: str) -> None:
    """A provider that is not there is the model's illness, not bad work."""
    configured(asking_agent("http://127.0.0.1:9"))
    error = stopped_by(plain)
    assert isinstance(error, AgentFailed) and error.ill
    assert "no model answered" in error.message


def test_without_a_key_nothing_is_started(plain: Ground) -> None:
    """Exit 2, naming the variable; nothing was delegated."""
    configured(asking_agent("http://127.0.0.1:9"))
    error = stopped_by(plain)
    assert isinstance(error, InvalidInput)
    assert "LOCAL_MODEL_KEY is not set" in error.message
    assert delegations(plain) == []


def test_a_limit_in_money_needs_a_price(plain: Ground, key: str) -> None:
    """Without any price it is refused before the start; a model without one is refused when it is asked."""
    with ScriptedModel(Say("forty-two")) as model:
        configured(asking_agent(model.url, more="limits = { usd = 1.0 }"))
        error = stopped_by(plain)
        assert isinstance(error, InvalidInput) and "states no price" in error.message
        assert "[providers.local.prices]" in error.hint
        prices = "\n[providers.local.prices]\nother = { input = 1.0, output = 2.0 }\n"
        configured(asking_agent(model.url, more="limits = { usd = 1.0 }") + prices)
        error = stopped_by(plain)
        assert isinstance(error, LimitReached) and "no price is known for scripted" in error.message
        assert model.seen == []


def test_an_agent_that_wants_a_model_gets_no_other_network(plain: Ground) -> None:
    """A table that takes its network away is refused with the way out."""
    configured('[agents.wants]\nnetwork = "none"\n')

    class Wanting(Returning):
        api = "openai"

    with pytest.raises(InvalidInput, match="its network is none"):
        give(plain, Wanting(failing("finished"), name="wants"))


def test_nothing_of_a_task_is_left(plain: Ground, key: str) -> None:
    """Shadow, HOME, socket and open transcript are gone when it ends, well or badly."""
    with ScriptedModel(Say("forty-two")) as model:
        before = set(os.listdir("/tmp"))
        configured(asking_agent(model.url))
        asked(plain)
        configured(asking_agent(model.url, model="x", more="limits = { turns = 1 }", times=3))
        stopped_by(plain)
        new = {name for name in set(os.listdir("/tmp")) - before if name.startswith("holdfast-m-")}
    assert new == set()
    assert os.listdir(plain.state / "shadows") == []
    assert os.listdir(plain.state / "transcripts") == []


# ── the plan around it ──


def test_an_unknown_agent_is_named_with_those_that_are_known(ground: Ground) -> None:
    """Exit 2, before anything is made."""
    configured('[agents.mine]\ncommand = ["true"]\n')
    with pytest.raises(InvalidInput) as stopped:
        ground.hf.simulate(plan_for("nobody"))
    assert "there is no agent nobody" in stopped.value.message
    assert "claude" in stopped.value.hint and "mine" in stopped.value.hint


def test_an_agent_works_with_what_commands_before_it_made(ground: Ground) -> None:
    """Steps of one plan share a shadow."""
    plan = Plan("both", (Run(("/bin/sh", "-c", "echo 42 > seed.txt")), Given().step("scripted")))
    agent = ScriptedAgent(MEND, Shell("cp seed.txt grown.txt"))
    simulated = ground.hf.simulate(plan, agents={"scripted": agent})
    assert set(simulated.change_set.paths) == {"app.py", "seed.txt", "grown.txt"}


def test_a_step_says_how_the_work_went(ground: Ground) -> None:
    """In the report: how much, in how many rounds, and beside it what the agent says."""
    agent = ScriptedAgent(Say("nothing yet"), later={2: (MEND, Say("It is\n42 \x1b[31mnow"))})
    simulated = give(ground, agent, Given(attempts=2))
    (step,) = simulated.steps
    assert step.detail.startswith("scripted changed 1 path in 2 rounds")
    assert "\x1b" not in step.detail and 'it says: "It is 42' in step.detail


def test_the_same_task_again_is_work_again(ground: Ground) -> None:
    """A task that landed once is not taken for done: an agent may do something else the next time."""
    plan = plan_for("scripted")
    assert isinstance(plan.steps[0], AgentStep)
    simulated = ground.hf.simulate(plan, agents={"scripted": ScriptedAgent(MEND)})
    ground.hf.execute(simulated, approved_by=ME)
    assert ground.hf.already_done(plan) is None


class _Disturbed(ScriptedAgent):
    """An agent while whose work somebody edits the workspace."""

    def __init__(self, *acts: Act, edit: Callable[[], object]) -> None:
        super().__init__(*acts)
        self._edit = edit

    def work(self, request: Request, bench: Bench) -> Result:
        self._edit()
        return super().work(request, bench)


@pytest.mark.parametrize("kind", KINDS)
def test_checks_speak_for_the_tree_they_saw(ground: Ground, kind: ShadowKind) -> None:
    """An edit beside the agent's, made while it works, is under test before anything lands, whatever the shadow."""
    stricter = TEST.replace(b"42", b"43")
    agent = _Disturbed(MEND, edit=lambda: (ground / "tests" / "test_app.py").write_bytes(stricter))
    with pytest.raises(AgentFailed, match="unittest"):
        give(ground, agent, shadow=kind)


NOTE = WriteFile("answer.txt", "42\n")


def test_checks_that_came_meanwhile_are_run(tmp_path: Path) -> None:
    """Where there was nothing to check an agent's work with, and now there is, it lands only if that passes."""
    ground = project(tmp_path / "workspace", {"notes.txt": b"old\n"})
    simulated = give(ground, ScriptedAgent(NOTE))
    verified = ground.hf.verify(simulated)
    assert verified.receipts == ()
    for path, data in {**FILES, "app.py": b"def answer():\n    return int(open('answer.txt').read()) - 1\n"}.items():
        (ground / path).parent.mkdir(exist_ok=True)
        (ground / path).write_bytes(data)
    with pytest.raises(HoldfastError, match="unittest"):
        ground.hf.execute(simulated, approved_by=ME, verified=verified)
    assert "answer.txt" not in contents(ground.tree())


def test_without_checks_an_edit_elsewhere_does_not_matter(tmp_path: Path) -> None:
    """Work that nothing can check lands as it was approved, although somebody edited another file meanwhile."""
    ground = project(tmp_path / "workspace", {"notes.txt": b"old\n"})
    simulated = give(ground, ScriptedAgent(NOTE))
    verified = ground.hf.verify(simulated)
    decision = ground.hf.evaluate(simulated, verified)
    (ground / "notes.txt").write_bytes(b"new\n")
    ground.hf.execute(simulated, approved_by=ME, verified=verified, decision=decision)
    assert contents(ground.tree()) == {"notes.txt": b"new\n", "answer.txt": b"42\n"}
