"""What is the person's own while something goes on on a branch, and what stands on the branch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import holdfast
from holdfast.engine.roadmap_runs import Crew
from holdfast.model.run import RunEvent, RunOptions, RunRecord
from roadmapped import git

CHANGE = 'intent: Add b\nsteps:\n  - write: b.py\n    content: "y = 2\\n"\n'


class Person(NamedTuple):
    """Their files but the state, their index, and what is checked out."""

    files: dict[str, bytes]
    index: bytes
    head: str
    stash: str


def person(program: Any) -> Person:
    top: Path = program.directory
    found = (path for path in sorted(top.rglob("*")) if path.is_file())
    files = {
        str(name): path.read_bytes()
        for path in found
        if (name := path.relative_to(top)).parts[0] not in (".git", ".holdfast")
    }
    index = (top / ".git" / "index").read_bytes()
    return Person(files, index, git(program, "rev-parse", "HEAD"), git(program, "stash", "list"))


def kept(program: Any) -> Path:
    """The only work tree that is kept."""
    (tree,) = (path for path in (program.directory / ".holdfast" / "branches").iterdir() if path.is_dir())
    return Path(tree)


def titles(program: Any, branch: str) -> list[str]:
    return git(program, "log", "--format=%s", "--reverse", branch).splitlines()


def change(program: Any, text: str = CHANGE) -> str:
    path = Path(program.directory).parent / "change.yaml"
    path.write_text(text)
    return str(path)


def driven(program: Any, moment: type[RunEvent], act: Callable[[], object], state: str = "") -> RunRecord:
    """A run on `night` in this process; at the first such event, of a task that comes to this state, something is done
    before anything else."""
    waiting = [act]

    def watch(event: RunEvent) -> None:
        if waiting and isinstance(event, moment) and (not state or getattr(event, "state", "") == state):
            waiting.pop()()

    with holdfast.open(str(program.directory)) as home, home.branch("night", begin=True) as hf:
        return hf.runs.start("ROADMAP.md", RunOptions(agent="mine"), Crew(watcher=watch), yes=True)
