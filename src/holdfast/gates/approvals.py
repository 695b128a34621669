"""Approvals: which of them count, and whether they are enough. Pure: the clock, the keys and the verifier are given.

An approval counts when every rule in APPROVAL_RULES holds for it.
A rejection counts when it is genuine, about this very simulation, and by a configured approver who is no agent:
it needs no freshness, since saying no twice does no harm.

Invariants
  A1  One counting rejection and nothing is granted, whatever else there is, also where policy would allow.
  A2  People are counted, not approvals: who shares a name or a key with somebody is that somebody.
  A3  A denial is never granted.
  A4  How many must say yes is counted with the approvers of now; what a decision asked for, when there were others,
      is the least.
  A5  No more people are asked for than could answer: where the maker of a change is one of two, the other is enough.
  A6  An approval that expired stays expired when the clock goes back. It is judged by the latest of now and of the
      ledger's entries after it: each of those was made after the approval, whatever the clock says since.
      Entries before it tell nothing about it: one that a wrong clock dated 2099 expires the approvals before it,
      which must be given again, and none that is given afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from holdfast.gates.case import at_least
from holdfast.gates.evidence import PERSON
from holdfast.model.approval import Approval
from holdfast.model.decision import Decision
from holdfast.model.path import person_folded, printable
from holdfast.model.plan import Risk
from holdfast.model.words import counted


class Office(NamedTuple):
    """Who may approve, what was used up, and what time it is."""

    approvers: Mapping[str, str]  # name → hex of the public key
    now_ns: int
    used: frozenset[str] = frozenset()  # ids of approvals that were spent
    agents: frozenset[str] = frozenset()
    made_by: str = ""  # the person who made the plan, where one did
    longest_ns: int = 0  # how long an approval may be valid; 0 is no limit
    people: int = 1  # so many must say yes…
    people_from: Risk = "high"  # …from here on, where more than one could
    since_ns: Mapping[str, int] = {}  # id of an approval → the latest time of an entry after it (A6)


class Electorate(NamedTuple):
    """How many people there are to ask: all approvers, and those of them who did not make the change."""

    all: int
    others: int


class Judged(NamedTuple):
    """One approval: does it count, and if not, which rules it breaks."""

    id: str
    by: str
    answer: str
    broken: tuple[str, ...]

    @property
    def counts(self) -> bool:
        return not self.broken


class Standing(NamedTuple):
    """What the answers are worth, for the one decision whose digest it names."""

    decision: str
    granted: bool
    rejected: bool
    people: int
    needed: int
    judged: tuple[Judged, ...]
    reason: str


class ApprovalRule(NamedTuple):
    """`holds(approval, decision, office)`; `also_no` says whether a rejection must keep it too."""

    name: str
    also_no: bool
    holds: Callable[[Approval, Decision, Office], bool]


def _is_bound(approval: Approval, decision: Decision, office: Office) -> bool:
    return (
        approval.simulation == decision.simulation
        and approval.simulation_digest == decision.simulation_digest
        and approval.plan == decision.plan_digest
        and approval.change_set == decision.change_set
        and approval.base == decision.base
        and approval.policy == decision.policy
    )


def _is_about_this(approval: Approval, decision: Decision, office: Office) -> bool:
    return approval.simulation == decision.simulation


def _is_in_time(approval: Approval, decision: Decision, office: Office) -> bool:
    latest_ns = max(office.now_ns, office.since_ns.get(approval.id, 0))
    return approval.issued_ns <= office.now_ns and latest_ns < approval.expires_ns


def _is_short(approval: Approval, decision: Decision, office: Office) -> bool:
    return not office.longest_ns or approval.expires_ns - approval.issued_ns <= office.longest_ns


def _is_unused(approval: Approval, decision: Decision, office: Office) -> bool:
    return approval.id not in office.used


def _is_known(approval: Approval, decision: Decision, office: Office) -> bool:
    key = office.approvers.get(approval.by, "")
    return bool(key) and key.lower() == approval.key.lower()


def _is_a_person(approval: Approval, decision: Decision, office: Office) -> bool:
    """By name, or by a key that an agent's name is configured with."""
    agents = _agents(office, decision.author)
    keys = {key.lower() for name, key in office.approvers.items() if person_folded(name) in agents}
    return person_folded(approval.by) not in agents and approval.key.lower() not in keys


def _is_not_for_oneself(approval: Approval, decision: Decision, office: Office) -> bool:
    """Below high, and where nobody else could: yes."""
    if not office.made_by or not at_least(decision.risk_effective, "high"):
        return True
    if electorate_of(office, decision.author).all < 2:
        return True
    return person_folded(approval.by) != person_folded(office.made_by) and approval.key.lower() not in _own_keys(office)


def _own_keys(office: Office) -> set[str]:
    if not office.made_by:
        return set()
    return {
        key.lower() for name, key in office.approvers.items() if person_folded(name) == person_folded(office.made_by)
    }


def _agents(office: Office, author: str) -> set[str]:
    return {person_folded(name) for name in (*office.agents, *([author] if author != PERSON else []))}


APPROVAL_RULES: tuple[ApprovalRule, ...] = (
    ApprovalRule("It names this simulation", True, _is_about_this),
    ApprovalRule("It names the digests that were decided on", False, _is_bound),
    ApprovalRule("It is by a configured approver, with that approver's key", True, _is_known),
    ApprovalRule("It is not by an agent", True, _is_a_person),
    ApprovalRule("It is not for one's own change, from high on, where others can approve", False, _is_not_for_oneself),
    ApprovalRule("It has been issued and has not expired", False, _is_in_time),
    ApprovalRule("It is not valid for longer than policy lets it", False, _is_short),
    ApprovalRule("It was not used before", False, _is_unused),
)
_ABOUT_WHO = (_is_a_person, _is_not_for_oneself)
# Checked by the caller's verifier; it comes first in the list of broken rules.
SIGNATURE_RULE = "Its signature is genuine"


def standing(
    decision: Decision, approvals: Sequence[Approval], office: Office, is_genuine: Callable[[Approval], bool]
) -> Standing:
    """What all the answers together are worth."""
    ordered = sorted(approvals, key=lambda approval: (approval.id, approval.digest))
    judged = tuple(_judged(approval, decision, office, is_genuine) for approval in ordered)
    counting = [approval for approval, verdict in zip(ordered, judged, strict=True) if verdict.counts]
    noes = [approval for approval in counting if approval.answer == "reject"]
    people = _different_people([approval for approval in counting if approval.answer == "approve"])
    needed = _needed(decision, office)
    enough = decision.verdict == "ALLOW" or (decision.verdict == "NEED_APPROVAL" and people >= needed)
    return Standing(
        decision=decision.digest,
        granted=enough and not noes,
        rejected=bool(noes),
        people=people,
        needed=needed,
        judged=judged,
        reason=_reason(decision, noes, people, needed, judged),
    )


def left_to_ask(decision: Decision, approvals: Sequence[Approval], office: Office) -> tuple[str, ...]:
    """The approvers whose yes would count, of those who have not said it yet (`approvals`)."""
    said = {mark for approval in approvals for mark in _marks(approval.by, approval.key)}
    asked = (
        Approval("", "approve", name, key, "", "", "", "", "", "", 0, 0, "") for name, key in office.approvers.items()
    )
    return tuple(
        yes.by
        for yes in asked
        if said.isdisjoint(_marks(yes.by, yes.key)) and all(holds(yes, decision, office) for holds in _ABOUT_WHO)
    )


def people_needed(people: int, people_from: Risk, risk: Risk, electorate: Electorate) -> int:
    """A single user decides alone, by typing it out; otherwise nobody decides high risks alone.

    More people than there are approvers are more than can be had, and stay it: that is for policy to put right (A5).
    """
    if electorate.all < 2 or not at_least(risk, people_from):
        return 1
    could = electorate.others if at_least(risk, "high") else electorate.all
    return people if people > electorate.all else max(1, min(people, could))


def electorate_of(office: Office, author: str = PERSON) -> Electorate:
    """Everybody who may approve, and those of them who did not make the change. Agents are nobody here."""
    agents = _agents(office, author)
    barred = {key.lower() for name, key in office.approvers.items() if person_folded(name) in agents}
    everybody = {key.lower() for key in office.approvers.values()} - barred
    return Electorate(len(everybody), len(everybody - _own_keys(office)))


def _needed(decision: Decision, office: Office) -> int:
    if decision.verdict != "NEED_APPROVAL":
        return 0
    electorate = electorate_of(office, decision.author)
    now = people_needed(office.people, office.people_from, decision.risk_effective, electorate)
    return max(needed_by(decision), now)


def needed_by(decision: Decision) -> int:
    """At least one where a person must be asked: a decision edited to need none does not get away with it."""
    return max(1, decision.approvals_needed) if decision.verdict == "NEED_APPROVAL" else 0


def _judged(approval: Approval, decision: Decision, office: Office, is_genuine: Callable[[Approval], bool]) -> Judged:
    no = approval.answer == "reject"
    broken = [
        rule.name for rule in APPROVAL_RULES if (rule.also_no or not no) and not rule.holds(approval, decision, office)
    ]
    if not is_genuine(approval):
        broken.insert(0, SIGNATURE_RULE)
    return Judged(approval.id, approval.by, approval.answer, tuple(broken))


def _void(judged: Judged) -> str:
    """A rule is named by what must hold; told without saying so, it would read as if it did."""
    return f'; one of {printable(judged.by)} does not count, since it breaks the rule "{judged.broken[0]}"'


def _different_people(approvals: Sequence[Approval]) -> int:
    """Groups that share neither a name nor a key (A2); the order does not matter."""
    groups: list[set[str]] = []
    for approval in approvals:
        marks = _marks(approval.by, approval.key)
        apart = [group for group in groups if not group & marks]
        groups = [*apart, marks.union(*(group for group in groups if group & marks))]
    return len(groups)


def _marks(name: str, key: str) -> set[str]:
    """What tells one person from another (A2)."""
    return {f"name {person_folded(name)}", f"key {key.lower()}"}


def _reason(decision: Decision, noes: Sequence[Approval], people: int, needed: int, judged: tuple[Judged, ...]) -> str:
    if noes:
        said = f": {printable(noes[0].reason)}" if noes[0].reason else ""
        return f"rejected by {printable(noes[0].by)}{said}"
    if decision.verdict == "ALLOW":
        return "policy allows it"
    if decision.verdict == "DENY":
        return "policy denies it, and nobody can approve that"
    if people >= needed:
        return f"approved by {counted(people, 'person', 'people')}"
    void = next((_void(each) for each in judged if each.broken), "")
    return f"approved by {people} of {counted(needed, 'person', 'people')}{void}"
