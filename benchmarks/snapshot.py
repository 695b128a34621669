"""Snapshots against the machine: the first one against `sha256sum`, an unchanged tree against `git status`.

    python benchmarks/snapshot.py                 on a default ext4 in a loop image where root is had
    python benchmarks/snapshot.py --dir PLACE     in a directory of its own there

Contestants take turns in one run, and medians are compared. Files are in the page cache for all of them.
The peers' times include the start of their process; ours is the call.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "src"))

from _measure import Timed, Verdict, arena, clocked, milliseconds, run, turns

from holdfast.workspace.index import INDEX_NAME
from holdfast.workspace.tree import snapshot

FILES_A_DIRECTORY = 100
SETTLED_S = 0.1
SHA256 = "find . -name .git -prune -o -name .holdfast -prune -o -type f -print0 | xargs -0 -P2 sha256sum >/dev/null"


def build(root: str, files: int, size: int) -> list[str]:
    """A tree of two levels, a git repository that has it all in its index, and a state directory."""
    chance = random.Random(1)
    paths = []
    for number in range(files):
        folder = number // FILES_A_DIRECTORY
        path = os.path.join(root, f"d{folder // 10:03}", f"s{folder % 10}", f"file{number:06}.txt")
        if number % FILES_A_DIRECTORY == 0:
            os.makedirs(os.path.dirname(path))
        with open(path, "wb") as file:
            file.write(chance.randbytes(size))
        paths.append(path)
    run(["git", "-C", root, "init", "-q"])
    run(["git", "-C", root, "add", "-A"])
    os.mkdir(os.path.join(root, ".holdfast"), 0o700)
    with open(os.path.join(root, ".git", "info", "exclude"), "a", encoding="ascii") as exclude:
        exclude.write(".holdfast\n")
    time.sleep(SETTLED_S)
    return paths


class Contest:
    """The contestants over one tree; each prepares its own turn and returns the seconds that count."""

    def __init__(self, root: str, paths: list[str]) -> None:
        self.root = root
        self.state = os.path.join(root, ".holdfast")
        self._paths = paths
        self._chance = random.Random(2)

    def first(self) -> float:
        index = os.path.join(self.state, INDEX_NAME)
        if os.path.exists(index):
            os.unlink(index)
        return self.ours()

    def ours(self) -> float:
        return clocked(lambda: snapshot(self.root, self.state))

    def sha256sum(self) -> float:
        return clocked(lambda: run(["sh", "-c", SHA256], cwd=self.root))

    def status(self) -> float:
        return clocked(lambda: run(["git", "-C", self.root, "status", "--porcelain"]))

    def edited(self, contestant: Timed) -> Timed:
        """The contestant after an edit of every hundredth file."""

        def turn() -> float:
            for path in self._chance.sample(self._paths, len(self._paths) // 100):
                with open(path, "r+b") as file:
                    file.write(self._chance.randbytes(8))
            time.sleep(SETTLED_S)
            return contestant()

        return turn


def compare(what: str, rounds: int, ours: Timed, peer: str, theirs: Timed, goal: float | None) -> None:
    medians = turns(rounds, {"ours": ours, "theirs": theirs})
    mine, other = medians["ours"], medians["theirs"]
    print(f"{what}: {milliseconds(mine)} ms, {peer} {milliseconds(other)} ms, {mine / other:.2f} ×")
    if goal is not None:
        print(Verdict(f"{what} / {peer}", mine / other, goal).line(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=None, help="where to work")
    parser.add_argument("--files", type=int, default=10_000, help="files in the tree (default: %(default)s)")
    parser.add_argument("--size", type=int, default=20_000, help="bytes a file (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=21, help="turns for what is fast (default: %(default)s)")
    options = parser.parse_args()
    with arena(options.dir) as place:
        root = os.path.join(place.path, "tree")
        contest = Contest(root, build(root, options.files, options.size))
        print(f"{options.files:,} files, {options.files * options.size / 1e6:,.0f} MB, {place.about}")
        few = max(3, options.rounds // 3)
        compare("first snapshot", few, contest.first, "xargs -P2 sha256sum", contest.sha256sum, 0.3)
        compare("unchanged tree", options.rounds, contest.ours, "git status", contest.status, 1.0)
        ours, theirs = contest.edited(contest.ours), contest.edited(contest.status)
        compare("one file in a hundred edited", few, ours, "git status", theirs, None)
        assert snapshot(root, contest.state).digest == snapshot(root, None).digest
        print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
