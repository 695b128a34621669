"""Other names: a link to a directory or a file gives everything there a second name, and a rule may be about that one.

    vs/tasks.json, and a link .vscode → vs  ......  is .vscode/tasks.json as well

Invariants
  L1  A name is followed through several links, but only so far; where there are more, the gate asks (`MOST_NAMES`).
  L2  Where a link leads is read from its text alone. What only the disk could tell leads nowhere here;
      the gate asks about such a link when it is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from holdfast.model.changeset import Change
from holdfast.model.path import ancestors_of, parent_of

MOST_NAMES = 256


class Aliases(NamedTuple):
    """Target → the links that lead there, all relative to the workspace."""

    links: Mapping[str, tuple[str, ...]]

    def names_of(self, path: str) -> tuple[str, ...]:
        """Every other name of a path, through any number of links (L1)."""
        if not self.links:
            return ()
        found: dict[str, None] = {}
        waiting = [path]
        while waiting and len(found) < MOST_NAMES:
            for name in self._one_link_away(waiting.pop(0)):
                if name != path and name not in found:
                    found[name] = None
                    waiting.append(name)
        return tuple(found)

    def _one_link_away(self, path: str) -> Iterator[str]:
        for target in (path, *ancestors_of(path), ""):
            for link in self.links.get(target, ()):
                # A link to a directory above itself would give ever longer names.
                if not f"{path}/".startswith(f"{link}/"):
                    yield f"{link}/{path[len(target) :].lstrip('/')}" if path != target else link


def leading_to(paths: Iterable[str], links: Iterable[tuple[str, str]], root: str) -> tuple[tuple[str, str], ...]:
    """Of all the links of a tree, those through which one of these paths has another name; sorted."""
    places = {(path, target): inside(path, target, root.rstrip("/")) for path, target in links}
    reached = {""}
    for path in paths:
        reached.update((path, *ancestors_of(path)))
    found: set[tuple[str, str]] = set()
    while more := {link for link, place in places.items() if place in reached} - found:
        found |= more
        for path, _ in more:
            reached.update((path, *ancestors_of(path)))
    return tuple(sorted(found))


def aliases_of(changes: Sequence[Change], there: Iterable[tuple[str, str]], root: str) -> Aliases:
    """The links as they will be: those that are there, without those that go, and those that come."""
    places = {path: inside(path, target, root.rstrip("/")) for path, target in there}
    for change in changes:
        if change.post is not None and change.post.kind == "symlink":
            places[change.path] = inside(change.path, change.post.target, root.rstrip("/"))
        elif places:
            places.pop(change.path, None)
    links: dict[str, list[str]] = {}
    for path in sorted(places):
        target = places[path]
        if target is not None and target != path:
            links.setdefault(target, []).append(path)
    return Aliases({target: tuple(paths) for target, paths in links.items()})


def inside(path: str, target: str, root: str) -> str | None:
    """Where a link leads, relative to the workspace; None when outside, or when only the disk could tell."""
    if target.startswith("/"):
        if not root or not f"{target}/".startswith(f"{root}/"):
            return None
        names, rest = [], target[len(root) :].split("/")
    else:
        names, rest = [name for name in parent_of(path).split("/") if name], target.split("/")
    entered = False
    for name in rest:
        if name == "..":
            # Behind a name that may itself be a link, `..` leads wherever that link leads.
            if entered or not names:
                return None
            names.pop()
        elif name not in ("", "."):
            names.append(name)
            entered = True
    return "/".join(names)
