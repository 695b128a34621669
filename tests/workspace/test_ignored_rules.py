"""Rules without git: whatever is said about a path is what git says, and ordinary rules need no git at all."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.disk.confined import Root
from holdfast.store.state import create_state
from holdfast.workspace.gitplain import is_plain
from holdfast.workspace.gitrules import Rulebook, Unclear
from holdfast.workspace.ignored import ignored_paths
from holdfast.workspace.site import Site

# What people write, and what git's own documentation shows.
USUAL = """\
# a comment
*.o
*.py[co]
__pycache__/
/build/
/dist
node_modules
docs/_build/
*.egg-info/
.coverage.*
*~
!keep.o
**/generated
logs/**
a/**/z
src/*.tmp
?.out
"""


def git(place: Path, *words: str, stdin: bytes = b"") -> bytes:
    return subprocess.run(["git", "-C", str(place), *words], check=True, capture_output=True, input=stdin).stdout


def told_by_git(place: Path, asked: Sequence[str]) -> set[str]:
    """By its rules alone."""
    words = ["git", "-C", str(place), "check-ignore", "--no-index", "--stdin", "-z"]
    lines = b"\0".join(b"./" + os.fsencode(path) for path in asked)
    done = subprocess.run(words, input=lines, capture_output=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return {os.fsdecode(path).removeprefix("./") for path in done.stdout.split(b"\0") if path}


def passes(rules: Rulebook, path: str) -> bool:
    """Whether the sieve lets a path through."""
    above, _, name = path.rstrip("/").rpartition("/")
    return bool(rules.here(above).may([name]))


def said(rules: Rulebook, path: str) -> bool | None:
    """None where git must be asked."""
    try:
        return passes(rules, path) and rules.judged(path)
    except Unclear:
        return None


@pytest.fixture
def place(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main")
    return tmp_path


@pytest.fixture
def site(place: Path) -> Iterator[Site]:
    create_state(str(place))
    with Site(str(place)) as opened:
        yield opened


words = st.sampled_from(
    ["a", "b", "build", "b.o", "x.o.c", "A", "ab", "z", ".o", "a b", "a\t", "a\r", "ü", "\udcff", "-n"]
)
asked_paths = st.lists(
    st.tuples(st.lists(words, min_size=1, max_size=4).map("/".join), st.sampled_from(["", "", "/"])).map("".join),
    min_size=1,
    max_size=8,
    unique=True,
)
pieces = st.sampled_from(
    ["a", "b", "build", ".o", "z", "*", "*", "?", "**", "/", "/", "/", "**/", "/**", "[ab]", "[a-z]", "[!x]", "\\", "!",
     " ", "\t", "\r", "#", "ü", "\udcff", "x", "\0"]
)  # fmt: skip
lines = st.one_of(st.lists(pieces, min_size=1, max_size=5).map("".join), st.sampled_from(USUAL.splitlines()))
rule_files = st.lists(lines, max_size=5).map("\n".join)


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(
    here=rule_files,
    below=rule_files,
    everywhere=rule_files,
    asked=asked_paths,
    standing=st.booleans(),
    at_hand=st.booleans(),
)
def test_what_is_said_is_what_git_says(
    here: str, below: str, everywhere: str, asked: list[str], standing: bool, at_hand: bool
) -> None:
    """For any rules in three files and any paths, there or not: the same answer, or none; and what the sieve holds
    back is not ignored. A directory that it holds back is asked about as one that is there, by its name:
    after a slash, `check-ignore` sees an empty name, and `*` in the directory's own rules for one that matches.
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        git(place, "init", "-q")
        (place / "a").mkdir()
        for path, text in ((".gitignore", here), ("a/.gitignore", below), (".git/info/exclude", everywhere)):
            (place / path).write_bytes(text.encode("utf-8", "surrogateescape"))
        if standing:
            (place / "build").mkdir()
            (place / "a/b").mkdir()
        with Root(folder) as root:
            rules = Rulebook(root, at_hand=at_hand)
            passed = [path for path in asked if passes(rules, path)]
            answers = {path: said(rules, path) for path in passed}
        by_git = told_by_git(place, asked)
        decided = {path: answer for path, answer in answers.items() if answer is not None}
        assert decided == {path: path in by_git for path in decided}
        held = [path for path in asked if path not in passed]
        for path in held:
            if path.endswith("/"):
                (place / path).mkdir(parents=True, exist_ok=True)
        assert not held or told_by_git(place, [path.rstrip("/") for path in held]) == set()


USUAL_PATHS = {
    "x.o": True, "src/x.o": True, "x.o/": True, "keep.o": False, "src/keep.o": False, "x.c": False,
    "m.pyc": True, "m.pyo": True, "m.pyx": False, "__pycache__/": True, "a/__pycache__/m.x": True,
    "build/": True, "build/deep/y": True, "src/build/": False, "dist": True, "src/dist": False,
    "web/node_modules/": True, "web/node_modules/p/i.js": True, "docs/_build/": True, "x/docs/_build/": False,
    "p.egg-info/": True, ".coverage.1": True, ".coverage": False, "a~": True, "generated": True,
    "x/y/generated": True, "logs/x": True, "logs/x/y": True, "a/z": True, "a/b/c/z": True, "z": False,
    "src/x.tmp": True, "src/deep/x.tmp": False, "x.out": True, "xy.out": False, "new/": False,
}  # fmt: skip


def test_usual_rules_need_no_git(place: Path, site: Site) -> None:
    """Whatever stands in an ordinary file of rules is decided here, as git decides it."""
    (place / ".gitignore").write_text(USUAL)
    rules = Rulebook(site.workspace)
    assert {path: said(rules, path) for path in USUAL_PATHS} == USUAL_PATHS
    assert {path for path, ignored in USUAL_PATHS.items() if ignored} == told_by_git(place, list(USUAL_PATHS))
    assert is_plain(site.workspace, "")
    assert ignored_paths(site, USUAL_PATHS) == {path.rstrip("/") for path, ignored in USUAL_PATHS.items() if ignored}


@pytest.mark.parametrize("rule", ["a[b-d]", "[!x]", "\\#x", "a\\ ", "x**y/z", "[[:alpha:]]"])
def test_what_is_not_plain_is_left_to_git(place: Path, site: Site, rule: str) -> None:
    """Ranges, classes, backslashes and stars within names have meanings that only git is asked for."""
    (place / ".gitignore").write_text(f"{rule}\n")
    candidate = {"\\#x": "#x", "a\\ ": "a ", "x**y/z": "x1y/z"}.get(rule, "ac" if rule[0] == "a" else "b")
    assert said(Rulebook(site.workspace), candidate) is None
    assert (ignored_paths(site, [candidate]) == {candidate}) == (told_by_git(place, [candidate]) == {candidate})


@pytest.mark.parametrize("name", ["a\t", "b\r", "c", "d e"])
def test_no_odd_line_is_held_back(place: Path, site: Site, name: str) -> None:
    """White space but the blank counts at the end of a rule, and a zero ends it: the sieve reads as git does."""
    (place / ".gitignore").write_bytes(b"a\t\nb\r\r\nc\0rest\nd e   \n")
    assert told_by_git(place, [name]) == {name}
    assert ignored_paths(site, [name, "other"]) == {name}


ACROSS = {
    "*.o\n!a**/b.o\n": "ab.o", "*.log\n!logs/app**/keep.log\n": "logs/appkeep.log", "build**/out\n": "buildout",
    "src/gen**/x.c\n": "src/genx.c", "tmp-**/cache/\n": "tmp-cache/", "[a/b]x\n": "ax", "*.c\n![a/b]x.c\n": "ax.c",
}  # fmt: skip


@pytest.mark.parametrize("rules", ACROSS)
def test_what_matches_across_its_own_slashes_is_left_to_git(place: Path, site: Site, rules: str) -> None:
    """`a**/b` also means `ab`, and a set may hold a slash: no name in the path is like one in the rule."""
    path = ACROSS[rules]
    (place / ".gitignore").write_text(rules)
    if path.endswith("/"):
        (place / path).mkdir()
    assert said(Rulebook(site.workspace), path) is None
    assert ignored_paths(site, [path]) == {found.rstrip("/") for found in told_by_git(place, [path])}


def test_many_stars_are_left_to_git(place: Path, site: Site) -> None:
    """Each star may try every place in a name: git has a time limit, and a search in here has none."""
    (place / ".gitignore").write_text("*a*a*a*a*a*b\n")
    assert said(Rulebook(site.workspace), "a" * 200 + "b") is None


def test_rules_that_stand_in_the_index_alone_count(place: Path, site: Site) -> None:
    """As in a sparse checkout: git reads them from there, and so git is asked."""
    (place / ".gitignore").write_text("*.o\n")
    git(place, "add", ".gitignore")
    assert ignored_paths(site, ["x.o", "x.c"]) == {"x.o"}
    git(place, "update-index", "--skip-worktree", ".gitignore")
    (place / ".gitignore").unlink()
    assert git(place, "check-ignore", "x.o") == b"x.o\n"
    assert ignored_paths(site, ["x.o", "x.c"]) == {"x.o"}


def _settings(text: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        with open(place / ".git/config", "a", encoding="utf-8") as file:
            file.write(text)

    return change


def _head(text: str) -> Callable[[Path], None]:
    return lambda place: (place / ".git/HEAD").write_text(text) and None


NOT_PLAIN: dict[str, Callable[[Path], None]] = {
    "case does not matter": _settings("[core]\n\tignorecase = true\n"),
    "more rules": _settings("[core]\n\texcludesFile = more\n"),
    "more settings": _settings("[include]\n\tpath = more\n"),
    "a newer format": _settings("[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha1\n"),
    "a setting that nobody here knows": _settings("[push]\n\tdefault = simple\n"),
    "a line that goes on": _settings("[user]\n\tname = a\\\nb\n"),
    "no branch": _head("ref: refs/tags/v1\n"),
    "no rest": _head(""),
    "a link": lambda place: (place / ".git/more").symlink_to("config"),
    "a link among objects": lambda place: (place / ".git/objects/ab").symlink_to("pack"),
    "settings of a work tree": lambda place: (place / ".git/config.worktree").touch(),
    "a place for all": lambda place: (place / ".git/commondir").touch(),
}


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_a_repository_that_is_not_plain_is_left_to_git(place: Path, site: Site, name: str) -> None:
    """Settings, heads and links that could change git's answer, or its mind about answering, are never passed over."""
    assert is_plain(site.workspace, "")
    NOT_PLAIN[name](place)
    assert not is_plain(site.workspace, "")


def test_a_repository_that_is_used_is_plain(place: Path, site: Site) -> None:
    """A remote, branches, a name and commits change nothing, and so does a head that is detached."""
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    git(place, "remote", "add", "origin", "https://example.invalid/a/b.git")
    git(place, "config", "branch.main.remote", "origin")
    git(place, "config", "branch.main.merge", "refs/heads/main")
    git(place, "config", "user.name", "Some Body")
    (place / "f").write_text("x")
    git(place, "add", "f")
    git(place, *identity, "commit", "-qm", "one")
    assert is_plain(site.workspace, "")
    git(place, "checkout", "-q", "--detach")
    assert is_plain(site.workspace, "")


def test_case_is_gits_to_decide(place: Path, site: Site) -> None:
    """Where the repository says that case does not matter, it does not."""
    (place / ".gitignore").write_text("*.O\n")
    assert ignored_paths(site, ["x.o"]) == frozenset()
    git(place, "config", "core.ignoreCase", "true")
    assert ignored_paths(site, ["x.o"]) == {"x.o"}


def test_a_tracked_path_is_not_ignored_without_git_either(place: Path, site: Site) -> None:
    """What the rules ignore and the index holds is no by-product, also in a plain repository with usual rules."""
    (place / ".gitignore").write_text("*.o\nout/\n")
    (place / "out").mkdir()
    for name in ("t.o", "out/t"):
        (place / name).write_text("x")
    git(place, "add", "-f", "t.o", "out/t")
    assert ignored_paths(site, ["t.o", "u.o", "out/t", "out/u"]) == {"u.o", "out/u"}


def test_a_repository_around_another_has_no_say_in_it(place: Path, site: Site) -> None:
    """The directory of an inner repository is judged by the outer rules, what is in it by its own."""
    (place / ".gitignore").write_text("inner/\n*.o\n")
    (place / "inner").mkdir()
    git(place / "inner", "init", "-q")
    (place / "inner/.gitignore").write_text("*.c\n")
    assert ignored_paths(site, ["inner/", "inner/x.o", "inner/x.c", "y.o"]) == {"inner", "inner/x.c", "y.o"}
