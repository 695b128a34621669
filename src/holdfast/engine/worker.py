"""A worker: takes orders out of the shared database, works on them over mirrors of its own, and lands nothing.

It needs no workspace: the base comes from a clone and the shared stock, agents and keys from its own configuration.
A worker that was silent for longer than its lease is given up; whatever it still does is refused (see `durable`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from holdfast.agents.protocol import Agent
from holdfast.engine.driver import WORK
from holdfast.engine.durable import Database, Inside, Lease
from holdfast.engine.expedition import document_of, work_queue, worked
from holdfast.engine.grounds import FOLDER, DistantGrounds, Opening
from holdfast.engine.orders import order_from, packed
from holdfast.engine.work import Workbench
from holdfast.model.canonical import Json
from holdfast.store.shared_stock import SharedStock

_LOOK_S = 0.5


class Station(NamedTuple):
    """Where a worker works. `folder` is its own, `repository` a clone that has the first commit of the run."""

    folder: str
    repository: str
    workspace: str
    database: str
    name: str
    lease: Lease = Lease()


def serve(
    station: Station,
    opening: Opening,
    stop: Callable[[], bool],
    agents: Mapping[str, Agent],
    tell: Callable[[str], None],
) -> bool:
    """Until somebody says stop, or this worker is given up: False then."""
    from holdfast.engine.durable_database import connect, in_our_words
    from holdfast.engine.durable_dbos import require_reachable
    from holdfast.engine.durable_running import worker

    database = Database(station.folder, station.database)
    require_reachable(database)
    stock = SharedStock(connect(database))
    with in_our_words():
        stock.create()
    mirrors = os.path.join(station.folder, FOLDER)
    bench = Workbench(DistantGrounds(mirrors, station.repository, stock, opening), agents, lambda order: _unwatched)

    def work(inside: Inside, argument: Json) -> Json:
        order = order_from(document_of(argument))
        tell(f"works on {order.task}, attempt {order.attempt}")
        answer = worked(bench, inside, argument)
        tell(f"{answer.kind} {order.task}")
        return packed(answer)

    with worker(database, station.name, {WORK: work}, [work_queue(station.workspace)], station.lease) as engine:
        tell("listens")
        while not stop():
            if engine.lost:
                return False
            time.sleep(_LOOK_S)
    return True


def _unwatched(happening: object) -> None:
    """What an agent does over here is in its transcript."""
