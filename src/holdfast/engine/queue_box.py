"""Taking a file out of a queue: it is moved aside by the one transaction that changes the workspace, or not at all.

    inbox/tasks.json ──take──▶ inbox/taken/f-….json          the roadmap of the run
                     └─refuse─▶ inbox/refused/….json, ….txt   and why

Invariants
  X1  A file is moved under a name of ours; what it was called is only ever shown.
  X2  What is moved is what was read: another inode, size or time of change, and it is not taken.
  X3  A take that was done before is done: killed between the move and the start, the file is found where it was put.
  X4  What Holdfast itself put there last is nobody's wish for a run. That is known from the logs of what landed, read
      when a file is found and again, while nothing lands, when it is taken; where a log that could tell was
      collected, it is taken for ours.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from holdfast.disk.confined import Root
from holdfast.engine.job import Job
from holdfast.engine.pipeline import Pipeline
from holdfast.errors import UnknownId
from holdfast.model.execution import LEFT_SOMETHING
from holdfast.model.image import Seen
from holdfast.model.path import printable
from holdfast.model.plan import Inline, Move, Plan, Step, Write
from holdfast.model.trigger import Firing
from holdfast.model.trigger_settings import TriggerSettings
from holdfast.simulation.rehearsal import rehearse
from holdfast.workspace.ignored import tracked_paths
from holdfast.workspace.observe import observe
from holdfast.workspace.undo import read_past

REFUSED = "refused"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LANDED = "Holdfast put it there, and what lands starts no run"
_GONE = "the file is gone"
_OTHER = "the file was changed after it was read"

_Found = TypeVar("_Found")


class Identity(NamedTuple):
    """Which file it is, and in which state: inode, size, time of the last change of its bytes."""

    inode: int
    size: int
    mtime_ns: int

    def packed(self) -> bytes:
        return " ".join(map(str, self)).encode("ascii")


class Box:
    """Moves files aside; `by` is who the records name for it."""

    def __init__(self, pipeline: Pipeline, by: str) -> None:
        self._pipeline = pipeline
        self._by = by

    def take(self, firing: Firing, root: Root) -> str:
        """Move it to where the run finds it (`firing.roadmap`); why it cannot be had any more, or empty."""
        with self._pipeline.locked():  # nothing lands: what stands there was landed, and is in the log, or was not
            here = _identity(root, firing.what)
            if here is None:
                return "" if _identity(root, firing.roadmap) is not None else _GONE  # X3
            if here.packed() != firing.body:
                return _OTHER
            if self.is_landed(firing.what, root):
                return LANDED
        self._carry_out(f"Take {printable(firing.what)} from the queue", Move(firing.what, firing.roadmap))
        return ""

    def is_tracked(self, path: str) -> bool:
        """Is it part of a repository? Blocked when git cannot say."""
        return bool(tracked_paths(self._pipeline.site, [path]))

    def is_landed(self, path: str, root: Root) -> bool:
        """Does it hold what Holdfast put there (X4)? Of a landing that goes on, only `take` can know."""
        seen = _seen(root, path)
        if seen is None:
            return False  # it is gone, and so is the question
        last = self._put_last(path, seen.stamp.ctime_ns)
        return last is None or last == seen.image.digest

    def _put_last(self, path: str, ctime_ns: int) -> str | None:
        """The digest of what was put there by the newest execution that touched it, empty where it was taken away or
        never touched; None where the log is gone of one that may have put there what stands since `ctime_ns`."""
        for row in self._pipeline.records.executions():
            if not (row.landed or row.status in LEFT_SOMETHING) or not row.changes:
                continue  # it was taken back, and left nothing
            try:
                ops = read_past(self._pipeline.site, row.id).log.ops
            except UnknownId:
                if row.at_ns >= ctime_ns:
                    return None
                continue
            for op in reversed(ops):
                if op.path == path:
                    return op.post.image.digest if op.post is not None else ""
        return ""

    def refuse(self, settings: TriggerSettings, path: str, why: str) -> str:
        """Put it aside with the reason beside it; where it is now."""
        salt = os.urandom(4).hex()
        name = f"{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}-{salt}"
        place = f"{settings.queue}/{REFUSED}/{name}"
        reason = f"{printable(path)}\n{printable(why)}\n".encode()
        steps = Move(path, f"{place}.json"), Write(f"{place}.txt", Inline(reason), 0o644)
        self._carry_out(f"Put {printable(path)} aside: it is no task queue", *steps)
        return f"{place}.json"

    def _carry_out(self, intent: str, *steps: Step) -> None:
        plan = Plan(intent, steps)
        self._pipeline.site.workspace.forget()
        found = rehearse(self._pipeline.site, plan)
        self._pipeline.simulator.remember(plan)
        job = Job(intent, plan.id, plan.digest, found.change_set, found.seen, found.sources, found.steps)
        self._pipeline.execute(job, approved_by=self._by)
        self._pipeline.raise_failure()


def _identity(root: Root, path: str) -> Identity | None:
    def look(folder: int, name: str) -> Identity:
        about = root.calls.stat(name, dir_fd=folder, follow_symlinks=False)
        return Identity(about.st_ino, about.st_size, about.st_mtime_ns)

    return _looked_at(root, path, look)


def _seen(root: Root, path: str) -> Seen | None:
    return _looked_at(root, path, lambda folder, name: observe(root.calls, folder, name, wait=False))


def _looked_at(root: Root, path: str, look: Callable[[int, str], _Found]) -> _Found | None:
    """What `look` finds under this name in this directory; None where nothing can be looked at."""
    above, _, name = path.rpartition("/")
    try:
        folder = root.calls.open_beneath(above, _FOLDER, root.fd)
    except OSError:
        return None
    try:
        return look(folder, name)
    except OSError:
        return None
    finally:
        root.calls.close(folder)
