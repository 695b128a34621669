"""Governance: who may let what land. Decisions are made, answers are collected, and the hard gates are asked.

    report ─▶ decide ─▶ ALLOW ────────────────────────┐
                 ├────▶ NEED_APPROVAL ─▶ answers ─────┤
                 └────▶ DENY                          ▼
                                        hard gates: all five, under the lock, at the last moment

Invariants
  Y1  What the gates compare with comes from the ledger, where every record is proven, never from the tables.
  Y2  An approval is spent by the execution entry that names it.
  Y3  Settings and policy are read afresh for every question: a policy that changed makes decisions stale.
  Y4  The ledger is read back to the moment a simulation was made, which its id covers. A report that is filed again,
      because somebody deleted its row, washes away no answer, no use and no author.
"""

from __future__ import annotations

import os
import sys
import time
from base64 import b32encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from holdfast.checks.words import health_in_words
from holdfast.engine.checking import Verified
from holdfast.engine.evidence import evidence_of, kept_inputs
from holdfast.engine.refusals import somebody_else, way_to_approve
from holdfast.engine.simulator import Simulated, Surroundings
from holdfast.errors import ApprovalNeeded, Blocked, Denied, HoldfastError, UnknownId
from holdfast.gates.aliases import leading_to
from holdfast.gates.approvals import Electorate, Office, Standing, electorate_of, left_to_ask, standing
from holdfast.gates.evidence import PERSON, Evidence
from holdfast.gates.hard import Current, Question, hard_gates, refusal
from holdfast.gates.layers import layered
from holdfast.gates.policy import Policy
from holdfast.gates.self_tests import sound
from holdfast.gates.write_gate import decide
from holdfast.model.approval import Answer, Approval
from holdfast.model.canonical import Json, digest_of, whole_characters
from holdfast.model.configuration import Settings
from holdfast.model.decision import Decision
from holdfast.model.path import person_name, printable
from holdfast.model.simulation import Simulation
from holdfast.model.tables import Source as LayerSource
from holdfast.settlement.custody import Judged
from holdfast.store.blobs import Blobs
from holdfast.store.ledger import Ledger
from holdfast.store.own_settings import settings_of
from holdfast.store.signing import Signer, is_signed, load_or_create_signer
from holdfast.workspace.site import Site

_MOST_INSTRUCTIONS = 100
_UNCHANGED = "Nothing was changed."


class Custody(NamedTuple):
    """What the ledger says about one simulation, newest first."""

    report: str
    decisions: tuple[Mapping[str, Json], ...]
    approvals: tuple[Approval, ...]
    used: frozenset[str]
    made_by: str
    since_ns: Mapping[str, int]  # id of an approval → the latest time of an entry after it


class _About(NamedTuple):
    """What an answer names, as an approval calls it."""

    simulation: str
    simulation_digest: str
    plan: str
    change_set: str
    base: str
    policy: str


class Governance:
    """The gates over one workspace."""

    def __init__(self, site: Site, ledger: Ledger, login: str) -> None:
        self._site = site
        self._ledger = ledger
        self._login = login
        self._compiled: tuple[tuple[LayerSource, ...], Policy] | None = None
        # The evidence that was read last.
        self._read: Evidence | None = None

    def settings(self) -> Settings:
        return settings_of(self._site.path)

    def policy(self, settings: Settings | None = None) -> Policy:
        """The policy in force. The files are read every time (Y3); what they say is compiled once."""
        layers = (settings or self.settings()).policy
        if self._compiled is None or self._compiled[0] != layers:
            self._compiled = layers, sound(layered(layers))
        return self._compiled[1]

    def most_bytes(self) -> int:
        """How much new content the policy admits; without bound where it cannot be read, since nothing lands then."""
        try:
            return self.policy().scalars.limits.bytes
        except HoldfastError:
            return sys.maxsize

    # ── deciding ──

    def judge(self, simulated: Simulated, verified: Verified, around: Surroundings, tree: str = "") -> Judged:
        """The write gate's decision, and the blob that a replay needs.

        `tree` is what the workspace would become, where that is not what was predicted.
        """
        settings = self.settings()
        evidence = self._evidence(simulated, verified, around, tree)
        electorate = self._electorate(settings, simulated.report.id, evidence.author)
        decision = decide(evidence, self.policy(settings), electorate.all, electorate.others)
        inputs = Blobs(self._site.state).put(kept_inputs(evidence, settings.policy, *electorate))
        return Judged(decision, inputs)

    def _evidence(self, simulated: Simulated, verified: Verified, around: Surroundings, tree: str) -> Evidence:
        """A change that is judged again is not read again: its digest names every byte of both sides."""
        found, changes = self._read, simulated.change_set
        same = found is not None and found.change_set.digest == changes.digest
        if found is None or not same or found.plan.digest != simulated.plan.digest:
            found = evidence_of(self._site, simulated.plan, simulated.report, changes, simulated.sources)
        self._read = replace(
            found,
            plan=simulated.plan,
            simulation=simulated.report,
            receipts=verified.receipts,
            base_tests=verified.base_tests,
            author=simulated.plan.agent or PERSON,
            links=leading_to(changes.paths, around.links, self._site.seen_at),
            tree_files=around.files,
            # A person's change was made under nobody's instructions.
            instructions=_bounded(around.instructions) if simulated.plan.agent else (),
            lands_as=tree,
            outdated=verified.outdated,
            health_in_words=health_in_words(simulated.plan),
        )
        return self._read

    def _electorate(self, settings: Settings, simulation: str, author: str) -> Electorate:
        """Where nobody is configured, it is whoever is here."""
        office = Office(settings.approver_keys, 0, agents=frozenset(agent.name for agent in settings.agents))
        if electorate_of(office, author).all < 2:
            return Electorate(1, 1)
        return electorate_of(office._replace(made_by=self._maker(simulation)), author)

    def _maker(self, simulation: str) -> str:
        """Who had it simulated: the ledger knows, or it is being simulated right now."""
        try:
            return self.custody_of(simulation).made_by
        except UnknownId:
            return self.me()

    # ── answering ──

    def approve(self, decision: Decision, *, by: str = "", reason: str = "") -> Approval:
        """This user's signed yes to a decision.

        Denied where nobody can approve, ApprovalNeeded where it is not this user's yes that is missing.
        """
        if decision.verdict == "DENY":
            raise Denied(_denial(decision), hint="Nothing was changed. Nobody can approve what policy denies.")
        signed = self._signed("approve", _about(decision), by, reason)
        self._require_it_counts(decision, signed)
        return signed

    def refuse(self, what: Decision | Simulation, *, by: str = "", reason: str = "") -> Approval:
        """This user's signed no. It needs no decision, and no workspace that still is as it was."""
        about = _about(what) if isinstance(what, Decision) else _about_report(what, self.policy().digest)
        return self._signed("reject", about, by, reason)

    def _signed(self, said: Answer, about: _About, by: str, reason: str) -> Approval:
        name = person_name(by) if by else self.me()
        if not name:
            raise ApprovalNeeded(f'"{printable(by)}" is nobody\'s name, and somebody has to answer', hint=_UNCHANGED)
        now = time.time_ns()
        lifetime = self.policy().scalars.approval_lifetime_ms * 1_000_000
        approval = Approval(
            id="a-" + b32encode(os.urandom(10)).decode("ascii").lower()[:12],
            answer=said,
            by=whole_characters(name),
            key="",
            **about._asdict(),
            issued_ns=now,
            expires_ns=now + lifetime,
            reason=whole_characters(reason),
        )
        return self._signer().signed(approval)

    def _require_it_counts(self, decision: Decision, approval: Approval) -> None:
        """Better said now than when the change is to land."""
        if decision.verdict != "NEED_APPROVAL":
            return
        stands = self.standing(decision, self.custody_of(decision.simulation)._replace(approvals=(approval,)))
        broken = stands.judged[0].broken
        if broken:
            raise ApprovalNeeded(
                f"the approval of {printable(approval.by)} would not count, since it breaks: {'; '.join(broken)}",
                hint=f"Nothing was changed. {somebody_else(self.others_to_ask(decision))}. See: holdfast doctor",
            )

    def me(self) -> str:
        """The name this user approves under."""
        return whole_characters(person_name(self.settings().me) or self._login)

    def standing(self, decision: Decision, custody: Custody) -> Standing:
        """What all the answers in the ledger are worth, now."""
        return standing(decision, custody.approvals, self._office(self.settings(), custody), is_signed)

    def others_to_ask(self, decision: Decision) -> tuple[str, ...]:
        """Who may approve it besides this user, where a yes of this user would not count; nobody where it would."""
        settings = self.settings()
        if decision.verdict != "NEED_APPROVAL" or not settings.approvers:
            return ()
        custody = self.custody_of(decision.simulation)
        office = self._office(settings, custody)
        stands = standing(decision, custody.approvals, office, is_signed)
        counts = {each.id for each in stands.judged if each.counts}
        names = left_to_ask(decision, [one for one in custody.approvals if one.id in counts], office)
        mine = office.approvers.get(self.me(), "").lower() == self._signer().public.lower()
        return () if stands.granted or (mine and self.me() in names) else names

    def _office(self, settings: Settings, custody: Custody) -> Office:
        scalars = self.policy(settings).scalars
        return Office(
            approvers=self._approvers(settings, custody.approvals),
            now_ns=time.time_ns(),
            used=custody.used,
            agents=frozenset(agent.name for agent in settings.agents),
            made_by=custody.made_by,
            longest_ns=scalars.approval_lifetime_ms * 1_000_000,
            people=scalars.people,
            people_from=scalars.people_from,
            since_ns=custody.since_ns,
        )

    def _approvers(self, settings: Settings, approvals: Sequence[Approval]) -> Mapping[str, str]:
        """Where nobody is configured, whoever holds this user's key is the one approver, under any name."""
        if settings.approvers:
            return settings.approver_keys
        own = self._signer().public if approvals else ""
        return {approval.by: own for approval in approvals} or {self.me(): own}

    def _signer(self) -> Signer:
        return load_or_create_signer(calls=self._site.calls)

    # ── landing ──

    def require_open_gates(
        self, simulated: Simulated, decision: Decision, custody: Custody, tree: Callable[[], str]
    ) -> Standing:
        """All five hard gates, or the error that the documented exit code belongs to. Nothing was changed.

        That every path of the base is still what was seen, the transaction proves before its first move.
        """
        report, policy = simulated.report, self.policy()
        recorded = next((row for row in custody.decisions if row["id"] == decision.id), None)
        strict = policy.scalars.strict_base
        current = Current(
            change_set=simulated.change_set.digest,
            base=simulated.change_set.base,
            base_tree=tree() if strict else "",
            policy=policy.digest,
            report=custody.report,
            decision=str(recorded["digest"]) if recorded is not None else "",
            strict_base=strict,
        )
        stands = self.standing(decision, custody)
        question = Question(report, simulated.plan, simulated.change_set, decision, stands, current)
        error = refusal(hard_gates(question))
        if error is not None:
            hint = _hint(error, report)
            if isinstance(error, ApprovalNeeded):
                way = way_to_approve(decision, report.plan_id, self.others_to_ask(decision))
                hint = f"Nothing was changed. {way}"
            raise type(error)(error.message, hint=hint)
        return stands

    def custody_of(self, simulation: str) -> Custody:
        """Everything the ledger holds about a simulation (Y4); UnknownId when it does not know it."""
        decisions: list[Mapping[str, Json]] = []
        approvals: list[Approval] = []
        used: set[str] = set()
        first: Mapping[str, Json] | None = None
        made_ns: Json = 0
        intact = True  # no accepted break lies between the entry and now
        since_ns: dict[str, int] = {}
        latest_ns = 0  # of the entries after this one
        for entry in self._ledger.entries(reverse=True):
            body = entry.body
            if first is not None and isinstance(made_ns, int) and entry.at_ns < made_ns:
                break
            if entry.kind == "execution" and body.get("simulation") == simulation:
                spent = body.get("approvals", [])
                used.update(str(id) for id in (spent if isinstance(spent, list) else []))
            elif entry.kind == "decision" and body["subject"] == simulation:
                decisions.append(body)
            elif entry.kind == "break":
                intact = False
            elif entry.kind == "approval" and body["subject"] == simulation and intact:
                since_ns[str(body["id"])] = latest_ns
                approvals.append(_approval(body))  # an earlier one may have been used by a record that is lost
            elif entry.kind == "simulation" and body["id"] == simulation:
                first, made_ns = body, body["made_ns"]
            latest_ns = max(latest_ns, entry.at_ns)
        if first is None:
            raise UnknownId(f"the ledger knows no simulation {simulation}", hint="Simulate the plan first.")
        made_by = str(first.get("by", ""))
        return Custody(str(first["digest"]), tuple(decisions), tuple(approvals), frozenset(used), made_by, since_ns)


def _bounded(instructions: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Those nearest to the top; where a repository has more, a row without a path stands for the others."""
    rows = sorted(instructions, key=lambda row: (row[0].count("/"), row[0]))
    rest = rows[_MOST_INSTRUCTIONS:]
    return (*rows[:_MOST_INSTRUCTIONS], *([("", digest_of([list(row) for row in rest]))] if rest else ()))


def _about(decision: Decision) -> _About:
    return _About(
        decision.simulation,
        decision.simulation_digest,
        decision.plan_digest,
        decision.change_set,
        decision.base,
        decision.policy,
    )


def _about_report(report: Simulation, policy: str) -> _About:
    return _About(report.id, report.digest, report.plan_digest, report.change_set, report.base, policy)


def _approval(body: Mapping[str, Json]) -> Approval:
    fields = {name: value for name, value in body.items() if name != "subject"}
    return Approval(**fields)  # type: ignore[arg-type]


def _denial(decision: Decision) -> str:
    reasons = [f"{reason.rule}: {reason.detail}" for reason in decision.reasons if reason.verdict == "DENY"]
    return "policy denies this change: " + "; ".join(reasons)


def _hint(error: Exception, report: Simulation) -> str:
    if isinstance(error, (Blocked, Denied)):
        return _UNCHANGED
    return f"Nothing was changed. Simulate again: holdfast simulate {report.plan_id}"
