"""Runs over roadmaps, as a user holds them: start, go on, look, answer, stop.

    hf.runs.start("ROADMAP.md", RunOptions(agent="claude", parallel=3))

Invariants
  S1  One process drives a workspace; a second one is refused (Locked), and looks, answers and stops all the same.
      Whoever moves tasks by hand holds that lock too: the book of a run has one writer (K3).
  S2  Stopping can be asked for from anywhere; it is about the sitting that goes on, and is forgotten when that ends and
      before the next one begins (`stop_wish`).
  S3  What cannot work is refused before a run is written down: no roadmap, no task, an agent that nobody knows,
      options that contradict each other, and all of `run_requirements`. A run of which nothing was begun is not left
      behind as one that was interrupted.
  S4  Where a run was killed, no other is begun before it went on: what it had begun to land must be known first.
  S5  An answer is to one question, by its number and what it showed; to any other it is none (K4 of `taskbook`).
  S6  Whoever starts a run, stops it, answers, or has boxes set does so under the name that approvals are counted by.
  S7  From the look whether an undo may be, until its tasks have followed, no run can begin: the lock of S1 is held.
  S8  Nothing that is only taken for a task is begun without a person who says that it is one: asked at the terminal,
      by `take_guessed`, by naming it, or once and for all in their configuration. No other consent covers it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from holdfast.agents.protocol import Agent, Person
from holdfast.agents.readiness import readiness, require_person
from holdfast.agents.registry import agent_named
from holdfast.engine.answers import one_may_approve
from holdfast.engine.branch_commits import commit_boxes
from holdfast.engine.branch_lost import watched_branch
from holdfast.engine.durable import Database
from holdfast.engine.durable_running import home_lock
from holdfast.engine.expedition import Outfit, go
from holdfast.engine.grounds import Grounds
from holdfast.engine.hiring import adjusted, routed
from holdfast.engine.landed_before import landed_before, landed_elsewhere, with_landed
from holdfast.engine.landmarks import checkpoint_of
from holdfast.engine.listeners import Listeners
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.pulse import Pulse, read_pulse
from holdfast.engine.roadmap_file import RoadmapFile, find_roadmap
from holdfast.engine.roadmap_rules import UNDER_WAY
from holdfast.engine.room import is_full
from holdfast.engine.roster import roster, safe_mode_of
from holdfast.engine.router import Choice
from holdfast.engine.routing_file import FILE as ROUTING_FILE
from holdfast.engine.routing_file import decision_for, read_decisions, undecidable
from holdfast.engine.run_following import (
    Followed,
    Synced,
    brought_back,
    followed,
    is_behind,
    late_commits,
    moved_back,
    require_settled,
    returned,
    switched,
    taken_away,
    unfollowed,
)
from holdfast.engine.run_log import RunLog
from holdfast.engine.run_preview import Preview, preview_of
from holdfast.engine.run_requirements import looked_ahead, require_startable, require_understood
from holdfast.engine.run_standing import Standing, begin_with, find_run, resume_with, standing_of, stands, task_named
from holdfast.engine.stop_wish import StopWish
from holdfast.engine.task_parts import require_last_first
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.engine.ticked_by_hand import ticked_by_hand
from holdfast.errors import ApprovalNeeded, Blocked, Conflict, HoldfastError, InvalidInput, Locked
from holdfast.model.configuration import Budget
from holdfast.model.path import printable
from holdfast.model.run import AUTO, ChecksTried, RunEvent, RunOptions, RunRecord, RunWatcher, fault_of
from holdfast.model.task import Roadmap, Task, TaskRecord, TaskState
from holdfast.settlement.runs import ANSWER, answer_body, run_from, task_record
from holdfast.store.chain import Record
from holdfast.store.runs import Runs, Said

Opening = Callable[[str], AbstractContextManager[Pipeline]]


class Crew(NamedTuple):
    """Agents of the caller's own, who looks on, who works by hand, and who says stop."""

    agents: Mapping[str, Agent] = {}
    watcher: RunWatcher = lambda event: None
    person: Person | None = None
    stop: Callable[[], str] = lambda: ""


# Nothing of it is under way, and nobody is asked about it.
_LEFT_OPEN: tuple[TaskState, ...] = ("PENDING", "DEFERRED", "FAILED", "TIMEOUT", "BLOCKED")
_BY_HAND = "ticked by hand, so no agent was asked"
_PLAIN, _ALONE = RunOptions(), Crew()


class RoadmapRuns:
    def __init__(self, pipeline: Pipeline, workspace: str, opening: Opening, warn: Callable[[str], None]):
        self._pipeline, self._workspace, self._opening = pipeline, workspace, opening
        self._warn = warn
        self._wish = StopWish(pipeline.site.state)
        self.listeners = Listeners(warn)

    # ── drive ──

    def start(
        self, roadmap: str = "", options: RunOptions = _PLAIN, crew: Crew = _ALONE, *, yes: bool = False,
        database: str = "", take_guessed: bool = False,
    ) -> RunRecord:  # fmt: skip
        """A new run, until it ends or is stopped. `take_guessed`: what is only taken for tasks is some (S8)."""
        path, read, chosen = self._chosen(roadmap, options, crew.agents)
        if not take_guessed and (guessed := self._guessed(read, chosen)):
            name, amount = printable(path), f"{len(guessed)} task{'s' if len(guessed) > 1 else ''}"
            place = "" if self._pipeline.site.is_branch else self._pipeline.site.path
            raise ApprovalNeeded(
                f"{amount} of {name} would begin, and its tasks do not say themselves that they are some",
                hint=f"Nothing was begun. See them with: holdfast tasks {name}. "
                f"If they are the tasks: {begin_with(RunRecord('', path, chosen, yes=yes, taken=True), place)}",
            )
        self._require_somebody(chosen, _to_do(read, chosen), lambda task: self._hired(chosen, task, crew))
        self._require_startable(database)
        checks = looked_ahead(self._pipeline, chosen, _to_do(read, chosen))
        with self._alone():
            self._require_none_killed()
            self._require_person(chosen.agent, crew)
            run = begin_run(self._pipeline, RunRecord("", path, chosen, by=self._me, yes=yes, taken=take_guessed))
        try:
            return self._go(run, crew, database, checks)
        except HoldfastError as error:
            self._never_begun(run.id, error)
            raise

    def guessed(self, roadmap: str = "", options: RunOptions = _PLAIN) -> tuple[str, tuple[Task, ...]]:
        """The roadmap, and what a run over it would begin that is only taken for tasks: a person is asked (S8)."""
        path, read, chosen = self._chosen(roadmap, options, {})
        return path, self._guessed(read, chosen)

    def _guessed(self, read: Roadmap, options: RunOptions) -> tuple[Task, ...]:
        """None where the user's configuration takes them, or where they were named one by one."""
        if read.confidence == "marked" or options.only or self._pipeline.governance.settings().run.guessed == "take":
            return ()
        return tuple(_to_do(read, options))

    def preview(self, roadmap: str = "", options: RunOptions = _PLAIN) -> Preview:
        """What `start` would do; nothing is written, not even that somebody asked."""
        path, read, chosen = self._chosen(roadmap, options, {})
        require_understood(self._pipeline)

        def route(task: Task) -> str:
            return self._routed(chosen, task)

        self._require_somebody(chosen, _to_do(read, chosen), route)
        return preview_of(path, read, chosen, route)

    def resume(
        self,
        id: str = "",
        crew: Crew = _ALONE,
        *,
        yes: bool | None = None,
        database: str = "",
        budget: Budget = Budget(),  # noqa: B008 (frozen)
    ) -> RunRecord:
        """The newest run, or that one, from where it was; nothing left to do is fine.

        What `budget` says takes the place of what the run had. What was spent already counts.
        """
        run = self._caught_up(self.find(id))
        me = self._me  # S6: a yes of whoever started it is not one of whoever goes on with it
        run = run._replace(yes=run.yes and run.by == me if yes is None else yes, by=me if yes else run.by)
        run = run._replace(options=run.options._replace(budget=run.options.budget.with_said(budget)))
        if run.state == "FINISHED":
            return run
        if budget.micro_usd is not None and run.options.agent not in (AUTO, *crew.agents):
            self._require_usable(run.options.agent, budget)
        self._require_none_killed(besides=run.id)
        self._require_startable(database)
        self._require_person(run.options.agent, crew)
        self._done_meanwhile(run)
        if run.yes and "after" not in run.options.ask:
            self._said_yes(run)
        standing = self.standing(run.id)
        left = [task for task, record in standing.rows() if record.state not in ("COMPLETED", "SKIPPED")]
        waits = any(record.proposal and record.state in UNDER_WAY for record in standing.records.values())
        if not waits:
            self._require_somebody(run.options, left, lambda task: self._hired(run.options, task, crew))
        checks = looked_ahead(self._pipeline, run.options, left, stops=not waits)
        return self._go(run, crew, database, checks)

    def _done_meanwhile(self, run: RunRecord) -> None:
        """What it left open may have been landed by another run since, or done by a person, who ticked it."""
        with self._alone():
            book = TaskBook(self._pipeline, run, lambda event: None)
            left_open = [record for record in book.records.values() if record.state in _LEFT_OPEN]
            left = {record.task for record in left_open}
            by_hand = ticked_by_hand(self._pipeline, run, left_open)
            brought_back(book, [each._replace(execution="", commit="", files=0) for each in by_hand], _BY_HAND)
            if by_hand:
                freed = book.in_state("BLOCKED")  # the driver finds out whether they still are
                book.move_all((each._replace(state="PENDING", because=""), None) for each in freed)
            left.difference_update(record.task for record in by_hand)
            for record in self._landed_by_others(run, left).values() if left else ():
                done = book.of(record.task)._replace(execution=record.execution, files=record.files, part=0, parts=0)
                done = done._replace(unverified=record.unverified)
                brought_back(book, [done], f"{record.run} landed it", record.commit)

    def _said_yes(self, run: RunRecord) -> None:
        """`--yes` counts for what waits, as it does for what will: whether it does is judged where it lands (L6 of
        `lane`), and what it does not cover is asked again. What nothing verified it never covers (L8)."""
        lands = self._pipeline.governance.settings().run.unverified == "land" or run.options.unverified_because
        with self._alone():
            book = TaskBook(self._pipeline, run, lambda event: None)
            waiting = [each for each in book.in_state("NEEDS_REVIEW") if lands or not each.unverified]
            covered = [each for each in waiting if one_may_approve(self._pipeline.records, each)]
            book.move_all((each._replace(state="VALIDATING", because=f"{run.by} said --yes"), None) for each in covered)

    def _never_begun(self, id: str, error: HoldfastError) -> None:
        """S3. Another run began in between, or the engine could not, after all. On a full disk that cannot be told."""
        book = TaskBook(self._pipeline, self.find(id), lambda event: None)
        if book.run.state == "RUNNING" and not book.records and not is_full(error):
            others = "another run was under way"
            book.move_run("STOPPED", others if isinstance(error, Locked) else f"it could not begin: {error.message}")

    def _chosen(
        self, roadmap: str, options: RunOptions, agents: Mapping[str, Agent]
    ) -> tuple[str, Roadmap, RunOptions]:
        """S3."""
        if wrong := fault_of(options):
            raise InvalidInput(wrong, hint="Nothing was begun.")
        path = find_roadmap(self._pipeline.site, roadmap)
        read = with_landed(self._pipeline.records, *self._read(path))
        if not read.tasks:
            why = "".join(f": {remark.text}" for remark in read.remarks[:1])
            raise InvalidInput(
                f"{path} has no tasks{why}", hint="See docs/reference/roadmaps.md for what is read as one."
            )
        if options.agent not in (AUTO, *agents):
            self._require_usable(options.agent, options.budget)
        if options.agent == AUTO:
            self._require_decided_of(path, read)
        return path, read, options._replace(only=tuple(task_named(read, word) for word in options.only))

    def _require_decided_of(self, path: str, read: Roadmap) -> None:
        """A file that cannot be read is asked about when a task is to be routed."""
        try:
            decisions = read_decisions(self._pipeline.site)
        except InvalidInput:
            return
        strange = undecidable(decisions, {word for task in read.tasks for word in (task.id, task.number)})
        if strange:
            raise InvalidInput(
                f"{ROUTING_FILE} decides about {', '.join(map(printable, strange))}, which {printable(path)} has not",
                hint=f"Nothing was begun. See what there is with: holdfast tasks {printable(path)}. "
                "A pattern, such as 1.*, may fit nothing.",
            )

    def normalise(self, roadmap: str, agent: str, agents: Mapping[str, Agent] = {}) -> Roadmap:
        """Have an agent find the tasks in a roadmap of prose, once; nothing else is done with them."""
        from holdfast.engine.normalising import normalised

        file = RoadmapFile(self._pipeline.site, find_roadmap(self._pipeline.site, roadmap))
        data, read = file.read()
        if read.format != "prose" or read.tasks:
            return read
        found = normalised(self._pipeline, data, agent, agents)
        file.forget()
        return found

    def _require_usable(self, name: str, budget: Budget) -> None:
        settings = self._pipeline.governance.settings()
        health = readiness(agent_named(name, settings), adjusted(settings, name, budget)).health
        if not health.usable:
            raise InvalidInput(f"{name} cannot be given work: {health.why_not}", hint=health.hint)

    def _require_somebody(self, options: RunOptions, tasks: Sequence[Task], route: Callable[[Task], str]) -> None:
        """Blocked where no program can be given work: every task would only wait for a person, who could do nothing
        about it but what is told here (S3). One whose breaker is open is waited for."""
        if options.agent != AUTO or not tasks:
            return
        safe = safe_mode_of(roster(self._pipeline.governance.settings(), (), 0), (), 0, "")
        if safe is not None and not any(_can(route, task) for task in tasks):
            hint = f"Nothing was begun. {'. '.join(safe.ways_out)}: holdfast agents"
            raise Blocked(f"safe mode: {'; '.join(safe.sentences)}", hint=hint)

    def _require_none_killed(self, besides: str = "") -> None:
        """S4. One that is being driven is found by its lock."""
        rows = Runs(self._pipeline.records).runs()
        killed = next((row for row in rows if row.state == "RUNNING" and row.id != besides), None)
        if killed is not None:
            raise Blocked(
                f"the run {killed.id} over {killed.roadmap} was interrupted, and is not settled",
                hint=f"Go on with it first: {resume_with(run_from(killed.document), killed.id)}",
            )

    def _go(self, run: RunRecord, crew: Crew, database: str, checks: tuple[str, ...]) -> RunRecord:
        log = RunLog(self._pipeline.site.state, self._warn)
        lost = watched_branch(self._pipeline.site)
        watcher = _serial((log, self.listeners, crew.watcher))
        outfit = Outfit(
            workspace=self._workspace,
            database=Database(self._pipeline.site.state.path, database),
            opened=lambda: self._opening(self._pipeline.site.path),
            ground=Grounds(self._pipeline.site.path, self._opening),
            checkpoint=checkpoint_of,
            route=lambda task: self._hired(run.options, task, crew),
            agents=crew.agents,
            others=lambda task: self._others(run.options, task),
            watcher=watcher,
            export=lambda book, roadmap: log.settled(book.run, roadmap, book.records),
            stop=lambda: crew.stop() or self._wish.asked(run.id) or lost(),
            warn=self._warn,
            person=crew.person,
            # The mirror of a branch's work tree has a repository of its own, which an agent can ask.
            mirrored=run.options.parallel > 1 or self._pipeline.site.is_branch,
        )
        if checks:
            watcher(ChecksTried(run.id, checks))
        with self._alone():
            self._wish.forget(run.id)  # S2: it was about an earlier sitting
        try:
            # As the other threads of a run do: what lands here must not end the driver that asked for it.
            with self._opening(self._pipeline.site.path) as patient:
                return go(patient, run, outfit)
        finally:
            self._wish.forget(run.id)

    def _require_startable(self, database: str) -> None:
        require_startable(self._pipeline, Database(self._pipeline.site.state.path, database))

    def _require_person(self, name: str, crew: Crew) -> None:
        if name != AUTO:
            agent = crew.agents.get(name) or agent_named(name, self._pipeline.governance.settings())
            require_person(agent, crew.person)

    def _hired(self, options: RunOptions, task: Task, crew: Crew) -> str:
        """Blocked where only a person at a terminal can have it, and there is none: a person is asked then."""
        name = self._routed(options, task)
        self._require_person(name, crew)
        return name

    def _routed(self, options: RunOptions, task: Task) -> str:
        if options.agent != AUTO:
            return options.agent
        return self._choice(options, task, patient=True).agent

    def _others(self, options: RunOptions, task: Task) -> tuple[str, ...]:
        """Who could do it now, the best first; nobody where a person named who does it."""
        if options.agent != AUTO:
            return ()
        try:
            choice = self._choice(options, task)
        except (Blocked, InvalidInput):  # nobody at the moment, or a decision that cannot be followed
            return ()
        return () if choice.decided else tuple(each.agent for each in choice.ranking)

    def _choice(self, options: RunOptions, task: Task, *, patient: bool = False) -> Choice:
        decisions = read_decisions(self._pipeline.site)
        id = task.id if decision_for(task.id, decisions) is not None else task.number
        words = f"{task.title}\n{task.body}"
        return routed(self._pipeline, words, id, decisions, patient=patient, most=options.budget)

    # ── look ──

    def find(self, id: str = "") -> RunRecord:
        return find_run(self._pipeline.records, id)

    def standing(self, id: str = "") -> Standing:
        return standing_of(self._pipeline.site, self._pipeline.records, self.find(id))

    def roadmap(self, path: str = "") -> Roadmap:
        return RoadmapFile(self._pipeline.site, find_roadmap(self._pipeline.site, path)).read()[1]

    def pulse(self) -> Pulse | None:
        return read_pulse(self._pipeline.site.state)

    # ── speak ──

    def stop(self, id: str = "", *, now: bool = False) -> RunRecord:
        """Ask the run to finish the landing that is under way, and to stop; with `now`, not even to finish that."""
        run = self.find(id)
        self._wish.ask(run.id, self._me, now=now)
        return run

    def stop_now_asked(self, run: str) -> bool:
        """Whether somebody wants its process to end at once. A run cannot do that to its caller; the caller can."""
        return self._wish.asked_now(run)

    def answer(
        self, task: str, *, yes: bool, skip: bool = False, reason: str = "", run: str = "",
        shown: TaskRecord | None = None,
    ) -> Said:  # fmt: skip
        """A person's word about a task that waits for one; it is in the ledger when this returns (S5).

        `shown` is the question as they were shown it: Conflict when it is not asked any more. Without, it is the one
        that is asked now.
        """
        found = self.find(run)
        asked = self._asked_about(self.resolve(task, found.id), found.id, shown)
        said = Said(
            found.id, asked.task, yes, skip, self._me, reason, time.time_ns(), asked.asked, asked.simulation
        )  # fmt: skip
        self._pipeline.note_run([Record(ANSWER, answer_body(said), said.at_ns)])
        return said

    def _asked_about(self, task: str, run: str, shown: TaskRecord | None) -> TaskRecord:
        """The question that is answered. One may be asked after this look: the book compares the numbers once more."""
        now = task_record(Runs(self._pipeline.records), run, task)
        if shown is not None and (now.state, now.asked, now.simulation) != (shown.state, shown.asked, shown.simulation):
            raise Conflict(
                f"{task}: that question is not asked any more, since it went on meanwhile",
                hint=f"Nothing was said. See what is asked now: holdfast review {task}",
            )
        if now.state != "NEEDS_REVIEW":
            raise InvalidInput(f"{task} does not wait for anybody", hint="Nothing was changed. See: holdfast tasks")
        return now

    def again(self, tasks: Sequence[str], run: str = "", because: str = "") -> list[TaskRecord]:
        """Let tasks that ended start anew; those that landed are refused: undo them first."""
        with self._alone():
            found = self.find(run)
            book = TaskBook(self._pipeline, found, lambda event: None)
            chosen = [book.of(self.resolve(task, found.id)) for task in tasks]
            earlier = self._landed_by_others(found, {record.task for record in chosen}.difference(book.records))
            self._require_free([earlier.get(record.task, record) for record in chosen])
            return moved_back(self._pipeline, book, chosen, because or f"{self._me} asked for it again")

    def _landed_by_others(self, run: RunRecord, wanted: Container[str]) -> dict[str, TaskRecord]:
        """Of these, what stands of other runs, whether the file shows it or not."""
        file, data, roadmap = self._read(run.roadmap)
        open_ones = {task.id for task in roadmap.tasks if not task.done}
        found = landed_elsewhere(self._pipeline.records, file, data, wanted, open_ones, run.id)
        return {record.task: record for record in found}

    def _read(self, roadmap: str) -> tuple[RoadmapFile, bytes, Roadmap]:
        file = RoadmapFile(self._pipeline.site, roadmap)
        return file, *file.read()

    def _require_free(self, chosen: Sequence[TaskRecord]) -> None:
        """What stood so already, or was put back by hand, has nothing that could be undone: it is set back as it is."""
        landed = [record.task for record in chosen if record.execution and self._can_be_undone(record)]
        if landed:
            raise InvalidInput(f"{', '.join(landed)} landed", hint=f"Undo it first: holdfast undo {landed[0]}")
        open_ones = [each for each in chosen if each.state in ("IN_PROGRESS", "VALIDATING") or each.landing]
        if open_ones:
            begun, begun_in = [record.task for record in open_ones], open_ones[0].run
            resume = resume_with(self.find(begun_in), begun_in)
            raise Blocked(f"{', '.join(begun)}: begun, and not settled", hint=f"Go on with it first: {resume}")

    def _can_be_undone(self, record: TaskRecord) -> bool:
        from holdfast.engine.history import undo_of  # only this needs it

        if not stands(self._pipeline.records, record):
            return False
        try:
            back = undo_of(self._pipeline, record.execution)
        except HoldfastError:
            return True
        return bool(back.job.change_set or back.job.services)

    def sync(self, id: str = "") -> Synced:
        """Bring boxes, tasks and commits in line with what stands; while a run goes on, only boxes."""
        run, remarks = self.find(id), tuple[str, ...]()
        back, gone, commits = tuple[str, ...](), tuple[str, ...](), tuple[tuple[str, str], ...]()
        try:
            with self._alone():
                back = returned(self._pipeline, run)
                ticked = self._tick_as_it_stands(run.id)
                gone = taken_away(self._pipeline, run)
                book = TaskBook(self._pipeline, self.find(run.id), lambda event: None)
                commits, remarks, _ = late_commits(self._pipeline, book)
                boxes = commit_boxes(self._pipeline, run)
                commits += ((run.roadmap, boxes.id),) if boxes is not None else ()
        except Locked as error:
            ticked, remarks = self._tick_as_it_stands(run.id), (f"commits are looked after later: {error.message}",)
        return Synced(ticked, back, commits, remarks, gone)

    def _tick_as_it_stands(self, id: str) -> bool:
        """A box of what is to do is a person's own: they may have done it by hand. What other runs landed counts as
        it does for this one: once it was ticked, its box is a person's too (B1 of `landed_before`)."""
        standing, records = self.standing(id), self._pipeline.records
        landed = [record for record in standing.records.values() if record.execution and record.state == "COMPLETED"]
        wanted = {record.task: stands(records, record) for record in landed}
        file, data, roadmap = self._read(standing.run.roadmap)
        others = {record.task for record in landed_before(records, file, data, roadmap, id) if record.execution}
        wanted |= dict.fromkeys(others.difference(standing.records), True)
        return file.tick(self._pipeline, wanted, self._me)

    # ── go back ──

    def require_undoable(self, undoes: Collection[str], revives: Collection[str] = ()) -> bool:
        """Whether tasks landed any of these. Then Locked while a run goes on, since what agents work over must not
        change below them; and Blocked while one of them is begun again, or not known to have landed; also where an
        earlier part of a task would go, and a later one stay. What this says may be otherwise a moment later."""
        with self.taking_back(undoes, revives) as follow:
            return follow is not None

    @contextmanager
    def taking_back(
        self, undoes: Collection[str], revives: Collection[str] = ()
    ) -> Iterator[Callable[[str], Followed] | None]:
        """As `require_undoable`, and it stays so until the block ends (S7); what is given has the tasks follow."""
        require_last_first(self._pipeline, undoes)
        if not switched(self._pipeline, undoes, revives):
            yield None
            return
        with self._alone():
            for each in switched(self._pipeline, undoes, revives):  # as it stands now that nobody can move it
                require_settled(each)
            yield lambda undo: followed(self._pipeline, undo, self._me)

    def followed(self, undo: str) -> Followed:
        """After an undo or a restore of what tasks landed: boxes, a commit of its own, and the tasks are to do again;
        after the undo of such an undo they are done again. Done twice it is done once."""
        with self._alone():
            return followed(self._pipeline, undo, self._me)

    def _caught_up(self, run: RunRecord) -> RunRecord:
        """With tasks to do again whose landing was taken back, also if nobody followed that (F1 of `run_following`)."""
        if not is_behind(self._pipeline, run.id):
            return run
        with self._alone():
            if run.options.sync:
                self._tick_as_it_stands(run.id)
            taken_away(self._pipeline, run)
        return self.find(run.id)

    def unfollowed(self) -> tuple[str, ...]:
        """Undos and restores of what tasks landed, after which somebody was killed before the tasks followed."""
        return unfollowed(self._pipeline)

    # ── small answers ──

    @property
    def _me(self) -> str:
        """S6."""
        return self._pipeline.governance.me()

    def resolve(self, task: str, run: str) -> str:
        """A task by its id, the beginning of it, or the number it has in the roadmap."""
        standing = self.standing(run)
        return task_named(standing.roadmap, task, standing.records)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """S1."""
        lock = home_lock(Database(self._pipeline.site.state.path), self._workspace)
        try:
            lock.__enter__()
        except Locked as error:
            who = error.message.rpartition("(")[2].rstrip(")")
            raise Locked(
                f"a run is under way in this workspace ({who})",
                hint="Look at it: holdfast status. Stop it: holdfast stop",
            ) from None
        try:
            yield
        finally:
            lock.__exit__(None, None, None)


def _to_do(roadmap: Roadmap, options: RunOptions) -> list[Task]:
    asked = roadmap.asked_for(options.only)
    wanted = options.only or [task.id for task in asked.tasks]
    return [task for task in asked.tasks if not task.done and not asked.why_held(task.id) and task.id in wanted]


def _can(route: Callable[[Task], str], task: Task) -> bool:
    """Whether somebody can have it: a person, who is no program."""
    try:
        return bool(route(task))
    except (Blocked, InvalidInput):
        return False


def _serial(watchers: Sequence[RunWatcher]) -> RunWatcher:
    """Events come from the driver and from every agent's thread; those who look on get them one at a time."""
    lock = threading.RLock()

    def watch(event: RunEvent) -> None:
        with lock:
            for watcher in watchers:
                watcher(event)

    return watch
