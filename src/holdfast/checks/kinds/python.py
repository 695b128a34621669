"""Python: imports of touched modules, mypy or pyright, pytest or unittest, ruff or flake8; each where configured."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.checks.attempt import REPORTS
from holdfast.checks.kinds.python_imports import import_check
from holdfast.checks.levels import Check, Level, Measured
from holdfast.checks.project import Found, Kind, Place, has_section

_TEST_DIRECTORIES = ("tests/", "test/")
TEST_FILE = re.compile(r"(test_.*|.*_test)\.py")
_REQUIREMENTS = ("requirements.txt", "requirements-dev.txt", "dev-requirements.txt", "requirements_dev.txt", "Pipfile")
_NO_TESTS_COLLECTED = 5
# A project may want to stop at the first failure; then nothing is known of the tests behind one that failed before.
_EVERY_FAILURE = ("PYTEST_ADDOPTS", "--maxfail=0")
# Of unittest, which exits with 0 before Python 3.12 where it found no test, and always where it skipped each.
_TESTED = r"^Ran ([1-9]\d*) tests? in .*\n\s*\n(?!OK \(skipped=\1\b)"
# Compiled files of one check must not be taken by the next for those of a changed source.
ENV = (("PYTHONDONTWRITEBYTECODE", "1"),)
_MYPY_SCOPE = re.compile(r"(?m)^\s*(files|packages|modules)\s*=")


def _checks(place: Place) -> Iterator[Found]:
    python = interpreter(place)
    yield from import_check(place, python, ENV)
    yield from _types(place, python)
    yield from _tests(place, python)
    yield from _lint(place, python)


def interpreter(place: Place) -> str:
    """Of the workspace as a whole it is first on PATH (see `environment`); a project below may have its own."""
    for directory in (".venv", "venv"):
        if place.root and "python" in place.inside(f"{directory}/bin"):
            return f"{directory}/bin/python"
    return "python3"


def _module_check(place: Place, python: str, level: Level, module: str, *arguments: str, why: str) -> Check:
    return Check(level, place.root, (python, "-m", module, *arguments), why, module, _probe(python, module), ENV)


def _probe(python: str, module: str) -> tuple[str, ...]:
    return (python, "-c", f"import importlib.util as u; raise SystemExit(u.find_spec({module!r}) is None)")


def _types(place: Place, python: str) -> Iterator[Found]:
    setups = {name: place.text(name) for name in ("pyproject.toml", "setup.cfg") if name in place.names}
    where = place.first("mypy.ini", ".mypy.ini") or next(
        (name for name, text in setups.items() if has_section(text, "tool.mypy") or has_section(text, "mypy")), ""
    )
    if where:
        scope = () if _MYPY_SCOPE.search(place.text(where)) else (".",)
        yield _module_check(place, python, "types", "mypy", *scope, why=f"{where} configures mypy")
    elif "pyrightconfig.json" in place.names:
        yield Check("types", place.root, ("pyright",), "there is a pyrightconfig.json", "pyright")


def _tests(place: Place, python: str) -> Iterator[Found]:
    why = _pytest_reason(place)
    if why:
        yield pytest_check(place, python, why)
        return
    directory, files = _test_files(place)
    if files:
        start = directory.rstrip("/") or "."
        argv = (
            (python, "-m", "unittest", "discover", "-s", start, "-t", ".") if directory else (python, "-m", "unittest")
        )
        check = Check("tests", place.root, argv, f"{start} has tests", python, env=ENV)
        yield check._replace(nothing=(_NO_TESTS_COLLECTED,), shows=_TESTED)


def pytest_check(place: Place, python: str, why: str) -> Check:
    report = f"--junitxml={REPORTS}/junit.xml"
    check = _module_check(place, python, "tests", "pytest", "-q", report, why=why)
    arguments = ("--cov", f"--cov-report=json:{REPORTS}/coverage.json")
    coverage = Measured("coverage.json", arguments, _probe(python, "pytest_cov"), "pytest-cov")
    return check._replace(
        env=(*check.env, _EVERY_FAILURE),
        junit="junit.xml", coverage=coverage, nothing=(_NO_TESTS_COLLECTED,), collect=("--collect-only",),
    )  # fmt: skip


def _pytest_reason(place: Place) -> str:
    if name := place.first("pytest.ini", ".pytest.ini", "conftest.py"):
        return f"there is a {name}"
    pyproject = place.text("pyproject.toml")
    if has_section(pyproject, "tool.pytest") or has_section(place.text("setup.cfg"), "tool:pytest"):
        return "pytest is configured"
    named = next((name for name in _REQUIREMENTS if re.search(r"(?mi)^\W*pytest\b", place.text(name))), "")
    if named or re.search(r"[\"']pytest\b", pyproject):
        return f"{named or 'pyproject.toml'} asks for pytest"
    directory, files = _test_files(place)
    if "conftest.py" in place.inside(directory.rstrip("/")) and directory:
        return f"there is a {directory}conftest.py"
    if files and not any("unittest" in place.text(f"{directory}{name}") for name in files[:3]):
        return f"{files[0]} is no unittest"
    return ""


def _test_files(place: Place) -> tuple[str, list[str]]:
    """The directory of the tests (empty for the root) and the names of test files in it."""
    for directory in (*_TEST_DIRECTORIES, ""):
        names = place.inside(directory.rstrip("/")) if directory in place.names else frozenset()
        names = names if directory else place.names
        files = sorted(name for name in names if TEST_FILE.fullmatch(name))
        if files:
            return directory, files
    return "", []


def _lint(place: Place, python: str) -> Iterator[Found]:
    pyproject = place.text("pyproject.toml")
    where = place.first("ruff.toml", ".ruff.toml") or ("pyproject.toml" if has_section(pyproject, "tool.ruff") else "")
    flake8 = ".flake8" in place.names or has_section(place.text("setup.cfg"), "flake8")
    for files in place.batches(".py", ".pyi"):
        if where:
            arguments = ("check", "--no-cache", "--", *files)
            yield _module_check(place, python, "lint", "ruff", *arguments, why=f"{where} configures ruff")
        elif flake8:
            yield _module_check(place, python, "lint", "flake8", "--", *files, why="flake8 is configured")


PYTHON = Kind(
    "Python",
    ("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "tox.ini", "Pipfile"),
    _checks,
    ("conftest.py", "tests/conftest.py", "pytest.ini", "mypy.ini", "ruff.toml", ".ruff.toml", ".flake8"),
)
