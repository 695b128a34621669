"""Events as rows of a log, and back."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.event_rows import event_from, fields_of_event, task_of
from holdfast.model.agent import Happening
from holdfast.model.run import EVENTS, AgentSeen, RunEvent, RunStarted, TaskFailed, TaskMoved

events: st.SearchStrategy[Any] = st.one_of([st.builds(kind) for kind in get_args(RunEvent)])
EVENT: dict[str, Any] = {
    "version": 1,
    "at_ns": 5,
    "kind": "TASK_STATE",
    "run": "u-1",
    "task": "t",
    "state": "FAILED",
    "because": "",
}
SEEN: dict[str, Any] = {"version": 1, "at_ns": 5, "kind": "AGENT", "run": "u-1", "task": "t"}


def line_of(event: RunEvent) -> dict[str, Any]:
    row = {"version": 1, "at_ns": 5, "kind": event.event, **fields_of_event(event)}
    found: dict[str, Any] = json.loads(json.dumps(row))
    return found


@given(events)
def test_every_event_survives_the_road_there_and_back(event: RunEvent) -> None:
    """Any event of any kind, with whatever an agent did in it, is the same event after a line of JSON."""
    assert event_from(line_of(event)) == event


def test_every_name_is_of_one_kind() -> None:
    """The names that people can listen to are those of the kinds there are."""
    names = [kind._field_defaults["event"] for kind in get_args(RunEvent)]
    assert sorted(names) == sorted(EVENTS)
    assert len(get_args(Happening)) == 6


def test_what_an_event_is_about() -> None:
    """Events of a task name it; those of the run do not."""
    assert (task_of(TaskMoved("u-1", "t", "PENDING")), task_of(RunStarted("u-1", "ROADMAP.md", 1, 1))) == ("t", "")


@pytest.mark.parametrize(
    "row",
    [
        {},
        {"kind": "LOST", "lines": 3},
        {"kind": ["AGENT"]},
        {**EVENT, "kind": "TASK_STARTED"},
        {**EVENT, "state": "DONE"},
        {**EVENT, "task": 1},
        {**EVENT, "more": 1},
        {name: value for name, value in EVENT.items() if name != "because"},
        SEEN,
        {**SEEN, "happening": "said"},
        {**SEEN, "happening": {"kind": "sang", "text": "x"}},
        {**SEEN, "happening": {"kind": "said", "text": None}},
        {**SEEN, "happening": {"kind": "used", "call": "", "title": "", "status": "begun", "paths": [1]}},
        {**SEEN, "happening": {"kind": "spent", "usage": {"requests": 1}}},
        {**SEEN, "happening": {"kind": "began", "agent": "a", "attempt": True, "because": ""}},
    ],
)
def test_a_row_that_is_no_event_is_none(row: dict[str, Any]) -> None:
    """Another kind, a field missing, unknown or of the wrong type: no event is guessed."""
    assert event_from(row) is None


def test_a_row_of_an_older_release_is_an_event() -> None:
    """What was added since is missing in it, and is nothing (V3); everything else must be there."""
    row = line_of(TaskFailed("u-1", "t", 1, "environment", "no", "defer", 5))
    del row["not_before_ns"]
    assert event_from(row) == TaskFailed("u-1", "t", 1, "environment", "no", "defer")
    del row["because"]
    assert event_from(row) is None


def test_the_rows_above_are_wrong_only_where_they_say() -> None:
    """The row that the wrong ones are made from is an event."""
    assert event_from(EVENT) == TaskMoved("u-1", "t", "FAILED")
    said = {**SEEN, "happening": {"kind": "said", "text": "x"}}
    assert isinstance(event_from(said), AgentSeen)
