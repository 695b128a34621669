"""Choosing: which drafts of an outline are tasks.

What has a mark is one, but for rows that only sum up what has boxes, and boxes that say when something is good enough.
Where nothing has a mark, items and headings may be tasks: a person is asked before any of them is worked on.

Invariants
  H1  A box is a task wherever it stands, but under a heading that says that criteria follow; then a remark tells.
  H2  Without marks a numbered list counts in a phase, under a heading that announces work, or where it is most of the
      file; a plain list where its heading, its file's title or its file's name announces work. Neither counts under a
      heading of something else: notes, options, tests, a log of changes.
  H3  What cannot be ticked in its file is told.
  H4  Boxes below headings about tests, with no task anywhere else, are asked about as what has no mark is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from holdfast.intake.roadmap.blocks import Item, Text
from holdfast.intake.roadmap.drafting import OUTSIDE
from holdfast.intake.roadmap.marks import SAID, Mark
from holdfast.intake.roadmap.outline import Draft, Outline, Section
from holdfast.model.task import Remark

_WORK = re.compile(r"(?i)\b(?:tasks?|to-?dos?|to do|roadmap|plan|steps?|milestones?|backlog|next|work items?)\b")
_WORK_NAME = re.compile(r"(?i)(?:\A|/)(?:to-?dos?|backlog|tasks?)(?![a-z])[^/]*\Z")
# What stands before the words of a heading.
_FRONT = r"(?i)\A\W*(?:\d[\d.]*\s+)?"
_OTHER = re.compile(
    _FRONT + r"(?:change ?log|release notes|(?:release|version) history|history|what'?s new|options?|alternatives?"
    r"|decisions?|considerations?|pros|cons|trade-?offs|notes?|references?|links?|resources?|further reading|legend|key"
    r"|(?:tests?(?: cases?| plans?| lists?)?|testing)\W*\Z|test strategy|non-?goals|out of scope|principles?|values"
    r"|guidelines?|rules|overview|summary|introduction|about|vision|background|motivation|why|context|risks?"
    r"|assumptions?|constraints|dependenc(?:y|ies)|metrics|kpis?|success|acceptance|exit criteria"
    r"|definition of done|contribut\w*|faq|questions?"
    r"|open questions|credits|licen[sc]e|see also|examples?|usage|install\w*|requirements|prerequisites|architecture"
    r"|glossary|how (?:to|we|it)|status (?:key|legend)|(?:table of )?contents|timeline|team|contact|feedback|disclaimer"
    r"|log|journal|session (?:log|notes)|lessons|current state|known (?:issues|limitations))\b"
)
_DATED = re.compile(r"\[?v?\d+\.\d+[\w.-]*\]?\s*[-–—(]+\s*\d{4}-\d\d-\d\d")
_CHANGES = re.compile(_FRONT + r"(?:change ?log|release notes|(?:release|version) history|session (?:log|history))\b")
_CRITERIA = re.compile(
    _FRONT + r"(?:(?:success|acceptance|exit|completion|quality|done) (?:criteria|criterion|gates?|metrics)"
    r"|definition of done|dod)\b"
)
# Boxes that a person ticks while they try something out.
_TRYING_OUT = re.compile(
    _FRONT + r"(?:(?:manual|qa|regression|smoke|acceptance|unit|integration|e2e) )*"
    r"(?:tests?(?: (?:cases?|plans?|lists?|checklists?|steps|strategy))?|testing(?: (?:plan|checklist|steps|notes))?"
    r"|qa(?: checklist)?|verification(?: (?:plan|checklist|steps))?"
    r"|how (?:to test|(?:was|has) this (?:been )?tested))\W*\Z"
)
_DONE = re.compile(
    r"(?i)\A\W*(?:recently |already )?(?:done|completed?|finished|shipped|released|implemented|resolved|accomplished"
    r"|archived?|delivered)\b"
    r"|[(\[–—:-]\s*(?:done|completed?|finished|released|shipped)(?:\s+(?:on\s|in\s)?\s*\d{4}(?:-\d\d){0,2})?\s*[)\]]?\W*\Z"
)
_SUMS_UP = re.compile(r"(?i)\b(?:summary|overview|progress|dashboard|metrics|at a glance|timeline|status)\b")
_AT_MARGIN = re.compile(r"(?:\A|\n)[^ \t\n#]")
_CANNOT = "tasks without a box are read, and cannot be ticked in this file"


def choose(outline: Outline, text: Text, name: str, remarks: list[Remark], *, of_headings: bool) -> None:
    """Leave in the outline only what counts; `of_headings` is what is written as headings where others write lists."""
    marked = list(_marked(outline, remarks))
    for draft in marked:
        assert draft.item.mark is not None
        if draft.item.mark.standing in SAID:
            remarks.append(Remark(draft.line, f"this task {SAID[draft.item.mark.standing]}"))
    outline.told_in_prose = _is_told_in_prose(outline, marked) or _are_tried_out(outline, marked)
    kept = _beside(outline, marked) if marked else _alone(outline, text, name, of_headings)
    if first := next((draft.line for draft in kept if draft.item.mark is None), 0):
        remarks.append(Remark(first, _CANNOT))
    outline.drafts = kept


def _marked(outline: Outline, remarks: list[Remark]) -> Iterator[Draft]:
    """H1."""
    marked = [draft for draft in outline.drafts if draft.item.mark is not None]
    titles = _titles_above(outline.sections)
    if any(draft.item.kind == "box" for draft in marked):
        marked = [draft for draft in marked if draft.item.kind != "sign" or not _tells_changes(draft, outline, titles)]
    criteria = [draft for draft in marked if draft.item.kind in ("box", "sign") and _is_criterion(draft, titles)]
    apart = set(map(id, criteria))
    others = [draft for draft in marked if id(draft) not in apart]
    if not others:
        criteria, others = [], marked
    told: set[int] = set()
    for draft in criteria:
        if draft.section.place not in told:
            told.add(draft.section.place)
            what = f"boxes under {draft.section.title[:60]!r} are read as criteria, not as tasks"
            remarks.append(Remark(draft.line, what))
    # Rows that sum up something stand for themselves where there is nothing else.
    own = [draft for draft in others if draft.item.kind != "cell" or not _sums_up(draft)]
    yield from own or others


def _tells_changes(draft: Draft, outline: Outline, titles: Sequence[Sequence[str]]) -> bool:
    above = (outline.title, *titles[draft.section.place])
    return any(_CHANGES.match(title) or _DATED.search(title) for title in above)


def _is_criterion(draft: Draft, titles: Sequence[Sequence[str]]) -> bool:
    return any(_CRITERIA.match(title) for title in titles[draft.section.place])


def _sums_up(row: Draft) -> bool:
    return row.item.summary or _SUMS_UP.search(row.section.title) is not None


def _is_told_in_prose(outline: Outline, marked: Sequence[Draft]) -> bool:
    """Whether the only marks are signs, and most bullets have none: then a sign may only stress what is said."""
    bullets = sum(draft.item.kind == "bullet" for draft in outline.drafts)
    return bool(marked) and all(draft.item.kind == "sign" for draft in marked) and bullets > len(marked)


def _are_tried_out(outline: Outline, marked: Sequence[Draft]) -> bool:
    """H4."""
    titles = _titles_above(outline.sections)
    return bool(marked) and all(
        draft.item.kind == "box" and any(map(_TRYING_OUT.match, titles[draft.section.place])) for draft in marked
    )


def _beside(outline: Outline, marked: Sequence[Draft]) -> list[Draft]:
    """What counts where something has a mark: a numbered list in a phase, and a heading that says it is a task, as long
    as nothing beside them has one."""
    taken, sections = set(map(id, marked)), {draft.section.place for draft in marked}
    return [
        draft
        for draft in outline.drafts
        if id(draft) in taken
        or (
            draft.item.mark is None
            and draft.section.place not in sections
            and (draft.item.kind == "heading" or (draft.item.kind == "number" and _is_in_a_phase(draft.section)))
        )
    ]


def _is_in_a_phase(section: Section) -> bool:
    return section.phase is not None and "depend" not in section.title.lower()


def _alone(outline: Outline, text: Text, name: str, of_headings: bool) -> list[Draft]:
    """H2."""
    titles = _titles_above(outline.sections)
    announced = bool(_WORK.search(outline.title) or _WORK_NAME.search(name))
    headings = _headings(outline, titles, of_headings)
    if any(draft.item.mark is not None for draft in headings):
        return headings
    numbers = [draft for draft in outline.drafts if draft.item.kind in ("number", "heading")]
    whole = bool(numbers) and 2 * len(numbers) >= len(_AT_MARGIN.findall(text.lines))
    kept: list[Draft] = []
    for draft in outline.drafts:
        section = draft.section
        above = titles[section.place]
        work = bool(_WORK.search(section.title or outline.title))
        if draft.item.kind == "heading":
            counts = True
        elif draft.item.kind == "number":
            counts = _is_in_a_phase(section) if section.phase is not None else whole or work or announced
        else:
            counts = announced or _is_in_a_phase(section) or work
        if draft.item.kind != "heading" and any(_OTHER.match(title) or _DATED.search(title) for title in above):
            counts = False
        if counts:
            draft.done = _is_done(section, titles, outline)
            kept.append(draft)
    if len(headings) > 1 and announced and not any(draft.item.kind in ("number", "heading") for draft in kept):
        return headings
    return kept


def _titles_above(sections: Sequence[Section]) -> list[list[str]]:
    """For each section its title and those of the sections that it stands in."""
    found: list[list[str]] = []
    open_ones: list[Section] = []
    for section in sections:
        while open_ones and open_ones[-1].level >= section.level:
            open_ones.pop()
        open_ones.append(section)
        found.append([one.title for one in open_ones if one.title])
    return found


def _is_done(section: Section, titles: Sequence[Sequence[str]], outline: Outline) -> bool:
    if section.sign is not None:
        return section.sign[0].done
    return any(_DONE.search(title) for title in titles[section.place])


def _headings(outline: Outline, titles: Sequence[Sequence[str]], all_of_them: bool) -> list[Draft]:
    """The headings that may be tasks: those with a number, or all that stand beside one with a sign."""
    sections = outline.sections
    leaves = [
        section
        for section, below in zip(sections, [*sections[1:], None], strict=True)
        if section.title
        and (below is None or below.level <= section.level)
        and not any(_OTHER.match(title) or _DATED.search(title) for title in titles[section.place])
    ]
    signs = [section.sign[0] for section in leaves if section.sign is not None]
    numbered = [section for section in leaves if section.number or all_of_them]
    if len(signs) > 1:
        numbered = [section for section in leaves if section.number or section.sign is not None]
    drafts: list[Draft] = []
    for section in numbered:
        mark, start, end = section.sign or (None, 0, 0)
        if mark is None and len(signs) > 1:
            # Its neighbours say how far they are: behind this one there is room for a sign.
            mark, start, end = Mark("open", " ✅", ""), section.head, section.head
        item = Item(OUTSIDE, "", mark, section.title, start, end, "heading")
        drafts.append(Draft(item, section, section.line, section.head, section.end))
    return drafts
