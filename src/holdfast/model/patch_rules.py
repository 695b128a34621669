"""What a patch may do: judged from the patch alone, before anything is looked at or applied.

Invariants
  J1  Every path it reads or changes is judged, the old name of a renamed file too.
  J2  All objections are told, not the first.
  J3  A path under `.git` or `.holdfast`, absolute or with `..`, is objected to whatever the scope allows.

Patterns belong to policy; here they are functions of a path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from holdfast.errors import InvalidPath
from holdfast.model.patch import FilePatch, Patch
from holdfast.model.path import checked_path, printable

# `path` and `forbidden` say that somebody tried to reach what is out of reach; the others can be honest mistakes.
Ground = Literal["path", "forbidden", "scope", "limit", "binary", "mode", "kind", "twice"]
GRAVE: tuple[Ground, ...] = ("path", "forbidden")


class Objection(NamedTuple):
    """Why a patch is not to be applied; `line` is the line of its text."""

    ground: Ground
    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{printable(self.path)}: {self.reason}" if self.path else f"{where}{self.reason}"


def _everywhere(path: str) -> bool:
    return True


def _nowhere(path: str) -> bool:
    return False


class Scope(NamedTuple):
    """What a patch may touch, and how much of it."""

    allowed: Callable[[str], bool] = _everywhere
    forbidden: Callable[[str], bool] = _nowhere
    most_files: int = 500
    most_lines: int = 50_000
    may_create: bool = True
    may_delete: bool = True
    may_rename: bool = True
    may_change_modes: bool = True


def validate(patch: Patch, scope: Scope = Scope()) -> tuple[Objection, ...]:  # noqa: B008 (frozen)
    """Everything that speaks against the patch; empty when nothing does."""
    return (*_amount(patch, scope), *_repeated(patch), *(one for file in patch.files for one in _of_file(file, scope)))


def _amount(patch: Patch, scope: Scope) -> Iterator[Objection]:
    if len(patch.files) > scope.most_files:
        yield Objection(
            "limit", "", 0, f"the patch changes {len(patch.files):,} files; {scope.most_files:,} are allowed"
        )
    if patch.changed_lines > scope.most_lines:
        yield Objection(
            "limit", "", 0, f"the patch changes {patch.changed_lines:,} lines; {scope.most_lines:,} are allowed"
        )


def _repeated(patch: Patch) -> Iterator[Objection]:
    """A file whose fate is told twice would depend on the order of telling.

    The old name of one renamed file may be the new name of another: git tells such things in any order.
    """
    left: set[str | None] = set()
    reached: set[str | None] = set()
    for file in patch.files:
        old = None if file.copied else file.old_path
        if (old is not None and old in left) or (file.new_path is not None and file.new_path in reached):
            yield Objection("twice", file.path, file.at, "the patch changes it twice")
        left.add(old)
        reached.add(file.new_path)


def _of_file(file: FilePatch, scope: Scope) -> Iterator[Objection]:
    for path in file.paths:
        yield from _of_path(path, file.at, scope)
    allowed = {"create": scope.may_create, "delete": scope.may_delete}
    allowed |= {"rename": scope.may_rename, "copy": scope.may_create}
    if not allowed.get(file.kind, True):
        yield Objection("kind", file.path, file.at, f"the patch would {file.kind} it, which is not allowed here")
    if not scope.may_change_modes and _makes_executable(file):
        yield Objection("mode", file.path, file.at, "the patch changes its mode, which is not allowed here")
    if any(b"\0" in line.text for hunk in file.hunks for line in hunk.lines):
        yield Objection("binary", file.path, file.at, "it has binary content")


def _of_path(path: str, line: int, scope: Scope) -> Iterator[Objection]:
    try:
        plain = checked_path(path)
    except InvalidPath as error:
        yield Objection("path", path, line, error.message.removeprefix(f"{printable(path)}: "))
        return
    if plain != path:
        yield Objection("path", path, line, "it names a directory")
    elif scope.forbidden(path):
        yield Objection("forbidden", path, line, "it must not be changed")
    elif not scope.allowed(path):
        yield Objection("scope", path, line, "it is outside what may be changed")


def _makes_executable(file: FilePatch) -> bool:
    if file.kind == "create":
        return file.new_mode == 0o755
    return file.kind != "delete" and file.new_mode is not None
