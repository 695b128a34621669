"""A failing check, understood: which kind of failure, which tests, which places, and the words that matter.

Invariants
  U1  The same receipt and log give the same failure: rules, no model, no clock.
  U2  Cost and outcome are bounded, whatever the log: its beginning and its end are looked at, lines are cut.
  U3  A place is a path inside the workspace that could be opened as such; what only looks like one is left out.
  U4  What is quoted can be shown to a person: colours and control characters are gone. It is still not to be obeyed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from holdfast.errors import InvalidPath
from holdfast.model.execution import Receipt
from holdfast.model.fix import Category, Failure, Place
from holdfast.model.path import checked_path, printable
from holdfast.planning.failure_rules import PLACES, RULES, TESTS, Rule

_HEAD, _TAIL = 64 << 10, 256 << 10
_LONGEST_LINE = 1_000
_MOST_TESTS, _MOST_PLACES = 20, 20
_BEFORE, _AFTER, _LAST = 6, 14, 30
_QUOTED_BYTES = 4_000
_COLOURS = re.compile(r"\x1b(?:\[[0-9;?]{0,40}[ -/]?[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?|[@-Z\\^_])")
_FOREIGN = re.compile(r"(?:^|/)(?:node_modules|site-packages|dist-packages|\.venv|venv|\.cargo|\.tox)/")
_CUT = "…"
_Item = TypeVar("_Item")


def understood(receipt: Receipt, log: bytes, known: Collection[str] = (), root: str = "") -> Failure:
    """What went wrong. `known` are paths of the workspace, `root` is where the check saw it."""
    lines = legible(log)
    category, index = _category([printable(receipt.detail), *lines], known)
    at = max(index - 1, 0)
    because = lines[at] if index > 0 else printable(receipt.detail)
    return Failure(
        category,
        because.strip()[:_LONGEST_LINE],
        tuple(_first(_tests(lines), _MOST_TESTS)),
        tuple(_first(_places(lines, known, root), _MOST_PLACES)),
        _quoted(lines[max(at - _BEFORE, 0) : at + _AFTER + 1]) if index > 0 else "",
        _quoted(lines[-_LAST:]),
    )


def is_of_file(test: str, path: str) -> bool:
    """Does a runner mean a test in this file: `tests/test_a.py::test_x`, or `tests.test_a.TestA.test_x`?

    A runner names files from where it stands, which is the folder of a project somewhere above the file.
    """
    file, _, _ = test.partition("::")
    if file == path or path.endswith(f"/{file}"):
        return True
    names = path.rpartition(".")[0].split("/")
    modules = (".".join(names[n:]) for n in range(len(names)))
    # unittest says so of a file that it cannot import.
    return any(f"{test}.".startswith(f"{module}.") or test.endswith(f"_FailedTest.{module}") for module in modules)


def _category(lines: Sequence[str], known: Collection[str]) -> tuple[Category, int]:
    """The category, and the number of the line that decided; the receipt's own words are line 0."""
    modules = _modules(known)
    for rule in RULES:
        for index, line in enumerate(lines):
            found = rule.form.search(line)
            if found is not None:
                return _refined(rule, found, modules), index
    return "unknown", -1


def _refined(rule: Rule, found: re.Match[str], modules: Collection[str]) -> Category:
    """A module that the workspace itself should have is a wrong import, not a missing dependency."""
    if "module" not in rule.form.groupindex:
        return rule.category
    name = found["module"]
    ours = name.replace("/", ".").partition(".")[0] in modules or name.startswith(("./", "../", "@/", "~/"))
    return "import" if ours else rule.category


def _modules(known: Collection[str]) -> frozenset[str]:
    """The first names by which code of the workspace is imported."""
    names: set[str] = set()
    for path in known:
        first, _, rest = path.partition("/")
        if first in ("src", "lib", "app") and rest:
            names.add(rest.partition("/")[0].rpartition(".")[0] or rest.partition("/")[0])
        names.add(first.rpartition(".")[0] or first)
    return frozenset(names - {"", "tests", "test"})


def legible(log: bytes) -> list[str]:
    """The lines of a log as they may be shown (U2, U4)."""
    if len(log) > _HEAD + _TAIL:
        log = log[:_HEAD] + f"\n{_CUT} {len(log) - _HEAD - _TAIL:,} bytes left out {_CUT}\n".encode() + log[-_TAIL:]
    text = _COLOURS.sub("", log.decode("utf-8", "replace"))
    return [_line(line) for line in text.split("\n")]


def _line(line: str) -> str:
    """What a terminal would show in the end: programs that draw progress write a line many times."""
    shown = line.rstrip("\r").rpartition("\r")[2].expandtabs(8) if "\r" in line else line
    # A tab is content for the rules (go separates with it) and harmless on a screen.
    kept = "\t".join(printable(piece) for piece in shown[: _LONGEST_LINE + 1].split("\t"))
    return kept if len(shown) <= _LONGEST_LINE else kept[:_LONGEST_LINE] + _CUT


def _tests(lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        for form in TESTS:
            if (found := form.search(line)) is not None:
                yield found["name"].strip()


def _places(lines: Iterable[str], known: Collection[str], root: str) -> Iterator[Place]:
    """Those in known files first: that is where the change was."""
    found = [place for line in lines for place in _in_line(line, known, root)]
    yield from (place for place in found if place.path in known)
    yield from found


def _in_line(line: str, known: Collection[str], root: str) -> Iterator[Place]:
    for form in PLACES:
        for found in form.finditer(line):
            path = _inside(found["path"], known, root)
            if path is not None:
                yield Place(path, int(found["line"]))


def _inside(text: str, known: Collection[str], root: str) -> str | None:
    """The path inside the workspace, or None (U3)."""
    path = text
    while path.startswith("./"):
        path = path[2:]
    if root and path.startswith(root.rstrip("/") + "/"):
        path = path[len(root.rstrip("/")) + 1 :]
    elif path.startswith("/"):
        # The check saw the workspace elsewhere: only a file that we know to be ours is recognised by its end.
        names = path.split("/")
        path = next((end for n in range(1, len(names)) if (end := "/".join(names[n:])) in known), "")
    if not path or _FOREIGN.search(path):
        return None
    try:
        return checked_path(path)
    except InvalidPath:
        return None


def _first(items: Iterable[_Item], most: int) -> Iterator[_Item]:
    """The first different ones."""
    return islice(dict.fromkeys(items), most)


def _quoted(lines: Sequence[str]) -> str:
    """As many whole lines as fit, from the end: the last ones say most."""
    kept: list[str] = []
    size = 0
    for line in reversed(lines):
        size += len(line.encode("utf-8", "replace")) + 1
        if size > _QUOTED_BYTES:
            kept.append(_CUT)
            break
        kept.append(line)
    return "\n".join(reversed(kept)).strip("\n")
