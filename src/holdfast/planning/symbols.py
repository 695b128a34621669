"""Symbols that the words of a task name, to be looked up in a change: functions, classes, options, routes, other words.

    "Add `slugify(text)` to src/text.py"      slugify, defined, in src/text.py
    "Add a `--json` flag to the list command" --json, there
    "Rename `load` to `read` in io.py"        read, there, in io.py; load, no longer defined

Only what a verb of making has as its object counts, or what is named after "called" or "named"; an ordinary word counts
only in backticks, with parentheses, or spelled like nothing but an identifier.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple

from holdfast.errors import InvalidPath
from holdfast.model.path import checked_path
from holdfast.planning.named import FILE, Clause, clauses_of
from holdfast.planning.touched import ends_like_a_file

Kind = Literal["definition", "option", "route", "word"]
_MOST = 50
_DEFINING = (
    "function|method|class|subclass|dataclass|exception|error class|decorator|context manager|enum|struct|trait"
    "|interface|helper function|helper|fixture|generator|coroutine|property"
)
_OPTION = "option|flag|switch"
_ROUTE = "route|endpoint|page|url|path"
_OTHER = (
    "parameter|argument|keyword argument|field|attribute|key|setting|column|variable|constant|command|subcommand|model"
    "|table|component|module|package|event|hook|handler|target|job|section|type|test"
)
_NOUN = rf"(?:{_DEFINING}|{_OPTION}|{_ROUTE}|{_OTHER})"
_MAKES = "add|create|implement|introduce|define|write|provide|expose|declare|register|include|insert|extract|support"
_ABOUT = (
    r"(?:a|an|the|new|simple|small|public|private|static|async|asynchronous|pure|optional|missing|second|global|basic"
    r"|command[- ]line|cli|boolean|required|read-only|abstract|top-level|module-level|helper|http|rest|python"
    rf"|support for|called|named|{_NOUN})"
)
_CODE = r"`(?P<code>[^`\n]{1,120})`"
_CALL = r"(?P<call>[A-Za-z_][\w.]*)\([^()\n]{0,120}\)"
_LONG = r"(?P<long>--[A-Za-z][\w-]*)"
_ADDRESS = r"(?P<address>(?:(?:GET|POST|PUT|PATCH|DELETE|HEAD)\s+)?/[\w/{}<>:.*-]*\w[\w/{}<>:.*-]*)(?=[\s,.)]|$)"
# No ordinary word is spelled like these.
_PLAIN = r"(?P<plain>[a-z]+(?:_[a-z0-9]+)+|_[a-z]\w*|[a-z]+(?:[A-Z][a-z0-9]*)+|(?:[A-Z][a-z0-9]+){2,})(?![\w./(])"
_SYMBOL = rf"(?:{_CODE}|{_CALL}|{_LONG}|{_ADDRESS}|{_PLAIN})"
_OBJECT = re.compile(rf"(?i:^(?P<verb>{_MAKES})\s+(?P<about>(?:{_ABOUT}\s+)*)){_SYMBOL}(?P<after>(?i:\s+{_NOUN})?)")
_MORE = re.compile(
    rf"(?i:\s*(?:,\s*and|,|and|&)\s+(?P<about>(?:{_ABOUT}\s+)*))(?:{_CODE}|{_CALL}|{_LONG})(?P<after>(?i:\s+{_NOUN})?)"
)
_CALLED = re.compile(
    rf"(?i:\b(?P<about>{_NOUN})s?\s+(?:called|named)\s+)(?:{_CODE}|{_CALL}|{_LONG}|(?P<plain>[A-Za-z_]\w*)(?![\w./(]))"
)
_CLASS = re.compile(r"(?i:^(?:add|create|implement|introduce|define|write)\s+(?:(?:a|an|the|new)\s+)*)class\s+"
                    r"(?P<plain>[A-Z]\w*)\b(?!\s+[A-Z])")  # fmt: skip
_NAME = r"`?(?P<{}>[A-Za-z_][\w.]*?)(?:\(\))?`?"
_RENAMES = re.compile(
    rf"(?i)^rename\s+(?:(?:the|our|{_NOUN})\s+)*{_NAME.format('old')}\s+(?:{_NOUN}\s+)?(?:to|as|into|->|→)\s+"
    rf"{_NAME.format('new')}(?=[\s,]|$)"
)
_REMOVES = re.compile(
    rf"(?i:^(?:remove|delete|drop)\s+(?P<about>(?:(?:the|our|old|unused|dead|obsolete|deprecated|{_NOUN})\s+)*))"
    rf"(?:{_CODE}|{_CALL}|{_LONG})(?P<after>(?i:\s+{_NOUN})?)"
)
_RAISES = re.compile(r"(?i:^raise\s+(?:an?\s+|the\s+)?)`?(?P<plain>(?:[A-Z]\w*)?(?:Error|Exception|Exit|Warning))\b`?")
_SETS = re.compile(
    r"(?i:^(?:set|document|mention|describe|bump)\s+(?:(?:the|default|value|of|option|flag|setting)\s+)*)"
    r"(?:`(?P<code>[\w.-]{1,120})`)"
)
# "Create greet.py with a greet() function"
_WITH = re.compile(
    rf"(?i:^(?P<verb>create|add|write)\s+(?:{_ABOUT}\s+|file\s+|script\s+)*`?{FILE}`?\s+(?:with|containing)\s+"
    rf"(?P<about>(?:{_ABOUT}\s+)*)){_SYMBOL}(?P<after>(?i:\s+{_NOUN})?)"
)
_PREFIX = re.compile(
    r"^(?:(?:export|public|static|async|pub|abstract|final)\s+)*(?P<kind>def|class|function|fn|func|struct|enum|trait)\s+"
)
_IDENTIFIER = re.compile(r"@?(?P<name>[A-Za-z_$][\w$]*(?:(?:\.|::|#)[A-Za-z_$][\w$]*)*)(?P<call>\s*\(.*)?\Z", re.S)
_FLAG = re.compile(r"(?:-\w(?:\s*[,/|]\s*|\s+))?(?P<name>--[A-Za-z][\w-]*)(?:[= ].*)?\Z")
_METHOD = re.compile(r"(?:(?:GET|POST|PUT|PATCH|DELETE|HEAD)\s+)?(?P<name>/[\w/{}<>:.*-]*)\Z")


class Symbol(NamedTuple):
    """`name` is the last part of what the task says; `places` are the files where it is to be."""

    name: str
    kind: Kind
    places: tuple[str, ...] = ()
    gone: bool = False


def symbols_in(words: str) -> tuple[Symbol, ...]:
    """In the order of the task; none where nothing is sure."""
    found: dict[Symbol, None] = {}
    for clause in clauses_of(words):
        found.update(dict.fromkeys(symbol for symbol in _named(clause) if symbol is not None))
    return tuple(found)[:_MOST]


def _named(clause: Clause) -> Iterator[Symbol | None]:
    text, places = clause.text, clause.places
    if (renamed := _RENAMES.match(text)) is not None:
        if not (_is_file(renamed["old"]) or _is_file(renamed["new"])):
            yield Symbol(_last(renamed["new"]), "word", places)
            if _last(renamed["old"]) != _last(renamed["new"]):
                yield Symbol(_last(renamed["old"]), "definition", places, gone=True)
        return
    if (removed := _REMOVES.match(text)) is not None:
        symbol = _symbol(removed, places)
        yield symbol._replace(gone=True) if symbol is not None and symbol.kind in ("definition", "option") else None
        return
    for form in (_CLASS, _RAISES, _SETS):
        if (found := form.match(text)) is not None:
            name = found.groupdict().get("plain") or found.groupdict().get("code") or ""
            yield (
                Symbol(_last(name), "definition" if form is _CLASS else "word", places) if not _is_file(name) else None
            )
    if (made := _OBJECT.match(text) or _WITH.match(text)) is not None:
        yield from _made(text, made, places)
    for found in _CALLED.finditer(text):
        yield _symbol(found, places)


def _made(text: str, made: re.Match[str], places: tuple[str, ...]) -> Iterator[Symbol | None]:
    first = _symbol(made, places)
    if made["verb"].lower() == "support" and (first is None or first.kind != "option"):
        return
    yield first
    end = made.end()
    while (more := _MORE.match(text, end)) is not None:
        yield _symbol(more, places)
        end = more.end()


def _symbol(found: re.Match[str], places: tuple[str, ...]) -> Symbol | None:
    parts = found.groupdict()
    nouns = f"{parts.get('about') or ''} {parts.get('after') or ''}".lower()
    if call := parts.get("call"):
        return Symbol(_last(call), "definition", places)
    if long := parts.get("long"):
        return Symbol(long, "option", places)
    if plain := parts.get("plain"):
        return Symbol(plain, _kind(nouns), places) if not _is_file(plain) and _kind(nouns) != "route" else None
    written = (parts.get("code") or parts.get("address") or "").strip()
    if prefix := _PREFIX.match(written):
        written, nouns = written[prefix.end() :], f"{nouns} function"
    if flag := _FLAG.match(written):
        return Symbol(flag["name"], "option", places)
    if address := _METHOD.match(written):
        verb = address["name"] != written
        return Symbol(address["name"], "route", places) if verb or re.search(rf"\b(?:{_ROUTE})\b", nouns) else None
    identifier = _IDENTIFIER.match(written.split("->")[0].rstrip(" :"))
    if identifier is None or (not identifier["call"] and _is_file(identifier["name"])):
        return None
    inside = _last(identifier["name"]) != identifier["name"]  # Cache.get
    return Symbol(_last(identifier["name"]), "definition" if identifier["call"] or inside else _kind(nouns), places)


def _kind(nouns: str) -> Kind:
    for kind, words in (("definition", _DEFINING), ("option", _OPTION), ("route", _ROUTE)):
        if re.search(rf"\b(?:{words})\b", nouns):
            return kind  # type: ignore[return-value]
    return "word"


def _last(name: str) -> str:
    return re.split(r"\.|::|#", name)[-1]


def _is_file(name: str) -> bool:
    if "." not in name:
        return False
    try:
        return ends_like_a_file(checked_path(name).rpartition("/")[2])
    except InvalidPath:
        return False
