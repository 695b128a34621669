"""Detection: which projects a change touches, and which checks each of them has.

    touched paths ─▶ their directories, up to the root ─▶ markers ─▶ projects ─▶ checks, level by level

Invariants
  Z1  Only directories above touched paths are looked at: the cost grows with the change, not with the tree.
  Z2  A project owns all that lies below it, also what lies in a project inside it: a change in a fixture or a
      package runs the outer project's checks too. What lies beside it is not run.
  Z3  Directories of other people's code (node_modules, vendor, ...) hold no projects of ours.
  Z4  The tree decides, as it stands after the change. A change to what decides is named in `redefined`.
  Z5  Where there is no project at all, the test files of the workspace are one (`kinds.bare`): a bounded look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.checks.kinds import KINDS
from holdfast.checks.kinds.bare import bare_tests
from holdfast.checks.kinds.make import MAKE
from holdfast.checks.levels import LEVELS, WITHIN_MS, Check, NotRun
from holdfast.checks.project import Found, Kind, Place
from holdfast.checks.syntax import syntax_checks
from holdfast.checks.tree import Tree, present

_FOREIGN = frozenset(
    """node_modules vendor third_party .venv venv site-packages .tox .nox target dist build .git .holdfast
    __pycache__ bower_components .gradle .m2""".split()
)

_NOT_LOOKED_FOR = "the project's own tests were not looked for: [checks] detect is false"


class Project(NamedTuple):
    root: str
    kind: str
    marker: str


class Detected(NamedTuple):
    """`checks` are in the order of the levels; `redefined` are touched files that decide what the checks do."""

    projects: tuple[Project, ...]
    checks: tuple[Check, ...]
    not_run: tuple[NotRun, ...]
    redefined: tuple[str, ...]


def detect(
    tree: Tree,
    touched: Iterable[str],
    custom: Sequence[tuple[str, ...]] = (),
    within_ms: int = WITHIN_MS,
    *,
    projects_too: bool = True,
) -> Detected:
    """`touched` are the paths of the change, deleted ones too; `custom` are commands of the configuration.

    Without `projects_too` no project is looked for: what is left is the syntax of touched files, and `custom`.
    """
    paths = sorted(set(touched))
    there = present(tree, paths)
    projects: list[Project] = []
    found: list[Found] = list(syntax_checks(Place(tree, "", there)))
    redefined: set[str] = set()
    if not projects_too:
        found.append(NotRun("tests", "", _NOT_LOOKED_FOR))
    for root in roots_above(paths) if projects_too else ():
        prefix = f"{root}/" if root else ""
        below = tuple(path.removeprefix(prefix) for path in there if path.startswith(prefix))
        place = Place(tree, root, below)
        for kind, marker in _kinds(place):
            projects.append(Project(root, kind.name, marker))
            more = [item for item in kind.checks(place) if kind is not MAKE or not _has(found, root, item.level)]
            found += more
            redefined |= {path for path in paths if path.startswith(prefix) and _decides(kind, path[len(prefix) :])}
    if projects_too and paths and not projects:
        found += bare_tests(Place(tree, "", there), _FOREIGN, _is_project)
    found += [Check("acceptance", "", argv, "configured", argv[0]) for argv in custom]
    ordered = sorted(found, key=lambda item: LEVELS.index(item.level))
    checks = tuple(item._replace(within_ms=within_ms) for item in ordered if isinstance(item, Check))
    not_run = tuple(item for item in ordered if isinstance(item, NotRun))
    return Detected(tuple(projects), checks, not_run, tuple(sorted(redefined)))


def roots_above(paths: Sequence[str]) -> list[str]:
    """Every directory above a touched path, the outermost first (Z1, Z3)."""
    roots = {""} if paths else set()
    for path in paths:
        names = path.split("/")[:-1]
        ours = next((n for n, name in enumerate(names) if name in _FOREIGN), len(names))
        roots.update("/".join(names[: n + 1]) for n in range(ours))
    return sorted(roots)


def _is_project(names: Iterable[str]) -> bool:
    return any(kind.marker_in(names) for kind in KINDS)


def _kinds(place: Place) -> Iterator[tuple[Kind, str]]:
    for kind in KINDS:
        if marker := kind.marker_in(place.names):
            yield kind, marker


def _has(found: Iterable[Found], root: str, level: str) -> bool:
    return any(item.root == root and item.level == level for item in found)


def _decides(kind: Kind, path: str) -> bool:
    return bool(kind.marker_in((path,))) or path in kind.definitions
