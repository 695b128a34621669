"""Caches and build folders of a source tree: by-products by themselves, where no rule of git says so.

A path is one where it, or a directory above it, has such a name, is not in the workspace yet, and lies in a source
tree: `.git` or the file of a project stands beside it or above it. `build`, `dist` and `target` are ordinary words, so
they count only beside the file of a project whose tools make them. What is in the workspace already is somebody's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from holdfast.model.path import ancestors_of, parent_of
from holdfast.workspace.touched import joined

_CACHES = frozenset(
    """__pycache__ .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks .tox .nox .venv venv node_modules
    .gradle .ipynb_checkpoints .eggs .parcel-cache .turbo""".split()
)
_CACHE_SUFFIXES = (".egg-info",)
_PYTHON = ("pyproject.toml", "setup.py", "setup.cfg")
_PROJECTS = (
    *_PYTHON, "requirements.txt", "tox.ini", "Pipfile", "package.json", "Cargo.toml", "go.mod", "pom.xml",
    "build.gradle", "build.gradle.kts", "Gemfile", "Rakefile", "composer.json", "CMakeLists.txt", "Makefile",
    "meson.build",
)  # fmt: skip
_BUILT: dict[str, tuple[str, ...]] = {
    "build": (*_PYTHON, "build.gradle", "build.gradle.kts", "CMakeLists.txt", "meson.build"),
    "dist": (*_PYTHON, "package.json"),
    "target": ("Cargo.toml", "pom.xml"),
}


def cached_paths(paths: Iterable[str], stands: Callable[[str], bool]) -> frozenset[str]:
    """Those of `paths` that are by-products; `stands`: is this path in the workspace?"""
    known: dict[str, bool] = {}

    def is_cache(path: str) -> bool:
        if path not in known:
            known[path] = _is_cache(path, stands)
        return known[path]

    return frozenset(path for path in paths if any(map(is_cache, (*ancestors_of(path), path))))


def _is_cache(path: str, stands: Callable[[str], bool]) -> bool:
    above, name = parent_of(path), path.rpartition("/")[2]
    if name in _BUILT:
        return not stands(path) and any(stands(joined(above, marker)) for marker in _BUILT[name])
    if name not in _CACHES and not name.endswith(_CACHE_SUFFIXES):
        return False
    places = ("", *ancestors_of(path))
    return not stands(path) and any(stands(joined(place, name)) for place in places for name in (".git", *_PROJECTS))
