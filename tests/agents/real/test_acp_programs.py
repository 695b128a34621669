"""The real programs, hired by configuration and taken down the whole road: over ACP where they speak it, through their
own API where they are libraries. The model follows a script; everything else is as a user has it.

`scripts/agent-programs` installs them; a program that is not there is skipped, and says so.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from agents.real.hired import MODELS, Once, hired, inside, memory_of, new_key, the_program
from guarded import contents, tree_of
from holdfast.errors import AgentFailed, LimitReached
from holdfast.model.agent import Happening
from holdfast.testing.model_server import ScriptedModel
from holdfast.testing.script import Error, Hang, Loop, Say, Shell, WriteFile

pytestmark = pytest.mark.agents

HELLO = WriteFile("hello.py", 'print("hello")\n')
DONE = Say("I made hello.py.")
EVERY = sorted(MODELS)
# aider asks its model once for a task, so it has nothing to loop in; a deep agent has no shell.
LOOPING = sorted(set(MODELS) - {"aider"})
MEMORY = 1_500_000_000
# Tokens for a few rounds of a loop. The proxy reckons with what stands in a question, tools and all, before it is let
# through, and the questions of these programs are long: 16,000 to 28,000 tokens by that reckoning. gemini notices a
# loop by itself after a handful of rounds, so it can pay for two or three.
AFFORDABLE = {"claude": 60_000, "gemini": 30_000, "qwen": 60_000}


@pytest.mark.parametrize("name", EVERY)
def test_the_work_of_a_program_is_gated_lands_and_goes_back(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated, verified, judged, approved, landed, undone; what was spent is what the model says it sold."""
    with hired(name, tmp_path, ScriptedModel(HELLO, DONE), monkeypatch) as house:
        before = tree_of(house.workspace)
        simulated = house.simulate()
        assert tree_of(house.workspace) == before
        assert tuple(simulated.change_set.paths) == ("hello.py",)
        assert house.measured["ending"] == "finished"
        claimed = house.attempt["claimed"]
        assert isinstance(claimed, dict) and "I made hello.py." in str(claimed["words"])
        if not house.require_counted_as_sold():
            counted, sold = house.measured["usage"], house.model.usage
            assert isinstance(counted, dict)
            assert counted["requests"] == sold.requests
            assert (counted["input_tokens"], counted["output_tokens"]) == (sold.input_tokens, sold.output_tokens)

        verified = house.hf.verify(simulated)
        decision = house.hf.evaluate(simulated, verified)
        assert decision.verdict == "NEED_APPROVAL"  # nothing tested it
        execution = house.hf.execute(simulated, approved_by="tester", verified=verified, decision=decision)
        assert execution.status == "COMPLETED"
        assert contents(tree_of(house.workspace))["hello.py"] == b'print("hello")\n'
        assert house.hf.undo(execution.id, approved_by="tester").status == "COMPLETED"
        assert contents(tree_of(house.workspace)) == contents(before)


@pytest.mark.parametrize("ending", ["model_error", "unauthorized"])
@pytest.mark.parametrize("name", EVERY)
def test_a_model_that_refuses_is_named_as_what_it_is(
    name: str, ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the program makes of it: nothing is there to land, and the ledger says why."""
    model = ScriptedModel(Error(400)) if ending == "model_error" else ScriptedModel(unauthorized=True)
    with hired(name, tmp_path, model, monkeypatch) as house:
        with pytest.raises(AgentFailed):
            house.simulate()
        assert house.measured["ending"] == ending
        assert set(tree_of(house.workspace)) == {"README.md"}


def looping(name: str) -> ScriptedModel:
    return ScriptedModel(WriteFile("loop", "again\n") if name == "deep" else Shell("date >> loop"), Loop())


@pytest.mark.parametrize("name", LOOPING)
def test_a_loop_ends_after_its_turns(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many requests are answered as were agreed, by the proxy or by itself, and nothing of the program is left."""
    with hired(name, tmp_path, looping(name), monkeypatch, "turns = 4") as house:
        with pytest.raises(LimitReached):
            house.simulate()
        assert house.measured["ending"] == "limit"
        assert house.measured["limit"] in ("budget", "turns")
        assert house.model.usage.requests == 4
        assert inside() == []


@pytest.mark.parametrize("name", LOOPING)
def test_a_loop_ends_within_one_request_of_its_tokens(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the last request that was let through can reach the budget; the one after it is refused."""
    totals: list[int] = []

    def watch(happening: Happening) -> None:
        if happening.kind == "spent":
            totals.append(happening.usage.input_tokens + happening.usage.output_tokens)

    budget = AFFORDABLE.get(name, 20_000)
    with hired(name, tmp_path, looping(name), monkeypatch, f"tokens = {budget}") as house:
        with pytest.raises(LimitReached):
            house.simulate(watch)
        assert (house.measured["ending"], house.measured["limit"]) == ("limit", "budget")
        assert len(totals) > 1 and all(total < budget for total in totals[:-1])
        if not house.require_counted_as_sold():
            assert house.model.usage.input_tokens + house.model.usage.output_tokens == totals[-1]
        assert inside() == []


@pytest.mark.parametrize("name", EVERY)
def test_a_program_that_is_killed_did_not_do_the_task(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed from outside while it works: told as killed, nothing lands, nothing of it is left."""
    first = () if name == "aider" else (HELLO,)

    def kill() -> None:
        os.kill(the_program().pid, signal.SIGKILL)

    # aider has one request only, so it is killed while it is about to use the answer.
    watcher = Once(kill)
    model = ScriptedModel(*first, Hang(120), DONE) if first else ScriptedModel(HELLO, DONE)
    with hired(name, tmp_path, model, monkeypatch) as house:
        with pytest.raises(AgentFailed):
            house.simulate(watcher)
        assert watcher.acted
        assert house.measured["ending"] == "killed"
        assert set(tree_of(house.workspace)) == {"README.md"}
        assert inside() == []


@pytest.mark.parametrize("name", EVERY)
def test_a_program_is_ended_when_its_time_is_up(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that does not answer holds nobody up for longer than was agreed."""
    with hired(name, tmp_path, ScriptedModel(Hang(600), DONE), monkeypatch) as house:
        with pytest.raises(LimitReached):
            house.simulate(within_ms=8_000)
        assert (house.measured["ending"], house.measured["limit"]) == ("limit", "time")
        assert int(str(house.measured["duration_ms"])) < 20_000
        assert inside() == []


@pytest.mark.root
@pytest.mark.parametrize("name", EVERY)
def test_the_key_is_nowhere_in_the_sandbox(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked for from outside while the program works: environments, memory, its HOME, the shadow, the workspace."""
    key = new_key()
    found: list[str] = []
    searched: list[int] = []

    def search() -> None:
        left = MEMORY
        for process in inside():
            try:
                environment = Path(f"/proc/{process.pid}/environ").read_bytes()
                for piece in memory_of(process.pid, left):
                    left -= len(piece)
                    if key.encode() in piece:
                        found.append(f"the memory of {process.command!r}")
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
            searched.append(process.pid)
            if key.encode() in environment:
                found.append(f"the environment of {process.command!r}")
        assert left < MEMORY
        found.extend(str(path) for path in tmp_path.rglob("*") if path.is_file() and key.encode() in path.read_bytes())

    watcher = Once(search)
    steps = (HELLO, DONE) if name == "aider" else (HELLO, Hang(3), DONE)
    with hired(name, tmp_path, ScriptedModel(*steps, keys=(key,)), monkeypatch) as house:
        house.simulate(watcher)
        assert watcher.acted and searched
        assert found == []
        assert all(seen.key == key for seen in house.model.seen)  # it was the key, and the proxy had it
        assert key not in "".join(map(repr, watcher.happened))
        kept = [path for path in house.workspace.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
        assert kept == []


def test_opencode_goes_on_after_a_command_that_was_denied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its command named a place that is not its own: that call is denied, its model hears so, and does the task."""
    answers: list[str] = []

    def watch(happening: Happening) -> None:
        if happening.kind == "asked":
            answers.append(happening.answer)

    model = ScriptedModel(Shell("cat /etc/hostname"), HELLO, DONE)
    with hired("opencode", tmp_path, model, monkeypatch) as house:
        simulated = house.simulate(watch)
        assert tuple(simulated.change_set.paths) == ("hello.py",)
        assert answers[0] == "denied"
        assert house.measured["ending"] == "finished"
