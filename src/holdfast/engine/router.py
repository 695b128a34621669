"""Which agent gets a task: by capability, health, cost and past success, and explained.

Rejected, each with its reason: who lacks a needed capability; who cannot be used; whose breaker is open or being tried;
who is a person, unless the task needs one.

Among the others the highest score wins, and on a tie the name that comes first in the alphabet:

    score   = 50·success + 20·cost + 10·speed + 10·fit + 10·steady          every term between 0 and 1

    success = (good + 1) / (attempts + 2)         faded counts; the prior is Beta(1, 1): nothing known is 1/2
    cost    = 50 ¢ / (50 ¢ + mean cost)           half at 50 cents a task; unknown is 1/2
    speed   = 5 min / (5 min + mean duration)     half at five minutes; unknown is 1/2
    fit     = preferred capabilities it has / preferred capabilities, 1 where nothing is preferred
    steady  = 1 / (1 + failures in a row), 0 for a breaker whose pause is over but which has not been tried

A decision of a person (`routing_decisions.json`) stands above the score, never above a rejection.

Invariants
  R1  Pure: the same values give the same choice, whatever the order of the candidates.
  R2  Every weight and every value is in the choice: the score is the sum of what is shown.
  R3  Nobody is chosen who was rejected, and everybody is either ranked or rejected, with a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from holdfast.engine.needs import TaskNeeds
from holdfast.engine.past import Past
from holdfast.engine.routing_file import RoutingDecision, decision_for
from holdfast.errors import Blocked, InvalidInput
from holdfast.model.agent import Capability
from holdfast.model.path import printable
from holdfast.model.words import in_a_row
from holdfast.store.adapters import BreakerState

TermName = Literal["success", "cost", "speed", "fit", "steady"]
WEIGHTS: dict[TermName, int] = {"success": 50, "cost": 20, "speed": 10, "fit": 10, "steady": 10}
HALF_COST_MICRO_USD = 500_000
HALF_DURATION_MS = 300_000
_UNKNOWN = 0.5
# Scores are compared and shown with so many digits: the last bits of a power differ between machines.
_DIGITS = 6


class Candidate(NamedTuple):
    """An agent as routing sees it. `why_not` is empty for one that can be used.

    `breaker` as it stands now; `ready` when one that is not closed may be asked all the same.
    """

    name: str
    capabilities: frozenset[Capability]
    why_not: str = ""
    breaker: BreakerState = "CLOSED"
    ready: bool = False
    failures: int = 0
    past: Past = Past()


class Term(NamedTuple):
    """One line of the explanation; it adds `value` × `weight`."""

    name: TermName
    value: float
    weight: int
    because: str


class Ranked(NamedTuple):
    agent: str
    score: float
    reasons: tuple[Term, ...]


class Rejected(NamedTuple):
    agent: str
    why: str


class Choice(NamedTuple):
    """The agent chosen. `ranking` are all that could do it, best first: whom to ask next when this one cannot."""

    agent: str
    score: float
    reasons: tuple[Term, ...]
    ranking: tuple[Ranked, ...]
    rejected: tuple[Rejected, ...]
    # Why somebody decided it so; empty when the score did.
    decided: str = ""

    def document(self) -> dict[str, object]:
        """As JSON shows it."""
        return {
            "agent": self.agent,
            "score": self.score,
            "decided": self.decided,
            "ranking": [
                {"agent": item.agent, "score": item.score, "reasons": [term._asdict() for term in item.reasons]}
                for item in self.ranking
            ],
            "rejected": [item._asdict() for item in self.rejected],
        }


def choose(
    task: str, needs: TaskNeeds, candidates: Iterable[Candidate], decisions: Sequence[RoutingDecision] = ()
) -> Choice:
    """The choice, or Blocked when nobody can do it; `task` is the id that decisions speak of."""
    known = sorted(candidates, key=lambda candidate: candidate.name)
    rejected = tuple(Rejected(each.name, why) for each in known if (why := _rejection(each, needs)))
    out = {item.agent: item.why for item in rejected}
    ranking = tuple(sorted((_ranked(each, needs) for each in known if each.name not in out), key=_order))
    decision = decision_for(task, decisions)
    if decision is not None:
        first = _decided(decision, ranking, out)
        return Choice(*first, ranking, rejected, decision.reason or "decided by a person")
    if not ranking:
        raise Blocked(_nobody(rejected), hint="See what each agent needs with: holdfast agents")
    return Choice(*ranking[0], ranking, rejected)


def _order(item: Ranked) -> tuple[float, str]:
    return (-item.score, item.agent)


def _rejection(candidate: Candidate, needs: TaskNeeds) -> str:
    """Why it cannot have the task; empty when it can."""
    if candidate.why_not:
        return candidate.why_not
    lacking = [need for need in needs.needed if need.capability not in candidate.capabilities]
    if lacking:
        return "; ".join(f"cannot {_ABILITIES[need.capability]} (needed: {need.because})" for need in lacking)
    if "person" in candidate.capabilities and "person" not in needs.capabilities:
        return "is a person, and nothing in the task asks for one"
    if candidate.ready or candidate.breaker == "CLOSED":
        return ""
    if candidate.breaker == "OPEN":
        return f"failed {in_a_row(candidate.failures)} and is left alone for a while"
    return "failed before and is being tried by one attempt right now"


_ABILITIES: dict[Capability, str] = {
    "edit": "edit files",
    "shell": "run commands",
    "resume": "resume a session",
    "permission": "ask for permission",
    "usage": "tell what it used",
    "offline": "work without a network",
    "person": "be asked like a person",
}


def _ranked(candidate: Candidate, needs: TaskNeeds) -> Ranked:
    terms = (_success(candidate), _cost(candidate), _speed(candidate), _fit(candidate, needs), _steady(candidate))
    return Ranked(candidate.name, round(sum(term.value * term.weight for term in terms), _DIGITS), terms)


def _term(name: TermName, value: float, because: str) -> Term:
    return Term(name, round(value, _DIGITS), WEIGHTS[name], because)


def _success(candidate: Candidate) -> Term:
    past = candidate.past
    value = (past.good + 1) / (past.attempts + 2)
    seen = f"{past.good:.1f} of {past.attempts:.1f} recent attempts passed" if past.attempts else "never tried here"
    return _term("success", value, seen)


def _cost(candidate: Candidate) -> Term:
    mean = candidate.past.mean_micro_usd
    if mean is None:
        return _term("cost", _UNKNOWN, "no price known")
    value = HALF_COST_MICRO_USD / (HALF_COST_MICRO_USD + mean)
    return _term("cost", value, f"${mean / 1_000_000:.4f} an attempt")


def _speed(candidate: Candidate) -> Term:
    mean = candidate.past.mean_duration_ms
    if mean is None:
        return _term("speed", _UNKNOWN, "no duration known")
    return _term("speed", HALF_DURATION_MS / (HALF_DURATION_MS + mean), f"{mean / 1000:.1f} s an attempt")


def _fit(candidate: Candidate, needs: TaskNeeds) -> Term:
    wanted = [need.capability for need in needs.preferred]
    if not wanted:
        return _term("fit", 1.0, "the task prefers nothing")
    has = [capability for capability in wanted if capability in candidate.capabilities]
    return _term("fit", len(has) / len(wanted), f"has {', '.join(has) or 'none'} of {', '.join(wanted)}")


def _steady(candidate: Candidate) -> Term:
    if candidate.breaker != "CLOSED":
        return _term("steady", 0.0, "would be tried again after failures")
    if not candidate.failures:
        return _term("steady", 1.0, "no failures in a row")
    seen = "the last attempt failed" if candidate.failures == 1 else f"{candidate.failures} failures in a row"
    return _term("steady", 1 / (1 + candidate.failures), seen)


def _decided(decision: RoutingDecision, ranking: Sequence[Ranked], out: dict[str, str]) -> Ranked:
    """The agent that a person named; an error when that one cannot have the task."""
    for item in ranking:
        if item.agent == decision.agent:
            return item
    name = printable(decision.agent)
    where = f"the routing decision for {printable(decision.task)}"
    if decision.agent in out:
        raise Blocked(f"{where} names {name}, which cannot have it: {out[decision.agent]}", hint=_CHANGE)
    known = ", ".join(sorted([*(item.agent for item in ranking), *out])) or "none"
    raise InvalidInput(f"{where} names {name}, and there is no such agent", hint=f"Agents here: {known}.")


_CHANGE = "Change the decision, or make that agent usable; nobody else is taken in its place."


def _nobody(rejected: Sequence[Rejected]) -> str:
    if not rejected:
        return "there is no agent"
    lines = "\n".join(f"  {printable(item.agent)}: {printable(item.why)}" for item in rejected)
    return f"no agent can have this task:\n{lines}"
