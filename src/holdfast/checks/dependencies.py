"""Which changes change what has to be installed: then what is installed is no longer what the tests should run with.

Of Python and Node. cargo, Go, Bundler and their like compare what they have with what they need each time they run.

    locks, requirements ......... any change
    pyproject.toml, setup.cfg, package.json   a change in what they say about packages
"""

from __future__ import annotations

import configparser
import json
import re
import tomllib

_LOCKS = frozenset(
    """uv.lock poetry.lock pdm.lock pylock.toml Pipfile Pipfile.lock setup.py package-lock.json npm-shrinkwrap.json
    pnpm-lock.yaml pnpm-workspace.yaml yarn.lock bun.lock bun.lockb""".split()
)
_REQUIREMENTS = re.compile(
    r"(.*/)?requirements/[^/]+\.(txt|in)|(.*/)?([^/]*[-_.])?(requirements|constraints)([-_.][^/]*)?\.(txt|in)"
)
_SAYING = ("pyproject.toml", "setup.cfg", "package.json")
# Data of tests and what others installed: no project of ours.
_ELSEWHERE = frozenset("fixtures __fixtures__ testdata node_modules .venv venv vendor site-packages .tox .nox".split())
_OF_PACKAGE_JSON = """dependencies devDependencies optionalDependencies peerDependencies overrides resolutions
    packageManager engines workspaces bundleDependencies""".split()
_OF_PROJECT = ("dependencies", "optional-dependencies", "requires-python", "scripts", "gui-scripts", "entry-points")
# Of [tool.poetry], [tool.uv] and the others.
_OF_TOOLS = """dependencies dev-dependencies group extras sources dependency-groups constraint-dependencies
    override-dependencies source source-dependencies""".split()


def concerns_dependencies(path: str) -> bool:
    """Can this file say what has to be installed?"""
    *above, name = path.split("/")
    if _ELSEWHERE.intersection(above):
        return False
    return name in _LOCKS or name in _SAYING or _REQUIREMENTS.fullmatch(path) is not None


def changes_dependencies(path: str, old: str | None, new: str | None) -> bool:
    """Do these two different texts of it say different things about packages? None: it cannot be read."""
    if old is None or new is None:
        return True
    match path.rpartition("/")[2]:
        case "pyproject.toml":
            said = _of_pyproject
        case "setup.cfg":
            said = _of_setup
        case "package.json":
            said = _of_package
        case _:
            return _lines(old) != _lines(new)
    try:
        return said(old) != said(new)
    except (ValueError, RecursionError, configparser.Error, AttributeError):
        return True


def _lines(text: str) -> list[str]:
    lines = (line.strip() for line in text.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _of_pyproject(text: str) -> object:
    found = tomllib.loads(text)
    project, tools = found.get("project", {}), found.get("tool", {})
    said = {f"project.{key}": project.get(key) for key in _OF_PROJECT}
    for tool, about in tools.items():
        if isinstance(about, dict):
            said |= {f"tool.{tool}.{key}": about.get(key) for key in _OF_TOOLS}
    said["groups"], said["build"] = found.get("dependency-groups"), found.get("build-system")
    return {key: value for key, value in said.items() if value}


def _of_setup(text: str) -> object:
    found = configparser.ConfigParser(interpolation=None)
    found.read_string(text)
    wanted = ("install_requires", "setup_requires", "tests_require", "python_requires")
    said = {key: found.get("options", key, fallback="") for key in wanted}
    sections = ("options.extras_require", "options.entry_points")
    said |= {section: str(dict(found[section])) for section in sections if section in found}
    return {key: value for key, value in said.items() if value}


def _of_package(text: str) -> object:
    found = json.loads(text) if text.strip() else {}
    return {key: found.get(key) for key in _OF_PACKAGE_JSON if found.get(key)}
