"""Roadmaps: a file that says what is to be done becomes tasks, and ticks go back into it.

    parse(data, name)          bytes ──▶ Roadmap; never fails, tells what is odd as remarks with lines
    ticked(data, name, done)   the same bytes with the marks of these tasks changed, and nothing else
    tickable(data, name)       the ids of the tasks that have a mark in the file
    renamed(old, new)          which tasks of the old roadmap go on under another id in the new one

Deliberately absent: no file is opened, no model is called (`prose` has the schema and the prompt for one).
"""

from __future__ import annotations

from holdfast.intake.roadmap.formats import parse
from holdfast.intake.roadmap.renaming import renamed
from holdfast.intake.roadmap.ticking import tickable, ticked

__all__ = ["parse", "renamed", "tickable", "ticked"]
