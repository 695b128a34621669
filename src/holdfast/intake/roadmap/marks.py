"""Marks: the small signs with which people say how far a task is, and which sign to write instead.

Only two answers count for us, whether something is left to do or not; `SAID` keeps what else a mark says, for a remark.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Standing = Literal["open", "done", "dropped", "held"]


class Mark(NamedTuple):
    """A sign, and how it is spelled for the other answer."""

    standing: Standing
    when_done: str
    when_open: str

    @property
    def done(self) -> bool:
        """Whether nothing is left to do: what was dropped is not worked on either."""
        return self.standing in ("done", "dropped")


_DONE, _OPEN = "✅", "⬜"
_ROWS: tuple[tuple[str, Standing, str, str], ...] = (
    ("✅ 🎉 🟢 🆗", "done", "", _OPEN),
    ("❌ ⬜ ◻ 🔲 🔳 ⬛ ⏳ ⌛ 🚧 🔄 🏗 🔨 📋 📝 🟡 🟠 🔴 🔵 ⚪ ⚫ ⭕ 🔜 🕒 🕐 🔶 🔷", "open", _DONE, ""),
    ("☑", "done", "", "☐"),
    ("☐", "open", "☑", ""),
    ("✔", "done", "", "✗"),
    ("✓", "done", "", "✗"),
    ("✗ ✘ ✖", "open", "✓", ""),
    ("🚫 🗑 ❎", "dropped", _DONE, _OPEN),
    ("⏸ 💤", "held", _DONE, _OPEN),
    (":white_check_mark: :heavy_check_mark: :ballot_box_with_check:", "done", "", ":white_large_square:"),
    (":x: :construction: :hourglass: :hourglass_flowing_sand: :white_large_square: :soon: :memo: :white_circle:"
     " :large_blue_circle: :red_circle: :large_orange_diamond: :yellow_circle: :orange_circle:", "open",
     ":white_check_mark:", ""),
    (":no_entry_sign:", "dropped", ":white_check_mark:", ":white_large_square:"),
)  # fmt: skip
SIGNS: dict[str, Mark] = {
    sign: Mark(standing, done, still) for signs, standing, done, still in _ROWS for sign in signs.split()
}
# An emoji may be followed by a selector of its drawn form, which belongs to it.
SIGN = "(?:" + "|".join(sorted(map(re.escape, SIGNS), key=len, reverse=True)) + ")\ufe0f?"
_BEFORE = re.compile(rf"({SIGN})[ \t]*(?:[:–—-][ \t]+)?")
_BEHIND = re.compile(rf"({SIGN})\Z")
_ANY = re.compile(SIGN)
_FIRST = frozenset(sign[0] for sign in SIGNS)
_LAST = frozenset(sign[-1] for sign in SIGNS) | {"\ufe0f"}

BOXES: dict[str, Mark] = {
    **{char: Mark("done", char, " ") for char in "xX✓✔☑✅"},
    **{char: Mark("open", "x", char) for char in (" ", "", "/", "\t", "\u00a0")},
    **{char: Mark("dropped", "x", " ") for char in "-~"},
    ">": Mark("held", "x", " "),
}
SAID: dict[Standing, str] = {
    "dropped": "is marked as dropped, and read as done",
    "held": "is marked as held back, and read as open",
}
# Why such a task is not worked on unless somebody names it.
HELD: dict[Standing, str] = {"dropped": "its file drops it", "held": "its file defers it"}
_STRUCK = re.compile(r"[^~]{0,40}~~.+~~[ \t.]*\Z")
_WORD = r"(deferred|postponed|on hold|parked|dropped|cancell?ed|won'?t (?:do|fix)|obsolete)"
_ASIDE = re.compile(
    rf"(?i)\A[\[(*_ ]{{0,4}}{_WORD}(?:[\])*_]{{0,4}}:|[\])])|[(\[][ \t]*{_WORD}[^()\[\]\n]{{0,80}}[)\]][ \t.]*\Z"
)


class Signed(NamedTuple):
    """A text without its sign, and where in the text the sign stood."""

    mark: Mark
    start: int
    end: int
    text: str


def box_mark(char: str) -> Mark | None:
    """What a box with this character says; None where it is no box: a footnote, a reference."""
    known = BOXES.get(char)
    if known is not None or char.isalnum():
        return known
    return Mark("open", "x", char)


def set_aside(text: str) -> str:
    """Why a task is left alone that its line strikes through or calls deferred; empty where it does neither."""
    if "~~" in text and _STRUCK.match(text):
        return "its file strikes it through"
    said = _ASIDE.search(text)
    return f"its file calls it {(said[1] or said[2]).lower()}" if said is not None else ""


def sign_mark(sign: str) -> Mark:
    return SIGNS[sign.removesuffix("\ufe0f")]


def signed(text: str) -> Signed | None:
    """The sign before or behind a stripped text. A text with several is a legend, and has none."""
    if not text or not (text[0] in _FIRST or text[-1] in _LAST):
        return None
    found = _BEFORE.match(text) or _BEHIND.search(text)
    if found is None or len(_ANY.findall(text)) > 1:
        return None
    rest = (text[found.end() :] if found.start() == 0 else text[: found.start()]).strip()
    return Signed(sign_mark(found[1]), found.start(1), found.end(1), rest) if rest else None


def unsigned(text: str) -> str:
    """A title without the signs before and behind it."""
    if text and text[0] in _FIRST and (before := _BEFORE.match(text)):
        text = text[before.end() :]
    if text and text[-1] in _LAST and (behind := _BEHIND.search(text)):
        text = text[: behind.start()].rstrip()
    return text
