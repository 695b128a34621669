"""Scenarios as data: a project, its roadmap, what an agent does, and what must stand at the end.

    cases/NAME/project/        the base, with its ROADMAP.md
    cases/NAME/scenario.toml   moves, sittings and endings

A move is what the agent (or the model of a real one) does when it is given a task: the one whose `told` all stand in
what it was given, and otherwise the one without. So a repair is only ever played by somebody who was told what is
wrong: `told` are words of the evidence.

Invariants
  S1  The moves are the same whoever plays: an agent that follows a script, or a real program with a scripted model.
  S2  What must stand is computed from the moves that land, and compared byte for byte with what does.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from holdfast.agents.prompt import prompt
from holdfast.agents.protocol import Bench, Health
from holdfast.engine.roadmap_runs import Crew
from holdfast.model.agent import Api, Capability, Request, Result
from holdfast.model.run import RunOptions, RunRecord
from holdfast.model.task import TaskRecord
from holdfast.testing.agents import ScriptedAgent
from holdfast.testing.script import Say, Script, Step, When, WriteFile

CASES = Path(__file__).parent / "cases"
NAMES = tuple(sorted(path.parent.name for path in CASES.glob("*/scenario.toml")))
ROADMAP = "ROADMAP.md"
DONE = Say("Done. Everything works.")


class Move(NamedTuple):
    """`lands` is the number of the task that it completes; empty for what must not land."""

    task: str
    write: Mapping[str, str]
    told: tuple[str, ...] = ()
    lands: str = ""

    @property
    def steps(self) -> tuple[Step, ...]:
        return (*(WriteFile(path, text) for path, text in self.write.items()), DONE)


class Ending(NamedTuple):
    """Where a task stands: how each attempt before failed and what followed; `with_` is the one it landed with."""

    task: str
    state: str
    tried: tuple[tuple[str, str], ...] = ()
    with_: str = ""


class Scenario(NamedTuple):
    name: str
    story: str
    moves: tuple[Move, ...]
    sittings: tuple[RunOptions, ...]
    endings: tuple[Ending, ...]
    check: tuple[str, ...]
    commits: tuple[str, ...]
    undo: str
    run: str = "FINISHED"

    @property
    def project(self) -> Path:
        return CASES / self.name / "project"

    def answer(self, text: str) -> Move:
        """What is done by whoever was given this text."""
        first = min((move.task for move in self.moves if move.task in text), key=text.index)
        own = [move for move in self.moves if move.task == first]
        told = [move for move in own if move.told and all(words in text for words in move.told)]
        return told[-1] if told else own[0]

    def scripts(self) -> dict[str, Script]:
        """The same for a model; it looks for the first of the words, and the test for all of them."""
        tasks = dict.fromkeys(move.task for move in self.moves)
        return {task: _script([move for move in self.moves if move.task == task]) for task in tasks}

    def stands(self, without: str = "") -> dict[str, str]:
        """Every file but the roadmap, by its contents, when all that lands has landed, but for one task."""
        found = files_of(self.project)
        for move in self.moves:
            if move.lands and move.lands != without:
                found.update(move.write)
        return found


def scenario(name: str) -> Scenario:
    row = tomllib.loads((CASES / name / "scenario.toml").read_text("utf-8"))
    known = {"story", "check", "commits", "undo", "run", "move", "sitting", "ends"}
    assert row.keys() <= known, f"{name}: {row.keys() - known}"
    return Scenario(
        name,
        row["story"],
        tuple(_move(item) for item in row["move"]),
        tuple(_options(item) for item in row.get("sitting", [{}])),
        tuple(_ending(item) for item in row["ends"]),
        tuple(row["check"]),
        tuple(row["commits"]),
        row["undo"],
        row.get("run", "FINISHED"),
    )


def _move(row: dict[str, Any]) -> Move:
    return Move(**{**row, "told": tuple(row.get("told", ()))})


def _ending(row: dict[str, Any]) -> Ending:
    tried = tuple((category, strategy) for category, strategy in row.get("tried", ()))
    return Ending(row["task"], row["state"], tried, row.get("with", ""))


def _options(row: dict[str, Any]) -> RunOptions:
    """Each attempt is one try, so that each failure is recorded, diagnosed and answered."""
    return RunOptions(mends=1)._replace(**{**row, "only": tuple(row.get("only", ()))})


def _script(moves: list[Move]) -> Script:
    return Script.of(*moves[0].steps, *(When(move.told[0], move.steps) for move in reversed(moves[1:])))


# ── who plays ──


class Player:
    """An agent that does what the scenario says, by what it was given; its work is a program in the bench."""

    name = "player"
    capabilities: frozenset[Capability] = frozenset({"edit"})
    api: Api | None = None

    def __init__(self, played: Scenario) -> None:
        self._played = played
        self.given: list[str] = []

    def validate(self) -> tuple[str, ...]:
        return ()

    def health(self) -> Health:
        return Health(installed=True, usable=True)

    def work(self, request: Request, bench: Bench) -> Result:
        text = prompt(request)
        self.given.append(text)
        return ScriptedAgent(*self._played.answer(text).steps, name=self.name).work(request, bench)  # type: ignore[arg-type]


# ── where it is played ──


class Stage:
    """The project as a guarded repository. Nobody is told what fails before their first attempt: the stories are about
    what follows when it failed."""

    def __init__(self, played: Scenario, path: Path) -> None:
        self.played, self.path = played, path
        shutil.copytree(played.project, path)
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "base")):
            self.git(*words)
        folder = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast"
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        with (folder / "config.toml").open("a", encoding="utf-8") as file:
            file.write("[prompt]\nfailing = false\n")
        holdfast.init(str(path))

    def play(self, agent: str, crew: Crew | None = None, *, parallel: int = 1) -> RunRecord:
        """Sitting after sitting; the last run. Several at once land in the order of the roadmap."""
        together = {"parallel": parallel, "landing": "roadmap"} if parallel > 1 else {}
        for options in self.played.sittings:
            with holdfast.open(str(self.path), wait=60.0) as hf:
                chosen = options._replace(agent=agent, **together)  # type: ignore[arg-type]
                run = hf.runs.start(ROADMAP, chosen, crew or Crew(), yes=True)
        return run

    def records(self) -> dict[str, TaskRecord]:
        """By number; of the newest run that began it."""
        with holdfast.open(str(self.path)) as hf:
            runs = [row.id for row in reversed(_runs(hf))]
            numbers = {task.id: task.number for task in hf.runs.roadmap(ROADMAP).tasks}
            found = [record for run in runs for record in hf.runs.standing(run).records.values()]
            assert hf.audit().ok
        return {numbers[record.task]: record for record in found}

    def acceptance(self) -> dict[str, tuple[str, ...]]:
        """The commands that tasks name, by number."""
        with holdfast.open(str(self.path)) as hf:
            tasks = hf.runs.roadmap(ROADMAP).tasks
        return {task.number: tuple(shlex.split(task.accept)) for task in tasks if task.accept}

    def receipts(self, execution: str) -> list[dict[str, Any]]:
        found = json.loads(self.holdfast("show", execution, "--json").stdout)["receipts"]
        assert isinstance(found, list)
        return found

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", *words], cwd=self.path, capture_output=True, text=True, check=True)
        return done.stdout

    def commits(self) -> list[str]:
        """Titles, the oldest first, without the base."""
        return self.git("log", "--format=%s", "--reverse").splitlines()[1:]

    def files(self) -> dict[str, str]:
        return files_of(self.path)

    def ticked(self) -> set[str]:
        lines = (self.path / ROADMAP).read_text("utf-8").splitlines()
        return {line.split()[2] for line in lines if line.startswith("- [x]")}

    def passes(self) -> subprocess.CompletedProcess[str]:
        """The project's own check on the tree itself, by nobody of ours."""
        return subprocess.run(self.played.check, cwd=self.path, capture_output=True, text=True, check=False)

    def holdfast(self, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "holdfast", *words]
        return subprocess.run(argv, cwd=self.path, capture_output=True, text=True, check=False)


def _runs(hf: Any) -> list[Any]:
    from holdfast.store.runs import Runs

    return list(Runs(hf.records).runs())


def files_of(root: Path) -> dict[str, str]:
    """Contents by path, but for the roadmap and what tools leave behind."""
    return {str(path.relative_to(root)): path.read_text("utf-8") for path in _files(root)}


def _files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        if path.is_file() and not {".git", ".holdfast", "__pycache__"} & set(parts) and parts != (ROADMAP,):
            yield path
