"""Edited tests: what a change does to the tests that judge it, and what the base's tests say to the new code.

    change set ─┬▶ touched: test files changed, added; tests that are gone, or left out now (by their texts)
                └▶ the change without its test files ─▶ the base's tests run over that ─▶ compared, test by test

Invariants
  T1  A file of the base counts as only added to where every line of it stays, in its order, and what is new stands
      between two tests and not inside one. In doubt it counts as changed.
  T2  Tests are compared by name, and each as often as it is there: a test that only moves is still there.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from holdfast.checks.junit import Case
from holdfast.model.changeset import Change
from holdfast.model.execution import BaseTests
from holdfast.model.path import printable
from holdfast.model.testfiles import is_test_file, is_test_settings, names_in, settings_in, skips_in

_MOST_LISTED = 50
_PARAMETERS = re.compile(r"\[.*\]\Z", re.DOTALL)
_IMPORT = re.compile(r"\s*(import|from|use|using|require|package|#include|const\s.{0,200}=\s*require)\b")
_CLOSING = re.compile(r"[\s})\];]*")
_PYTHON_START = re.compile(r"\s*(@|(async\s+)?def\s|class\s|import\s|from\s|#)")


class Sides(NamedTuple):
    """One file, with its text before and after; empty where there is none, or none that can be read."""

    change: Change
    before: str
    after: str


class Touched(NamedTuple):
    """`left_out` are the changes that the base's tests must not see; `base` is what is known so far."""

    left_out: tuple[Change, ...]
    base: BaseTests


def touched(sides: Iterable[Sides], *, doctests: bool = False) -> Touched | None:
    """What the texts say; None where no test is concerned."""
    left_out: list[Change] = []
    changed: list[str] = []
    added: list[str] = []
    gone: Counter[str] = Counter()
    skipped: list[str] = []
    for change, before, after in sides:
        old = names_in(change.path, before, doctests=doctests)
        gone.update(old)
        gone.subtract(names_in(change.path, after, doctests=doctests))
        fresh = skips_in(change.path, after) - skips_in(change.path, before)
        if change.pre is not None and fresh:
            skipped += [f"{printable(change.path)}: {printable(line[:80])}" for line in fresh]
        if not _judges(change, before, after):
            continue
        left_out.append(change)
        (added if _only_adds(change, before, after) else changed).append(change.path)
    missing = sorted((+gone).elements())
    if not (left_out or missing or skipped):
        return None
    found = BaseTests(tuple(changed), tuple(added), missing=_listed(missing), skipped=_listed(skipped))
    return Touched(tuple(left_out), found)


def without(changes: Iterable[Change], left_out: Sequence[Change]) -> list[Change]:
    """The rest, and no removal of a directory that what is left out stands in."""
    paths = {change.path for change in left_out}
    above = {path[:at] for path in paths for at, letter in enumerate(path) if letter == "/"}
    rest = [c for c in changes if c.path not in paths and not (c.post is None and c.path in above)]
    # What moved away from there is a copy here: the old one stays.
    return [change._replace(origin=None) if change.origin in paths else change for change in rest]


def compared(base: BaseTests, before: Sequence[Case], after: Sequence[Case]) -> BaseTests:
    """With what two runs over the new code say: `before` of the base's tests, `after` of the new ones."""
    if not before:
        return base
    there = Counter(map(_identity, after))
    missing = Counter(map(_identity, before)) - there
    skips = {_identity(case) for case in after if case.state == "skipped"}
    fresh = sorted({_identity(case) for case in before if case.state != "skipped"} & skips)
    # A run tells which tests are skipped; only where none does, lines are believed.
    lines = [line for line in base.skipped if not line.partition(":")[0].endswith(".py")]
    named = sorted({*base.missing, *missing})
    return base._replace(missing=_listed(named), skipped=_listed([*lines, *fresh]))


def _identity(case: Case) -> str:
    """Without parameters, and without its place: where it stands may change."""
    return _PARAMETERS.sub("", case.name)


def _listed(names: Sequence[str]) -> tuple[str, ...]:
    unique = list(dict.fromkeys(names))
    more = [f"{len(unique) - _MOST_LISTED} more"] if len(unique) > _MOST_LISTED else []
    return (*unique[:_MOST_LISTED], *more)


def _judges(change: Change, before: str, after: str) -> bool:
    images = [image for image in (change.pre, change.post) if image is not None]
    if all(image.kind == "directory" for image in images):
        return False
    if is_test_file(change.path) or is_test_settings(change.path):
        return True
    return settings_in(change.path, before) != settings_in(change.path, after)


def _only_adds(change: Change, before: str, after: str) -> bool:
    """T1. A new file of settings is no new test."""
    if not is_test_file(change.path) or is_test_settings(change.path) or change.post is None:
        return False
    if change.pre is None:
        return change.post.kind == "file"
    if (change.pre.kind, change.pre.mode) != (change.post.kind, change.post.mode) or change.post.kind != "file":
        return False
    old, new = names_in(change.path, before), names_in(change.path, after)
    if not old or any(new[name] != times for name, times in old.items()):
        return False  # fixtures and data have no names: any change of them is one
    runs = list(_inserted(before.splitlines(), after.splitlines()))
    stands_between = _is_between_tests if change.path.endswith(".py") else _is_at_the_end
    return None not in runs and all(stands_between(run) for run in runs if run is not None)


class _Run(NamedTuple):
    """New lines in a row, and the old ones after them."""

    lines: Sequence[str]
    rest: Sequence[str]


def _inserted(old: Sequence[str], new: Sequence[str]) -> Iterator[_Run | None]:
    """What was inserted; None where an old line is gone or stands elsewhere."""
    at = 0
    run: list[str] = []
    for line in new:
        if at < len(old) and line == old[at]:
            if run:
                yield _Run(run, old[at:])
            at, run = at + 1, []
        else:
            run.append(line)
    if at < len(old):
        yield None
    elif run:
        yield _Run(run, ())


def _is_between_tests(run: _Run) -> bool:
    """For Python: a definition or an import of its own, before something that begins a new block as well."""
    lines = [line for line in run.lines if line.strip()]
    if not lines:
        return True
    after = next((line for line in run.rest if line.strip()), "")
    text = "\n".join(lines)
    if not _PYTHON_START.match(lines[0]) or lines[-1].lstrip().startswith("@"):
        return False
    if text.count('"""') % 2 or text.count("'''") % 2:
        return False
    if all(_IMPORT.match(line) for line in lines):
        return not after.startswith((" ", "\t"))
    depth, below = _indent(lines[0]), _indent(after)
    return below < depth or (below == depth and (not after or _PYTHON_START.match(after) is not None))


def _is_at_the_end(run: _Run) -> bool:
    """For others: nothing but closing brackets comes after it; or it only imports."""
    if all(not line.strip() or _IMPORT.match(line) for line in run.lines):
        return True
    return all(_CLOSING.fullmatch(line) for line in run.rest)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
