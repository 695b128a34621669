"""The durable port on DBOS, as seen from a desk: list, start, signal, cancel, without running anything.

This is the one file that imports dbos, and only when it is needed: that costs half a second. `durable_engine` and
`durable_running` stand on it and run items. Only public calls are used, with three exceptions that make it safer
(`_without_pickle`, `_with_short_pauses`, `DbosEngine.stay_at_home`).

How each pitfall of this engine is met (numbers as in docs/adr/0012-dbos.md)
   1 no failover       leases, tokens and `take_from_the_lost`. The late result of a worker that was given up is refused
                       by DBOS (another owner) and stale by its token.
   2 SQLite            `durable_database`: WAL, FULL, busy timeout, foreign keys, IMMEDIATE, mode 0600.
   3 one executor id   the kernel's lock on a directory of that name for as long as the process runs items; everybody
                       else is a desk, which never launches. Between machines the lease of the name.
   4 first launches    a lock around launching; on PostgreSQL advisory locks, DBOS's own and ours.
   5 version           ENGINE_VERSION, never a hash of the source; `outdated` names what nobody would run.
   6 asyncio.run       nothing here is called from a loop; waits run on the loop that DBOS keeps as long as it lives.
   7 recv holds a slot a wait is an item of its own, on a queue without limit; items cannot wait.
   8 recovery attempts None for every item and every wait.
   9 retries in memory no step has retries; attempts are counted in the task records.
  10 pickles           our serializer knows JSON only, and the unpickling that DBOS would do on its own is taken out.
  11 agents left over  `sandbox` asks the kernel to kill what it started when this process dies (P8 there, and
                       bubblewrap's --die-with-parent); the lock of (3) is free only when the process is gone.
  12 garbage           `forget`.
  13 rate limits, one instance, import    no rate limits; a second engine in one process is refused; the import is lazy,
                       the version pinned.
  14 unwritten ends    kept, and recorded by beginning the item again (N4 of `durable_engine`).
  15 away for ever     the client raises instead of waiting without an end; we wait (`durable_database.patiently`).
  16 ever longer pauses  they are short, and end with the engine (`durable_pauses`).
Nothing of ours is ever put on DBOS's internal queue, to which every process listens: a landing must stay at home. What
was begun without a queue, and is gone on with, would be put there; `DbosEngine.stay_at_home` finds it another one.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING

from holdfast.engine.durable import (
    ENGINE_VERSION,
    ITEM_ID,
    OPEN,
    Database,
    Failure,
    Item,
    State,
    StepFailed,
)
from holdfast.engine.durable_database import connect, exists, in_our_words, patiently, reachable
from holdfast.engine.durable_pauses import PAUSES
from holdfast.engine.durable_remarks import hush
from holdfast.engine.leases import Leases
from holdfast.errors import Blocked, HoldfastError, InvalidInput, UnknownId, Unsupported
from holdfast.model.canonical import Json, canonical, whole_characters

if TYPE_CHECKING:
    import sqlalchemy as sa
    from dbos import EnqueueOptions, Serializer, WorkflowStatus

APPLICATION = "holdfast"
WAIT = "holdfast.wait"
TOPIC = "signal"
_STATES: dict[str, State] = {
    "ENQUEUED": "queued",
    "DELAYED": "queued",
    "PENDING": "running",
    "SUCCESS": "done",
    "ERROR": "failed",
    "CANCELLED": "cancelled",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED": "failed",
}
_MESSAGE_CHARACTERS = 4000
_SOON, _SELDOM = 0.004, 0.5
_CHUNK = 500


def waits_of(home: str) -> str:
    """The queue of a home's own waits. It has no limit."""
    return f"waits:{home}"


@cache
def library() -> ModuleType:
    """The library, or Unsupported with what to install."""
    steered = sorted(name for name in os.environ if name.startswith("DBOS_"))
    if steered:
        # They would choose another executor id, another version, or somebody's cloud.
        raise Blocked(f"the environment steers the engine: {', '.join(steered)}", hint="Unset these variables.")
    try:
        import dbos
    except ImportError as error:
        hint = "Install it with: pip install 'holdfast[run]'"
        raise Unsupported("the durable engine is not installed", hint=hint) from error
    hush()
    _without_pickle()
    _with_short_pauses()
    return dbos


def _without_pickle() -> None:
    """A row that says it is a pickle would be unpickled whatever serializer is set: refuse, instead of running it."""
    import dbos._serialization as inner

    class Refusing(inner.DefaultSerializer):
        def serialize(self, data: object) -> str:
            # Only the failure of such a row is ever written so, that the row comes to an end; it is not read again.
            return serializer().serialize(data)

        def deserialize(cls, serialized_data: str) -> object:
            raise TypeError("pickles are not read here")

    inner.DBOSDefaultSerializer = Refusing()


def _with_short_pauses() -> None:
    """Nothing of it can be configured, and what sleeps there can be woken by nobody."""
    import dbos._sys_db as inner

    inner.time = PAUSES  # type: ignore[assignment, attr-defined]


@cache
def serializer() -> Serializer:
    """JSON in ASCII: what is not UTF-8 survives as surrogate escapes, which a database would refuse as text."""

    class JsonOnly(library().Serializer):  # type: ignore[misc]
        def name(self) -> str:
            return "holdfast_json"

        def serialize(self, data: object) -> str:
            if isinstance(data, BaseException):
                return json.dumps({"failure": failure_of(data)})
            return json.dumps(data, default=_moment, allow_nan=False)

        def deserialize(cls, serialized_data: str) -> object:
            found = json.loads(serialized_data)
            if isinstance(found, dict) and found.keys() == {"failure"}:
                return StepFailed(Failure(*found["failure"]))
            return found

    return JsonOnly()


def _moment(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} is not JSON")


def plain(value: object) -> Json:
    """The value as a replay will see it, or InvalidInput: tuples are lists from the first run on (D4)."""
    try:
        found: Json = json.loads(canonical(value))
    except TypeError as error:
        raise InvalidInput(f"only JSON can be kept: {error}") from error
    return found


def failure_of(error: BaseException) -> Failure:
    if isinstance(error, StepFailed):
        return error.failure
    if isinstance(error, HoldfastError):
        return Failure(error.code, _bounded(error.message), _bounded(error.hint))
    return Failure("internal", _bounded(f"{type(error).__name__}: {error}"))


def _bounded(text: str) -> str:
    return whole_characters(text[:_MESSAGE_CHARACTERS])


class DbosDesk:
    """`durable.Desk`. `url` and file are opened once; every call is one or two queries."""

    def __init__(self, engine: sa.Engine) -> None:
        self._pool = engine
        self.leases = Leases(engine)
        self._client = library().DBOSClient(
            system_database_engine=engine,
            serializer=serializer(),
            application_name=APPLICATION,
            retry_connection_errors=False,
        )
        self._ended_here = threading.Condition()
        self._endings = 0
        # Said to be ending by this process, and not yet seen in the database. Who forgets it looks everywhere again.
        self._announced: set[str] = set()
        self._looked = 0.0

    # ── items ──

    def start(self, id: str, function: str, argument: Json, queue: str, *, priority: int = 0) -> None:
        options = _options(id, function, queue)
        # None is the smallest there, and has no number.
        ranked, value = {**options, **({"priority": priority} if priority else {})}, plain(argument)
        patiently(lambda: self._client.enqueue(ranked, value))

    def start_all(self, function: str, arguments: Mapping[str, Json], queue: str) -> None:
        rows = [(_options(id, function, queue), plain(argument)) for id, argument in arguments.items()]

        def once() -> None:
            with self._pool.begin() as connection:
                for options, argument in rows:
                    self._client.enqueue_in_transaction(connection, options, argument)

        patiently(once)  # D1: what was committed, and is done again, starts nothing

    def await_signal(self, id: str, within_s: float, home: str) -> None:
        # Seconds are whole: JSON here has no fractions.
        self.start(id, WAIT, int(within_s), waits_of(home))

    def signal(self, id: str, message: Json, *, key: str = "") -> None:
        error = library().error
        try:
            patiently(lambda: self._client.send(id, plain(message), TOPIC, key or None))
        except error.DBOSNonExistentWorkflowError:
            raise UnknownId(f"nothing waits under the id {id}") from None

    def items(self, prefix: str = "", states: Collection[State] = (), *, limit: int = 0) -> tuple[Item, ...]:
        wanted = [name for name, state in _STATES.items() if state in states or (state == "done" and "stale" in states)]
        found = self._rows(workflow_id_prefix=prefix or None, status=wanted or None, limit=limit or None)
        # The prefix is a pattern over there.
        told = self._told([row for row in found if row.workflow_id.startswith(prefix)])
        return tuple(item for item in told if not states or item.state in states)

    def find(self, id: str) -> Item | None:
        found = self._told(self._rows(workflow_ids=[id]))
        return found[0] if found else None

    def wait(self, ids: Collection[str], within_s: float = 0.0) -> tuple[Item, ...]:
        """An end in this process wakes us, and is all we ask for then; one elsewhere is seen within half a second."""
        deadline, pause, wanted, woken = time.monotonic() + within_s, _SOON, set(ids), True
        while True:
            endings = self._endings
            found = self._look(wanted, everywhere=not woken or within_s <= 0)
            left = deadline - time.monotonic()
            if found or not wanted:
                return found
            if left <= 0:
                return self._look(wanted, everywhere=True)
            woken = self._wait_for_an_end_here(endings, min(pause, left))
            # The end is announced just before it is recorded, so that look again soon.
            pause = _SOON if woken else min(pause * 1.5, _SELDOM)

    def _look(self, wanted: set[str], *, everywhere: bool) -> tuple[Item, ...]:
        """With many items open, one query for all of them at every end would cost more than the items."""
        now = time.monotonic()
        if everywhere or now - self._looked >= _SELDOM:
            self._looked = now
        else:
            with self._ended_here:
                wanted = wanted & self._announced
        found = self._ended(wanted)
        with self._ended_here:
            self._announced.difference_update(item.id for item in found)
        return found

    def _wait_for_an_end_here(self, seen: int, seconds: float) -> bool:
        with self._ended_here:
            return self._ended_here.wait_for(lambda: self._endings != seen, seconds)

    def _ended(self, ids: Collection[str]) -> tuple[Item, ...]:
        ended = [name for name, state in _STATES.items() if state not in OPEN]
        named, rows = list(ids), []
        for first in range(0, len(named), _CHUNK):
            some = named[first : first + _CHUNK]
            rows += self._rows(workflow_ids=some, status=ended)
        return self._told(rows)

    def cancel(self, ids: Collection[str]) -> None:
        if ids:
            patiently(lambda: self._client.cancel_workflows(list(ids)))

    def states(self, ids: Collection[str]) -> dict[str, State]:
        named, found = list(ids), dict[str, State]()
        for first in range(0, len(named), _CHUNK):
            rows = self._rows(workflow_ids=named[first : first + _CHUNK], load_output=False)
            found.update((row.workflow_id, _STATES[row.status]) for row in rows)
        return found

    def is_newest(self, id: str, token: int) -> bool:
        return self.leases.is_newest(id, token)

    def _rows(self, **wanted: object) -> list[WorkflowStatus]:
        found: list[WorkflowStatus] = patiently(lambda: self._client.list_workflows(load_input=False, **wanted))
        return found

    def _told(self, rows: Collection[WorkflowStatus]) -> tuple[Item, ...]:
        newest = self.leases.tokens([row.workflow_id for row in rows]) if rows else {}
        return tuple(_item(row, newest.get(row.workflow_id, 1)) for row in rows)

    # ── the end ──

    def forget(self, prefix: str, older_than_days: float) -> int:
        before = (datetime.now(UTC) - timedelta(days=older_than_days)).isoformat()
        ended = [name for name, state in _STATES.items() if state not in OPEN]
        gone = 0
        while True:
            rows = self._rows(
                completed_before=before, status=ended, workflow_id_prefix=prefix or None, limit=_CHUNK,
                load_output=False,
            )  # fmt: skip
            ids = [row.workflow_id for row in rows if row.workflow_id.startswith(prefix)]
            if not ids:
                return gone
            patiently(lambda ids=ids: self._client.delete_workflows(ids))  # type: ignore[misc]
            self.leases.forget(ids)
            gone += len(ids)

    def close(self) -> None:
        self._client.destroy()
        self._pool.dispose()


def _options(id: str, function: str, queue: str) -> EnqueueOptions:
    if not ITEM_ID.fullmatch(id):
        raise InvalidInput(f"not an id for an item: {id[:100]!r}")
    return {"workflow_name": function, "queue_name": queue, "workflow_id": id, "app_version": ENGINE_VERSION}


def _item(row: WorkflowStatus, newest: int) -> Item:
    state = _STATES[row.status]
    wrapped = row.output if state == "done" else None
    # What the wrapper of an item gives back: the token it worked under, and the value.
    token, value = wrapped if isinstance(wrapped, list) and len(wrapped) == 2 else (newest, None)
    if state == "done" and (not isinstance(wrapped, list) or token != newest):
        state = "stale"
    return Item(
        row.workflow_id, row.name, state, row.queue_name or "", row.executor_id or "", token,
        row.recovery_attempts or 0, value, _failure(row.error) if state == "failed" else None,
        row.created_at or 0, row.completed_at or 0, row.app_version or "",
    )  # fmt: skip


def _failure(error: object) -> Failure:
    if isinstance(error, BaseException):
        return failure_of(error)
    return Failure("internal", "what is recorded of this failure cannot be read")


def require_reachable(database: Database) -> None:
    """Before anything is written down that needs a shared database: InvalidInput, Unsupported or Blocked where that is
    of no use. A workspace's own is made when it is first used."""
    if not database.url:
        return
    library()
    pool = connect(database)
    try:
        reachable(pool)
    finally:
        pool.dispose()


@contextmanager
def desk(database: Database) -> Iterator[DbosDesk]:
    """Look, start, cancel and signal; never run anything. Blocked when no engine ever ran there."""
    library()
    hint = "Start one with: holdfast run"
    if not exists(database):
        raise Blocked("no run was ever started here", hint=hint)
    engine = connect(database)
    try:
        import sqlalchemy as sa

        reachable(engine)
        schema = "dbos" if database.url else None
        if not sa.inspect(engine).has_table("workflow_status", schema):
            raise Blocked("no run was ever started in this database", hint=hint)
        found = DbosDesk(engine)
    except BaseException:
        engine.dispose()
        raise
    try:
        with in_our_words():
            yield found
    finally:
        found.close()
