"""A patch becomes a plan: ordinary steps with the bytes they expect, for the ordinary road.

    Patch ──plan_of_patch──▶ Plan ──simulate, check, decide, approve, execute──▶ and undo, like every other

Invariants
  T1  Nothing here changes anything; the plan is all there is.
  T2  Each step names what it found: a file that is changed, copied or deleted is guarded by its whole old content,
      a new one by its absence. What moved between plan and simulation blocks the simulation.
  T3  All files of the patch apply, or there is no plan; every reason is told.
  T4  Wherever a hunk did not go exactly where it said, and whatever in the text was repaired, a note of the plan says
      so: it is shown wherever the change is shown, and a person approves it knowing.
  T5  Old contents are those of the workspace, for every file, whatever the order in the patch; only the steps are put
      into an order in which each target is free.

A directory that a deletion empties stays: git removes it, we change only what the patch names.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.errors import Blocked, InvalidInput
from holdfast.model.patch import FilePatch, Patch
from holdfast.model.patch_apply import Applied, NotApplying, apply
from holdfast.model.patch_rules import Scope, validate
from holdfast.model.patch_text import MOST_BYTES
from holdfast.model.patch_text import is_patch as is_patch
from holdfast.model.patch_text import parse as parse
from holdfast.model.path import printable
from holdfast.model.patterns import covers
from holdfast.model.plan import Chmod, Create, Delete, Inline, Move, Plan, Step, Update
from holdfast.workspace.site import Site

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_HINT = "Nothing was changed. Make the patch anew from the files as they are."
# How much a patch may be is a matter of policy (`scope_of`); that its paths are sound is not.
_ANY_AMOUNT = Scope(most_files=1 << 30, most_lines=1 << 30)


class _There(NamedTuple):
    """A file as the workspace has it."""

    data: bytes
    mode: int


class _Made(NamedTuple):
    """What becomes of one file: what must be so before the first step of all, the steps, what is worth telling."""

    file: FilePatch
    guards: tuple[Step, ...]
    steps: tuple[Step, ...]
    notes: tuple[str, ...]


def scope_of(
    may_change: Sequence[str] = (), must_not_change: Sequence[str] = (), *, limits: Scope = Scope()  # noqa: B008 (frozen)
) -> Scope:  # fmt: skip
    """A scope by patterns, as policies write them; without `may_change`, everything that is not forbidden."""
    allowed, forbidden = covers(may_change), covers(must_not_change)
    inside = (lambda path: bool(allowed.owners_of(path))) if may_change else limits.allowed
    return limits._replace(allowed=inside, forbidden=lambda path: bool(forbidden.owners_of(path)))


def plan_of_patch(site: Site, patch: Patch, intent: str) -> Plan:
    """The plan that does what the patch says to the workspace as it is; Blocked where it does not apply."""
    objections = validate(patch, _ANY_AMOUNT)
    if objections:
        raise InvalidInput("\n".join(map(str, objections)))
    site.workspace.forget()
    made: list[_Made] = []
    failed: list[str] = []
    for file in patch.files:
        outcome = _made(site, file)
        if isinstance(outcome, NotApplying):
            failed.append(_worded(file, outcome))
        else:
            made.append(outcome)
    if failed:
        raise Blocked("\n".join(failed), hint=_HINT)
    guards = tuple(dict.fromkeys(guard for one in made for guard in one.guards))
    steps = (*guards, *(step for one in _in_order(site, made) for step in one.steps))
    if not steps:
        raise Blocked("the patch changes nothing")
    repairs = [f"line {repair.line} of the patch: {repair.what}" for repair in patch.repairs]
    notes = (*repairs, *(note for one in made for note in one.notes))
    return Plan(intent, steps, notes=notes, patch=patch.digest)


def _made(site: Site, file: FilePatch) -> _Made | NotApplying:
    there = _there(site, file.old_path) if file.old_path is not None else _There(b"", 0)
    if there is None:
        return NotApplying("it is not there", line=file.at)
    outcome = apply(there.data, file)
    if isinstance(outcome, NotApplying):
        return outcome
    # The same content again: the step changes nothing, and fails where the content is another (T2).
    same = Update(file.old_path or "", there.data, Inline(there.data))
    guards = (same,) if file.kind in ("copy", "delete") else ()
    return _Made(file, guards, tuple(_steps(file, there, outcome.data)), tuple(_notes(file, outcome)))


def _steps(file: FilePatch, there: _There, new: bytes) -> Iterable[Step]:
    path, data, mode = file.path, Inline(new), _mode(file, there)
    match file.kind:
        case "change" if file.hunks:
            yield Update(path, there.data, data, mode)
        case "create":
            yield from _created(path, new, mode)
        case "delete":
            yield Delete(path)
        case "copy":
            yield from _created(path, new, there.mode if mode is None else mode)
        case "rename":
            yield Move(file.old_path or "", path)
            if file.hunks:
                yield Update(path, there.data, data, mode)
    if mode is not None and not file.hunks and file.kind in ("change", "rename"):
        yield Chmod(path, mode)


def _created(path: str, data: bytes, mode: int | None) -> Iterable[Step]:
    """Two steps, since only a creation insists that nothing is there."""
    yield Create(path, directory=False, mode=mode)
    if data:
        yield Update(path, b"", Inline(data))


def _mode(file: FilePatch, there: _There) -> int | None:
    """The mode to set: a patch knows whether a file can be executed, by those who can read it, and nothing else."""
    if file.new_mode is None or file.kind == "create":
        return file.new_mode
    if file.new_mode & 0o100:
        return there.mode | (there.mode & 0o444) >> 2
    return there.mode & ~0o111


def _in_order(site: Site, made: Sequence[_Made]) -> Iterable[_Made]:
    """First what frees a name, then who gets it (T5)."""
    waiting = list(made)
    taken = {one.file.path for one in made if one.file.path != one.file.old_path and _exists(site, one.file)}
    while waiting:
        ready = next((one for one in waiting if one.file.kind == "change" or one.file.path not in taken), None)
        ready = ready or next((one for one in waiting if one.file.kind == "delete"), None)
        if ready is None:
            names = ", ".join(printable(one.file.path) for one in waiting)
            raise Blocked(f"the patch makes or renames to what exists already: {names}", hint=_HINT)
        waiting.remove(ready)
        if ready.file.kind in ("rename", "delete"):
            taken.discard(ready.file.old_path or "")
        yield ready


def _exists(site: Site, file: FilePatch) -> bool:
    return file.kind != "delete" and _there(site, file.path, whole=False) is not None


def _there(site: Site, path: str, *, whole: bool = True) -> _There | None:
    """The file at a path, None when nothing is there; Blocked for anything that is no file of ours to read."""
    try:
        fd = site.calls.open_beneath(path, _READ, site.workspace.fd)
    except OSError as error:
        if error.errno in _ABSENT:
            return None
        why = "goes through a symbolic link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0)
        raise Blocked(f"{printable(path)} cannot be read: {why}", hint="Nothing was changed.") from error
    try:
        about = site.calls.fstat(fd)
        if not whole:
            return _There(b"", stat.S_IMODE(about.st_mode))
        if not stat.S_ISREG(about.st_mode):
            raise Blocked(f"{printable(path)} is not a file", hint="Nothing was changed.")
        if about.st_size > MOST_BYTES:
            raise Blocked(f"{printable(path)} is larger than {MOST_BYTES >> 20} MiB", hint="Nothing was changed.")
        return _There(_content(site, fd), stat.S_IMODE(about.st_mode))
    finally:
        site.calls.close(fd)


def _content(site: Site, fd: int) -> bytes:
    """All of it, and no more than is allowed: it may grow while it is read, and then its step is blocked (T2)."""
    pieces: list[bytes] = []
    size = 0
    while size <= MOST_BYTES and (piece := site.calls.pread(fd, 1 << 20, size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _notes(file: FilePatch, outcome: Applied) -> Iterable[str]:
    """T4."""
    for number, placed in enumerate(outcome.hunks, 1):
        if not placed.offset and not placed.fuzz:
            continue
        lines = "line" if abs(placed.offset) == 1 else "lines"
        moved = f"{abs(placed.offset)} {lines} {'further down' if placed.offset > 0 else 'further up'}"
        told = [moved] if placed.offset else []
        told += [f"with {_context(placed.fuzz)} ignored at each end"] if placed.fuzz else []
        yield f"{printable(file.path)}: hunk {number} applies at line {placed.line}, {', '.join(told)}"


def _context(lines: int) -> str:
    return "1 context line" if lines == 1 else f"{lines} context lines"


def _worded(file: FilePatch, outcome: NotApplying) -> str:
    hunk = f"hunk {outcome.hunk} (line {outcome.line} of the patch): " if outcome.hunk else ""
    return f"{printable(file.old_path or file.path)}: {hunk}{outcome.reason}"
