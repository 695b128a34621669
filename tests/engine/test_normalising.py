"""A roadmap of prose: an agent finds the tasks, they are read strictly, and nobody is asked twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast
from holdfast.engine.normalising import FILE
from holdfast.errors import AgentFailed, InvalidInput
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import Say, WriteFile

PROSE = "# Plan\n\nWe want a module a, and then b, which uses it.\n"
ROWS = [
    {"key": "a", "title": "Create a.py", "body": "", "files": ["a.py"], "after": [], "line": 3},
    {"key": "b", "title": "Create b.py", "body": "", "files": [], "after": ["a"], "line": 3},
]
GOOD = json.dumps({"version": 1, "title": "Plan", "tasks": ROWS})


@pytest.fixture
def prose(workspace: Path) -> Path:
    (workspace / "ROADMAP.md").write_text(PROSE, encoding="utf-8")
    holdfast.init(str(workspace))
    return workspace


def asked(workspace: Path, answer: str) -> list[str]:
    """The titles that come of this answer."""
    agent = ScriptedAgent(WriteFile(FILE, answer), Say("Done."))
    with holdfast.open(str(workspace)) as hf:
        roadmap = hf.runs.normalise("ROADMAP.md", "scripted", {"scripted": agent})
    return [task.title for task in roadmap.tasks]


def test_the_tasks_are_those_of_the_answer_and_nothing_lands(prose: Path) -> None:
    """Tasks and what needs what come from the agent's file, which never reaches the workspace."""
    assert asked(prose, GOOD) == ["Create a.py", "Create b.py"]
    assert sorted(path.name for path in prose.iterdir()) == [".holdfast", "ROADMAP.md"]
    with holdfast.open(str(prose)) as hf:
        first, second = hf.runs.roadmap("ROADMAP.md").tasks
        assert second.after == (first.id,)


def test_the_same_text_is_asked_about_once(prose: Path) -> None:
    """What was found is kept by the text; an agent that would say something else is not asked again."""
    asked(prose, GOOD)
    assert asked(prose, "not even JSON") == ["Create a.py", "Create b.py"]


def test_another_text_is_another_question(prose: Path) -> None:
    """A roadmap that somebody edited has no tasks until it is asked about again."""
    asked(prose, GOOD)
    (prose / "ROADMAP.md").write_text(PROSE + "\nAnd c.\n", encoding="utf-8")
    with holdfast.open(str(prose)) as hf:
        assert hf.runs.roadmap("ROADMAP.md").tasks == ()


@pytest.mark.parametrize(
    "answer",
    [
        "not JSON",
        GOOD + "\nDone!",
        GOOD.replace('"body"', '"run"'),
        json.dumps({"version": 1, "title": "", "tasks": 3}),
    ],
)
def test_an_answer_beyond_the_schema_is_refused_and_not_kept(prose: Path, answer: str) -> None:
    """Exactly what was asked for, or nothing; the next answer gets its chance."""
    with pytest.raises(InvalidInput):
        asked(prose, answer)
    assert asked(prose, GOOD) == ["Create a.py", "Create b.py"]


def test_an_agent_that_writes_nothing_has_failed(prose: Path) -> None:
    """Words are no answer."""
    with holdfast.open(str(prose)) as hf, pytest.raises(AgentFailed):
        hf.runs.normalise("ROADMAP.md", "scripted", {"scripted": ScriptedAgent(Say(GOOD))})


def test_what_has_tasks_is_left_as_it_is(prose: Path) -> None:
    """Nobody is asked about a roadmap that says what is to do."""
    (prose / "ROADMAP.md").write_text("- [ ] Create z.py\n", encoding="utf-8")
    assert asked(prose, GOOD) == ["Create z.py"]
