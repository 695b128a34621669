"""Documents: JSON of any length, packed piece by piece.

A plan or an execution of 100,000 steps never stands in memory as objects or as one text:
each piece is spelled, compressed and forgotten. What is stored is about a tenth of the JSON.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

_AT_ONCE = 256
_FASTEST = 1


def packed(head: Mapping[str, object], steps: Iterable[Mapping[str, object]]) -> bytes:
    """The object `head` with one more member, `steps`."""
    squeezer = zlib.compressobj(_FASTEST)
    pieces = [squeezer.compress(piece.encode("ascii")) for piece in _spelled(head, steps)]
    return b"".join((*pieces, squeezer.flush()))


def packed_lists(head: Mapping[str, object], lists: Mapping[str, Iterable[object]]) -> bytes:
    """The object `head` with some more members, each a list of any length."""
    squeezer = zlib.compressobj(_FASTEST)
    pieces = [squeezer.compress(json.dumps(head)[:-1].encode("ascii"))]
    for name, items in lists.items():
        pieces.append(squeezer.compress(f", {json.dumps(name)}: [".encode("ascii")))
        pieces += [squeezer.compress(piece.encode("ascii")) for piece in _listed(items)]
        pieces.append(squeezer.compress(b"]"))
    return b"".join((*pieces, squeezer.compress(b"}"), squeezer.flush()))


def unpacked(data: bytes) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(zlib.decompress(data))
    return document


def _spelled(head: Mapping[str, object], steps: Iterable[Mapping[str, object]]) -> Iterator[str]:
    yield json.dumps({**head, "steps": []})[:-2]
    yield from _listed(steps)
    yield "]}"


def _listed(items: Iterable[object]) -> Iterator[str]:
    waiting, separator = iter(items), ""
    while some := list(islice(waiting, _AT_ONCE)):
        yield separator + json.dumps(some)[1:-1]
        separator = ", "
