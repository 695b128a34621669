"""Python source as the rules about its shape see it: modules, what they import, where their code is."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGE = "holdfast"


class Module(NamedTuple):
    name: str  # inside the package: "disk.calls"; the package itself is "__init__"
    package: tuple[str, ...]  # what a relative import starts from
    source: str
    tree: ast.Module

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]


def read_package(root: Path) -> list[Module]:
    """Every module below `root`, which is the directory of the package."""
    return [_module(root, path) for path in sorted(root.rglob("*.py"))]


def _module(root: Path, path: Path) -> Module:
    parts = path.relative_to(root).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    package = parts[:-1]
    name = ".".join(package if is_package and package else parts)
    source = path.read_text(encoding="utf-8")
    return Module(name, package, source, ast.parse(source, str(path)))


class Import(NamedTuple):
    target: str  # full dotted name; for `from a import b` it is "a.b"; empty when a call computes it
    line: int


def imports(module: Module) -> Iterator[Import]:
    """Everything a module imports, wherever the statement stands, also by a call."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(module, node)
            yield from (Import(f"{origin}.{alias.name}", node.lineno) for alias in node.names)
        elif isinstance(node, ast.Call) and _is_import_call(node):
            yield Import((constant(node.args[0]) if node.args else None) or "", node.lineno)


def _origin(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    base = (PACKAGE, *module.package)
    kept = base[: len(base) - node.level + 1]
    return ".".join((*kept, node.module) if node.module else kept)


def _is_import_call(node: ast.Call) -> bool:
    return last_name(node.func) in {"import_module", "__import__"}


def last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def constant(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
