"""Evidence: everything the write gate looks at, and nothing else.

Invariants
  E1  Facts, never promises: images, receipts and added text, all taken from what was captured.
  E2  What was not looked at is told apart from what was looked at and found harmless: `Text.unread`, or no `Text`.
  E3  A check proves something if it passed on exactly the tree that would land, and somebody other than those it
      judges has chosen it: it was found in the tree, or stands in the user's or the managed configuration.
      A person's own plan may vouch for itself where policy only asks; a project and an agent never can.
  E4  A check that failed on the base too, and names no tests, says neither yes nor no: with one, nothing is verified.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.model.changeset import Change, ChangeSet
from holdfast.model.check import HealthCheck
from holdfast.model.execution import BaseTests, CheckOrigin, Receipt
from holdfast.model.plan import Plan
from holdfast.model.simulation import Simulation

PERSON = "person"
# The levels of checks that can say "it works"; files that exist and parse say only that there is something.
VERIFYING_KINDS = frozenset({"run", "tests", "acceptance"})
# Whose choice of a check is believed (E3).
TRUSTED_ORIGINS: frozenset[CheckOrigin] = frozenset({"configured", "detected"})
# Enough to read every line of a source file; what is longer is said to be unread.
MOST_TEXT_BYTES = 1_000_000
_LOOKED_AT_FOR_NUL = 8000


class Text(NamedTuple):
    """What a change does to the text of one file: `added` holds only lines that were not there before."""

    path: str
    added: str = ""
    lines_added: int = 0
    lines_removed: int = 0
    binary: bool = False
    # The content was longer than the caller reads: nobody knows what the rest says.
    unread: bool = False


class Finding(NamedTuple):
    """What looks like a secret, without it: where, of what kind, how long, and the digest policy may know it by."""

    path: str
    shape: str
    masked: str
    digest: str


@dataclass(frozen=True, slots=True)
class Evidence:
    plan: Plan
    change_set: ChangeSet
    simulation: Simulation
    author: str = PERSON
    texts: tuple[Text, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    instructions: tuple[tuple[str, str], ...] = ()
    # Absolute path of the workspace, to tell absolute links into it from those out of it.
    root: str = ""
    # Found before, for a replay: the texts themselves are not kept. They add to what is found in `texts`.
    findings: tuple[Finding, ...] = ()
    # Links of the workspace, (path, target), as far as they lead to something that changes: other names for it.
    links: tuple[tuple[str, str], ...] = ()
    # The tree that would land, where the workspace moved elsewhere since the rehearsal; empty: the predicted one.
    lands_as: str = ""
    # How many files stand in the tree that the change is about, but for `TOOL_DIRECTORIES`. None: nobody counted,
    # as before gate version 3.
    tree_files: int | None = None
    # What the words of the plan ask for after the change, as those who will run it understand them.
    health_in_words: tuple[HealthCheck, ...] = ()
    # What the base's tests say, where the change touches tests and nobody wrote it by hand.
    base_tests: BaseTests | None = None
    # What the task of the agent names and the change lacks, a sentence each.
    unmet: tuple[str, ...] = ()
    # Why the receipts are for no tree that could land: they are of other checks than those that are wanted now.
    outdated: str = ""

    @property
    def health(self) -> tuple[HealthCheck, ...]:
        """Every health check that is run after the change."""
        return (*self.plan.health, *self.health_in_words)

    @property
    def by_agent(self) -> bool:
        return self.author != PERSON

    def proofs(self) -> tuple[Receipt, ...]:
        """The real checks that passed on exactly the tree that would land, whoever chose them."""
        tree = self.lands_as or self.simulation.predicted_tree
        return tuple(
            receipt
            for receipt in self.receipts
            if receipt.passed and receipt.kind in VERIFYING_KINDS and receipt.tree_digest == tree and tree
            if not receipt.unverified
        )

    @property
    def doubt(self) -> str:
        """Why nobody can tell whether it works, although checks passed: one of them failed before too (E4)."""
        return next((receipt.unverified for receipt in self.receipts if receipt.unverified), "")

    def is_verified(self, *, by_its_plan: bool) -> bool:
        """At least one of them was chosen by somebody who is believed (E3), and there is no doubt (E4)."""
        trusted = TRUSTED_ORIGINS | {"plan"} if by_its_plan and not self.by_agent else TRUSTED_ORIGINS
        return not self.doubt and any(receipt.origin in trusted for receipt in self.proofs())

    def new_content(self) -> Iterator[Change]:
        return new_content(self.change_set.changes)


def new_content(changes: tuple[Change, ...]) -> Iterator[Change]:
    """Files with bytes that were not there before; what only moves or changes its mode brings none."""
    moved = _Moved(changes)
    return (change for change in changes if _has_new_content(change) and not moved.brought(change))


def new_bytes(changes: Iterable[Change]) -> int:
    """The whole length of these files, holes included."""
    return sum(change.post.size for change in changes if change.post is not None)


def compared(path: str, before: bytes, after: bytes, *, most: int = MOST_TEXT_BYTES) -> Text:
    """What `after` adds to `before`, in time proportional to both: lines are counted, not aligned.

    A line that only moves is not added. Bytes that are not UTF-8 are read one by one, so that a token among them shows.
    """
    unread = len(after) > most
    old, new = before[:most].splitlines(), after[:most].splitlines()
    added, lines_added, lines_removed = _difference(old, new)
    return Text(
        path=path,
        added=b"\n".join(added).decode("utf-8", "surrogateescape"),
        lines_added=lines_added,
        lines_removed=lines_removed,
        binary=b"\0" in after[:_LOOKED_AT_FOR_NUL],
        unread=unread,
    )


def _difference(old: list[bytes], new: list[bytes]) -> tuple[list[bytes], int, int]:
    """The lines that were not there before, how many, and how many are gone."""
    before, after = set(old), set(new)
    if len(before) == len(old) and len(after) == len(new):
        added = [line for line in new if line not in before]  # each line once: no need to count
        return added, len(added), len(before - after)
    counted_old, counted_new = Counter(old), Counter(new)
    fresh = counted_new - counted_old
    return [line for line in new if line in fresh], fresh.total(), (counted_old - counted_new).total()


class _Moved:
    """Content that leaves one path for another, whether its inode could be renamed or (with a new mode) was copied.

    Each file that goes away accounts for one that comes: a second copy is new content.
    """

    def __init__(self, changes: tuple[Change, ...]) -> None:
        old = [(change, change.pre) for change in changes if change.pre is not None and change.pre.kind == "file"]
        sources = {change.origin for change in changes if change.origin is not None}
        self._renamed = frozenset([(change.path, pre.digest) for change, pre in old if change.path in sources])
        self._left = Counter([pre.digest for change, pre in old if change.post is None and change.path not in sources])

    def brought(self, change: Change) -> bool:
        digest = change.post.digest if change.post is not None else ""
        if change.origin is not None and (change.origin, digest) in self._renamed:
            return True
        if change.pre is not None or self._left[digest] <= 0:
            return False
        self._left[digest] -= 1
        return True


def _has_new_content(change: Change) -> bool:
    post = change.post
    if post is None or post.kind != "file" or post.size == 0:
        return False
    return change.pre is None or change.pre.digest != post.digest
