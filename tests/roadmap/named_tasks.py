"""Thirty tasks with an agent that does them rightly, or each in the way of one weakness (see named_tasks.toml)."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from delegated import configured
from roadmapped import git

TASKS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())["task"]
SEEN = [task["title"] for task in TASKS if not task.get("unseen")]
UNSEEN = [task["title"] for task in TASKS if task.get("unseen")]
PROJECT = {
    "Makefile": "test:\n\tpython3 -m compileall -q .\n",
    ".gitignore": "__pycache__/\n",
    "shop/__init__.py": "",
    "tests/__init__.py": "",
}
AGENT = """
import json, os, sys
words, edits = open(sys.argv[1]).read(), json.load(open(sys.argv[2]))
for path, text in next(files for title, files in edits if title in words).items():
    if not text and os.path.exists(path):
        os.unlink(path)
    else:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        open(path, "w").write(text)
print("Done, every test passes.", flush=True)
"""


def wrong(task: dict[str, Any]) -> dict[str, str]:
    """What an agent of this weakness leaves."""
    right: dict[str, str] = task["right"]
    path, text = next(iter(right.items()))
    comment = "//" if path.endswith(".js") else "#"
    match task["weakness"]:
        case "symbol":
            old, new = task["instead"]
            return {path: text.replace(old, new) for path, text in right.items()}
        case "stray":
            return {f"path/to/{path}": text}
        case "root":
            return {task["instead"]: text}
        case "prose":
            return {path: f"Sure! I have updated the file as you asked:\n\n1. Opened {path}\n2. Made the change\n"}
        case "truncated":
            lines = text.splitlines(keepends=True)
            return {path: "".join(lines[: len(lines) // 2]) + f"{comment} ... rest of the code unchanged ...\n"}
        case "repeats":
            return {path: task["base"][path] + f"{comment} Done as asked.\n"}
    raise AssertionError(task["weakness"])


def shop(program: Any, *, right: bool) -> Any:
    """The project as a repository with a roadmap of all the tasks, and the agent `mine`."""
    directory: Path = program.directory
    rows = "".join(f"- [ ] {task['title']}\n" for task in TASKS)
    files = {**PROJECT, "ROADMAP.md": f"# Plan\n\n{rows}"}
    for task in TASKS:
        files.update(task["base"])
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "base"]):
        git(program, *words)
    agent, edits = directory.parent / "agent.py", directory.parent / "edits.json"
    agent.write_text(AGENT)
    edits.write_text(json.dumps([[task["title"], task["right"] if right else wrong(task)] for task in TASKS]))
    command = ["/usr/bin/python3", str(agent), "{task_file}", str(edits)]
    configured(f"[agents.mine]\ncommand = {json.dumps(command)}\nnetwork = 'none'\n")
    return program


def ticked(program: Any) -> list[str]:
    lines = (program.directory / "ROADMAP.md").read_text().splitlines()
    return [line.removeprefix("- [x] ") for line in lines if line.startswith("- [x] ")]
