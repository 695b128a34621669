"""A mirror becomes exactly the tree it shall be, whatever stood there, and is a workspace like any other."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from guarded import Ground, as_user, contents, fill, guard, in_child, put, rewritten, tree_of
from holdfast.engine.proposal import propose
from holdfast.engine.rebasing import Rebased, rebased
from holdfast.errors import Blocked, Conflict, InvalidInput, Locked, Tampering
from holdfast.model.image import Image
from holdfast.model.plan import Agent, Plan
from holdfast.store.large_blobs import LargeBlobs, carry
from holdfast.store.state import create_state
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import EditFile, Shell, WriteFile
from holdfast.workspace.manifest import Manifest, manifest_of, packed_manifest, stocked, tree_digest, unpacked_manifest
from holdfast.workspace.mirror import Mirror
from holdfast.workspace.origins import Depot, FromGit, FromStock, FromTree
from holdfast.workspace.site import Site
from holdfast.workspace.staging import CopyOf, Source
from holdfast.workspace.tree import snapshot

FILES = {"a.txt": b"a\n", "d/one": b"1\n", "d/two": b"2\n", "d/e/deep": b"deep\n", "empty": b"", "void/": b""}


def rich(path: Path) -> Ground:
    """A tree with one of everything."""
    ground = guard(path, FILES)
    os.symlink("d/one", ground / "link")
    os.symlink("/nowhere", ground / "d" / "dangling")
    (ground / "a.txt").chmod(0o640)
    (ground / "run.sh").write_bytes(b"#!/bin/sh\n")
    (ground / "run.sh").chmod(0o755)
    os.setxattr(ground / "a.txt", "user.note", b"kept")
    (ground.path / os.fsdecode(b"not\xffutf8")).write_bytes(b"name\n")
    (ground / "large").write_bytes(os.urandom(1 << 16) * 40)
    return ground


def brought(ground: Ground, place: Path, **options: Any) -> Manifest:
    base = manifest_of(ground.hf.site)
    with Mirror.at(str(place)) as mirror:
        assert mirror.bring_to(base, FromTree(ground.hf.site.workspace), **options).tree == base.tree
    return base


def digest_at(path: Path) -> str:
    """Without the index: every byte is read."""
    return snapshot(str(path), None).digest


def without_git(path: Path) -> dict[str, Any]:
    return {name: thing for name, thing in tree_of(path).items() if ".git" not in name.split("/")}


# ── exact ──


def test_a_mirror_is_the_tree_byte_for_byte(tmp_path: Path) -> None:
    """Kinds, modes, owners, attributes, links, times and bytes are those of the workspace, and so is the digest."""
    ground = rich(tmp_path / "home")
    base = brought(ground, tmp_path / "mirror")
    assert base.tree == base.workspace_tree == digest_at(ground.path) == digest_at(tmp_path / "mirror")
    # Links and what was just written have no old times to keep; everything else does.
    assert tree_of(tmp_path / "mirror")["d/one"] == ground.tree()["d/one"]
    assert {p: t._replace(mtime_ns=0) for p, t in tree_of(tmp_path / "mirror").items()} == {
        p: t._replace(mtime_ns=0) for p, t in ground.tree().items()
    }


def test_a_second_call_writes_only_what_differs(tmp_path: Path) -> None:
    """Of a tree that moved a little, only the moved paths are written; everything else keeps its inode."""
    ground = rich(tmp_path / "home")
    brought(ground, tmp_path / "mirror")
    before = {name: os.lstat(tmp_path / "mirror" / name).st_ino for name in tree_of(tmp_path / "mirror")}
    ground.apply(put("a.txt", b"moved on\n"), put("new/file", b"new\n"))
    base = manifest_of(ground.hf.site)
    with Mirror.at(str(tmp_path / "mirror")) as mirror:
        done = mirror.bring_to(base, FromTree(ground.hf.site.workspace))
        assert (done.changed, done.tree) == (3, base.tree)
        assert mirror.bring_to(base).changed == 0
    after = {name: os.lstat(tmp_path / "mirror" / name).st_ino for name in before}
    assert {name for name in before if before[name] != after[name]} == {"a.txt"}


DAMAGES: dict[str, Callable[[Path], object]] = {
    "an edit": lambda at: (at / "a.txt").write_bytes(b"b\n"),
    "an edit that hides": lambda at: rewritten(at / "a.txt", b"b\n"),
    "a file removed": lambda at: (at / "d/one").unlink(),
    "a directory removed": lambda at: shutil.rmtree(at / "d"),
    "a file more": lambda at: (at / "d/more").write_bytes(b"x"),
    "a directory more": lambda at: fill(at, {"x/y/z": b"x"}),
    "a mode": lambda at: (at / "d").chmod(0o700),
    "a closed directory": lambda at: (at / "d").chmod(0),
    "an attribute": lambda at: os.setxattr(at / "d/one", "user.x", b"x"),
    "a file where a directory was": lambda at: (shutil.rmtree(at / "d"), (at / "d").write_bytes(b"x")),
    "a directory where a file was": lambda at: ((at / "a.txt").unlink(), fill(at, {"a.txt/b": b"x"})),
    "a link where a directory was": lambda at: (shutil.rmtree(at / "d"), os.symlink("/etc", at / "d")),
    "a FIFO": lambda at: ((at / "a.txt").unlink(), os.mkfifo(at / "a.txt")),
    "a FIFO more": lambda at: os.mkfifo(at / "d/fifo"),
    "a FIFO in a directory more": lambda at: ((at / "x").mkdir(), os.mkfifo(at / "x/fifo")),
    "a link elsewhere": lambda at: ((at / "link").unlink(), os.symlink("/etc/passwd", at / "link")),
    "everything gone": lambda at: [
        shutil.rmtree(p) if p.is_dir() and not p.is_symlink() else p.unlink()
        for p in at.iterdir()
        if p.name != ".holdfast"
    ],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_mirror_is_repaired(tmp_path: Path, damage: str) -> None:
    """Whatever anybody did to it, the next call makes it what it shall be; nothing outside is touched."""
    ground = rich(tmp_path / "home")
    base = brought(ground, tmp_path / "mirror")
    DAMAGES[damage](tmp_path / "mirror")
    home = ground.tree()
    with Mirror.at(str(tmp_path / "mirror")) as mirror:
        assert mirror.bring_to(base, FromTree(ground.hf.site.workspace)).changed
    assert digest_at(tmp_path / "mirror") == base.tree
    assert ground.tree() == home


def test_an_ordinary_user_can_have_closed_directories(public: Path) -> None:
    """Directories without the owner's bits are filled, emptied and closed again, also where nobody is root."""

    def act(place: Path) -> None:
        ground = guard(place / "home", {"shut/one": b"1\n", "shut/in/two": b"2\n"})
        (ground / "shut" / "in").chmod(0o500)
        (ground / "shut").chmod(0o555)
        base = brought(ground, place / "mirror")
        (place / "mirror" / "shut" / "in").chmod(0o700)
        (place / "mirror" / "shut" / "in" / "more").write_bytes(b"x")
        (place / "mirror" / "shut" / "in").chmod(0)
        assert brought(ground, place / "mirror") == base
        assert digest_at(place / "mirror") == base.tree
        for root in ("home", "mirror"):
            for name in ("shut", "shut/in"):
                (place / root / name).chmod(0o700)

    as_user(public, act)


# ── interrupted ──


class DyingOrigin(FromTree):
    """The workspace, until the n-th file is opened: then the process is killed."""

    def __init__(self, site: Site, at: int) -> None:
        super().__init__(site.workspace)
        self._left = at

    def sources(self, wanted: Mapping[str, Image], depot: Depot) -> dict[str, Source]:
        found = super().sources(wanted, depot)
        return {path: CopyOf(self._dying(source.open)) for path, source in found.items() if isinstance(source, CopyOf)}

    def _dying(self, opened: Callable[[], int]) -> Callable[[], int]:
        def act() -> int:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return opened()

        return act


@pytest.mark.parametrize("at", range(6))
def test_a_killed_call_is_finished_by_the_next(tmp_path: Path, at: int) -> None:
    """Killed after any number of files, the mirror is unfinished, nobody's lock stays, and the next call finishes."""
    ground = rich(tmp_path / "home")
    base = manifest_of(ground.hf.site)

    def act() -> None:
        with Mirror.at(str(tmp_path / "mirror")) as mirror:
            mirror.bring_to(base, DyingOrigin(ground.hf.site, at))

    assert in_child(act) == -signal.SIGKILL
    assert brought(ground, tmp_path / "mirror") == base
    assert digest_at(tmp_path / "mirror") == base.tree
    assert os.listdir(tmp_path / "mirror" / ".holdfast" / "mirror") == ["lock"]


def test_a_base_that_moved_while_it_was_copied_is_a_conflict(tmp_path: Path) -> None:
    """Bytes that are not those of the manifest never get their name; the caller takes a newer base."""
    ground = guard(tmp_path / "home", FILES)
    base = manifest_of(ground.hf.site)
    (ground / "d" / "one").write_bytes(b"moved\n")
    with Mirror.at(str(tmp_path / "mirror")) as mirror, pytest.raises(Conflict):
        mirror.bring_to(base, FromTree(ground.hf.site.workspace))
    assert not (tmp_path / "mirror" / "d" / "one").exists()


def test_bytes_that_are_nowhere_are_missed(tmp_path: Path) -> None:
    """Without an origin that has a file, nothing is made up in its place."""
    ground = guard(tmp_path / "home", FILES)
    with Mirror.at(str(tmp_path / "mirror")) as mirror, pytest.raises(Blocked, match="nowhere to be had"):
        mirror.bring_to(manifest_of(ground.hf.site), FromStock(mirror.stock))


# ── whose it is ──


def test_a_mirror_has_one_holder(tmp_path: Path) -> None:
    """Whoever works over a mirror is not disturbed by another who wants it; when they are done it is free."""
    with Mirror.at(str(tmp_path / "mirror")), pytest.raises(Locked):
        Mirror.at(str(tmp_path / "mirror"))
    Mirror.at(str(tmp_path / "mirror")).close()


def test_what_is_no_mirror_is_left_alone(tmp_path: Path) -> None:
    """A directory with somebody's files, or a workspace, does not become a mirror by a slip of the hand."""
    ground = guard(tmp_path / "home", FILES)
    fill(tmp_path / "mine", {"letter": b"dear\n"})
    for place in (ground.path, tmp_path / "mine", tmp_path / "mine" / "letter"):
        with pytest.raises(InvalidInput):
            Mirror.at(str(place))
    assert (tmp_path / "mine" / "letter").read_bytes() == b"dear\n"


# ── what is in it ──


def git(path: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(path), *words], check=True, capture_output=True, text=True)
    return done.stdout


def repository(path: Path) -> Ground:
    """A repository with a commit, an uncommitted file, an ignored one, and settings that nobody else shall see."""
    ground = guard(path, {**FILES, ".gitignore": b"cache/\n*.pyc\n"})
    git(path, "init", "-q", "-b", "main")
    git(path, "add", "-A")
    git(path, "commit", "-q", "-m", "first")
    git(path, "remote", "add", "origin", "https://user:token@example.invalid/x.git")
    (ground / ".git" / "hooks" / "post-commit").write_text("#!/bin/sh\n")
    fill(path, {"uncommitted.txt": b"mine\n", "cache/x": b"cached\n", "d/one": b"edited\n"})
    return ground


def test_ignored_files_come_along_if_they_shall(tmp_path: Path) -> None:
    """With what is ignored for checks on the same machine, without for others; the digest is of what is in it."""
    ground = repository(tmp_path / "home")
    everything, less = manifest_of(ground.hf.site), manifest_of(ground.hf.site, ignored=False)
    assert {path for path, _ in everything.entries} - {path for path, _ in less.entries} == {"cache", "cache/x"}
    with Mirror.at(str(tmp_path / "mirror")) as mirror:
        mirror.bring_to(less, FromTree(ground.hf.site.workspace))
    assert digest_at(tmp_path / "mirror") == less.tree != everything.tree == less.workspace_tree


def test_hidden_files_stay_at_home(tmp_path: Path) -> None:
    """What no program may see is not copied to where programs work."""
    ground = guard(tmp_path / "home", {**FILES, ".env": b"KEY=1\n", "secrets/a": b"x"})
    base = manifest_of(ground.hf.site, hidden=(".env", "secrets/**"))
    assert not {".env", "secrets", "secrets/a"} & {path for path, _ in base.entries}


def test_what_cannot_be_read_makes_no_manifest(public: Path) -> None:
    """A file closed to us is not silently missing elsewhere; a hidden one is nobody's loss."""

    def act(place: Path) -> None:
        ground = guard(place, FILES)
        (ground / "a.txt").chmod(0)
        with pytest.raises(Blocked):
            manifest_of(ground.hf.site)
        assert "a.txt" not in dict(manifest_of(ground.hf.site, hidden=("a.txt",)).entries)

    as_user(public, act)


def test_git_tells_the_same_in_a_mirror(tmp_path: Path) -> None:
    """History, branch, status and ignore rules are the workspace's; its settings and hooks are not there."""
    ground = repository(tmp_path / "home")
    before = tree_of(ground.path / ".git")
    base = brought(ground, tmp_path / "mirror")
    for _ in range(2):
        with Mirror.at(str(tmp_path / "mirror")) as mirror:
            mirror.borrow_git(base, str(ground.path))
        assert tree_of(ground.path / ".git") == before
        for words in (("log", "--format=%H %s"), ("status", "--porcelain", "-b"), ("check-ignore", "cache/x")):
            assert git(tmp_path / "mirror", *words) == git(ground.path, *words)
        # Whatever was done to it is gone with the next call.
        git(tmp_path / "mirror", "config", "core.fsmonitor", "/bin/false")
        git(tmp_path / "mirror", "branch", "stray")
        (tmp_path / "mirror" / ".git" / "hooks").mkdir()
    with Mirror.at(str(tmp_path / "mirror")) as mirror:
        mirror.borrow_git(base, str(ground.path))
    told = (tmp_path / "mirror" / ".git" / "config").read_text()
    assert "example.invalid" not in told and "fsmonitor" not in told
    assert not (tmp_path / "mirror" / ".git" / "hooks").exists()
    assert "stray" not in git(tmp_path / "mirror", "branch")
    git(tmp_path / "mirror", "fsck", "--full", "--strict")


def test_the_repository_follows_a_moved_head(tmp_path: Path) -> None:
    """A commit more, a branch more, everything repacked: the mirror's repository knows it after the next call."""
    ground = repository(tmp_path / "home")
    base = brought(ground, tmp_path / "mirror")
    with Mirror.at(str(tmp_path / "mirror")) as mirror:
        mirror.borrow_git(base, str(ground.path))
        git(ground.path, "commit", "-q", "-a", "-m", "second")
        git(ground.path, "branch", "other")
        git(ground.path, "gc", "-q", "--prune=now")
        mirror.borrow_git(manifest_of(ground.hf.site), str(ground.path))
    for words in (("log", "--format=%H %s"), ("branch", "-a"), ("status", "--porcelain")):
        assert git(tmp_path / "mirror", *words) == git(ground.path, *words)


def test_a_repository_that_is_repacked_meanwhile_is_borrowed_whole(tmp_path: Path) -> None:
    """While git packs and removes objects, those that are borrowed are complete all the same."""
    ground = repository(tmp_path / "home")
    for number in range(6):
        for name in range(60):
            (ground / f"n{name}").write_text(f"{number} {name}\n")
        git(ground.path, "add", "-A")
        git(ground.path, "-c", "gc.auto=0", "commit", "-q", "-m", f"number {number}")
        base = manifest_of(ground.hf.site)
        packing = subprocess.Popen(["git", "-C", str(ground.path), "gc", "-q", "--prune=now"])
        try:
            with Mirror.at(str(tmp_path / f"mirror{number}")) as mirror:
                mirror.bring_to(base, FromTree(ground.hf.site.workspace))
                while packing.poll() is None:
                    mirror.borrow_git(base, str(ground.path))
                    git(Path(mirror.path), "fsck", "--connectivity-only")
        finally:
            packing.wait()


def test_linked_work_trees_and_submodules_have_repositories_too(tmp_path: Path) -> None:
    """A `.git` that is a file leads elsewhere; the mirror gets a repository of its own in its place."""
    origin = repository(tmp_path / "origin")
    git(origin.path, "worktree", "add", "-q", "-b", "side", str(tmp_path / "home"))
    inner = tmp_path / "home" / "vendor"
    fill(inner, {"lib.c": b"int x;\n", "built.o": b"o", ".gitignore": b"*.o\n"})
    git(inner, "init", "-q")
    git(inner, "add", "-A")
    git(inner, "commit", "-q", "-m", "vendored")
    ground = guard(tmp_path / "home")
    base = brought(ground, tmp_path / "mirror")
    assert base.repositories == ("", "vendor")
    with Mirror.at(str(tmp_path / "mirror")) as mirror:
        mirror.borrow_git(base, str(ground.path))
    for place in ("", "vendor"):
        assert git(tmp_path / "mirror" / place, "log", "--format=%H") == git(ground.path / place, "log", "--format=%H")
    assert git(tmp_path / "mirror", "branch", "--show-current") == "side\n"
    assert git(tmp_path / "mirror" / "vendor", "check-ignore", "built.o") == "built.o\n"
    assert not (tmp_path / "mirror" / ".git").is_file()


# ── another machine ──


def test_another_machine_has_the_tree_from_a_clone_and_a_stock(tmp_path: Path) -> None:
    """Committed contents come from git objects, uncommitted ones from blobs; nothing reads the workspace."""
    ground = repository(tmp_path / "home")
    (ground / "d" / "two").write_bytes(os.urandom(1 << 20) * 3)
    shared = LargeBlobs(ground.hf.site.state)
    sent = stocked(ground.hf.site, manifest_of(ground.hf.site, ignored=False), shared)
    assert len(sent.contents) == 3  # edited, large, uncommitted
    git(tmp_path, "clone", "-q", "--no-hardlinks", str(ground.path), "clone")
    base = unpacked_manifest(packed_manifest(sent))
    assert base == sent
    with Mirror.at(str(tmp_path / "mirror")) as mirror:
        clone = str(tmp_path / "clone")
        mirror.bring_to(base, FromStock(shared), FromGit(clone, dict(base.names)))
        mirror.borrow_git(base, clone, base.commit)
    assert digest_at(tmp_path / "mirror") == base.tree
    assert git(tmp_path / "mirror", "rev-parse", "HEAD").strip() == base.commit
    assert git(tmp_path / "mirror", "status", "--porcelain") == git(ground.path, "status", "--porcelain")


def test_contents_are_named_and_stocked_once(tmp_path: Path) -> None:
    """With the manifest before, only what is new is hashed and stocked; the result is the same."""
    ground = repository(tmp_path / "home")
    shared = LargeBlobs(ground.hf.site.state)
    first = stocked(ground.hf.site, manifest_of(ground.hf.site), shared)
    assert stocked(ground.hf.site, manifest_of(ground.hf.site), shared, first) == first
    stock = set(shared.digests())
    (ground / "d" / "one").write_bytes(b"newer\n")
    second = stocked(ground.hf.site, manifest_of(ground.hf.site), shared, first)
    assert second == stocked(ground.hf.site, manifest_of(ground.hf.site), shared)
    assert len(set(shared.digests()) - stock) == 1


def test_line_ends_and_filters_play_no_part(tmp_path: Path) -> None:
    """What git stores otherwise than it stands in the tree travels as it stands in the tree."""
    ground = repository(tmp_path / "home")
    fill(ground.path, {".gitattributes": b"*.txt text eol=crlf\n", "crlf.txt": b"one\r\ntwo\r\n"})
    git(ground.path, "add", "-A")
    git(ground.path, "commit", "-q", "-m", "line ends")
    shared = LargeBlobs(ground.hf.site.state)
    base = stocked(ground.hf.site, manifest_of(ground.hf.site), shared)
    assert dict(base.entries)["crlf.txt"].digest in base.contents
    with Mirror.at(str(tmp_path / "mirror")) as mirror:
        mirror.bring_to(base, FromStock(shared), FromGit(str(ground.path), dict(base.names)))
    assert (tmp_path / "mirror" / "crlf.txt").read_bytes() == b"one\r\ntwo\r\n"


def test_a_machine_that_knows_no_owners_has_the_tree_as_its_own(tmp_path: Path) -> None:
    """Everything belongs to one user there, and the digest is that of such a tree."""
    ground = guard(tmp_path / "home", FILES)
    base = manifest_of(ground.hf.site).owned_by(os.geteuid(), os.getegid())
    assert base.tree == manifest_of(ground.hf.site).tree
    foreign = base.owned_by(4321, 4321)
    assert foreign.tree != base.tree and foreign.owned_by(os.geteuid(), os.getegid()) == base


def _rows(**fields: Any) -> Any:
    return lambda rows: rows.update(fields)


def _entry(number: int, value: Any) -> Any:
    return lambda rows: rows["entries"][0].__setitem__(number, value)


LIES: dict[str, Any] = {
    "another tree": _rows(tree="0" * 64),
    "a field more": _rows(more=1),
    "another version": _rows(version=9),
    "a path that leaves": _entry(0, "../x"),
    "a path into git": _entry(0, ".git/config"),
    "a path without a directory": _entry(0, "no/such/place"),
    "an image that is none": _entry(1, ["fifo", 0, 0, 0, 0, "", "", []]),
    "an image too short": _entry(1, ["file"]),
    "a path twice": lambda rows: rows["entries"].append(rows["entries"][0]),
    "a repository that leaves": _rows(repositories=["../x"]),
    "a repository nowhere": _rows(repositories=["no/such"]),
    "a commit that is an option": _rows(commit="--upload-pack=x"),
    "a name that is an option": _rows(names=[["0" * 64, "--textconv"]]),
    "entries that are none": _rows(entries=7),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_manifest_that_lies_is_refused(tmp_path: Path, lie: str) -> None:
    """What is no manifest, or contradicts itself, makes no tree."""
    ground = guard(tmp_path / "home", FILES)
    rows = json.loads(zlib.decompress(packed_manifest(manifest_of(ground.hf.site))))
    LIES[lie](rows)
    with pytest.raises((Tampering, InvalidInput)):
        unpacked_manifest(zlib.compress(json.dumps(rows).encode()))


@given(st.binary(max_size=100))
def test_any_bytes_are_no_manifest(data: bytes) -> None:
    """Whatever bytes come, the answer is a refusal and no crash."""
    for text in (data, zlib.compress(data)):
        with pytest.raises((Tampering, InvalidInput)):
            unpacked_manifest(text)


def test_a_digest_is_the_same_from_entries_and_from_the_disk(tmp_path: Path) -> None:
    """The digest that a manifest computes is the one that a snapshot measures."""
    ground = rich(tmp_path / "home")
    assert tree_digest(ground.hf.tree().entries()) == ground.hf.tree().digest


# ── work over it ──


def test_agents_work_over_mirrors_while_others_land(tmp_path: Path) -> None:
    """Two agents work over mirrors of one base; the first lands; the second is rebased and lands; both are there."""
    ground = repository(tmp_path / "home")
    base = manifest_of(ground.hf.site)
    works = {
        "one": ScriptedAgent(EditFile("a.txt", "a", "b"), Shell("git log --format=%s > log.txt")),
        "two": ScriptedAgent(WriteFile("two.txt", "two\n"), Shell("git status --porcelain > status.txt")),
    }
    proposals = []
    for name, agent in works.items():
        with Mirror.at(str(tmp_path / name)) as mirror:
            mirror.bring_to(base, FromTree(ground.hf.site.workspace))
            mirror.borrow_git(base, str(ground.path))
            holdfast.init(mirror.path)
            with holdfast.open(mirror.path) as hf:
                plan = Plan(name, (Agent(agent.name, f"Do {name}.", attempts=1),))
                found = propose(hf.site, hf.simulate(plan, agents={agent.name: agent}))
                carry(found.contents, LargeBlobs(hf.site.state), LargeBlobs(ground.hf.site.state))
                proposals.append(found)
            # The mirror itself is as it was: work happens in shadows of it.
            assert mirror.bring_to(base).changed == 0
    for proposal in proposals:
        outcome = rebased(ground.hf.pipeline, proposal)
        assert isinstance(outcome, Rebased)
        ground.hf.execute(outcome.simulated, approved_by="tester", consent=outcome.simulated.plan.id)
    found_files = contents(without_git(ground.path))
    assert (found_files["a.txt"], found_files["log.txt"], found_files["two.txt"]) == (b"b\n", b"first\n", b"two\n")
    assert b"?? uncommitted.txt" in found_files["status.txt"]


def test_a_fresh_mirror_keeps_its_files_and_forgets_its_work(tmp_path: Path) -> None:
    """What earlier work left in its state goes, identity and ledger included; no file is written again."""
    ground = rich(tmp_path / "home")
    place = tmp_path / "mirror"
    base = brought(ground, place)
    first = holdfast.init(str(place))
    with holdfast.open(str(place)) as hf:
        hf.keep_plan(Plan("x", (put("x", b"y"),)))
    with Mirror.at(str(place), fresh=True) as mirror:
        assert mirror.bring_to(base).changed == 0
        with holdfast.open(mirror.path) as hf:
            assert hf.id != first
    assert not (place / ".holdfast" / "plans").exists()


def test_a_mirror_can_stand_in_the_state_of_its_workspace(tmp_path: Path) -> None:
    """Where nobody else looks and the file system is the same: agents work there as anywhere."""
    ground = repository(tmp_path / "home")
    base = manifest_of(ground.hf.site)
    agent = ScriptedAgent(Shell("git log --format=%s > log.txt"))
    with Mirror.at(str(ground.state / "mirrors" / "1")) as mirror:
        mirror.bring_to(base, FromTree(ground.hf.site.workspace))
        mirror.borrow_git(base, str(ground.path))
        holdfast.init(mirror.path)
        with holdfast.open(mirror.path) as hf:
            simulated = hf.simulate(Plan("x", (Agent(agent.name, "Do it.", attempts=1),)), agents={agent.name: agent})
            assert list(simulated.change_set.paths) == ["log.txt"]
    assert manifest_of(ground.hf.site) == base


def test_a_mirror_survives_without_its_state(tmp_path: Path) -> None:
    """Its records can be thrown away with it: a new state finds the files and goes on from there."""
    ground = rich(tmp_path / "home")
    brought(ground, tmp_path / "mirror")
    shutil.rmtree(tmp_path / "mirror" / ".holdfast")
    create_state(str(tmp_path / "mirror"))
    (tmp_path / "mirror" / ".holdfast" / "mirror").mkdir(0o700)
    base = manifest_of(ground.hf.site)
    with Mirror.at(str(tmp_path / "mirror")) as mirror:
        assert mirror.bring_to(base).changed == 0
