"""Making patches: the difference of two texts as hunks, for files of any size.

What both texts begin and end with is set aside first; only what lies between is compared line by line.
Where that is more than `MOST_LINES` on a side, it becomes one hunk: larger than need be, and just as exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.patch import FilePatch, Hunk, Line
from holdfast.model.path import printable

CONTEXT = 3
MOST_LINES = 5_000


class _Run(NamedTuple):
    """Old lines that become new lines, by number; equal lines are in no run."""

    old: int
    old_end: int
    new: int
    new_end: int


def make(
    old: bytes | None,
    new: bytes | None,
    path: str,
    *,
    old_path: str | None = None,
    old_mode: int | None = None,
    new_mode: int | None = None,
    context: int = CONTEXT,
) -> FilePatch:
    """The patch from one content to another; None is no file. `old_path` is the name before, where it was another."""
    if old is None and new is None:
        raise InvalidInput(f"{printable(path)}: there is no file on either side")
    if b"\0" in (old or b"") or b"\0" in (new or b""):
        raise InvalidInput(f"{printable(path)}: binary content; a patch here is text")
    hunks = difference(old or b"", new or b"", context)
    if old is None:
        return FilePatch(None, path, hunks, None, _plain(new_mode) or 0o644)
    if new is None:
        return FilePatch(old_path or path, None, hunks, _plain(old_mode) or 0o644, None)
    before, after = _plain(old_mode), _plain(new_mode)
    if before is None or after is None or before == after:
        before = after = None
    return FilePatch(old_path or path, path, hunks, before, after)


def difference(old: bytes, new: bytes, context: int = CONTEXT) -> tuple[Hunk, ...]:
    """The hunks that lead from one text to another; none when they are equal."""
    a, b = _lines(old), _lines(new)
    hunks: list[Hunk] = []
    group: list[_Run] = []
    for run in _runs(a, b):
        if group and run.old - group[-1].old_end > 2 * context:
            hunks.append(_hunk(a, b, group, context))
            group = []
        group.append(run)
    if group:
        hunks.append(_hunk(a, b, group, context))
    return tuple(hunks)


def _runs(a: list[bytes], b: list[bytes]) -> Iterator[_Run]:
    shortest = min(len(a), len(b))
    head = next((n for n in range(shortest) if a[n] != b[n]), shortest)
    tail = next((n for n in range(shortest - head) if a[-1 - n] != b[-1 - n]), shortest - head)
    old, new = a[head : len(a) - tail], b[head : len(b) - tail]
    if not old and not new:
        return
    if not old or not new or max(len(old), len(new)) > MOST_LINES:
        yield _Run(head, head + len(old), head, head + len(new))
        return
    from difflib import SequenceMatcher  # only who makes patches pays for it

    for tag, i, i_end, j, j_end in SequenceMatcher(None, old, new).get_opcodes():
        if tag != "equal":
            yield _Run(head + i, head + i_end, head + j, head + j_end)


def _hunk(a: list[bytes], b: list[bytes], group: list[_Run], context: int) -> Hunk:
    first, last = group[0], group[-1]
    begin, end = max(first.old - context, 0), min(last.old_end + context, len(a))
    lines: list[Line] = []
    at = begin
    for run in group:
        lines += (Line(" ", text) for text in a[at : run.old])
        lines += (Line("-", text) for text in a[run.old : run.old_end])
        lines += (Line("+", text) for text in b[run.new : run.new_end])
        at = run.old_end
    lines += (Line(" ", text) for text in a[at:end])
    new_begin = first.new - (first.old - begin)
    old_count, new_count = end - begin, last.new_end + (end - last.old_end) - new_begin
    return Hunk(
        begin + (1 if old_count else 0), old_count, new_begin + (1 if new_count else 0), new_count, tuple(lines)
    )  # fmt: skip


def _lines(data: bytes) -> list[bytes]:
    """With their ends; only the last may have none."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _plain(mode: int | None) -> int | None:
    """As much of a mode as a patch knows."""
    return None if mode is None else 0o755 if mode & 0o100 else 0o644
