"""Roadmaps: a file that says what is to be done becomes tasks, and ticks go back into it.

    parse(data, name)          bytes ──▶ Roadmap; never fails, tells what is odd as remarks with lines
    ticked(data, name, done)   the same bytes with the marks of these tasks changed, and nothing else
    tickable(data, name)       the ids of the tasks that have a mark in the file
    boxes(data, name)          what those marks say
    renamed(old, new)          which tasks of the old roadmap go on under another id in the new one

`merging` makes one of three versions of a roadmap, its boxes apart from its lines; few verbs need it.
Deliberately absent: no file is opened, no model is called (`prose` has the schema and the prompt for one).
"""

from __future__ import annotations

from holdfast.intake.roadmap.formats import parse
from holdfast.intake.roadmap.renaming import renamed
from holdfast.intake.roadmap.ticking import boxes, tickable, ticked

__all__ = ["boxes", "parse", "renamed", "tickable", "ticked"]
