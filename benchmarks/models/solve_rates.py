"""How many of ten small tasks a small model gets right, with all that Holdfast tells it, and with one part less.

    python -m llama_cpp.server --model small.gguf --n_threads 1 --n_ctx 8192      (in another terminal)
    python benchmarks/models/solve_rates.py --url http://127.0.0.1:8000 --model small-1.5b --out rates.jsonl

Each task is a repository of its own and a run of its own, by the installed command, with a HOME of its own. What landed
is judged by a test that no agent saw, in a copy: right, wrong, or nothing landed. Each outcome is a line in --out
at once, and what stands there already is not tried again; the table is made from it at the end.
Not part of `make bench`: it needs a model, and hours.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Literal, NamedTuple

HERE = Path(__file__).parent
PARTS = ("checks", "failing", "files", "map", "conventions", "protected")


class Variant(NamedTuple):
    """What it sets otherwise: tables of the configuration, and lines of the agent's own table."""

    tables: str = ""
    own: str = ""


VARIANTS = {
    "all": Variant(),
    **{f"without {part}": Variant(f"[prompt]\n{part} = false\n") for part in PARTS},
    "only the task": Variant("[prompt]\n" + "".join(f"{part} = false\n" for part in PARTS)),
    "edits as blocks": Variant(own='edit_format = "diff"\n'),
}
Outcome = Literal["right", "wrong", "nothing"]


class Task(NamedTuple):
    name: str
    words: str
    files: dict[str, str]
    judge: dict[str, str]


class Model(NamedTuple):
    url: str
    name: str
    agent: str
    within: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="a server on this machine that speaks OpenAI's wire")
    parser.add_argument("--model", required=True)
    parser.add_argument("--agent", default="aider")
    parser.add_argument("--within", default="5m", help="for an attempt")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--tasks", default="", help="names, with commas; all if unsaid")
    options = parser.parse_args()
    model = Model(options.url, options.model, options.agent, options.within)
    wanted = set(filter(None, options.tasks.split(",")))
    tasks = [Task(**row) for row in tomllib.loads((HERE / "tasks.toml").read_text())["tasks"]]
    tasks = [task for task in tasks if not wanted or task.name in wanted]
    tried = {(row["variant"], row["task"]) for row in _rows(options.out)}
    for variant in options.variants.split(","):
        for task in tasks:
            if (variant, task.name) not in tried:
                row = _tried(model, variant, task)
                with options.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
                print(f"{variant:22} {task.name:20} {row['outcome']:8} {row['seconds']:5} s  {row['said']}", flush=True)
    print(_table(_rows(options.out)))
    return 0


def _rows(path: Path) -> list[dict[str, str | int]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _tried(model: Model, variant: str, task: Task) -> dict[str, str | int]:
    with tempfile.TemporaryDirectory(prefix="solve-") as place:
        home, tree = Path(place, "home"), Path(place, "project")
        _write(tree, {"pyproject.toml": "[tool.pytest.ini_options]\n", **task.files})
        Path(tree, "ROADMAP.md").write_text(f"# Roadmap\n- [ ] {task.words}\n")
        _write(home, {".config/holdfast/config.toml": _configuration(model, VARIANTS[variant])}, 0o600)
        env = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}
        git = ["git", "-c", "user.name=me", "-c", "user.email=me@example.org"]
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "Begin"]):
            subprocess.run([*git, *command], cwd=tree, env=env, check=True)
        began = time.monotonic()
        run = ["holdfast", "run", "--agent", model.agent, "--within", model.within, "--yes", "--json"]
        subprocess.run(["holdfast", "init"], cwd=tree, env=env, check=True, stdout=subprocess.DEVNULL)
        done = subprocess.run(run, cwd=tree, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        seconds = round(time.monotonic() - began)
        landed = "- [x]" in Path(tree, "ROADMAP.md").read_text()
        outcome: Outcome = (
            "nothing" if not landed else "right" if _is_right(tree, task, Path(place, "judged")) else "wrong"
        )
        return {
            "variant": variant, "task": task.name, "outcome": outcome, "seconds": seconds, "exit": done.returncode,
            "said": _said(done.stdout)[:200],
        }  # fmt: skip


def _said(output: str) -> str:
    try:
        document = json.loads(output)
    except ValueError:
        return output
    tasks = document.get("tasks", ())
    return "; ".join(f"{task['status']} {task['because']}" for task in tasks) or str(document.get("error", ""))


def _configuration(model: Model, variant: Variant) -> str:
    provider = f'[providers.here]\nurl = "{model.url}"\napi = ["openai"]\n'
    agent = f'[agents.{model.agent}]\nprovider = "here"\nmodel = "{model.name}"\n'
    return f"{provider}{agent}{variant.own}{variant.tables}"


def _write(folder: Path, files: dict[str, str], mode: int = 0o644) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.lstrip("\n"))
        path.chmod(mode)


def _is_right(tree: Path, task: Task, place: Path) -> bool:
    """The project's own tests, as they were, and the judge's, over what landed."""
    shutil.copytree(tree, place, ignore=shutil.ignore_patterns(".git", ".holdfast"))
    own = {name: text for name, text in task.files.items() if name.startswith("test_")}
    _write(place, {**own, **task.judge})
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    return subprocess.run(command, cwd=place, capture_output=True, timeout=120).returncode == 0


def _table(rows: list[dict[str, str | int]]) -> str:
    lines = ["| variant | right | wrong | nothing landed | median s |", "|---|--:|--:|--:|--:|"]
    for variant in dict.fromkeys(str(row["variant"]) for row in rows):
        mine = [row for row in rows if row["variant"] == variant]
        counts = [sum(row["outcome"] == outcome for row in mine) for outcome in ("right", "wrong", "nothing")]
        median = sorted(int(row["seconds"]) for row in mine)[len(mine) // 2]
        lines.append(f"| {variant} | {' | '.join(map(str, counts))} | {median} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
