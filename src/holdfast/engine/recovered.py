"""The record of an execution that another process began: from its journal's header, its ledger entry and the disk.

The header of the log holds the steps, durable before the first path moves; the ledger holds what was known when an
execution stopped to wait for a person. What stands at its paths is looked at here and now. Statuses that were entered
after the other process died have the time at which recovery established them.
"""

from __future__ import annotations

import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from holdfast.engine.results import Measured, step_results
from holdfast.errors import HoldfastError
from holdfast.execution.services import Deed
from holdfast.model.canonical import Json
from holdfast.model.changeset import images_digest
from holdfast.model.execution import (
    TAKEN_BACK,
    TAKEN_BACK_IN_PART,
    Divergence,
    Execution,
    Moment,
    Receipt,
    Status,
    advanced,
)
from holdfast.model.image import Image
from holdfast.model.path import parent_of, printable
from holdfast.settlement.record import is_open
from holdfast.simulation.rehearsal import StepReport
from holdfast.store.chain import Entry
from holdfast.store.documents import packed, unpacked
from holdfast.store.effects import Effects
from holdfast.store.journal import Log
from holdfast.workspace.flip import DISPLACED
from holdfast.workspace.observe import observe
from holdfast.workspace.proof import read_again, unread, why_unread
from holdfast.workspace.recovery import Unsettled, read_log
from holdfast.workspace.site import JOURNAL, Site

HEADER = "record"
_ON_THE_WAY: tuple[Status, ...] = (
    "PENDING", "VALIDATING", "BACKING_UP", "APPLYING", "VERIFYING", "HEALTH_CHECKING"
)  # fmt: skip
_NOT_TOLD = "the process that began it ended first"
_UNKNOWN_DEED = "its outcome was not recorded before the process ended"
_COULD_NOT_BEGIN = "it could not begin; why was not recorded before the process ended"
_KNOWN_FROM = "the journal says so"


def in_header(execution: Execution, reports: Sequence[StepReport]) -> dict[str, Json]:
    """What recovery needs to record an execution as whoever began it would have: packed, since steps may be many."""
    head = {
        "approved_at_ns": execution.approved_at_ns,
        "began_ns": time.time_ns(),
        "receipts": [receipt._asdict() for receipt in execution.receipts],
    }
    rows = (report._replace(receipt=None)._asdict() for report in reports)
    return {HEADER: b64encode(packed(head, rows)).decode("ascii")}


def recovered_execution(site: Site, found: Unsettled, entry: Entry | None) -> Execution | None:
    """How it went and how it ended; None for a journal of another release, with no record in its header that we know.

    The workspace is repaired by then, and that is never kept from being settled.
    """
    record = _record(found.header)
    if record is None:
        return None
    try:
        begun = _begun(found, record, entry)
        reports = [_report(row, record["began_ns"]) for row in record["steps"]]
    except (KeyError, TypeError, ValueError):
        return None
    log = read_log(site.calls, site.state.directory(f"{JOURNAL}/{found.txn}"))
    deeds = _deeds(site, found)
    measured = _Ended(site, log, found.outcome)
    if entry is not None and not is_open(entry):
        ended = _measured(begun, found, measured)  # whoever began it came as far as its entry
    else:
        ended = _ended(begun, found, measured, deeds)
    seen = Measured(log.ops, None, _reads(found.header, measured), measured.image)
    return replace(ended, steps=step_results(reports, seen, ended, deeds))


def why_unproven(execution: Execution, found: Unsettled) -> str:
    """Why a rollback that recovery finished is not called one; empty where it is."""
    return execution.errors[-1] if found.outcome == "ABORTED" and execution.status == "FAILED" else ""


class _Ended:
    """What the log planned and what stands now, path by path; `unread` says why where a path cannot be read."""

    def __init__(self, site: Site, log: Log, outcome: str) -> None:
        self._site = site
        self.unread: dict[str, str] = {}
        self.pre: dict[str, Image | None] = {}
        self.post: dict[str, Image | None] = {}
        for op in log.ops:
            self.pre.setdefault(op.path, op.pre.image if op.pre is not None else None)
            self.post[op.path] = op.post.image if op.post is not None else None
        self.wanted = self.post if outcome == "COMMITTED" else self.pre
        self._now: dict[str, Image | None] = {}

    def image(self, path: str) -> Image | None:
        if path not in self._now:
            self._now[path] = self._look(path)
        return self._now[path]

    def _look(self, path: str) -> Image | None:
        try:
            return read_again(partial(self._read, path))
        except PermissionError:
            return self.wanted.get(path)  # which object stands there was proven before the head said so
        except OSError as error:
            self.unread[path] = why_unread(error)
            return self.post.get(path) if self.wanted is self.post else None  # what landed was proven before
        except HoldfastError:
            return None

    def _read(self, path: str) -> Image | None:
        try:
            directory = self._site.workspace.directory(parent_of(path))
            seen = observe(self._site.calls, directory, path.rpartition("/")[2], wait=False)
        except OSError as error:
            if error.errno in DISPLACED:
                return None
            raise
        return seen.image if seen is not None else None


def _begun(found: Unsettled, record: Mapping[str, Any], entry: Entry | None) -> Execution:
    header, known = found.header, entry.body if entry is not None else {}
    execution = Execution(
        id=found.txn,
        intent=str(header["intent"]),
        plan_id=str(header["plan_id"]),
        plan_digest=str(header["plan_digest"]),
        change_set_digest=str(header["change_set"]),
        base_digest=str(header["base"]),
        approved_by=str(header["approved_by"]),
        approved_at_ns=record["approved_at_ns"],
        history=tuple(Moment(status, record["began_ns"]) for status in _ON_THE_WAY[:3]),
        receipts=tuple(map(_receipt, record["receipts"])),
        changes=found.operations,
        not_looked_at="" if entry is not None else _NOT_TOLD,
    )
    history, errors, divergence = (known.get(name) for name in ("history", "errors", "divergence"))
    if isinstance(history, list):
        moments = tuple(Moment(*row) for row in history)  # type: ignore[misc]
        execution = replace(execution, history=moments)
    if isinstance(errors, list):
        execution = replace(execution, errors=tuple(str(error) for error in errors))
    if isinstance(divergence, list):
        execution = replace(execution, divergence=tuple(Divergence(*map(str, row)) for row in divergence))  # type: ignore[arg-type]
    return _so_far(execution, known)


def _so_far(execution: Execution, known: Mapping[str, Json]) -> Execution:
    """With what its entry has besides; one that was written while it waited for a person has the receipts too."""
    receipts, taken_back = known.get("receipts"), known.get("taken_back")
    if isinstance(receipts, list):
        execution = replace(execution, receipts=tuple(_receipt(row) for row in receipts if isinstance(row, dict)))
    if isinstance(taken_back, list):
        execution = replace(execution, taken_back=tuple(map(str, taken_back)))
    return replace(execution, not_looked_at=str(known.get("not_looked_at", execution.not_looked_at)))


def _ended(begun: Execution, found: Unsettled, measured: _Ended, deeds: Sequence[Deed]) -> Execution:
    now = time.time_ns()
    if found.outcome == "COMMITTED":
        reached = _ON_THE_WAY.index(begun.status) if begun.status in _ON_THE_WAY else len(_ON_THE_WAY) - 1
        for status in _ON_THE_WAY[reached + 1 :]:
            begun = advanced(begun, status, now)
        undone = tuple(deed.failure for deed in deeds if deed.failure)
        begun = replace(begun, errors=(*begun.errors, *undone))
        return advanced(_measured(begun, found, measured), "PARTIAL" if undone else "COMPLETED", now)
    if begun.status != "FAILED":
        for status in _reached(begun, found, deeds):
            begun = advanced(begun, status, now)
        begun = advanced(begun, "FAILED", now)
    why = TAKEN_BACK if found.outcome == "ABORTED" else TAKEN_BACK_IN_PART
    # While it waited, its entry said the other of the two.
    errors = tuple(why if error in (TAKEN_BACK, TAKEN_BACK_IN_PART) else error for error in begun.errors) or (why,)
    begun = replace(begun, errors=errors, taken_back=(*begun.taken_back, *found.taken_back))
    begun = _measured(begun, found, measured)
    if found.outcome == "OPEN":
        return begun
    if found.outcome == "ABORTED" and measured.unread:
        return replace(begun, errors=(*begun.errors, f"rolled back, but {unread(tuple(measured.unread))}"))
    if found.outcome == "LEFT":
        left = tuple(f"{printable(item.path)} {item.detail}" for item in found.left)
        return replace(begun, errors=(*begun.errors, *left))
    return advanced(begun, "ROLLED_BACK", now)


def _reached(begun: Execution, found: Unsettled, deeds: Sequence[Deed]) -> tuple[Status, ...]:
    """What it came to after it was prepared, as far as the disk proves it: something had moved, or a service action
    was begun, which comes after the paths were verified. How far it came beyond that nobody knows."""
    if begun.status != "BACKING_UP":
        return ()
    if any(deed.is_begun for deed in deeds):
        return "APPLYING", "VERIFYING"
    return ("APPLYING",) if found.had_moved else ()


def _measured(execution: Execution, found: Unsettled, measured: _Ended) -> Execution:
    """The digests over what was proven: recovery found every path on one side, unless somebody changed it since."""
    wanted = measured.wanted
    apart = {path for path, image in wanted.items() if measured.image(path) != image or path in measured.unread}
    known = {item.path for item in execution.divergence}
    told_of = {path: measured.unread.get(path, "holds somebody else's change") for path in sorted(apart)}
    noted = (*found.left, *(Divergence(path, detail) for path, detail in told_of.items()))
    told = {item.path: item for item in noted if item.path not in known}
    others = [path for path in wanted if path not in apart]
    return replace(
        execution,
        before_digest=images_digest((path, measured.pre[path]) for path in others),
        after_digest=images_digest((path, wanted[path]) for path in others),
        proven=0 if found.outcome == "COMMITTED" else len(others),
        divergence=(*execution.divergence, *told.values()),
    )


def _reads(header: Mapping[str, Json], measured: _Ended) -> dict[str, Image]:
    """What the plan relied on, as it stands now: the header knows the paths, and one digest over all of them."""
    paths = header.get("reads")
    found = [(str(path), measured.image(str(path))) for path in paths] if isinstance(paths, list) else []
    return {path: image for path, image in found if image is not None}


def _deeds(site: Site, found: Unsettled) -> tuple[Deed, ...]:
    """The service actions that were reached, in order."""
    if not isinstance(found.header.get("services"), list):
        return ()
    directory = site.state.open_directory(f"{JOURNAL}/{found.txn}")
    try:
        courses = Effects(site.calls, directory).courses()
    finally:
        site.calls.close(directory)
    return tuple(
        Deed(
            0,
            0,
            failure="" if course.is_done else _UNKNOWN_DEED if course.is_begun else _COULD_NOT_BEGIN,
            is_begun=course.is_begun,
            taken_back=_KNOWN_FROM if course.is_taken_back else "",
        )
        for course in courses
    )


def _receipt(row: Mapping[str, Any]) -> Receipt:
    return Receipt(**{**row, "command": tuple(row["command"])})


def _record(header: Mapping[str, Json]) -> dict[str, Any] | None:
    text = header.get(HEADER)
    if not isinstance(text, str):
        return None
    try:
        return unpacked(b64decode(text, validate=True))
    except (ValueError, zlib.error):
        return None


def _report(row: Mapping[str, Any], began_ns: int) -> StepReport:
    """When each step came, nobody knows any more: all of them have the time at which the execution began."""
    times = {"started_ns": began_ns, "completed_ns": began_ns}
    return StepReport(**{**row, **times, "affected": tuple(row["affected"])})
