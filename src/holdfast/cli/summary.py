"""The summary: one line a change, so that a person can say yes to exactly this.

    ~ conf/site.conf    2 lines changed         + path   new            - path   removed (kept for undo)
    > current → releases/2                      m run.sh mode 0644 → 0755
    → a.txt → b.txt     moved                   ! what to know besides, such as a hunk that applied elsewhere

What is inside a removed or moved directory is counted, not listed. Lines are counted for the first files only,
and only in small texts: a summary must not cost more than the change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.documents import action_of
from holdfast.cli.screen import shown
from holdfast.cli.words import count, size
from holdfast.model.path import parent_of, printable

if TYPE_CHECKING:
    from holdfast.engine.difference import Compared, Difference, Side
    from holdfast.model.changeset import Change
    from holdfast.model.image import Image

MOST_LINES = 20
_COUNTED_BYTES = 64 * 1024
_WIDEST_NAME = 44
_MOST_LEFT_OUT = 3


class Line(NamedTuple):
    """A sign, a name, and what happens to it."""

    sign: str
    name: str
    what: str


def summary(difference: Difference) -> list[str]:
    """The lines, already escaped, at most twenty and a word about the rest."""
    told = list(_told(difference.changes))
    inside = _counts_inside(difference.changes, told)
    lines = [_line(compared, inside) for compared in difference.compared(told[:MOST_LINES])]
    width = min(_WIDEST_NAME, max((len(line.name) for line in lines if line.what), default=0))
    text = [f"  {line.sign} {line.name.ljust(width)}  {line.what}".rstrip() for line in lines]
    if len(told) > MOST_LINES:
        text.append(f"  and {len(told) - MOST_LINES:,} more")
    return [*text, *note_lines(difference.notes, MOST_LINES)]


def left_out(paths: Sequence[str], total: int = 0) -> str:
    """The by-products of a program, of which there are `total`: the first by name, and the key that keeps one."""
    named = ", ".join(map(shown, paths[:_MOST_LEFT_OUT]))
    more = max(total, len(paths)) - _MOST_LEFT_OUT
    named += f" and {more:,} more" if more > 0 else ""
    return f"caches and ignored files are not landed: {named}  (to land one: [workspace] keep)"


def note_lines(notes: Sequence[str], most: int) -> list[str]:
    """Each note on a line of its own, escaped, at most so many and a word about the rest."""
    text = [f"  ! {shown(note)}" for note in notes[:most]]
    return [*text, f"  ! and {len(notes) - most:,} more"] if len(notes) > most else text


def _told(changes: Sequence[Change]) -> Iterator[Change]:
    """The changes worth a line of their own."""
    origins = {change.origin for change in changes if change.origin is not None}
    moved = {change.path: change.origin for change in changes if change.origin is not None}
    removed = {change.path for change in changes if change.post is None}
    for change in changes:
        name = change.path.rpartition("/")[2]
        above = moved.get(parent_of(change.path))
        if change.post is None and (change.path in origins or parent_of(change.path) in removed):
            continue
        if above is not None and change.origin == f"{above}/{name}":
            continue
        yield change


def _counts_inside(changes: Sequence[Change], told: Sequence[Change]) -> dict[str, int]:
    """How many removed entries each removed directory stands for."""
    origins = {change.origin for change in changes}
    removed = [change.path for change in changes if change.post is None and change.path not in origins]
    tops = [change.path for change in told if change.post is None and _is_directory(change.pre)]
    return {top: sum(path.startswith(top + "/") for path in removed) for top in tops[:MOST_LINES]}


def _line(compared: Compared, inside: dict[str, int]) -> Line:
    change = compared.change
    name = printable(change.path)
    match action_of(change):
        case "create":
            return _created(name, compared)
        case "move":
            return Line("→", f"{printable(change.origin or '')} → {name}", "moved")
        case "delete":
            within = inside.get(change.path, 0)
            slash = "/" if _is_directory(change.pre) else ""
            entries = f" with {count(within, 'entry', 'entries')}" if within else ""
            return Line("-", name + slash, f"removed{entries} (kept for undo)")
        case "mode":
            return Line("m", name, _modes(change))
        case _:
            return _updated(name, compared)


def _created(name: str, compared: Compared) -> Line:
    post = compared.change.post
    assert post is not None
    if post.kind == "directory":
        return Line("+", name + "/", "new directory")
    if post.kind == "symlink":
        return Line(">", f"{name} → {printable(post.target)}", "")
    return Line("+", name, f"new, {_amount(compared.new, post)}")


def _updated(name: str, compared: Compared) -> Line:
    pre, post = compared.change.pre, compared.change.post
    assert pre is not None and post is not None
    if post.kind == "symlink":
        was = f"was → {printable(pre.target)}" if pre.kind == "symlink" else f"was a {pre.kind}"
        return Line(">", f"{name} → {printable(post.target)}", was)
    if pre.kind != post.kind:
        return Line("~", name, f"a {pre.kind} becomes a {post.kind}")
    if pre.digest == post.digest:
        return Line("m", name, "owner or attributes change" if pre.mode == post.mode else _modes(compared.change))
    also = f", {_modes(compared.change)}" if pre.mode != post.mode else ""
    return Line("~", name, _changed_lines(compared, pre, post) + also)


def _modes(change: Change) -> str:
    assert change.pre is not None and change.post is not None
    return f"mode {change.pre.mode:04o} → {change.post.mode:04o}"


def _amount(side: Side, image: Image) -> str:
    if not image.size:
        return "empty"
    if side.data is None or len(side.data) > _COUNTED_BYTES:
        return size(image.size)
    return count(len(_lines(side.data)), "line")


def _changed_lines(compared: Compared, pre: Image, post: Image) -> str:
    old, new = compared.old.data, compared.new.data
    if old is None or new is None or max(len(old), len(new)) > _COUNTED_BYTES:
        return f"{size(pre.size)} → {size(post.size)}"
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, _lines(old), _lines(new))
    edits = [(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"]
    gone, come = sum(i for i, _ in edits), sum(j for _, j in edits)
    if not gone or not come:
        return f"{count(gone or come, 'line')} {'removed' if gone else 'added'}"
    return f"{count(sum(max(edit) for edit in edits), 'line')} changed"


def _lines(data: bytes) -> list[bytes]:
    """With their ends, so that a line which only loses its end is one line changed, as in the diff."""
    *whole, last = data.split(b"\n")
    return [*(line + b"\n" for line in whole), *filter(None, (last,))]


def _is_directory(image: Image | None) -> bool:
    return image is not None and image.kind == "directory"
