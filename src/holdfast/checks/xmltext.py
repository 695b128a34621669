"""XML that somebody hostile may have written, as a stream of elements.

Invariants
  E1  No entity is ever declared: a document that tries is refused, so none expands, and none is fetched.
      A plain DOCTYPE (Cobertura has one) is read over; its DTD is not looked for.
  E2  Depth, number of elements and bytes are bounded.
  E3  Whatever the bytes, the outcome is elements or BadReport.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn

MAX_BYTES = 32 << 20
MAX_DEPTH = 64
MAX_ELEMENTS = 2_000_000

OnStart = Callable[[str, Mapping[str, str], int], None]
OnEnd = Callable[[str, int], None]


class BadReport(ValueError):
    """A report that cannot be read; the message is for a person."""


def read_xml(data: bytes, on_start: OnStart, on_end: OnEnd) -> None:
    """Call back for every element, with its depth counted from 1, or raise BadReport."""
    from xml.parsers import expat

    if len(data) > MAX_BYTES:
        raise BadReport(f"it is larger than {MAX_BYTES >> 20} MiB")
    watch = _Watch(on_start, on_end)
    parser = expat.ParserCreate()
    parser.EntityDeclHandler = _refuse_entity
    parser.StartElementHandler = watch.start
    parser.EndElementHandler = watch.end
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise BadReport(f"it is not XML: line {error.lineno}: {expat.ErrorString(error.code)}") from None
    except (ValueError, LookupError) as error:
        if isinstance(error, BadReport):
            raise
        raise BadReport("it is not XML: its encoding is not known") from None  # named in the declaration


def _refuse_entity(*declaration: object) -> NoReturn:
    raise BadReport("it declares entities, which no report needs")


class _Watch:
    """Counts what goes by (E2)."""

    def __init__(self, on_start: OnStart, on_end: OnEnd) -> None:
        self._on_start, self._on_end = on_start, on_end
        self._depth = self._elements = 0

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._elements += 1
        if self._depth > MAX_DEPTH:
            raise BadReport(f"it is nested deeper than {MAX_DEPTH} levels")
        if self._elements > MAX_ELEMENTS:
            raise BadReport(f"it has more than {MAX_ELEMENTS} elements")
        self._on_start(name, attributes, self._depth)

    def end(self, name: str) -> None:
        self._on_end(name, self._depth)
        self._depth -= 1
