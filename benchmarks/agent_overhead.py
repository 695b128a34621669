"""What Holdfast adds to the work of an agent, on 10,000 files, against doing the same by hand with git.

    python benchmarks/agent_overhead.py                 on a default ext4 in a loop image where root is had
    python benchmarks/agent_overhead.py --dir PLACE     in a directory of its own there
    python benchmarks/agent_overhead.py --profile       and the functions that cost most

The agent is the smallest there is: `cp` writes its task into a file; the project has no checks. So everything but
some milliseconds of `cp`, which is measured by itself and taken off, is overhead: looks at the tree, a shadow, a
sandbox with a HOME, capture, the search for checks, the ledger's account of claim and measurement, the gate, a signed
approval, a durable landing, and the material for an undo.

The peer: `git worktree add`, the same `cp` there, `git add -A`, `git diff --cached`, `git commit`, a merge into the
real tree, and the work tree removed. It confines nobody, asks nobody and cannot see what git ignores; nothing it
writes to the work tree is durable.

Contestants take turns in one run, and medians are compared. Ours are calls; `whole command` includes start-up.
Parts are exclusive of each other: a look at the tree inside the checks counts as a look.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import pstats
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pkgutil import resolve_name
from typing import Any
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "src"))

from _measure import Verdict, arena, clocked, milliseconds, run, turns
from cycle import alone, quiet
from shadow import FILE_BYTES, Tree

import holdfast
from holdfast.errors import SandboxUnavailable

GOAL = 0.15
AGENT = "cp"
EDITED = "notes.txt"
COPY = "/usr/bin/cp"
CONFIGURATION = f"""
[agents.{AGENT}]
command = ["{COPY}", "{{task_file}}", "{EDITED}"]
network = "none"
"""

# Where the time goes: part, owner, name. Of a context manager, marked (), entry and exit count.
PARTS = (
    ("looks at the tree", "holdfast.engine.simulator", "snapshot"),
    ("looks at the tree", "holdfast.engine.checking", "snapshot"),
    ("looks at the tree", "holdfast.engine.pipeline", "snapshot"),
    ("shadow made and removed", "holdfast.engine.simulator", "open_shadow()"),
    ("sandbox start, agent, end", "holdfast.agents.bench", "run_confined"),
    ("capture", "holdfast.workspace.shadow:Shadow", "capture"),
    ("search for checks", "holdfast.engine.checking:Checking", "verify_in"),
    ("search for checks", "holdfast.engine.checking:Checking", "verify"),
    ("ledger: claim and measurement", "holdfast.engine.pipeline:Pipeline", "note_delegation"),
    ("breaker", "holdfast.engine.breaker:Breakers", "admit"),
    ("breaker", "holdfast.engine.breaker:Breakers", "report"),
    ("logs and transcripts kept", "holdfast.store.blobs:Blobs", "put"),
    ("simulation kept", "holdfast.engine.simulator", "save_simulation"),
    ("configuration read", "holdfast.engine.governance:Governance", "settings"),
    ("gate, and its ledger entries", "holdfast.engine.pipeline:Pipeline", "decide"),
    ("approval, and its ledger entry", "holdfast.wiring:Holdfast", "approve"),
    ("hard gates", "holdfast.engine.governance:Governance", "require_open_gates"),
    ("apply, and its ledger entry", "holdfast.engine.pipeline:Pipeline", "_execute"),
)


class Parts:
    """A stopwatch for named functions: the time of one is without that of others it calls."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._inner: list[float] = []

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        self._inner.append(0.0)
        start = time.perf_counter()
        try:
            yield
        finally:
            whole = time.perf_counter() - start
            self.seconds[part] += whole - self._inner.pop()
            if self._inner:
                self._inner[-1] += whole

    def function(self, part: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*words: Any, **options: Any) -> Any:
            self.calls[part] += 1
            with self.timed(part):
                return plain(*words, **options)

        return timed

    def context(self, part: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def timed(*words: Any, **options: Any) -> Iterator[Any]:
            self.calls[part] += 1
            with ExitStack() as stack:
                with self.timed(part):
                    entered = stack.enter_context(plain(*words, **options))
                yield entered
                with self.timed(part):
                    stack.close()

        return timed

    @contextmanager
    def watching(self) -> Iterator[None]:
        with ExitStack() as stack:
            for part, place, name in PARTS:
                owner, attribute = resolve_name(place), name.removesuffix("()")
                wrap = self.context if name.endswith("()") else self.function
                stack.enter_context(mock.patch.object(owner, attribute, wrap(part, getattr(owner, attribute))))
            yield


class Ours:
    """One workspace; every turn is another task, so that something changes."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        holdfast.init(tree.root)
        self._hf = holdfast.open(tree.root)
        self._turn = 0

    def task(self) -> float:
        """Through all gates, with one person's signed approval: no test speaks for this change, so one is needed."""
        return self._timed(self._calls)

    def command(self) -> float:
        """`holdfast apply "words" --agent cp --yes`, from a shell."""
        words = [sys.executable, "-m", "holdfast", "-C", self.tree.root, "apply"]
        return self._timed(lambda: run([*words, self._words(), "--agent", AGENT, "--attempts", "1", "--yes"]))

    def _calls(self) -> None:
        hf = self._hf
        simulated = hf.simulate(hf.task(self._words(), agent=AGENT, attempts=1))
        verified = hf.verify(simulated)
        decision = hf.evaluate(simulated, verified)
        hf.execute(simulated, approved_by="bench", verified=verified, decision=decision)

    def _words(self) -> str:
        return f"Note the number {self._turn}"

    def _timed(self, work: Callable[[], object]) -> float:
        self._turn += 1
        quiet(self.tree.root)
        seconds = clocked(work)
        with open(os.path.join(self.tree.root, EDITED), encoding="utf-8") as file:
            if self._words() not in file.read():
                raise SystemExit("the work of the agent did not land")
        return seconds

    def close(self) -> None:
        self._hf.close()


class Theirs:
    """git's way; every turn is another commit."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._turn = 0
        self._task = f"{tree.root}.task"
        for name in ("name", "email"):
            run(["git", "-C", tree.root, "config", f"user.{name}", "bench@example.invalid"])

    def by_hand(self) -> float:
        self._write()
        seconds = clocked(self._cycle)
        with open(os.path.join(self._tree.root, EDITED), encoding="utf-8") as file:
            if file.read() != f"Note the number {self._turn}\n":
                raise SystemExit("git did not land it")
        return seconds

    def edit(self) -> float:
        """The agent's own part."""
        self._write()
        return clocked(lambda: run([COPY, self._task, f"{self._task}.copy"]))

    def _write(self) -> None:
        self._turn += 1
        with open(self._task, "w", encoding="ascii") as file:
            file.write(f"Note the number {self._turn}\n")
        quiet(self._tree.root)

    def _cycle(self) -> None:
        root, beside = self._tree.root, self._tree.beside
        run(["git", "-C", root, "worktree", "add", "-q", "-b", "work", beside])
        run([COPY, self._task, EDITED], cwd=beside)
        run(["git", "-C", beside, "add", "-A"])
        run(["git", "-C", beside, "diff", "--cached", "--binary", f"--output={beside}.patch"])
        run(["git", "-C", beside, "commit", "-q", "-m", f"turn {self._turn}"])
        run(["git", "-C", root, "merge", "-q", "--ff-only", "work"])
        run(["git", "-C", root, "worktree", "remove", beside])
        run(["git", "-C", root, "branch", "-q", "-d", "work"])


def measure(place: str, files: int, rounds: int, *, profiled: bool) -> None:
    one, other = os.path.join(place, "ours"), os.path.join(place, "theirs")
    os.makedirs(one)
    os.makedirs(other)
    ours, theirs = Ours(alone(Tree(one, files))), Theirs(alone(Tree(other, files)))
    times = turns(
        rounds,
        {
            "by hand with git": theirs.by_hand,
            "ours": ours.task,
            "ours, whole command": ours.command,
            "(the agent's own part: cp)": theirs.edit,
            "(a shadow and `true` in the sandbox)": ours.tree.in_the_sandbox,
        },
    )
    base, own = times["by hand with git"], times["(the agent's own part: cp)"]
    for name, seconds in times.items():
        print(f"  {milliseconds(seconds):>10} ms  {name:<38}{seconds / base:8.3f} ×")
    tell_parts(ours, rounds)
    if profiled:
        tell_profile(ours, rounds)
    ours.close()
    what = "overhead of a task / the way by hand, the agent's own part taken off both"
    print(Verdict(what, (times["ours"] - own) / (base - own), GOAL).line(), flush=True)


def tell_parts(ours: Ours, rounds: int) -> None:
    parts = Parts()
    with parts.watching():
        wholes = [ours.task() for _ in range(rounds)]
    print(f"where it goes, mean of {rounds} more tasks of {milliseconds(statistics.fmean(wholes))} ms:")
    known = sorted(parts.seconds.items(), key=lambda item: -item[1])
    for part, seconds in known:
        each = parts.calls[part] / rounds
        print(f"  {milliseconds(seconds / rounds):>10} ms  {part}{f', {each:g} times' if each > 1 else ''}")
    print(f"  {milliseconds((sum(wholes) - sum(parts.seconds.values())) / rounds):>10} ms  the rest")


def tell_profile(ours: Ours, rounds: int) -> None:
    profile = cProfile.Profile()
    with profile:
        for _ in range(rounds):
            ours.task()
    pstats.Stats(profile).sort_stats("tottime").print_stats(40)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=None, help="where to work")
    parser.add_argument("--files", type=int, default=10_000, help="files in the tree (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="turns (default: %(default)s)")
    parser.add_argument("--profile", action="store_true", help="also print the functions that cost most")
    options = parser.parse_args()
    with arena(options.dir) as place:
        for variable, name in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
            os.environ[variable] = os.path.join(place.path, name)
        configured = os.path.join(place.path, "config", "holdfast")
        os.makedirs(configured, mode=0o700)
        with open(os.path.join(configured, "config.toml"), "w", encoding="ascii") as file:
            file.write(CONFIGURATION)
        print(f"one file written by an agent among {options.files:,} of {FILE_BYTES} bytes, {place.about}")
        try:
            measure(place.path, options.files, options.rounds, profiled=options.profile)
        except SandboxUnavailable as error:
            print(f"no sandbox here, so no agent can work: {error}")


if __name__ == "__main__":
    main()
