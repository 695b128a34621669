"""Recoveries as data: one file each, with a small project, an agent that goes wrong on schedule, and what follows.

    recoveries/NAME.toml
        story, roadmap, options, config, [files]     what there is, and how it is run
        [[asked]]    each time that an agent is asked for a task, in the order of that task: what it must have been
                     told (`told`, `untold`), what it does (`do`), and whether that lands
        [[failed]]   each attempt that did not land, in order: class, strategy, and words of the reason
        [[ends]]     where each task stands at the end

A person takes part too: `answers` are given when a run waits for somebody, one after the other, and `meanwhile` is what
somebody else writes into the workspace when an agent is asked. Where a file has that, its `[[asked]]` stand in the
order in which they happen, over all tasks.

Invariants
  C1  An agent is asked exactly as often as the file says, no more and no less.
  C2  What must stand is computed from the askings that land, and compared byte for byte with what does.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from holdfast.engine.roadmap_runs import Crew
from holdfast.model.agent import Began
from holdfast.model.run import AgentSeen, RunEvent, RunOptions, RunRecord
from holdfast.model.task import TaskRecord
from holdfast.testing.agents import Act, Delete, Exit
from holdfast.testing.schedule import Asking, ScheduledAgent
from holdfast.testing.script import EditFile, Hang, Say, Shell, WriteFile

FOLDER = Path(__file__).parent / "recoveries"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))
ROADMAP, PLAYER = "ROADMAP.md", "player"
_ACTS: dict[str, type[Act]] = {
    "say": Say, "write": WriteFile, "edit": EditFile, "shell": Shell, "hang": Hang, "delete": Delete, "exit": Exit,
}  # fmt: skip
# Tools of the project that its checks use; they are those that check Holdfast itself.
_PYTHON = "{python}"


class Asked(NamedTuple):
    """`task` are words of its title; `told` and `untold` are words of the text that the agent is given."""

    task: str
    do: tuple[Act, ...]
    agent: str = PLAYER
    told: tuple[str, ...] = ()
    untold: tuple[str, ...] = ()
    lands: bool = False
    meanwhile: Mapping[str, str] = {}

    @property
    def writes(self) -> dict[str, str]:
        return {act.path: act.content for act in self.do if isinstance(act, WriteFile)}


class Failed(NamedTuple):
    """`agent` is who failed; `waits` whether it is tried again only after a while."""

    task: str
    category: str
    strategy: str
    because: str
    agent: str = PLAYER
    waits: bool = False


class Ends(NamedTuple):
    """`because` are words of what the record says; `parts` is into how many it was taken apart."""

    task: str
    state: str
    because: str = ""
    parts: int = 0


class Answered(NamedTuple):
    """A person's word, and the words that they were shown with the question."""

    task: str
    shown: str
    yes: bool = True


class Recovery(NamedTuple):
    name: str
    story: str
    roadmap: str
    files: Mapping[str, str]
    asked: tuple[Asked, ...]
    failed: tuple[Failed, ...]
    ends: tuple[Ends, ...]
    commits: tuple[str, ...] = ()
    options: RunOptions = RunOptions()
    config: str = ""
    answers: tuple[Answered, ...] = ()
    run: str = "FINISHED"

    def of(self, agent: str, task: str) -> tuple[Asked, ...]:
        return tuple(row for row in self.asked if (row.agent, row.task) == (agent, task))

    def agents(self) -> dict[str, ScheduledAgent]:
        return {name: self._agent(name) for name in sorted({row.agent for row in self.asked})}

    def _agent(self, name: str) -> ScheduledAgent:
        tasks = dict.fromkeys(row.task for row in self.asked if row.agent == name)
        return ScheduledAgent({task: [row.do for row in self.of(name, task)] for task in tasks}, name=name)

    def stands(self) -> dict[str, str]:
        """C2. Every file but the roadmap; what others wrote meanwhile stands too, until work that lands replaces it."""
        found = dict(self.files)
        for row in self.asked:
            found.update(row.meanwhile)
            if row.lands:
                found.update(row.writes)
        return found


def recovery(name: str) -> Recovery:
    row = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
    lists = {"asked": _asked, "failed": _of(Failed), "ends": _of(Ends), "answers": _of(Answered)}
    for key, read in lists.items():
        row[key] = tuple(read(item) for item in row.get(key, ()))
    row["commits"] = tuple(row.get("commits", ()))
    # Each attempt is one try, so that each failure is recorded, diagnosed and answered.
    row["options"] = RunOptions(agent=PLAYER, mends=1)._replace(**row.get("options", {}))
    row["files"] = {path: text.replace(_PYTHON, sys.executable) for path, text in row["files"].items()}
    return Recovery(name, **row)


def _of(kind: type[Any]) -> Any:
    return lambda row: kind(**row)


def _asked(row: dict[str, Any]) -> Asked:
    do = tuple(_ACTS[verb](*rest) for verb, *rest in row["do"])
    words = {key: tuple(row.get(key, ())) for key in ("told", "untold")}
    return Asked(**{**row, **words, "do": do})


# ── where it happens ──


class Place:
    """The project as a guarded repository; what was told and seen there."""

    def __init__(self, played: Recovery, path: Path) -> None:
        self.played, self.path = played, path
        # What the run told, and when.
        self.events: list[tuple[int, RunEvent]] = []
        self.agents = played.agents()
        self._meanwhile = [row.meanwhile for row in played.asked]
        for name, text in {**played.files, ROADMAP: played.roadmap}.items():
            self._write(name, text)
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "base")):
            self.git(*words)
        holdfast.init(str(path))
        if played.config:
            folder = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast"
            folder.mkdir(parents=True, mode=0o700, exist_ok=True)
            (folder / "config.toml").write_text(played.config, encoding="utf-8")

    def go(self) -> RunRecord:
        """The run, and again after each answer of a person; every answer is asked for."""
        crew = Crew(agents=self.agents, watcher=self._see)
        with holdfast.open(str(self.path), wait=60.0) as hf:
            run = hf.runs.start(ROADMAP, self.played.options, crew, yes=True)
        for said in self.played.answers:
            assert run.state == "WAITING", run.because
            assert said.shown in self.records()[said.task].because
            with holdfast.open(str(self.path), wait=60.0) as hf:
                hf.runs.answer(said.task, yes=said.yes)
                run = hf.runs.resume(crew=crew)
        return run

    def _see(self, event: RunEvent) -> None:
        self.events.append((time.time_ns(), event))
        if isinstance(event, AgentSeen) and isinstance(event.happening, Began) and self._meanwhile:
            for name, text in self._meanwhile.pop(0).items():
                self._write(name, text)

    def _write(self, name: str, text: str) -> None:
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def askings(self) -> dict[tuple[str, str], list[Asking]]:
        """By agent and task."""
        found: dict[tuple[str, str], list[Asking]] = {}
        for agent in self.agents.values():
            for asking in agent.asked:
                found.setdefault((agent.name, asking.task), []).append(asking)
        return found

    def records(self) -> dict[str, TaskRecord]:
        """By number."""
        with holdfast.open(str(self.path)) as hf:
            numbers = {task.id: task.number for task in hf.runs.roadmap(ROADMAP).tasks}
            records = hf.runs.standing().records
            assert hf.audit().ok
        return {numbers[id]: record for id, record in records.items()}

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.path, capture_output=True, text=True, check=True)
        return done.stdout

    def commits(self) -> list[str]:
        """Titles, the oldest first, without the base."""
        return self.git("log", "--format=%s", "--reverse").splitlines()[1:]

    def ticked(self) -> set[str]:
        lines = (self.path / ROADMAP).read_text("utf-8").splitlines()
        return {line.split()[2] for line in lines if line.startswith("- [x]")}

    def files(self) -> dict[str, str]:
        return {str(path.relative_to(self.path)): path.read_text("utf-8") for path in self._own()}

    def _own(self) -> Iterator[Path]:
        for path in sorted(self.path.rglob("*")):
            parts = path.relative_to(self.path).parts
            if path.is_file() and not {".git", ".holdfast"} & set(parts) and parts != (ROADMAP,):
                yield path
