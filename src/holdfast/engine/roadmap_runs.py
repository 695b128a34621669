"""Runs over roadmaps, as a user holds them: start, go on, look, answer, stop.

    hf.runs.start("ROADMAP.md", RunOptions(agent="claude", parallel=3))

Invariants
  S1  One process drives a workspace; a second one is refused (Locked), and looks, answers and stops all the same.
      Whoever moves tasks by hand holds that lock too: the book of a run has one writer (K3).
  S2  Stopping is a file that names the run, so it can be asked for from anywhere; it is about the sitting that goes on,
      and is forgotten when that ends and before the next one begins.
  S3  What cannot work is refused before a run is written down: no roadmap, no task, an agent that nobody knows.
  S4  Where a run was killed, no other is begun before it went on: what it had begun to land must be known first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from holdfast.agents.protocol import Agent, Person
from holdfast.agents.readiness import readiness
from holdfast.agents.registry import agent_named
from holdfast.engine.durable import Database
from holdfast.engine.durable_running import home_lock
from holdfast.engine.expedition import Outfit, go
from holdfast.engine.grounds import Grounds
from holdfast.engine.hiring import routed
from holdfast.engine.landmarks import checkpoint_of, checkpoint_undo
from holdfast.engine.listeners import Listeners
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.pulse import Pulse, read_pulse
from holdfast.engine.roadmap_file import RoadmapFile, find_roadmap
from holdfast.engine.routing_file import decision_for, read_decisions
from holdfast.engine.run_log import RunLog
from holdfast.engine.run_preview import Preview, preview_of
from holdfast.engine.run_standing import Standing, find_run, landed_by, standing_of, task_named
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.errors import Blocked, HoldfastError, InvalidInput, Locked
from holdfast.model.run import RunEvent, RunOptions, RunRecord, RunWatcher
from holdfast.model.task import Roadmap, Task, TaskRecord
from holdfast.settlement.runs import ANSWER, answer_body
from holdfast.store.chain import Record
from holdfast.store.exports import read_file, replace_file
from holdfast.store.runs import Runs, Said

Opening = Callable[[str], AbstractContextManager[Pipeline]]
AUTO = "auto"
_STOP, _NOW = "stop", "now"
_MOST_STOP = 256
_ASKED = "asked for it"


class Crew(NamedTuple):
    """Agents of the caller's own, who looks on, who works by hand, and who says stop."""

    agents: Mapping[str, Agent] = {}
    watcher: RunWatcher = lambda event: None
    person: Person | None = None
    stop: Callable[[], str] = lambda: ""


_PLAIN, _ALONE = RunOptions(), Crew()


class TakenBack(NamedTuple):
    """What followed an undo: the tasks that are to do again, the commits of the undo, and what could not be done."""

    tasks: tuple[str, ...]
    commits: str
    remarks: tuple[str, ...]


class RoadmapRuns:
    def __init__(self, pipeline: Pipeline, workspace: str, user: str, opening: Opening, warn: Callable[[str], None]):
        self._pipeline, self._workspace, self._user, self._opening = pipeline, workspace, user, opening
        self._warn = warn
        self.listeners = Listeners(warn)

    # ── drive ──

    def start(
        self, roadmap: str = "", options: RunOptions = _PLAIN, crew: Crew = _ALONE, *, yes: bool = False,
        database: str = "",
    ) -> RunRecord:  # fmt: skip
        """A new run, until it ends or is stopped."""
        path, _, chosen = self._chosen(roadmap, options, crew.agents)
        with self._alone():
            self._require_none_killed()
            run = begin_run(self._pipeline, RunRecord("", path, chosen, by=self._user, yes=yes))
        try:
            return self._go(run, crew, database)
        except Locked:
            book = TaskBook(self._pipeline, run, lambda event: None)
            if not book.records:  # another one began in between, so this one never did
                book.move_run("STOPPED", "another run was under way")
            raise

    def preview(self, roadmap: str = "", options: RunOptions = _PLAIN) -> Preview:
        """What `start` would do; nothing is written, not even that somebody asked."""
        path, read, chosen = self._chosen(roadmap, options, {})
        return preview_of(path, read, chosen, lambda task: self._routed(chosen, task))

    def resume(self, id: str = "", crew: Crew = _ALONE, *, yes: bool | None = None, database: str = "") -> RunRecord:
        """The newest run, or that one, from where it was; nothing left to do is fine."""
        run = self.find(id)
        if yes is not None:
            run = run._replace(yes=yes)
        if run.state == "FINISHED":
            return run
        self._require_none_killed(besides=run.id)
        return self._go(run, crew, database)

    def _chosen(
        self, roadmap: str, options: RunOptions, agents: Mapping[str, Agent]
    ) -> tuple[str, Roadmap, RunOptions]:
        """S3."""
        path = find_roadmap(self._pipeline.site, roadmap)
        read = RoadmapFile(self._pipeline.site, path).read()[1]
        if not read.tasks:
            raise InvalidInput(f"{path} has no tasks", hint="See docs/reference/roadmaps.md for what is read as one.")
        if options.agent not in (AUTO, *agents):
            self._require_usable(options.agent)
        return path, read, options._replace(only=tuple(task_named(read, word) for word in options.only))

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

    def _require_usable(self, name: str) -> None:
        settings = self._pipeline.governance.settings()
        health = readiness(agent_named(name, settings), settings).health
        if not health.usable:
            raise InvalidInput(f"{name} cannot be given work: {health.why_not}", hint=health.hint)

    def _require_none_killed(self, besides: str = "") -> None:
        """S4. One that is being driven is found by its lock."""
        rows = Runs(self._pipeline.records).runs()
        killed = next((row for row in rows if row.state == "RUNNING" and row.id != besides), None)
        if killed is not None:
            raise Blocked(
                f"the run {killed.id} over {killed.roadmap} was interrupted, and is not settled",
                hint=f"Go on with it first: holdfast resume {killed.id}",
            )

    def _go(self, run: RunRecord, crew: Crew, database: str) -> RunRecord:
        log = RunLog(self._pipeline.site.state, self._warn)
        watcher = _serial((log, self.listeners, crew.watcher))
        settings = self._pipeline.governance.settings()
        outfit = Outfit(
            workspace=self._workspace,
            database=Database(self._pipeline.site.state.path, database),
            opened=lambda: self._opening(self._pipeline.site.path),
            ground=Grounds(self._pipeline.site.path, self._opening),
            checkpoint=checkpoint_of,
            route=lambda task: self._routed(run.options, task),
            agents=crew.agents,
            others=tuple(agent.name for agent in settings.agents),
            watcher=watcher,
            export=lambda book, roadmap: log.settled(book.run, roadmap, book.records),
            stop=lambda: crew.stop() or self._stop_asked(run.id),
            warn=self._warn,
            person=crew.person,
            mirrored=run.options.parallel > 1,
        )
        with self._alone():
            self._forget_stop(run.id)  # S2: it was about an earlier sitting
        try:
            return go(self._pipeline, run, outfit)
        finally:
            self._forget_stop(run.id)

    def _routed(self, options: RunOptions, task: Task) -> str:
        if options.agent != AUTO:
            return options.agent
        decisions = read_decisions(self._pipeline.site)
        id = task.id if decision_for(task.id, decisions) is not None else task.number
        return routed(self._pipeline, f"{task.title}\n{task.body}", id, decisions).agent

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
        words = (run.id, self._user, _NOW if now else "")
        replace_file(self._pipeline.site.state, _STOP, "\n".join(words).encode())
        return run

    def stop_now_asked(self, run: str) -> bool:
        """Whether somebody wants its process to end at once. A run cannot do that to its caller; the caller can."""
        return self._stop_words(run)[2:] == [_NOW]

    def answer(self, task: str, *, yes: bool, skip: bool = False, reason: str = "", run: str = "") -> Said:
        """A person's word about a task that waits for one; it is in the ledger when this returns."""
        found = self.find(run)
        said = Said(found.id, self.resolve(task, found.id), yes, skip, self._user, reason, time.time_ns())
        self._pipeline.note_run([Record(ANSWER, answer_body(said), said.at_ns)])
        return said

    def again(self, tasks: Sequence[str], run: str = "", because: str = "") -> list[TaskRecord]:
        """Let tasks that ended start anew; those that landed are refused: undo them first."""
        with self._alone():
            found = self.find(run)
            book = TaskBook(self._pipeline, found, lambda event: None)
            chosen = [book.of(self.resolve(task, found.id)) for task in tasks]
            self._require_free(chosen)
            return self._moved_back(book, chosen, because or f"{self._user} asked for it again")

    def _require_free(self, chosen: Sequence[TaskRecord]) -> None:
        landed = [record.task for record in chosen if record.state == "COMPLETED" and self._stands(record)]
        if landed:
            raise InvalidInput(f"{', '.join(landed)} landed", hint=f"Undo it first: holdfast undo {landed[0]}")
        begun = [record.task for record in chosen if record.state in ("IN_PROGRESS", "VALIDATING") or record.landing]
        if begun:
            raise Blocked(f"{', '.join(begun)}: begun, and not settled", hint="Go on with it first: holdfast resume")

    def _moved_back(self, book: TaskBook, chosen: Sequence[TaskRecord], because: str) -> list[TaskRecord]:
        """To PENDING, with those that were blocked: whether they still are is found out by the driver."""
        fresh = {"state": "PENDING", "because": because, "wait_until_ns": 0, "simulation": "", "proposal": ""}
        moved = [record._replace(**fresh, cleared_by="", part=0, parts=0) for record in chosen]  # type: ignore[arg-type]
        names = {record.task for record in chosen}
        freed = [
            record._replace(state="PENDING", because="what it needs is tried again")
            for record in book.in_state("BLOCKED")
            if record.task not in names
        ]
        wanted = [record for record in (*moved, *freed) if record.state != book.of(record.task).state]
        book.move_all((record, None) for record in wanted)
        if wanted and book.run.state == "FINISHED":
            book.move_run("STOPPED", because)  # there is something left to do, so `resume` does it
        return moved

    def sync(self, id: str = "") -> bool:
        """Bring the boxes of the roadmap in line with what stands; whether one was set."""
        standing = self.standing(id)
        wanted = {task: self._stands(record) for task, record in standing.records.items() if record.execution}
        return RoadmapFile(self._pipeline.site, standing.run.roadmap).tick(self._pipeline, wanted, self._user)

    # ── go back ──

    def require_undoable(self, execution: str) -> None:
        """Locked while a run goes on, for executions of tasks: what agents work over must not change below them."""
        if landed_by(self._pipeline.records, execution):
            with self._alone():
                return

    def taken_back(self, execution: str, undo: str) -> TakenBack:
        """After the undo of an execution that landed tasks: boxes, a commit of its own, and the tasks are to do again.

        Done twice it is done once, so a kill in between costs nothing but asking again.
        """
        records = landed_by(self._pipeline.records, execution)
        if not records:
            return TakenBack((), "", ())
        with self._alone():
            run, names, remarks = self.find(records[0].run), [record.task for record in records], list[str]()
            file, done = RoadmapFile(self._pipeline.site, run.roadmap), dict.fromkeys(names, False)
            if run.options.sync:
                _tried(remarks, "the box stays ticked", lambda: file.tick(self._pipeline, done, self._user))
            commits: list[str] = []
            if records[0].commit:
                undone = records[0]
                _tried(
                    remarks,
                    "not committed",
                    lambda: commits.append(checkpoint_undo(self._pipeline, undone, undo, run.roadmap)),
                )
            self._moved_back(TaskBook(self._pipeline, run, lambda event: None), records, f"{undo} took it back")
        return TakenBack(tuple(names), "".join(commits), tuple(remarks))

    # ── small answers ──

    def resolve(self, task: str, run: str) -> str:
        """A task by its id, the beginning of it, or the number it has in the roadmap."""
        standing = self.standing(run)
        return task_named(standing.roadmap, task, standing.records)

    def _stands(self, record: TaskRecord) -> bool:
        return record.state == "COMPLETED" and (
            not record.execution or self._pipeline.records.row(record.execution).live
        )

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

    def _stop_asked(self, run: str) -> str:
        words = self._stop_words(run)
        return f"{words[1]} {_ASKED}" if words else ""

    def _stop_words(self, run: str) -> list[str]:
        """The run, who asked, and whether at once; empty where nobody asked for the end of this run."""
        asked = (read_file(self._pipeline.site.state, _STOP, _MOST_STOP) or b"").decode("utf-8", "replace").split("\n")
        return asked if asked[0] == run and len(asked) > 1 else []

    def _forget_stop(self, run: str) -> None:
        if self._stop_asked(run):
            replace_file(self._pipeline.site.state, _STOP, b"")


def stopped_by_a_person(run: RunRecord) -> bool:
    """It was asked for from another terminal."""
    return run.state == "STOPPED" and run.because.endswith(_ASKED)


def _serial(watchers: Sequence[RunWatcher]) -> RunWatcher:
    """Events come from the driver and from every agent's thread; those who look on get them one at a time."""
    lock = threading.RLock()

    def watch(event: RunEvent) -> None:
        with lock:
            for watcher in watchers:
                watcher(event)

    return watch


def _tried(remarks: list[str], what: str, act: Callable[[], object]) -> None:
    """What was taken back is taken back, whatever fails after it."""
    try:
        act()
    except (HoldfastError, OSError) as error:
        remarks.append(f"{what}: {error}")
