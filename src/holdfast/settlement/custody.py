"""The chain of custody: simulations, decisions and approvals, each a ledger entry first and a row second.

    plan ─▶ simulation ─▶ decision ─▶ approval(s) ─▶ execution
each names the one before it by id and digest, so that `holdfast trace` can walk both ways.

Invariants
  Q1  The ledger's entry holds what a decision was made from by digest, never the text of a change: a ledger cannot
      forget, and a change may hold a secret.
  Q2  An approval is used when an execution's entry names it; that entry, not a flag, makes it single-use.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.model.approval import Approval
from holdfast.model.canonical import Json
from holdfast.model.decision import Decision, Reason
from holdfast.model.simulation import Simulation
from holdfast.store.chain import Entry, Record
from holdfast.store.database import Paper, Records, Table
from holdfast.store.ledger import Ledger

_TABLES: dict[str, Table] = {"simulation": "simulations", "decision": "decisions", "approval": "approvals"}
_MOST_PATHS = 20


class Judged(NamedTuple):
    """A decision, and the blob that holds everything it was made from."""

    decision: Decision
    inputs: str


Filed = Simulation | Judged | Approval


def file_papers(ledger: Ledger, records: Records, papers: list[Filed], at_ns: int, by: str) -> None:
    """Make those that are new durable with one sync, then look-up-able. The caller holds the workspace's lock.

    `by` is who has it simulated: from high risk on, the author's own approval may not count.
    """
    drafts = [_record(paper, at_ns, by) for paper in papers]
    fresh = [draft for draft in drafts if not records.has_paper(_TABLES[draft.kind], str(draft.body["id"]))]
    entries = ledger.append_many(fresh)
    for entry in entries:
        project_paper(records, entry)


def project_paper(records: Records, entry: Entry) -> bool:
    """A ledger entry as a row; False when it is of another kind."""
    table = _TABLES.get(entry.kind)
    if table is None:
        return False
    paper = Paper(str(entry.body["id"]), str(entry.body["subject"]), entry.at_ns, entry.body)
    records.save_paper(table, paper, entry.seq)
    return True


def _record(paper: Filed, at_ns: int, by: str) -> Record:
    match paper:
        case Simulation():
            return Record("simulation", {**_simulation(paper), "by": by}, at_ns)
        case Judged():
            return Record("decision", decision_body(paper), at_ns)
        case Approval():
            body: dict[str, Json] = {"subject": paper.simulation, "signature": paper.signature}
            return Record("approval", {**_plain(paper.claims()), **body}, at_ns)


def _simulation(simulation: Simulation) -> dict[str, Json]:
    return {
        "id": simulation.id,
        "subject": simulation.plan_id,
        "digest": simulation.digest,
        "plan_digest": simulation.plan_digest,
        "status": simulation.status,
        "change_set": simulation.change_set,
        "base": simulation.base,
        "base_tree": simulation.base_tree,
        "predicted_tree": simulation.predicted_tree,
        "risk": simulation.highest_risk,
        "steps": len(simulation.steps),
        "shadow": simulation.shadow,
        "enforced": list(simulation.enforced),
        "made_ns": simulation.at_ns,
    }


def decision_body(judged: Judged) -> dict[str, Json]:
    """A decision as its ledger entry holds it."""
    decision = judged.decision
    facts = {name: value for name, value in decision.document().items() if name != "reasons"}
    return {
        "id": decision.id,
        "subject": decision.simulation,
        "digest": decision.digest,
        "inputs": judged.inputs,
        **_plain(facts),
        "reasons": [_reason(reason) for reason in decision.reasons],
    }


def _reason(reason: Reason) -> dict[str, Json]:
    return {
        "rule": reason.rule,
        "layer": reason.layer,
        "verdict": reason.verdict,
        "risk": reason.risk,
        "paths": list(reason.paths[:_MOST_PATHS]),
        "count": len(reason.paths),
        "detail": reason.detail,
    }


def _plain(facts: dict[str, object]) -> dict[str, Json]:
    """Values of documents are JSON by construction; the type does not say so."""
    return {name: _json(value) for name, value in facts.items()}


def _json(value: object) -> Json:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_json(item) for item in value]
    raise TypeError(f"{type(value).__name__} does not belong into a record")
