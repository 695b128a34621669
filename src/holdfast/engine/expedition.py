"""A run put together: book, engine, driver, workbench and lane over one workspace.

    outfit ─▶ home engine (one process per workspace) ─▶ driver ─▶ the run, as it ended

The functions that the engine calls run in its threads: each opens the workspace for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import NamedTuple

from holdfast.agents.protocol import Agent, Person, Watcher
from holdfast.engine.branch_commits import settled
from holdfast.engine.distance import Distance
from holdfast.engine.driver import LAND, WORK, Driver
from holdfast.engine.durable import Database, Inside, Left, Queue, Registry
from holdfast.engine.durable_database import connect, in_our_words, patiently
from holdfast.engine.lane import Checkpoint, Fetch, Lane, from_own_stock
from holdfast.engine.orders import Answer, LandOrder, Order, item_id, land_order_from, order_from, packed, plan_of
from holdfast.engine.patience import LONGEST_S, Patience, PatientItems, PatientStock
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.proposal import Proposal
from holdfast.engine.roadmap_file import RoadmapFile
from holdfast.engine.roadmap_orders import RoadmapOrders, kept_order, land_order_of
from holdfast.engine.room import GO_ON, told_as_full
from holdfast.engine.run_world import Export, RoadmapWorld
from holdfast.engine.taskbook import RUN_ID, TaskBook
from holdfast.engine.work import Ground, Workbench
from holdfast.errors import DatabaseAway, Interrupted, SandboxUnavailable, Tampering
from holdfast.model.agent import Happening
from holdfast.model.canonical import Json
from holdfast.model.configuration import Budget
from holdfast.model.plan import Plan
from holdfast.model.run import AgentSeen, RunRecord, RunWatcher
from holdfast.model.task import Task
from holdfast.settlement.runs import task_record
from holdfast.store.large_blobs import LargeBlobs
from holdfast.store.runs import Runs
from holdfast.store.shared_stock import SharedStock

# Ended items and shared bytes that nobody asked for since; without an end they would only grow.
_REMEMBERED_DAYS = 30.0
# Longer than a driver waits, which ends the run.
_FETCHED_S = 2 * LONGEST_S
Opened = Callable[[], AbstractContextManager[Pipeline]]


class Outfit(NamedTuple):
    """What a run needs besides its roadmap; `wiring` puts it together."""

    workspace: str
    database: Database
    # A pipeline of the thread that asks.
    opened: Opened
    ground: Ground
    checkpoint: Checkpoint
    # Who gets a task, and who else could.
    route: Callable[[Task], str]
    agents: Mapping[str, Agent]
    others: Callable[[Task], Sequence[str]]
    watcher: RunWatcher
    export: Export
    stop: Callable[[], str]
    # Where a person hears what stops nothing.
    warn: Callable[[str], None] = lambda text: None
    person: Person | None = None
    mirrored: bool = False
    # Others work too, on other machines; `go` makes it where the database is shared.
    distance: Distance | None = None
    # In place of real work and landings, for who measures the loop alone.
    functions: Registry | None = None


def go(pipeline: Pipeline, run: RunRecord, outfit: Outfit) -> RunRecord:
    """Drive the run until it ends or somebody stops it; Locked when another process drives one here."""
    if not outfit.database.url:
        return _go(pipeline, run, outfit, None)
    patience = Patience(run.id, outfit.watcher, outfit.stop)
    with _distance(outfit.database, run.commit, patience) as distance:
        return _go(pipeline, run, outfit._replace(distance=distance, mirrored=True), patience)


def _go(pipeline: Pipeline, run: RunRecord, outfit: Outfit, patience: Patience | None) -> RunRecord:
    from holdfast.engine.durable_running import home

    book = TaskBook(pipeline, run, outfit.watcher)
    file = RoadmapFile(pipeline.site, run.roadmap)
    world = RoadmapWorld(pipeline, file, run.options, outfit.others, outfit.stop, outfit.export)
    working = work_queue(outfit.workspace)
    line = Queue(working, each=run.options.parallel)
    here, elsewhere = ((line,), ()) if run.options.here else ((), (line,))
    told_here: dict[str, Json] = {}
    functions = noted(outfit.functions or registry(outfit, run, lambda: world.left, patience), told_here)
    is_branch = pipeline.site.is_branch
    with home(outfit.database, outfit.workspace, functions, here, elsewhere=elsewhere) as engine:
        items = engine if patience is None else PatientItems(engine, patience)
        with suppress(DatabaseAway):  # the driver finds that out too, and ends as it should
            items.forget(f"{RUN_ID}-", _REMEMBERED_DAYS)  # the book knows what became of them
        distance = outfit.distance
        afar = _Afar(pipeline, distance, patience) if distance is not None and patience is not None else None
        if afar is not None:
            world.on_said = lambda record, words: afar.said(plan_of(orders.order(record)), words)
        orders = RoadmapOrders(
            run, LargeBlobs(pipeline.site.state), lambda: world.now, outfit.route, afar.base if afar else _nowhere,
            mirrored=outfit.mirrored, finds=afar.finds if afar else _no_base, tested=afar.tested if afar else bool,
        )  # fmt: skip
        driver = Driver(
            book, items, orders, world, outfit.watcher, working,
            # Who works alone on a branch works over a mirror too, and yet after what landed before.
            overlapping=outfit.mirrored and (run.options.parallel > 1 or bool(outfit.database.url)),
            unsettled=(lambda: settled(pipeline, book)) if is_branch else str,
            told_here=told_here if distance is not None else None,
        )  # fmt: skip
        if patience is not None:
            patience.tick = driver.tick
        if run.options.sync:
            trouble = world.tick_all(book)
            if trouble:
                outfit.warn(f"the roadmap was not ticked: {trouble}")
        with told_as_full("what the run does cannot be written down", GO_ON):
            return driver.drive()


class _Afar(NamedTuple):
    """What the driver says to workers and hears from them, as often as it takes."""

    pipeline: Pipeline
    distance: Distance
    patience: Patience

    def base(self) -> str:
        return self.patience.again(lambda: self.distance.base(self.pipeline))

    def tested(self) -> bool:
        """Whether the tests of the whole workspace can run here; looked at once, which takes a sandbox."""
        if self.distance.tested is None:
            try:
                tried = self.pipeline.simulator.checking.trial()
            except SandboxUnavailable:
                tried = ()
            self.distance.tested = any(one.level == "tests" and one.ready for one in tried)
        return self.distance.tested

    def finds(self, base: str) -> bool:
        return self.patience.again(lambda: self.distance.has(base))

    def said(self, plan: Plan, words: str) -> None:
        self.patience.again(lambda: self.distance.heard(self.pipeline, plan, words))


def registry(outfit: Outfit, run: RunRecord, left: Callable[[], Budget], patience: Patience | None = None) -> Registry:
    """What the engine can be asked for.

    What is worked on here, what lands, and who said yes to it, is in the book: the engine's database may be shared,
    and says only when. Where others do all the work, nothing is worked on here whatever it says.
    """

    def watched(order: Order) -> Watcher:
        def see(happening: Happening) -> None:
            outfit.watcher(AgentSeen(order.run, order.task, happening))

        return see

    bench = Workbench(outfit.ground, outfit.agents, watched, outfit.person, left)
    distance = outfit.distance
    fetch = from_own_stock if distance is None or patience is None else _fetching(distance, patience)
    lane = Lane(outfit.opened, outfit.checkpoint, fetch)

    def work(inside: Inside, argument: Json) -> Json:
        task = order_from(document_of(argument)).task
        if not run.options.here:
            raise Tampering(f"{inside.id} is work for others, and none is done here")
        with outfit.opened() as pipeline:
            order = booked_work(pipeline, run, task, inside.id)
        return packed(worked(bench, inside, packed(order)))

    def land(inside: Inside, argument: Json) -> Json:
        task = land_order_from(document_of(argument)).order.task
        with outfit.opened() as pipeline:
            order = booked_landing(pipeline, run, task, inside.id)
        with told_as_full("it cannot be landed", GO_ON):
            return packed(lane.land(order))

    return {WORK: work, LAND: land}


def _fetching(distance: Distance, patience: Patience) -> Fetch:
    """A landing waits for a database that is away, before anything of it has begun; the driver ends that (A4 there)."""

    def fetch(pipeline: Pipeline, name: str, plan: Plan) -> Proposal:
        with patience.fetching():
            return patiently(lambda: distance.fetch(pipeline, name, plan), _FETCHED_S)

    return fetch


def noted(functions: Registry, told_here: dict[str, Json]) -> Registry:
    """How landings end is noted in this process too: a shared database is not believed about it."""

    def land(inside: Inside, argument: Json) -> Json:
        told_here[inside.id] = functions[LAND](inside, argument)
        return told_here[inside.id]

    return {**functions, LAND: land}


def booked_landing(pipeline: Pipeline, run: RunRecord, task: str, item: str) -> LandOrder:
    """The landing of a task that the book says is under way as this item; Tampering when it says another thing."""
    record = task_record(Runs(pipeline.records), run.id, task)
    if not record.landing or item_id(record) != item:
        raise Tampering(f"{item} is no landing that is under way")
    return land_order_of(run, LargeBlobs(pipeline.site.state), record)


def booked_work(pipeline: Pipeline, run: RunRecord, task: str, item: str) -> Order:
    """The order of a task that the book says is worked on as this item; Tampering when it says another thing."""
    record = task_record(Runs(pipeline.records), run.id, task)
    if record.state != "IN_PROGRESS" or record.landing or item_id(record) != item:
        raise Tampering(f"{item} is no work that is under way")
    return kept_order(LargeBlobs(pipeline.site.state), record)


def worked(bench: Workbench, inside: Inside, argument: Json) -> Answer:
    """The order done; left as it was begun when the engine wants it no more, so that it can be begun again."""
    try:
        with told_as_full("it cannot be worked on", GO_ON):
            return bench.work(order_from(document_of(argument)), lambda: inside.stopping)
    except Interrupted:
        if inside.stopping:
            raise Left from None
        raise


@contextmanager
def _distance(database: Database, commit: str, patience: Patience) -> Iterator[Distance]:

    pool = connect(database)
    try:
        stock = SharedStock(pool)
        with in_our_words():
            stock.create()
            stock.forget(_REMEMBERED_DAYS)
        yield Distance(PatientStock(stock, patience), commit)
    finally:
        pool.dispose()


def _nowhere() -> str:
    """Where all work is done here, an order says nothing about the tree it is for."""
    return ""


def _no_base(base: str) -> bool:
    """Here nobody works over a tree that is named: an order that names one was written for others."""
    return not base


def work_queue(workspace: str) -> str:
    """Where the orders of a workspace stand in line; workers on other machines listen there."""
    return f"{WORK}:{workspace}"


def document_of(argument: Json) -> dict[str, Json]:
    if not isinstance(argument, dict):
        raise Tampering("an order is an object")
    return argument
