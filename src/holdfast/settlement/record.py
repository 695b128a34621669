"""Settle a finished transaction: ledger first, then the tables, then its folder, which has the steps until the row has.

    COMMITTED ─▶ ledger entry ─▶ row ─▶ folder to kept/
    LEFT      ─▶ the same, with what was left to a person, or what could not be proven to be as before
    ABORTED   ─▶ ledger entry ─▶ row ─▶ folder removed
    OPEN      ─▶ ledger entry, which says so ─▶ row; the folder stays, since a person has to decide

Each step can be repeated: a crash between any two is finished by the next verb with the same outcome.
The ledger entry is found by the execution's id, so it is written once; after one that says OPEN comes the final one.
Each entry says how the execution went, but for its steps: those are in the journal's header until the row has them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Literal, NamedTuple

from holdfast.model.canonical import Json, whole_characters
from holdfast.model.execution import (
    LANDED,
    TAKEN_BACK,
    TAKEN_BACK_IN_PART,
    Divergence,
    Execution,
    StepResult,
    landed_in,
    result_word,
)
from holdfast.model.path import printable
from holdfast.settlement.custody import project_paper
from holdfast.settlement.log_rows import fill_log, log_rows
from holdfast.settlement.runs import project_run
from holdfast.store.chain import Entry
from holdfast.store.database import Records, Row
from holdfast.store.documents import packed
from holdfast.store.journal import Log
from holdfast.store.ledger import Ledger
from holdfast.workspace.folder import is_folder_there, keep, remove_stage
from holdfast.workspace.site import Site

KIND = "execution"
# A person accepted that records before this one are missing; see `engine.breaks`.
BREAK = "break"
Outcome = Literal["COMMITTED", "ABORTED", "LEFT", "OPEN"]
_STATUS = {"COMMITTED": "COMPLETED", "ABORTED": "ROLLED_BACK", "LEFT": "FAILED", "OPEN": "FAILED"}
_WHY = {"COMMITTED": (), "ABORTED": (TAKEN_BACK,), "LEFT": (TAKEN_BACK_IN_PART,), "OPEN": (TAKEN_BACK_IN_PART,)}
_MOST_PATHS = 100


class NotPutAway(OSError):
    """It is recorded, and its folder could not be moved to where it belongs: the next verb does that first."""


class Closing(NamedTuple):
    """What is to be settled. `header` is the journal's; `execution` is absent for a journal of the first release.

    `left` is what a person accepted as it stands; with the outcome LEFT the folder is kept.
    `recovered`: another process began it, and may have written its entry already.
    """

    txn: str
    outcome: Outcome
    header: Mapping[str, Json]
    root: str
    operations: int
    left: tuple[Divergence, ...]
    execution: Execution | None
    recovered: bool = False


def settle(site: Site, ledger: Ledger, records: Records, closing: Closing) -> Entry:
    """Finish it; safe to repeat. OSError: it is not recorded; NotPutAway: it is, and its folder is where it was."""
    entry = recorded(ledger, closing.txn) if closing.recovered else None
    if entry is None or is_open(entry):
        entry = ledger.append(KIND, _body(closing), time.time_ns())
    else:
        ledger.confirm()  # whoever wrote it may have died before the sync
    site.calls.point("in-ledger")
    project(records, entry, closing.execution)
    site.calls.point("in-tables")
    try:
        _put_away(site, closing, entry)
    except OSError as error:
        if closing.outcome == "ABORTED" and not closing.recovered:
            return entry  # it ended as its entry says; the next verb removes the stage before it begins anything
        raise NotPutAway(error.errno, error.strerror, error.filename) from error
    site.calls.point("put-away")
    return entry


def _put_away(site: Site, closing: Closing, entry: Entry) -> None:
    if entry.body["kept"]:  # also where whoever wrote it died before it kept the folder
        keep(site, closing.txn)
    elif closing.outcome == "ABORTED":
        remove_stage(site, closing.txn)


def is_open(entry: Entry) -> bool:
    """Was it written while the execution waited for a person?"""
    return entry.body.get("open") is True


def body_from_log(txn: str, log: Log) -> dict[str, Json]:
    """What the ledger says of a landed transaction, from what is kept of it."""
    return _body(Closing(txn, "COMMITTED", log.header, log.root, len(log.ops), (), None))


def recorded(ledger: Ledger, txn: str) -> Entry | None:
    """The entry of a transaction that is not settled yet, if it has one.

    Every verb settles what is open before it begins another transaction, so it is the newest execution or none; and
    an older record that cannot be proven does not keep it from being settled.
    """
    newest = ledger.newest(KIND)
    return newest if newest is not None and newest.body.get("execution_id") == txn else None


def catch_up(site: Site, ledger: Ledger, records: Records) -> int:
    """Project ledger entries that the tables lost; the number of them. What gc forgot is no longer kept."""
    head = ledger.head()
    known = records.projected
    fill_log(ledger, records, known)
    if head is None or head.seq <= known:
        return 0
    if not records.volatile:
        ledger.confirm()
    missing, broken = [], False
    for entry in ledger.entries(reverse=True):
        if entry.seq <= known:
            break
        missing.append(entry)
    for entry in reversed(missing):
        if entry.seq <= records.projected:
            continue  # after a fault of the database all of them are there already
        broken = broken or entry.kind == BREAK
        if entry.kind == KIND:
            project(records, entry, None, kept=is_folder_there(site, str(entry.body["execution_id"])))
        elif not project_paper(records, entry) and not project_run(records, entry, lenient=broken):
            project_note(records, entry)
    return len(missing)


def project_note(records: Records, entry: Entry) -> None:
    """An entry without a table of its own."""
    log_rows(records, entry)
    records.mark_projected(entry.seq)


def project(records: Records, entry: Entry, execution: Execution | None, *, kept: bool = True) -> None:
    """One ledger entry as a row."""
    body = entry.body
    committed = landed_in(body)
    row = Row(
        id=str(body["execution_id"]),
        plan_id=str(body["plan_id"]),
        plan_digest=str(body["plan_digest"]),
        intent=str(body["intent"]),
        status=str(body["status"]),
        at_ns=entry.at_ns,
        changes=_int(body["changes"]),
        live=committed,
        kept=bool(body["kept"]) and kept,
        summary=body,
    )
    document = None
    if execution is not None:
        document = packed(execution_document(execution, body), map(_step_document, execution.steps))
    off, on = (_ids(body["undoes"]), _ids(body["revives"])) if committed else ([], [])
    records.save_execution(row, document, entry.seq, off=off, on=on)


def execution_document(execution: Execution, body: Mapping[str, Json]) -> dict[str, object]:
    """The execution result in the words other tools read (features.md, appendix), without its steps."""
    executed = succeeded = 0
    for step in execution.steps:  # each is spelled out when it is looked at, so they are looked at once
        executed += step.was_executed
        succeeded += step.success
    return {
        "id": execution.id,
        "result_id": execution.id,
        "status": result_word(execution.status),
        "state": execution.status,
        "intent": execution.intent,
        "plan_id": execution.plan_id,
        "plan_digest": execution.plan_digest,
        "change_set_digest": execution.change_set_digest,
        "base_digest": execution.base_digest,
        "user_approved": bool(execution.approved_by),
        "approved_by": execution.approved_by,
        "approved_at_ns": execution.approved_at_ns,
        "changes": execution.changes,
        "steps_executed": executed,
        "steps_succeeded": succeeded,
        "steps_failed": executed - succeeded,
        "receipts": [receipt._asdict() for receipt in execution.receipts],
        "duration_ms": execution.duration_ms,
        "history": [moment._asdict() for moment in execution.history],
        "snapshot_before": execution.before_digest,
        "snapshot_after": execution.after_digest,
        "divergence_detected": bool(execution.divergence),
        "divergence": [item._asdict() for item in execution.divergence],
        "divergence_not_looked_at": execution.not_looked_at,
        "paths_proven": execution.proven,
        "abort_reason": execution.errors[0] if execution.errors else "",
        "errors": list(execution.errors),
        "services_taken_back": list(execution.taken_back),
        "undoes": body["undoes"],
        "revives": body["revives"],
        "log_root": body["root"],
    }


def _step_document(step: StepResult) -> dict[str, object]:
    return {**step._asdict(), "duration_ms": step.duration_ms}


def _body(closing: Closing) -> dict[str, Json]:
    header = closing.header
    if closing.execution is not None:
        status = str(closing.execution.status)
        errors: list[Json] = [whole_characters(error) for error in closing.execution.errors]
    else:
        status = _STATUS[closing.outcome]
        errors = [*_WHY[closing.outcome]]
        errors += [f"{printable(item.path)} {item.detail}" for item in closing.left]
    names = ("plan_id", "plan_digest", "change_set", "base", "intent", "approved_by", "undoes", "revives")
    return {
        **{name: header[name] for name in names},
        **{name: header[name] for name in ("simulation", "decision", "approvals") if header.get(name)},
        "execution_id": closing.txn,
        "status": status,
        "landed": status in LANDED,
        **({"open": True, **_so_far(closing.execution)} if closing.outcome == "OPEN" else {}),
        "root": closing.root,
        "changes": closing.operations,
        "kept": closing.outcome in ("COMMITTED", "LEFT"),
        "errors": errors,
        **_course(closing.execution),
        **_outside(closing),
    }


def _course(execution: Execution | None) -> dict[str, Json]:
    """How it went, for a look when the row is lost: when each status began, and what others changed (at most 100), or
    why that is not known."""
    if execution is None:
        return {}
    history: list[Json] = [[moment.status, moment.at_ns] for moment in execution.history]
    seen = execution.divergence[:_MOST_PATHS]
    divergence: list[Json] = [[whole_characters(item.path), whole_characters(item.detail)] for item in seen]
    why_not = whole_characters(execution.not_looked_at)
    return {
        "history": history,
        **({"divergence": divergence} if divergence else {}),
        **({"not_looked_at": why_not} if why_not else {}),
    }


def _so_far(execution: Execution | None) -> dict[str, Json]:
    """What only whoever began it knows, for the record that is made when a person has decided."""
    if execution is None:
        return {}
    receipts: list[Json] = [
        {**each._asdict(), "command": list(each.command), "detail": whole_characters(each.detail)}
        for each in execution.receipts
    ]
    return {"receipts": receipts}


def _outside(closing: Closing) -> dict[str, Json]:
    """How many service actions there were, and what of them was taken back; silent when there were none."""
    announced = closing.header.get("services")
    if not isinstance(announced, list):
        return {}
    taken_back: list[Json] = list(closing.execution.taken_back) if closing.execution is not None else []
    return {"services": len(announced), **({"taken_back": taken_back} if taken_back else {})}


def _ids(value: Json) -> list[str]:
    return [str(item) for item in value] if isinstance(value, list) else []


def _int(value: Json) -> int:
    return value if isinstance(value, int) else 0
