"""Outcomes: what follows in the book from how an item of the engine ended.

    item ──answer_of──▶ Worked      ──▶ VALIDATING
                        Landed      ──▶ COMPLETED, with those that its order asked for; or the next part
                        Asked       ──▶ NEEDS_REVIEW
                        Unworked, its agent was not asked ──▶ PENDING, for a while
                        Unworked, the budget of the run ended it ──▶ as it was before it was begun, and no other begins
                        Unworked, its provider served nothing ──▶ as it was before it was begun, and no other begins
                        Returned, the machine was not fit ──▶ as it was before it was begun
                        no room on the disk ──▶ as it was before it was begun, and the run stops
                        Unworked, Unlanded, anything else ──▶ what the rules make of a failure

D2, D3 and D4 of `driver` are kept here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from holdfast.engine.breaker import TUNING
from holdfast.engine.driving import Rules, World
from holdfast.engine.durable import Failure, Item
from holdfast.engine.escalation import REPEATEDLY, AcceptanceFailed, sentence_of
from holdfast.engine.orders import (
    Answer,
    Asked,
    LandAnswer,
    Landed,
    Returned,
    Unlanded,
    Unworked,
    WorkAnswer,
    Worked,
    answer_of,
)
from holdfast.engine.room import STOPPED_BECAUSE
from holdfast.engine.taskbook import TaskBook
from holdfast.errors import (
    BranchLost,
    DatabaseAway,
    DiskFull,
    HoldfastError,
    Interrupted,
    InvalidInput,
    Locked,
    Tampering,
)
from holdfast.gates.secrets import masked
from holdfast.model.agent import Escalated
from holdfast.model.canonical import Json
from holdfast.model.run import AUTO, AgentSeen, TaskCompleted, TaskFailed
from holdfast.model.task import MOVES, TaskRecord

_MS = 1_000_000
_LAND_TRIES = 3
# How often the shared database may call a landing done that nobody here knows of.
_MOST_DISBELIEVED = 3
# With the pauses of a breaker this is about an hour: an outage passes, and what does not is for a person.
_NOT_SHOWN = "nothing in what landed for its group is about it"
_MOST_LEFT_ALONE = 8
_OTHERS_FIRST_MS = 3_000
# What machines give back waits for nobody at first, then up to a minute; all together about half an hour.
_AT_ONCE, _MOST_RETURNED, _LONGEST_RETURN_MS = 3, 35, 60_000
_MOST_SAID = 500
# How long somebody elsewhere is given to make room.
_ROOM_MS = 60_000
# Somebody else held the workspace or wanted an end, or the database was away: that says nothing about the work, and is
# no attempt.
_NOT_ITS_FAULT = (Locked.code, Interrupted.code, DatabaseAway.code)
# What nobody foresaw is a defect of ours, and no word on the work or its agent.
_UNFORESEEN, _OUR_OWN = HoldfastError.code, "Holdfast itself failed, and not the agent"


class Outcomes:
    """`land` begins a landing, or the same one again. `told_here`: how landings ended in this process, by item; None
    where nobody else can say how they did."""

    def __init__(
        self,
        book: TaskBook,
        world: World,
        rules: Callable[[], Rules],
        land: Callable[[TaskRecord], None],
        told_here: Mapping[str, Json] | None = None,
    ) -> None:
        self._book, self._world, self._rules, self._land = book, world, rules, land
        self._told_here = told_here
        # Why nothing more is begun: there is no room on the disk of this machine, or no branch to land on.
        self.no_room = ""
        # Why nothing more is begun: the budget of the run had too little for somebody who worked.
        self.short = ""
        # Why nothing more is begun: the provider of a model served nothing until the deadline.
        self.outage = ""
        # Why the run stops here: a person asked to be shown each task that landed.
        self.stopped = ""
        # How often a task was given back, since it was last worked on.
        self._returned: Counter[str] = Counter()
        # How often a landing of a task was called done by somebody else, since it last ended here.
        self._disbelieved: Counter[str] = Counter()

    def taken_in(self, record: TaskRecord, item: Item) -> None:
        if record.landing and item.state == "done" and not self._is_ours(item):
            self._disbelieve(record)
            return
        if item.failure is not None and item.failure.code == DiskFull.code:
            self._without_room(record, item.failure)
            return
        if record.landing and item.failure is not None and item.failure.code == BranchLost.code:
            self._without_branch(record, item.failure)
            return
        if record.landing:
            self._disbelieved.pop(record.task, None)
        answer = self._answer(record, item)
        if isinstance(answer, Landed) and self._world.taken_back(answer.execution):
            self._land(record._replace(because="what it landed was taken back"))  # landing it finds that out (D4)
        elif isinstance(answer, Returned):
            self._take_back(record, answer, item.worker)
        elif not isinstance(answer, str):
            self._take(record._replace(landing=False), answer)
        elif record.landing:
            away = item.failure is not None and item.failure.code == DatabaseAway.code
            self._land_again(record, answer, away=away)
        elif item.state == "cancelled" or (item.failure is not None and item.failure.code in _NOT_ITS_FAULT):
            self._book.move(record._replace(state="PENDING", because=answer or "it was cancelled"))
        else:
            why = f"{_OUR_OWN}: {answer}" if item.failure is not None and item.failure.code == _UNFORESEEN else answer
            self.failed(record, Unworked("environment", why, answer, final=item.state == "done"))

    def _disbelieve(self, record: TaskRecord) -> None:
        """Once is what a kill leaves behind: landing it again finds out. Somebody who does it every time gets a person
        to look, and no landing after the other without end."""
        self._disbelieved[record.task] += 1
        because = "the shared database says that it ended, and nobody here knows how"
        if self._disbelieved[record.task] < _MOST_DISBELIEVED:
            self._land(record._replace(because=because))
        else:
            del self._disbelieved[record.task]
            self._book.move(record._replace(state="NEEDS_REVIEW", because=f"cannot be landed: {because}"))

    def _without_room(self, record: TaskRecord, failure: Failure) -> None:
        """Nobody's failure, and no attempt (Z2 of `room`): begun again once there is room, and a landing too, which
        finds out how far it came (D3). Other machines have disks of their own, which stop nobody here."""
        because = f"{STOPPED_BECAUSE}: {masked(failure.message)}"
        if record.landing:
            self._book.move(record._replace(turn=record.turn + 1, because=because))
        elif self._told_here is not None:
            self._take(record, Unworked("environment", because, because, record.agent, pause_ms=_ROOM_MS))
            return
        else:
            self._book.move(record._replace(state="PENDING", attempt=record.attempt - 1, because=because))
        self.no_room = because

    def _without_branch(self, record: TaskRecord, failure: Failure) -> None:
        """The same: it lands once the branch is there again."""
        self._book.move(record._replace(turn=record.turn + 1, because=failure.message))
        self.no_room = failure.message

    def _is_ours(self, item: Item) -> bool:
        """Others can write to a shared database: how a landing ended is believed only as this process told it (D4)."""
        return self._told_here is None or self._told_here.get(item.id) == item.value

    def _answer(self, record: TaskRecord, item: Item) -> WorkAnswer | LandAnswer | str:
        answer = answer_of(item, landing=record.landing)
        try:
            if isinstance(answer, Unworked):
                self._world.said(record, answer.said)
        except (Tampering, InvalidInput) as error:
            return masked(error.message)
        return answer

    def _land_again(self, record: TaskRecord, why: str, *, away: bool) -> None:
        """It is not known how far it came, and landing finds out: it is begun again, and not for ever (D3). Where the
        database is away, the driver ends that."""
        if record.turn % _LAND_TRIES or away:
            self._land(record._replace(because=why))
        else:
            self._book.move(record._replace(state="NEEDS_REVIEW", because=f"cannot be landed: {why}"))

    def _take(self, record: TaskRecord, answer: Answer | LandAnswer) -> None:
        match answer:
            case Worked():
                self._returned.pop(record.task, None)
                usage = record.usage.plus(answer.usage)
                self._book.move(
                    record._replace(
                        state="VALIDATING",
                        proposal=answer.proposal,
                        usage=usage,
                        files=answer.files,
                        unverified=record.unverified if record.part else "",
                        tries=len(record.tried) + answer.tries,
                        left_alone=0,
                        unpassed=0,
                    )
                )
            case Landed():
                self.landed(record, answer)
            case Asked():
                heard = record.heard if answer.simulation == record.simulation else 0
                asked = record._replace(simulation=answer.simulation, cleared_by="", because=answer.because)
                asked = asked._replace(unverified=answer.unverified)
                self._book.move(asked._replace(state="NEEDS_REVIEW", heard=heard))
            case Unworked() if short := self._world.short_of(answer.short_of):
                self._without_budget(record, answer, short)
            case Unworked() if answer.outage and self._book.run.options.agent != AUTO:
                self._without_provider(record, answer)
            case Unworked() if answer.pause_ms and record.left_alone < _MOST_LEFT_ALONE:
                self._wait_for_its_agent(record, answer)
            case Unworked():
                record = record if answer.pause_ms else record._replace(left_alone=0)
                self.failed(record._replace(usage=record.usage.plus(answer.usage)), answer)
            case Unlanded():
                gone = record._replace(proposal="", simulation="", cleared_by="") if answer.taken_back else record
                self.failed(gone, answer)

    def _wait_for_its_agent(self, record: TaskRecord, answer: Unworked) -> None:
        """It was not worked on, so that is no attempt: it is to do once its agent may be asked again, by whom it may be
        done then. Not for ever, and not for as long as a worker likes: what is left alone too often failed (V3 of
        `recovery`). Those that failed let others go first, of whom one may show that the agent is well."""
        wait_ms = min(answer.pause_ms, TUNING.longest_pause_ms) + len(record.tried) * _OTHERS_FIRST_MS
        until = time.time_ns() + wait_ms * _MS
        again = record._replace(state="PENDING", attempt=record.attempt - 1, wait_until_ns=until)
        agent = "" if self._book.run.options.agent == AUTO else record.agent
        self._book.move(again._replace(agent=agent, left_alone=record.left_alone + 1, because=answer.because))
        self._book.tell(AgentSeen(record.run, record.task, Escalated(answer.because)))

    def _without_budget(self, record: TaskRecord, answer: Unworked, short: str) -> None:
        """Nobody's failure, and no attempt: it is to do with a larger budget. What it cost was spent all the same."""
        usage = record.usage.plus(answer.usage)
        again = record._replace(state="PENDING", attempt=record.attempt - 1, usage=usage, because=answer.because)
        self._book.move(again)
        self.short = self.short or short

    def _without_provider(self, record: TaskRecord, answer: Unworked) -> None:
        """Nobody's failure, and no attempt. Where the run may choose, another agent is asked instead."""
        usage = record.usage.plus(answer.usage)
        again = record._replace(state="PENDING", attempt=record.attempt - 1, usage=usage, because=answer.outage)
        self._book.move(again)
        self.outage = self.outage or answer.outage

    def _take_back(self, record: TaskRecord, answer: Returned, worker: str) -> None:
        """A fault of a machine is no word on the task, and no attempt: somebody else may take it at once. Where one
        machine after the other gives it back, it waits longer each time, and at last for a person."""
        self._returned[record.task] += 1
        times = self._returned[record.task]
        because = masked(f"{worker} gave it back: {answer.because}")[:_MOST_SAID]
        if times > _MOST_RETURNED:
            del self._returned[record.task]
            self.failed(record, Unworked("environment", because, because, record.agent, final=True))
            return
        pause_ms = min(1_000 << max(0, times - _AT_ONCE), _LONGEST_RETURN_MS) if times > _AT_ONCE else 0
        until = time.time_ns() + pause_ms * _MS if pause_ms else 0
        again = record._replace(state="PENDING", attempt=record.attempt - 1, wait_until_ns=until, because=because)
        self._book.move(again)
        self._book.tell(AgentSeen(record.run, record.task, Escalated(because)))

    def landed(self, record: TaskRecord, answer: Landed) -> None:
        files = record.parts_files + answer.files
        done = record._replace(
            execution=answer.execution,
            commit=answer.commit,
            files=files,
            # Of a task in parts: of all of them.
            unverified=answer.unverified or (record.unverified if record.part else ""),
            because="; ".join(answer.remarks),
        )
        if self._book.run.options.stop_after_landing:  # a part of a task, or of a group, is a landing too
            self.stopped = f"interrupted after {record.task} landed"
        if record.part + 1 < record.parts:
            self._book.move(done._replace(state="PENDING", part=record.part + 1, parts_files=files))
            return
        others = [self._book.of(task) for task in answer.together]
        landed = [
            other._replace(
                state="COMPLETED",
                agent=record.agent,
                execution=answer.execution,
                commit=answer.commit,
                files=answer.files,
                unverified=answer.unverified,
            )
            for other in others
            if "COMPLETED" in MOVES[other.state]  # a person may have settled it meanwhile
        ]
        if record.task in answer.open:
            # Others of its group are done: it is begun again, with fewer beside it. That order has landed, and is over.
            again = record._replace(
                state="PENDING", order="", proposal="", simulation="", cleared_by="", because=_NOT_SHOWN
            )
            self._book.move_all((each, None) for each in (again, *landed))
        else:
            landed = [done._replace(state="COMPLETED"), *landed]
            self._book.move_all((each, None) for each in landed)
        for each in landed:
            told = TaskCompleted(record.run, each.task, each.execution, each.commit, record.attempt, each.files)
            self._book.tell(told._replace(unverified=each.unverified))

    def _bad_work(self, record: TaskRecord, failed: Unworked) -> TaskRecord:
        """Finished again and again, and never good: a person hears of it once. An attempt has few rounds, so they are
        counted over all attempts of the same agent."""
        goes_on = failed.unpassed == failed.rounds and all(each.agent == failed.agent for each in record.tried[-1:])
        before = record.unpassed if goes_on else 0
        times = before + failed.unpassed
        if before < REPEATEDLY <= times:
            found = AcceptanceFailed(failed.agent, record.task, times)
            self._world.escalated(found)
            self._book.tell(AgentSeen(record.run, record.task, Escalated(sentence_of(found))))
        return record._replace(unpassed=times)

    def failed(self, record: TaskRecord, failed: Unworked | Unlanded) -> None:
        if isinstance(failed, Unworked):
            record = self._bad_work(record, failed)
        verdict = self._rules().after(record, failed)
        self._book.move(verdict.record, tried=verdict.tried)
        tried, waits = verdict.tried, verdict.record.state in ("PENDING", "DEFERRED")
        self._book.tell(
            TaskFailed(
                record.run,
                record.task,
                tried.attempt,
                tried.category,
                failed.because,
                tried.strategy,
                verdict.record.wait_until_ns if waits else 0,
            )
        )
