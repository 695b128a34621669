"""Programs over a branch see its repository as they would in the checkout, and never anything of another one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import pytest

from checkpointed import at, git, put, repository, users_home
from holdfast.errors import Blocked
from holdfast.store.state import create_state
from holdfast.workspace.branches import keep_branch
from holdfast.workspace.capture import Captured
from holdfast.workspace.shadow import Shadow, open_shadow
from holdfast.workspace.site import Site
from shaded import captured_by, confined

Kind = Literal["overlay", "copy"]
_SECRET = "what nobody must see"
_ASKED = ("describe --tags", "tag", "ls-files", "log --oneline --all", "status --short", "branch --show-current")


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users_home(tmp_path, monkeypatch)


def _branched(place: Path) -> Path:
    """A repository with a tag, a remote with a password, and a branch with a commit of its own; its work tree."""
    repository(place)
    git(place, "tag", "v1.2")
    git(place, "remote", "add", "origin", f"https://me:{_SECRET.replace(' ', '')}@example.org/x.git")
    create_state(str(place))
    put(place, ".git/info/exclude", b"*.o\n")
    tree = Path(keep_branch(at(place), str(place / ".holdfast"), "night").tree)
    put(tree, "night.txt", b"night\n")
    git(tree, "add", "night.txt")
    git(tree, "commit", "-qm", "of the night")
    create_state(str(tree))
    return tree


@contextmanager
def _shadow(tree: Path, kind: Kind = "overlay", hidden: tuple[str, ...] = ()) -> Iterator[Shadow]:
    with Site(str(tree)) as site, open_shadow(site, kind, hidden) as shadow:
        yield shadow


def _said(shadow: Shadow, script: str) -> str:
    return confined(shadow.view, "/bin/sh", "-c", script).decode()


def _nothing(captured: Captured) -> bool:
    return not (captured.change_set or captured.suspicious or captured.refused)


@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_git_answers_as_in_the_work_tree(tmp_path: Path, kind: Kind) -> None:
    """Tags, files, history and status are those of the branch, at the person's path; edits show as edits."""
    tree = _branched(tmp_path / "w")
    with _shadow(tree, kind) as shadow:
        for words in _ASKED:
            assert _said(shadow, f"git {words}") == git(tree, *words.split())
        script = "pwd; git rev-parse --show-toplevel; echo edited > a.txt; touch junk.o new; git status --short"
        assert _said(shadow, script).split() == [str(tmp_path / "w")] * 2 + ["M", "a.txt", "??", "new"]
        assert {change.path for change in captured_by(shadow).change_set.changes} == {"a.txt", "new"}


@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_no_settings_and_no_credentials_are_shown(tmp_path: Path, kind: Kind) -> None:
    """The configuration in there is ours: no remote, nothing of the person's."""
    tree = _branched(tmp_path / "w")
    with _shadow(tree, kind) as shadow:
        told = _said(shadow, "git remote -v; git config --list --local; cat .git; cat /run/holdfast/git/config")
    assert "gitdir: /run/holdfast/git" in told
    assert "example.org" not in told and _SECRET.replace(" ", "") not in told


@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_what_is_written_in_there_reaches_no_repository(tmp_path: Path, kind: Kind) -> None:
    """Commits, deleted references, damaged objects, another `.git`: the person's is as it was, and nothing lands."""
    tree = _branched(tmp_path / "w")
    before = _bytes(tmp_path / "w" / ".git")
    with _shadow(tree, kind) as shadow:
        _said(
            shadow,
            "git -c user.name=x -c user.email=x@x commit -q --allow-empty -m mine; git tag -d v1.2; git gc -q\n"
            "chmod -R u+w /run/holdfast/git*; find /run/holdfast/git* -type f -exec sh -c 'echo x > $1' - {} \\;\n"
            "rm -rf /run/holdfast/git*/*; rm -f .git; echo 'gitdir: /etc' > .git; mv .git away; true",
        )
        assert _said(shadow, "cat .git") == "gitdir: /run/holdfast/git\n"
        assert _said(shadow, "git tag; git log -1 --format=%s") == "v1.2\nof the night\n"
        assert _nothing(captured_by(shadow))
    assert _bytes(tmp_path / "w" / ".git") == before
    git(tmp_path / "w", "fsck", "--strict")


def test_hidden_parts_of_a_repository_stay_hidden(tmp_path: Path) -> None:
    """What the configuration hides below `.git` is not there; who hides all of it has none."""
    tree = _branched(tmp_path / "w")
    with _shadow(tree, hidden=(".git/packed-refs", ".git/refs/tags")) as shadow:
        assert _said(shadow, "git tag; git log -1 --format=%s") == "of the night\n"
    for pattern in (".git/objects/pack/*", ".git/*/pack"):
        with _shadow(tree, hidden=(pattern,)) as shadow:
            assert _said(shadow, "git tag; git log -1 --format=%s 2>/dev/null; true") == "v1.2\n"
    with _shadow(tree, hidden=(".git",)) as shadow:
        assert _said(shadow, "git log 2>/dev/null || ls /run/holdfast").split().count("git") == 0


def test_a_check_sees_the_repository_too(tmp_path: Path) -> None:
    """The layer of a check has it, whatever the program before it did to its own."""
    tree = _branched(tmp_path / "w")
    with _shadow(tree) as shadow:
        _said(shadow, "rm -rf /run/holdfast/git/* 2>/dev/null; true")
        captured = captured_by(shadow)
        with shadow.layer(captured.change_set, captured.seen, captured.sources) as view:
            assert confined(view, "/usr/bin/git", "describe", "--tags").startswith(b"v1.2-1-g")


# ── forged ──


def _pointer(text: str) -> Callable[[Path, Path], None]:
    return lambda tree, other: (tree / ".git").write_text(text.replace("OTHER", str(other))) and None


def _link(tree: Path, other: Path) -> None:
    (tree / ".git").unlink()
    os.symlink(other / ".git", tree / ".git")


def _directory(tree: Path, other: Path) -> None:
    (tree / ".git").unlink()
    shutil.copytree(other / ".git", tree / ".git")


def _own(tree: Path) -> Path:
    return Path((tree / ".git").read_text().removeprefix("gitdir: ").strip())


def _forged_own(tree: Path, other: Path) -> None:
    """A place that knows this work tree, and says that it belongs to the other repository."""
    forged = other.parent / "forged"
    shutil.copytree(_own(tree), forged)
    (forged / "commondir").write_text(f"{other}/.git\n")
    (tree / ".git").write_text(f"gitdir: {forged}\n")


def _adopted(tree: Path, other: Path) -> None:
    """The other repository believes that this is a work tree of its own."""
    adopted = other / ".git" / "worktrees" / "x"
    shutil.copytree(_own(tree), adopted)
    (adopted / "commondir").write_text("../..\n")
    (tree / ".git").write_text(f"gitdir: {adopted}\n")


def _commondir(tree: Path, other: Path) -> None:
    (_own(tree) / "commondir").write_text(f"{other}/.git\n")


def _in_own(name: str, target: str) -> Callable[[Path, Path], None]:
    def forge(tree: Path, other: Path) -> None:
        path = _own(tree) / name
        path.unlink(missing_ok=True)
        os.symlink(target.replace("OTHER", str(other)), path)

    return forge


def _in_common(name: str, target: str) -> Callable[[Path, Path], None]:
    def forge(tree: Path, other: Path) -> None:
        path = _own(tree).parent.parent / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        os.symlink(target.replace("OTHER", str(other)), path)

    return forge


def _alternates(tree: Path, other: Path) -> None:
    path = _own(tree).parent.parent / "objects" / "info" / "alternates"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{other}/.git/objects\n")


def _fifo(tree: Path, other: Path) -> None:
    (_own(tree) / "HEAD").unlink()
    os.mkfifo(_own(tree) / "HEAD")


_FORGED: dict[str, Callable[[Path, Path], None]] = {
    "a host directory": _pointer("gitdir: /etc\n"),
    "another repository": _pointer("gitdir: OTHER/.git\n"),
    "a relative way out": _pointer("gitdir: ../../../../other/.git\n"),
    "a folder that lands": _pointer("gitdir: inner\n"),
    "no pointer": _pointer("\n"),
    "a link": _link,
    "a directory": _directory,
    "a forged place": _forged_own,
    "adopted by another repository": _adopted,
    "a common place elsewhere": _commondir,
    "HEAD is a link": _in_own("HEAD", "OTHER/secret"),
    "the index is a link": _in_own("index", "OTHER/secret"),
    "HEAD is a FIFO": _fifo,
    "objects are a link": _in_common("objects", "OTHER/.git/objects"),
    "packs are a link": _in_common("objects/pack", "OTHER/.git/objects/pack"),
    "an object is a link": _in_common("objects/pack/pack-x.pack", "OTHER/secret"),
    "a tag is a link": _in_common("refs/tags/x", "OTHER/secret"),
    "tags are a link": _in_common("refs/tags", "OTHER"),
    "rules are a link": _in_common("info/exclude", "OTHER/secret"),
    "packed references are a link": _in_common("packed-refs", "OTHER/secret"),
    "objects of another repository": _alternates,
}


@pytest.mark.parametrize("forged", _FORGED)
def test_a_forged_repository_shows_nothing_of_another(tmp_path: Path, forged: str) -> None:
    """Wherever it leads: no program starts, with the reason; or it sees no name, byte or object from outside."""
    tree, other = _branched(tmp_path / "w"), tmp_path / "other"
    repository(other)
    put(other, "secret", _SECRET.encode())
    git(other, "add", "secret")
    git(other, "commit", "-qm", _SECRET)
    commit = git(other, "rev-parse", "HEAD").strip()
    _FORGED[forged](tree, other)
    look = (
        f"git log --all -p; git cat-file -p {commit}; git show {commit}; git ls-files; cat .git\n"
        f"cat {other}/secret {other}/.git/HEAD; ls {other}\n"
        "find /run/holdfast/git* -type f -exec cat {} +; true"
    )
    try:
        with _shadow(tree) as shadow:
            told = confined(shadow.view, "/bin/sh", "-c", f"exec 2>/dev/null; {look}")
    except Blocked:
        told = b""
    assert _SECRET.encode() not in told
    assert b"root:" not in told and b"other\n" not in told


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
