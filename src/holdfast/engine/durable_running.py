"""Opening an engine: the home of a workspace, and workers elsewhere. See `durable` for what is promised.

    with home(database, "w-…", {"work": work, "land": land}, (Queue("work", each=4), landing)) as engine: …
    with worker(database, "build-7", {"work": work}, ("work",)) as engine: …

Invariants
  R1  One process for each executor id: its directory is locked from before the launch until the process is gone.
  R2  A process listens to the queues that it names, and to no other.
  R3  Tables, lease and lock are there before the first item can begin, and are there until the last has come to rest.
  R4  Closing needs the database, which may be away: then it goes on in the background, and whoever closes goes on too.
      Lock and name are free once it is done, at the latest when the process ends.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from holdfast.disk.calls import CALLS
from holdfast.disk.lock import Lock
from holdfast.engine.durable import ENGINE_VERSION, Database, Function, Lease, Queue, Registry
from holdfast.engine.durable_database import connect, in_our_words, reachable
from holdfast.engine.durable_dbos import APPLICATION, TOPIC, WAIT, library, serializer, waits_of
from holdfast.engine.durable_engine import DbosEngine
from holdfast.engine.durable_remarks import Remarks, speaks_to
from holdfast.errors import Blocked, InvalidInput, Locked
from holdfast.model.canonical import Json
from holdfast.store.private import create_private

if TYPE_CHECKING:
    import sqlalchemy as sa

_POLL_SECONDS = 0.05
_SIGNALS_SECONDS = 0.2
_LAUNCH_WAIT = 120.0
_SETTLE_SECONDS = 3.0
_JOIN_SECONDS = 0.05
# DBOS is one for each process.
_only_one = threading.Lock()
_EXECUTOR = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,99}")


@contextmanager
def home(
    database: Database,
    workspace: str,
    functions: Registry,
    queues: Collection[Queue],
    *,
    elsewhere: Collection[Queue] = (),
    grace_s: float = 10.0,
) -> Iterator[DbosEngine]:
    """The one process of this workspace that starts and lands; Locked when there is another.

    It runs what stands in `queues`, and only makes those of `elsewhere`, to which workers listen. What a queue allows
    counts for everybody who listens to it.
    """
    names, waits = [queue.name for queue in queues], waits_of(workspace)
    with _launched(database, f"home:{workspace}", functions, [*names, waits], own=waits, grace_s=grace_s) as engine:

        def make() -> None:
            for queue in (*queues, *elsewhere, Queue(waits)):
                _make(queue, anew=True)

        engine.on_make_queues = make
        engine.make_queues()
        yield engine


def _make(queue: Queue, *, anew: bool) -> None:
    library().DBOS.register_queue(
        queue.name,
        worker_concurrency=queue.each,
        global_concurrency=queue.total,
        polling_interval_sec=_POLL_SECONDS,
        on_conflict="always_update" if anew else "never_update",
    )


@contextmanager
def worker(
    database: Database,
    name: str,
    functions: Registry,
    queues: Collection[str],
    lease: Lease = Lease(),  # noqa: B008  # frozen
    *,
    grace_s: float = 10.0,
) -> Iterator[DbosEngine]:
    """A process that runs what stands in `queues`. Its name is for good: a supervisor that starts it again under the
    same name has it go on with its own items."""
    if lease.beat * 3 > lease.seconds:
        raise InvalidInput("a lease must last for three beats at least")
    life = uuid.uuid4().hex

    def enlist(engine: DbosEngine, stack: ExitStack) -> None:
        host = _host(database)
        engine.leases.enlist(name, life, host, lease)
        stack.callback(_retire, engine, name, life)
        stack.callback(engine.beating(name, life, host, lease))

    with _launched(database, name, functions, queues, enlist, grace_s=grace_s) as engine:
        for queue in queues:
            # One at a time, until the home says otherwise.
            _make(Queue(queue, each=1), anew=False)
        yield engine


def _retire(engine: DbosEngine, name: str, life: str) -> None:
    """One that was lost has nothing to give back, and its database may be away for long."""
    if not engine.lost:
        engine.leases.retire(name, life)


def _nothing(_engine: DbosEngine, _stack: ExitStack) -> None:
    """The home needs no lease: the kernel's lock is on its machine, and only there can it be started."""


@contextmanager
def _launched(
    database: Database,
    executor: str,
    functions: Registry,
    listens: Collection[str],
    enlist: Callable[[DbosEngine, ExitStack], None] = _nothing,
    *,
    own: str = "",
    grace_s: float,
) -> Iterator[DbosEngine]:
    if not _EXECUTOR.fullmatch(executor):
        raise InvalidInput(f"not a name for a worker: {executor[:100]!r}")
    library()
    with in_our_words(), ExitStack() as unfinished:
        stack = unfinished.enter_context(ExitStack())
        _alone_in_this_process(stack)
        _alone_with_this_name(database, executor, stack)
        pool = connect(database)
        stack.callback(_dispose, pool)
        with _folder_lock(database, "launch", _LAUNCH_WAIT):
            reachable(pool)
            engine = DbosEngine(pool, executor, Remarks(), own)
            engine.leases.create()
            engine.stay_at_home()
            enlist(engine, stack)
            stack.callback(engine.watching())
            stack.callback(_destroy, engine, grace_s)
            _launch(engine, pool, functions, listens)
            stack.callback(engine.settle_waits, listens, _SETTLE_SECONDS)
        begun = unfinished.pop_all()
        try:
            yield engine
        finally:
            _close(engine, begun, grace_s)


def _close(engine: DbosEngine, begun: ExitStack, grace_s: float) -> None:
    """R4. What fails is raised here, unless nobody waits for it any more."""
    failed: list[BaseException] = []

    def close() -> None:
        try:
            begun.close()
        except BaseException as error:  # noqa: BLE001 (raised where it is waited for)
            failed.append(error)

    closing = threading.Thread(target=close, name="closing", daemon=True)
    closing.start()
    deadline = time.monotonic() + grace_s + _SETTLE_SECONDS
    while closing.is_alive():
        closing.join(_JOIN_SECONDS)
        if engine.at_rest:
            deadline = min(deadline, time.monotonic() + _SETTLE_SECONDS)
        if not engine.heard and time.monotonic() >= deadline:
            return
    if failed:
        raise failed[0]


def _alone_in_this_process(stack: ExitStack) -> None:
    if not _only_one.acquire(blocking=False):
        raise Blocked("an engine runs in this process already")
    stack.callback(_only_one.release)


def _alone_with_this_name(database: Database, executor: str, stack: ExitStack) -> None:
    """R1. A process that is frozen holds it too."""
    try:
        stack.enter_context(_folder_lock(database, executor, 0.0))
    except Locked as error:
        raise Locked(f"{executor} runs already: {error.message}") from None


def _folder_lock(database: Database, name: str, wait: float) -> Lock:
    path = _lock_path(database, name)
    # What is locked is the directory; this makes it.
    create_private(path, b"", CALLS)
    return Lock(path, wait=wait)


def home_lock(database: Database, workspace: str) -> Lock:
    """What the home of a workspace holds as long as it lives; whoever changes a run without driving it holds it too."""
    return _folder_lock(database, f"home:{workspace}", 0.0)


def _lock_path(database: Database, name: str) -> str:
    return os.path.join(database.state, "engine", name, "lock")


def _host(database: Database) -> str:
    """This boot of this machine, and the directory that locks: where both are the same, the lock has told who lives."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    about = os.stat(os.path.join(database.state, "engine"))
    return hashlib.sha256(f"{boot} {about.st_dev} {about.st_ino}".encode()).hexdigest()[:32]


def _launch(engine: DbosEngine, pool: sa.Engine, functions: Registry, listens: Collection[str]) -> None:
    dbos = library().DBOS
    dbos(
        config={
            "name": APPLICATION,
            "system_database_engine": pool,
            "application_version": ENGINE_VERSION,
            "executor_id": engine.executor,
            "serializer": serializer(),
            "log_level": "WARNING",
            "enable_otlp": False,
            "notification_listener_polling_interval_sec": _SIGNALS_SECONDS,
        }
    )
    speaks_to(engine.said)
    for name, function in functions.items():
        _register(engine, name, function)
    _register_waits(engine)
    dbos.listen_queues(list(listens))
    dbos.launch()


def _register(engine: DbosEngine, name: str, function: Function) -> None:
    dbos = library().DBOS

    @dbos.workflow(name=name, max_recovery_attempts=None)  # type: ignore[untyped-decorator]
    def item(argument: Json) -> Json:
        return engine.carry_out(dbos.workflow_id, function, argument)

    engine.registered[name] = item


def _register_waits(engine: DbosEngine) -> None:
    dbos = library().DBOS

    @dbos.workflow(name=WAIT, max_recovery_attempts=None)  # type: ignore[untyped-decorator]
    async def wait(within_s: int) -> Json:
        id = str(dbos.workflow_id)
        engine.waits.add(id)
        try:
            return [1, await dbos.recv_async(TOPIC, within_s)]
        finally:
            engine.waits.discard(id)
            engine.announce(id)


def _destroy(engine: DbosEngine, grace_s: float) -> None:
    engine.stop(grace_s)
    try:
        engine.settle(_SETTLE_SECONDS)
    finally:
        engine.leave_the_rest()
    library().DBOS.destroy(destroy_registry=True)
    speaks_to()


def _dispose(pool: sa.Engine) -> None:
    """Threads of DBOS outlive it by a moment, and a connection that is in use then would never be closed."""
    from sqlalchemy.pool import QueuePool

    deadline = time.monotonic() + _SETTLE_SECONDS
    while isinstance(pool.pool, QueuePool) and pool.pool.checkedout() and time.monotonic() < deadline:
        time.sleep(0.01)
    pool.dispose()
