"""Detection finds the projects a change touches, from names and small reads alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.checks.detect import Detected, Project, detect
from holdfast.checks.levels import LEVELS, Check
from holdfast.checks.tree import READ_LIMIT, TooLarge, Tree
from holdfast.checks.viewed import tree_in
from holdfast.sandbox.view import View


def tree_of(files: Mapping[str, str]) -> Tree:
    """A tree that exists only as names and texts, as a shadow's may."""

    def names(directory: str) -> frozenset[str]:
        prefix = f"{directory}/" if directory else ""
        below = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
        return frozenset(path.partition("/")[0] + ("/" if "/" in path else "") for path in below)

    def read(path: str) -> bytes:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path].encode()

    return Tree(names, read)


def found(files: Mapping[str, str], *touched: str) -> Detected:
    return detect(tree_of(files), touched or tuple(files))


def command(detected: Detected, level: str, root: str = "") -> tuple[str, ...]:
    (check,) = [check for check in detected.checks if check.level == level and check.root == root]
    return check.argv


PACKAGE = json.dumps({"scripts": {"test": "node test.js"}})
# files, kind, command of the tests
KINDS: list[tuple[dict[str, str], str, tuple[str, ...]]] = [
    ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, "Python", ("python3", "-m", "pytest")),
    ({"setup.py": "", "tests/test_a.py": "import unittest"}, "Python", ("python3", "-m", "unittest", "discover")),
    ({"requirements.txt": "pytest>=8\n"}, "Python", ("python3", "-m", "pytest")),
    ({"setup.cfg": "", ".venv/bin/python": "", "conftest.py": ""}, "Python", ("python3", "-m", "pytest")),
    (
        {"app/setup.cfg": "", "app/.venv/bin/python": "", "app/conftest.py": ""},
        "Python",
        (".venv/bin/python", "-m", "pytest"),
    ),
    ({"package.json": PACKAGE}, "Node", ("npm", "test")),
    ({"package.json": PACKAGE, "pnpm-lock.yaml": ""}, "Node", ("pnpm", "test")),
    ({"package.json": PACKAGE, "yarn.lock": ""}, "Node", ("yarn", "test")),
    ({"package.json": "{}", "test/a.js": ""}, "Node", ("node", "--test")),
    ({"Cargo.toml": "[package]\n"}, "Rust", ("cargo", "test")),
    ({"go.mod": "module x\n"}, "Go", ("go", "test", "-count=1", "./...")),
    ({"pom.xml": "<project/>"}, "Java (Maven)", ("mvn", "--offline")),
    ({"build.gradle.kts": ""}, "Java (Gradle)", ("gradle", "--gradle-user-home=.gradle/home", "--offline")),
    ({"App.sln": ""}, ".NET", ("dotnet", "test")),
    ({"src/App.csproj": ""}, ".NET", ("dotnet", "test")),
    ({"Gemfile": "", ".rspec": ""}, "Ruby", ("bundle", "exec", "rspec")),
    ({"Rakefile": "Rake::TestTask.new"}, "Ruby", ("rake", "test")),
    ({"composer.json": "{}", "phpunit.xml": "", "vendor/bin/phpunit": ""}, "PHP", ("vendor/bin/phpunit",)),
    ({"Makefile": "VAR := 1\nall:\ncheck: all\n\ttrue\n"}, "Make", ("make", "check")),
]


@pytest.mark.parametrize(("files", "kind", "argv"), KINDS, ids=[f"{kind}: {' '.join(f)}" for f, kind, _ in KINDS])
def test_each_kind_is_known_by_its_files(files: dict[str, str], kind: str, argv: tuple[str, ...]) -> None:
    """Every kind of project is recognised, and its tests are run as its people run them."""
    detected = found(files)
    (project,) = detected.projects
    assert project.kind == kind
    assert command(detected, "tests", project.root)[: len(argv)] == argv


def test_levels_come_in_their_order() -> None:
    """Checks are ordered from files to acceptance, whatever project they are of."""
    files = {
        "pyproject.toml": "[tool.mypy]\n[tool.ruff]\n[tool.pytest.ini_options]\n",
        "pkg/__init__.py": "",
        "web/package.json": PACKAGE,
        "web/a.js": "",
    }
    detected = detect(tree_of(files), files, custom=[("./accept.sh",)])
    levels = [check.level for check in detected.checks]
    assert levels == sorted(levels, key=LEVELS.index)
    assert set(levels) == {"syntax", "imports", "types", "tests", "lint", "acceptance"}


def test_only_touched_projects_of_a_monorepo_are_checked() -> None:
    """A change in one package runs that package's checks and those of the projects around it, not its neighbour's."""
    files = {
        "package.json": PACKAGE,
        "a/package.json": PACKAGE,
        "b/package.json": PACKAGE,
        "b/x.js": "",
        "c/go.mod": "",
    }
    detected = found(files, "b/x.js")
    assert detected.projects == (Project("", "Node", "package.json"), Project("b", "Node", "package.json"))
    assert found(files, "README").projects == (Project("", "Node", "package.json"),)


def test_other_peoples_code_is_no_project() -> None:
    """A package inside node_modules or vendor is not checked for itself."""
    files = {"a/node_modules/x/package.json": PACKAGE, "vendor/y/go.mod": "", "a/package.json": "{}"}
    assert {project.root for project in found(files).projects} == {"a"}


def test_a_deleted_project_has_no_checks() -> None:
    """Paths that are gone are not given to any tool, and a project whose marker is gone is none."""
    detected = found({"README": ""}, "pyproject.toml", "a.py")
    assert (detected.projects, detected.checks) == ((), ())


def test_make_counts_only_where_nobody_else_has_tests() -> None:
    """A Makefile beside a project with tests of its own is not run as well; its other targets are."""
    detected = found({"Makefile": "test:\n\ttrue\nlint:\n\ttrue\n", "Cargo.toml": ""})
    assert [check.argv[0] for check in detected.checks if check.level == "tests"] == ["cargo"]
    assert command(detected, "lint") == ("make", "lint")


def test_a_project_without_tests_has_no_test_check() -> None:
    """Nothing is invented: npm's default script and an empty Makefile are no tests."""
    default = json.dumps({"scripts": {"test": 'echo "Error: no test specified" && exit 1'}})
    for files in ({"package.json": default}, {"Makefile": "all:\n"}, {"pyproject.toml": ""}, {"package.json": "[1"}):
        assert [check for check in found(files).checks if check.level == "tests"] == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"package.json": json.dumps({"scripts": {"test": "jest"}, "devDependencies": {"jest": "1"}})}, "node_modules"),
        ({"package.json": "{}", "tsconfig.json": "{}"}, "tsc is not in node_modules"),
        ({"composer.json": "{}", "phpunit.xml": ""}, "phpunit is not in vendor/bin"),
    ],
)
def test_a_tool_that_is_not_in_the_tree_is_named(files: dict[str, str], said: str) -> None:
    """What would be checked, and cannot be for want of installed packages, is said and not passed over."""
    (item,) = found(files).not_run
    assert item.detail.startswith("cannot run here: ")
    assert said in item.detail


def test_a_tool_of_the_outer_node_modules_is_used() -> None:
    """A package of a monorepo uses the tools installed at its root."""
    files = {"node_modules/.bin/tsc": "", "packages/a/package.json": "{}", "packages/a/tsconfig.json": "{}"}
    detected = found(files, "packages/a/tsconfig.json")
    assert command(detected, "types", "packages/a")[0] == "../../node_modules/.bin/tsc"


def test_what_redefines_the_checks_is_named() -> None:
    """A change to the files that decide what is checked is told apart from other changes."""
    files = {"package.json": PACKAGE, "a.js": "", "py/pyproject.toml": "", "py/conftest.py": "", "py/a.py": ""}
    assert found(files).redefined == ("package.json", "py/conftest.py", "py/pyproject.toml")
    assert found(files, "a.js", "py/a.py").redefined == ()


def test_the_tree_is_not_walked() -> None:
    """Only directories above touched paths, and a few by name, are looked at, however large the tree is."""
    files = {"pyproject.toml": "", "pkg/__init__.py": "", **{f"d{n}/x.py": "" for n in range(500)}}
    looked: list[str] = []
    base = tree_of(files)

    def names(directory: str) -> frozenset[str]:
        looked.append(directory)
        return base.names(directory)

    detect(Tree(names, base.read), ["pkg/__init__.py"])
    assert not any(directory.startswith("d") for directory in looked)
    assert len(looked) < 40


def test_many_files_are_given_in_batches() -> None:
    """A change of thousands of files does not make a command line that no kernel takes."""
    files = {f"m{n}.py": "" for n in range(1000)}
    checks = [check for check in found(files).checks if check.level == "syntax"]
    assert sum(len(check.argv) - 4 for check in checks) == 1000
    assert max(len(check.argv) for check in checks) < 400


def test_modules_of_packages_are_imported_and_scripts_are_not() -> None:
    """Only what belongs to a package is imported: importing a script does what the script does."""
    files = {
        "pyproject.toml": '[project]\ndependencies = ["requests>=2", "PyYAML"]\n',
        "src/app/__init__.py": "", "src/app/core.py": "", "app2/__init__.py": "", "loose/x.py": "", "script.py": "",
        "tests/__init__.py": "", "tests/test_a.py": "", "app2/__main__.py": "", "setup.py": "", "app2/a-b.py": "",
    }  # fmt: skip
    argv = command(found(files), "imports")
    split = argv.index("--")
    assert argv[3:split] == ("PyYAML", "requests")
    assert argv[split + 1 :] == (".", "app2", "src", "app", "src", "app.core")


def test_a_real_directory_is_a_tree_that_nobody_leaves(tmp_path: Path) -> None:
    """Names and reads stay beneath the directory: links are seen and not followed, large files are refused."""
    root = tmp_path / "root"
    (root / "a").mkdir(parents=True)
    (root / "a" / "f").write_bytes(b"x")
    (root / "big").write_bytes(b"\0" * (READ_LIMIT + 1))
    (tmp_path / "secret").write_bytes(b"s")
    (root / "link").symlink_to("../secret")
    (root / "out").symlink_to(tmp_path)
    with tree_in(View(str(root), str(root))) as tree:
        assert tree.names("") == {"a/", "big", "link", "out"}
        assert tree.names("a") == {"f"}
        assert tree.names("out") == tree.names("nowhere") == tree.names("big") == frozenset()
        assert tree.read("a/f") == b"x"
        for path in ("link", "out/secret", "../secret", "a", "none"):
            with pytest.raises(OSError, match=r".+"):
                tree.read(path)
        with pytest.raises(TooLarge):
            tree.read("big")


def test_a_check_says_why_it_is_made() -> None:
    """Every detected check names its reason and the tool it needs."""
    for files, _, _ in KINDS:
        checks: tuple[Check, ...] = found(files).checks
        assert all(check.why and check.tool for check in checks)


GO_OUTPUT = [
    ("?   \texample.com/x\t[no test files]\n", False),
    ("ok  \texample.com/x\t0.003s [no tests to run]\n", False),
    ("?   \texample.com/x\t[no test files]\nok  \texample.com/y\t0.003s\n", True),
    ("ok  \texample.com/y\t(cached)\n", True),
]


@pytest.mark.parametrize(("output", "judged"), GO_OUTPUT)
def test_what_go_says_tells_whether_a_test_ran(output: str, judged: bool) -> None:
    """go test exits with 0 for packages without tests; only a package that says ok has been tested."""
    (check,) = [check for check in found({"go.mod": "module x\n"}).checks if check.level == "tests"]
    assert bool(re.search(check.shows, output, re.MULTILINE)) is judged


# ── a folder with nothing but tests ──


def bare(files: Mapping[str, str], *touched: str) -> tuple[str, ...]:
    """What pytest is told to look at."""
    (check,) = [check for check in found(files, *touched).checks if check.level == "tests"]
    assert check.argv[:4] == ("python3", "-m", "pytest", "-q")
    return check.files


def test_a_folder_with_nothing_but_tests_is_a_project() -> None:
    """pytest is told each file; nothing of other people's code, nothing in hidden folders."""
    files = dict.fromkeys(("a.py", "test_a.py", "sub/b_test.py", "sub/helper.py", ".x/test_b.py", "venv/test_c.py"), "")
    assert bare(files, "a.py") == ("test_a.py", "sub/b_test.py")


def test_projects_below_keep_their_tests_to_themselves() -> None:
    """A change beside them runs none of theirs: what they need is said in their own settings."""
    files = dict.fromkeys(("a.py", "test_a.py", "pkg/setup.py", "pkg/test_b.py", "pkg/tests/test_c.py"), "")
    assert bare(files, "a.py") == ("test_a.py",)


def test_it_is_none_beside_another_project() -> None:
    """Neither at the top, nor where the change is in a project below; nor without any test file."""
    for files, touched in (
        ({"test_a.py": "", "a.py": "", "go.mod": ""}, "a.py"),
        ({"test_a.py": "", "web/package.json": "{}", "web/a.js": ""}, "web/a.js"),
        ({"a.py": "", "attest.py": ""}, "a.py"),
    ):
        assert not [check for check in found(files, touched).checks if check.files]


def test_the_command_stays_the_same_when_tests_come_and_go() -> None:
    """Two runs are compared by their command, which does not hold the files."""
    one, two = ({"test_a.py": "", "a.py": ""}, {"test_b.py": "", "a.py": ""})
    assert command(found(one, "a.py"), "tests") == command(found(two, "a.py"), "tests")


def test_a_look_without_an_end_chooses_nothing() -> None:
    """With more folders or more test files than are looked at, no test is run, and the reason is told."""
    many = {"test_a.py": "", **{f"d{number}/x": "" for number in range(600)}}
    large = {f"test_{number}.py": "" for number in range(400)}
    for files in (many, large):
        detected = found(files, "a.py")
        assert not [check for check in detected.checks if check.level == "tests"]
        assert any("not looked for to the end" in item.detail for item in detected.not_run)
