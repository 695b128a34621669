"""Checks of touched files that we make ourselves, without starting anything.

    files     what the change leaves is there, and what it should leave is there
    syntax    JSON, YAML and TOML can be parsed
    imports   relative imports of JavaScript and TypeScript lead to a file

Invariants
  A1  Whatever the bytes, the outcome is a complaint or none: no recursion without a bound, no value is built from YAML.
  A2  A file that is not looked at is named in `passed_over`, with the reason.

Passed over are files that are wrong on purpose (fixtures) or not the language they look like (templates, JSON with
comments).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from holdfast.checks.kinds.node import SOURCES
from holdfast.checks.tree import TooLarge, Tree
from holdfast.model.path import printable

_FIXTURES = frozenset(
    "fixtures fixture testdata test-data cases golden goldens snapshots __snapshots__ __fixtures__ corpus".split()
)
# Their readers allow comments and trailing commas.
_COMMENTED_JSON = re.compile(r"(^|/)(tsconfig[^/]*|jsconfig[^/]*|\.eslintrc|\.swcrc|\.babelrc|devcontainer)\.json$")
_COMMENTED_DIRECTORIES = frozenset((".vscode", ".devcontainer"))
_MAX_YAML_DEPTH = 200
_IMPORT = re.compile(
    r"""^[ \t]*(?:import|export)\b[^'"\n;]*?(?:\bfrom[ \t]*)?['"](\.{1,2}/[^'"\n]+)['"]"""
    r"""|^(?![ \t]*(?:\*|//)).*?\b(?:require|import)\([ \t]*['"](\.{1,2}/[^'"\n]+)['"][ \t]*\)""",
    re.MULTILINE,
)


class Looked(NamedTuple):
    """`looked` at these files, `complaints` about some of them, `passed_over` others with the reason."""

    looked: tuple[str, ...]
    complaints: tuple[str, ...]
    passed_over: tuple[str, ...] = ()


def expected_files(tree: Tree, expected: Iterable[str]) -> Looked:
    """Every file that should be there is; a trailing slash asks for a directory."""
    wanted = tuple(dict.fromkeys(expected))
    missing = [path for path in wanted if not _is_there(tree, path)]
    return Looked(wanted, tuple(f"{printable(path)} is missing" for path in missing))


def parsed_files(tree: Tree, touched: Iterable[str]) -> Looked:
    looked, complaints, passed_over = [], [], []
    for path in touched:
        parse = _PARSERS.get(path.rpartition(".")[2].lower()) if "." in path else None
        if parse is None:
            continue
        try:
            data = tree.read(path)
            if why := _reason_to_pass(path, data):
                passed_over.append(f"{printable(path)}: {why}")
                continue
            looked.append(path)
            if complaint := parse(data):
                complaints.append(f"{printable(path)}: {complaint}")
        except TooLarge as error:
            passed_over.append(f"{printable(path)}: {error.strerror}")
        except OSError as error:
            passed_over.append(f"{printable(path)}: not a plain file ({error.strerror})")
    return Looked(tuple(looked), tuple(complaints), tuple(passed_over))


def resolved_imports(tree: Tree, touched: Iterable[str]) -> Looked:
    """Bare names are the package manager's matter; only what begins with a dot is looked up."""
    looked, complaints = [], []
    for path in touched:
        if not path.endswith(SOURCES) or path.endswith(".d.ts"):
            continue
        try:
            text = tree.read(path).decode("utf-8", "replace")
        except OSError:
            continue  # a link, or too large; the syntax level has said so
        looked.append(path)
        for found in _IMPORT.finditer(text):
            wanted = found[1] or found[2]
            if not _leads_somewhere(tree, path, wanted):
                line = text.count("\n", 0, found.start()) + 1
                complaints.append(f"{printable(path)}:{line}: {printable(wanted)} leads to no file")
    return Looked(tuple(looked), tuple(complaints))


def _reason_to_pass(path: str, data: bytes) -> str:
    *parents, name = path.split("/")
    if _FIXTURES.intersection(parents):
        return "a fixture, which may be wrong on purpose"
    if _COMMENTED_JSON.search(path) or (name.endswith(".json") and _COMMENTED_DIRECTORIES.intersection(parents)):
        return "JSON with comments"
    if not name.endswith(".toml") and re.search(rb"\{\{|\{%", data) and not data.lstrip().startswith(b"{"):
        return "a template"
    return ""


def _json(data: bytes) -> str:
    try:
        json.loads(data)
    except json.JSONDecodeError as error:
        return f"not JSON: line {error.lineno}: {error.msg}"
    except RecursionError:
        return "not JSON that anybody can read: nested too deeply"
    except ValueError as error:
        return f"not JSON: {error}"  # not text, or a number too long to be one
    return ""


def _toml(data: bytes) -> str:
    import tomllib

    try:
        tomllib.loads(data.decode("utf-8"))
    except RecursionError:
        return "not TOML that anybody can read: nested too deeply"
    except ValueError as error:
        return f"not TOML: {error}"
    return ""


def _yaml(data: bytes) -> str:
    import yaml

    # Events, not values: nothing is built, no alias is followed, and the parser keeps its own stack.
    events = yaml.parse(data, Loader=yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)
    depth = 0
    try:
        for event in events:
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
            if depth > _MAX_YAML_DEPTH:  # its time grows with the square of the depth
                return "not YAML that anybody can read: nested too deeply"
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        return f"not YAML: line {line}: {error.problem or error.context}"
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        return f"not YAML: {printable(str(error).splitlines()[0] if str(error) else 'unreadable')}"
    return ""


_PARSERS: dict[str, Callable[[bytes], str]] = {"json": _json, "toml": _toml, "yaml": _yaml, "yml": _yaml}


def _leads_somewhere(tree: Tree, path: str, wanted: str) -> bool:
    target = _joined(path.rpartition("/")[0], wanted.partition("?")[0])
    if target is None:
        return True  # out of the tree: not ours to judge
    return any(_is_there(tree, candidate) for candidate in _candidates(target))


def _candidates(target: str) -> Iterator[str]:
    yield target
    yield from (f"{target}{suffix}" for suffix in (*SOURCES, ".json", ".d.ts", ".node", ".vue", ".svelte"))
    yield from (f"{target}/index{suffix}" for suffix in SOURCES)
    yield f"{target}/package.json"
    # TypeScript's modules are written with the name of what they become.
    stem, dot, suffix = target.rpartition(".")
    if dot and suffix in ("js", "mjs", "cjs", "jsx"):
        yield from (f"{stem}.{kind}" for kind in ("ts", "mts", "cts", "tsx", "d.ts"))


def _joined(directory: str, relative: str) -> str | None:
    names = directory.split("/") if directory else []
    for name in relative.split("/"):
        if name == "..":
            if not names:
                return None
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return "/".join(names)


def _is_there(tree: Tree, path: str) -> bool:
    parent, _, name = path.rstrip("/").rpartition("/")
    if not name:
        return True
    names = tree.names(parent)
    return f"{name}/" in names if path.endswith("/") else name in names
