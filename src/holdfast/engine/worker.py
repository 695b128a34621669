"""A worker: takes orders out of the shared database, works on them over mirrors of its own, and lands nothing.

    fit? ──yes──▶ listens ──order──▶ works ──▶ answer
      ▲              │                 └──a fault of this machine──▶ gives the order back, with the reason
      └──── set aside, longer each time ◀──────────┘

It needs no workspace: the base comes from a clone and the shared stock, agents and keys from its own configuration.
A worker that was silent for longer than its lease is given up; whatever it still does is refused (see `durable`).

Invariants
  W1  It takes nothing before everything was looked at that it needs and has itself: room, a file system that keeps its
      promises, a sandbox, a clone, an agent.
  W2  What this machine lacks is never told as a failure of a task: the order goes back as it came, and this worker
      takes no other one before a pause, and before it is fit again (W1).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents.protocol import Agent
from holdfast.agents.readiness import readiness
from holdfast.agents.registry import every_agent
from holdfast.engine.driver import WORK
from holdfast.engine.durable import Database, Inside, Lease
from holdfast.engine.expedition import document_of, work_queue, worked
from holdfast.engine.grounds import FOLDER, DistantGrounds, Opening
from holdfast.engine.host import probe, require_usable
from holdfast.engine.orders import Returned, order_from, packed
from holdfast.engine.room import require_room
from holdfast.engine.work import Unfit, Workbench
from holdfast.errors import (
    Blocked,
    DatabaseAway,
    HoldfastError,
    Locked,
    SandboxUnavailable,
    Tampering,
    UnknownId,
)
from holdfast.gates.secrets import masked
from holdfast.model.canonical import Json
from holdfast.model.path import printable
from holdfast.sandbox import probe as sandbox
from holdfast.store.own_settings import settings_of
from holdfast.store.shared_stock import SharedStock
from holdfast.workspace.borrowed import head_of

if TYPE_CHECKING:
    from holdfast.engine.durable_engine import DbosEngine

_LOOK_S = 0.5
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 5.0, 300.0
_BY_HAND = "manual"


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
    """Until somebody says stop, or this worker is given up: False then. It must be fit to begin (W1)."""
    from holdfast.engine.durable_database import connect, in_our_words, patiently
    from holdfast.engine.durable_dbos import require_reachable

    database = Database(station.folder, station.database)
    require_reachable(database)
    require_fit(station, agents)
    pool = connect(database)
    try:
        stock = SharedStock(pool)
        with in_our_words():
            patiently(stock.create)
        return _Shift(station, database, stock, opening, agents, tell).until(stop)
    finally:
        pool.dispose()


def require_fit(station: Station, agents: Mapping[str, Agent]) -> None:
    """W1; the error says what is missing, and what to do about it."""
    place = _standing(station.folder)
    descriptor = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        require_room(descriptor)
    finally:
        os.close(descriptor)
    require_usable(probe(place))
    missing = [row.line for row in sandbox.probe().guarantees if not row.enforced] if not agents else []
    if missing and not sandbox.probe().sandboxed:
        raise SandboxUnavailable(f"agents cannot be confined here: {missing[0]}")
    if station.repository and not head_of(station.repository):
        raise Blocked(
            f"{printable(station.repository)} has no commit",
            hint="Give --repository a clone of the repository that the run is over.",
        )
    if not agents:
        _require_some_agent(station.folder)


def _standing(folder: str) -> str:
    """The folder, or what stands of the way there: it is made when the worker begins."""
    while not os.path.isdir(folder):
        folder = os.path.dirname(folder)
    return folder


def _require_some_agent(folder: str) -> None:
    settings = settings_of(folder)
    found = [agent for agent in every_agent(settings) if agent.name != _BY_HAND]
    health = {agent.name: readiness(agent, settings).health for agent in found}
    if not any(each.usable for each in health.values()):
        own = [agent.name for agent in settings.agents if agent.name in health]
        why = f" ({own[0]}: {health[own[0]].why_not})" if own else ""
        raise Blocked(
            f"no agent can be given work here{why}",
            hint="Configure the agent that the run asks for on this machine too. See: holdfast agents",
        )


class _Shift:
    """One worker until it ends, set aside as often as its machine is not fit."""

    def __init__(
        self,
        station: Station,
        database: Database,
        stock: SharedStock,
        opening: Opening,
        agents: Mapping[str, Agent],
        tell: Callable[[str], None],
    ) -> None:
        self._station, self._database, self._agents, self._tell = station, database, agents, tell
        mirrors = os.path.join(station.folder, FOLDER)
        self._grounds = DistantGrounds(mirrors, station.repository, stock, opening)
        self._bench = Workbench(self._grounds, agents, lambda order: _unwatched, elsewhere=True)
        self._unfit = threading.Event()
        self._pause_s = _FIRST_PAUSE_S

    def until(self, stop: Callable[[], bool]) -> bool:
        from holdfast.engine.durable_running import worker

        station, queue, begun = self._station, work_queue(self._station.workspace), False
        while not stop():
            try:
                with worker(self._database, station.name, {WORK: self._work}, [queue], station.lease) as engine:
                    begun = True
                    self._tell("listens")
                    if not self._listened(engine, stop):
                        return False
            except (Blocked, DatabaseAway, Locked) as error:
                if stop() or not begun:
                    raise
                self._tell(f"cannot listen: {error}")  # what was closed without the database is still being closed
                self._unfit.set()
            if self._unfit.is_set():
                self._wait_until_fit(stop)
        return True

    def _listened(self, engine: DbosEngine, stop: Callable[[], bool]) -> bool:
        """Until it shall end or is not fit; False where it was given up."""
        away = False
        while not stop() and not self._unfit.is_set():
            if engine.lost:
                return False
            if engine.heard == away:
                away = not away
                self._tell("hears nothing from the database, and waits for it" if away else "hears the database again")
            time.sleep(_LOOK_S)
        return True

    def _work(self, inside: Inside, argument: Json) -> Json:
        try:
            order = order_from(document_of(argument))
        except Tampering as error:
            self._tell(f"gives {inside.id} back: {error.message}")
            self._unfit.set()  # another release wrote it
            return packed(Returned(masked(error.message)))
        self._tell(f"works on {order.task}, attempt {order.attempt}")
        try:
            answer = worked(self._bench, inside, argument)
        except Unfit as unfit:
            self._tell(f"gives {order.task} back: {unfit.message}. {unfit.hint}".rstrip())
            if not isinstance(unfit.error, UnknownId):  # a base that the database lost is sent again, to anybody
                self._unfit.set()
            return packed(Returned(unfit.message))
        self._pause_s = _FIRST_PAUSE_S
        self._tell(f"{answer.kind} {order.task}")
        return packed(answer)

    def _wait_until_fit(self, stop: Callable[[], bool]) -> None:
        """W2."""
        from holdfast.engine.durable_dbos import require_reachable

        while not stop():
            self._tell(f"is set aside for {self._pause_s:g} s")
            end = time.monotonic() + self._pause_s
            self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
            while time.monotonic() < end and not stop():
                time.sleep(_LOOK_S)
            try:
                require_reachable(self._database)
                require_fit(self._station, self._agents)
                self._grounds.require_clone()
            except (HoldfastError, OSError) as error:
                self._tell(f"is not fit: {error}")
                continue
            self._unfit.clear()
            return


def _unwatched(happening: object) -> None:
    """What an agent does over here is in its transcript."""
