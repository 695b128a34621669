"""Rehearse a plan: every step in order over a draft, each precondition met or the whole plan blocked.

No step is skipped, combined, reordered or added; the reports are one a step, in the plan's order.
The outcome is a change set with everything the transaction needs to carry it out, and nothing has changed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol, assert_never

from blake3 import blake3

from holdfast.disk.calls import CALLS
from holdfast.disk.holes import pieces
from holdfast.errors import Blocked, Denied, InvalidPath
from holdfast.model.changeset import ChangeSet
from holdfast.model.check import quoted
from holdfast.model.execution import Receipt
from holdfast.model.image import Image, Seen, has_special_rights
from holdfast.model.path import ancestors_of, checked_path, printable
from holdfast.model.plan import (
    Agent,
    Chmod,
    Content,
    Create,
    Delete,
    Digested,
    FileStep,
    FromFile,
    Inline,
    Move,
    Plan,
    ProgramStep,
    Read,
    Run,
    Service,
    Step,
    Symlink,
    Update,
    Write,
    step_id,
    worded,
)
from holdfast.model.simulation import Simulation
from holdfast.model.words import counted
from holdfast.simulation.draft import NEW_DIRECTORY_MODE, Draft, Node
from holdfast.simulation.report import target_of
from holdfast.workspace.site import Site
from holdfast.workspace.staging import (
    Bytes,
    CopyOf,
    Source,
    refuse_forbidden,
    refuse_layered_directories,
    refuse_shared_inodes,
)

NEW_FILE_MODE = 0o644
_PERMISSIONS = 0o777
_PROGRESS_EVERY = 256
_CORRECT = "Nothing was changed. Correct the plan, or the workspace, and try again."
_NO_BYTES = "the plan's contents are no longer kept; read the change file again"


class StepReport(NamedTuple):
    """What the rehearsal of one step found."""

    number: int
    operation: str
    target: str
    precondition_met: bool
    detail: str
    started_ns: int
    completed_ns: int
    affected: tuple[str, ...] = ()
    receipt: Receipt | None = None

    @property
    def step_id(self) -> str:
        return step_id(self.number)


class Ran(NamedTuple):
    """What one command came to, in the shadow."""

    detail: str
    affected: tuple[str, ...]
    receipt: Receipt


class Rehearsal(NamedTuple):
    plan: Plan
    change_set: ChangeSet
    seen: dict[str, Seen]
    sources: dict[str, Source]
    steps: tuple[StepReport, ...]


class Unrehearsable(Blocked):
    """A plan that cannot be done; `steps` says how far it came, and `report` is the simulation that found it."""

    def __init__(self, message: str, steps: tuple[StepReport, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint or _CORRECT)
        self.steps = steps
        self.report: Simulation | None = None


class TooMuch(Unrehearsable):
    """What a program made is more than policy admits: found before any of it is kept."""

    code = Denied.code
    exit_status = Denied.exit_status


# Raises Blocked for an effect that cannot even begin on this host; more about it nobody can tell beforehand.
RequireMeans = Callable[[Service], None]


class RunsSteps(Protocol):
    """Where commands are run and agents work for real; see `workshop`."""

    def run(self, draft: Draft, step: ProgramStep) -> Ran: ...


def rehearse(
    site: Site,
    plan: Plan,
    progress: Callable[[str, int, int], None] | None = None,
    workshop: RunsSteps | None = None,
    require_means: RequireMeans = lambda step: None,
) -> Rehearsal:
    """The rehearsal, or Unrehearsable naming every step that cannot be done (the first, unless the plan continues)."""
    site.workspace.forget()
    draft = Draft(site)
    reports: list[StepReport] = []
    now = time.time_ns()
    for number, step in enumerate(plan.steps):
        if progress is not None and isinstance(step, Run):
            # Before it, since it may take as long as it likes; whoever watches agents is told by them.
            progress(f"run: {quoted(step.argv)}", number, len(plan.steps))
        report = _report(draft, number, step, now, workshop, require_means)
        reports.append(report)
        now = report.completed_ns  # which is when the next one starts
        if not report.precondition_met and plan.on_failure != "continue":
            break
        if progress is not None and not number % _PROGRESS_EVERY:
            progress("rehearse", number, len(plan.steps))
    failed = [report for report in reports if not report.precondition_met]
    if failed:
        lines = "\n".join(f"{report.step_id} ({report.operation}): {report.detail}" for report in failed)
        raise Unrehearsable(lines, tuple(reports))
    change_set, seen = draft.difference(), draft.seen
    # Of the difference and not of each step: what a later step puts right again is never changed.
    try:
        refuse_shared_inodes(change_set, seen)
        refuse_layered_directories(site, change_set)
        refuse_forbidden(site, change_set, {})
    except Blocked as error:
        raise Unrehearsable(error.message, tuple(reports), error.hint) from error
    return Rehearsal(plan, change_set, seen, draft.sources(), tuple(reports))


def _report(
    draft: Draft, number: int, step: Step, started: int, workshop: RunsSteps | None, require_means: RequireMeans
) -> StepReport:
    affected: tuple[str, ...] = ()
    receipt = None
    try:
        if isinstance(step, (Run, Agent)):
            detail, affected, receipt = _run(draft, step, workshop)
        elif isinstance(step, Service):
            require_means(step)
            detail = f"{worded(step.effect)}, after the files are in place; it cannot be rehearsed"
        else:
            detail = _perform(draft, step)
    except Blocked as error:
        target = target_of(step)
        return StepReport(number, step.action, target, False, error.message, started, time.time_ns())
    return StepReport(number, step.action, target_of(step), True, detail, started, time.time_ns(), affected, receipt)


def _run(draft: Draft, step: ProgramStep, workshop: RunsSteps | None) -> Ran:
    if workshop is None:
        raise Blocked("there is no sandbox to run programs in", hint="See: holdfast doctor")
    return workshop.run(draft, step)


def _perform(draft: Draft, step: FileStep) -> str:
    _require_plain(step)
    match step:
        case Write():
            return _write(draft, step.path, step.content, step.mode)
        case Update():
            return _update(draft, step)
        case Create():
            return _create(draft, step)
        case Delete():
            return _delete(draft, step)
        case Move():
            return _move(draft, step)
        case Chmod():
            return _chmod(draft, step)
        case Symlink():
            return _symlink(draft, step)
        case Read():
            return _read(draft, step)
    assert_never(step)


def _require_plain(step: FileStep) -> None:
    """A plan built in Python is as untrusted as one from a file: the same paths, the same permission bits."""
    for path in (step.path, step.to) if isinstance(step, Move) else (step.path,):
        if checked_path(path) != path:
            raise InvalidPath(f"{printable(path)}: a path has no trailing slash")
    mode = step.mode if isinstance(step, (Write, Update, Create, Chmod)) else None
    if mode is not None and mode & ~_PERMISSIONS:
        raise Blocked(f"{printable(step.path)}: {mode:o} is more than permission bits; Holdfast sets no others")


def _write(draft: Draft, path: str, content: Content, mode: int | None) -> str:
    there = draft.get(path)
    if there is not None and there.image.kind != "file":
        raise Blocked(f"{printable(path)} is a {there.image.kind}, not a file")
    digest, size, source = _content(content)
    if there is None:
        uid, gid = draft.owner_below(path)
        image = Image("file", NEW_FILE_MODE if mode is None else mode, uid, gid, size, digest)
    else:
        _refuse_privileged(path, there.image)
        image = there.image._replace(size=size, digest=digest, mode=there.image.mode if mode is None else mode)
    if there is not None and image.digest == there.image.digest:
        draft.put(path, there._replace(image=image))
    else:
        draft.put(path, Node(image, source))
    return "replaces the file" if there is not None else "creates the file"


def _update(draft: Draft, step: Update) -> str:
    there = draft.get(step.path)
    if there is None or there.image.kind != "file":
        raise Blocked(f"{printable(step.path)} is not there to be updated")
    if isinstance(step.old, Digested):
        raise Blocked(_NO_BYTES)
    if there.image.size != len(step.old) or blake3(step.old).hexdigest() != there.image.digest:
        raise Blocked(f"{printable(step.path)} does not hold the old content that the plan expects")
    return _write(draft, step.path, step.content, step.mode)


def _create(draft: Draft, step: Create) -> str:
    if draft.get(step.path) is not None:
        raise Blocked(f"{printable(step.path)} exists already")
    if step.directory:
        mode = NEW_DIRECTORY_MODE if step.mode is None else step.mode
        draft.put(step.path, draft.new_directory(step.path, mode))
        return "creates the directory"
    uid, gid = draft.owner_below(step.path)
    mode = NEW_FILE_MODE if step.mode is None else step.mode
    draft.put(step.path, Node(Image("file", mode, uid, gid, 0, blake3(b"").hexdigest()), Bytes(b"")))
    return "creates the empty file"


def _delete(draft: Draft, step: Delete) -> str:
    there = _existing(draft, step.path)
    if there.image.kind != "directory":
        draft.remove(step.path)
        return f"removes the {there.image.kind}"
    inside = list(draft.inside(step.path))
    within = counted(len(inside), "entry", "entries")
    if not step.recursive:
        raise Blocked(f"{printable(step.path)} is a directory with {within}; deleting it needs recursive: true")
    for path in (step.path, *inside):
        draft.remove(path)
    return f"removes the directory and {within} in it"


def _move(draft: Draft, step: Move) -> str:
    there = _existing(draft, step.path)
    if draft.get(step.to) is not None:
        raise Blocked(f"{printable(step.to)} exists already")
    if step.path in ancestors_of(step.to):
        raise Blocked(f"{printable(step.path)} cannot be moved into itself")
    inside = list(draft.inside(step.path)) if there.image.kind == "directory" else []
    for path in (step.path, *inside):
        node = draft.get(path)
        assert node is not None
        draft.put(step.to + path[len(step.path) :], node)
    for path in (step.path, *inside):
        draft.remove(path)
    return f"moves it to {printable(step.to)}"


def _chmod(draft: Draft, step: Chmod) -> str:
    there = _existing(draft, step.path)
    if there.image.kind == "symlink":
        raise Blocked(f"{printable(step.path)} is a symbolic link; links have no mode")
    _refuse_privileged(step.path, there.image)
    draft.put(step.path, there._replace(image=there.image._replace(mode=step.mode)))
    return f"changes the mode from {there.image.mode:04o} to {step.mode:04o}"


def _symlink(draft: Draft, step: Symlink) -> str:
    if not step.target or "\0" in step.target or any("\ud800" <= ch < "\udc80" for ch in step.target):
        raise Blocked(f"{printable(step.path)}: a link cannot say {printable(step.target)!r}")
    there = draft.get(step.path)
    if there is not None and there.image.kind != "symlink":
        raise Blocked(f"{printable(step.path)} is a {there.image.kind}, not a symbolic link")
    if there is not None and there.image.target == step.target:
        draft.note_read(step.path)
        return "leaves the link as it is"
    uid, gid = draft.owner_below(step.path)
    draft.put(step.path, Node(Image("symlink", 0o777, uid, gid, target=step.target), Bytes(b"")))
    return "points the link elsewhere" if there is not None else "creates the link"


def _read(draft: Draft, step: Read) -> str:
    there = _existing(draft, step.path)
    draft.note_read(step.path)
    return f"finds a {there.image.kind}"


def _existing(draft: Draft, path: str) -> Node:
    there = draft.get(path)
    if there is None:
        raise Blocked(f"{printable(path)} does not exist")
    return there


def _refuse_privileged(path: str, image: Image) -> None:
    if has_special_rights(image):
        raise Blocked(
            f"{printable(path)} runs with special rights (set-id or capability); Holdfast does not rewrite it"
        )


def _content(content: Content) -> tuple[str, int, Source]:
    if isinstance(content, Inline):
        return blake3(content.data).hexdigest(), len(content.data), Bytes(content.data)
    if isinstance(content, Digested):
        raise Blocked(_NO_BYTES)
    return _file_content(content)


def _file_content(content: FromFile) -> tuple[str, int, Source]:
    def reopened() -> int:
        return os.open(content.origin, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    ours, named, size = blake3(), hashlib.sha256(), 0
    try:
        fd = reopened()
    except OSError as error:
        raise Blocked(f"the content file {printable(content.origin)} cannot be read: {error.strerror}") from error
    try:
        for chunk in pieces(CALLS, fd):
            ours.update(chunk)
            named.update(chunk)
            size += len(chunk)
            if size > content.size:
                break  # it grew, or somebody put something endless in its place
    finally:
        os.close(fd)
    if named.hexdigest() != content.sha256:
        raise Blocked(f"the content file {printable(content.origin)} changed after the plan was read")
    return ours.hexdigest(), size, CopyOf(reopened)
