"""Where a repository is, whose it is, and when no checkpoint may be made: each reason before anything changes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpointed import Link, Thing, at, commits, committed, git, landed, leftovers, put, repository, users_home
from holdfast.disk.calls import Calls
from holdfast.errors import Blocked, Conflict, HoldfastError, Locked
from holdfast.workspace.checkpoint import check_possible, checkpoint
from holdfast.workspace.checkpoints import parts_of
from holdfast.workspace.repository import Repository

EDIT: dict[str, Thing] = {"a.txt": b"two\n", "n.txt": b"n\n"}


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users_home(tmp_path, monkeypatch)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return repository(tmp_path / "work")


def test_no_repository_is_none(tmp_path: Path) -> None:
    """Outside a repository there is none."""
    (tmp_path / "plain").mkdir()
    assert Repository.at(str(tmp_path / "plain")) is None


def test_a_part_of_a_bigger_repository(place: Path) -> None:
    """A workspace below the top of a repository commits its paths where they belong."""
    commit = committed(place / "src", {"b.py": b"b = 2\n", "n.py": b"n\n"})
    assert git(place, "show", "--name-only", "--format=", commit.id).split() == ["src/b.py", "src/n.py"]
    assert git(place, "status", "--porcelain") == ""


def test_a_place_that_a_bigger_repository_ignores_is_in_none(place: Path) -> None:
    """A workspace that the repository around it ignores is not committed into that."""
    put(place, ".gitignore", b"/scratch/\n")
    (place / "scratch").mkdir()
    assert Repository.at(str(place / "scratch")) is None
    assert Repository.at(str(place / "src")) is not None


def test_a_linked_work_tree(place: Path, tmp_path: Path) -> None:
    """In a linked work tree its own branch moves; the main one stays."""
    git(place, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    before = git(place, "rev-parse", "main")
    commit = committed(tmp_path / "side", EDIT)
    assert commit.ref == "refs/heads/side"
    assert git(tmp_path / "side", "status", "--porcelain") == ""
    assert git(place, "rev-parse", "main") == before
    assert leftovers(place) == []


def test_a_submodule_is_a_repository_of_its_own(place: Path, tmp_path: Path) -> None:
    """Paths inside a submodule belong to it: given to the outer repository they are refused."""
    repository(tmp_path / "library")
    git(place, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(tmp_path / "library"), "lib")
    git(place, "commit", "-qm", "library")
    landing = landed(place, {"lib/a.txt": b"two\n", "a.txt": b"two\n"})
    with pytest.raises(Blocked, match="submodule"):
        checkpoint(at(place), landing)
    parts = parts_of(str(place), landing.changes)
    assert [(Path(part.repository.top).name, [change.path for change in part.changes]) for part in parts] == [
        ("work", ["a.txt"]),
        ("lib", ["a.txt"]),
    ]
    for part in parts:
        checkpoint(part.repository, landing._replace(changes=part.changes))
    assert git(place / "lib", "status", "--porcelain") == ""
    assert git(place, "status", "--porcelain").strip() == "M lib"


def test_names_of_64_digits(tmp_path: Path) -> None:
    """A repository with SHA-256 names works like any other."""
    place = repository(tmp_path / "long", {"a.txt": b"one\n", "src/b": b"b\n"}, "--object-format=sha256")
    commit = committed(place, {**EDIT, "src/b": None})
    assert len(commit.id) == 64 and git(place, "status", "--porcelain") == ""


def test_the_first_commit_of_a_repository(tmp_path: Path) -> None:
    """On a branch without a commit the checkpoint is the first one, and holds the landed paths only."""
    place = tmp_path / "new"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    put(place, "mine", b"untracked\n")
    commit = committed(place, {"a.txt": b"one\n"})
    assert commit.parent == "" and commit.ref == "refs/heads/main"
    assert git(place, "status", "--porcelain") == "?? mine\n"


def test_a_detached_head_moves_alone(place: Path) -> None:
    """Without a branch the checkpoint moves HEAD, and no branch."""
    before = git(place, "rev-parse", "main")
    git(place, "checkout", "-q", "--detach")
    commit = committed(place, EDIT)
    assert commit.ref == "HEAD" and git(place, "rev-parse", "HEAD").strip() == commit.id
    assert git(place, "rev-parse", "main") == before


def test_packed_references_and_objects(place: Path) -> None:
    """A repository that was packed works like any other."""
    git(place, "gc", "-q")
    git(place, "pack-refs", "--all")
    committed(place, EDIT)
    assert git(place, "status", "--porcelain") == ""


def test_a_shallow_clone(place: Path, tmp_path: Path) -> None:
    """A clone without its history works like any other."""
    committed(place, {"a.txt": b"more\n"}, "x-0")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{place}", "shallow")
    committed(tmp_path / "shallow", EDIT)
    assert commits(tmp_path / "shallow") == 1
    assert git(tmp_path / "shallow", "status", "--porcelain") == ""


@pytest.mark.parametrize("version", ["2", "3", "4"])
def test_index_versions(place: Path, version: str) -> None:
    """The index may be of any version, and keeps it."""
    git(place, "update-index", "--index-version", version)
    committed(place, EDIT)
    assert git(place, "status", "--porcelain") == ""


def test_an_index_in_two_files(place: Path) -> None:
    """An index that git keeps in two files is written in one, with the same entries."""
    git(place, "update-index", "--split-index")
    assert list((place / ".git").glob("sharedindex.*"))
    put(place, "src/b.py", b"staged\n")
    git(place, "add", "src/b.py")
    committed(place, EDIT)
    assert git(place, "status", "--porcelain") == "M  src/b.py\n"


def test_a_sparse_work_tree(place: Path) -> None:
    """Paths that are not checked out stay in the commit, and stay not checked out."""
    git(place, "sparse-checkout", "set", "--sparse-index", "other")
    assert not (place / "src").exists()
    committed(place, EDIT)
    assert git(place, "ls-tree", "--name-only", "HEAD").split() == ["a.txt", "n.txt", "run.sh", "src"]
    assert git(place, "status", "--porcelain") == ""


# ── refusals ──


def _merge(place: Path) -> None:
    git(place, "checkout", "-qb", "other")
    put(place, "a.txt", b"other\n")
    git(place, "commit", "-qam", "other")
    git(place, "checkout", "-q", "main")
    git(place, "merge", "-q", "--no-commit", "--no-ff", "other")


def _pointing(name: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        path = place / ".git" / name
        target = place.parent / f"elsewhere-{path.name}"
        if path.exists():
            path.rename(target)
        path.parent.mkdir(exist_ok=True, parents=True)
        path.symlink_to(target)

    return change


def _config(*words: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        git(place, "config", *words)

    return change


def _file(name: str, text: bytes = b"") -> Callable[[Path], None]:
    def change(place: Path) -> None:
        put(place, f".git/{name}", text)

    return change


def _elsewhere(place: Path) -> None:
    (place / ".git").rename(place.parent / "separate")
    put(place, ".git", f"gitdir: {place.parent / 'separate'}\n".encode())


def _stolen(place: Path) -> None:
    other = repository(place.parent / "victim")
    git(other, "worktree", "add", "-q", str(place.parent / "linked"))
    (place / ".git").rename(place.parent / "away")
    put(place, ".git", f"gitdir: {other}/.git/worktrees/linked\n".encode())


def _within(place: Path) -> None:
    (place / ".git").rename(place / "data")
    put(place, ".git", b"gitdir: data\n")
    git(place, "config", "core.worktree", str(place))


def _lent(place: Path) -> None:
    """A linked work tree of a repository that never heard of it: everything that says so came with the tree."""
    other = repository(place.parent / "victim")
    (place / ".git").rename(place.parent / "away")
    own = place.parent / "brought"
    put(own, "HEAD", b"ref: refs/heads/main\n")
    put(own, "commondir", f"{other}/.git\n".encode())
    put(own, "gitdir", f"{place}/.git\n".encode())
    put(place, ".git", f"gitdir: {own}\n".encode())


def _folder_of_objects(place: Path) -> None:
    (place.parent / "outside").mkdir()
    for number in range(256):
        path = place / f".git/objects/{number:02x}"
        if not path.exists():
            path.symlink_to(place.parent / "outside")


def _fifo(name: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        (place / ".git" / name).unlink(missing_ok=True)
        os.mkfifo(place / ".git" / name)

    return change


def _second_name(place: Path) -> None:
    """As `tar` makes one when it is told to, of a file that stands where it unpacks."""
    put(place.parent, "profile", b"# mine\n")
    (place / ".git/logs/refs/heads/main").unlink()
    os.link(place.parent / "profile", place / ".git/logs/refs/heads/main")


def _to_and_fro(place: Path) -> None:
    put(place, ".git/HEAD", b"ref: refs/heads/a\n")
    put(place, ".git/refs/heads/a", b"ref: refs/heads/b\n")
    (place / ".git/refs/heads/b").symlink_to("/dev/zero")


def _no_branch(place: Path) -> None:
    """By way of a branch, a reference of another work tree, whose log leads out."""
    put(place.parent, "profile", b"# mine\n")
    other = place / ".git/worktrees/x"
    put(other, "refs/worktree/y", git(place, "rev-parse", "HEAD").encode())
    put(other, "logs/refs/worktree/y", Link(str(place.parent / "profile")))
    put(place, ".git/refs/heads/main", b"ref: worktrees/x/refs/worktree/y\n")


REFUSED: dict[str, tuple[Callable[[Path], None], type[HoldfastError], str]] = {
    "merge": (_merge, Blocked, "a merge is in progress"),
    "rebase": (lambda place: (place / ".git/rebase-merge").mkdir(), Blocked, "a rebase is in progress"),
    "am": (lambda place: (place / ".git/rebase-apply").mkdir(), Blocked, "in progress"),
    "cherry-pick": (_file("CHERRY_PICK_HEAD"), Blocked, "a cherry-pick is in progress"),
    "revert": (_file("REVERT_HEAD"), Blocked, "a revert is in progress"),
    "bisect": (_file("BISECT_LOG"), Blocked, "a bisection is in progress"),
    "index lock": (_file("index.lock"), Locked, "index.lock exists"),
    "branch lock": (_file("refs/heads/main.lock"), Locked, "main.lock exists"),
    "HEAD lock": (_file("HEAD.lock"), Locked, "HEAD.lock exists"),
    "bare": (_config("core.bare", "true"), Blocked, "is bare"),
    "work tree elsewhere": (_config("core.worktree", "/tmp"), Blocked, "has its work tree elsewhere"),
    "hooks by configuration": (_config("hook.x.command", "false"), Blocked, "hooks that cannot be switched off"),
    "unknown hash": (_config("extensions.objectFormat", "md5"), Blocked, "md5"),
    "configuration broken": (_file("config", b"[core\n"), Blocked, "git config failed"),
    "unknown extension": (_config("extensions.holdfastTest", "1"), Blocked, "extension"),
    "a git directory that does not know us": (_elsewhere, Blocked, "does not know this work tree"),
    "a work tree of somebody else": (_stolen, Blocked, "does not know it"),
    "borrowed branches": (_file("commondir", b"/tmp\n"), Blocked, "borrows"),
    "index behind a link": (_pointing("index"), Blocked, "symbolic link"),
    "log behind a link": (_pointing("logs/HEAD"), Blocked, "symbolic link"),
    "branch log behind a link": (_pointing("logs/refs/heads/main"), Blocked, "symbolic link"),
    "objects behind a link": (_pointing("objects"), Blocked, "symbolic link"),
    "branches behind a link": (_pointing("refs/heads"), Blocked, "link"),
    "a folder of objects behind a link": (_folder_of_objects, Blocked, "symbolic link"),
    "packs behind a link": (_pointing("objects/pack"), Blocked, "symbolic link"),
    "alternates behind a link": (_pointing("objects/info/alternates"), Blocked, "symbolic link"),
    "HEAD behind a link": (_pointing("HEAD"), Blocked, "symbolic link"),
    "HEAD never ends": (_fifo("HEAD"), Blocked, "neither a file nor a directory"),
    "a reference behind a link": (_to_and_fro, Blocked, "symbolic link"),
    "the index never ends": (_fifo("index"), Blocked, "neither a file nor a directory"),
    "grafts behind a link": (_pointing("info/grafts"), Blocked, "symbolic link"),
    "attributes behind a link": (_pointing("info/attributes"), Blocked, "symbolic link"),
    "shallow behind a link": (_pointing("shallow"), Blocked, "symbolic link"),
    "half an index behind a link": (_pointing("sharedindex.0"), Blocked, "symbolic link"),
    "tables behind a link": (_pointing("reftable"), Blocked, "symbolic link"),
    "a reference that is no branch": (_no_branch, Blocked, "is no branch"),
    "a log with a second name": (_second_name, Blocked, "second name"),
    "references elsewhere": (_config("extensions.refStorage", "files:///tmp"), Blocked, "files:///tmp"),
    "attributes of its own": (_config("core.attributesFile", "/dev/zero"), Blocked, "not looked into: /dev/zero"),
    "a git directory among the files": (_within, Blocked, "like any other"),
    "a common place that does not know us": (_lent, Blocked, "has no such work tree"),
    "our directory is a link": (_pointing("holdfast"), Blocked, "not a directory of ours"),
    "our directory holds a stranger's": (
        lambda place: (place / ".git/holdfast/deep/er").mkdir(parents=True),
        Blocked,
        "cannot be taken away",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_reason(place: Path, name: str) -> None:
    """What stands in the way is said, by the check before a landing and by the checkpoint; nothing has changed."""
    change, error, reason = REFUSED[name]
    if name == "unknown extension":
        git(place, "config", "core.repositoryFormatVersion", "1")
    change(place)
    landing = landed(place, {"src/b.py": b"landed\n"})
    before = _photograph(place.parent)
    acts: list[Callable[[], object]] = [
        lambda: check_possible(at(place, wait=0.1), landing.changes),
        lambda: checkpoint(at(place, wait=0.1), landing),
    ]
    for act in acts:
        with pytest.raises(error, match=reason) as caught:
            act()
        assert not caught.value.changed
        assert _photograph(place.parent) == before


def _photograph(place: Path) -> dict[str, bytes]:
    paths = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path): path.read_bytes() for path in paths if "/objects/" not in str(path)}


@pytest.mark.parametrize("name", ["HEAD", "shallow", "info/grafts", "objects/info/alternates", "refs/heads/main"])
def test_git_is_not_started_over_a_file_without_end(place: Path, name: str) -> None:
    """What git would read until the memory is full is found before git is started for the first time."""
    started: list[str] = []
    calls = Calls()
    setattr(calls, "point", started.append)  # noqa: B010
    assert Repository.at(str(place), calls) is not None and started
    started.clear()
    (place / ".git" / name).unlink(missing_ok=True)
    (place / ".git" / name).symlink_to("/dev/zero")
    with pytest.raises(Blocked, match="symbolic link"):
        Repository.at(str(place), calls)
    assert started == []


def test_attributes_of_the_user_that_never_end_are_refused(place: Path) -> None:
    """A setting of the user that names no regular file is told, and not shown to git; /dev/null means none."""
    git(place, "config", "--global", "core.attributesFile", "/dev/zero")
    with pytest.raises(Blocked, match="/dev/zero is no file of attributes"):
        Repository.at(str(place))
    git(place, "config", "--global", "core.attributesFile", "/dev/null")
    assert committed(place, EDIT).parent


def test_attributes_of_the_user_still_count(place: Path, tmp_path: Path) -> None:
    """A filter that the user's own attributes name is refused, wherever the file is, as before."""
    put(tmp_path, "home/mine", b"*.txt filter=secret\n")
    git(place, "config", "--global", "core.attributesFile", "~/mine")
    with pytest.raises(Blocked, match="filter"):
        checkpoint(at(place), landed(place, {"a.txt": b"two\n"}))


def test_a_folder_that_became_a_link_leads_to_no_repository(place: Path, tmp_path: Path) -> None:
    """What landed in a nested repository is not committed into the one that a link leads to by now."""
    repository(place / "inner")
    landing = landed(place, {"inner/a.txt": b"two\n"})
    victim = repository(tmp_path / "victim", {"a.txt": b"one\n"})
    (place / "inner").rename(tmp_path / "moved")
    (place / "inner").symlink_to(victim)
    with pytest.raises(Conflict, match="not the folder any more"):
        parts_of(str(place), landing.changes)


def test_a_bare_repository_is_refused(tmp_path: Path) -> None:
    """A bare repository as a workspace has no work tree."""
    git(tmp_path, "init", "-q", "--bare", "bare")
    with pytest.raises(Blocked, match="bare"):
        Repository.at(str(tmp_path / "bare"))


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_repository_of_another_user(place: Path) -> None:
    """Belonging to somebody else it is refused; its own word does not help, the user's does."""
    os.chown(place / ".git", 12345, 12345)
    put(place, ".git/config", (place / ".git/config").read_bytes() + b"[safe]\n\tdirectory = *\n")
    with pytest.raises(Blocked, match="another user"):
        Repository.at(str(place))
    git(place.parent, "config", "--global", "safe.directory", str(place))
    assert Repository.at(str(place)) is not None


def test_a_separate_git_directory_that_knows_us(place: Path) -> None:
    """A `.git` file is followed where that place names this work tree."""
    _elsewhere(place)
    git(place, "config", "core.worktree", str(place))
    committed(place, EDIT)
    assert git(place, "status", "--porcelain") == ""
