"""The whole cycle on 10,000 files: snapshot, shadow, five edits, capture, durable apply.

Three ways: the parts alone, with the edits written straight into the shadow's layer, as the goal's prototype did it;
a plan whose own steps are the edits, rehearsed in memory, so that there is neither shadow nor sandbox; and a plan that
runs a command, sandboxed in a shadow, so that two more programs are started, in namespaces of their own.

    python benchmarks/cycle.py                 on a default ext4 in a loop image where root is had
    python benchmarks/cycle.py --dir PLACE     in a directory of its own there

The peer is how it is done with git: a work tree to work in, the same command there, `git add`, `git diff`,
`git apply` in the real tree, and the work tree removed. It is not durable, sees nothing that git ignores,
confines nobody, and cannot go back; `+ syncfs` makes it durable.

Contestants take turns in one run, and medians are compared. Ours are calls; `whole command` includes start-up.
All ways are measured against the one goal, and the parts of their turns are told.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TypeVar

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "src"))

from _measure import Verdict, arena, clocked, environment, milliseconds, run, turns
from shadow import FILE_BYTES, Tree
from snapshot import SETTLED_S

import holdfast
from holdfast.disk.calls import CALLS
from holdfast.engine.simulator import Simulated
from holdfast.errors import SandboxUnavailable
from holdfast.model.plan import Inline, Plan, Run, Write
from holdfast.workspace.capture import Captured
from holdfast.workspace.folder import keep
from holdfast.workspace.shadow import open_shadow
from holdfast.workspace.shifting import our_shift
from holdfast.workspace.transaction import Transaction, new_txn
from holdfast.workspace.tree import snapshot

T = TypeVar("T")
EDITS = 5
GOAL = 0.05
SCRIPT = 'for path; do printf "%s\\n" "$path" >> "$path"; done'


class Ours:
    """One workspace; every turn edits the files once more."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        holdfast.init(tree.root)
        self._hf = holdfast.open(tree.root)
        self.paths = tree.paths[:: len(tree.paths) // EDITS][:EDITS]
        self._turn = 0
        # Seconds of each part of a turn, by who took it.
        self.parts: dict[str, dict[str, list[float]]] = {}

    def _plan(self) -> Plan:
        self._turn += 1
        return Plan(f"turn {self._turn}", (Run(("/bin/sh", "-c", SCRIPT, "sh", *self.paths)),))

    def _own_steps(self) -> Plan:
        """The same edits, known beforehand."""
        self._turn += 1
        steps = (Write(path, Inline(self._read(path) + f"{path}\n".encode())) for path in self.paths)
        return Plan(f"turn {self._turn}", tuple(steps))

    def parts_alone(self) -> float:
        """What the goal's prototype did, with every check of ours."""
        return self._timed(lambda plan: self._landed("the shadow's", plan, self._captured), self._own_steps())

    def core(self) -> float:
        """Without gates, ledger and records, but with every check of ours."""
        return self._timed(lambda plan: self._landed("a command's", plan), self._plan())

    def core_own(self) -> float:
        """The same without a program."""
        return self._timed(lambda plan: self._landed("the plan's own", plan), self._own_steps())

    def whole(self) -> float:
        """With the write gate, a signed approval, the five hard gates, the ledger, undo material and records."""
        return self._timed(self._executed, self._plan())

    def whole_own(self) -> float:
        return self._timed(self._executed, self._own_steps())

    def command(self) -> float:
        """`holdfast apply FILE --yes`, from a shell."""
        plan = self._plan()
        file = os.path.join(os.path.dirname(self.tree.root), "change.json")
        steps = [{"run": list(step.argv)} for step in plan.steps if isinstance(step, Run)]
        with open(file, "w", encoding="ascii") as out:
            json.dump({"intent": plan.intent, "steps": steps}, out)
        argv = [sys.executable, "-m", "holdfast", "-C", self.tree.root, "apply", file, "--yes"]
        return self._timed(lambda _: run(argv), plan)

    def _executed(self, plan: Plan) -> None:
        self._hf.execute(self._hf.simulate(plan), approved_by="bench")

    def _captured(self, plan: Plan) -> Captured:
        """The look at the workspace, a shadow with the edits in it, and what is captured of that."""
        site = self._hf.site
        base = snapshot(site.path, site.state.path)
        with open_shadow(site, "overlay") as shadow:
            for step in plan.steps:
                if isinstance(step, Write) and isinstance(step.content, Inline):
                    copied_up(shadow.view.layers[-1].upper, step.path, step.content.data)
            return shadow.capture((), base)

    def _landed(self, whose: str, plan: Plan, rehearsed: Callable[[Plan], Simulated | Captured] | None = None) -> None:
        parts = self.parts.setdefault(whose, {})

        def part(name: str, work: Callable[[], T]) -> T:
            start = time.perf_counter()
            done = work()
            parts.setdefault(name, []).append(time.perf_counter() - start)
            return done

        site, txn = self._hf.site, new_txn()
        simulated = part("simulate", lambda: (rehearsed or self._hf.simulate)(plan))
        transaction = Transaction(site, txn, {"version": 1, "intent": plan.intent})
        part("prepare", lambda: transaction.prepare(simulated.change_set, simulated.seen, simulated.sources))
        part("apply", transaction.apply)
        part("verify", transaction.verify)
        part("commit", transaction.commit)
        part("keep", lambda: keep(site, txn))

    def _timed(self, work: Callable[[Plan], object], plan: Plan) -> float:
        before = self._sizes()
        quiet(self.tree.root)
        seconds = clocked(lambda: work(plan))
        longer = [len(path) + 1 for path in self.paths]
        if self._sizes() != [size + more for size, more in zip(before, longer, strict=True)]:
            raise SystemExit("the files were not edited")
        return seconds

    def _sizes(self) -> list[int]:
        return [os.stat(os.path.join(self.tree.root, path)).st_size for path in self.paths]

    def _read(self, path: str) -> bytes:
        with open(os.path.join(self.tree.root, path), "rb") as file:
            return file.read()

    def close(self) -> None:
        self._hf.close()


def copied_up(upper: str, path: str, data: bytes) -> None:
    """A file in a layer as the kernel leaves it there when a program in the sandbox has written it."""
    owner, folder = our_shift(), upper
    for name in path.split("/")[:-1]:
        folder = os.path.join(folder, name)
        os.mkdir(folder, 0o755)
        os.chown(folder, owner, owner)
    with open(os.path.join(upper, path), "wb") as file:
        file.write(data)
        os.fchmod(file.fileno(), 0o644)
        os.fchown(file.fileno(), owner, owner)


class Theirs:
    """git's way; the tree is put back after every turn."""

    def __init__(self, tree: Tree, paths: list[str]) -> None:
        self._tree, self._paths = tree, paths

    def pipeline(self) -> float:
        return self._timed(durable=False)

    def durable(self) -> float:
        return self._timed(durable=True)

    def _timed(self, *, durable: bool) -> float:
        run(["git", "-C", self._tree.root, "checkout", "-q", "--", "."])
        quiet(self._tree.root)
        seconds = clocked(lambda: self._cycle(durable=durable))
        status = ["git", "-C", self._tree.root, "status", "--porcelain"]
        changed = subprocess.run(status, capture_output=True, env=environment(), check=True).stdout.splitlines()
        if len(changed) != EDITS:
            raise SystemExit(f"git changed {len(changed)} files")
        return seconds

    def _cycle(self, *, durable: bool) -> None:
        root, beside = self._tree.root, self._tree.beside
        patch = f"{beside}.patch"
        run(["git", "-C", root, "worktree", "add", "-q", "--detach", beside])
        run(["/bin/sh", "-c", SCRIPT, "sh", *self._paths], cwd=beside)
        run(["git", "-C", beside, "add", "-A"])
        run(["git", "-C", beside, "diff", "--cached", "--binary", f"--output={patch}"])
        run(["git", "-C", root, "apply", "--whitespace=nowarn", patch])
        if durable:
            sync(root)
        run(["git", "-C", root, "worktree", "remove", "--force", beside])


def sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        CALLS.sync_file_system(fd)
    finally:
        os.close(fd)


def quiet(folder: str) -> None:
    """A disk with nothing to do, and no file so young that somebody has to look twice."""
    sync(folder)
    time.sleep(SETTLED_S)


def alone(tree: Tree) -> Tree:
    """Wait for what git does by itself after a commit of so many objects."""
    while os.path.exists(os.path.join(tree.root, ".git", "gc.pid")):
        time.sleep(SETTLED_S)
    return tree


def measure(place: str, files: int, rounds: int) -> None:
    one, other = os.path.join(place, "ours"), os.path.join(place, "theirs")
    os.makedirs(one)
    os.makedirs(other)
    ours = Ours(alone(Tree(one, files)))
    theirs = Theirs(alone(Tree(other, files)), ours.paths)
    times = turns(
        rounds,
        {
            "git worktree pipeline": theirs.pipeline,
            "git worktree pipeline + syncfs": theirs.durable,
            "the parts alone, without gates and ledger": ours.parts_alone,
            "a command's edits, without gates and ledger": ours.core,
            "a command's edits, gates and ledger included": ours.whole,
            "the plan's own edits, without gates and ledger": ours.core_own,
            "the plan's own edits, gates and ledger included": ours.whole_own,
            "a command's edits, whole command": ours.command,
            "(a shadow and `true` in the sandbox)": ours.tree.in_the_sandbox,
        },
    )
    ours.close()
    base = times["git worktree pipeline"]
    for name, seconds in times.items():
        print(f"  {milliseconds(seconds):>10} ms  {name:<50}{seconds / base:8.3f} ×")
    for whose, parts in ours.parts.items():
        told = ", ".join(f"{name} {milliseconds(statistics.median(taken))}" for name, taken in parts.items())
        print(f"  {whose} edits, in ms: {told}")
    for name in (name for name in times if name.endswith(("without gates and ledger", "gates and ledger included"))):
        print(Verdict(f"{name} / git worktree pipeline", times[name] / base, GOAL).line(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=None, help="where to work")
    parser.add_argument("--files", type=int, default=10_000, help="files in the tree (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="turns (default: %(default)s)")
    options = parser.parse_args()
    with arena(options.dir) as place:
        for variable, name in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
            os.environ[variable] = os.path.join(place.path, name)
        print(f"{EDITS} edits among {options.files:,} files of {FILE_BYTES} bytes, {place.about}")
        try:
            measure(place.path, options.files, options.rounds)
        except SandboxUnavailable as error:
            print(f"no sandbox here, so nothing can be run in a shadow: {error}")


if __name__ == "__main__":
    main()
