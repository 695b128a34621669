"""A place in a tree where a project lives, as the kinds of projects see it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from holdfast.checks.levels import Check, NotRun
from holdfast.checks.tree import Tree

Found: TypeAlias = Check | NotRun
BATCH = 300


@dataclass(frozen=True)
class Place:
    """A directory of the tree; names and paths given here are relative to it.

    `touched` are the files of the change below it that exist after the change.
    """

    tree: Tree
    root: str
    touched: tuple[str, ...] = ()
    names: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", self.tree.names(self.root))

    def first(self, *names: str) -> str:
        """The first of these that is here, or nothing."""
        return next((name for name in names if name in self.names), "")

    def inside(self, directory: str) -> frozenset[str]:
        return self.tree.names(self.at(directory))

    def text(self, name: str) -> str:
        """A file as text; empty where it is missing or cannot be read, which decides nothing by itself."""
        try:
            return self.tree.read(self.at(name)).decode("utf-8", "replace")
        except OSError:
            return ""

    def at(self, path: str) -> str:
        return f"{self.root}/{path}" if self.root else path

    def touched_with(self, *suffixes: str) -> tuple[str, ...]:
        return tuple(path for path in self.touched if path.endswith(suffixes))

    def batches(self, *suffixes: str) -> Iterator[tuple[str, ...]]:
        """The same, as many at a time as fit on a command line."""
        paths = self.touched_with(*suffixes)
        yield from (paths[start : start + BATCH] for start in range(0, len(paths), BATCH))


class Kind(NamedTuple):
    """A kind of project: the names that give it away, and the checks it has.

    A marker with a leading `*` is a suffix. `definitions` are further files that decide what its checks do.
    """

    name: str
    markers: tuple[str, ...]
    checks: Callable[[Place], Iterator[Found]]
    definitions: tuple[str, ...] = ()

    def marker_in(self, names: Iterable[str]) -> str:
        for marker in self.markers:
            for name in sorted(names):
                if name == marker or (marker.startswith("*") and name.endswith(marker[1:])):
                    return name
        return ""


def json_object(text: str) -> dict[str, object]:
    """An object, or an empty one where the text is none; the syntax level says so elsewhere."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def has_section(text: str, name: str) -> bool:
    """Whether a TOML or INI text has this table, or one below it."""
    return re.search(rf"(?m)^\s*\[\[?{re.escape(name)}[.\]]", text) is not None
