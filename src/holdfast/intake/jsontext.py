"""JSON: the form tools write, fast when it is right and exact about lines when it is wrong.

`load` lets the standard library parse in one go and checks only for duplicate keys.
`events` reads the same text slowly, with lines; it is used after `load` or a field refused something,
so it may assume little about the text but needs no opinion about commas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from holdfast.intake.values import MAX_VALUES, Event, Fault, Surprise, Value, build

# Below this size, no text can hold enough values to matter.
_UNCHECKED_SIZE = 8 * 1024 * 1024
_SEPARATORS = ",:"
_BLANKS = " \t\n\r"
# Possessive: a text of a million escapes must not cost a million places to come back to.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


class _Suspect(Exception):
    """The fast parser saw a mapping with a key twice; the slow one finds where."""


def load(text: str) -> Value:
    """The value of a JSON text, or Fault."""
    _refuse_too_many_values(text)
    try:
        value: Value = _FAST.decode(text)
    except json.JSONDecodeError as error:
        raise _syntax_fault(error) from None
    except (_Suspect, RecursionError):
        build(events(text))
        raise Fault("a key appears twice, or the file is nested too deeply") from None
    return value


def events(text: str) -> Iterator[Event]:
    """The text as events with lines."""
    position, line = 0, 1
    end = len(text)
    while position < end:
        char = text[position]
        if char in _BLANKS or char in _SEPARATORS:
            line += char == "\n"
            position += 1
        elif char in "{[":
            yield Event("mapping" if char == "{" else "list", None, line)
            position += 1
        elif char in "}]":
            yield Event("end", None, line)
            position += 1
        else:
            try:
                value, position = _FAST.raw_decode(text, position)
            except json.JSONDecodeError as error:
                raise _syntax_fault(error) from None
            yield Event("scalar", value, line)  # a JSON string never spans lines


def _syntax_fault(error: json.JSONDecodeError) -> Fault:
    return Fault(f"not valid JSON: {error.msg.removesuffix(' at')}", line=error.lineno,
                 hint="A file that begins with { is read as JSON.")  # fmt: skip


def _refuse_too_many_values(text: str) -> None:
    """A file of empty brackets would take fifty times its size in memory."""
    if len(text) >= _UNCHECKED_SIZE and _openings(text) > MAX_VALUES and _openings(_STRING.sub("", text)) > MAX_VALUES:
        raise Fault(f"the file has more than {MAX_VALUES} values", line=1)


def _openings(text: str) -> int:
    """Every value but the first in a list or mapping follows one of these."""
    return text.count(",") + text.count("[") + text.count("{")


def _mapping(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Suspect
    return made


def _integer(text: str) -> int | Surprise:
    return int(text) if len(text) <= 18 else Surprise("a very long number", text)


def _decimal(text: str) -> Surprise:
    return Surprise("a decimal number", text)


_FAST = json.JSONDecoder(
    object_pairs_hook=_mapping, parse_int=_integer, parse_float=_decimal, parse_constant=_decimal, strict=True
)
