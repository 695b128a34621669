"""What runs still need of what is kept: orders, proposals with their bytes, simulations that people are asked about.

Invariants
  P1  Whatever is not settled in a run that is not over can go on after weeks: nothing of it is forgotten meanwhile.
  P2  What is settled needs nothing: what landed is kept as every execution is, and what did not is not taken up again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.engine.orders import plan_of
from holdfast.engine.proposal import read_proposal
from holdfast.engine.roadmap_orders import kept_order
from holdfast.errors import HoldfastError
from holdfast.model.task import TaskRecord
from holdfast.settlement.runs import task_records
from holdfast.store.database import Records
from holdfast.store.large_blobs import LargeBlobs
from holdfast.store.runs import Runs
from holdfast.workspace.site import Site


class Needed(NamedTuple):
    """Blobs by digest, simulations by id."""

    blobs: frozenset[str]
    simulations: frozenset[str]


def needed_by_runs(site: Site, records: Records) -> Needed:
    stock, blobs, simulations = LargeBlobs(site.state), set[str](), set[str]()
    for record in _open_ones(records):
        blobs |= {digest for digest in (record.order, record.proposal) if digest}
        blobs |= _inside(stock, record)
        simulations |= {record.simulation} if record.simulation else set()
    return Needed(frozenset(blobs), frozenset(simulations))


def _open_ones(records: Records) -> Iterator[TaskRecord]:
    runs = Runs(records)
    for row in runs.runs():
        if row.state != "FINISHED":
            yield from (record for record in task_records(runs, row.id).values() if not record.settled)


def _inside(stock: LargeBlobs, record: TaskRecord) -> set[str]:
    """What its proposal names. One that cannot be read lands nothing, and needs no more than its own document."""
    if not record.proposal or not record.order:
        return set()
    try:
        proposal = read_proposal(stock, record.proposal, plan_of(kept_order(stock, record)))
    except HoldfastError:
        return set()
    return {*proposal.contents, *proposal.papers}
