"""A folder of Python with tests and nothing that makes it a project: pytest runs the test files that are found there.

Invariants
  L1  The look is bounded and follows no link. pytest is told the files it found and looks nowhere else: what an agent
      leaves there (links, folders without end) cannot keep it busy.
  L2  A look that did not come to its end is a reason why no tests are run, never a choice of some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from holdfast.checks.kinds.python import TEST_FILE, interpreter, pytest_check
from holdfast.checks.levels import NotRun
from holdfast.checks.project import Found, Place
from holdfast.checks.tree import TooLarge

_MOST_DIRECTORIES, _MOST_FILES = 500, 300


class _Seen(NamedTuple):
    files: tuple[str, ...]
    whole: bool


def bare_tests(place: Place, foreign: frozenset[str], is_project: Callable[[frozenset[str]], bool]) -> Iterator[Found]:
    """`foreign` names folders of other people's code; a folder with names that make it a project has its own tests."""
    seen = _seen(place, foreign, is_project)
    if seen.files and seen.whole:
        check = pytest_check(place, interpreter(place), f"there is a {seen.files[0]}")
        yield check._replace(files=seen.files)
    elif seen.files:
        bounds = f"more than {_MOST_DIRECTORIES} folders or {_MOST_FILES} test files"
        yield NotRun("tests", place.root, f"not looked for to the end: there are {bounds}, and no pyproject.toml")


def _seen(place: Place, foreign: frozenset[str], is_project: Callable[[frozenset[str]], bool]) -> _Seen:
    """Folder by folder, the outermost first (L1)."""
    folders, files = [""], list[str]()
    for number, folder in enumerate(folders):
        if number == _MOST_DIRECTORIES:
            return _Seen(tuple(files), whole=False)
        names = place.inside(folder)
        for name in sorted(names) if not is_project(names) else ():
            path = f"{folder}/{name}" if folder else name
            if name.endswith("/"):
                if not name.startswith(".") and name[:-1] not in foreign:
                    folders.append(path[:-1])
            elif TEST_FILE.fullmatch(name) and _is_file(place, path):
                if len(files) == _MOST_FILES:
                    return _Seen(tuple(files), whole=False)
                files.append(path)
    return _Seen(tuple(files), whole=True)


def _is_file(place: Place, path: str) -> bool:
    try:
        place.tree.read(place.at(path))
    except TooLarge:
        return True
    except OSError:
        return False  # a link, or no file at all
    return True
