"""A broken ledger, and how a person goes on from there.

    require_whole ─▶ Tampering: everything but recovering and looking waits
    audit accept ──▶ a new ledger of what can still be proven, with a record of the break in the place of the gap;
                     the old file is kept beside it, and the anchor is made anew

    before the gap │ break │ landed changes that only `kept/` knows │ after the gap

Invariants
  B1  A record is taken over only if the chain proves it, from the seed or back from the anchor.
  B2  A landed change whose record is lost is recorded again from its folder in `kept/`, named in the break: so that it
      can be undone. Nothing but the person who accepted the break vouches for it.
  B3  What was accepted is exactly what was shown: the break's id covers the file, the anchor and the folders.
  B4  No approval from before the break counts any more: the record that used it up may be among the lost ones.
  B5  Killed at any point, the ledger is still broken and can be accepted again, or it is done. The tables know nothing
      before the file is exchanged, and are filled from the new one.
"""

from __future__ import annotations

import time
from base64 import b32encode
from hashlib import sha256
from typing import NamedTuple

from holdfast.engine.pipeline import Pipeline
from holdfast.errors import Blocked, HoldfastError, Tampering
from holdfast.model.canonical import Json, canonical
from holdfast.settlement.record import BREAK, KIND, body_from_log, catch_up
from holdfast.store.chain import Entry, Record
from holdfast.workspace.keeping import Kept, all_kept

_ID_LETTERS = 8


class Break(NamedTuple):
    """What is wrong with the ledger, and what is left of it. `rebuilt`: changes that only `kept/` knows."""

    id: str
    message: str
    before: tuple[Entry, ...]
    after: tuple[Entry, ...]
    rebuilt: tuple[Kept, ...]


def find_break(pipeline: Pipeline) -> Break | None:
    """The break, None where the ledger is whole."""
    with pipeline.locked_over_broken_ledger():
        return _found(pipeline)


def accept_break(pipeline: Pipeline, id: str, by: str) -> Break:
    """Go on from what is proven; Blocked where the break is another one than the one accepted (B3)."""
    with pipeline.locked_over_broken_ledger():
        found = _found(pipeline)
        if found is None or found.id != id:
            raise Blocked(
                f"{id} is not what is wrong with the ledger now", hint="Look at it again: holdfast audit accept"
            )
        records = _records(found, by)
        pipeline.records.start_over({_id_of(record) for record in records})
        pipeline.ledger.start_anew(records, f"ledger.{found.id}.jsonl")
        catch_up(pipeline.site, pipeline.ledger, pipeline.records)
    pipeline.recover()  # what could not be recorded before
    return found


def _found(pipeline: Pipeline) -> Break | None:
    try:
        pipeline.ledger.require_whole()
    except Tampering as error:
        before, after = pipeline.ledger.proven()
        known = {_id_of(Record(entry.kind, entry.body, entry.at_ns)) for entry in (*before, *after)}
        rebuilt = tuple(kept for kept in _kept(pipeline) if kept.txn not in known)
        return Break(_break_id(error.message, before, after, rebuilt), error.message, before, after, rebuilt)
    return None


def _kept(pipeline: Pipeline) -> list[Kept]:
    """What is kept of landed changes; without what cannot be read, which nobody can undo."""
    try:
        return all_kept(pipeline.site)
    except HoldfastError:
        return []


def _break_id(message: str, before: tuple[Entry, ...], after: tuple[Entry, ...], rebuilt: tuple[Kept, ...]) -> str:
    macs: list[Json] = [entry.mac for entry in (*before[-1:], *after)]
    roots: list[Json] = [f"{kept.txn} {kept.log.root}" for kept in rebuilt]
    digest = sha256(canonical([message, len(before), macs, roots])).digest()
    return "b-" + b32encode(digest).decode("ascii").lower()[:_ID_LETTERS]


def _records(found: Break, by: str) -> list[Record]:
    now = time.time_ns()
    body: dict[str, Json] = {
        "id": found.id,
        "message": found.message,
        "proven_before": len(found.before),
        "proven_after": len(found.after),
        "rebuilt": [kept.txn for kept in found.rebuilt],
        "by": by,
    }
    rebuilt = [Record(KIND, body_from_log(kept.txn, kept.log), min(kept.settled_ns, now)) for kept in found.rebuilt]
    return [*map(_again, found.before), Record(BREAK, body, now), *rebuilt, *map(_again, found.after)]


def _again(entry: Entry) -> Record:
    return Record(entry.kind, entry.body, entry.at_ns)


def _id_of(record: Record) -> str:
    """The id that the tables know it by."""
    return str(record.body.get("execution_id" if record.kind == KIND else "id", ""))
