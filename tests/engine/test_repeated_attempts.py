"""An attempt that comes to the same as the one before: the next is asked for otherwise, and the third is the last."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegated import Given, Returning, delegations, give, project
from holdfast.agents.prompt import prompt
from holdfast.errors import AgentFailed
from holdfast.model.agent import Claim, Escalated, Happening, Result
from holdfast.model.task import Tried
from holdfast.planning.recovery import repeats_in
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import Say, WriteFile

IDLE = Result("returning", "python", "finished", Claim(success=True, session="s-1"))
WRONG = WriteFile("app.py", "def answer():\n    return 40\n")


def escalated(heard: list[Happening]) -> list[str]:
    return [one.text for one in heard if isinstance(one, Escalated) and "came to" in one.text]


def test_the_same_empty_change_is_asked_for_otherwise_and_then_no_more(tmp_path: Path) -> None:
    """A new session, files that the failure names, words that say so; after the third nothing more is spent."""
    agent, heard = Returning(IDLE), list[Happening]()
    ground = project(tmp_path / "workspace")
    with pytest.raises(AgentFailed):
        give(ground, agent, Given(attempts=9), watcher=heard.append)
    assert [request.repeats for request in agent.requests] == [0, 0, 1]
    assert [request.session for request in agent.requests] == ["", "s-1", ""]
    assert "exactly the same result" not in prompt(agent.requests[1])
    assert "exactly the same result" in prompt(agent.requests[2])
    first, second = escalated(heard)
    assert "no change again; it is asked otherwise" in first
    assert "it is not asked again" in second
    (entry,) = delegations(ground)
    assert len(entry["attempts"]) == 3


def test_the_same_wrong_change_counts_as_well(tmp_path: Path) -> None:
    """Whatever the agent says about it."""
    heard: list[Happening] = []
    ground = project(tmp_path / "workspace")
    with pytest.raises(AgentFailed):
        give(ground, ScriptedAgent(WRONG, Say("Now it is right.")), Given(attempts=9), watcher=heard.append)
    assert ["the same change again" in text for text in escalated(heard)] == [True, False]
    (entry,) = delegations(ground)
    assert len(entry["attempts"]) == 3


def test_another_change_is_no_repetition(tmp_path: Path) -> None:
    """Work that moves goes on in its session, as often as was said."""
    later = {n: (WriteFile("app.py", f"def answer():\n    return {n}\n"),) for n in range(2, 6)}
    ground, heard = project(tmp_path / "workspace"), list[Happening]()
    with pytest.raises(AgentFailed):
        give(ground, ScriptedAgent(WRONG, later=later), Given(attempts=5), watcher=heard.append)
    assert escalated(heard) == []
    (entry,) = delegations(ground)
    assert len(entry["attempts"]) == 5


def test_orders_know_how_often_the_newest_attempts_failed_alike() -> None:
    """Of this agent, in a row, but for numbers that differ from run to run; so a run changes the form of edits too."""
    same = [Tried(n, "test", f"1 failed in {n}.2s", "retry with context", "a") for n in (1, 2, 3)]
    assert repeats_in((), "a") == 0
    assert repeats_in(same[:1], "a") == 0
    assert repeats_in(same, "a") == 2
    assert repeats_in(same, "b") == 0
    assert repeats_in((*same, Tried(4, "syntax", "line 3", "rewrite", "a")), "a") == 0
