"""States: what a cell of a table says about how far something is, and what to write there instead.

"✅ Done"  "🚧"  "in progress (60 %)"  "100%"  "[x]"  ""      ──state_in──▶ State(standing, where in the cell)
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.intake.roadmap.marks import BOXES, SIGN, Standing, sign_mark

_WORDS: tuple[tuple[Standing, str], ...] = (
    (
        "dropped",
        r"cancell?ed|dropped|abandoned|rejected|obsolete|superseded|won'?t (?:do|fix)|n/a|not planned|removed",
    ),
    ("held", r"deferred|postponed|on hold|paused|parked"),
    (
        "open",
        r"not (?:yet )?(?:started|done|begun|implemented|complete)|incomplete|unfinished|to[ -]?do|planned|planning"
        r"|plan|pending|open|in[ -]?progress|in (?:development|review|testing|design)|wip|started|doing|no|next"
        r"|upcoming|backlog|partial(?:ly)?(?: (?:done|complete|implemented))?|(?:mostly|almost) (?:done|complete)"
        r"|draft|proposed|blocked|new|tbd|tba|future|idea|review|testing|ongoing|active|current|queued|scheduled"
        r"|waiting|missing|ready|coming soon|under (?:way|development)|design(?:ing)?|exploring|research"
        # Some words of other languages, as they stand in tables.
        r"|待做|待办|未完成|未着手|進行中|进行中|計画中|计划中|à faire|en cours|pendiente|en progreso|planeado|offen"
        r"|geplant|in arbeit|pendente|em andamento|в работе|запланировано",
    ),
    (
        "done",
        r"done|completed?|finished|shipped|merged|released|implemented|closed|yes|resolved|delivered|landed|deployed"
        r"|fixed|fully implemented|完了|完成|已完成|terminée?|fait|hecho|completad[oa]|listo|fertig|erledigt"
        r"|concluíd[oa]|feito|готово|сделано",
    ),
)
_WORD = "|".join(f"(?P<{standing}>(?:{words})(?![\\w-]))" for standing, words in _WORDS)
_BLANK = r"[ \t*_~`]*+"
_OTHER_SIGN = r"[☀-➿⬀-⯿\U0001f300-\U0001faff]\ufe0f?"
_STATE = re.compile(
    rf"(?i){_BLANK}(?:(?P<box>\[.?\])|(?P<sign>{SIGN})|{_OTHER_SIGN})?{_BLANK}(?:{_WORD})?"
    r"[ \t*_~`:(–—-]*(?P<percent>\d{1,3}(?:\.\d{1,3})?[ ]?%)?[)]?"
)
_REST = re.compile(r"[\w✀-➿\U0001f300-\U0001faff]")
LONGEST = 80
_SPELLED: dict[bool, tuple[str, str, str, str]] = {
    True: ("✅", "Done", "100%", "[x]"),
    False: ("⬜", "Planned", "0%", "[ ]"),
}


class State(NamedTuple):
    """What a cell says; from where to where in it, and whether nothing else stands in it."""

    standing: Standing
    start: int
    end: int
    alone: bool
    has_sign: bool = False
    has_word: bool = False
    has_percent: bool = False
    has_box: bool = False

    def spelled(self, *, done: bool) -> str:
        """The other answer, in the way that this one is spelled."""
        sign, word, percent, box = _SPELLED[done]
        parts = (
            box if self.has_box else "",
            sign if self.has_sign else "",
            word if self.has_word else "",
            percent if self.has_percent else "",
        )
        return " ".join(filter(None, parts)) or word


def state_in(cell: str) -> State | None:
    """What a cell says; None where it says something else. An empty one says nothing is done."""
    stripped = cell.strip()
    if not stripped.strip("-–—"):
        place = 1 if cell.startswith(" ") else 0
        return State("open", place, place if not stripped else len(cell.rstrip()), True)
    if len(stripped) > LONGEST:
        return None
    start = len(cell) - len(cell.lstrip())
    found = _STATE.match(stripped)
    if found is None or not (
        found["box"] or found["sign"] or found["percent"] or any(found[name] for name in _STANDINGS)
    ):
        return None
    standing = _standing(found)
    if standing is None:
        return None
    words = any(found[name] for name in _STANDINGS)
    text = stripped[: found.end()].rstrip(" \t:(–—-")
    alone = _REST.search(stripped[len(text) :]) is None
    end = start + (len(stripped) if alone else len(text))
    return State(standing, start, end, alone, bool(found["sign"]), words, bool(found["percent"]), bool(found["box"]))


_STANDINGS: tuple[Standing, ...] = ("dropped", "held", "open", "done")


def _standing(found: re.Match[str]) -> Standing | None:
    """A word says more than a sign, and a number more than both."""
    said: list[Standing] = []
    if found["box"]:
        mark = BOXES.get(found["box"][1:-1])
        if mark is None:
            return None
        said.append(mark.standing)
    if found["sign"]:
        said.append(sign_mark(found["sign"]).standing)
    said += (standing for standing in _STANDINGS if found[standing])
    if found["percent"] and not any(standing in ("held", "dropped") for standing in said):
        said.append("done" if float(found["percent"].rstrip("% ")) >= 100 else "open")
    return said[-1] if said else None
