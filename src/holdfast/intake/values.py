"""The values a change file is made of, and the lines they stand on.

JSON and YAML are read into one stream of events; the stream is walked once to build the value
and, only when something is wrong, a second time to find the line of what is wrong.

    text ──events──▶ walk ──▶ build     the value
                          └─▶ line_of   the line of a place in it

Invariants
  V1  The walk keeps its own stack: depth is bounded by MAX_DEPTH, never by Python's recursion.
  V2  No key appears twice in one mapping.
  V3  A value whose meaning depends on who reads it (1.0, 0644, yes, 2024-01-01) becomes a `Surprise`,
      which no field accepts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeAlias

from holdfast.model.path import printable

MAX_DEPTH = 20
# Ten values a step at the largest number of steps, doubled: a bound on memory, not on honest files.
MAX_VALUES = 4_000_000
_SHOWN = 60


class Surprise(NamedTuple):
    """An unquoted word that readers disagree about: what it was taken for, and how it was written."""

    word: str
    text: str


Scalar: TypeAlias = bool | int | str | Surprise | None
Value: TypeAlias = "Scalar | list[Value] | dict[str, Value]"
Key: TypeAlias = str | int


class Event(NamedTuple):
    """A scalar, the start of a list or mapping, or its end; lines count from 1."""

    kind: Literal["scalar", "list", "mapping", "end"]
    value: Scalar
    line: int


class Fault(Exception):
    """Something wrong at a place (`where`, keys from the root) or, when known already, at a line."""

    def __init__(self, message: str, *where: Key, hint: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint
        self.line = line

    def inside(self, *outer: Key) -> Fault:
        """The same fault, seen from further out."""
        self.where = (*outer, *self.where)
        return self


class Place(NamedTuple):
    """One value as the walk meets it: `trail` is the walk's own list, valid until the next step."""

    trail: list[Key]
    event: Event
    line: int


def walk(events: Iterable[Event]) -> Iterator[Place]:
    """Every value with the keys that lead to it; the line is that of its key, where it has one."""
    trail: list[Key] = []
    mappings: list[bool] = []
    key: str | None = None  # the key read last, while its value has not come yet
    key_line = 0
    for count, event in enumerate(events):
        if count > MAX_VALUES:
            raise Fault(f"the file has more than {MAX_VALUES} values", line=event.line)
        if event.kind == "end":
            if not trail:
                raise Fault("a closing bracket without an opening one", line=event.line)
            trail.pop()
            mappings.pop()
            continue
        if mappings and mappings[-1] and key is None:
            key, key_line = _key(event), event.line
            continue
        if mappings:
            trail[-1] = key if key is not None else _next(trail[-1])
        yield Place(trail, event, key_line if key is not None else event.line)
        key = None
        if event.kind != "scalar":
            if len(trail) >= MAX_DEPTH:
                raise Fault(f"nested deeper than {MAX_DEPTH} levels", line=event.line)
            mappings.append(event.kind == "mapping")
            trail.append(-1)


def build(events: Iterable[Event]) -> Value:
    """The value that the events spell."""
    opened: list[list[Value] | dict[str, Value]] = []
    root: Value = None
    found = False
    for trail, event, line in walk(events):
        value: Value = event.value if event.kind == "scalar" else [] if event.kind == "list" else {}
        if not trail:
            root, found = value, True
        else:
            _put(opened[len(trail) - 1], trail[-1], value, line)
        if isinstance(value, (list, dict)):
            opened[len(trail) :] = [value]
    if not found:
        raise Fault("the file is empty", line=1)
    return root


def line_of(events: Iterable[Event], where: tuple[Key, ...]) -> int:
    """The line of a place, or of the innermost thing around it that exists."""
    wanted = list(where)
    best, line = -1, 1
    for trail, _event, place_line in walk(events):
        depth = len(trail)
        if depth > best and wanted[:depth] == trail:
            best, line = depth, place_line
            if depth == len(wanted):
                break
    return line


def word_for(value: Value) -> str:
    """What a person calls this kind of value."""
    if isinstance(value, Surprise):
        return value.word
    if isinstance(value, bool):
        return "a truth value"
    if value is None:
        return "nothing"
    return {int: "a number", str: "text", list: "a list"}.get(type(value), "a mapping")


def quoted(text: str) -> str:
    """A word from the file as a message may repeat it: short, and harmless on a terminal."""
    return f'"{printable(text)}"' if len(text) <= _SHOWN else f'"{printable(text[:_SHOWN])}…"'


def _key(event: Event) -> str:
    if isinstance(event.value, str):
        return event.value
    if isinstance(event.value, Surprise):
        raise Fault(f"a key must be text; {quoted(event.value.text)} is {event.value.word}", line=event.line)
    found = word_for(event.value) if event.kind == "scalar" else f"a {event.kind}"
    raise Fault(f"a key must be text, not {found}", line=event.line)


def _next(index: Key) -> int:
    return index + 1 if isinstance(index, int) else 0


def _put(parent: list[Value] | dict[str, Value], key: Key, value: Value, line: int) -> None:
    if isinstance(parent, list):
        parent.append(value)
        return
    if key in parent:
        raise Fault(f"the key {quoted(str(key))} appears twice", line=line)  # V2
    parent[str(key)] = value
