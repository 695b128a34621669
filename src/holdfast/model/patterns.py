"""Paths by pattern: the one language for policy, hidden paths, the reach of agents, patches and triggers.

    .env            this name, at any depth, and all below it
    *.pth           such a name, at any depth
    conf/*.toml     from the top of the workspace, one name deep (a slash inside anchors a pattern)
    **/cron.d/**    `**` is any number of names, also none

`*` and `?` do not cross a slash; every other character means itself.
A pattern covers what it names and everything below that, so a protected directory cannot be entered sideways.

Names are compared case-folded and Unicode-normalised, as the laxest file system would:
an alias of a protected name is that name.

Repositories bring patterns too, so no pattern may be expensive. All patterns of an index are one machine: a state is
an integer whose bit says how far each of them has come, and a name moves all of them at once.

Invariants
  Q1  A path costs a number of operations that is linear in its names, whatever the patterns are; a name that was not
      seen before costs one that is linear in its characters. Each operation is linear in the size of the patterns.
  Q2  A state that is reached on two ways is the union of both, so a walk through links visits a place once for each
      new bit, not once for each way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.path import folded, printable

LONGEST = 4000
_DEEP = "**"
_WILD = frozenset("*?")
_MOST_REMEMBERED = 20_000
# Of all patterns of one index together; the built-in policy has a tenth of it.
_MOST_CHARACTERS = 100_000
_MOST_SHAPES = 1_000
_NONE: frozenset[int] = frozenset()


class Step(NamedTuple):
    """Where a name leads: `state` for what is below it, and `moved`, the part of it that names this very name.

    `found` has a bit for each pattern that covers the name, or a directory above it.
    """

    state: int
    moved: int
    found: int


class _Machine:
    """Shift-and: bit n of a state says that everything before element n was matched, in one of the sequences."""

    def __init__(self) -> None:
        self.start = 0
        self._repeats = 0
        self._size = 0

    def add(self, repeats: Sequence[bool]) -> int:
        """One more sequence, by which of its elements stand for any number of symbols; the bit of its first element.

        No two of those may follow each other. The bit after the last element says that all of it was matched.
        """
        first = self._size
        self._repeats |= sum(1 << first + n for n, repeat in enumerate(repeats) if repeat)
        self.start |= self._closed(1 << first)
        self._size += len(repeats) + 1
        return first

    def moved(self, state: int, fitting: int) -> int:
        """What is reached by elements that fit the symbol; `fitting` has none of those that repeat."""
        return self._closed((state & fitting) << 1)

    def stayed(self, state: int) -> int:
        """What is reached by elements that stand for any number of symbols."""
        return self._closed(state & self._repeats)

    def _closed(self, state: int) -> int:
        return state | (state & self._repeats) << 1


class _Names:
    """Which of many patterns for one name fit a name; each has a mask, and masks of those that fit are joined."""

    def __init__(self) -> None:
        self._always = 0
        self._exact: dict[str, int] = {}
        self._starts: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        # All other patterns, character by character.
        self._machine = _Machine()
        self._characters: dict[str, int] = {}
        self._single = 0
        self._shapes: dict[str, int] = {}
        self._masks: dict[int, int] = {}
        self._matched = 0

    def add(self, pattern: str, mask: int) -> None:
        if pattern == "*":
            self._always |= mask
        elif not _WILD & set(pattern):
            self._exact[pattern] = self._exact.get(pattern, 0) | mask
        elif pattern[0] == "*" and not _WILD & set(pattern[1:]):
            self._ends[pattern[1:]] = self._ends.get(pattern[1:], 0) | mask
        elif pattern[-1] == "*" and not _WILD & set(pattern[:-1]):
            self._starts[pattern[:-1]] = self._starts.get(pattern[:-1], 0) | mask
        else:
            end = self._shapes.get(pattern) or self._shape(pattern)
            self._masks[end] = self._masks.get(end, 0) | mask

    def _shape(self, pattern: str) -> int:
        """The bit that says that all of it was matched."""
        if len(self._shapes) >= _MOST_SHAPES:
            raise InvalidInput(f"more than {_MOST_SHAPES:,} patterns have * or ? inside a name")
        first = self._machine.add([ch == "*" for ch in pattern])
        for place, ch in enumerate(pattern, first):
            if ch == "?":
                self._single |= 1 << place
            elif ch != "*":
                self._characters[ch] = self._characters.get(ch, 0) | 1 << place
        end = 1 << first + len(pattern)
        self._shapes[pattern] = end
        self._matched |= end
        return end

    def fitting(self, name: str) -> int:
        found = self._always | self._exact.get(name, 0)
        for length in range(len(name) + 1) if self._starts or self._ends else ():
            found |= self._starts.get(name[:length], 0) | self._ends.get(name[length:], 0)
        if not self._shapes:
            return found
        machine, state = self._machine, self._machine.start
        for ch in name:
            state = machine.moved(state, self._characters.get(ch, 0) | self._single) | machine.stayed(state)
        for end in _bits(state & self._matched):
            found |= self._masks[end]
        return found


class PatternIndex:
    """Many owners (rules), each with many patterns; one look at a path finds all owners it belongs to."""

    def __init__(self, owners: Sequence[Sequence[str]]) -> None:
        self.empty = not any(owners)
        self._machine = _Machine()
        self._names = _Names()
        self._owner_at: dict[int, int] = {}
        self._doors: list[tuple[int, int]] = []
        # Names and directories repeat. Nothing but time depends on what is remembered.
        self._fitting: dict[str, tuple[int, ...]] = {}
        self._directories: dict[tuple[str, str], Step] = {}
        self._owners: dict[int, frozenset[int]] = {0: _NONE}
        if sum(len(pattern) for patterns in owners for pattern in patterns) > _MOST_CHARACTERS:
            raise InvalidInput(f"the patterns have more than {_MOST_CHARACTERS:,} characters together")
        for owner, patterns in enumerate(owners):
            for pattern in dict.fromkeys(map(checked_pattern, patterns)):
                self._add(owner, _elements(pattern))
        self._ends = sum(self._owner_at)

    @property
    def start(self) -> Step:
        """The workspace itself, for whoever walks through it."""
        return Step(self._machine.start, 0, 0)

    def step(self, at: Step, name: str) -> Step:
        """From a directory to a name in it."""
        state, moved, found = at
        for fitting in self._fitting.get(name) or self._learned(name):
            moved = self._machine.moved(state, fitting)
            state = moved | self._machine.stayed(state)
            found |= moved & self._ends
        return Step(state, moved, found)

    def covers(self, path: str) -> bool:
        return bool(self._at(path, "").found)

    def owners_of(self, path: str, above: str = "") -> frozenset[int]:
        """The owners one of whose patterns covers this path.

        `above` names the directories the workspace itself stands in, as far as they matter:
        `passwd` in a workspace at /etc is `etc/passwd`.
        """
        return _NONE if self.empty else self._owners_in(self._at(path, above).found)

    def owners_through(self, path: str, above: str = "") -> frozenset[int]:
        """The owners one of whose patterns leads through exactly this path: for `.github/workflows`, `.github`.

        Whoever puts a link there decides what stands under all the names below it.
        Only what is spelled out counts: `**` and `*` lead through everything.
        """
        moved = self._at(path, above).moved
        return frozenset(owner for doors, owner in self._doors if moved & doors)

    def _at(self, path: str, above: str) -> Step:
        directory, _, name = path.rpartition("/")
        known = self._directories.get((above, directory))
        if known is None:
            known = self._below(above)
            for part in directory.split("/") if directory else ():
                known = self.step(known, part)
            if len(self._directories) >= _MOST_REMEMBERED:
                self._directories.clear()
            self._directories[above, directory] = known
        return self.step(known, name)

    def _below(self, above: str) -> Step:
        """A pattern may begin at the workspace, or further up (Q2)."""
        at = self.start
        for name in above.split("/") if above else ():
            at = self.step(at, name)
        return Step(at.state | self._machine.start, 0, at.found)

    def _learned(self, name: str) -> tuple[int, ...]:
        # Folding may make several names of one: a full-width slash is a slash.
        learned = tuple(self._names.fitting(part) for part in folded(name).split("/"))
        if len(self._fitting) >= _MOST_REMEMBERED:
            self._fitting.clear()
        self._fitting[name] = learned
        return learned

    def _owners_in(self, found: int) -> frozenset[int]:
        owners = self._owners.get(found)
        if owners is None:
            owners = frozenset(self._owner_at[end] for end in _bits(found))
            if len(self._owners) >= _MOST_REMEMBERED:
                self._owners.clear()
            self._owners[found] = owners
        return owners

    def _add(self, owner: int, elements: Sequence[str]) -> None:
        first = self._machine.add([element == _DEEP for element in elements])
        doors = 0
        for place, element in enumerate(elements, first):
            if element != _DEEP:
                self._names.add(element, 1 << place)
            # The bit after an element is set when the element was matched.
            if set(element) - _WILD and place + 1 < first + len(elements):
                doors |= 1 << place + 1
        if doors:
            self._doors.append((doors, owner))
        self._owner_at[1 << first + len(elements)] = owner


def covers(patterns: Iterable[str]) -> PatternIndex:
    """One owner, number 0."""
    return PatternIndex([tuple(patterns)])


def checked_pattern(pattern: str) -> str:
    """The pattern as it is compared, or InvalidInput."""
    names = pattern.rstrip("/").split("/")
    if len(pattern) > LONGEST:
        raise InvalidInput(f"{printable(pattern[:60])}…: a pattern is at most {LONGEST} characters long")
    if "\0" in pattern or any(name in ("", ".", "..") or name[-1] in ". " for name in names):
        raise InvalidInput(f"{pattern!r} is no pattern for paths inside the workspace")
    if any(_DEEP in name and name != _DEEP for name in names):
        raise InvalidInput(f"{pattern!r}: ** stands for whole names only")
    plain = folded("/".join(names))
    if "" in plain.split("/"):
        raise InvalidInput(f"{pattern!r} is no pattern for paths inside the workspace")
    return plain


def is_everything(pattern: str) -> bool:
    """Whether a checked pattern covers every path."""
    return [name for name in _elements(pattern) if name != _DEEP] in ([], ["*"])


def _elements(pattern: str) -> list[str]:
    """Its names from the top of the workspace on. What is below a match is covered anyway: a last `**` says nothing."""
    names = pattern.split("/")
    if len(names) == 1:
        names.insert(0, _DEEP)
    while len(names) > 1 and names[-1] == _DEEP:
        names.pop()
    return ["*"] if names == [_DEEP] else list(_without_repeats(names))


def _without_repeats(names: Iterable[str]) -> Iterator[str]:
    before = ""
    for name in names:
        if name != _DEEP or before != _DEEP:
            yield name
        before = name


def _bits(number: int) -> Iterator[int]:
    while number:
        lowest = number & -number
        yield lowest
        number ^= lowest
