"""The engine on DBOS while it runs: what an item sees, how it is stopped, how it is taken from who is lost.

Invariants
  N1  An item's outcome is [token, value]: nothing is told as done without the token it was done under.
  N2  Leaving is no outcome: `Left` is no Exception, so that neither a function nor DBOS can take it for a failure.
  N3  A run that has nothing to say any more (cancelled, taken away, given up) is told so within seconds, without being
      asked: a look at the database must never hold up whoever watches over an agent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from holdfast.engine.durable import ENGINE_VERSION, ITEM_ID, OPEN, Function, Item, Lease, Left, StepFailed
from holdfast.engine.durable_dbos import WAIT, DbosDesk, failure_of, library, plain
from holdfast.errors import InvalidInput
from holdfast.model.canonical import Json

if TYPE_CHECKING:
    import sqlalchemy as sa

_WATCH_SECONDS = 1.0
_REMARKS = 100
_SOON = 0.02
_ANNOUNCED = 1000


class Remarks(logging.Handler):
    """What DBOS says through its logger, kept instead of printed over whatever is on the screen."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.kept: deque[str] = deque(maxlen=_REMARKS)

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        # A failed item says so itself.
        if not said.startswith("Exception encountered in"):
            self.kept.append(said[:500])


class DbosEngine(DbosDesk):
    """`durable.Engine`."""

    def __init__(self, engine: sa.Engine, executor: str, remarks: Remarks) -> None:
        super().__init__(engine)
        self._executor, self.said = executor, remarks
        self._stopping, self._lost = threading.Event(), threading.Event()
        self._runs: set[Run] = set()
        # Waits that this process has begun; each is a task of a loop, none a thread.
        self.waits: set[str] = set()
        self._returned: deque[str] = deque(maxlen=_REMARKS)
        self._here: set[str] | None = None
        # By name, as DBOS wants them to be started.
        self.registered: dict[str, Callable[[Json], Json]] = {}

    @property
    def executor(self) -> str:
        return self._executor

    @property
    def lost(self) -> bool:
        return self._lost.is_set()

    @property
    def stopping(self) -> bool:
        return self._stopping.is_set() or self.lost

    def remarks(self) -> tuple[str, ...]:
        return tuple(self.said.kept)

    def outdated(self, prefix: str) -> tuple[Item, ...]:
        return tuple(item for item in self.items(prefix, OPEN) if item.version != ENGINE_VERSION)

    def take_from_the_lost(self, prefix: str, beat_s: float = Lease().beat) -> tuple[Item, ...]:
        gone = self.leases.give_up_the_silent(beat_s)
        if not gone:
            return ()
        rows = self._client.list_workflows(
            status="PENDING", executor_id=list(gone), workflow_id_prefix=prefix or None, load_input=False
        )
        held = [row for row in rows if row.workflow_id.startswith(prefix) and row.queue_name]
        # Durable first: from here on whatever the lost one still does is stale (L5).
        self.leases.renew([row.workflow_id for row in held])
        for row in held:
            self._client.resume_workflow(row.workflow_id, queue_name=row.queue_name)
        return self._told(held)

    def stop(self, grace_s: float) -> bool:
        self._stopping.set()
        with self._ended_here:
            return self._ended_here.wait_for(lambda: not self._runs, grace_s)

    def start_here(self, id: str, function: str, argument: Json) -> None:
        if not ITEM_ID.fullmatch(id):
            raise InvalidInput(f"not an id for an item: {id[:100]!r}")
        if id in self._begun_here():
            return
        # Of one that has ended DBOS itself tells the end, and begins nothing.
        self._begun_here().add(id)
        with library().SetWorkflowID(id):
            library().DBOS.start_workflow(self.registered[function], plain(argument))

    def _begun_here(self) -> set[str]:
        """What this process has begun, and what it goes on with since it was launched: neither is begun again."""
        if self._here is None:
            rows = self._client.list_workflows(status="PENDING", executor_id=self.executor, load_input=False)
            self._here = {row.workflow_id for row in rows}
        return self._here

    # ── inside ──

    def carry_out(self, id: str, function: Function, argument: Json) -> Json:
        """One run of an item."""
        run = Run(self, id, self.leases.tokens([id]).get(id, 1))
        with self._ended_here:
            self._runs.add(run)
        try:
            run.go_on()
            value = plain(function(run, argument))
            if run.over:
                raise Left
            self._returned.append(id)
            return [run.token, value]
        finally:
            self.announce(id, run)

    def settle(self, seconds: float) -> None:
        """What has returned a moment ago is recorded a moment later; without that it would be done again."""
        deadline, named = time.monotonic() + seconds, set(self._returned)
        while named and time.monotonic() < deadline:
            named -= {item.id for item in self.wait(named, deadline - time.monotonic())}

    def settle_waits(self, queues: Collection[str], seconds: float) -> None:
        """A wait that was claimed and has not begun yet would be dropped by the loop that ends, with a complaint."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            rows = self._client.list_workflows(
                name=WAIT, status="PENDING", executor_id=self.executor, queue_name=list(queues),
                load_input=False, load_output=False,
            )  # fmt: skip
            if {row.workflow_id for row in rows} <= self.waits:
                return
            time.sleep(_SOON)

    def announce(self, id: str, run: Run | None = None) -> None:
        """It is about to end: whoever waits looks again."""
        with self._ended_here:
            if len(self._announced) >= _ANNOUNCED:
                self._announced.clear()
            self._announced.add(id)
            if run is not None:
                self._runs.discard(run)
            self._endings += 1
            self._ended_here.notify_all()

    # ── watching ──

    def beating(self, name: str, life: str, beat_s: float) -> Callable[[], None]:
        """Say that we live, until the function returned is called or we were given up."""

        def beat() -> bool:
            if not self.leases.beat(name, life):
                self._lost.set()
            return not self.lost

        return _regularly("heartbeat", beat_s, beat)

    def watching(self) -> Callable[[], None]:
        """Tell runs that nobody waits for what they do (N3), until the function returned is called."""

        def watch() -> bool:
            with self._ended_here:
                runs = {run.id: run for run in self._runs}
            if runs:
                rows = self._client.list_workflows(workflow_ids=list(runs), load_input=False, load_output=False)
                ours = {row.workflow_id for row in rows if (row.status, row.executor_id) == ("PENDING", self.executor)}
                for id in runs.keys() - ours:
                    runs[id].over_there.set()
            return True

        return _regularly("watch", _WATCH_SECONDS, watch)


def _regularly(name: str, seconds: float, work: Callable[[], bool]) -> Callable[[], None]:
    """Call it from a thread of its own until it says False; the function returned ends that."""
    over = threading.Event()

    def go() -> None:
        while not over.wait(seconds) and work():
            pass

    thread = threading.Thread(target=go, name=name, daemon=True)
    thread.start()

    def end() -> None:
        over.set()
        thread.join(seconds + 1)

    return end


class Run:
    """`durable.Inside`: one run of an item in this process."""

    def __init__(self, engine: DbosEngine, id: str, token: int) -> None:
        self.id, self.token = id, token
        self.over_there = threading.Event()
        self._engine = engine

    @property
    def over(self) -> bool:
        """What this run does counts no more."""
        return self._engine.lost or self.over_there.is_set()

    @property
    def stopping(self) -> bool:
        return self._engine.stopping or self.over

    def go_on(self) -> None:
        if self.stopping:
            raise Left

    def step(self, name: str, function: Callable[..., Json], *arguments: object) -> Json:
        self.go_on()

        def once() -> Json:
            return plain(function(*arguments))

        try:
            found: Json = library().DBOS.run_step({"name": name}, once)
        except library().error.DBOSException:
            raise
        except Exception as error:
            raise StepFailed(failure_of(error)) from error
        return found
