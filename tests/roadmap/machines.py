"""Several machines on one: each is a HOME of its own, in which the real program runs as a process.

base = Base(tmp_path, cluster.url("one"), tasks=3)      the workspace, its repository, its roadmap
worker = base.worker("far")                             a machine with nothing but its own clone and configuration
run = base.run("--parallel", "2")                       `holdfast run --workers-only` over there
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

import holdfast

PACKAGE = str(Path(holdfast.__file__).parent.parent)
# Takes as long as its number and its task say, and writes one file.
AGENT = """
import random, re, sys, time
words = open(sys.argv[1]).read()
name = re.search(r"Create (\\w+)\\.py", words).group(1)
time.sleep(random.Random(name).uniform(float(sys.argv[2]), float(sys.argv[3])))
open(name + ".py", "w").write("x = 1\\n")
"""


class Process:
    """The program on one of the machines; what it says is in files, so that it never waits for a reader."""

    def __init__(self, place: Path, name: str, words: tuple[str, ...], environment: dict[str, str], cwd: Path) -> None:
        self.out, self.err = place / f"{name}.out", place / f"{name}.err"
        with self.out.open("ab") as out, self.err.open("ab") as err:
            self.child = subprocess.Popen(
                [sys.executable, "-m", "holdfast", *words], stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                cwd=cwd, env=environment,
            )  # fmt: skip

    @property
    def told(self) -> str:
        return self.out.read_text() + self.err.read_text()

    def says(self, words: str, seconds: float = 60.0) -> None:
        wait_until(lambda: re.search(words, self.told), seconds, lambda: f"{words!r} was never said:\n{self.told}")

    def ended(self, seconds: float = 120.0) -> int:
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end:\n{self.told[-3000:]}") from None

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def kill(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()


class Machine:
    """A HOME of its own. Without an agent its configuration is empty."""

    def __init__(self, place: Path, *, agent: str = "") -> None:
        self.place = place
        self.home = place / "home"
        config = self.home / ".config" / "holdfast"
        config.mkdir(parents=True)
        (config / "config.toml").write_text(agent)
        (config / "config.toml").chmod(0o600)
        self._number = 0
        self.processes: list[Process] = []

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "HOLDFAST_"))}
        return {**kept, "HOME": str(self.home), "PYTHONPATH": PACKAGE, "TERM": "dumb"}

    def start(self, *words: str, cwd: Path | None = None) -> Process:
        self._number += 1
        process = Process(self.place, f"{words[0]}-{self._number}", words, self.environment, cwd or self.place)
        self.processes.append(process)
        return process

    def end(self) -> None:
        for process in self.processes:
            process.kill()


class Base(Machine):
    """The machine with the workspace: a repository, a roadmap of independent tasks, and the shared database."""

    def __init__(
        self, place: Path, database: str, *, tasks: int = 2, seconds: tuple[float, float] = (0.0, 0.1)
    ) -> None:
        place.mkdir(parents=True, exist_ok=True)
        script = place / "agent.py"
        script.write_text(AGENT)
        command = ["python3", str(script), "{task_file}", *map(str, seconds)]
        self.agent = f'[agents.mine]\ncommand = {json.dumps(command)}\nnetwork = "none"\n'
        super().__init__(place / "base", agent=self.agent)
        self.database, self._tasks, self.machines = database, tasks, list[Machine]()
        self.workspace = self.place / "workspace"
        self.workspace.mkdir()
        rows = "".join(f"- [ ] 1.{number} Create t{number}.py\n" for number in range(1, tasks + 1))
        (self.workspace / "ROADMAP.md").write_text(f"# Plan\n\n## Phase 1: All\n\n{rows}")
        (self.workspace / "Makefile").write_text("test:\n\tpython3 -m compileall -q .\n")
        (self.workspace / ".gitignore").write_text("__pycache__/\n")
        for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "base"]):
            self.git(*words)
        assert self.tells("init")[0] == 0
        self.id = str(self.document("status")["id"])

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.workspace, check=True, capture_output=True, text=True)
        return done.stdout

    def tells(self, *words: str) -> tuple[int, str]:
        """Exit status and output of a verb that ends at once."""
        process = self.start(*words, cwd=self.workspace)
        return process.ended(60), process.told

    def document(self, *words: str) -> dict[str, Any]:
        process = self.start(*words, "--json", cwd=self.workspace)
        process.ended(60)
        found: dict[str, Any] = json.loads(process.out.read_text())
        return found

    def run(self, *words: str) -> Process:
        given = ("run", "--agent", "mine", "--yes", "--workers-only", "--database", self.database, *words)
        return self.start(*given, cwd=self.workspace)

    def resume(self, *words: str) -> Process:
        return self.start("resume", "--yes", "--database", self.database, *words, cwd=self.workspace)

    def machine(self, name: str, *, agent: str | None = None, commits: bool = True) -> Machine:
        """Another one, with a clone; with `commits` False, of a repository that knows nothing of this one's."""
        made = Machine(self.place.parent / name, agent=self.agent if agent is None else agent)
        if commits:
            words = ["git", "clone", "-q", str(self.workspace), str(made.place / "clone")]
            subprocess.run(words, check=True)
        else:
            subprocess.run(["git", "init", "-q", str(made.place / "clone")], check=True)
        self.machines.append(made)
        return made

    def serve(self, machine: Machine, *, lease: float = 6.0, folder: Path | None = None) -> Process:
        """`holdfast worker` there, named as its directory is."""
        given = ("worker", "--database", self.database, "--workspace", self.id, "--lease", str(lease))
        place = ("--repository", str(machine.place / "clone"), "--name", machine.place.name)
        return machine.start(*given, *place, *(("--folder", str(folder)) if folder else ()))

    def worker(self, name: str, *, lease: float = 6.0) -> Process:
        return self.serve(self.machine(name), lease=lease)

    def tasks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.document("tasks")["tasks"]
        return found

    def check_done(self) -> None:
        """Every task landed and was committed, once, and none needed more than one attempt."""
        tasks = self.tasks()
        assert [task["status"] for task in tasks] == ["COMPLETED"] * self._tasks
        assert [(task["attempts"], task["tried"]) for task in tasks] == [(1, [])] * self._tasks
        subjects = self.git("log", "--format=%s").splitlines()
        assert sorted(subjects) == sorted(["base", *(f"1.{n} Create t{n}.py" for n in range(1, self._tasks + 1))])
        assert (self.workspace / "ROADMAP.md").read_text().count("- [x]") == self._tasks

    def orders(self) -> list[str]:
        """The ids of what stands in line, or is worked at."""
        try:
            rows = self.sql("SELECT workflow_uuid FROM dbos.workflow_status WHERE name = 'work'")
        except psycopg.errors.UndefinedTable:
            return []  # the run has not begun yet
        return [str(row[0]) for row in rows]

    def sql(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database, autocommit=True) as connection:
            found = connection.execute(statement, values or None)  # type: ignore[arg-type]
            return found.fetchall() if found.description else []

    def end(self) -> None:
        for machine in self.machines:
            machine.end()
        super().end()


def wait_until(true: Callable[[], object], seconds: float = 60.0, why: Callable[[], str] = lambda: "") -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, why() or "it never came to that"
        time.sleep(0.1)
