"""Commits that are checkpoints: found again by the execution they belong to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import Blocked
from holdfast.workspace.repository import Repository
from holdfast.workspace.trailers import BRANCH, EXECUTION, one_line, title_of, trailer

# The clock of whoever committed on top may be slow; a day is more than any clock that still works is off.
_SKEW = 86_400
# What git takes for a beginning of an id, too.
_BEGINNING = re.compile(r"[0-9a-f]{4,64}")


class Commit(NamedTuple):
    """A checkpoint. `parent` is empty for the first commit of a branch.

    `carried`: paths that held edits of the user which were not committed before; the agent worked on top of them,
    so they are in this commit. `staged`: paths for which the user has something else in the index, which stays.
    `overtaken`: landed paths that the user has changed and committed since; they are not in this commit.
    `found`: it had been made before.
    """

    id: str
    parent: str
    tree: str
    ref: str
    title: str = ""
    carried: tuple[str, ...] = ()
    staged: tuple[str, ...] = ()
    overtaken: tuple[str, ...] = ()
    found: bool = False


def find_checkpoint(repository: Repository, execution: str, since: int) -> Commit | None:
    """The checkpoint of an execution in what is checked out; `since` is when it landed, in seconds of the epoch."""
    wanted = one_line(execution)
    return next((commit for commit, named in _named(repository, wanted, since) if named == wanted), None)


def checkpoints_since(repository: Repository, since: int, *, merges: bool = False) -> dict[str, str]:
    """Every checkpoint in what is checked out: its commit, by its execution. With `merges`, of branches brought in
    too."""
    return {execution: commit.id for commit, execution in _named(repository, "", since, merges=merges) if execution}


def execution_of(repository: Repository, commit: str) -> str:
    """The execution that this commit names, by its id or a beginning that is long enough; empty for none."""
    if not _BEGINNING.fullmatch(commit):
        return ""
    id = repository.git.answer("rev-parse", "--verify", "-q", f"{commit}^{{commit}}")
    if not id:
        return ""
    output = repository.git.asked("rev-list", "--max-count=1", "--format=%P%n%T%n%B%x00", id, "--")
    found = _commit(output.removesuffix(b"\0\n"), "", merges=True)
    return found[1] if found is not None else ""


def _named(repository: Repository, execution: str, since: int, *, merges: bool = False) -> Iterator[tuple[Commit, str]]:
    """Commits that name this execution, or any, each with the one whose checkpoint it is; the newest first."""
    head = repository.head()
    if not head.commit:
        return
    output = repository.git.asked(
        "rev-list",
        f"--max-age={max(0, since - _SKEW)}",
        "--fixed-strings",
        f"--grep={EXECUTION}: {execution}",
        "--format=%P%n%T%n%B%x00",
        head.commit,
        "--",
    )
    *rows, end = output.split(b"\0\n")
    if end:
        raise Blocked("git rev-list gave an answer that is not understood")
    for row in rows:
        found = _commit(row, head.ref, merges=merges)
        if found is not None:
            yield found


def _commit(row: bytes, ref: str, *, merges: bool) -> tuple[Commit, str] | None:
    lines = os.fsdecode(row).split("\n", 3)
    if len(lines) != 4 or not lines[0].startswith("commit "):
        raise Blocked("git rev-list gave an answer that is not understood")
    parents = lines[1].split(" ")
    if len(parents) > 1 and not (merges and trailer(lines[3], BRANCH)):
        return None  # a merge is never a checkpoint, whatever its words are
    commit = Commit(lines[0][7:], parents[0], lines[2], ref, title_of(lines[3]), found=True)
    return commit, trailer(lines[3], EXECUTION)
