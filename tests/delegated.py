"""Work given to agents, for tests: a small project, agents that are scripts, and what the ledger says of them.

ground = project(tmp_path / "workspace")
simulated = give(ground, ScriptedAgent(EditFile("app.py", "41", "42")))
(entry,) = delegations(ground)
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from guarded import Ground, guard
from holdfast.agents.protocol import Agent, Bench, Health, Watcher
from holdfast.engine.checking import ShadowKind
from holdfast.engine.simulator import Simulated
from holdfast.model.agent import Api, Capability, Request, Result
from holdfast.model.plan import Agent as AgentStep
from holdfast.model.plan import Plan, Step

TASK = "Make answer() return 42."
APP = b"def answer():\n    return 41\n"
FIXED = b"def answer():\n    return 42\n"
# For the interpreter of every system: no package is needed to run it.
TEST = b"""\
import unittest
from app import answer

class TestAnswer(unittest.TestCase):
    def test_answer(self):
        self.assertEqual(answer(), 42)
"""
FILES = {"app.py": APP, "tests/test_app.py": TEST, "tests/__init__.py": b"", "setup.cfg": b""}
PYTHON = "/usr/bin/python3"
# Asks its model once and writes the answer down; an error of the model is an exit with 1.
ASKING = """\
import json, os, sys, urllib.error, urllib.request
url, key = os.environ["HOLDFAST_MODEL_URL"], os.environ["HOLDFAST_MODEL_KEY"]
for number in range(int(sys.argv[1])):
    body = {"model": sys.argv[2], "max_tokens": 200, "messages": [{"role": "user", "content": "task " + "x" * 400}]}
    head = {"authorization": "Bearer " + key, "content-type": "application/json"}
    asked = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), head)
    try:
        said = json.load(urllib.request.urlopen(asked, timeout=30))
    except urllib.error.HTTPError as error:
        print("the model said", error.code, error.read().decode()[:300], flush=True)
        sys.exit(int(sys.argv[3]))
    with open("answer.txt", "w") as file:
        file.write(said["choices"][0]["message"]["content"] or "-")
print("All done, every test passes.", flush=True)
"""


def project(path: Path, files: Mapping[str, bytes] | None = None) -> Ground:
    """An application with one test, which fails until the task is done."""
    return guard(path, FILES if files is None else files)


def configured(text: str) -> Path:
    """The user's own configuration; the test has a home of its own."""
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)
    return path


class Given(NamedTuple):
    """How much an agent may try."""

    expected: tuple[str, ...] = ()
    attempts: int = 1
    within_ms: int = 60_000
    task: str = TASK

    def step(self, name: str) -> AgentStep:
        return AgentStep(name, self.task, (), self.expected, self.attempts, self.within_ms)


ONCE = Given()


def plan_for(name: str, given: Given = ONCE, before: tuple[Step, ...] = ()) -> Plan:
    return Plan("a task", (*before, given.step(name)))


def give(
    ground: Ground,
    agent: Agent,
    given: Given = ONCE,
    *,
    before: tuple[Step, ...] = (),
    shadow: ShadowKind = "auto",
    watcher: Watcher | None = None,
) -> Simulated:
    """Simulate a plan that gives the task to this agent object."""
    plan = plan_for(agent.name, given, before)
    return ground.hf.simulate(plan, shadow=shadow, agents={agent.name: agent}, watcher=watcher)


def delegations(ground: Ground) -> list[dict[str, Any]]:
    """The ledger's entries about the work of agents, oldest first."""
    return [dict(entry.body) for entry in ground.hf.ledger.entries() if entry.kind == "delegation"]


def asking_agent(url: str, *, times: int = 1, model: str = "scripted", on_error: int = 1, more: str = "") -> str:
    """Configuration of an agent `mine` that asks the model at this address; `more` goes into its own table."""
    program = Path(os.environ["HOME"]) / "asking.py"
    program.write_text(ASKING)
    return f"""
[agents.mine]
command = ["{PYTHON}", "{program}", "{times}", "{model}", "{on_error}"]
network = "proxy"
provider = "local"
{more}

[providers.local]
url = "{url}"
api = ["openai"]
key_env = "LOCAL_MODEL_KEY"
"""


class Returning:
    """An agent that runs nothing and returns what it was given, one result after another."""

    capabilities: frozenset[Capability] = frozenset({"edit"})
    api: Api | None = None

    def __init__(self, *results: Result, name: str = "returning") -> None:
        self.name = name
        self.requests: list[Request] = []
        self._results = results

    def validate(self) -> tuple[str, ...]:
        return ()

    def health(self) -> Health:
        return Health(installed=True, usable=True)

    def work(self, request: Request, bench: Bench) -> Result:
        self.requests.append(request)
        return self._results[min(len(self.requests), len(self._results)) - 1]
