"""Decisions made again from what they were made from; the ledger vouches for the inputs by digest."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.engine.evidence import GATE_VERSION, replayed
from holdfast.errors import HoldfastError, Tampering
from holdfast.store.blobs import Blobs
from holdfast.store.ledger import Ledger
from holdfast.workspace.site import Site


class Replay(NamedTuple):
    """`verdict`: same, inputs gone, or what is different."""

    id: str
    recorded: str
    verdict: str


def replay_all(site: Site, ledger: Ledger) -> tuple[Replay, ...]:
    """Every decision, oldest first."""
    found = []
    for entry in ledger.entries():
        if entry.kind == "decision":
            body = entry.body
            said = _again(site, str(body["inputs"]), str(body["digest"]), body["gate_version"])
            found.append(Replay(str(body["id"]), str(body["verdict"]), said))
    return tuple(found)


def _again(site: Site, inputs: str, digest: str, version: object) -> str:
    if version != GATE_VERSION:
        return f"made by gate version {version}; this is version {GATE_VERSION}"
    try:
        decision = replayed(Blobs(site.state).get(inputs))
    except FileNotFoundError:
        return "inputs gone"
    except (Tampering, HoldfastError) as error:
        return error.message
    return "same" if decision.digest == digest else f"now {decision.verdict}, risk {decision.risk_effective}"
