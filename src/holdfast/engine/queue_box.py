"""Taking a file out of a queue: it is moved aside by the one transaction that changes the workspace, or not at all.

    inbox/tasks.json ──take──▶ inbox/taken/f-….json          the roadmap of the run
                     └─refuse─▶ inbox/refused/….json, ….txt   and why

Invariants
  X1  A file is moved under a name of ours; what it was called is only ever shown.
  X2  What is moved is what was read: another inode, size or time of change, and it is not taken.
  X3  A take that was done before is done: killed between the move and the start, the file is found where it was put.
"""

from __future__ import annotations

import hashlib
import os
from typing import NamedTuple

from holdfast.disk.confined import Root
from holdfast.engine.job import Job
from holdfast.engine.pipeline import Pipeline
from holdfast.model.path import printable
from holdfast.model.plan import Inline, Move, Plan, Step, Write
from holdfast.model.trigger import Firing
from holdfast.model.trigger_settings import TriggerSettings
from holdfast.simulation.rehearsal import rehearse
from holdfast.workspace.ignored import tracked_paths

REFUSED = "refused"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_GONE = "the file is gone"
_OTHER = "the file was changed after it was read"


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
        here = _identity(root, firing.what)
        if here is None:
            return "" if _identity(root, firing.roadmap) is not None else _GONE  # X3
        if here.packed() != firing.body:
            return _OTHER
        self._carry_out(f"Take {printable(firing.what)} from the queue", Move(firing.what, firing.roadmap))
        return ""

    def is_tracked(self, path: str) -> bool:
        """Is it part of a repository? Blocked when git cannot say."""
        return bool(tracked_paths(self._pipeline.site, [path]))

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
    above, _, name = path.rpartition("/")
    try:
        folder = root.calls.open_beneath(above, _FOLDER, root.fd)
    except OSError:
        return None
    try:
        about = root.calls.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    finally:
        root.calls.close(folder)
    return Identity(about.st_ino, about.st_size, about.st_mtime_ns)
