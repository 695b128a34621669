"""Commits that are checkpoints: found again by the execution they belong to."""

from __future__ import annotations

import os
from typing import NamedTuple

from holdfast.errors import Blocked
from holdfast.workspace.repository import Repository
from holdfast.workspace.trailers import EXECUTION, one_line, title_of, trailer

# The clock of whoever committed on top may be slow; a day is more than any clock that still works is off.
_SKEW = 86_400


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
    head = repository.head()
    if not head.commit:
        return None
    wanted = one_line(execution)
    output = repository.git.asked(
        "rev-list",
        f"--max-age={max(0, since - _SKEW)}",
        "--fixed-strings",
        f"--grep={EXECUTION}: {wanted}",
        "--format=%P%n%T%n%B%x00",
        head.commit,
        "--",
    )
    *rows, end = output.split(b"\0\n")
    if end:
        raise Blocked("git rev-list gave an answer that is not understood")
    for row in rows:
        found = _commit(row, head.ref)
        if found is not None and found[1] == wanted:
            return found[0]
    return None


def _commit(row: bytes, ref: str) -> tuple[Commit, str] | None:
    lines = os.fsdecode(row).split("\n", 3)
    if len(lines) != 4 or not lines[0].startswith("commit "):
        raise Blocked("git rev-list gave an answer that is not understood")
    parents = lines[1].split(" ")
    if len(parents) > 1:
        return None  # a merge is never a checkpoint, whatever its words are
    commit = Commit(lines[0][7:], parents[0], lines[2], ref, title_of(lines[3]), found=True)
    return commit, trailer(lines[3], EXECUTION)
