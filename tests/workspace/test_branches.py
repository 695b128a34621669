"""The work tree of a branch: made in full or finished by the next call, and the person's own is never touched."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointed import at, git, put, repository, users_home
from holdfast.disk.calls import Calls
from holdfast.errors import Blocked, InvalidInput
from holdfast.testing import CHANGES, FaultyCalls, Kill, KillAt
from holdfast.workspace.branches import checked_name, find_branch, folder_of, keep_branch, uncommitted


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users_home(tmp_path, monkeypatch)


class Counting(Calls):
    """Notes every named point that is passed."""

    def __init__(self) -> None:
        self.passed: list[str] = []
        setattr(self, "point", self.passed.append)  # noqa: B010


def _ground(place: Path) -> tuple[str, str]:
    """A person with staged, edited and new files; their index as bytes, and what git says of it."""
    repository(place)
    put(place, "a.txt", b"edited\n")
    put(place, "new.txt", b"new\n")
    put(place, "src/b.py", b"staged\n")
    git(place, "add", "src/b.py")
    return (place / ".git/index").read_bytes().hex(), git(place, "status", "--porcelain")


def _killed(act: Callable[[], object]) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _check_whole(place: Path, state: str, before: tuple[str, str]) -> None:
    branch = keep_branch(at(place), state, "night")
    assert find_branch(at(place), state, "night") == branch._replace(begun=False)
    tree = Path(branch.tree)
    assert git(tree, "status", "--porcelain") == ""
    assert (tree / "a.txt").read_bytes() == b"one\n"
    assert git(tree, "rev-parse", "HEAD") == git(place, "rev-parse", "HEAD")
    assert ((place / ".git/index").read_bytes().hex(), git(place, "status", "--porcelain")) == before
    assert git(place, "worktree", "list").count("\n") == 2
    git(place, "fsck", "--strict")


@pytest.mark.long
def test_killed_at_any_point_it_is_finished_by_the_next_call(tmp_path: Path) -> None:
    """At each named point, and at some of the calls that write: the next call has the whole work tree, once."""
    counting = Counting()
    probe = tmp_path / "probe"
    _ground(probe)
    keep_branch(at(probe, counting), str(tmp_path / "probe-state"), "night")
    points = list(dict.fromkeys(counting.passed))
    assert {"git.worktree", "git.read-tree", "git.checkout-index", "index.held", "index.installed"} <= set(points)
    hits = 0
    for number, fault in enumerate([*(KillAt(point) for point in points), *(Kill(n) for n in range(1, 40, 6))]):
        place, state = tmp_path / f"w{number}", str(tmp_path / f"s{number}")
        before = _ground(place)

        def act(place: Path = place, state: str = state, fault: Kill | KillAt = fault) -> object:
            return keep_branch(at(place, FaultyCalls(fault, counted=CHANGES)), state, "night")

        hits += _killed(act)
        _check_whole(place, state, before)
    assert hits >= len(points)


def test_half_a_work_tree_that_git_knows_is_made_anew(tmp_path: Path) -> None:
    """As a power cut leaves it: git's side is there and says that it is being made, the files are not."""
    place, state = tmp_path / "w", tmp_path / "s"
    before = _ground(place)
    keep_branch(at(place), str(state), "night")
    (state / "branches" / folder_of("night") / ".git").unlink()
    (place / ".git/worktrees" / folder_of("night") / "locked").write_text("initializing")
    _check_whole(place, str(state), before)


def test_one_with_a_history_is_never_made_anew(tmp_path: Path) -> None:
    """Where its .git is gone and a state stands there, nothing is taken away."""
    place, state = tmp_path / "w", tmp_path / "s"
    _ground(place)
    tree = Path(keep_branch(at(place), str(state), "night").tree)
    (tree / ".holdfast").mkdir()
    (tree / ".git").unlink()
    with pytest.raises(Blocked, match=r"has lost its \.git"):
        keep_branch(at(place), str(state), "night")
    assert (tree / "a.txt").exists()


def test_something_else_checked_out_there_is_refused(tmp_path: Path) -> None:
    """What lands would be committed to another branch."""
    place, state = tmp_path / "w", tmp_path / "s"
    _ground(place)
    tree = Path(keep_branch(at(place), str(state), "night").tree)
    git(tree, "checkout", "-q", "--detach")
    with pytest.raises(Blocked, match="something else is checked out"):
        keep_branch(at(place), str(state), "night")


def test_what_is_not_committed_is_found_without_a_trace(tmp_path: Path) -> None:
    """Edited, staged and new paths; ignored ones are not, and the index stays as it is, byte for byte."""
    place = tmp_path / "w"
    index, _ = _ground(place)
    put(place, "junk.o", b"")
    put(place, ".git/info/exclude", b"*.o\n")
    assert uncommitted(at(place)) == ("a.txt", "new.txt", "src/b.py")
    assert (place / ".git/index").read_bytes().hex() == index
    assert not (place / ".git/holdfast").exists()


@pytest.mark.parametrize(
    "name",
    ["", "-x", "a..b", "a b", "a/", "/a", ".a", "a.lock", "@{-1}", "@", "HEAD", "a:b", "a\\b", "x\n", "x" * 201],
)
def test_what_is_no_name_of_a_branch_is_refused(name: str) -> None:
    """Options, expressions, paths of ours, and whatever git takes for none."""
    with pytest.raises(InvalidInput, match="cannot be the name of a branch"):
        checked_name(name)


def test_names_that_would_share_a_folder_have_their_own() -> None:
    """Slashes and case tell branches apart, and so do their folders."""
    names = ("a/b", "a-b", "A-b", "a.b", "ä", "ö", "x" * 150, "x" * 151)
    assert len({folder_of(name).lower() for name in names}) == len(names)
    assert all(len(folder_of(name)) < 60 for name in names)
