"""A workspace with a roadmap of twelve tasks for the unruly agent, a driver that is killed, and what must hold then."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple, TypeAlias

import holdfast
from holdfast.model.task import TaskRecord

HERE = Path(__file__).parent
UNRULY, DRIVE, SERVE = HERE / "unruly.py", HERE / "drive.py", HERE / "serve.py"
# How a worker ends that was told that its lease is over.
GIVEN_UP = 5
# name, how its agent behaves at first, what it needs
TASKS = (
    ("alpha", "works", ""),
    ("beta", "fails", ""),
    ("gamma", "lies", "alpha"),
    ("delta", "breaks", ""),
    ("epsilon", "crashes", "beta"),
    ("zeta", "hangs", ""),
    ("shared_one", "works", ""),
    ("shared_two", "works", ""),
    ("shared_three", "lies", "gamma"),
    ("eta", "works", "delta"),
    ("theta", "breaks", "epsilon"),
    ("iota", "works", "eta"),
)


Sitting: TypeAlias = subprocess.Popen[str]


class Ended(NamedTuple):
    """What is there when a run is over. `tree` holds the files' contents by name."""

    records: dict[str, TaskRecord]
    landings: Counter[str]
    commits: Counter[str]
    tree: dict[str, str]
    kills: int


def roadmap() -> str:
    lines = ["# Twelve tasks", "", "## Phase 1: All of it", ""]
    for name, _, needs in TASKS:
        after = f" (depends on {title(needs)})" if needs else ""
        lines.append(f"- [ ] {title(name)}{after}")
    return "\n".join(lines) + "\n"


def title(name: str) -> str:
    how = next(row[1] for row in TASKS if row[0] == name)
    return f"Create {name}.py ({how})"


def prepare(workspace: Path, config: Path, *, seconds: float = 0.05) -> None:
    """A repository under guard, with a check that compiles everything; the agent is in the user's configuration.

    `seconds` are how long the agent takes: the longer, the more often it can be killed before all is done.
    """
    workspace.mkdir(parents=True)
    (workspace / "ROADMAP.md").write_text(roadmap(), encoding="utf-8")
    (workspace / "Makefile").write_text("test:\n\tpython3 -m compileall -q .\n", encoding="utf-8")
    (workspace / ".gitignore").write_text("__pycache__/\n", encoding="utf-8")
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "base"]):
        subprocess.run(["git", *words], cwd=workspace, check=True)
    config.mkdir(parents=True, exist_ok=True)
    command = f'["{sys.executable}", "{UNRULY}", "{{task_file}}", "{seconds}"]'
    (config / "config.toml").write_text(f'[agents.unruly]\ncommand = {command}\nnetwork = "none"\n', encoding="utf-8")
    holdfast.init(str(workspace))


def sit(workspace: Path, parallel: int, landing: str, database: str = "", within_ms: int = 4_000) -> Sitting:
    words = [sys.executable, str(DRIVE), str(workspace), str(parallel), landing, database, str(within_ms)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def drive(workspace: Path, *, parallel: int, landing: str, kills: int, seed: int, within_ms: int) -> int:
    """Sitting after sitting until the run is over; the number of those that were killed."""
    chance, killed, end = random.Random(seed), 0, time.monotonic() + 3_000
    while True:
        child = sit(workspace, parallel, landing, within_ms=within_ms)
        try:
            # Early kills find the start, late ones a landing; both are wanted.
            out, err = child.communicate(timeout=chance.uniform(0.3, 6.0) if killed < kills else 600)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
            child.communicate()
            killed += 1
            continue
        assert child.returncode == 0, err[-4000:]
        state = out.split()[-1]
        assert state == "FINISHED", f"{state}\n{out[-2000:]}\n{err[-2000:]}"
        assert time.monotonic() < end, "it takes too long"
        return killed


class Crowd:
    """Workers that are killed, and frozen for longer than their lease, as a thread goes on."""

    def __init__(self, place: Path, workspace: Path, database: str, *, count: int = 3, lease: float = 6.0) -> None:
        self._place, self._workspace, self._database, self._lease = place, workspace, database, lease
        self._names = [f"worker-{number}" for number in range(count)]
        self._clone = place / "clone"
        subprocess.run(["git", "clone", "-q", str(workspace), str(self._clone)], check=True)
        with holdfast.open(str(workspace)) as hf:
            self._id = hf.id
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.killed = self.frozen = self.given_up = 0

    def start(self, name: str) -> None:
        words = [sys.executable, str(SERVE), str(self._place / name), str(self._clone), self._id, self._database, name]
        with (self._place / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen([*words, str(self._lease)], stdout=log, stderr=log)

    def tend(self) -> None:
        """Whoever has gone is started again."""
        for name in self._names:
            child = self._running.get(name)
            if child is None or child.poll() is not None:
                self.given_up += child is not None and child.returncode == GIVEN_UP
                self.start(name)

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait()
        self.killed += 1

    def freeze(self, name: str) -> None:
        """Longer than the lease; then it goes on as if nothing had been."""
        child = self._running[name]
        child.send_signal(signal.SIGSTOP)
        time.sleep(self._lease * 2.5)
        child.send_signal(signal.SIGCONT)
        self.frozen += 1

    def trouble(self, chance: random.Random) -> None:
        name = chance.choice(self._names)
        if self._running[name].poll() is None:
            (self.kill if chance.random() < 0.6 else self.freeze)(name)

    def end(self) -> None:
        for child in self._running.values():
            child.kill()
            child.wait()


def ended(workspace: Path, kills: int = 0) -> Ended:
    with holdfast.open(str(workspace)) as hf:
        records = dict(hf.runs.standing().records)
        landed = [row for row in hf.log(limit=-1) if row.status == "COMPLETED" and not row.intent.startswith("Tick ")]
        landings = Counter(row.intent for row in landed)
        assert hf.audit().ok
    log = subprocess.run(["git", "log", "--format=%s"], cwd=workspace, capture_output=True, text=True, check=True)
    commits = Counter(line for line in log.stdout.splitlines() if line.startswith("Create "))
    names = [name for name in workspace.iterdir() if name.is_file()]
    return Ended(records, landings, commits, {path.name: path.read_text(encoding="utf-8") for path in names}, kills)


def check(end: Ended) -> None:
    """Every task landed, once, verified, committed and ticked; nothing else did."""
    assert {record.state for record in end.records.values()} == {"COMPLETED"}
    assert len(end.records) == len(TASKS)
    assert set(end.landings.values()) == {1} and len(end.landings) == len(TASKS), end.landings
    assert set(end.commits.values()) == {1} and len(end.commits) == len(TASKS), end.commits
    assert end.tree["ROADMAP.md"].count("- [x]") == len(TASKS)
    for name, _, _ in TASKS:
        assert end.tree[f"{name}.py"] == f"VALUE = {name!r}\n"
    assert end.tree["register.txt"].split() == sorted(name for name, _, _ in TASKS if name.startswith("shared"))
