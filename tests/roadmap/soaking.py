"""A workspace with a roadmap of twelve tasks for the unruly agent, a driver that is killed, and what must hold then."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import psycopg

import holdfast
from holdfast.model.task import TaskRecord
from holdfast.store.blobs import Blobs
from holdfast.wiring import Holdfast

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
# What must have been measured when the agent says of itself that it does this.
MEASURED: Mapping[str, Mapping[str, object]] = {
    "fails": {"ending": "failed", "exit_code": 3},
    "lies": {"ending": "finished", "exit_code": 0, "changed_count": 0},
    "breaks": {"ending": "finished", "exit_code": 0, "changed_count": 1, "checks_failed": 1},
    "crashes": {"ending": "killed", "signal": signal.SIGKILL, "limit": ""},
    "hangs": {"ending": "limit", "limit": "time"},
}

Sitting: TypeAlias = subprocess.Popen[str]


class Told(NamedTuple):
    """One try of an agent, as the ledger has it: its own words, and what was measured beside them."""

    words: str
    measured: Mapping[str, object]


class Landing(NamedTuple):
    """What the gate let through: the tree that was to be, and the receipts it was shown; `inputs` of its decision."""

    tree: str
    receipts: tuple[Mapping[str, object], ...]


class Ended(NamedTuple):
    """What is there when a run is over. `tree` holds the files' contents by name, `landed` what was shown for each."""

    records: dict[str, TaskRecord]
    landings: Counter[str]
    commits: Counter[str]
    tree: dict[str, str]
    kills: int
    told: tuple[Told, ...]
    landed: tuple[Landing, ...]


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
    (workspace / "register.txt").write_text("", encoding="utf-8")
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
    """Workers that are killed, and frozen until they are given up, while they hold an item: only that is trouble."""

    def __init__(self, place: Path, workspace: Path, database: str, *, count: int = 3, lease: float = 6.0) -> None:
        self._place, self._workspace, self._database, self._lease = place, workspace, database, lease
        self._names = [f"worker-{number}" for number in range(count)]
        self._clone = place / "clone"
        subprocess.run(["git", "clone", "-q", str(workspace), str(self._clone)], check=True)
        with holdfast.open(str(workspace)) as hf:
            self._id = hf.id
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._begins: dict[str, int] = {}  # where in its log the life of a worker begins
        # While they held an item, by the engine's own tables, before and after the blow.
        self.killed = self.frozen = 0
        # Told that their lease was over, and gone because of that.
        self.given_up = 0

    def start(self, name: str) -> None:
        words = [sys.executable, str(SERVE), str(self._place / name), str(self._clone), self._id, self._database, name]
        with self._log(name).open("ab") as log:
            self._begins[name] = log.tell()
            self._running[name] = subprocess.Popen([*words, str(self._lease)], stdout=log, stderr=log)

    def tend(self) -> None:
        """Whoever has gone is started again."""
        for name in self._names:
            child = self._running.get(name)
            if child is None or child.poll() is not None:
                self.given_up += child is not None and child.returncode == GIVEN_UP
                self.start(name)

    def _log(self, name: str) -> Path:
        return self._place / f"{name}.log"

    def _works(self, name: str) -> bool:
        """By its own words in this life: one that is starting has items in the tables too, of the life before."""
        lines = self._log(name).read_bytes()[self._begins[name] :].decode().splitlines()
        begun = sum(line.startswith("works on ") for line in lines)
        return begun > sum(line.startswith(("worked ", "unworked ")) for line in lines)

    def holders(self) -> dict[str, str]:
        """Workers of ours that are at work on an item, as they say and the engine's tables say; and which."""
        statement = "SELECT executor_id, workflow_uuid FROM dbos.workflow_status WHERE status = 'PENDING'"
        try:
            with psycopg.connect(self._database) as connection:
                rows = connection.execute(statement).fetchall()
        except (psycopg.OperationalError, psycopg.errors.UndefinedTable):
            return {}  # it is away, or nobody has been there yet
        alive = {name for name, child in self._running.items() if child.poll() is None}
        return {name: item for name, item in rows if name in alive and self._works(name)}

    def newest_token(self) -> int:
        """1 where no item was ever taken from a worker."""
        with psycopg.connect(self._database) as connection:
            row = connection.execute("SELECT max(token) FROM holdfast.tokens").fetchone()
        return row[0] if row and row[0] else 1

    def kill(self) -> bool:
        """One that holds an item, at once; False when nobody did by then."""
        return self._struck(signal.SIGKILL) is not None

    def freeze(self) -> bool:
        """One that holds an item, until it is given up; then it goes on as if nothing had been, and has to be told."""
        name = self._struck(signal.SIGSTOP)
        if name is None:
            return False
        try:
            end = time.monotonic() + 10 * self._lease
            while not self._is_given_up(name):
                assert time.monotonic() < end, f"{name} is silent, and nobody gives it up"
                time.sleep(0.2)
        finally:
            self._running[name].send_signal(signal.SIGCONT)
        assert self._running[name].wait(60) == GIVEN_UP
        return True

    def _is_given_up(self, name: str) -> bool:
        with psycopg.connect(self._database) as connection:
            row = connection.execute("SELECT given_up FROM holdfast.workers WHERE name = %s", (name,)).fetchone()
        return bool(row and row[0])

    def _struck(self, number: signal.Signals) -> str | None:
        """Who was hit while it held an item, and holds it still now that it can do nothing about it."""
        name, item = next(iter(self.holders().items()), ("", ""))
        if not name:
            return None
        child = self._running[name]
        child.send_signal(number)
        kept = self.holder_of(item) == name
        if number == signal.SIGKILL:
            child.wait()
            self.killed += kept
        elif kept:
            self.frozen += 1
        else:
            child.send_signal(signal.SIGCONT)
        return name if kept else None

    def holder_of(self, item: str) -> str:
        """Whose the item is, if it is still under way."""
        statement = "SELECT executor_id FROM dbos.workflow_status WHERE status = 'PENDING' AND workflow_uuid = %s"
        with psycopg.connect(self._database) as connection:
            row = connection.execute(statement, (item,)).fetchone()
        return str(row[0]) if row else ""

    def end(self) -> None:
        for child in self._running.values():
            self.given_up += child.poll() == GIVEN_UP
            child.kill()
            child.wait()


def ended(workspace: Path, kills: int = 0) -> Ended:
    with holdfast.open(str(workspace)) as hf:
        records = dict(hf.runs.standing().records)
        rows = [row for row in hf.log(limit=-1) if row.status == "COMPLETED" and not row.intent.startswith("Tick ")]
        landings = Counter(row.intent for row in rows)
        assert hf.audit().ok
        told, landed = told_in(hf), tuple(landing_of(hf, str(row.summary["decision"])) for row in rows)
    log = subprocess.run(["git", "log", "--format=%s"], cwd=workspace, capture_output=True, text=True, check=True)
    commits = Counter(line for line in log.stdout.splitlines() if line.startswith("Create "))
    tree = {path.name: path.read_text(encoding="utf-8") for path in workspace.iterdir() if path.is_file()}
    return Ended(records, landings, commits, tree, kills, told, landed)


def told_in(hf: Holdfast) -> tuple[Told, ...]:
    bodies: list[Any] = [entry.body for entry in hf.ledger.entries() if entry.kind == "delegation"]
    tries = [attempt for body in bodies for attempt in body["attempts"]]
    return tuple(Told(attempt["claimed"]["words"], attempt["measured"]) for attempt in tries)


def landing_of(hf: Holdfast, decision: str) -> Landing:
    """From the inputs of the decision, which the ledger names by digest: no kill during a landing can lose them."""
    (body,) = [entry.body for entry in hf.ledger.entries() if entry.kind == "decision" and entry.body["id"] == decision]
    inputs = json.loads(zlib.decompress(Blobs(hf.site.state).get(str(body["inputs"]))))
    return Landing(inputs["report"]["predicted_tree"], tuple(inputs["receipts"]))


def check(end: Ended) -> None:
    """Every task landed, once, verified, committed and ticked; nothing else did; and the agent was truly unruly."""
    assert {record.state for record in end.records.values()} == {"COMPLETED"}
    assert len(end.records) == len(TASKS)
    assert set(end.landings.values()) == {1} and len(end.landings) == len(TASKS), end.landings
    assert set(end.commits.values()) == {1} and len(end.commits) == len(TASKS), end.commits
    assert end.tree["ROADMAP.md"].count("- [x]") == len(TASKS)
    for name, _, _ in TASKS:
        assert end.tree[f"{name}.py"] == f"VALUE = {name!r}\n"
    assert end.tree["register.txt"].split() == sorted(name for name, _, _ in TASKS if name.startswith("shared"))
    check_verified(end)
    check_unruly(end)


def check_verified(end: Ended) -> None:
    """The gate saw, for each landing, receipts of the very tree that was to be; the project's own tests among them."""
    assert len(end.landed) == len(TASKS)
    for landing in end.landed:
        assert any(receipt["kind"] == "tests" for receipt in landing.receipts), landing
        assert all(receipt["passed"] for receipt in landing.receipts), landing
        assert {receipt["tree_digest"] for receipt in landing.receipts} == {landing.tree}


def check_unruly(end: Ended) -> None:
    """Each task's agent did at least once what its schedule says, by its own words and by what was measured of it."""
    for name, how, _ in TASKS:
        if how != "works":
            tries = [told.measured for told in end.told if f"{name} {how}." in told.words]
            assert tries, f"the agent of {name} never said that it {how}"
            assert any(MEASURED[how].items() <= dict(measured).items() for measured in tries), (name, tries)
    collided = {task for task, record in end.records.items() if "conflict" in {each.category for each in record.tried}}
    assert collided, "nobody's work collided with anybody's"
    assert all("shared" in task for task in collided), collided
