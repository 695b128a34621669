"""The states of planning: what the table allows happens, and nothing else does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.errors import Blocked
from holdfast.planning.states import STATES, TABLE, TOOLS, Road, State, Tool

# Written out once more, so that an edit of the table must be meant.
MOVES = {
    ("INTENT", "ANALYSIS"),
    ("ANALYSIS", "INTENT"),
    ("ANALYSIS", "PLAN_GENERATION"),
    ("PLAN_GENERATION", "ANALYSIS"),
    ("PLAN_GENERATION", "GOVERNANCE_CHECK"),
    ("GOVERNANCE_CHECK", "PLAN_GENERATION"),
    ("GOVERNANCE_CHECK", "EXECUTION_READY"),
    ("EXECUTION_READY", "GOVERNANCE_CHECK"),
}
TOOLS_OF = {
    "INTENT": {"ask", "classify"},
    "ANALYSIS": {"ask", "list", "read", "search"},
    "PLAN_GENERATION": {"ask", "list", "read", "search", "draft"},
    "GOVERNANCE_CHECK": {"simulate", "verify", "evaluate"},
    "EXECUTION_READY": {"approve", "execute"},
}


class Planning(RuleBasedStateMachine):
    """Anybody who tries any move and any tool at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.road = Road()
        self.judged = False

    @rule(to=st.sampled_from(STATES))
    def move(self, to: State) -> None:
        before = self.road
        if (before.state, to) in MOVES:
            self.road = before.moved(to)
            self.judged = to == "EXECUTION_READY" or (self.judged and to == "GOVERNANCE_CHECK")
        else:
            with pytest.raises(Blocked):
                before.moved(to)
        assert before.states == self.road.states[: len(before.states)]

    @rule(tool=st.sampled_from(TOOLS))
    def use(self, tool: Tool) -> None:
        if tool in TOOLS_OF[self.road.state]:
            self.road.require_tool(tool)
        else:
            with pytest.raises(Blocked, match=f"{tool} is not allowed in {self.road.state}"):
                self.road.require_tool(tool)

    @invariant()
    def execution_was_judged(self) -> None:
        assert self.road.state != "EXECUTION_READY" or self.road.states[-2] == "GOVERNANCE_CHECK"

    @invariant()
    def the_past_can_be_told_again(self) -> None:
        assert Road(self.road.states) == self.road


TestPlanning = Planning.TestCase
TestPlanning.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.lists(st.sampled_from(STATES), min_size=0, max_size=6))
def test_a_made_up_past_is_refused(states: list[State]) -> None:
    """A list of states is a road only if it begins with the intent and each move is in the table."""
    legal = states[:1] == ["INTENT"] and all(move in MOVES for move in zip(states, states[1:], strict=False))
    if legal:
        assert Road(tuple(states)).states == tuple(states)
    else:
        with pytest.raises(Blocked):
            Road(tuple(states))


def test_no_state_both_drafts_and_judges() -> None:
    """Who may write a plan may neither judge nor execute it in the same state."""
    judging = {"simulate", "verify", "evaluate", "approve", "execute"}
    assert [state for state, row in TABLE.items() if "draft" in row.tools and judging & set(row.tools)] == []
    assert [state for state, row in TABLE.items() if "execute" in row.tools] == ["EXECUTION_READY"]


def test_every_tool_has_a_place() -> None:
    """No tool is allowed nowhere, and the table knows no others."""
    assert {tool for row in TABLE.values() for tool in row.tools} == set(TOOLS)
    assert tuple(TABLE) == STATES
