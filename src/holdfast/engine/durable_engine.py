"""The engine on DBOS while it runs: what an item sees, how it is stopped, how it is taken from who is lost.

Invariants
  N1  An item's outcome is [token, value]: nothing is told as done without the token it was done under.
  N2  Leaving is no outcome: `Left` is no Exception, so that neither a function nor DBOS can take it for a failure.
  N3  A run that has nothing to say any more (cancelled, taken away, given up) is told so within seconds, without being
      asked: a look at the database must never hold up whoever watches over an agent.
  N4  How a run ended is kept until it is recorded. Where it could not be (a full disk), the item is begun again and
      told the same end: nothing is done twice, and nobody waits for an end that was lost. What this process claimed
      and never began is begun again too. An item has one run at a time in this process.
  N5  Whoever waits is told when that cannot be mended: `wait` raises Blocked instead of waiting for ever. A database
      that is away is mended by itself: whoever waits then decides for how long (see `patience`).
  N6  A worker that cannot say that it lives is lost when its lease is over, whatever keeps it from saying so. Only a
      database that is away is waited for as long as what was made is kept: meanwhile nobody can take its items either,
      and who was only cut off is told so by the first beat that gets through.
  N7  A landing that runs in this process has one witness, which is this process: the database's word on it, or that it
      is gone from there, changes nothing. Others can write there.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from holdfast.engine.durable import ENGINE_VERSION, ITEM_ID, OPEN, Function, Item, Lease, Left, StepFailed
from holdfast.engine.durable_database import MENDED, in_our_words, patiently
from holdfast.engine.durable_dbos import WAIT, DbosDesk, failure_of, library, plain
from holdfast.engine.durable_pauses import PAUSES
from holdfast.engine.durable_remarks import REMARKS, Remarks
from holdfast.errors import Blocked, DatabaseAway, InvalidInput
from holdfast.model.canonical import Json

if TYPE_CHECKING:
    import sqlalchemy as sa

_WATCH_SECONDS = 1.0
_HEARD_WITHIN = 5.0
_SOON = 0.02
# The queue that every process of DBOS listens to.
_EVERYBODY = "_dbos_internal_queue"
_ANNOUNCED = 1000
# An end is recorded within moments, and what is claimed begins within moments; much later it never will (N4).
_RECORDED_WITHIN = 2.0
_BEGUN_WITHIN = 30.0
# So long a database may refuse us, and so often an item may be begun again in vain: then nobody waits any more (N5).
_MENDED_WITHIN = 60.0
# N6. As long as a worker keeps what it could not send (Q3 of `grounds`).
_AWAY_WITHIN = 3_600.0
_IN_VAIN = 20


class _End(NamedTuple):
    """How a run ended: with a value, or with an error."""

    token: int
    value: Json
    error: Exception | None = None


class DbosEngine(DbosDesk):
    """`durable.Engine`. `own` is a queue to which only this process listens, for what stands in none."""

    def __init__(self, engine: sa.Engine, executor: str, remarks: Remarks, own: str = "") -> None:
        super().__init__(engine)
        self._executor, self.said, self._own = executor, remarks, own
        self._stopping, self._lost, self._over = threading.Event(), threading.Event(), threading.Event()
        self._runs: set[Run] = set()
        # Waits that this process has begun; each is a task of a loop, none a thread.
        self.waits: set[str] = set()
        self._returned: deque[str] = deque(maxlen=REMARKS)
        # By function.
        self._here: dict[str, set[str]] = {}
        # What was begun here at once, by function, until it returned; then what it gave, until it is asked for.
        self._at_once: dict[str, str] = {}
        self._given: dict[str, Item] = {}
        # Ended, and not seen to be recorded yet (N4).
        self._unrecorded: dict[str, _End] = {}
        # Since when they are ours, open, and not run by anybody.
        self._strays: dict[str, float] = {}
        # How often they were begun again.
        self._again: dict[str, int] = {}
        # When the database last answered whoever watches.
        self._heard = time.monotonic()
        # Since when the database refuses, and how.
        self._refused: tuple[float, str] | None = None
        self.on_make_queues: Callable[[], object] = lambda: None
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

    @property
    def heard(self) -> bool:
        """Whether the database answered within the last seconds."""
        return time.monotonic() - self._heard < _HEARD_WITHIN

    @property
    def at_rest(self) -> bool:
        return not self._runs

    def remarks(self) -> tuple[str, ...]:
        return tuple(self.said.kept)

    def outdated(self, prefix: str) -> tuple[Item, ...]:
        return tuple(item for item in self.items(prefix, OPEN) if item.version != ENGINE_VERSION)

    def take_from_the_lost(self, prefix: str) -> tuple[Item, ...]:
        gone = self.leases.give_up_the_silent()
        if not gone:
            return ()
        rows = self._rows(status="PENDING", executor_id=list(gone), workflow_id_prefix=prefix or None)
        held = [row for row in rows if row.workflow_id.startswith(prefix) and row.queue_name]
        # Durable first: from here on whatever the lost one still does is stale (L5).
        self.leases.renew([row.workflow_id for row in held])
        for row in held:
            self._resume(row.workflow_id, row.queue_name or "")
        return self._told(held)

    def _resume(self, id: str, queue: str) -> None:
        patiently(lambda: self._client.resume_workflow(id, queue_name=queue))

    def stop(self, grace_s: float) -> bool:
        self._stopping.set()
        with self._ended_here:
            return self._ended_here.wait_for(lambda: not self._runs, grace_s)

    def start_here(self, id: str, function: str, argument: Json) -> None:
        if not ITEM_ID.fullmatch(id):
            raise InvalidInput(f"not an id for an item: {id[:100]!r}")
        begun = self._begun_here(function)
        if id in begun:
            return
        # Of one that has ended DBOS itself tells the end, and begins nothing.
        begun.add(id)
        self._at_once[id] = function
        with library().SetWorkflowID(id):
            library().DBOS.start_workflow(self.registered[function], plain(argument))

    def start_again_here(self, id: str, function: str, argument: Json) -> None:
        """As `start_here`, for one that the database has lost: unless it runs here, it is begun once more."""
        with self._ended_here:
            if any(run.id == id for run in self._runs) or id in self._given:
                return
        self._begun_here(function).discard(id)
        self.start_here(id, function, argument)

    def make_queues(self) -> None:
        self.on_make_queues()

    def rest(self, seconds: float) -> bool:
        """Wait so long for what was begun here at once; whether none of it is under way."""
        with self._ended_here:
            return self._ended_here.wait_for(lambda: not any(run.witnessed for run in self._runs), seconds)

    def _begun_here(self, function: str) -> set[str]:
        """What this process has begun, and what it goes on with since it was launched: neither is begun again.

        DBOS goes on with what was left by putting it in line, so that it may be queued or running when we look.
        """
        if function not in self._here:
            rows = self._rows(name=function, status=["PENDING", "ENQUEUED"])
            self._here[function] = {row.workflow_id for row in rows}
        return self._here[function]

    # ── inside ──

    def carry_out(self, id: str, function: Function, argument: Json) -> Json:
        """One run of an item; what has ended, and was begun again to be recorded, is not done again (N4)."""
        PAUSES.end_with(self._over)
        # What was begun here is never taken away, so that nobody has to be asked for its token.
        here = id in self._at_once
        run = Run(self, id, 1 if here else self.leases.tokens([id]).get(id, 1), witnessed=here)
        with self._ended_here:
            if any(other.id == id for other in self._runs):
                raise Left
            self._runs.add(run)
            end = self._unrecorded.get(id)
        try:
            if end is None or end.token != run.token:
                end = self._done(run, function, argument)
                self._returned.append(id)
                self._give(id, end)
            if end.error is not None:
                raise end.error
            return [end.token, end.value]
        finally:
            self.announce(id, run)

    def _done(self, run: Run, function: Function, argument: Json) -> _End:
        try:
            run.go_on()
            end = _End(run.token, plain(function(run, argument)))
        except library().error.DBOSException:
            raise  # it was cancelled or taken away, which is no end of ours
        except Exception as error:  # noqa: BLE001 (whatever the function raises is its end)
            end = _End(run.token, None, error)
        if run.over:
            raise Left
        return end

    def _give(self, id: str, end: _End) -> None:
        """Whoever began it here waits for it, and need not wait for the database too."""
        with self._ended_here:
            self._unrecorded[id] = end
            function = self._at_once.pop(id, "")
            if function and not self.stopping:
                failure = failure_of(end.error) if end.error else None
                self._given[id] = Item(
                    id, function, "failed" if failure else "done", worker=self.executor, token=end.token, begun=1,
                    value=end.value, failure=failure,
                )  # fmt: skip

    def _look(self, wanted: set[str], *, everywhere: bool) -> tuple[Item, ...]:
        with self._ended_here:
            given = tuple(self._given.pop(id) for id in wanted & self._given.keys())
            self._announced.difference_update(item.id for item in given)
            wanted = wanted - {run.id for run in self._runs if run.witnessed}  # N7
        if given or not wanted:
            return given
        self._require_mended()
        found = super()._look(wanted, everywhere=everywhere)
        with self._ended_here:
            for item in found:
                self._unrecorded.pop(item.id, None)
        return found

    def settle(self, seconds: float) -> None:
        """What has returned a moment ago is recorded a moment later; without that it would be done again."""
        deadline, named = time.monotonic() + seconds, set() if self.lost else set(self._returned)
        with self._ended_here:
            self._given.clear()
        self._refused, self._again = None, {}
        while named and time.monotonic() < deadline:
            named -= {item.id for item in self.wait(named, deadline - time.monotonic())}

    def leave_the_rest(self) -> None:
        """What still waits to record an end does so no longer: it is recorded by now, or the database is away."""
        self._over.set()

    def settle_waits(self, queues: Collection[str], seconds: float) -> None:
        """A wait that was claimed and has not begun yet would be dropped by the loop that ends, with a complaint."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not self.lost:
            rows = self._rows(
                name=WAIT, status="PENDING", executor_id=self.executor, queue_name=list(queues), load_output=False
            )
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

    def stay_at_home(self) -> None:
        """Before the launch, which puts what we had begun back in line: in our own queue, where it stands in none."""
        import sqlalchemy as sa

        schema = "dbos" if self._pool.dialect.name == "postgresql" else None
        if not self._own or not sa.inspect(self._pool).has_table("workflow_status", schema):
            return
        statement = f"""UPDATE {"dbos." if schema else ""}workflow_status SET queue_name = :own
                        WHERE executor_id = :executor AND status IN ('PENDING', 'ENQUEUED')
                          AND (queue_name IS NULL OR queue_name = :everybody)"""
        with self._pool.begin() as connection:
            values = {"own": self._own, "executor": self.executor, "everybody": _EVERYBODY}
            connection.execute(sa.text(statement), values)

    def beating(self, name: str, life: str, host: str, lease: Lease) -> Callable[[], None]:
        """Say that we live, until the function returned is called or we are lost (N6)."""
        heard = time.monotonic()

        def beat() -> bool:
            nonlocal heard
            try:
                alive = self.leases.beat(name, life)
                if not alive and not self.leases.knows(name):
                    self.leases.enlist(name, life, host, lease)
                    alive = True
                heard = time.monotonic()
            except DatabaseAway as error:
                self.said.add(f"no beat: {error}")
                alive = time.monotonic() - heard < _AWAY_WITHIN
            except Exception as error:  # noqa: BLE001 (a thread that died of it would leave us working for nobody)
                self.said.add(f"no beat: {error}")
                alive = time.monotonic() - heard < lease.seconds
            if not alive:
                self._lost.set()
            return not self.lost

        return _regularly("heartbeat", lease.beat, beat)

    def watching(self) -> Callable[[], None]:
        """Tell runs that nobody waits for what they do (N3), and mend what was left (N4), until the function returned
        is called."""

        def watch() -> bool:
            try:
                with in_our_words():
                    self._watch()
                self._refused, self._heard = None, time.monotonic()
            except DatabaseAway as error:  # that may be well again (N5)
                self.said.add(error.message)
            except Exception as error:  # noqa: BLE001 (nobody else watches)
                since, before = self._refused or (time.monotonic(), "")
                self._refused = since, str(error)
                if str(error) != before:
                    self.said.add(str(error))
            return True

        return _regularly("watch", _WATCH_SECONDS, watch)

    def _watch(self) -> None:
        with self._ended_here:
            runs = {run.id: run for run in self._runs}
            ended = set(self._unrecorded)
        rows = self._client.list_workflows(
            status=["PENDING", "ENQUEUED"], executor_id=self.executor, load_input=False, load_output=False
        )
        # What was begun again stands in line under our name.
        ours = {row.workflow_id: row.queue_name or self._own for row in rows if row.status == "PENDING"}
        for id in runs.keys() - ours.keys():
            if not runs[id].witnessed:
                runs[id].over_there.set()
        waits = {row.workflow_id for row in rows if row.name == WAIT}
        with self._ended_here:
            for id in ended - {row.workflow_id for row in rows}:
                self._unrecorded.pop(id, None)
        self._begin_again({id: queue for id, queue in ours.items() if id not in waits})

    def _begin_again(self, ours: Mapping[str, str]) -> None:
        """Put back in line what is ours and is run by nobody (N4); by id, with its queue."""
        now = time.monotonic()
        with self._ended_here:
            running = {run.id for run in self._runs}
            self._strays = {id: self._strays.get(id, now) for id in ours.keys() - running}
            self._again = {id: count for id, count in self._again.items() if id in ours or id in self._unrecorded}
            late = [id for id, since in self._strays.items() if now - since >= self._patience(id)]
        for id in late:
            if ours[id] and not self.stopping:
                self._resume(id, ours[id])
                self._again[id] = self._again.get(id, 0) + 1
                del self._strays[id]

    def _patience(self, id: str) -> float:
        return _RECORDED_WITHIN if id in self._unrecorded else _BEGUN_WITHIN

    def _require_mended(self) -> None:
        """N5."""
        if self._refused is not None and time.monotonic() - self._refused[0] >= _MENDED_WITHIN:
            raise Blocked(self._refused[1], hint=MENDED)
        if max(self._again.copy().values(), default=0) > _IN_VAIN:
            raise Blocked(self.said.unrecorded, hint=MENDED)


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

    def __init__(self, engine: DbosEngine, id: str, token: int, *, witnessed: bool = False) -> None:
        self.id, self.token, self.witnessed = id, token, witnessed
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
