"""The roadmap as a file of the workspace: read whenever it changed, ticked in place, never overwritten.

Invariants
  M1  A tick changes check boxes and nothing else, and only if the file still holds the bytes it was made from;
      a person who saves at the same moment wins, and the tick is made again from what they saved.
  M2  Ticks follow from the book, so whatever a crash or a person left is put right by ticking again.

Whoever only reads must start fast: what ticks is imported when something is ticked.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.engine.other_workspaces import OtherWorkspaces
from holdfast.errors import Blocked, Conflict, HoldfastError, InvalidInput
from holdfast.intake.roadmap import parse, tickable, ticked
from holdfast.model.path import checked_path, printable
from holdfast.model.task import Roadmap
from holdfast.store.own_settings import settings_of
from holdfast.workspace.site import Site

if TYPE_CHECKING:
    from holdfast.engine.job import Job
    from holdfast.engine.pipeline import Pipeline

NAMES = ("ROADMAP.md", "roadmap.md", "tasks.md", "TODO.md", "task_queue.json", ".taskmaster/tasks/tasks.json")
MOST_BYTES = 8 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_PIECE = 1 << 20
_TRIES = 5
_MOST_NAMED, _BETWEEN = 5, ", "
# Two saves within the grain of a file system's clock look like one.
_YOUNG_NS = 2_000_000_000


class RoadmapFile:
    """One roadmap; `path` is relative to the workspace."""

    def __init__(self, site: Site, path: str) -> None:
        self._site = site
        self.path = checked_path(path)
        self._known: tuple[tuple[int, ...], bytes, Roadmap] | None = None
        self._others = OtherWorkspaces(lambda: dict(settings_of(site.path).run.workspaces), NAMES, MOST_BYTES)
        self._told: Roadmap | None = None

    def read(self) -> tuple[bytes, Roadmap]:
        """The file as it is now; parsed again only when it changed, and the same Roadmap until then. Tasks that wait
        for another workspace are held back in it."""
        fd = self._opened()
        try:
            about = self._site.calls.fstat(fd)
            if not stat.S_ISREG(about.st_mode):
                raise InvalidInput(f"{printable(self.path)} is not a regular file")
            if about.st_size > MOST_BYTES:
                raise InvalidInput(f"{printable(self.path)} is larger than {MOST_BYTES >> 20} MiB")
            mark = (about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
            known = self._known
            if known is None or known[0] != mark or time.time_ns() - about.st_mtime_ns < _YOUNG_NS:
                data = self._whole(fd)
                self._known = mark, data, known[2] if known and known[1] == data else self._parsed(data)
        finally:
            self._site.calls.close(fd)
        assert self._known is not None
        self._told = self._others.with_held(self._known[2], self._told)
        return self._known[1], self._told

    def _parsed(self, data: bytes) -> Roadmap:
        """Prose has no tasks of its own; what an agent made of it once is what it says (see `normalising`)."""
        found = parse(data, self.path)
        if found.format != "prose":
            return found
        from holdfast.engine.normalising import kept_roadmap

        return kept_roadmap(self._site, data) or found

    def forget(self) -> None:
        """Read it again next time, whatever its stamps say."""
        self._known = None

    def tick(self, pipeline: Pipeline, done: Mapping[str, bool], by: str) -> bool:
        """Set these boxes; False where nothing was to be done. Conflict when a person keeps writing (M1)."""
        for _ in range(_TRIES):
            data, _ = self.read()
            known = tickable(data, self.path)
            wanted = {id: state for id, state in done.items() if id in known}
            after = ticked(data, self.path, wanted) if wanted else data
            if after == data:
                return False
            try:
                job = self._job(pipeline, data, after, wanted)
                pipeline.execute(job, approved_by=by)
                pipeline.raise_failure()
                pipeline.simulator.checking.carry_over(job.change_set)
                return True
            except (Conflict, Blocked):
                self._known = None  # it is not what it was; look again
        raise Conflict(f"{printable(self.path)} keeps changing, so it was not ticked", hint="Later: holdfast sync")

    def _job(self, pipeline: Pipeline, before: bytes, after: bytes, done: Mapping[str, bool]) -> Job:
        from holdfast.engine.job import Job
        from holdfast.model.plan import Inline, Plan, Update
        from holdfast.simulation.rehearsal import rehearse

        names = _BETWEEN.join(sorted(done)[:_MOST_NAMED])
        plan = Plan(f"{tick_of(self.path)}{names}", (Update(self.path, before, Inline(after)),))
        found = rehearse(pipeline.site, plan)
        pipeline.simulator.remember(plan)
        return Job(plan.intent, plan.id, plan.digest, found.change_set, found.seen, found.sources, found.steps)

    def _opened(self) -> int:
        self._site.workspace.forget()
        try:
            return self._site.calls.open_beneath(self.path, _READ, self._site.workspace.fd)
        except FileNotFoundError:
            raise InvalidInput(f"there is no {printable(self.path)} in the workspace") from None
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise InvalidInput(
                    f"{printable(self.path)} is a symbolic link, or lies behind one; links are not followed here",
                    hint="Nothing was changed. Name the file itself, inside the workspace.",
                ) from None
            raise InvalidInput(f"{printable(self.path)} cannot be read: {error.strerror}") from error

    def _whole(self, fd: int) -> bytes:
        pieces = []
        while piece := self._site.calls.read(fd, _PIECE):
            pieces.append(piece)
        return b"".join(pieces)


def tick_of(path: str) -> str:
    """How the intent of an execution begins that sets boxes of this roadmap."""
    return f"Tick {printable(path)}: "


def set_box(intent: str, path: str, task: str) -> bool:
    """Whether an execution with this intent set the box of that task. Of many only the first are named, in order."""
    if not intent.startswith(tick_of(path)):
        return False
    names = intent.removeprefix(tick_of(path))
    cut = names.count(_BETWEEN) >= _MOST_NAMED - 1 and task > names.rpartition(_BETWEEN)[2]
    return cut or f"{_BETWEEN}{task}{_BETWEEN}" in f"{_BETWEEN}{names}{_BETWEEN}"


def find_roadmap(site: Site, given: str = "") -> str:
    """The path that was given, relative to the workspace; without one, the first of the usual names that is there."""
    if given:
        return _inside(site, given)
    unread: HoldfastError | None = None
    for name in NAMES:
        try:
            RoadmapFile(site, name).read()
            return name
        except HoldfastError as error:
            if unread is None and os.path.lexists(os.path.join(site.path, name)):
                unread = error
    if unread is not None:
        raise unread  # "there is none" would not be so
    raise InvalidInput("there is no roadmap here", hint=f"Name one, or write one of: {', '.join(NAMES)}")


def _inside(site: Site, given: str) -> str:
    """Relative to where the person is, if they are in the workspace, and to the workspace otherwise."""
    absolute = os.path.abspath(given)
    root = os.path.realpath(site.path)
    for base in (site.path, root, site.seen_at):
        if absolute.startswith(base.rstrip("/") + "/"):
            return checked_path(os.path.relpath(absolute, base))
    if not os.path.isabs(given):
        return checked_path(given)  # asked from elsewhere, it is a path of the workspace
    raise InvalidInput(
        f"{printable(given)} is outside of the workspace", hint="The roadmap is a file of the workspace."
    )
