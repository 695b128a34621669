"""The chain of custody around one id: every ledger entry that it stands on, or that stands on it.

From a run, a task or an intent: its own entries, and the chain of everything that came of it. The lineage of an
execution is which executions it came from, which came from it, and which others belong to the same piece of work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.model.canonical import Json
from holdfast.model.execution import intent_id
from holdfast.settlement.log_rows import attempt_of
from holdfast.store.chain import Entry
from holdfast.store.ledger import Ledger

_KINDS = ("delegation", "fix", "simulation", "decision", "approval", "execution", "refusal")

# An agent worked before there was a simulation; what it did is told by its plan.
_OF_PLANS = ("delegation", "fix")
_NO_PAPER = (*_OF_PLANS, "refusal")


class Link(NamedTuple):
    kind: str
    id: str
    at_ns: int
    seq: int
    body: Mapping[str, Json]


class Lineage(NamedTuple):
    """`parent` is the execution that this one takes back or brings back; `run` the run that landed it, if one did.

    `correlation` is what everything of one piece of work has in common: the run that landed it first, or else its plan.
    Siblings have it too, and are neither ancestors nor descendants.
    """

    correlation: str
    parent: str
    trigger: str
    run: str
    ancestors: tuple[str, ...]
    descendants: tuple[str, ...]
    siblings: tuple[str, ...]


class Trace(NamedTuple):
    """Everything about one id; `lineage` of an execution only."""

    id: str
    links: tuple[Link, ...]
    lineage: Lineage | None


def lineage(ledger: Ledger, id: str) -> Lineage | None:
    """Of an execution; None for any other id."""
    made: dict[str, Mapping[str, Json]] = {}
    runs: dict[str, str] = {}
    for entry in ledger.provable():
        if entry.kind == "execution":
            made[_id_of(entry)] = entry.body
        elif entry.kind == "task" and entry.body.get("execution"):
            runs.setdefault(str(entry.body["execution"]), str(entry.body["run"]))
    if id not in made:
        return None
    parents = {other: parent_of(body) for other, body in made.items()}
    lines = {other: _chain(other, parents) for other in made}
    ancestors = lines[id]
    descendants = tuple(other for other in made if id in lines[other])

    def piece(other: str) -> str:
        """What everything of one piece of work has in common; what takes a landing back belongs to it too."""
        first = (other, *lines[other])[-1]
        return runs.get(first) or (str(made[first]["plan_id"]) if first in made else first)

    kin = {id, *ancestors, *descendants}
    return Lineage(
        piece(id),
        parents[id],
        trigger_kind(made[id], runs.get(id, "")),
        runs.get(id, ""),
        ancestors,
        descendants,
        tuple(other for other in made if other not in kin and piece(other) == piece(id)),
    )


def trigger_kind(body: Mapping[str, Json], run: str) -> str:
    """What an execution was made by: run, undo, redo, or a change that somebody asked for."""
    if run:
        return "run"
    return "redo" if body.get("revives") else "undo" if body.get("undoes") else "change"


def parent_of(body: Mapping[str, Json]) -> str:
    """The execution that this one takes back first; empty where it takes none back."""
    undone = body.get("undoes")
    return str(undone[0]) if isinstance(undone, list) and undone else ""


def _chain(id: str, parents: Mapping[str, str]) -> tuple[str, ...]:
    """Nearest first."""
    found: list[str] = []
    while (id := parents.get(id, "")) and id not in found:
        found.append(id)
    return tuple(found)


def ids_without_paper(ledger: Ledger) -> frozenset[str]:
    """The ids of all runs, tasks, intents, delegations, fixes and refusals that the ledger knows."""
    return frozenset(
        _intent_of(entry) if entry.kind == "execution" else str(entry.body["task" if entry.kind == "task" else "id"])
        for entry in ledger.provable()
        if entry.kind in ("run", "task", "execution", *_NO_PAPER)
    )


def entry_of(ledger: Ledger, id: str) -> Entry | None:
    """The delegation, fix or refusal of this id, which have no table of their own."""
    return next((one for one in ledger.provable() if one.kind in _NO_PAPER and one.body.get("id") == id), None)


def delegations_about(ledger: Ledger, id: str) -> tuple[Entry, ...]:
    """The work of agents that `trace` finds for this id, oldest first; of a task or a run also what did not land."""
    found = {link.seq for link in trace(ledger, id) if link.kind == "delegation"}
    return tuple(entry for entry in ledger.provable() if entry.seq in found)


def _intent_of(entry: Entry) -> str:
    return intent_id(str(entry.body["intent"]))


def trace(ledger: Ledger, id: str) -> tuple[Link, ...]:
    """Oldest first. From a plan all that came of it; from anything else the road through its simulation."""
    entries = ledger.provable()
    of_runs = (entry for entry in entries if entry.kind in ("run", "task"))
    own = [entry for entry in of_runs if id in map(entry.body.get, ("run", "task", "id"))]
    landed = {str(entry.body["execution"]) for entry in own if entry.body.get("execution")}
    if id.startswith("i-"):
        landed |= {_id_of(entry) for entry in entries if entry.kind == "execution" and _intent_of(entry) == id}
    own += [entry for entry in entries if entry.kind == "delegation" and id in attempt_of(entry.body)]
    links = {entry.seq: _link(entry) for entry in own}
    of_changes = [entry for entry in entries if entry.kind in _KINDS]
    plans = {str(entry.body["subject"]) for entry in of_changes if entry.kind in _OF_PLANS and _id_of(entry) == id}
    for one in (id, *sorted(landed | plans)):
        links.update((link.seq, link) for link in _custody(of_changes, one))
    return tuple(links[seq] for seq in sorted(links))


def _link(entry: Entry) -> Link:
    id = str(entry.body["task"]) if entry.kind == "task" else _id_of(entry)
    return Link(entry.kind, id, entry.at_ns, entry.seq, entry.body)


def _custody(entries: Sequence[Entry], id: str) -> tuple[Link, ...]:
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
    return tuple(map(_link, about))


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
