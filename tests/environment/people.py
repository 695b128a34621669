"""People with a home, a shell and a project whose tests pass for them, in the languages and environments there are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from environment.equipment import PLACE, Equipment

HOLDFAST = os.path.join(os.path.dirname(sys.executable), "holdfast")


class Language(NamedTuple):
    """A small project with three tests, one of which needs what only its environment has.

    `sum` names the file with the line `good`; `bad` is what breaks a test. `tests` runs them, and `passed` and `failed`
    find the counts in what that prints; where it is not `counted`, what checks print has none. An agent makes `test`
    and `source` for a name, first wrong.
    """

    files: Mapping[str, str]
    sum: str
    good: str
    as_good: str
    bad: str
    tests: tuple[str, ...]
    passed: str
    failed: str
    test: tuple[str, str]
    source: tuple[str, str]
    comment: str
    counted: bool = True


PYTHON = Language(
    files={
        "pyproject.toml": """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "shop"
version = "1.0"
requires-python = ">=3.9"
dependencies = ["six"]
[project.optional-dependencies]
test = ["pytest"]
[project.scripts]
shop = "shop:main"
[tool.setuptools.packages.find]
where = ["src"]
[tool.pytest.ini_options]
addopts = "-p no:cacheprovider"
[tool.hatch.envs.default]
features = ["test"]
""",
        "src/shop/__init__.py": """\
import six


def total(prices):
    return sum(prices)


def main():
    print(six.text_type(total([1, 2])))
""",
        "tests/test_shop.py": """\
import subprocess

import shop


def test_total():
    assert shop.total([1, 2]) == 3


def test_none():
    assert shop.total([]) == 0


def test_program():
    assert subprocess.run(["shop"], capture_output=True, text=True, check=True).stdout == "3\\n"
""",
        ".gitignore": ".venv/\n.tox/\n.nox/\n*.egg-info/\n__pycache__/\nbuild/\n",
        "tox.ini": "[testenv]\nextras = test\ncommands = pytest\n",
        "noxfile.py": (
            "import nox\n\n\n@nox.session\ndef tests(session):\n"
            '    session.install("-e", ".[test]")\n    session.run("pytest", "-q")\n'
        ),
    },
    sum="src/shop/__init__.py",
    good="sum(prices)",
    as_good="sum(list(prices))",
    bad="sum(list(prices)) + 1",
    tests=("python", "-m", "pytest", "-q"),
    passed=r"(\d+) passed",
    failed=r"(\d+) failed",
    test=(
        "tests/test_{name}.py",
        "from shop.{name} import answer\n\n\ndef test_{name}():\n    assert answer() == 42\n",
    ),
    source=("src/shop/{name}.py", "def answer():\n    return {value}\n"),
    comment="# ",
)
NODE = Language(
    files={
        "package.json": json.dumps(
            {
                "name": "shop",
                "version": "1.0.0",
                "private": True,
                "scripts": {"test": "node --test --test-reporter=tap"},
                "dependencies": {"semver": "^7.6.0"},
            }
        ),
        "src/shop.js": (
            'const semver = require("semver");\n'
            "exports.total = (prices) => prices.reduce((a, b) => a + b, 0);\n"
            'exports.newer = () => semver.gt("1.2.3", "1.2.0");\n'
        ),
        "test/shop.test.js": """\
const test = require("node:test");
const assert = require("node:assert");
const { execFileSync } = require("node:child_process");
const shop = require("../src/shop.js");

test("total", () => assert.equal(shop.total([1, 2]), 3));
test("newer", () => assert.ok(shop.newer()));
test("program", () => assert.equal(execFileSync("semver", ["1.2.3"]).toString(), "1.2.3\\n"));
""",
        ".gitignore": "node_modules/\n",
    },
    sum="src/shop.js",
    good="a + b, 0",
    as_good="b + a, 0",
    bad="b + a, 1",
    tests=("npm", "test"),
    passed=r"# pass (\d+)",
    failed=r"# fail ([1-9]\d*)",
    test=(
        "test/{name}.test.js",
        'const test = require("node:test");\nconst assert = require("node:assert");\n'
        'test("{name}", () => assert.equal(require("../src/{name}.js").answer, 42));\n',
    ),
    source=("src/{name}.js", "exports.answer = {value};\n"),
    comment="// ",
)
RUST = Language(
    files={
        "Cargo.toml": '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n',
        "Cargo.lock": 'version = 3\n\n[[package]]\nname = "shop"\nversion = "0.1.0"\n',
        "src/lib.rs": """\
pub fn total(prices: &[i64]) -> i64 {
    prices.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::total;

    #[test]
    fn two() {
        assert_eq!(total(&[1, 2]), 3);
    }

    #[test]
    fn one() {
        assert_eq!(total(&[7]), 7);
    }

    #[test]
    fn none() {
        assert_eq!(total(&[]), 0);
    }
}
""",
        ".gitignore": "target/\n",
    },
    sum="src/lib.rs",
    good="prices.iter().sum()",
    as_good="prices.iter().copied().sum()",
    bad="prices.iter().copied().sum::<i64>() + 1",
    tests=("cargo", "test", "--no-fail-fast"),
    passed=r"test result: .*? (\d+) passed",
    failed=r"test result: .*? ([1-9]\d*) failed",
    test=(
        "tests/{name}.rs",
        '#[path = "../src/{name}.rs"]\nmod it;\n\n#[test]\nfn {name}() {{\n    assert_eq!(it::answer(), 42);\n}}\n',
    ),
    source=("src/{name}.rs", "pub fn answer() -> i32 {{\n    {value}\n}}\n"),
    comment="// ",
)
GO = Language(
    files={
        "go.mod": "module example.org/shop\n\ngo 1.21\n",
        "shop.go": """\
package shop

func Total(prices []int) int {
	sum := 0
	for _, price := range prices {
		sum += price
	}
	return sum
}
""",
        "shop_test.go": """\
package shop

import "testing"

func check(t *testing.T, expected int, prices ...int) {
	if found := Total(prices); found != expected {
		t.Fatalf("%d instead of %d", found, expected)
	}
}

func TestTwo(t *testing.T)  { check(t, 3, 1, 2) }
func TestOne(t *testing.T)  { check(t, 7, 7) }
func TestNone(t *testing.T) { check(t, 0) }
""",
    },
    sum="shop.go",
    good="sum := 0",
    as_good="var sum = 0",
    bad="var sum = 1",
    tests=("go", "test", "-v", "./..."),
    passed=r"--- PASS: ",
    failed=r"--- FAIL: ",
    test=(
        "{name}_test.go",
        'package shop\n\nimport "testing"\n\nfunc Test_{name}(t *testing.T) {{\n'
        '\tif answer_{name}() != 42 {{\n\t\tt.Fatal("wrong")\n\t}}\n}}\n',
    ),
    source=("{name}.go", "package shop\n\nfunc answer_{name}() int {{\n\treturn {value}\n}}\n"),
    comment="// ",
    counted=False,
)


# An agent that adds a wrong file and a test for it, sees the project's tests fail as its user would, and mends it.
AGENT = """\
import json, os, re, subprocess, sys

task, language = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
path = re.escape(language["source"][0]).replace(re.escape("{name}"), "([a-z]+)")
name = re.search("Create " + path, task)[1]

def put(value, more=""):
    place, text = language["source"]
    with open(place.format(name=name), "w") as file:
        file.write(text.format(name=name, value=value) + more)

def tests():
    done = subprocess.run(language["tests"], capture_output=True, text=True)
    print(done.stdout[-2000:], done.stderr[-2000:], flush=True)
    def count(pattern):
        return sum(int(found) if found.isdigit() else 1 for found in re.findall(pattern, done.stdout))
    return f"{count(language['failed'])} failed, {count(language['passed'])} passed"

place, text = language["test"]
os.makedirs(os.path.dirname(place) or ".", exist_ok=True)
with open(place.format(name=name), "w") as file:
    file.write(text.format(name=name))
put(7)  # of another size, or Python takes what it compiled a moment ago
before = tests()
put(42)
after = tests()
put(42, f"\\n{language['comment']}before: {before}\\n{language['comment']}after: {after}\\n")
"""


class User:
    """A person with a home and a shell, and a project in it: new, or a clone of somebody else's."""

    def __init__(self, home: Path, language: Language, equipment: Equipment, clone_of: User | None = None) -> None:
        self.home, self.project = home, home / "work" / "shop"
        self.language, self.equipment = language, equipment
        self.variables: dict[str, str] = {}
        self.path = os.environ["PATH"]
        self.project.parent.mkdir(parents=True)
        if clone_of is None:
            for name, text in language.files.items():
                (self.project / name).parent.mkdir(parents=True, exist_ok=True)
                (self.project / name).write_text(text)
            self.run("git", "init", "-q")
            self.run("git", "add", "-A")
            self.run("git", "commit", "-qm", "start")
        else:
            self.run("git", "clone", "-q", str(clone_of.project), str(self.project), cwd=self.home)
        configuration = home / ".config" / "holdfast" / "config.toml"
        configuration.parent.mkdir(parents=True, mode=0o700)
        (home / "agent.py").write_text(AGENT)
        (home / "language.json").write_text(json.dumps(language._replace(files={})._asdict()))
        argv = ["python3", f"{home}/agent.py", "{task_file}", f"{home}/language.json"]
        configuration.write_text(f"[agents.mine]\ncommand = {json.dumps(argv)}\n")
        configuration.chmod(0o600)

    def run(self, *argv: str, cwd: Path | None = None, **more: str) -> str:
        done = subprocess.run(argv, cwd=cwd or self.project, env=self.environment(more), capture_output=True, text=True)
        assert done.returncode == 0, (argv, done.stdout[-3000:], done.stderr[-3000:])
        return done.stdout

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = ("PIP_", "UV_", "npm_", "http", "SSL_", "REQUESTS", "GIT_", "NODE_EXTRA")
        names = {name: value for name, value in os.environ.items() if name.startswith(kept)}
        caches = {"PIP_CACHE_DIR": f"{PLACE}/cache/pip", "UV_CACHE_DIR": f"{PLACE}/cache/uv"}
        own = {"HOME": str(self.home), "PATH": self.path, "LANG": "C.UTF-8", "TERM": "dumb"}
        return {**names, **caches, **own, **self.variables, **(more or {})}

    def first_on_path(self, folder: Path | str) -> None:
        self.path = f"{folder}:{self.path}"

    def activate(self, prefix: Path) -> None:
        self.variables["VIRTUAL_ENV"] = str(prefix)
        self.first_on_path(prefix / "bin")

    def holdfast(self, *argv: str, status: int = 0) -> dict[str, object]:
        done = subprocess.run(
            [HOLDFAST, *argv, "--json"], cwd=self.project, env=self.environment(), capture_output=True, text=True
        )
        assert done.returncode == status, (argv, done.returncode, done.stdout[-3000:], done.stderr[-3000:])
        found: dict[str, object] = json.loads(done.stdout)
        return found


class Kind(NamedTuple):
    """`make` gives a user this environment for their project; `tests` is how they run their tests themselves."""

    language: Language
    make: Callable[[User], None]
    tests: tuple[str, ...]


def _active(user: User) -> None:
    place = user.home / "envs" / "shop"
    user.run(sys.executable, "-m", "venv", str(place))
    user.run(f"{place}/bin/pip", "install", "-q", "-e", ".[test]")
    user.activate(place)


def _local(user: User) -> None:
    user.run(sys.executable, "-m", "venv", ".venv")
    user.run(".venv/bin/pip", "install", "-q", ".[test]")
    user.run(".venv/bin/pip", "install", "-q", "--no-deps", "-e", ".")


def _uv(user: User) -> None:
    user.first_on_path(user.equipment.front())
    user.run("uv", "venv", "-q")
    user.run("uv", "pip", "install", "-q", "-e", ".[test]")


def _uv_elsewhere(user: User) -> None:
    user.first_on_path(user.equipment.front())
    user.variables["UV_PROJECT_ENVIRONMENT"] = str(user.home / "uv-environment")
    user.run("uv", "sync", "-q", "--extra", "test")


def _poetry(user: User) -> None:
    user.first_on_path(user.equipment.front())
    user.run("poetry", "env", "use", sys.executable)
    # Its own resolver asks an interface of the package index that mirrors do not have.
    place = user.run("poetry", "env", "info", "--path").strip()
    user.run("uv", "pip", "install", "-q", "--python", place, "-e", ".[test]")


def _pipenv(user: User) -> None:
    user.first_on_path(user.equipment.front())
    user.run("pipenv", "install", "--quiet", "-e", ".[test]", PIPENV_VENV_IN_PROJECT="", PIPENV_IGNORE_VIRTUALENVS="1")


def _hatch(user: User) -> None:
    user.first_on_path(user.equipment.front())
    user.run("hatch", "env", "create")


def _tox(user: User) -> None:
    user.first_on_path(user.equipment.front())
    user.run("tox", "-q", "-e", "py", "--notest")


def _nox(user: User) -> None:
    user.first_on_path(user.equipment.front())
    user.run("nox", "--install-only", "--default-venv-backend", "uv")


def _node_modules(user: User) -> None:
    user.first_on_path(user.equipment.node() / "bin")
    user.run("npm", "install", "--no-audit", "--no-fund", "--no-package-lock")


def _corepack(user: User) -> None:
    user.first_on_path(user.equipment.node() / "bin")
    # Registries that mirror another have no signatures of their own.
    user.variables["COREPACK_INTEGRITY_KEYS"] = "0"
    user.run("corepack", "use", "pnpm@9.15.0")


def _mise(user: User) -> None:
    """Its own downloads come from no registry of packages: it manages a Node that was installed from one."""
    node = user.equipment.node()
    user.first_on_path(user.equipment.mise())
    user.run("mise", "link", f"node@{_version(node)}", str(node))
    (user.home / ".config" / "mise").mkdir()
    (user.home / ".config" / "mise" / "config.toml").write_text(f'[tools]\nnode = "{_version(node)}"\n')
    user.run("mise", "reshim")
    user.first_on_path(user.home / ".local/share/mise/shims")
    user.run("mise", "exec", "--", "npm", "install", "--no-audit", "--no-fund", "--no-package-lock")


def _cargo(user: User) -> None:
    programs = user.equipment.cargo()
    user.variables["CARGO_HOME"] = str(programs.parent)
    user.variables["RUSTUP_HOME"] = str(programs.parent.parent / ".rustup")
    user.first_on_path(programs)


def _go(user: User) -> None:
    user.first_on_path(user.equipment.go() / "bin")
    # One cache for both machines of a test: to build the standard library takes longer than everything else together.
    user.variables["GOCACHE"] = f"{PLACE}/cache/go"


def _version(node: Path) -> str:
    said = subprocess.run([f"{node}/bin/node", "--version"], capture_output=True, text=True, check=True)
    return said.stdout.strip().removeprefix("v")


KINDS: dict[str, Kind] = {
    "active": Kind(PYTHON, _active, ("python", "-m", "pytest", "-q")),
    ".venv": Kind(PYTHON, _local, ("sh", "-c", ". .venv/bin/activate && pytest -q")),
    "uv": Kind(PYTHON, _uv, ("uv", "run", "--no-sync", "pytest", "-q")),
    "poetry": Kind(PYTHON, _poetry, ("poetry", "run", "pytest", "-q")),
    "pipenv": Kind(PYTHON, _pipenv, ("pipenv", "run", "pytest", "-q")),
    "tox": Kind(PYTHON, _tox, ("tox", "-e", "py")),
    "nox": Kind(PYTHON, _nox, ("nox", "-R")),
    "node_modules": Kind(NODE, _node_modules, ("npm", "test")),
    "corepack": Kind(NODE, _corepack, ("pnpm", "test")),
    "mise": Kind(NODE, _mise, ("mise", "exec", "--", "npm", "test")),
    "cargo": Kind(RUST, _cargo, ("cargo", "test")),
    "go": Kind(GO, _go, ("go", "test", "-v", "./...")),
}
# Tried less far: a check only.
MORE: dict[str, Kind] = {
    "uv elsewhere": Kind(PYTHON, _uv_elsewhere, ("uv", "run", "--no-sync", "pytest", "-q")),
    "hatch": Kind(PYTHON, _hatch, ("hatch", "run", "pytest", "-q")),
}


def count(pattern: str, text: str) -> int:
    """What a pattern counts: the numbers that it names, or how often it stands there."""
    return sum(int(found) if found.isdigit() else 1 for found in re.findall(pattern, text))
