"""One directory while it is walked: the block that was known of it, and what differs from that.

    names as known ──▶ `changed`: the entries that differ, by their place
    other names ─────▶ `fresh`: all entries, in the order of the names

Invariants
  Q1  What does not differ is the known block itself, the very same object; its children are never written to.
  Q2  An entry that is no directory has no child.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.workspace.block import DIRECTORY, STAMP, Block, Entry, Row, directories_in, sealed


class Known(NamedTuple):
    """What an earlier look knew of a directory; an empty row matches none."""

    block: Block | None = None
    row: Row = ()
    xattrs: bytes = b""


class Frame:
    __slots__ = ("attempts", "changed", "children", "extras", "fd", "fresh", "known", "name", "names", "place", "row",
                 "unmoved", "waiting", "xattrs")  # fmt: skip

    def __init__(self, fd: int, name: bytes, place: int) -> None:
        self.fd = fd
        self.name = name
        self.place = place
        self.attempts = 0
        self.begin(Known(), ())

    def begin(self, known: Known, row: Row) -> None:
        """A new look. `unmoved` says that the list of names, mode, owner and attributes are as known."""
        self.known = known.block
        self.row = row
        self.unmoved = known.block is not None and row == known.row
        self.xattrs = known.xattrs
        self.names: list[bytes] = []
        self.changed: dict[int, Entry] = {}
        self.fresh: list[Entry] | None = None
        self.extras: dict[int, bytes] | None = None
        self.children: dict[int, Block] = known.block.children if known.block is not None else {}
        self.waiting: list[int] = []

    @property
    def differs(self) -> bool:
        return self.fresh is not None or bool(self.changed)

    def known_entry(self, place: int) -> Entry:
        assert self.known is not None
        if self.extras is None:
            self.extras = self.known.extras()
        return Entry(self.known.record(place), self.known.stamp(place), self.extras.get(place, b""))

    def known_child(self, place: int) -> Known:
        """What was known of the subdirectory at a place of this frame."""
        child = self.children.get(place)
        if child is None:
            return Known()
        entry = self._entry(place)
        return Known(child, STAMP.unpack(entry.stamp), entry.extra)

    def change(self, place: int, entry: Entry) -> None:
        """Another entry under a name; a directory inherits what was known below that name."""
        self._put(place, entry, self.children.get(place) if entry.record[:1] == DIRECTORY else None)

    def start_afresh(self) -> None:
        """The names are not the known ones: all entries follow, in order."""
        self.names, self.fresh, self.children = [], [], {}

    def add(self, name: bytes, entry: Entry, known_place: int) -> None:
        """The next entry; a directory inherits what was known below the same name."""
        assert self.fresh is not None
        if self.known is not None and entry.record[:1] == DIRECTORY and known_place in self.known.children:
            self.children[len(self.fresh)] = self.known.children[known_place]
        self.names.append(name)
        self.fresh.append(entry)

    def wait(self) -> None:
        """All entries are there; the subdirectories come next, in order."""
        if self.fresh is not None:
            places = [place for place, entry in enumerate(self.fresh) if entry.record[:1] == DIRECTORY]
        else:
            places = directories_in(self.known) if self.known is not None else []
        if self.changed:
            others = [place for place in places if place not in self.changed]
            places = sorted((*others, *(at for at, entry in self.changed.items() if entry.record[:1] == DIRECTORY)))
        self.waiting = places[::-1]

    def settle(self, place: int, entry: Entry, child: Block | None) -> None:
        """The subdirectory that was waited for is done."""
        self.waiting.pop()
        if child is not self.children.get(place) or entry != self._entry(place):
            self._put(place, entry, child)

    def block(self) -> Block:
        """What is known now; the known block itself if it says the same (Q1)."""
        old = self.known
        if old is None or self.fresh is not None:
            new = sealed(self.names, self.fresh or [], self.children)
        elif self.changed:
            new = old.patched(self.changed, self.children)
        else:
            return old
        if old is not None and (new.facts, new.stamps) == (old.facts, old.stamps) and new.children == old.children:
            return old
        return new

    def _entry(self, place: int) -> Entry:
        if self.fresh is not None:
            return self.fresh[place]
        return self.changed.get(place) or self.known_entry(place)

    def _put(self, place: int, entry: Entry, child: Block | None) -> None:
        if self.fresh is not None:
            self.fresh[place] = entry
        else:
            self.changed[place] = entry
        if child is self.children.get(place):
            return
        if self.known is not None and self.children is self.known.children:
            self.children = dict(self.children)
        if child is not None:
            self.children[place] = child
        else:
            del self.children[place]
