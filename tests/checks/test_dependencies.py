"""What changes the packages that have to be installed, and what only looks like it."""

from __future__ import annotations

import pytest

from holdfast.checks.dependencies import changes_dependencies, concerns_dependencies

PROJECT = '[project]\nname = "shop"\nversion = "1"\ndependencies = ["six"]\n'
PACKAGE = '{"name": "shop", "scripts": {"test": "x"}, "dependencies": {"semver": "^7"}}'
CHANGING = {
    "a lock": ("uv.lock", "a\n", "b\n"),
    "a lock of a package below": ("packages/web/pnpm-lock.yaml", "", "b\n"),
    "requirements": ("requirements-dev.txt", "six\n", "six\npytest\n"),
    "requirements in a folder": ("requirements/base.in", "six\n", ""),
    "a dependency": ("pyproject.toml", PROJECT, PROJECT.replace('"six"', '"six", "attrs"')),
    "an extra": ("pyproject.toml", PROJECT, PROJECT + '[project.optional-dependencies]\ntest = ["pytest"]\n'),
    "a group": ("pyproject.toml", PROJECT, PROJECT + '[dependency-groups]\ndev = ["pytest"]\n'),
    "poetry's own": ("pyproject.toml", PROJECT, PROJECT + '[tool.poetry.dependencies]\nsix = "1"\n'),
    "a program": ("pyproject.toml", PROJECT, PROJECT + '[project.scripts]\nshop = "shop:main"\n'),
    "what is no TOML": ("pyproject.toml", PROJECT, "[["),
    "setup.cfg": ("setup.cfg", "[options]\ninstall_requires = six\n", "[options]\ninstall_requires = attrs\n"),
    "package.json": ("package.json", PACKAGE, PACKAGE.replace("^7", "^6")),
    "a package manager": ("package.json", PACKAGE, PACKAGE.replace("{", '{"packageManager": "pnpm@9.0.0", ', 1)),
    "a new package.json": ("package.json", "", PACKAGE),
    "what cannot be read": ("package-lock.json", None, None),
}
KEEPING = {
    "a version": ("pyproject.toml", PROJECT, PROJECT.replace('"1"', '"2"')),
    "settings of a tool": ("pyproject.toml", PROJECT, PROJECT + "[tool.ruff]\nline-length = 100\n"),
    "a comment": ("requirements.txt", "six\n", "# of ours\nsix\n\n"),
    "a script": ("package.json", PACKAGE, PACKAGE.replace('"x"', '"y"')),
    "a new project that needs nothing": ("pyproject.toml", "", '[project]\nname = "shop"\nversion = "1"\n'),
    "settings in setup.cfg": ("setup.cfg", "[flake8]\nmax = 1\n", "[flake8]\nmax = 2\n"),
}


@pytest.mark.parametrize("what", CHANGING)
def test_what_changes_the_packages(what: str) -> None:
    """It is concerned, and its two texts say different things."""
    path, old, new = CHANGING[what]
    assert concerns_dependencies(path) and changes_dependencies(path, old, new)


@pytest.mark.parametrize("what", KEEPING)
def test_what_leaves_the_packages_as_they_are(what: str) -> None:
    """The file can say it, and does not."""
    path, old, new = KEEPING[what]
    assert concerns_dependencies(path) and not changes_dependencies(path, old, new)


@pytest.mark.parametrize(
    "path", ["src/requirements.py", "tests/fixtures/package.json", "node_modules/x/package.json", "Cargo.toml", "a.txt"]
)
def test_other_files_say_nothing_about_packages(path: str) -> None:
    """Sources, data of tests, what is installed, and what its own tool compares each time."""
    assert not concerns_dependencies(path)
