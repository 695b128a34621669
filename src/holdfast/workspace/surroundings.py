"""The workspace around an execution: looked at before it begins and again after its paths moved.

The second look is where the results of an execution come from: what stands at its own paths, content read, and what
changed elsewhere meanwhile. Nobody holds the rest of a workspace still, so what changed there is told and left alone.

Invariants
  E1  An image comes from a look after the paths moved. Where this user may not read an object, the transaction's own
      proof of it (`verify`) stands for its content.
  E2  The rest of the tree decides nothing: where it cannot be looked at, or is too large, that is said instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.disk.calls import CALLS
from holdfast.errors import HoldfastError
from holdfast.model.execution import Divergence
from holdfast.model.image import Image
from holdfast.workspace.block import Block
from holdfast.workspace.index import load
from holdfast.workspace.site import Site
from holdfast.workspace.tree import Snapshot, snapshot

# A look costs one call a path: above this it would take longer than most changes.
MOST_PATHS = 200_000
_MOST_TOLD = 100

# What stands at a path, read now; PermissionError where that is not allowed.
ReadImage = Callable[[str], Image | None]


class Looked(NamedTuple):
    """One look. `elsewhere` are paths that others changed; `not_looked_at` says why the rest of the tree is unknown."""

    tree: Snapshot | None
    read: ReadImage
    elsewhere: tuple[Divergence, ...]
    not_looked_at: str

    def image(self, path: str) -> Image | None:
        """What stands there; PermissionError where this user may not read it."""
        found = self.tree.get(path) if self.tree is not None else None
        return found if found is not None and (found.kind != "file" or found.digest) else self.read(path)


class Surroundings:
    """Made before anything moves; it remembers the tree as it was then."""

    def __init__(self, site: Site, most: int = MOST_PATHS) -> None:
        self._site = site
        self._before: Snapshot | None = None
        known = load(CALLS, site.state.path)
        self._why_not = ""
        if known is None:
            self._why_not = "it was not looked at before, so there is nothing to compare it with"
        elif _count(known.root, most) > most:
            self._why_not = f"it has more than {most:,} paths"
        else:
            self._before = self._look()

    def look(self, own: Iterable[str], read: ReadImage) -> Looked:
        """Once more; `own` are the paths that the execution itself changes."""
        now = self._look() if self._before is not None else None
        if now is None or self._before is None:
            return Looked(None, read, (), self._why_not)
        mine = frozenset(own)
        found = [(path, how) for path, how in now.changed_since(self._before) if path not in mine]
        told = [Divergence(path, f"was {how} meanwhile, not by this change") for path, how in found[:_MOST_TOLD]]
        if len(found) > _MOST_TOLD:
            told.append(Divergence(".", f"{len(found) - _MOST_TOLD:,} more paths changed meanwhile"))
        return Looked(now, read, tuple(told), "")

    def _look(self) -> Snapshot | None:
        try:
            return snapshot(self._site.path, self._site.state.path)
        except (OSError, HoldfastError) as error:
            self._why_not = f"it could not be looked at: {error}"
            return None


def _count(root: Block, most: int) -> int:
    """Entries of a tree, as far as `most` and a directory more."""
    count, waiting = 0, [root]
    while waiting and count <= most:
        block = waiting.pop()
        waiting += block.children.values()
        count += block.count
    return count
