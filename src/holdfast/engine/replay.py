"""Decisions made again from what they were made from; the ledger vouches for the inputs by digest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.engine.evidence import GATE_VERSION, replayed
from holdfast.errors import HoldfastError, Tampering
from holdfast.model.canonical import Json
from holdfast.settlement.custody import Judged, decision_body
from holdfast.store.blobs import Blobs
from holdfast.store.ledger import Ledger
from holdfast.workspace.site import Site

# Gates that say the same about the same inputs: version 3 adds a rule about evidence that version 2 did not have.
_COMPARABLE = (2, GATE_VERSION)
# The built-in policy of another version has another digest; what was decided is compared, not under which name.
_NAMES_OF_THE_POLICY = frozenset({"id", "digest", "policy", "gate_version"})


class Replay(NamedTuple):
    """`verdict`: same, inputs gone, what is different, or why nothing was `decided` again."""

    id: str
    recorded: str
    verdict: str
    decided: bool


def replay_all(site: Site, ledger: Ledger) -> tuple[Replay, ...]:
    """Every decision, oldest first."""
    found = []
    for entry in ledger.entries():
        if entry.kind == "decision":
            body = entry.body
            found.append(Replay(str(body["id"]), str(body["verdict"]), *_again(site, body)))
    return tuple(found)


def _again(site: Site, body: Mapping[str, Json]) -> tuple[str, bool]:
    """The verdict, and whether it is one of the gate."""
    version = body["gate_version"]
    if version not in _COMPARABLE:
        return f"made by gate version {version}; this is version {GATE_VERSION}", False
    inputs = str(body["inputs"])
    try:
        decision = replayed(Blobs(site.state).get(inputs))
    except FileNotFoundError:
        return "inputs gone", False
    except (Tampering, HoldfastError) as error:
        return error.message, False
    again = decision_body(Judged(decision, inputs))
    passed_over = _NAMES_OF_THE_POLICY if version != GATE_VERSION else frozenset[str]()
    same = all(again[key] == body.get(key) for key in again.keys() - passed_over)
    return "same" if same else f"now {decision.verdict}, risk {decision.risk_effective}", True
