"""Shadows against the usual ways: a work tree of git's to work in, `git status` to see what changed, `cp -a` to copy.

    python benchmarks/shadow.py                 on a default ext4 in a loop image where root is had
    python benchmarks/shadow.py --dir PLACE     in a directory of its own there
    python benchmarks/shadow.py --quick         without the tree of 100,000 files

Contestants take turns in one run, and medians are compared. Files are in the page cache for all of them.
The peers' times include the start of their process; ours is the call. `in the sandbox` includes running `true` in it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "src"))

from _measure import Verdict, arena, clocked, milliseconds, run, turns
from snapshot import FILES_A_DIRECTORY, SETTLED_S, build

from holdfast.disk.confined import Root
from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.confined import run_confined
from holdfast.sandbox.process import Command
from holdfast.sandbox.profile import Profile
from holdfast.sandbox.view import View
from holdfast.store.state import create_state
from holdfast.workspace.copying import Copy
from holdfast.workspace.shadow import Shadow, open_shadow
from holdfast.workspace.site import Site
from holdfast.workspace.tree import Snapshot, snapshot

CHANGES = 100
FILE_BYTES = 4096
TRUE = ("/bin/true",)


class Tree:
    """One repository and its shadows."""

    def __init__(self, place: str, files: int) -> None:
        self.root = os.path.join(place, f"tree{files}")
        self.beside = os.path.join(place, f"beside{files}")
        self.paths = [os.path.relpath(path, self.root) for path in build(self.root, files, FILE_BYTES)]
        with open(os.path.join(self.root, ".gitignore"), "w", encoding="ascii") as file:
            file.write("*.o\n__pycache__/\nbuild/\nnode_modules/\n/dist\n")
        run(["git", "-C", self.root, "add", "-A"])
        identity = ["-c", "user.name=bench", "-c", "user.email=bench@example.invalid", "-c", "gc.auto=0"]
        run(["git", "-C", self.root, *identity, "commit", "-qm", "all"])
        os.rmdir(os.path.join(self.root, ".holdfast"))
        create_state(self.root)
        self.site = Site(self.root)

    def overlay(self) -> float:
        start = time.perf_counter()
        with open_shadow(self.site, "overlay"):
            return time.perf_counter() - start

    def in_the_sandbox(self) -> float:
        start = time.perf_counter()
        with open_shadow(self.site, "overlay") as shadow:
            confined(shadow.view, *TRUE)
            return time.perf_counter() - start

    def worktree(self) -> float:
        taken = clocked(lambda: run(["git", "-C", self.root, "worktree", "add", "-q", "--detach", self.beside]))
        run(["git", "-C", self.root, "worktree", "remove", "--force", self.beside])
        return taken

    def copy(self) -> float:
        """The tree without the pause that ends a copying shadow, which is the same for any tree."""
        os.mkdir(self.beside)
        with Root(self.beside) as target:
            taken = clocked(lambda: Copy(self.site.workspace, target, frozenset((".holdfast",)), 0).fill())
        shutil.rmtree(self.beside)
        return taken

    def cp(self) -> float:
        taken = clocked(lambda: run(["cp", "-a", self.root, self.beside]))
        shutil.rmtree(self.beside)
        return taken

    def status(self, directories: int) -> float:
        """Of a tree in which as much was edited; the edits are taken back."""
        originals = {path: self._read(path) for path in self._edited(directories)}
        for number, path in enumerate(originals):
            self._write(path, b"%d\n" % number + originals[path])
        time.sleep(SETTLED_S)  # as before our turn: what rests begins with cold caches
        taken = clocked(lambda: run(["git", "-C", self.root, "status", "--porcelain"]))
        for path, data in originals.items():
            self._write(path, data)
        return taken

    def edit(self, shadow: Shadow, directories: int) -> None:
        """As many changes as `status` gets, made by a program inside."""
        script = 'for path; do printf "%s\\n" "$path" >> "$path"; done'
        confined(shadow.view, "/bin/sh", "-c", script, "sh", *self._edited(directories))

    def _edited(self, directories: int) -> list[str]:
        """The same paths in every tree."""
        each = CHANGES // directories
        starts = range(0, directories * FILES_A_DIRECTORY, FILES_A_DIRECTORY)
        return [path for start in starts for path in self.paths[start : start + each]]

    def _read(self, path: str) -> bytes:
        with open(os.path.join(self.root, path), "rb") as file:
            return file.read()

    def _write(self, path: str, data: bytes) -> None:
        with open(os.path.join(self.root, path), "r+b") as file:
            file.write(data)
            file.truncate()


def confined(view: View, *argv: str) -> None:
    done = run_confined(Command(argv, view.path, {"PATH": "/usr/bin:/bin"}, 60_000), view, Profile())
    if not done.succeeded:
        raise SystemExit(f"{argv[0]}: {done.finished.output.decode(errors='replace')}")


@contextmanager
def edited(tree: Tree, directories: int, *, ignored: bool = False) -> Iterator[Shadow]:
    with open_shadow(tree.site, "overlay") as shadow:
        tree.edit(shadow, directories)
        if ignored:
            confined(shadow.view, "/bin/sh", "-c", "echo > made.o")
        time.sleep(SETTLED_S)
        yield shadow


def captured(tree: Tree, shadow: Shadow) -> float:
    """With a look at the workspace in hand, as a simulation has it, and git its index."""
    time.sleep(SETTLED_S)  # the peer's turn has just written to the workspace
    base = snapshot(tree.site.path, tree.site.state.path)
    return clocked(lambda: _checked(shadow, base))


def _checked(shadow: Shadow, base: Snapshot | None) -> None:
    found = len(shadow.capture((), base).change_set.changes)
    if found != CHANGES:
        raise SystemExit(f"{found} changes were captured instead of {CHANGES}")


def report(what: str, mine: float, peer: str, other: float, goal: float | None) -> None:
    print(f"{what}: {milliseconds(mine)} ms, {peer} {milliseconds(other)} ms, {mine / other:.3f} ×")
    if goal is not None:
        print(Verdict(f"{what} / {peer}", mine / other, goal).line(), flush=True)


def beginnings(tree: Tree, rounds: int) -> None:
    times = turns(rounds, {"worktree": tree.worktree, "overlay": tree.overlay, "sandbox": tree.in_the_sandbox})
    report("shadow ready", times["overlay"], "git worktree add", times["worktree"], 0.01)
    report("shadow ready, in the sandbox", times["sandbox"], "git worktree add", times["worktree"], None)
    print(Verdict("shadow ready, in the sandbox", times["sandbox"] * 1e3, 100, "ms").line(), flush=True)


def captures(tree: Tree, rounds: int) -> None:
    for directories, ignored in ((10, False), (CHANGES, False), (10, True)):
        with edited(tree, directories, ignored=ignored) as shadow:
            times = turns(rounds, {"ours": lambda: captured(tree, shadow), "theirs": lambda: tree.status(directories)})  # noqa: B023
        what = f"capture of {CHANGES} changes in {directories} directories{' and a by-product' if ignored else ''}"
        report(what, times["ours"], "git status", times["theirs"], 0.2)


def copies(tree: Tree, rounds: int) -> None:
    times = turns(rounds, {"ours": tree.copy, "theirs": tree.cp})
    report("copy", times["ours"], "cp -a", times["theirs"], 0.75)


def growth(small: Tree, large: Tree, rounds: int) -> None:
    times = turns(rounds * 4, {"small": small.overlay, "large": large.overlay})
    report("shadow ready, 100,000 files", times["large"], "10,000 files", times["small"], 1.3)
    for ignored in (False, True):
        with edited(small, 10, ignored=ignored) as one, edited(large, 10, ignored=ignored) as other:
            times = turns(rounds * 2, {"small": lambda: captured(small, one), "large": lambda: captured(large, other)})
        what = f"capture{' with a by-product' if ignored else ''}, 100,000 files"
        report(what, times["large"], "10,000 files", times["small"], 1.3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=None, help="where to work")
    parser.add_argument("--rounds", type=int, default=7, help="turns (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="without the tree of 100,000 files")
    options = parser.parse_args()
    with arena(options.dir) as place:
        tree = Tree(place.path, 10_000)
        print(f"10,000 files of {FILE_BYTES} bytes, {place.about}")
        try:
            beginnings(tree, options.rounds)
            captures(tree, options.rounds * 3)
        except SandboxUnavailable as error:
            print(f"no sandbox here, so nothing can be run in a shadow: {error}")
        copies(tree, options.rounds)
        if not options.quick:
            growth(tree, Tree(place.path, 100_000), options.rounds)


if __name__ == "__main__":
    main()
