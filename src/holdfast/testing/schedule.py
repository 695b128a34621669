"""An agent that behaves by a schedule: badly at first and well later, as each task says; for whole runs of a roadmap.

    ScheduledAgent(
        {"Add the total": [(WriteFile("cart.py", "def total(:\\n"),), (WriteFile("cart.py", GOOD),)]}
    )

A run asks a new agent at each attempt, and does not say which one it is: the schedule counts, task by task, how often
it was asked. What it does is the script of a `ScriptedAgent`, in the bench.

Invariants
  X1  A task is known by words that its text has; where several fit, the one that stands first in the text is meant.
  X2  Being asked for what is not on the schedule, or once more than it says, is an error, and no guess: the test that
      wrote the schedule is wrong about the run.
  X3  One object works at many tasks at once, in as many threads.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from holdfast.agents.prompt import prompt
from holdfast.agents.protocol import Bench, Health
from holdfast.errors import InvalidInput
from holdfast.model.agent import Api, Capability, Request, Result
from holdfast.testing.agents import Act, ScriptedAgent


class Asking(NamedTuple):
    """That it was asked: for which task, for the how-manieth time, and the whole text that it was given."""

    task: str
    number: int
    text: str


class ScheduledAgent:
    """`schedule`: by words of the task, what is done at the first asking, the second, and so on."""

    capabilities: frozenset[Capability] = frozenset({"edit", "shell", "offline"})
    api: Api | None = None

    def __init__(self, schedule: Mapping[str, Sequence[tuple[Act, ...]]], *, name: str = "scheduled") -> None:
        self.name = name
        self._schedule = {task: tuple(askings) for task, askings in schedule.items()}
        self._asked: list[Asking] = []
        self._lock = threading.Lock()

    @property
    def asked(self) -> tuple[Asking, ...]:
        """In the order in which it was asked."""
        with self._lock:
            return tuple(self._asked)

    def validate(self) -> tuple[str, ...]:
        idle = [task for task, askings in self._schedule.items() if not askings]
        return tuple(f"{self.name}: nothing is scheduled for {task!r}" for task in idle)

    def health(self) -> Health:
        return Health(installed=True, usable=True, version="1")

    def work(self, request: Request, bench: Bench) -> Result:
        asking = self._noted(prompt(request))
        acts = self._schedule[asking.task]
        if asking.number > len(acts):
            raise InvalidInput(f"{asking.task!r} was asked {asking.number} times, {len(acts)} are scheduled")  # X2
        return ScriptedAgent(*acts[asking.number - 1], name=self.name).work(request, bench)

    def _noted(self, text: str) -> Asking:
        named = [task for task in self._schedule if task in text]
        if not named:
            raise InvalidInput(f"nothing is scheduled for this: {text[:200]!r}")  # X2
        task = min(named, key=text.index)
        with self._lock:
            asking = Asking(task, 1 + sum(row.task == task for row in self._asked), text)
            self._asked.append(asking)
        return asking
