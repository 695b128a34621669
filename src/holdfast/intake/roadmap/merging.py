"""Merging two versions of a roadmap: its boxes are one thing, the rest of its lines another.

Invariants
  G1  What a box says is merged task by task: the side that changed it since `base` decides. Two sides that both changed
      it agree, since it says one of two things.
  G2  A box that changed is in nobody's way: lines are merged as if all three versions had the boxes of `mine`.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.intake.roadmap.ticking import boxes, ticked
from holdfast.workspace.merge import merged_lines


def merged(base: bytes, mine: bytes, theirs: bytes, name: str) -> bytes | None:
    """The merge, or None where both sides changed the same or adjoining lines (see `merged_lines`)."""
    were, are, become = boxes(base, name), boxes(mine, name), boxes(theirs, name)
    lines = merged_lines(_with(base, name, are), mine, _with(theirs, name, are))
    if lines is None:
        return None
    changed = {id: done for id, done in become.items() if id in were and were[id] == are.get(id) != done}
    return _with(lines, name, changed)


def _with(data: bytes, name: str, wanted: Mapping[str, bool]) -> bytes:
    return ticked(data, name, {id: wanted[id] for id in boxes(data, name) if id in wanted})
