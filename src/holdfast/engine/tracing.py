"""The chain of custody around one id: every ledger entry that it stands on, or that stands on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.model.canonical import Json
from holdfast.store.chain import Entry
from holdfast.store.ledger import Ledger

_KINDS = ("delegation", "fix", "simulation", "decision", "approval", "execution", "refusal")

# An agent worked before there was a simulation; what it did is told by its plan.
_OF_PLANS = ("delegation", "fix")


class Link(NamedTuple):
    kind: str
    id: str
    at_ns: int
    seq: int
    body: Mapping[str, Json]


def trace(ledger: Ledger, id: str) -> tuple[Link, ...]:
    """Oldest first. From a plan all that came of it; from anything else the road through its simulation."""
    entries = [entry for entry in ledger.entries() if entry.kind in _KINDS]
    simulations = {id}
    for entry in entries:
        if _id_of(entry) == id:
            simulations |= _stands_on(entry)
        if entry.kind == "simulation" and entry.body["subject"] == id:
            simulations.add(_id_of(entry))
    plans = {
        str(entry.body["subject"]) for entry in entries if entry.kind == "simulation" and _id_of(entry) in simulations
    }
    about = [
        entry
        for entry in entries
        if _id_of(entry) == id or _names(entry) & (simulations | (plans if entry.kind in _OF_PLANS else set()))
    ]
    return tuple(Link(entry.kind, _id_of(entry), entry.at_ns, entry.seq, entry.body) for entry in about)


def _id_of(entry: Entry) -> str:
    return str(entry.body.get("id") or entry.body.get("execution_id", ""))


def _stands_on(entry: Entry) -> set[str]:
    """The simulation that an entry is about."""
    named = {str(entry.body.get("simulation", ""))}
    if entry.kind in ("decision", "approval"):
        named.add(str(entry.body["subject"]))
    return named - {""}


def _names(entry: Entry) -> set[str]:
    body = entry.body
    own = {_id_of(entry)} if entry.kind == "simulation" else set()
    return own | {str(body.get(name, "")) for name in ("subject", "simulation", "plan_id")} - {""}
