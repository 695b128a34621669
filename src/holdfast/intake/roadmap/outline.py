"""The outline of a file: its phases and sections, and drafts of tasks."""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.intake.roadmap.blocks import Field, Item
from holdfast.intake.roadmap.marks import Mark


@dataclass(slots=True)
class PhaseDraft:
    # Which of the phases it is.
    place: int
    number: str
    title: str
    level: int
    line: int
    goal: str = ""
    priority: str = ""
    effort: str = ""
    prerequisite: str = ""


@dataclass(slots=True)
class Section:
    # Which of the sections it is.
    place: int
    title: str
    number: str
    # Where it begins and ends in the file, and its first line.
    start: int
    end: int
    line: int
    level: int
    phase: PhaseDraft | None
    # Where its heading ends.
    head: int
    # The sign in its heading, and where it stands.
    sign: tuple[Mark, int, int] | None = None
    # What the lines that list files say.
    files: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Step:
    """A subtask."""

    text: str
    done: bool
    line: int


@dataclass(slots=True)
class Draft:
    """A task, or what may be one: then its item has no mark."""

    item: Item
    section: Section
    line: int
    # Where its own line ends, and where the text below it does.
    head: int
    end: int
    steps: list[Step] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    # It has no mark, and stands where what is done is listed.
    done: bool = False


@dataclass(slots=True)
class Outline:
    title: str = ""
    phases: list[PhaseDraft] = field(default_factory=list)
    sections: list[Section] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    # Code and comments: from where to where.
    hidden: list[tuple[int, int]] = field(default_factory=list)
    # Whether anything but tasks says that this is a roadmap: a goal, an effort, a list of files.
    described: bool = False
    # Whether its marks may be none, but stress what is said, or are for a person to tick while trying something out.
    told_in_prose: bool = False
