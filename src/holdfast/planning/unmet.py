"""What a change lacks, or has left lying about, of what its task names: sentences for whoever asked for it.

    words + texts of the change ─▶ ("the task names src/text.py, and the change leaves it as it is", …)

It says only what was looked up, and proves nothing about the rest. What it says is no reason to refuse a change: an
agent is told, and in the end a person is asked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from holdfast.model.path import printable
from holdfast.planning.filekinds import kind_of_file
from holdfast.planning.leftovers import defined, doubled_in, leftovers_in, lost_from, public
from holdfast.planning.named import named_in
from holdfast.planning.stray import strays_in
from holdfast.planning.symbols import Symbol, symbols_in

_MOST = 20
# "Update discord.py" is about a library, if there is no such file.
_MAKES = re.compile(r"(?i)\b(?:add|create|extract|generate|implement|introduce|move|put|rename|split|write)\b")
_ABOUT_TESTS = re.compile(r"(?i)\b(?:conftest|fixtures?|mocks?|fakes?)\b|(?:\b|_)tests?(?:\b|_)")


class Side(NamedTuple):
    """A path as the change finds it and leaves it; a text is None where nothing is, or nothing that is text."""

    before: str | None
    after: str | None
    was_there: bool
    is_there: bool


def unmet(words: str, changed: Mapping[str, Side], stands: Callable[[str], bool]) -> tuple[str, ...]:
    """The sentences; none is the rule. `stands` tells of paths outside of the change whether anything is there."""
    if not changed:
        return ()
    found = [*_files(words, changed, stands), *_symbols(words, changed)]
    found += [*_strays(words, changed, stands), *_left(words, changed)]
    return tuple(dict.fromkeys(found))[:_MOST]


def _files(words: str, changed: Mapping[str, Side], stands: Callable[[str], bool]) -> Iterator[str]:
    named = named_in(words)
    for path in named.changed:
        if _touches(path, changed):
            continue
        if stands(path):
            yield f"the task names {printable(path)}, and the change leaves it as it is"
        elif kind_of_file(path) == "documentation" or (
            kind_of_file(path) in ("code", "test") and ("/" in path or _MAKES.search(words))
        ):
            yield f"the task names {printable(path)}, and the change does not make it"
    for path in named.gone:
        side = changed.get(path)
        if side.is_there if side is not None else stands(path):
            yield f"the task asks to remove {printable(path)}, and it is still there"


def _touches(path: str, changed: Mapping[str, Side]) -> bool:
    """Words leave out the directories above a file."""
    return any(one == path or one.endswith(f"/{path}") for one in changed)


def _symbols(words: str, changed: Mapping[str, Side]) -> Iterator[str]:
    """Where a text of the change cannot be read, nobody knows what is in it."""
    asked = symbols_in(words)
    if not asked or any(side.is_there and side.after is None for side in changed.values()):
        return
    tests = _ABOUT_TESTS.search(words) is not None
    for symbol in asked:
        yield from _gone(symbol, changed) if symbol.gone else _there(symbol, changed, tests=tests)


def _there(symbol: Symbol, changed: Mapping[str, Side], *, tests: bool) -> Iterator[str]:
    name = printable(symbol.name)
    if not any(_holds(path, side, symbol, tests=tests) for path, side in changed.items()):
        what = "defines it" if symbol.kind == "definition" else "has it"
        yield f"the task asks for `{name}`, and nothing in the change {what}"
        return
    for place in symbol.places:
        own = [side.after or "" for path, side in changed.items() if path == place or path.endswith(f"/{place}")]
        if own and symbol.kind == "definition" and not any(_has_word(text, symbol.name) for text in own):
            yield f"the task asks for `{name}` in {printable(place)}, and it is not there"


def _gone(symbol: Symbol, changed: Mapping[str, Side]) -> Iterator[str]:
    for path, side in changed.items():
        if side.after is None or side.before is None or kind_of_file(path) != "code":
            continue
        if symbol.kind == "option":
            left = _has(side.before, symbol.name) and _has(side.after, symbol.name)
        else:
            left = symbol.name in public(path, side.before) and symbol.name in public(path, side.after)
        if left:
            yield f"the task asks that `{printable(symbol.name)}` goes, and {printable(path)} still has it"


def _holds(path: str, side: Side, symbol: Symbol, *, tests: bool) -> bool:
    """`tests`: the task speaks of tests, so that what it asks for may be in one."""
    name, text = symbol.name, side.after or ""
    kind = kind_of_file(path)
    if symbol.kind == "definition":
        if kind == "documentation" or (kind == "test" and not tests):
            return False
        return name in defined(path, text) or (not path.endswith((".py", ".pyi")) and _is_made(text, name))
    if symbol.kind == "option":
        plain = name.lstrip("-").replace("-", "[-_]")
        return kind not in ("documentation", "test") and (
            _has(text, name) or re.search(rf"\b{plain}\s*[:=(]|[\"']{plain}[\"']", text) is not None
        )
    if symbol.kind == "route":
        last = next((part for part in reversed(name.split("/")) if part and part[0] not in "{<:*"), "")
        return kind != "documentation" and (not last or _has_word(text, last) or last in path.split("/"))
    stems = {part.partition(".")[0].lower() for part in path.split("/")}
    return side.is_there and (_has(text.lower(), name.lower()) or name.lower() in stems)


def _is_made(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w$.]){re.escape(name)}\s*(?:\(|=|:|<|\{{)", text) is not None


def _has_word(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text) is not None


def _has(text: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def _strays(words: str, changed: Mapping[str, Side], stands: Callable[[str], bool]) -> Iterator[str]:
    """A task that names an option or a route and no file has a place as well: the program that it belongs to."""
    made = frozenset(path for path, side in changed.items() if side.is_there and not side.was_there)
    named = named_in(words)
    places = named.changed or (("",) if any(symbol.kind in ("option", "route") for symbol in symbols_in(words)) else ())
    texts = {path: side.after for path, side in changed.items() if side.after is not None}
    return strays_in(words, texts, made, places, stands)


def _left(words: str, changed: Mapping[str, Side]) -> Iterator[str]:
    texts = {path: side for path, side in changed.items() if side.after is not None}
    names = {path: defined(path, side.after or "") for path, side in texts.items()}
    for path, side in texts.items():
        before, after = side.before or "", side.after or ""
        yield from leftovers_in(path, before, after)
        if side.was_there:
            elsewhere = frozenset[str]().union(*(own for other, own in names.items() if other != path))
            yield from lost_from(path, before, after, elsewhere, words)
        yield from doubled_in(path, before, after)
