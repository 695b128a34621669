"""The states of planning, the tools each allows, and the moves between them: one table.

    INTENT ──▶ ANALYSIS ──▶ PLAN_GENERATION ──▶ GOVERNANCE_CHECK ──▶ EXECUTION_READY
      ▲            │ ▲             │  ▲                 │   ▲               │
      └────────────┘ └─────────────┘  └─────────────────┘   └───────────────┘

| state            | tools allowed                    | moves to                          | why back                  |
|------------------|----------------------------------|-----------------------------------|---------------------------|
| INTENT           | ask, classify                    | ANALYSIS                          |                           |
| ANALYSIS         | ask, list, read, search          | PLAN_GENERATION, INTENT           | it was another question   |
| PLAN_GENERATION  | ask, list, read, search, draft   | GOVERNANCE_CHECK, ANALYSIS        | a fact is missing         |
| GOVERNANCE_CHECK | simulate, verify, evaluate       | EXECUTION_READY, PLAN_GENERATION  | it was refused            |
| EXECUTION_READY  | approve, execute                 | GOVERNANCE_CHECK                  | the workspace moved       |

Invariants
  W1  No state allows both to draft a plan and to judge or execute one.
  W2  EXECUTION_READY is entered from GOVERNANCE_CHECK only; a plan drafted anew is judged anew.
  W3  A move or a tool that is not in the table is refused; nothing happens by default.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from holdfast.errors import Blocked

State = Literal["INTENT", "ANALYSIS", "PLAN_GENERATION", "GOVERNANCE_CHECK", "EXECUTION_READY"]
STATES: tuple[State, ...] = ("INTENT", "ANALYSIS", "PLAN_GENERATION", "GOVERNANCE_CHECK", "EXECUTION_READY")
Tool = Literal[
    "ask", "classify", "list", "read", "search", "draft", "simulate", "verify", "evaluate", "approve", "execute"
]
TOOLS: tuple[Tool, ...] = (
    "ask", "classify", "list", "read", "search", "draft", "simulate", "verify", "evaluate", "approve", "execute",
)  # fmt: skip


class Row(NamedTuple):
    tools: tuple[Tool, ...]
    moves: tuple[State, ...]


TABLE: dict[State, Row] = {
    "INTENT": Row(("ask", "classify"), ("ANALYSIS",)),
    "ANALYSIS": Row(("ask", "list", "read", "search"), ("PLAN_GENERATION", "INTENT")),
    "PLAN_GENERATION": Row(("ask", "list", "read", "search", "draft"), ("GOVERNANCE_CHECK", "ANALYSIS")),
    "GOVERNANCE_CHECK": Row(("simulate", "verify", "evaluate"), ("EXECUTION_READY", "PLAN_GENERATION")),
    "EXECUTION_READY": Row(("approve", "execute"), ("GOVERNANCE_CHECK",)),
}


@dataclass(frozen=True, slots=True)
class Road:
    """The states a request went through, oldest first. Begins in INTENT; each move gives a new value."""

    states: tuple[State, ...] = ("INTENT",)

    def __post_init__(self) -> None:
        if self.states[:1] != ("INTENT",):
            raise Blocked("planning begins with the intent", hint="Nothing was changed.")
        for here, there in zip(self.states, self.states[1:], strict=False):
            _require_move(here, there)

    @property
    def state(self) -> State:
        return self.states[-1]

    @property
    def tools(self) -> tuple[Tool, ...]:
        return TABLE[self.state].tools

    @property
    def moves(self) -> tuple[State, ...]:
        return TABLE[self.state].moves

    def moved(self, to: State) -> Road:
        _require_move(self.state, to)
        return Road((*self.states, to))

    def require_tool(self, tool: Tool) -> None:
        """Return when the tool may be used now; Blocked otherwise."""
        if tool not in self.tools:
            raise Blocked(f"{tool} is not allowed in {self.state}; allowed: {', '.join(self.tools)}",
                          hint="Nothing was changed.")  # fmt: skip


def _require_move(here: State, there: State) -> None:
    if there not in TABLE[here].moves:
        raise Blocked(f"planning cannot go from {here} to {there}; from there it goes to: "
                      f"{', '.join(TABLE[here].moves)}", hint="Nothing was changed.")  # fmt: skip
