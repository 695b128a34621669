"""One change over several repositories: a commit in each, or in none.

    prepare all ─▶ move each by compare-and-swap ─▶ put every index in place
                     └── one fails: those that moved go back, each by compare-and-swap

Invariants
  CA1  No reference moves before every commit has been prepared and every index is held.
  CA2  A reference goes back only from our own commit: where somebody has built upon it, it stays, and that is told.
  CA3  After a crash the same call finishes: what was made is found, what was announced is completed on entering.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import Conflict, HoldfastError, InvalidInput
from holdfast.model.changeset import Change
from holdfast.model.path import ancestors_of, printable
from holdfast.workspace.checkpoint import (
    Commit,
    Landing,
    check_landing,
    entries_of,
    find_checkpoint,
    note_of,
    prepare,
    stage_entries,
)
from holdfast.workspace.gitbench import Bench, Move
from holdfast.workspace.gitobjects import commit_text
from holdfast.workspace.repository import Repository

_BACK = "holdfast: checkpoint taken back"


class Part(NamedTuple):
    """What of a change belongs to one repository; paths are relative to its `place`."""

    repository: Repository
    changes: tuple[Change, ...]


class _Made(NamedTuple):
    bench: Bench
    part: Part
    commit: Commit | None


def parts_of(workspace: str, changes: Iterable[Change], calls: Calls = CALLS) -> tuple[Part, ...]:
    """The changes by the innermost repository that holds them; those in none are left out."""
    place = os.path.realpath(workspace)
    inner: dict[str, list[Change]] = {}
    has: dict[str, bool] = {}
    for change in changes:
        home = ""
        for folder in ancestors_of(change.path):
            if folder not in has:
                has[folder] = os.path.lexists(os.path.join(place, folder, ".git"))
            home = folder if has[folder] else home
        inner.setdefault(home, []).append(change)
    found = [(home, Repository.at(_real(place, home), calls), rows) for home, rows in sorted(inner.items())]
    return tuple(
        Part(repository, tuple(_inside(change, home) for change in rows))
        for home, repository, rows in found
        if repository is not None
    )


def _real(place: str, home: str) -> str:
    """A folder of the workspace that became a link since the landing would lead to somebody else's repository."""
    path = os.path.join(place, home) if home else place
    if os.path.realpath(path) != path:
        raise Conflict(f"{printable(path)} is not the folder any more that was landed in; nothing was committed")
    return path


def _inside(change: Change, home: str) -> Change:
    cut = len(home) + 1 if home else 0
    return change._replace(path=change.path[cut:])


def checkpoint_all(parts: Sequence[Part], landing: Landing) -> tuple[Commit | None, ...]:
    """One commit for each part, in their order; Conflict when one could not be made, and then what is left is told.

    The landing's own changes are not looked at: each part has its.
    """
    check_landing(landing)
    if len({part.repository.git_dir for part in parts}) != len(parts):
        raise InvalidInput("a repository stands twice among the parts of one checkpoint")
    made: dict[str, _Made] = {}
    with ExitStack() as stack:
        # One order for all who come, or two would wait for each other.
        ordered = sorted(parts, key=lambda part: part.repository.git_dir)
        benches = [(part, stack.enter_context(Bench(part.repository))) for part in ordered]
        try:
            for part, bench in benches:
                commit = _found_or_prepared(bench, part, landing)
                made[part.repository.git_dir] = _Made(bench, part, commit)
            for bench, _, commit in made.values():
                if commit is not None and not commit.found:
                    bench.move(Move(commit.ref, commit.parent, commit.id), note_of(commit))
        except HoldfastError as error:
            raise _told(error, [text for each in made.values() if (text := _taken_back(each))]) from error
        for bench, _, commit in made.values():
            if commit is not None and not commit.found:
                bench.finish()
    return tuple(made[part.repository.git_dir].commit for part in parts)


def _found_or_prepared(bench: Bench, part: Part, landing: Landing) -> Commit | None:
    found = find_checkpoint(part.repository, landing.trailers.execution, landing.at)
    return found or prepare(bench, landing._replace(changes=part.changes))


def _taken_back(made: _Made) -> str:
    """Empty when the repository is as it was; otherwise what is left there."""
    bench, part, commit = made
    if commit is None or not (commit.found or bench.moved):
        return ""
    back = _found_taken_back(bench, part, commit) if commit.found else bench.turn_back(_BACK)
    return "" if back else f"commit {commit.id[:12]} stays in {printable(part.repository.top)}"


def _found_taken_back(bench: Bench, part: Part, commit: Commit) -> bool:
    """The same for a commit of an earlier call: its index is in place already, and goes back too (CA2)."""
    repository = part.repository
    bench.hold()
    head = repository.head()
    if head.commit != commit.id or head.ref != commit.ref:
        return False
    paths = [repository.prefix + change.path for change in part.changes]
    now = entries_of(bench, commit.tree, paths)
    then = entries_of(bench, _tree(bench, commit.parent), paths) if commit.parent else {}
    stage_entries(bench, now, {path: then.get(path) for path in paths})
    bench.move(Move(commit.ref, commit.id, commit.parent), _BACK)
    bench.finish()
    return True


def _tree(bench: Bench, commit: str) -> str:
    return commit_text(bench.git, commit).split(b"\n", 1)[0].removeprefix(b"tree ").decode("ascii")


def _told(error: HoldfastError, left: Sequence[str]) -> HoldfastError:
    if not left:
        hint = error.hint or "Nothing was committed in any repository."
        return type(error)(f"{error.message}; nothing was committed in any repository", hint=hint)
    return Conflict(f"{error.message}; {'; '.join(left)}, as somebody built upon it", changed=True)
