"""A short map of a repository: the files that matter with what they define, and the names of some others.

Invariant O1: a map is bounded in files, lines and bytes, whatever the repository holds.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from holdfast.model.path import printable

MOST_BYTES = 4_000
_MOST_OTHERS = 30
_MOST_LINES = 12
_LINE = 110
# What begins a definition in most languages; whatever stands before it says who sees it.
_DEFINITION = re.compile(
    r"[ \t]{0,8}(?:(?:export|default|pub(?:\(\w+\))?|public|private|protected|static|async|abstract|final)[ \t]+)*"
    r"(?:def|class|function|func|fn|struct|enum|trait|interface|impl|module|type)[ \t]+[\w(*&].*"
)


def repository_map(found: Sequence[str], texts: Mapping[str, str], others: Iterable[str]) -> str:
    """`found` in this order, each with its definitions; then, where there is room, other paths."""
    lines: list[str] = []
    room = MOST_BYTES
    for path in found:
        block = [printable(path), *(f"    {line}" for line in definitions(texts.get(path, "")))]
        size = sum(len(line.encode("utf-8", "replace")) + 1 for line in block)
        if size > room:
            break
        lines += block
        room -= size
    return "\n".join((*lines, *_others(others, found, room)))


def definitions(text: str) -> list[str]:
    """The lines of a file that define something, without their bodies."""
    found = [line for line in text.split("\n", 20_000) if _DEFINITION.match(line)]
    told = [printable(line.rstrip()[:_LINE].rstrip(" {:")) for line in found[:_MOST_LINES]]
    return told if len(found) <= _MOST_LINES else [*told, f"… and {len(found) - _MOST_LINES} more"]


def _others(others: Iterable[str], found: Collection[str], room: int) -> list[str]:
    """The nearest to the top first."""
    rest = sorted((path for path in others if path not in found), key=lambda path: (path.count("/"), path))
    told: list[str] = []
    for path in map(printable, rest[:_MOST_OTHERS]):
        room -= len(path.encode("utf-8", "replace")) + 1
        if room < 100:
            break
        told.append(path)
    if len(told) < len(rest):
        told.append(f"… and {len(rest) - len(told)} files more")
    return told
