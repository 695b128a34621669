"""How files are merged where one of them may be a roadmap: its boxes apart from its lines.

A box is set by a run beside whatever agents and people write, so it must not be in the way of their lines.
"""

from __future__ import annotations

from holdfast.store.database import Records
from holdfast.store.runs import Runs
from holdfast.workspace.merge import Merge, by_lines


def merging(records: Records) -> Merge:
    """What a run was ever over is a roadmap; everything else is merged by its lines alone."""

    def merge(path: str, base: bytes, mine: bytes, theirs: bytes) -> bytes | None:
        if all(row.roadmap != path for row in Runs(records).runs()):
            return by_lines(path, base, mine, theirs)
        from holdfast.intake.roadmap.merging import merged

        return merged(base, mine, theirs, path)

    return merge
