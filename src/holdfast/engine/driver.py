"""The driver: takes a roadmap to done. It decides from what is durable, so it can be killed anywhere and run again.

    PENDING ──order──▶ IN_PROGRESS ──work is good──▶ VALIDATING ──landed──▶ COMPLETED
       ▲                    │                          │  └──a person is asked──▶ NEEDS_REVIEW ──yes──▶ VALIDATING
       └──── strategy ◀─────┴──── came to nothing ─────┘

One turn: wait until something ends, read what ended, hear what people said, choose what can start, write all of that
down with one sync, ask the engine for it.

Invariants
  D1  The book is written before the engine is asked: what was begun is known, and starting it again is the same start,
      because an item's id is made from run, task, attempt and token.
  D2  What an item says is an answer to the order that the book holds now. An answer to an older attempt, token or turn
      is never looked at: its id is not asked for. Whoever works says how work ended, and never that it landed; what
      does not read as an answer is a failure like others.
  D3  At most one landing is under way, and it is never left alone. It finds out by itself whether it had landed already
      (see `lane`), so one that the engine lost is begun again. Where its end is not known, no other attempt is begun:
      `landing` stays set, and a person's yes begins the same landing again.
  D4  A task is COMPLETED only by the answer of a landing (T3), together with those that its order asked for; and by
      what the ledger knows: where the attempt before has landed after all, no other one is begun; and what was taken
      back before the book knew of it completes nothing.
  D5  Unless agents work over mirrors (`overlapping`), nobody works while something lands: what stands below a shadow
      must not change.
  D6  A turn costs what moved, not what there is: tasks are found by their state.
  D7  What leaves the roadmap is not under way any more, and holds nothing up; if it comes back, it is begun anew.
  D8  An order that was written for another sitting is not given out in this one: it may say that the work is done here,
      over the workspace itself, when it is not. The task is begun anew, by another order.
  D9  What the engine lost of what the book calls begun is asked for again, under the same id. Where its database is
      away for long, or somebody stops the run meanwhile, the run ends as after a kill: what is under way stays so in
      the book, and is found by the next sitting. Only the landing of this process is finished first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice

from holdfast.engine.driving import Items, Orders, World
from holdfast.engine.durable import Item
from holdfast.engine.orders import LandOrder, Order, Unworked, item_id, order_id, packed
from holdfast.engine.outcomes import Outcomes
from holdfast.engine.tally import tally_of
from holdfast.engine.taskbook import TaskBook
from holdfast.errors import Blocked, DatabaseAway, InvalidInput, Tampering, UnknownId
from holdfast.gates.secrets import masked
from holdfast.model.canonical import Json
from holdfast.model.run import (
    Heartbeat,
    RunFinished,
    RunRecord,
    RunStarted,
    RunState,
    RunWatcher,
    TaskStarted,
)
from holdfast.model.task import Task, TaskRecord

WORK, LAND = "work", "land"
_TURN_S = 0.5
# Sooner where it would say something else, and not for every move.
_HEARTBEAT_S = 5.0
# How often workers are looked for that were lost; their leases last for many seconds.
_LOOK_S = 1.0
# How often it is looked who is at work, and whether everything that was asked for is still there.
_COUNT_S = 3.0
# How long a landing is waited for where the run ends without the database.
_LANDING_S = 60.0
_OTHER_RELEASE = "begun by another release"
_OTHER_SITTING = "begun for work at another place"
_LOST_NEED = "what it needs is not done any more"


class Driver:
    def __init__(
        self,
        book: TaskBook,
        engine: Items,
        orders: Orders,
        world: World,
        watcher: RunWatcher,
        queue: str,
        *,
        overlapping: bool,
        unsettled: Callable[[], str] = lambda: "",
        told_here: Mapping[str, Json] | None = None,
        clock: Callable[[], float] = time.monotonic,
        now_ns: Callable[[], int] = time.time_ns,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._book, self._engine, self._orders, self._world = book, engine, orders, world
        self._watcher, self._queue, self._clock, self._now_ns = watcher, queue, clock, now_ns
        self._pause, self._unsettled = pause, unsettled
        self._overlapping = overlapping
        self._began, self._beat, self._before_ms = clock(), float("-inf"), book.run.worked_ms + book.uncounted_ms
        self._rules = world.rules(book)
        self._outcomes = Outcomes(book, world, lambda: self._rules, self._land, told_here)
        self._lost_some, self._looked = True, float("-inf")
        # What the last heartbeat said: at work, begun, landed.
        self._told = (0, 0, 0)
        # How many items somebody works at, and when that was asked.
        self._at_work, self._counted = 0, float("-inf")
        # Begun in the book, and the engine was not asked for it yet (D1).
        self._unasked: list[str] = []
        book.on_move = self._moved

    # ── the loop ──

    def drive(self) -> RunRecord:
        """Until everything is settled, only people can go on, a limit is reached, or somebody says stop."""
        try:
            return self._drive()
        except DatabaseAway as away:
            self._finish_the_landing()
            self._book = self._book.as_written()  # D9
            return self._close("STOPPED", away.message)

    def _finish_the_landing(self) -> None:
        """Whoever wants the end at once is heard meanwhile (D9)."""
        end = self._clock() + _LANDING_S
        while not self._engine.rest(_TURN_S) and self._clock() < end:
            self.tick()

    def tick(self) -> str:
        """While the database is waited for: the run beats; why to stop, if somebody asked for it."""
        self._breathe()
        return self._world.stop_asked()

    def _drive(self) -> RunRecord:
        run, all_of_it = self._book.run, tally_of(self._rules.roadmap, self._book)
        self._watcher(RunStarted(run.id, run.roadmap, all_of_it.tasks, all_of_it.to_do))
        if run.state != "RUNNING" or self._book.records:  # another sitting begins; the time of the last one is counted
            self._book.move_run("RUNNING", worked_ms=self._worked_ms)
        self._begin_again()
        self._world.moved(self._book)
        pause = 0.0
        while (ended := self._turn(pause)) is None:
            pause = 0.0 if self._busy else _TURN_S
        return self._close(*ended)

    def _turn(self, pause: float) -> tuple[RunState, str] | None:
        self._ask_for_the_begun()
        ended = self._ended_within(pause)
        with self._book.together():
            for record, item in ended:
                self._outcomes.taken_in(record, item)
            self._busy = bool(ended)
            self._reread()
            self._busy |= self._hear()
            self._block()
            stopping = (
                self._outcomes.no_room
                or self._outcomes.stopped
                or self._world.stop_asked()
                or self._world.exhausted(self._book, self._worked_ms)
            )
            if not stopping:
                self._busy |= self._start_landing()
            if not stopping and not self._outcomes.short and not self._outcomes.outage:
                self._busy |= self._start_work()
        if self._busy:
            self._world.moved(self._book)
        self._breathe()
        return self._ended(stopping)

    _busy = False

    def _ended(self, stopping: str) -> tuple[RunState, str] | None:
        book = self._book
        if self._lands and not self._outcomes.no_room:
            return None  # D3; what found no room has ended, and lands when the run goes on
        if stopping:
            self._leave()
            limit = self._world.exhausted(book, self._worked_ms)
            if not limit and stopping == self._outcomes.stopped and self._all_is_done():
                return "FINISHED", ""  # interrupted after a landing that was the last
            return ("LIMIT", limit) if limit else ("STOPPED", stopping)
        if self._outcomes.short:  # those who work have their own share of the budget: it is not lost
            return None if book.counted("IN_PROGRESS") else ("LIMIT", self._outcomes.short)
        if self._outcomes.outage:
            return None if book.counted("IN_PROGRESS") else ("STOPPED", self._outcomes.outage)
        if book.counted("IN_PROGRESS") or self._waits_for_time() or any(True for _ in self._startable()):
            return None
        if deferred := list(book.in_state("DEFERRED")):
            book.move_all((record._replace(state="PENDING"), None) for record in deferred)
            return None
        if book.counted("VALIDATING"):
            self._land_out_of_turn()
            return None
        waiting = book.counted("NEEDS_REVIEW")
        return ("WAITING", f"{waiting} need a person") if waiting else ("FINISHED", "")

    def _all_is_done(self) -> bool:
        left = self._book.counted("IN_PROGRESS", "VALIDATING", "NEEDS_REVIEW", "DEFERRED")
        return not left and not self._waits_for_time() and not any(True for _ in self._startable())

    def _close(self, state: RunState, because: str) -> RunRecord:
        book = self._book
        left = self._unsettled()
        if left and state == "FINISHED":
            state, because = "STOPPED", left  # BC4 of `branch_commits`
        book.move_run(state, because, self._worked_ms)
        self._world.moved(book, last=True)
        all_of_it = tally_of(self._rules.roadmap, book)
        counts = all_of_it.completed, all_of_it.failed, all_of_it.waiting, all_of_it.left
        landed = book.counted("COMPLETED")
        self._watcher(RunFinished(book.run.id, state, *counts, book.usage, because, landed, book.run.worked_ms))
        return book.run

    def _leave(self) -> None:
        """Work that goes on is cancelled; on resume it is begun again, as another attempt."""
        working = list(self._book.in_state("IN_PROGRESS"))
        if working:
            self._engine.cancel([order_id(record) for record in working])
            self._book.move_all((record._replace(state="PENDING", because="stopped"), None) for record in working)

    # ── what ended ──

    def _begin_again(self) -> None:
        """Everything that the book calls begun: what the engine knows already is not started twice (D1)."""
        outdated = {item.id for item in self._engine.outdated(f"{self._book.run.id}.")}
        working = self._book.in_state("IN_PROGRESS")
        strange = {order_id(record) for record in working if not self._orders.fits(record)}  # D8
        if outdated | strange:
            self._engine.cancel(sorted(outdated | strange))
        for record in list(self._open()):
            if item_id(record) in strange:
                self._book.move(record._replace(state="PENDING", because=_OTHER_SITTING))
            elif item_id(record) not in outdated:
                self._unasked.append(record.task)
            elif record.landing:  # it may have landed: only landing it again tells (D3)
                self._land(record._replace(because=_OTHER_RELEASE))
            else:
                self._book.move(record._replace(state="PENDING", because=_OTHER_RELEASE))

    def _ended_within(self, seconds: float) -> list[tuple[TaskRecord, Item]]:
        """Wait for something to end, so long."""
        open_ones = {item_id(record): record for record in self._open()}
        if not open_ones:
            self._pause(seconds)
            return []
        if self._clock() - self._looked >= _LOOK_S:
            self._looked = self._clock()
            self._engine.take_from_the_lost(f"{self._book.run.id}.")
        # What was just begun is soon taken up; nobody shall be told for long that nobody is at it.
        if self._clock() - self._counted >= (_COUNT_S if self._at_work else _LOOK_S):
            self._counted = self._clock()
            self._count(open_ones)
        return [(open_ones[item.id], item) for item in self._engine.wait(list(open_ones), seconds)]

    def _count(self, open_ones: Mapping[str, TaskRecord]) -> None:
        """Who is at work; and what the engine lost is asked for again (D9). Where nobody is at work, the queue may be
        what it lost."""
        states = self._engine.states(list(open_ones))
        self._at_work = sum(state == "running" for state in states.values())
        lost = [record for id, record in open_ones.items() if id not in states]
        if lost or not self._at_work:
            self._engine.make_queues()
        if lost:
            self._ask(lost, again=True)

    # ── what people and the roadmap say ──

    def _moved(self, record: TaskRecord) -> None:
        self._rules.moved(record)
        self._lost_some |= record.state in ("FAILED", "TIMEOUT", "SKIPPED", "BLOCKED")

    def _reread(self) -> None:
        rules = self._world.rules(self._book)
        waiting: tuple[TaskRecord, ...] = ()
        if rules is not self._rules:
            self._rules, self._lost_some = rules, True
            waiting = self._book.in_state("NEEDS_REVIEW")
        under_way = (*self._book.in_state("IN_PROGRESS"), *self._book.in_state("VALIDATING"), *waiting)
        gone = [record for record in under_way if not record.landing and not rules.has(record.task)]
        if gone:  # D7
            self._engine.cancel([order_id(record) for record in gone])
            self._book.move_all(
                (record._replace(state="PENDING", because="it left the roadmap"), None) for record in gone
            )

    def _hear(self) -> bool:
        heard = [(record, self._world.answered(record)) for record in self._book.in_state("NEEDS_REVIEW")]
        answers = [after for _, after in heard if after is not None]
        # A landing whose end is not known is begun again when it is its turn; the answer stays (D3).
        doubtful = [after for after in answers if after.landing and after.state == "VALIDATING"]
        moved = [after for after in answers if after not in doubtful]
        self._book.move_all((after, None) for after in moved)
        again = doubtful[:1] if self._may_land() else []
        for after in again:
            self._land(after)
        return bool(moved or again)

    def _block(self) -> None:
        """Only where something was lost since the last look (D6)."""
        if self._lost_some:
            self._lost_some = False
            lost = list(self._rules.blocked())
            self._book.move_all(
                (self._book.of(task)._replace(state="BLOCKED", because=because), None) for task, because in lost
            )

    # ── what can start ──

    def _ask_for_the_begun(self) -> None:
        """Only what the book still calls begun: it may have been given up since."""
        begun, self._unasked = self._unasked, []
        self._ask(
            record
            for record in map(self._book.of, begun)
            if record.state == "IN_PROGRESS" or (record.state == "VALIDATING" and record.landing)
        )

    def _ask(self, begun: Iterable[TaskRecord], *, again: bool = False) -> None:
        """Ask the engine for what the book says was begun: landings here, and at once, since only this process lands;
        all work with one commit. `again`: the engine was asked before, and lost it."""
        work: dict[str, Json] = {}
        for record in begun:
            order = self._order_of(record)
            if isinstance(order, LandOrder):
                start = self._engine.start_again_here if again else self._engine.start_here
                start(order.id, LAND, packed(order))
            elif order is not None:
                work[order.id] = packed(order)
        if work:
            self._engine.start_all(WORK, work, self._queue)

    def _order_of(self, record: TaskRecord) -> Order | LandOrder | None:
        """None where there is none any more: then nothing can be asked, and the book says so."""
        try:
            return self._orders.land_order(record) if record.landing else self._orders.order(record)
        except (UnknownId, Tampering, InvalidInput) as error:
            why = masked(error.message)
            if record.landing:
                self._book.move(record._replace(state="NEEDS_REVIEW", because=f"cannot be landed: {why}"))
            else:
                self._outcomes.failed(record, Unworked("environment", why, why))
            return None

    def _start_landing(self) -> bool:
        worked = list(self._book.in_state("VALIDATING"))
        if not worked or not self._may_land():
            return False
        chosen = self._rules.landing([record.task for record in worked])
        if chosen:
            self._land(self._book.of(chosen))
        return bool(chosen)

    def _land_out_of_turn(self) -> None:
        """Nobody is left who could come before it. Or what it needs was lost since it was begun: it is to do again."""
        worked = self._book.in_state("VALIDATING")
        chosen = self._rules.landing([record.task for record in worked], in_turn=False)
        if chosen:
            self._land(self._book.of(chosen))
        else:
            self._lost_some = True
            self._book.move_all((record._replace(state="PENDING", because=_LOST_NEED), None) for record in worked)

    def _may_land(self) -> bool:
        """One at a time (D3), and beside nobody who works over the workspace itself (D5)."""
        if self._lands:
            return False
        return self._overlapping or not self._book.counted("IN_PROGRESS")

    def _land(self, record: TaskRecord) -> None:
        self._book.move(record._replace(state="VALIDATING", turn=record.turn + 1, landing=True))
        self._unasked.append(record.task)

    def _startable(self) -> Iterator[tuple[TaskRecord, Task]]:
        """In the order of the roadmap, as many as the run may have, and none before its time."""
        most, now = self._book.run.options.most_tasks, self._now_ns()
        begun = self._book.begun
        for task in self._rules.ready():
            record = self._book.of(task.id)
            if record.wait_until_ns > now:
                continue
            if most and not record.attempt:
                if begun >= most:
                    continue
                begun += 1
            yield record, task

    def _start_work(self) -> bool:
        room = self._book.run.options.parallel - self._book.counted("IN_PROGRESS")
        if self._lands and not self._overlapping:
            room = 0  # D5; work that waits for its turn to land holds nobody up, or that turn might never come
        chosen = [pair for pair in islice(self._startable(), max(0, room)) if not self._landed_after_all(pair[0])]
        self._book.move_all([(self._asked_or_begun(record, task), None) for record, task in chosen])
        for record, _ in chosen:
            now = self._book.of(record.task)
            if now.state == "IN_PROGRESS":
                self._book.tell(TaskStarted(now.run, now.task, now.attempt, now.agent))
                self._unasked.append(now.task)
        return bool(chosen)

    def _landed_after_all(self, record: TaskRecord) -> bool:
        """Whether what was asked for last stands, and the book did not know (D4)."""
        try:
            found = self._world.landed(record) if record.order else None
        except (UnknownId, Tampering):
            return False  # without its order it cannot have been landed lately
        if found is None or found.execution == record.execution:
            return False
        self._outcomes.landed(record, found)
        return True

    def _asked_or_begun(self, record: TaskRecord, task: Task) -> TaskRecord:
        if "before" in self._book.run.options.ask and not record.cleared_by and not record.attempt:
            return record._replace(state="NEEDS_REVIEW", because="asks before it starts")
        begun = record._replace(
            state="IN_PROGRESS",
            attempt=record.attempt + 1,
            token=record.token + 1,
            proposal="",
            landing=False,
            simulation="",
            because="",
            started_ns=record.started_ns or self._now_ns(),
        )
        try:
            return self._orders.made(task, begun)
        except (Blocked, InvalidInput) as error:  # nobody can be asked
            return record._replace(state="NEEDS_REVIEW", proposal="", simulation="", because=error.message)

    # ── small answers ──

    @property
    def _lands(self) -> bool:
        return bool(self._book.landing)

    def _open(self) -> Iterator[TaskRecord]:
        yield from self._book.in_state("IN_PROGRESS")
        yield from self._book.landing

    def _waits_for_time(self) -> bool:
        now = self._now_ns()
        waiting = (record for record in self._book.in_state("PENDING") if record.wait_until_ns > now)
        return any(self._rules.has(record.task) for record in waiting)

    @property
    def _worked_ms(self) -> int:
        return self._before_ms + int((self._clock() - self._began) * 1000)

    def _breathe(self) -> None:
        now, book = self._clock(), self._book
        begun, landed = book.counted("IN_PROGRESS", "VALIDATING"), book.counted("COMPLETED")
        running = min(self._at_work, begun)
        moved = (running, begun, landed) != self._told
        if now - self._beat >= (_LOOK_S if moved else _HEARTBEAT_S):
            self._beat, self._told = now, (running, begun, landed)
            self._watcher(Heartbeat(book.run.id, running, landed, book.usage, self._worked_ms, waiting=begun - running))
