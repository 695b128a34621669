"""By-products and git: ignored paths are listed and stay behind; what happens to `.git` is thrown away and told."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.disk.confined import Root
from holdfast.errors import Blocked
from holdfast.model.simulation import ByProduct
from holdfast.workspace.gitrules import Rulebook
from holdfast.workspace.ignored import ignored_paths
from holdfast.workspace.shadow import Shadow, open_shadow
from holdfast.workspace.site import Site
from shaded import captured_by, changes, land, shaded, shell

RULES = b"*.o\n/build/\n__pycache__/\n!keep.o\nsecret\n"
FILES = {
    ".gitignore": RULES,
    "src/a.c": b"a\n",
    "src/a.o": b"ignored\n",
    "build/old": b"ignored\n",
    "tracked.o": b"t\n",
}


def git(place: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(place), *words], check=True, capture_output=True, text=True).stdout


def repository(place: Path) -> None:
    git(place, "init", "-q", "-b", "main")
    git(place, "add", "-A")
    git(place, "add", "-f", *(["tracked.o"] if (place / "tracked.o").exists() else []))
    git(place, "commit", "-qm", "first")


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with shaded(tmp_path / "workspace", FILES) as opened:
        repository(tmp_path / "workspace")
        yield opened


@pytest.fixture(params=["overlay", "copy"])
def shadow(request: pytest.FixtureRequest, site: Site) -> Iterator[Shadow]:
    with open_shadow(site, request.param) as opened:
        yield opened


def test_ignored_paths_are_by_products(site: Site, shadow: Shadow) -> None:
    """What the repository ignores is listed with its size, topmost paths only, and does not land; the rest does."""
    shell(shadow, "echo b > src/b.c; echo 123 > src/b.o; mkdir -p build/x; echo 1234 > build/x/y; echo 5 > keep.o")
    captured = captured_by(shadow)
    assert changes(captured) == {"keep.o": "new", "src/b.c": "new"}
    assert captured.by_products == (ByProduct("build", 5), ByProduct("src/b.o", 4))
    land(site, captured)
    assert not (Path(site.path) / "src/b.o").exists()


def test_tracked_paths_are_never_ignored(shadow: Shadow) -> None:
    """A tracked file lands although a rule matches it."""
    shell(shadow, "echo more >> tracked.o")
    assert changes(captured_by(shadow)) == {"tracked.o": "edited"}


def test_the_rules_are_those_of_the_workspace(shadow: Shadow) -> None:
    """A program that writes its own rules hides nothing with them, and un-hides nothing."""
    shell(shadow, "echo '*.c' > .gitignore; echo '*' > src/.gitignore; echo evil > src/evil.c; echo o > n.o")
    captured = captured_by(shadow)
    assert changes(captured) == {".gitignore": "edited", "src/.gitignore": "new", "src/evil.c": "new"}
    assert captured.by_products == (ByProduct("n.o", 2),)


def test_configuration_keeps_what_it_names(site: Site, shadow: Shadow) -> None:
    """Ignored paths that a pattern names land, with the directories they need."""
    shell(shadow, "mkdir -p build/out/deep; echo 1 > build/out/deep/app; echo 2 > build/junk; echo 3 > n.o")
    captured = captured_by(shadow, keep=["build/out/**"])
    assert changes(captured) == {"build/out": "new", "build/out/deep": "new", "build/out/deep/app": "new"}
    assert captured.by_products == (ByProduct("build/junk", 2), ByProduct("n.o", 2))
    land(site, captured)
    assert (Path(site.path) / "build/out/deep/app").read_text() == "1\n"


def test_a_removed_directory_keeps_what_is_ignored(site: Site, shadow: Shadow) -> None:
    """Ignored files in a directory that a program removed stay, and so does the directory; the rest goes."""
    shell(shadow, "rm -r src")
    captured = captured_by(shadow)
    assert changes(captured) == {"src/a.c": "gone"}
    assert captured.by_products == (ByProduct("src/a.o", 0),)
    land(site, captured)
    assert os.listdir(Path(site.path) / "src") == ["a.o"]


def test_a_directory_with_ignored_files_cannot_become_a_file(shadow: Shadow) -> None:
    """What is ignored would be lost without a word: refused."""
    shell(shadow, "rm -r src; echo x > src")
    captured = captured_by(shadow)
    assert [remark.path for remark in captured.refused] == ["src"]
    assert "src" not in changes(captured)


def test_git_is_thrown_away_and_told(site: Site, shadow: Shadow) -> None:
    """Commits, hooks, configuration and branches made in a shadow never land; those that matter are suspicious."""
    before = git(Path(site.path), "rev-parse", "HEAD")
    shell(
        shadow,
        "echo x > src/new.c; git add -A; git -c user.name=x -c user.email=x@example.invalid commit -qm evil;"
        "echo 'exec evil' > .git/hooks/pre-commit; git config core.fsmonitor evil; git tag v9",
    )
    captured = captured_by(shadow)
    assert changes(captured) == {"src/new.c": "new"}
    told = {remark.path for remark in captured.suspicious}
    assert told >= {".git/hooks/pre-commit", ".git/config", ".git/refs/heads/main", ".git/refs/tags/v9"}
    assert not any(path.startswith((".git/objects", ".git/logs", ".git/index")) for path in told)
    land(site, captured)
    assert git(Path(site.path), "rev-parse", "HEAD") == before
    assert git(Path(site.path), "status", "--porcelain") == "?? src/new.c\n"


def test_what_is_suspicious_is_told_in_the_order_of_paths(site: Site, shadow: Shadow) -> None:
    """Whatever kind each is: so that nothing can be pushed out of the sentence that names the first of them."""
    shell(shadow, "cd .git/hooks; ln -s /bin/true z; ln -s /bin/true m; echo x > pre-commit; ln -s /bin/true a")
    told = [remark.path for remark in captured_by(shadow).suspicious]
    assert told == [f".git/hooks/{name}" for name in ("a", "m", "pre-commit", "z")]


@pytest.mark.parametrize("rules", [".gitignore", "src/.gitignore"])
def test_rules_that_are_no_file_are_named_and_git_does_not_wait_for_them(site: Site, rules: str) -> None:
    """A FIFO where rules are expected would hold git up: the capture is refused before git is asked."""
    place = Path(site.path, rules)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    with open_shadow(site, "overlay") as shadow:
        shell(shadow, "echo b > src/b.o")
        with pytest.raises(Blocked, match=f"^{re.escape(rules)} is no file: git would wait for it"):
            shadow.capture()


def test_looking_with_git_is_not_suspicious(shadow: Shadow) -> None:
    """`git status` writes the index; nobody needs to hear of it."""
    shell(shadow, "git status > /dev/null; touch .git/config .git/HEAD")
    captured = captured_by(shadow)
    assert (captured.suspicious, captured.change_set.changes) == ((), ())


@pytest.mark.parametrize("script", ["rm -rf .git", "git init -q d", "mv .git elsewhere; mkdir .git"])
def test_repositories_that_come_and_go_are_told(site: Site, shadow: Shadow, script: str) -> None:
    """Removing the repository, or making one inside, is told, and neither happens."""
    shell(shadow, script)
    captured = captured_by(shadow)
    assert captured.suspicious
    assert not any(".git" in path.split("/") for path in changes(captured))
    land(site, captured)
    git(Path(site.path), "status")


def test_without_a_repository_everything_counts(tmp_path: Path) -> None:
    """A `.gitignore` alone ignores nothing."""
    with shaded(tmp_path / "w", FILES) as site, open_shadow(site) as shadow:
        shell(shadow, "echo 1 > n.o")
        assert changes(captured_by(shadow)) == {"n.o": "new"}


def test_a_repository_inside_has_its_own_rules(site: Site, shadow: Shadow) -> None:
    """Paths in an embedded repository are judged by the rules of that one."""
    inner = Path(site.path) / "inner"
    inner.mkdir()
    (inner / ".gitignore").write_text("*.txt\n")
    git(inner, "init", "-q")
    with open_shadow(site) as fresh:
        shell(fresh, "echo 1 > inner/a.txt; echo 1 > inner/a.o; echo 1 > b.txt")
        captured = captured_by(fresh)
    assert changes(captured) == {"b.txt": "new", "inner/a.o": "new"}
    assert captured.by_products == (ByProduct("inner/a.txt", 2),)


@pytest.mark.parametrize("name", ["-n.o", ":(top)x.o", ":!y.o", 'q"u\\o.o', "new\nline.o", "ü.o", "\udcff.o", " .o"])
def test_odd_names_are_asked_about_exactly(site: Site, name: str) -> None:
    """No name is taken for an option, a pattern, or two names."""
    assert ignored_paths(site, [name, f"src/{name}/", f"{name}.c"]) == {name, f"src/{name}"}


def test_paths_behind_a_link_are_not_ignored(site: Site) -> None:
    """Where the workspace has a link and the shadow a directory, git has no answer, and nothing is held back."""
    os.symlink("src", Path(site.path) / "link")
    assert ignored_paths(site, ["link/a.o", "b.o"]) == {"b.o"}


def test_hostile_configuration_starts_nothing(site: Site, tmp_path: Path) -> None:
    """Programs named in the repository's configuration are not run when its rules are asked for."""
    mark = tmp_path / "ran"
    hook = tmp_path / "hook"
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    for key in ("core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "alias.check-ignore"):
        git(Path(site.path), "config", key, f"!{hook}" if key.startswith("alias") else str(hook))
    assert ignored_paths(site, ["n.o", "n.c"]) == {"n.o"}
    assert not mark.exists()


def test_a_broken_repository_is_an_error(site: Site) -> None:
    """When git cannot answer, nothing is guessed."""
    (Path(site.path) / ".git/HEAD").write_text("nonsense\n")
    with pytest.raises(Blocked, match="git cannot say"):
        ignored_paths(site, ["n.o"])


def test_a_linked_work_tree(site: Site, tmp_path: Path) -> None:
    """In a work tree whose `.git` is a file the rules hold as well, those of the main repository included."""
    git(Path(site.path), "worktree", "add", "-q", str(tmp_path / "linked"))
    (Path(site.path) / ".git/info/exclude").write_text("*.tmp\n")
    with shaded(tmp_path / "linked", {}) as linked:
        assert ignored_paths(linked, ["x.o", "x.tmp", "x.c"]) == {"x.o", "x.tmp"}


def sifted(workspace: Root, paths: list[str]) -> list[str]:
    """What the sieve lets through."""
    rules = Rulebook(workspace)
    places = {path: os.path.split(path.rstrip("/")) for path in paths}
    return [path for path, (above, name) in places.items() if rules.here(above).may([name])]


names = st.sampled_from(["a", "b.o", "A.O", "build", "x y", "a*b", "[ab]", "keep.o"])
paths = st.lists(st.lists(names, min_size=1, max_size=3).map("/".join), min_size=1, max_size=6)
pieces = st.sampled_from(
    ["a", "b", "*", "**", "?", "[ab]", "[!x]", ".o", "/", "\\", "!", " ", "build", "x y", "#", "[[:alpha:]]"]
)
rules = st.lists(st.lists(pieces, min_size=1, max_size=5).map("".join), max_size=4).map("\n".join)


@settings(max_examples=120)
@given(here=rules, below=rules, asked=paths, ignore_case=st.booleans())
def test_the_sieve_holds_nothing_back(here: str, below: str, asked: list[str], ignore_case: bool) -> None:
    """Whatever the rules, a path that git ignores passes the sieve."""
    with tempfile.TemporaryDirectory() as place:
        git(Path(place), "init", "-q")
        git(Path(place), "config", "core.ignoreCase", str(ignore_case).lower())
        (Path(place) / ".gitignore").write_text(here)
        (Path(place) / "a").mkdir()
        (Path(place) / "a/.gitignore").write_text(below)
        words = ["git", "-C", place, "check-ignore", "--no-index", "--stdin", "-z"]
        lines = "\0".join(f"./{path}" for path in asked)
        out = subprocess.run(words, input=lines, capture_output=True, text=True, check=False).stdout
        by_git = {path.removeprefix("./") for path in out.split("\0") if path}
        with Root(place) as root:
            assert by_git <= set(sifted(root, asked))


def test_the_sieve_is_worth_its_name(site: Site) -> None:
    """Ordinary edits never start git."""
    assert sifted(site.workspace, ["src/a.c", "README", "src/deep/"]) == []


SOURCE_TREE = {
    "pyproject.toml": b"[project]\n",
    "pkg/a.py": b"a\n",
    "web/package.json": b"{}\n",
    "docs/build/x": b"x\n",
}
RUN = """
mkdir .benchmarks
mkdir -p pkg/__pycache__ .pytest_cache/v .venv/bin web/node_modules/m web/dist build/lib docs/target notes.egg-info
for f in pkg/__pycache__/a.pyc .pytest_cache/v/x .venv/bin/python web/node_modules/m/i.js web/dist/o.js build/lib/a.py
do echo made > $f; done
echo made > docs/target/page; echo made > docs/build/x; echo made > notes.egg-info/SOURCES; echo made > pkg/b.py
"""


@pytest.mark.parametrize("with_git", [True, False])
@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_caches_of_a_source_tree_are_by_products(
    tmp_path: Path, kind: Literal["overlay", "copy"], with_git: bool
) -> None:
    """Without any rule: caches that are new, and build folders beside the file of a project; what was there lands."""
    with shaded(tmp_path / "workspace", SOURCE_TREE) as site:
        if with_git:
            repository(tmp_path / "workspace")
        with open_shadow(site, kind) as shadow:
            shell(shadow, RUN)
            captured = captured_by(shadow)
        landed = {"docs/build/x": "edited", "docs/target": "new", "docs/target/page": "new", "pkg/b.py": "new"}
        assert changes(captured) == landed
        names = [item.path for item in captured.by_products]
        assert names == [
            ".benchmarks", ".pytest_cache", ".venv", "build", "notes.egg-info", "pkg/__pycache__", "web/dist",
            "web/node_modules",
        ]  # fmt: skip


def test_elsewhere_everything_counts(tmp_path: Path) -> None:
    """In a tree that is no project, `build` and `__pycache__` are names like any other; and so is what is kept."""
    with shaded(tmp_path / "host", {"etc/a.conf": b"a\n"}) as site, open_shadow(site, "auto") as shadow:
        shell(shadow, "mkdir -p build etc/__pycache__; echo x > build/x; echo x > etc/__pycache__/x")
        found = changes(captured_by(shadow))
        assert found == {"build": "new", "build/x": "new", "etc/__pycache__": "new", "etc/__pycache__/x": "new"}
    with shaded(tmp_path / "project", SOURCE_TREE) as site, open_shadow(site, "auto") as shadow:
        shell(shadow, "mkdir dist; echo x > dist/x")
        assert changes(shadow.capture(["dist/**"])) == {"dist": "new", "dist/x": "new"}
