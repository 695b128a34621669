"""A hostile repository's configuration starts no program: each case leaves a canary where a program of it ran."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from checkpointed import AT, at, commits, git, landed, leftovers, put, repository, users_home
from holdfast.errors import Blocked, Conflict
from holdfast.workspace.checkpoint import check_possible, checkpoint, find_checkpoint, revert


class Attack(NamedTuple):
    """Settings with {canary} for a program; what a user does to set it off: the proof that it is armed."""

    settings: tuple[tuple[str, str], ...]
    set_off: tuple[str, ...]
    prepare: Callable[[Path], None] = lambda place: None


def _edited(place: Path) -> None:
    put(place, "src/c.py", b"edited\n")


def _hooks(place: Path) -> None:
    _edited(place)
    program = (place.parent / "canary-program").read_bytes()
    for name in ("pre-commit", "post-commit", "reference-transaction", "post-index-change", "commit-msg", "update"):
        put(place, f".git/hooks/{name}", program)
        (place / ".git/hooks" / name).chmod(0o755)


def _hook_folder(place: Path) -> None:
    _hooks(place)
    (place / ".git/hooks").rename(place.parent / "other-hooks")


def _included(place: Path) -> None:
    _hook_folder(place)
    put(place.parent, "included", f"[core]\nhooksPath = {place.parent}/other-hooks\n".encode())


def _filtered(place: Path) -> None:
    put(place, ".gitattributes", b"src/c.py filter=x\n")
    git(place, "add", ".gitattributes")
    git(place, "commit", "-qm", "attributes")
    put(place, "src/c.py", b"edited\n")


def _driven(place: Path) -> None:
    put(place, ".gitattributes", b"*.py diff=x merge=x\n")
    git(place, "add", ".gitattributes")
    git(place, "commit", "-qm", "attributes")
    put(place, "src/c.py", b"edited\n")


def _submodule(place: Path) -> None:
    """A submodule that is checked out; its own settings are its own."""
    inner = repository(place / "lib")
    text = f'[submodule "lib"]\n\tpath = lib\n\turl = {place.parent}/lender\n\tupdate = checkout\n\tignore = none\n'
    put(place, ".gitmodules", text.encode())
    tip = git(inner, "rev-parse", "HEAD").strip()
    git(place, "add", ".gitmodules")
    git(place, "update-index", "--add", "--cacheinfo", f"160000,{tip},lib")
    git(place, "commit", "-qm", "a submodule")
    put(inner, "src/c.py", b"edited\n")


def _watched_submodule(place: Path) -> None:
    _submodule(place)
    git(place / "lib", "config", "core.fsmonitor", str(place.parent / "canary-program"))


def _filtered_submodule(place: Path) -> None:
    _submodule(place)
    put(place / "lib", ".git/info/attributes", b"* filter=x\n")
    git(place / "lib", "config", "filter.x.clean", str(place.parent / "canary-program"))


ATTACKS = {
    "hooks": Attack((), ("commit", "-qam", "x"), _hooks),
    "core.hooksPath": Attack(
        (("core.hooksPath", "{place}/../other-hooks"),),
        ("commit", "-qam", "x"),
        _hook_folder,
    ),
    "include.path": Attack(
        (("include.path", "{place}/../included"),),
        ("commit", "-qam", "x"),
        _included,
    ),
    "core.fsmonitor": Attack((("core.fsmonitor", "{canary}"),), ("status",)),
    "filter of another path": Attack(
        (("filter.x.clean", "{canary}"), ("filter.x.required", "true")), ("add", "src/c.py"), _filtered
    ),
    "filter.process": Attack((("filter.x.process", "{canary}"),), ("add", "src/c.py"), _filtered),
    "diff.external": Attack((("diff.external", "{canary}"),), ("diff",), _edited),
    "diff driver": Attack((("diff.x.command", "{canary}"),), ("diff",), _driven),
    "diff textconv": Attack((("diff.x.textconv", "{canary}"), ("diff.x.cachetextconv", "true")), ("diff",), _driven),
    "a submodule's fsmonitor": Attack((), ("status",), _watched_submodule),
    "a submodule's filter": Attack((), ("status",), _filtered_submodule),
    "a submodule's update": Attack(
        (("submodule.lib.update", "!{canary}"), ("submodule.lib.url", "{place}/../lender")),
        ("-c", "protocol.file.allow=always", "submodule", "update", "--force"),
        _submodule,
    ),
    "gpg.program": Attack(
        (("gpg.program", "{canary}"), ("commit.gpgSign", "true"), ("log.showSignature", "true")),
        ("commit", "-qam", "x"),
        _edited,
    ),
    "alias": Attack(
        tuple((f"alias.{verb}", "!{canary}") for verb in ("update-ref", "hash-object", "cat-file", "other")),
        ("other",),
    ),
    "core.sshCommand": Attack(
        (("core.sshCommand", "{canary}"), ("remote.o.url", "ssh://127.0.0.1/x"), ("remote.o.promisor", "true")),
        ("fetch", "o"),
    ),
    "core.editor": Attack((("core.editor", "{canary}"),), ("commit", "-a"), _edited),
    "credential.helper": Attack((("credential.helper", "{canary}"),), ("credential", "fill")),
    "core.alternateRefsCommand": Attack(
        (("core.alternateRefsCommand", "{canary}"),),
        ("fetch", "-q", "."),
        lambda place: put(place, ".git/objects/info/alternates", f"{place.parent}/lender/.git/objects\n".encode()),
    ),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    users_home(tmp_path, monkeypatch)
    put(tmp_path, "canary-program", f"#!/bin/sh\n: > {tmp_path}/canary\nexit 1\n".encode())
    (tmp_path / "canary-program").chmod(0o755)
    repository(tmp_path / "lender")
    return repository(tmp_path / "work")


def _armed(place: Path, attack: Attack) -> None:
    attack.prepare(place)
    for name, value in attack.settings:
        git(place, "config", name, value.format(canary=place.parent / "canary-program", place=place))


def _users_git(place: Path, *words: str) -> None:
    """With nobody at the keyboard; whether it succeeds does not matter."""
    environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
    asked = b"protocol=https\nhost=127.0.0.1\n\n"
    command = ["git", "-C", str(place), *words]
    subprocess.run(command, capture_output=True, input=asked, check=False, env=environment, start_new_session=True)


@pytest.mark.parametrize(
    "name",
    [name if number % 3 == 0 else pytest.param(name, marks=pytest.mark.long) for number, name in enumerate(ATTACKS)],
)
def test_nothing_that_the_repository_configures_is_run(place: Path, name: str) -> None:
    """Checks, checkpoint, search and undo start no program of the repository; the user's own git would."""
    attack = ATTACKS[name]
    _armed(place, attack)
    landing = landed(place, {"a.txt": b"two\r\n", "n.txt": b"n\n"})
    canary = place.parent / "canary"
    check_possible(at(place), landing.changes)
    commit = checkpoint(at(place), landing)
    assert commit is not None
    assert find_checkpoint(at(place), "x-1", AT) is not None
    assert revert(at(place), commit.id, landed(place, {"n.txt": None}, "x-2")) is not None
    assert not canary.exists()
    _users_git(place, *attack.set_off)
    assert canary.exists(), "this attack would not have been noticed"


def test_a_pager_is_not_started(place: Path) -> None:
    """A configured pager is not started, for any verb."""
    for key in ("core.pager", "pager.config", "pager.rev-list", "pager.cat-file", "pager.update-ref"):
        git(place, "config", key, str(place.parent / "canary-program"))
    assert checkpoint(at(place), landed(place, {"a.txt": b"two\n"})) is not None
    assert not (place.parent / "canary").exists()


def test_a_racily_clean_file_with_a_filter_starts_nothing(place: Path) -> None:
    """Git compares a file with its entry when both are equally old, through its filter: not when it works for us."""
    put(place, ".gitattributes", b"src/c.py filter=x\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "attributes")

    def racy() -> None:
        entry = (place / "src/c.py").stat()
        os.utime(place / ".git/index", ns=(entry.st_mtime_ns, entry.st_mtime_ns))

    git(place, "config", "filter.x.clean", str(place.parent / "canary-program"))
    racy()
    assert checkpoint(at(place), landed(place, {"a.txt": b"two\n"})) is not None
    assert not (place.parent / "canary").exists()
    racy()
    _users_git(place, "update-index", "--force-remove", "run.sh")
    assert (place.parent / "canary").exists(), "this attack would not have been noticed"


def test_a_work_tree_elsewhere_is_not_written_to(place: Path, tmp_path: Path) -> None:
    """core.worktree that points at another directory is refused, and nothing is written there."""
    (tmp_path / "victim").mkdir()
    landing = landed(place, {"a.txt": b"two\n"})
    git(place, "config", "core.worktree", str(tmp_path / "victim"))
    with pytest.raises(Blocked, match="elsewhere"):
        checkpoint(at(place), landing)
    assert list((tmp_path / "victim").iterdir()) == []


def test_a_log_that_leads_out_is_not_appended_to(place: Path, tmp_path: Path) -> None:
    """Git would follow a link in its logs and append to the user's file."""
    put(tmp_path, "profile", b"# mine\n")
    (place / ".git/logs/HEAD").unlink()
    (place / ".git/logs/HEAD").symlink_to(tmp_path / "profile")
    landing = landed(place, {"a.txt": b"two\n"})
    with pytest.raises(Blocked):
        checkpoint(at(place), landing)
    assert (tmp_path / "profile").read_bytes() == b"# mine\n"
    assert commits(place) == 0


def _forged(place: Path, moving: str) -> None:
    """What a checkpoint leaves that was killed, made by a stranger and brought along in an archive."""
    ours = place / ".git/holdfast"
    ours.mkdir()
    put(ours, "held", b"held by holdfast, pid 1\n")
    os.link(ours / "held", place / ".git/index.lock")
    put(ours, "moving", moving.encode())
    packed = place.parent / "packed.tar"
    subprocess.run(["tar", "-C", str(place), "-cf", str(packed), ".git"], check=True)
    shutil.rmtree(place / ".git")
    subprocess.run(["tar", "-C", str(place), "-xf", str(packed)], check=True)
    assert (place / ".git/index.lock").samefile(ours / "held")


def test_a_move_that_a_stranger_announced_is_not_made(place: Path, tmp_path: Path) -> None:
    """A forged crash of ours appends nothing to the user's file and makes no branch; the checkpoint is made."""
    put(tmp_path, "profile", b"# mine\n")
    (place / ".git/logs/refs/heads/evil").symlink_to(tmp_path / "profile")
    git(place, "config", "user.name", "x; touch harm #")
    _forged(place, f"1 refs/heads/evil - {git(place, 'rev-parse', 'HEAD').strip()} none\n")
    assert checkpoint(at(place), landed(place, {"a.txt": b"two\n"})) is not None
    assert (tmp_path / "profile").read_bytes() == b"# mine\n"
    assert git(place, "branch", "--list", "evil") == "" and leftovers(place) == []


def test_an_announced_move_of_what_is_checked_out_follows_no_link(place: Path, tmp_path: Path) -> None:
    """Forged for the branch that is checked out, whose log leads out: refused before git writes."""
    put(tmp_path, "profile", b"# mine\n")
    (place / ".git/logs/refs/heads/main").unlink()
    (place / ".git/logs/refs/heads/main").symlink_to(tmp_path / "profile")
    old = git(place, "rev-parse", "HEAD").strip()
    _forged(place, f"1 refs/heads/main {old} {git(place, 'commit-tree', old + '^{tree}', '-m', 'x').strip()} none\n")
    with pytest.raises(Blocked, match="symbolic link"):
        checkpoint(at(place), landed(place, {"a.txt": b"two\n"}))
    assert (tmp_path / "profile").read_bytes() == b"# mine\n"
    assert git(place, "rev-parse", "HEAD").strip() == old


def test_what_is_taken_away_after_a_crash_is_ours(place: Path, tmp_path: Path) -> None:
    """Where a folder of our leftovers is a link, nothing behind it is removed."""
    put(tmp_path, "home/.config/git/attributes", b"*.bin binary\n")
    (place / ".git/holdfast").mkdir()
    (place / ".git/holdfast/info").symlink_to(tmp_path / "home/.config/git")
    assert checkpoint(at(place), landed(place, {"a.txt": b"two\n"})) is not None
    assert (tmp_path / "home/.config/git/attributes").read_bytes() == b"*.bin binary\n"
    assert leftovers(place) == []


def test_an_announcement_that_never_ends_is_not_waited_for(place: Path) -> None:
    """A FIFO where the announcement would be is no announcement."""
    (place / ".git/holdfast").mkdir()
    os.mkfifo(place / ".git/holdfast/moving")
    assert checkpoint(at(place), landed(place, {"a.txt": b"two\n"})) is not None
    assert leftovers(place) == []


def test_an_index_that_leads_out_is_not_put_in_place(place: Path, tmp_path: Path) -> None:
    """A forged crash does not have us make the index a link, through which the user's git would write."""
    put(tmp_path, "profile", b"# mine\n")
    old = git(place, "rev-parse", "HEAD").strip()
    new = git(place, "commit-tree", "-p", old, "-m", "x", old + "^{tree}").strip()
    _forged(place, f"1 refs/heads/main {old} {new} index\n")
    (place / ".git/holdfast/index").symlink_to(tmp_path / "profile")
    with pytest.raises(Blocked, match="not an index of ours"):
        checkpoint(at(place), landed(place, {"a.txt": b"two\n"}))
    assert not (place / ".git/index").is_symlink()


def _damaged(place: Path, text: bytes) -> None:
    """Check out a commit whose folder has this text."""
    words = ["git", "-C", str(place), "hash-object", "-t", "tree", "--literally", "-w", "--stdin"]
    tree = subprocess.run(words, input=text, check=True, capture_output=True).stdout.decode().strip()
    commit = f"tree {tree}\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nx\n".encode()
    words = ["git", "-C", str(place), "hash-object", "-t", "commit", "--literally", "-w", "--stdin"]
    put(place, ".git/refs/heads/main", subprocess.run(words, input=commit, check=True, capture_output=True).stdout)


@pytest.mark.parametrize(
    "text",
    [b"100644 a\0short", b"no end", b"\0" + b"1" * 20, (b"100644 a\0" + b"1" * 20) * 2],
    ids=["short", "no end", "no mode", "twice"],
)
def test_a_folder_that_git_did_not_make_is_refused(place: Path, text: bytes) -> None:
    """A damaged tree is told as such, and nothing is built upon a part of it."""
    landing = landed(place, {"n.txt": b"n\n"})
    _damaged(place, text)
    with pytest.raises(Blocked, match="a folder in what is checked out"):
        checkpoint(at(place), landing)


def test_a_link_in_place_of_a_landed_file_is_not_followed(place: Path, tmp_path: Path) -> None:
    """A path that became a link since the landing gives no bytes from behind it."""
    put(tmp_path, "secret", b"two\n")
    landing = landed(place, {"src/b.py": b"two\n"})
    (place / "src").rename(place / "moved")
    (tmp_path / "outside").mkdir()
    put(tmp_path, "outside/b.py", b"two\n")
    (place / "src").symlink_to(tmp_path / "outside")
    with pytest.raises(Conflict):
        checkpoint(at(place), landing)


def test_a_broken_setting_tells_nothing_of_the_others(place: Path) -> None:
    """When git cannot list the settings, the error says why, and holds no token that had been listed by then."""
    git(place, "config", "--global", "http.extraHeader", "Authorization: harmless-test-value")
    git(place, "config", "include.path", "/dev/zero")
    with pytest.raises(Blocked, match="bad config line 1 in file /dev/zero") as caught:
        at(place)
    assert "harmless-test-value" not in str(caught.value) and "http.extra" not in str(caught.value)


def test_the_environment_of_the_user_has_no_say(place: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Variables that redirect git, or name programs for it, are not handed on."""
    program = str(tmp_path / "canary-program")
    for name in ("GIT_SSH_COMMAND", "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_EDITOR", "GIT_ASKPASS"):
        monkeypatch.setenv(name, program)
    landing = landed(place, {"a.txt": b"two\n"})
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "lender/.git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "stray"))
    commit = checkpoint(at(place), landing)
    monkeypatch.delenv("GIT_DIR")
    monkeypatch.delenv("GIT_INDEX_FILE")
    assert commit is not None and git(place, "rev-parse", "HEAD").strip() == commit.id
    assert not (tmp_path / "stray").exists() and not (tmp_path / "canary").exists()
