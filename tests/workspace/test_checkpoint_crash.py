"""A checkpoint killed at any point, and called again, is made once; over several repositories in all or in none."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from checkpointed import Thing, at, commits, git, landed, leftovers, put, repository, users_home
from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import Blocked, Conflict, InvalidInput, Locked
from holdfast.testing import CHANGES, At, Fault, FaultyCalls, Kill, KillAt
from holdfast.workspace.checkpoint import Landing, checkpoint
from holdfast.workspace.checkpoints import Part, checkpoint_all, parts_of

pytestmark = pytest.mark.long

EDITS: dict[str, Thing] = {"a.txt": b"two\n", "n/n.txt": b"n\n", "src/c.py": None, "w.txt": b"x\r\n"}


class Passing(Calls):
    """Notes every named point, in order."""

    def __init__(self) -> None:
        self.passed: list[tuple[str, int]] = []
        setattr(self, "point", self._note)  # noqa: B010

    def _note(self, name: str) -> None:
        self.passed.append((name, 1 + sum(name == before for before, _ in self.passed)))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users_home(tmp_path, monkeypatch)


def _ground(place: Path) -> Landing:
    """A repository in which the user has staged and unstaged work, and something has landed."""
    repository(place)
    put(place, ".gitattributes", b"*.txt text\n")
    git(place, "add", ".gitattributes")
    git(place, "commit", "-qm", "attributes")
    put(place, "src/b.py", b"staged\n")
    git(place, "add", "src/b.py")
    put(place, "run.sh", b"edited\n")
    return landed(place, EDITS)


def _begun(act: Callable[[], object]) -> int:
    """Do it in a child."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        finally:
            os._exit(0)
    return pid


def _killed(place: Path, landing: Landing, fault: Fault, counted: Iterable[str] = CHANGES) -> bool:
    """A checkpoint in a child; whether that was ended by SIGKILL."""
    pid = _begun(lambda: checkpoint(at(place, FaultyCalls(fault, counted=counted)), landing))
    return os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def _all_killed(workspace: Path, landing: Landing, *faults: Fault) -> bool:
    pid = _begun(lambda: _all(landing, workspace, FaultyCalls(*faults)))
    return os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def _check_made_once(place: Path) -> None:
    assert commits(place) == 1
    assert git(place, "status", "--porcelain").splitlines() == [" M run.sh", "M  src/b.py"]
    assert git(place, "diff", "--name-only", "HEAD~1", "HEAD").split() == ["a.txt", "n/n.txt", "src/c.py", "w.txt"]
    assert git(place, "fsck", "--strict", "--no-dangling") == ""
    assert leftovers(place) == []


@pytest.mark.crash
@pytest.mark.long
def test_killed_at_every_git_command(tmp_path: Path) -> None:
    """SIGKILL before each git command and at each named point: the same call again gives exactly one commit."""
    landing = _ground(tmp_path / "template")
    calls = Passing()
    checkpoint(at(_copy(tmp_path, "counted"), calls), landing)
    assert len(calls.passed) > 15 and ("git.update-ref", 1) in calls.passed
    for number, (point, nth) in enumerate(calls.passed):
        place = _copy(tmp_path, f"killed-{number}")
        assert _killed(place, landing, KillAt(point, nth)), (point, nth)
        checkpoint(at(place), landing)
        _check_made_once(place)
        shutil.rmtree(place)


@pytest.mark.crash_full
def test_killed_at_every_change_of_the_disk(tmp_path: Path) -> None:
    """The same before every system call of ours that may change the disk."""
    landing = _ground(tmp_path / "template")
    counted = CHANGES - {"open"}
    counting = FaultyCalls(counted=counted)
    checkpoint(at(_copy(tmp_path, "counted"), counting), landing)
    for number in range(1, counting.count + 1):
        place = _copy(tmp_path, f"killed-{number}")
        assert _killed(place, landing, Kill(number), counted), counting.trace[number - 1]
        checkpoint(at(place), landing)
        _check_made_once(place)
        shutil.rmtree(place)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.parametrize("seed", [5, 6, 7])
def test_killed_in_the_middle_of_git_commands(tmp_path: Path, seed: int) -> None:
    """Killed at random times, again and again, until it is through: one commit, no lock left behind."""
    chance = random.Random(seed)
    place = tmp_path / "work"
    landing = _ground(place)
    for _ in range(6):
        pid = _begun(lambda: checkpoint(at(place), landing))
        time.sleep(chance.uniform(0.02, 0.3))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    checkpoint(at(place), landing)
    _check_made_once(place)


def _copy(tmp_path: Path, name: str) -> Path:
    shutil.copytree(tmp_path / "template", tmp_path / name, symlinks=True)
    return tmp_path / name


def test_the_users_git_waits_while_the_branch_moves(tmp_path: Path) -> None:
    """Between the commit and its index the user cannot commit, and so cannot revert the landing by accident."""
    landing = _ground(tmp_path / "work")
    tried: list[str] = []

    def commit() -> None:
        with pytest.raises(Exception) as caught:
            git(tmp_path / "work", "commit", "-qm", "mine")
        tried.append(str(caught.value))

    checkpoint(at(tmp_path / "work", FaultyCalls(At("ref.moved", commit))), landing)
    assert len(tried) == 1
    _check_made_once(tmp_path / "work")


def test_a_branch_that_moved_meanwhile_is_a_conflict(tmp_path: Path) -> None:
    """Somebody who moves the branch in between wins; nothing is committed, and the next call builds on theirs."""
    place = tmp_path / "work"
    landing = _ground(place)

    def moved() -> None:
        tree = git(place, "rev-parse", "HEAD^{tree}").strip()
        git(place, "update-ref", "refs/heads/main", git(place, "commit-tree", "-p", "HEAD", "-m", "x", tree).strip())

    with pytest.raises(Conflict) as caught:
        checkpoint(at(place, FaultyCalls(At("move.announced", moved))), landing)
    assert not caught.value.changed and commits(place) == 0 and leftovers(place) == []
    checkpoint(at(place), landing)
    _check_made_once(place)


def test_a_lock_of_somebody_else_is_never_removed(tmp_path: Path) -> None:
    """A lock that stands there after our crash, and is not ours, stays; only our own is taken away."""
    place = tmp_path / "work"
    landing = _ground(place)
    assert _killed(place, landing, KillAt("index.held"))
    assert (place / ".git/index.lock").exists()
    (place / ".git/index.lock").unlink()
    put(place, ".git/index.lock", b"theirs")
    with pytest.raises(Locked):
        checkpoint(at(place, wait=0.1), landing)
    assert (place / ".git/index.lock").read_bytes() == b"theirs"
    (place / ".git/index.lock").unlink()
    checkpoint(at(place), landing)
    _check_made_once(place)


def test_two_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """While one Holdfast is at work in a repository, another waits, and then says so."""
    place = tmp_path / "work"
    landing = _ground(place)

    def second() -> None:
        with pytest.raises(Locked, match="another holdfast"):
            checkpoint(at(place, wait=0.1), landing)

    checkpoint(at(place, FaultyCalls(At("index.held", second))), landing)
    _check_made_once(place)


# ── several repositories ──


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path, Landing]:
    workspace = tmp_path / "space"
    repository(workspace / "one")
    repository(workspace / "two")
    return workspace / "one", workspace / "two", _landed_in(workspace)


def _landed_in(workspace: Path) -> Landing:
    return landed(workspace, {"one/a.txt": b"two\n", "two/a.txt": b"two\n", "two/n.txt": b"n\n", "loose": b"x\n"})


def _all(landing: Landing, workspace: Path, calls: Calls = CALLS) -> tuple[object, ...]:
    return checkpoint_all(parts_of(str(workspace), landing.changes, calls), landing)


def _state(place: Path) -> list[str]:
    words = (("rev-parse", "HEAD"), ("ls-files", "-s"), ("status", "--porcelain"))
    return [git(place, *each) for each in words]


def test_one_change_over_several_repositories(pair: tuple[Path, Path, Landing]) -> None:
    """Each repository gets its part in a commit with the same words; what is in none is left out."""
    one, two, landing = pair
    assert len(_all(landing, one.parent)) == 2
    for place in (one, two):
        assert commits(place) == 1 and git(place, "status", "--porcelain") == "" and leftovers(place) == []
    assert git(two, "show", "--name-only", "--format=", "HEAD").split() == ["a.txt", "n.txt"]


@pytest.mark.parametrize("crashed", [False, True], ids=["in one call", "after a crash"])
def test_when_the_second_cannot_the_first_goes_back(pair: tuple[Path, Path, Landing], crashed: bool) -> None:
    """A merge in the second repository: no commit in either, the first as before, also one made before a crash."""
    one, two, landing = pair
    before = [_state(one), _state(two)]
    if crashed:
        assert checkpoint(at(one), landing._replace(changes=parts_of(str(one.parent), landing.changes)[0].changes))
    put(two, ".git/MERGE_HEAD", b"")
    with pytest.raises(Blocked, match="nothing was committed in any") as caught:
        _all(landing, one.parent)
    assert not caught.value.changed
    (two / ".git/MERGE_HEAD").unlink()
    assert [_state(one), _state(two)] == before
    assert leftovers(one) == leftovers(two) == []
    _all(landing, one.parent)
    assert commits(one) == commits(two) == 1


def _stolen(place: Path) -> Callable[[], None]:
    def move() -> None:
        tree = git(place, "rev-parse", "HEAD^{tree}").strip()
        git(place, "update-ref", "refs/heads/main", git(place, "commit-tree", "-p", "HEAD", "-m", "x", tree).strip())

    return move


def test_a_second_branch_that_moved_takes_the_first_back(pair: tuple[Path, Path, Landing]) -> None:
    """The compare-and-swap of the second fails after the first has moved: the first goes back."""
    one, two, landing = pair
    before = _state(one)
    with pytest.raises(Conflict, match="nothing was committed in any"):
        _all(landing, one.parent, FaultyCalls(At("move.announced", _stolen(two), 2)))
    assert _state(one) == before and commits(two) == 0
    assert leftovers(one) == leftovers(two) == []


def test_a_first_that_somebody_built_upon_stays_and_is_told(pair: tuple[Path, Path, Landing]) -> None:
    """Where the first cannot go back, since a commit stands on it, that is said, and what is left is named."""
    one, two, landing = pair

    def both() -> None:
        _stolen(two)()
        _stolen(one)()

    with pytest.raises(Conflict, match=r"stays in .*/one") as caught:
        _all(landing, one.parent, FaultyCalls(At("move.announced", both, 2)))
    assert caught.value.changed
    assert commits(one) == 1 and commits(two) == 0


MOMENTS = ("index.held", "git.update-index", "move.announced", "ref.moved", "index.installed")


@pytest.mark.parametrize(
    "moments",
    [
        pytest.param(MOMENTS, marks=[pytest.mark.crash, pytest.mark.long]),
        pytest.param((), marks=pytest.mark.crash_full, id="every"),
    ],
)
def test_several_killed_at_points(tmp_path: Path, moments: tuple[str, ...]) -> None:
    """Killed at a named point, the same call finishes in both repositories, once in each."""
    for name in ("one", "two"):
        repository(tmp_path / "template" / name)
    landing = _landed_in(tmp_path / "template")
    calls = Passing()
    _all(landing, _copy(tmp_path, "counted"), calls)
    points = [each for each in calls.passed if each[0] in moments or not moments]
    assert len(points) >= 10
    for number, (point, nth) in enumerate(points):
        workspace = _copy(tmp_path, f"killed-{number}")
        assert _all_killed(workspace, landing, KillAt(point, nth)), (point, nth)
        _check_both(landing, workspace)
        shutil.rmtree(workspace)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.parametrize("point", ["move.announced", "git.update-ref"])
def test_killed_while_the_first_goes_back(pair: tuple[Path, Path, Landing], point: str) -> None:
    """A crash while the first is being taken back ends in a state from which the same call goes on."""
    one, two, landing = pair
    before = _state(one)
    faults = (At("move.announced", _stolen(two), 2), KillAt(point, 3))
    assert _all_killed(one.parent, landing, *faults)
    put(two, ".git/MERGE_HEAD", b"")
    with pytest.raises(Blocked):
        _all(landing, one.parent)
    assert _state(one) == before
    (two / ".git/MERGE_HEAD").unlink()
    _check_both(landing, one.parent)


def _check_both(landing: Landing, workspace: Path) -> None:
    _all(landing, workspace)
    for place in (workspace / "one", workspace / "two"):
        assert commits(place) == 1 and git(place, "status", "--porcelain") == "" and leftovers(place) == []


def test_a_repository_stands_once_among_the_parts(pair: tuple[Path, Path, Landing]) -> None:
    """Two parts of one repository would be two commits: refused."""
    one, _, landing = pair
    with pytest.raises(InvalidInput):
        checkpoint_all([Part(at(one), ()), Part(at(one), ())], landing)
