"""One byte string for one value, so that a digest means something.

Invariants
  C1  Equal values give equal bytes; different values give different bytes.
  C2  Only null, booleans, integers, strings, lists and string-keyed objects exist here.
      Floats are refused: 1 and 1.0 would compare equal and digest differently.
  C3  Output is ASCII; names that are not UTF-8 travel as surrogate escapes and survive the round trip.
"""

from __future__ import annotations

import hashlib
import json
from typing import TypeAlias

Json: TypeAlias = "None | bool | int | str | list[Json] | dict[str, Json]"

# Separators without blanks and sorted keys make C1; ensure_ascii makes C3.
_encoder = json.JSONEncoder(ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":"))

# A string as it stands in the canonical form; for hot paths that put a row together by themselves.
quoted = json.encoder.encode_basestring_ascii


def canonical(value: object) -> bytes:
    """The canonical bytes of a JSON-like value (tuples count as lists)."""
    _refuse_foreign_types(value)
    return _encoder.encode(value).encode("ascii")


def canonical_rows(rows: object) -> bytes:
    """Like `canonical`, for values built by Holdfast itself from integers, strings and None.

    The type walk costs more than the encoding; change sets of 100,000 rows skip it.
    """
    return _encoder.encode(rows).encode("ascii")


def digest_of(value: object) -> str:
    """SHA-256 over the canonical bytes, as hex."""
    return hashlib.sha256(canonical(value)).hexdigest()


def whole_characters(text: str) -> str:
    """Half characters have no canonical form, and a record must not fail after the change was made."""
    return "".join("\ufffd" if "\ud800" <= ch <= "\udbff" else ch for ch in text)


def _refuse_foreign_types(value: object) -> None:
    if isinstance(value, str):
        # A high surrogate and a low one side by side would be written like the character they stand for (C1).
        if not value.isascii() and any("\ud800" <= ch <= "\udbff" for ch in value):
            raise TypeError("canonical form has no half characters")
        return
    if value is None or isinstance(value, (bool, int)):
        return
    if isinstance(value, (list, tuple)):
        for item in value:
            _refuse_foreign_types(item)
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise TypeError(f"canonical form has string keys only, not {type(key).__name__}")
            _refuse_foreign_types(key)
            _refuse_foreign_types(item)
        return
    raise TypeError(f"canonical form has no {type(value).__name__}")
