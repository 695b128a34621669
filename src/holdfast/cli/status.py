"""holdfast status: how the workspace stands. Also while somebody else is at work in it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.closed import closed_as_failed
from holdfast.cli.documents import row_document
from holdfast.cli.moments import clock_time, for_people, for_programs
from holdfast.cli.opening import opened, tell_recovery
from holdfast.cli.screen import shown
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count, duration, state, unverified
from holdfast.errors import HoldfastError, Locked
from holdfast.model.path import printable
from holdfast.wiring import Holdfast

if TYPE_CHECKING:
    from holdfast.model.task import TaskRecord


_MOST_LATER = 3


class Trouble(NamedTuple):
    code: str
    message: str
    hint: str


@verb(name="status")
def command(face: Face) -> int:
    """Say how the workspace stands: last execution, tree digest, open trouble."""
    screen = face.screen
    locks = _Locks()
    with opened(face) as hf:
        trouble = _trouble(face, hf, locks)
        tree = hf.tree()
        rows = hf.log(limit=1)
        doubt = hf.unverified(rows[0].at_ns).get(rows[0].id, "") if rows else ""
        busy = _busy(hf, locks)
        closed = closed_as_failed(hf)
        unreadable = tree.problems()
        run = _run(hf)
        branches = [] if hf.site.is_branch else hf.branches()
        path, id, digest, entries = hf.path, hf.id, tree.digest, tree.count
    screen.answer(
        {
            "kind": "status",
            "id": id,
            "status": "trouble" if trouble else "busy" if busy else "clean",
            "path": path,
            "tree": {"digest": digest, "entries": entries, "unreadable": [item.path for item in unreadable]},
            "last": {**row_document(rows[0]), "unverified": doubt} if rows else None,
            "closed_as_failed": closed.document() if closed is not None else None,
            "at_work": busy or None,
            "run": run.document if run is not None else None,
            "branches": branches,
            "trouble": [item._asdict() for item in trouble],
        }
    )
    screen.say(f"Workspace  {printable(path)} ({id})")
    if rows:
        row = rows[0]
        intent = shown(row.intent.strip().partition("\n")[0])
        screen.say(f"Last       {row.id} {state(row)} {for_people(row.at_ns)}: {intent}")
        if doubt:
            screen.say(f"           {unverified(doubt)}")
    screen.say(f"Tree       {digest[:16]}…, {count(entries, 'entry', 'entries')}")
    if run is not None:
        screen.say(screen.way(f"Run        {shown(run.words)}"))
        for words in run.later[:_MOST_LATER]:
            screen.say(f"Later      {shown(words)}")
        if len(run.later) > _MOST_LATER:
            screen.say(f"           and {len(run.later) - _MOST_LATER:,} more: holdfast tasks")
    for name in branches:
        screen.say(f"Branch     {shown(name)}: holdfast --branch {shlex.quote(name)} status")
    if unreadable:
        screen.say(f"Unreadable {printable(unreadable[0].path)} and others: {count(len(unreadable), 'path')} in all")
    if busy:
        screen.say(f"At work    {shown(busy)}")
    if closed is not None:
        screen.say(f"Failed     {closed.id} is closed; what it left is yours to put right:")
        for line in closed.lines():
            screen.say(f"           {line}")
    for item in trouble:
        screen.say(screen.style(f"Trouble    {shown(item.message)}", "red"))
        for line in item.hint.splitlines():
            screen.say(f"           {shown(line)}")
    if not trouble:
        free = "Nothing is open." if closed is None else "Nothing waits: the next change can be made."
        screen.say(free if not busy else "Another process is at work; what it does is not counted yet.")
    return 0


class _Run(NamedTuple):
    """The run that moved last."""

    words: str
    document: dict[str, object]
    later: tuple[str, ...] = ()


def _run(hf: Holdfast) -> _Run | None:
    """None where there was never one; whether it is alive is what its heartbeat says."""
    from holdfast.store.runs import Runs

    rows = Runs(hf.records).runs(limit=1)
    if not rows:
        return None
    from time import time_ns

    from holdfast.engine.answers import settled_answer
    from holdfast.engine.pulse import read_pulse
    from holdfast.engine.run_standing import resume_with
    from holdfast.settlement.runs import run_from, task_records

    run, found = rows[0], read_pulse(hf.site.state)
    pulse = found if found is not None and found.run == run.id else None
    life = pulse.life(time_ns()) if pulse is not None else "gone" if run.state == "RUNNING" else "ended"
    records = task_records(Runs(hf.records), run.id)
    later = _later(records.values(), time_ns())
    answered = sum(settled_answer(hf.records, record) is not None for record in records.values())
    states = [record.state for record in records.values()]
    counted = {name: states.count(name) for name in dict.fromkeys(states)}
    document: dict[str, object] = {
        "id": run.id,
        "roadmap": run.roadmap,
        "state": run.state,
        "life": life,
        "tasks": counted,
        "answered": answered,
        "later": [
            {"task": task.task, "because": task.because, "not_before": for_programs(task.wait_until_ns)}
            for task in later
        ],
    }
    waiting = counted.get("NEEDS_REVIEW", 0) - answered
    landed = sum(record.state == "COMPLETED" and bool(record.execution) for record in records.values())
    before = counted.get("COMPLETED", 0) - landed
    about = f"{run.id} over {run.roadmap}"
    doubts = [record.unverified for record in records.values() if record.state == "COMPLETED" and record.unverified]
    document["unverified"] = len(doubts)
    done = f"{landed:,} landed" + (f", {len(doubts):,} {unverified(doubts[0])}" if doubts else "")
    done += f", {before:,} done before" if before else ""
    done += f", {waiting:,} wait for you (holdfast review)" if waiting else ""
    done += f", {answered:,} answered" if answered else ""
    if pulse is not None and life in ("alive", "silent"):
        worked_ms = pulse.worked_at(time_ns())
        document |= {"pid": pulse.process.pid, "running": pulse.running, "worked_ms": worked_ms}
        document |= {"waiting": pulse.waiting, "database_away_since": _moment(pulse.away_ns)}
        silent = "; its process is silent" if life == "silent" else ""
        away = ""
        if pulse.away_ns:
            until = clock_time(pulse.away_until_ns)
            away = f"; its database is away since {clock_time(pulse.away_ns)}, and waited for until {until}"
        at_work = f"{pulse.running:,} at work" + (f", {pulse.waiting:,} in line" if pulse.waiting else "")
        words = f"{about} is under way: {at_work}, {done}, {duration(worked_ms)} so far{silent}{away}"
        return _Run(words, document, tuple(map(_told_later, later)))
    word = "was interrupted" if run.state == "RUNNING" else f"is {run.state.lower()}: {done}"
    if run.state in ("RUNNING", "STOPPED", "LIMIT") or (answered and not waiting):
        word += f"; go on with: {resume_with(run_from(run.document))}"
    return _Run(f"{about} {word}", document, tuple(map(_told_later, later)))


def _moment(at_ns: int) -> str | None:
    return for_programs(at_ns) if at_ns else None


def _later(records: Iterable[TaskRecord], now_ns: int) -> list[TaskRecord]:
    """Tasks that are tried again by themselves, and not yet; the next one first."""
    waiting = (record for record in records if record.state in ("PENDING", "DEFERRED"))
    return sorted((record for record in waiting if record.wait_until_ns > now_ns), key=lambda task: task.wait_until_ns)


def _told_later(record: TaskRecord) -> str:
    return f"{record.task}, not before {clock_time(record.wait_until_ns)}: {record.because}"


class _Locks:
    """The kernel's table of locks, read beside all else: the kernel stops all locking for it, which takes a while.

    Looked up, not tried: a try could make somebody else's change fail.
    """

    def __init__(self) -> None:
        self.ask()

    def ask(self) -> None:
        self._lines: list[str] = []
        self._error: OSError | None = None
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def has(self, inode: int) -> bool:
        """Was there a lock on this file when the kernel was asked?"""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return any(_is_lock_on(line.split(), inode) for line in self._lines)

    def _read(self) -> None:
        try:
            with open("/proc/locks", encoding="utf-8") as table:
                self._lines = table.readlines()
        except OSError as error:
            self._error = error


def _trouble(face: Face, hf: Holdfast, locks: _Locks) -> list[Trouble]:
    """What stands in the way of the next change: that would begin by repairing, so what stops the repair stops it."""
    try:
        hf.require_whole_ledger()
        if not hf.needs_recovery():
            return []
        try:
            tell_recovery(face.screen, hf.recover())
        except Locked:
            return []  # somebody is at work: what looks unfinished is simply not finished
        finally:
            locks.ask()  # anew: a repair takes the lock itself
    except (HoldfastError, OSError) as error:
        from holdfast.cli.no_room import as_disk_full

        told = as_disk_full(error) or error
        if isinstance(told, OSError):
            raise
        return [Trouble(told.code, told.message, told.hint)]
    return []


def _busy(hf: Holdfast, locks: _Locks) -> str:
    """Who holds the lock, if anybody."""
    try:
        if not locks.has(os.stat(os.path.dirname(hf.lock_path)).st_ino):
            return ""
        with open(hf.lock_path, encoding="ascii", errors="replace") as lock:
            return f"another holdfast ({lock.read(120).strip()})"
    except FileNotFoundError:
        return ""


def _is_lock_on(fields: list[str], inode: int) -> bool:
    """`1: FLOCK  ADVISORY  WRITE 4711 fd:01:131 0 EOF`; the number after the last colon is the inode."""
    return "FLOCK" in fields and any(field.endswith(f":{inode}") for field in fields[4:])
