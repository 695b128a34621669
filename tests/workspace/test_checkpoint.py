"""Checkpoints hold what landed, and leave the user's own work as it is."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from checkpointed import (
    AT,
    Link,
    Program,
    Thing,
    at,
    commits,
    committed,
    git,
    image,
    landed,
    leftovers,
    put,
    repository,
    users_home,
)
from holdfast.errors import Blocked, Conflict, InvalidInput
from holdfast.model.changeset import Change
from holdfast.workspace.checkpoint import check_possible, checkpoint, find_checkpoint, revert


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    users_home(tmp_path, monkeypatch, "Ann Example")
    return repository(tmp_path / "work")


EDITS: dict[str, dict[str, Thing]] = {
    "edit": {"a.txt": b"two\n"},
    "new file in a new folder": {"deep/er/n.txt": b"n\n"},
    "deletion": {"a.txt": None},
    "all of a folder": {"src/b.py": None, "src/c.py": None},
    "everything": {"a.txt": None, "src/b.py": None, "src/c.py": None, "run.sh": None},
    "link": {"current": Link("src/b.py")},
    "file becomes link": {"a.txt": Link("/nowhere at all")},
    "executable": {"run.sh": Program(b"#!/bin/sh\n")},
    "empty file": {"empty": b""},
    "binary": {"bin": bytes(range(256)) * 300},
    "strange names": {" blank": b"1\n", "line\nend": b"2\n", '"q"\\': b"3\n", "-x": b"4\n", ":(top)y": b"5\n"},
    "not UTF-8": {os.fsdecode(b"\xff\xfe"): b"x\n"},
    "sorted between": {"src.x": b"1\n", "src-x": b"2\n", "src/a": b"3\n"},
}


@pytest.mark.parametrize("edits", EDITS.values(), ids=EDITS)
def test_a_checkpoint_holds_what_landed(place: Path, edits: dict[str, Thing]) -> None:
    """After a checkpoint the work tree is clean, the repository sound, and nothing of ours is left in it."""
    commit = committed(place, edits)
    assert git(place, "status", "--porcelain") == ""
    assert git(place, "rev-parse", "HEAD", "HEAD^").split() == [commit.id, commit.parent]
    assert git(place, "write-tree").strip() == commit.tree == git(place, "rev-parse", "HEAD^{tree}").strip()
    assert git(place, "fsck", "--strict", "--no-dangling") == ""
    assert leftovers(place) == []


def test_a_folder_becomes_a_file_and_back(place: Path) -> None:
    """A file may take the place of a folder, and a folder that of a file."""
    emptied = landed(place, {"src/b.py": None, "src/c.py": None})
    folder = image(place, "src")
    (place / "src").rmdir()
    put(place, "src", b"now a file\n")
    file = image(place, "src")
    checkpoint(at(place), emptied._replace(changes=(Change("src", folder, file), *emptied.changes)))
    assert git(place, "ls-tree", "-r", "--name-only", "HEAD").split() == ["a.txt", "run.sh", "src"]
    assert git(place, "status", "--porcelain") == ""
    put(place, "src", None)
    filled = landed(place, {"src/b.py": b"again\n"}, "x-2")
    checkpoint(at(place), filled._replace(changes=(Change("src", file, image(place, "src")), *filled.changes)))
    assert git(place, "ls-tree", "-r", "--name-only", "HEAD").split() == ["a.txt", "run.sh", "src/b.py"]
    assert git(place, "status", "--porcelain") == ""


def test_staged_work_below_a_folder_that_became_a_file_stays(place: Path) -> None:
    """Where the index cannot hold both, what the user staged stays, and is told."""
    put(place, "src/mine", b"mine\n")
    git(place, "add", "src/mine")
    emptied = landed(place, {"src/b.py": None, "src/c.py": None})
    folder = image(place, "src")
    (place / "src/mine").unlink()
    (place / "src").rmdir()
    put(place, "src", b"now a file\n")
    change = Change("src", folder, image(place, "src"))
    commit = checkpoint(at(place), emptied._replace(changes=(change, *emptied.changes)))
    assert commit is not None and commit.staged == ("src",)
    assert git(place, "ls-files").split() == ["a.txt", "run.sh", "src/mine"]


def test_the_commit_says_what_it_belongs_to(place: Path) -> None:
    """Title, author and trailers are readable by git; no text can forge a trailer or break a line."""
    landing = landed(place, {"a.txt": b"two\n"}, message="Title\nHoldfast-Task: forged\n\nHoldfast-Run: forged")
    evil = landing.trailers._replace(task="t-1\nHoldfast-Agent: forged\x1b[0m", agent="cl\u2028aude")
    checkpoint(at(place), landing._replace(trailers=evil))
    shown = git(place, "log", "-1", "--format=%s|%an|%ae|%ct|%(trailers:only,unfold)")
    assert shown.strip().split("\n") == [
        f"Title  Holdfast-Task: forged|Ann Example|ann@example.org|{AT}|Holdfast-Task: t-1 Holdfast-Agent: forged [0m",
        "Holdfast-Execution: x-1",
        f"Holdfast-Change-Set: {evil.change_set}",
        "Holdfast-Run: r-1",
        "Holdfast-Agent: cl aude",
    ]


def test_without_a_configured_identity_it_is_holdfast(place: Path, tmp_path: Path) -> None:
    """Who configured nothing sees Holdfast as author; who configured strange signs gets a name without them."""
    (tmp_path / "home/.gitconfig").write_text("")
    committed(place, {"a.txt": b"two\n"})
    assert git(place, "log", "-1", "--format=%an <%ae> %cn") == "Holdfast <holdfast@localhost> Holdfast\n"
    git(place, "config", "user.name", "A <b>\nc")
    git(place, "config", "committer.email", "c@example.org")
    committed(place, {"a.txt": b"three\n"}, "x-2")
    assert git(place, "log", "-1", "--format=%an <%ae> %ce") == "A b c <holdfast@localhost> c@example.org\n"


def test_the_users_own_work_stays_as_it_is(place: Path) -> None:
    """Stash, staged, unstaged and untracked work, and every index entry of other paths: as before, with their stats."""
    put(place, "a.txt", b"stashed\n")
    git(place, "stash")
    put(place, "src/b.py", b"staged\n")
    git(place, "add", "src/b.py")
    put(place, "src/b.py", b"staged and edited\n")
    put(place, "src/c.py", b"edited\n")
    put(place, "untracked", b"u\n")
    put(place, "intended", b"i\n")
    git(place, "add", "-N", "intended")

    def own() -> list[str]:
        entries = git(place, "ls-files", "-s", "--debug", "src", "run.sh", "intended")
        return [entries, git(place, "stash", "list"), git(place, "diff"), git(place, "diff", "--cached")]

    before = own()
    committed(place, {"a.txt": b"two\n", "n.txt": b"n\n"})
    assert own() == before
    status = git(place, "status", "--porcelain").splitlines()
    assert sorted(status) == [" A intended", " M src/c.py", "?? untracked", "MM src/b.py"]


def test_a_staged_path_that_landed_stays_staged(place: Path) -> None:
    """Where the user has staged something else for a landed path, the index keeps that, and it is told."""
    put(place, "a.txt", b"staged\n")
    git(place, "add", "a.txt")
    commit = committed(place, {"a.txt": b"landed\n", "src/b.py": b"landed\n"})
    assert commit.staged == ("a.txt",)
    assert commit.carried == ("a.txt",)
    assert git(place, "show", ":a.txt", "HEAD:a.txt", ":src/b.py") == "staged\nlanded\nlanded\n"


def test_the_next_commit_of_the_user_keeps_the_landing(place: Path) -> None:
    """A user who commits other staged work right afterwards does not revert what landed."""
    put(place, "src/c.py", b"mine\n")
    git(place, "add", "src/c.py")
    committed(place, {"a.txt": b"two\n", "new": b"n\n", "run.sh": None})
    git(place, "commit", "-qm", "mine")
    assert git(place, "show", "--name-only", "--format=", "HEAD") == "src/c.py\n"
    assert git(place, "show", "HEAD:a.txt") == "two\n"


def test_a_change_in_the_same_tick_is_still_seen(place: Path) -> None:
    """An edit that git can only see by the index's time stays visible: the copy of the index keeps its time."""
    git(place, "config", "core.trustctime", "false")
    time_ns = (place / "src/c.py").stat().st_mtime_ns - 100_000_000_000
    os.utime(place / "src/c.py", ns=(time_ns, time_ns))
    git(place, "update-index", "--refresh")
    time.sleep(1.1)  # git may count in seconds: the inode's own time shall differ, and is not trusted here
    (place / "src/c.py").write_bytes(b"c = 2\n")  # as long as before, and made to look as old
    for path in ("src/c.py", ".git/index"):
        os.utime(place / path, ns=(time_ns, time_ns))
    # Without locks git only looks; otherwise it would note what it saw, and there would be nothing to lose.
    assert git(place, "--no-optional-locks", "status", "--porcelain") == " M src/c.py\n"
    committed(place, {"a.txt": b"two\n"})
    assert git(place, "status", "--porcelain") == " M src/c.py\n"


def test_ignored_files_are_committed_if_they_landed(place: Path) -> None:
    """What landed is committed although a rule ignores it; what did not land is not."""
    put(place, ".git/info/exclude", b"*.o\n")
    put(place, "other.o", b"not landed\n")
    committed(place, {"a.o": b"landed\n"})
    assert "a.o" in git(place, "ls-files") and "other.o" not in git(place, "ls-files")


def test_work_that_was_not_committed_is_carried_and_told(place: Path) -> None:
    """A landing on top of edits that the user had not committed commits both, exactly as verified, and says so."""
    put(place, "a.txt", b"mine\n")
    commit = committed(place, {"a.txt": b"mine\nand the agent's\n", "src/b.py": b"b = 2\n"})
    assert commit.carried == ("a.txt",)
    assert git(place, "show", "HEAD:a.txt") == "mine\nand the agent's\n"


def test_what_git_cannot_hold_makes_no_commit(place: Path) -> None:
    """A landing of folders and owners, or of what is committed already, is no commit."""
    landing = landed(place, {"a.txt": b"two\n"})
    git(place, "commit", "-qam", "by hand")
    assert checkpoint(at(place), landing) is None
    (place / "empty").mkdir()
    assert checkpoint(at(place), landing._replace(changes=(Change("empty", None, None),))) is None
    assert leftovers(place) == []


def test_bytes_that_moved_on_come_from_where_they_are_kept(place: Path, tmp_path: Path) -> None:
    """When the user has edited a landed file since, the landed bytes are committed, and the edit stays an edit."""
    (tmp_path / "kept").write_bytes(b"landed\n")
    landing = landed(place, {"a.txt": b"landed\n"})
    put(place, "a.txt", b"landed\nand edited\n")
    with pytest.raises(Conflict):
        checkpoint(at(place), landing)
    assert commits(place) == 0 and leftovers(place) == []
    kept = landing._replace(kept=lambda _: os.open(tmp_path / "kept", os.O_RDONLY))
    assert checkpoint(at(place), kept)
    assert git(place, "show", "HEAD:a.txt") == "landed\n"
    assert git(place, "status", "--porcelain") == " M a.txt\n"


def test_kept_bytes_are_proven(place: Path, tmp_path: Path) -> None:
    """Kept bytes that are not those that landed are refused."""
    (tmp_path / "kept").write_bytes(b"forged\n")
    landing = landed(place, {"a.txt": b"landed\n"}, kept=lambda _: os.open(tmp_path / "kept", os.O_RDONLY))
    put(place, "a.txt", b"else\n")
    with pytest.raises(Conflict, match="not those that landed"):
        checkpoint(at(place), landing)


def test_newer_commits_of_the_user_are_never_reverted(place: Path, tmp_path: Path) -> None:
    """A path that the user changed and committed after the landing is left out, and told."""
    (tmp_path / "kept").write_bytes(b"landed\n")
    landing = landed(place, {"a.txt": b"landed\n", "src/b.py": b"b = 2\n", "src/c.py": None})
    put(place, "a.txt", b"newer\n")
    put(place, "src/c.py", b"newer\n")
    git(place, "commit", "-qm", "newer", "a.txt", "src/c.py")
    commit = checkpoint(at(place), landing._replace(kept=lambda _: os.open(tmp_path / "kept", os.O_RDONLY)))
    assert commit is not None and commit.overtaken == ("a.txt", "src/c.py")
    assert git(place, "show", "HEAD:a.txt", "HEAD:src/b.py", "HEAD:src/c.py") == "newer\nb = 2\nnewer\n"


def test_a_second_call_finds_the_first(place: Path) -> None:
    """The same execution is committed once, also when others have committed since, or rewritten the history."""
    landing = landed(place, {"a.txt": b"two\n"})
    first = checkpoint(at(place), landing)
    assert first is not None and not first.found
    put(place, "a.txt", b"three\n")
    git(place, "commit", "-qam", "on top")
    again = checkpoint(at(place), landing)
    assert again is not None and again.found and again.id == first.id and again.parent == first.parent
    git(place, "commit", "-q", "--amend", "-m", "reworded")
    assert find_checkpoint(at(place), "x-1", AT) == again
    assert find_checkpoint(at(place), "x-", AT) is None
    assert find_checkpoint(at(place), "x-1", AT + 10 * 86_400) is None
    assert commits(place) == 1


def test_an_execution_must_be_named(place: Path) -> None:
    """Without an execution a checkpoint could not be found again, and is refused."""
    landing = landed(place, {"a.txt": b"two\n"}, "")
    with pytest.raises(InvalidInput):
        checkpoint(at(place), landing)


def test_an_undo_is_a_checkpoint_of_its_own(place: Path) -> None:
    """The undo commits what it changed, says which commit it takes back, and keeps what came after."""
    first = committed(place, {"a.txt": b"two\n", "n.txt": b"n\n"})
    committed(place, {"src/b.py": b"b = 2\n"}, "x-2")
    undone = revert(at(place), first.id, landed(place, {"a.txt": b"one\n", "n.txt": None}, "x-3"))
    assert undone is not None and undone.title == "Undo Do it"
    assert git(place, "log", "-1", "--format=%(trailers:key=Holdfast-Undoes,valueonly)").strip() == first.id
    assert git(place, "diff", "--name-only", f"{first.id}^", "HEAD") == "src/b.py\n"
    assert git(place, "status", "--porcelain") == ""


def test_line_ends_are_turned_as_git_would(place: Path) -> None:
    """Where attributes or settings ask for it, what is committed is what git itself would commit: status is clean."""
    put(place, ".gitattributes", b"*.txt text\n*.raw -text\n*.enc working-tree-encoding=UTF-16LE\n*.id ident\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "attributes")
    crlf = b"x\r\ny\r\n"
    commit = committed(place, {"w.txt": crlf, "w.raw": crlf, "w.any": crlf, "w.enc": "ä\n".encode("utf-16-le"),
                               "w.id": b"$Id: 123 $\n"})  # fmt: skip
    assert commit.carried == ()
    assert git(place, "status", "--porcelain") == ""
    assert b"\r" not in _blob(place, "w.txt") and b"\r" in _blob(place, "w.raw") and b"\r" in _blob(place, "w.any")
    assert _blob(place, "w.enc") == "ä\n".encode() and _blob(place, "w.id") == b"$Id$\n"


@pytest.mark.parametrize("layer", ["--local", "--global"])
def test_autocrlf_is_obeyed(place: Path, layer: str) -> None:
    """With core.autocrlf, in the repository's or the user's settings, CR LF is committed as LF, and status is clean."""
    git(place, "config", layer, "core.autocrlf", "true")
    commit = committed(place, {"n.txt": b"x\r\ny\r\n", "a.txt": b"one\r\ntwo\r\n"})
    assert _blob(place, "n.txt") == b"x\ny\n"
    assert git(place, "status", "--porcelain") == ""
    assert commit.carried == ()
    assert committed(place, {"n.txt": b"z\r\n"}, "x-2").carried == ()


def _blob(place: Path, path: str) -> bytes:
    return subprocess.run(
        ["git", "-C", str(place), "cat-file", "blob", f"HEAD:{path}"], check=True, capture_output=True
    ).stdout


@pytest.mark.parametrize("attributes", [".gitattributes", ".git/info/attributes"])
def test_a_path_with_a_filter_is_refused_before_anything_changes(place: Path, attributes: str) -> None:
    """Filters are programs: a path that needs one (LFS, encryption) is refused, also before it lands."""
    put(place, attributes, b"*.bin filter=lfs\n")
    landing = landed(place, {"big.bin": b"x\n", "a.txt": b"two\n"})
    with pytest.raises(Blocked, match="filter lfs"):
        check_possible(at(place), landing.changes)
    before = git(place, "rev-parse", "HEAD") + git(place, "ls-files", "-s")
    with pytest.raises(Blocked, match="filter lfs"):
        checkpoint(at(place), landing)
    assert git(place, "rev-parse", "HEAD") + git(place, "ls-files", "-s") == before
    assert leftovers(place) == []


def test_modes_that_do_not_count_are_kept(place: Path) -> None:
    """Where the file system has no modes (core.fileMode=false), a mode in the history stays what it is."""
    git(place, "update-index", "--chmod=+x", "run.sh")
    git(place, "commit", "-qm", "executable")
    git(place, "config", "core.fileMode", "false")
    committed(place, {"run.sh": b"#!/bin/sh\ntrue\n"})
    assert git(place, "ls-tree", "HEAD", "run.sh").startswith("100755 ")


def test_many_files_land_in_one_commit(place: Path) -> None:
    """More files than are handed to git at once, in many folders."""
    edits: dict[str, Thing] = {f"d{number % 7}/e{number % 3}/f{number}": b"%d\n" % number for number in range(230)}
    commit = committed(place, edits)
    assert len(git(place, "show", "--name-only", "--format=", commit.id).split()) == 230
    assert git(place, "status", "--porcelain") == ""
