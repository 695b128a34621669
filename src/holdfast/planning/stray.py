"""New files that have no place in a change: neither named, nor of a kind that comes along, nor used by the rest of it.

    path/to/app.py, your_project/… a made-up place      app.py.orig, app.py.bak    left by a tool
    show_greeting.py, beside the app.py that the task names, and nothing in the change refers to it

Plausible without being named: tests and what they read, package markers, settings, the usual documents, a file in a
directory that has been there, or beside a named one, and whatever a plausible file refers to. Where the task names no
place, or leaves the name of something new to whoever makes it, any place is as good as another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from holdfast.model.path import parent_of, printable
from holdfast.model.testfiles import is_test_file, is_test_settings
from holdfast.planning.filekinds import kind_of_file

_MADE_UP = re.compile(
    r"(?i)(?:^|/)(?:path/to|path_to|(?:your|my)[-_](?:project|repo|app|package|module|file)[^/]*|project_root"
    r"|example/path|some/path|repo_root)(?:/|$)|[<>`|]|^[a-z]:"
)
_OF_A_TOOL = re.compile(r"(?i)(?:\.(?:orig|rej|bak|backup|old|tmp|swp|swo)|~|\.aider[^/]*)$")
_MARKERS = frozenset(
    """__init__.py __main__.py py.typed mod.rs lib.rs main.rs build.rs index.js index.ts index.jsx index.tsx index.mjs
    package-info.java doc.go conftest.py .gitkeep .keep .gitignore .gitattributes .editorconfig""".split()
)
_COMES_ALONG = frozenset({"configuration", "dependencies", "CI", "agent settings", "policy", "start-up", "key"})
_USUAL_DOCUMENT = re.compile(
    r"(?i)(?:^|/)(?:docs?|man|changes|changelog\.d|newsfragments)/"
    r"|(?:^|/)(?:readme|changelog|changes|history|news|contributing|authors|licen[cs]e|upgrading|security)[^/]*$"
)
# Something new, whose name and place are left to whoever makes it.
_LEFT_OPEN = re.compile(
    r"(?i)\b(?:create|add|write|build|make|implement|introduce|generate|develop|set up|scaffold|split|extract|move)\b"
    r"[^.;\n]{0,60}\b(?:scripts?|modules?|files?|programs?|packages?|examples?|pages?|components?|migrations?|tools?"
    r"|plugins?|suite|documentation|docs|guides?|tutorials?|templates?|workflows?|schemas?|projects?|apps?|games?"
    r"|librar(?:y|ies)|servers?|sites?|services?|clients?|directory|folder|benchmarks?|demos?)\b"
)
_WORDS = re.compile(r"\w+")


def strays_in(
    words: str, texts: Mapping[str, str], made: frozenset[str], named: tuple[str, ...], stands: Callable[[str], bool]
) -> Iterator[str]:
    """Sentences about new files. `texts` are those of the whole change, `made` the new paths of it; `named` the files
    that the task names; nothing is strange where the task names no place (`named` is empty) but made-up ones."""
    for path in sorted(made):
        if path in words:
            continue
        if _MADE_UP.search(path):
            yield f"{printable(path)} is new, and its place is a made-up one"
        elif _OF_A_TOOL.search(path):
            yield f"{printable(path)} is new, and looks like what a tool left behind"
    if not named or (_LEFT_OPEN.search(words) and not any(named)):
        return
    for path in sorted(_unused(words, texts, made, named, stands)):
        if not (_MADE_UP.search(path) or _OF_A_TOOL.search(path)):
            yield f"{printable(path)} is new; the task does not name it, and nothing in the change uses it"


def _unused(
    words: str, texts: Mapping[str, str], made: frozenset[str], named: tuple[str, ...], stands: Callable[[str], bool]
) -> set[str]:
    """What is left when all that is plausible is taken away, with what it refers to."""
    said = {word.lower() for word in _WORDS.findall(words)}
    beside = {parent_of(path) for path in named} - {""}
    left = {path for path in made if not _is_plausible(path, words, said, beside, stands)}
    used = [path for path in texts if path not in left and kind_of_file(path) != "documentation"]
    while used and left:
        spoken = set(_WORDS.findall(texts[used.pop()]))
        reached = {path for path in left if _stem(path) in spoken}
        left -= reached
        used += (path for path in reached if path in texts)
    return left


def _is_plausible(path: str, words: str, said: set[str], beside: set[str], stands: Callable[[str], bool]) -> bool:
    parent, name = parent_of(path), path.rpartition("/")[2]
    return (
        name in _MARKERS
        or is_test_file(path)
        or is_test_settings(path)
        or kind_of_file(path) in _COMES_ALONG
        or _USUAL_DOCUMENT.search(path) is not None
        or path in words
        or name in words
        or {part.lower() for part in _WORDS.findall(_stem(path))} <= said
        or (bool(parent) and (parent in beside or f"{parent}/" in words or stands(parent)))
    )


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0] or path
