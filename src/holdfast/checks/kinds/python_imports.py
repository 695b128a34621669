"""Imports of Python: every touched module that belongs to a package is imported, in the sandbox, one by one.

Scripts, tests and set-up files are left out: importing them does what they do.
A module that lacks something which the project declares as a dependency cannot be judged here;
one that lacks something nobody declared is broken.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.checks.levels import Check
from holdfast.checks.project import Found, Place

NOT_INSTALLED = 77

# Arguments: the declared dependencies, "--", then directory and module in turn.
# A module that exits while it is imported is broken like one that raises. Whatever else is thrown ends the driver,
# with a status that is neither 0 nor 77: the check has failed.
_DRIVER = """
import importlib, re, sys, traceback
def plain(name): return re.sub(r"^(python|py)|[-_.]|(python|py)$", "", name.lower())
split = sys.argv.index("--")
declared = {plain(name) for name in sys.argv[1:split]}
broken = missing = 0
for directory, module in zip(*[iter(sys.argv[split + 1:])] * 2):
    sys.path.insert(0, directory)
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = (error.name or "").partition(".")[0]
        if plain(top) in declared:
            missing += 1
            print(f"{module}: {top} is declared and not installed here")
        else:
            broken += 1
            print(f"{module}: {error}")
    except (Exception, SystemExit):
        broken += 1
        print(f"{module}:")
        traceback.print_exc(limit=-3)
    sys.path.pop(0)
print(f"{broken} of the modules cannot be imported" if broken else "imported")
raise SystemExit(1 if broken else 77 if missing else 0)
"""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


def import_check(place: Place, python: str, env: tuple[tuple[str, str], ...]) -> Iterator[Found]:
    declared = _declared(place)
    for files in place.batches(".py"):
        modules = [pair for path in files if (pair := _module(place, path)) is not None]
        if modules:
            argv = (python, "-c", _DRIVER, *declared, "--", *(word for pair in modules for word in pair))
            why = f"{len(modules)} touched Python module{'s' if len(modules) > 1 else ''}"
            yield Check("imports", place.root, argv, why, python, env=env, nothing=(NOT_INSTALLED,))


def _module(place: Place, path: str) -> tuple[str, str] | None:
    """The directory to import from and the module's name; None for what is no module of a package."""
    *parents, file = path.removesuffix(".py").split("/")
    base = ["src"] if parents[:1] == ["src"] else []
    packages = parents[len(base) :]
    names = packages if file == "__init__" else [*packages, file]
    if not packages or file == "__main__" or not all(_NAME.fullmatch(name) for name in names):
        return None
    whole = all("__init__.py" in place.inside("/".join(parents[: n + 1])) for n in range(len(base), len(parents)))
    if not whole or packages[0] in ("tests", "test") or file in ("setup", "conftest"):
        return None
    return "/".join(base) or ".", ".".join(names)


def _declared(place: Place) -> list[str]:
    """Names of dependencies, roughly: one too many only makes the check say that it cannot run."""
    rows = [row for name in ("requirements.txt", "requirements-dev.txt") for row in place.text(name).splitlines()]
    project = _table(_toml(place.text("pyproject.toml")), "project")
    rows += _texts(project.get("dependencies"))
    for group in _table(project, "optional-dependencies").values():
        rows += _texts(group)
    poetry = _table(_table(_toml(place.text("pyproject.toml")), "tool"), "poetry")
    rows += list(_table(poetry, "dependencies"))
    return sorted({found[1] for row in rows if (found := _REQUIREMENT.match(row))})


def _toml(text: str) -> dict[str, object]:
    import tomllib

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError):
        return {}  # the syntax level says so


def _table(table: dict[str, object], key: str) -> dict[str, object]:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []
