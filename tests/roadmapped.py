"""A roadmap in a repository, and an agent that does what its task says: `Create NAME.py`, badly, slowly, or not at all.

The agent is a real program in the real sandbox, told of its task as any other.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from delegated import configured

AGENT = """
import os, re, sys, time
words = open(sys.argv[1]).read()
name, how = re.search(r"Create \\D*?(\\w+)\\.py([^\\n]*)", words).groups()
print(f"writing {name}.py", flush=True)
if "slowly" in how:
    time.sleep(120)
if "badly" in how:
    open(name + ".py", "w").write("x = (\\n")
elif "nothing" not in how:
    open(name + ".py", "w").write("x = 1\\n")
if "workflow" in how:
    os.makedirs(".github/workflows", exist_ok=True)
    open(".github/workflows/ci.yml", "w").write("on: push\\n")
if "removes" in how:
    os.unlink("old.py")
"""
FILES = {
    "Makefile": "test:\n\tpython3 -m compileall -q .\n",
    ".gitignore": "__pycache__/\n",
    "old.py": "x = 0\n",
}


def roadmap_of(*titles: str) -> str:
    rows = "".join(f"- [ ] 1.{place} {title}\n" for place, title in enumerate(titles, 1))
    return f"# Plan\n\n## Phase 1: Base\n\n{rows}"


def mapped(program: Any, *titles: str) -> Any:
    """The guarded program's workspace as a repository with this roadmap, and the agent `mine` in the configuration."""
    directory: Path = program.directory
    for name, text in {**FILES, "ROADMAP.md": roadmap_of(*titles)}.items():
        (directory / name).write_text(text)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base"]):
        git(program, *words)
    agent = script(program)
    agent.write_text(AGENT)
    configured(f'[agents.mine]\ncommand = ["python3", "{agent}", "{{task_file}}"]\nnetwork = "none"\n')
    return program


def script(program: Any) -> Path:
    return Path(program.directory).parent / "agent.py"


def git(program: Any, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=program.directory, capture_output=True, text=True, check=True)
    return done.stdout


def commits(program: Any) -> list[str]:
    """Titles, the oldest first, without the base."""
    return git(program, "log", "--format=%s", "--reverse").splitlines()[1:]


def boxes(program: Any) -> str:
    """`x` and `.` for every box of the roadmap, in its order."""
    lines = (program.directory / "ROADMAP.md").read_text().splitlines()
    return "".join("x" if line.startswith("- [x]") else "." for line in lines if line.startswith("- ["))


def states(program: Any) -> list[str]:
    return [task["status"] for task in program("tasks", "--json").document["tasks"]]


def agents_alive(program: Any) -> list[int]:
    """The processes of our agent, by what they were started with."""
    mine, found = os.fsencode(script(program)), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if mine in words:
                found.append(int(entry.name))
    return found


def wait_until(true: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.1)
