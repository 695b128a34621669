"""A deep agent of LangChain's, driven by us in a process of its own. It plans and edits; no sessions, no shell.

Its Python is one that has deepagents: `deepagents-python` on PATH (a link to the python of an environment made for it),
or the one that Holdfast itself runs on.
"""

from __future__ import annotations

import os
import sys

from holdfast.agents.driven import Driver, Installed, drive, installed
from holdfast.agents.installed import which
from holdfast.agents.program import Missing
from holdfast.agents.prompt import prompt
from holdfast.agents.protocol import Bench, Health
from holdfast.errors import InvalidInput
from holdfast.model.agent import Api, Capability, Request, Result
from holdfast.model.agent_settings import AgentSettings

_DRIVER = "deep_driver.py"
_COMMAND = "deepagents-python"
_HINT = (
    "Make an environment for it, pip install deepagents langchain-openai langchain-anthropic there, "
    f"and link its python as {_COMMAND} into a folder on PATH."
)
_CLAUDE = "claude"


class Deep:
    capabilities: frozenset[Capability] = frozenset(("edit", "usage"))

    def __init__(self, own: AgentSettings) -> None:
        self.name = own.name
        self._own = own
        anthropic = own.provider == "anthropic" or (not own.provider and own.model.startswith(_CLAUDE))
        self.api: Api | None = "anthropic" if anthropic else "openai"

    def validate(self) -> tuple[str, ...]:
        found = self._found()
        wrong = [found.why] if isinstance(found, Missing) else []
        if self._own.transport not in (None, "api"):
            wrong.append(f"{self.name} has no transport {self._own.transport}: it is api")
        if not self._own.model:
            wrong.append(f"{self.name} needs the name of a model: set model under [agents.{self.name}]")
        return tuple(wrong)

    def health(self) -> Health:
        found = self._found()
        if isinstance(found, Missing):
            return Health(False, False, why_not=found.why, hint=found.hint)
        return Health(True, not (wrong := self.validate()), found.version, "; ".join(wrong))

    def work(self, request: Request, bench: Bench) -> Result:
        found = self._found()
        if isinstance(found, Missing):
            raise InvalidInput(found.why, hint=found.hint)
        if bench.model is None:
            raise InvalidInput(f"{self.name} needs a model, and none can be reached")
        orders = {
            "task": prompt(request),
            "model": request.model or bench.model.model,
            "provider": self.api,
            "url": bench.model.url if self.api == "anthropic" else f"{bench.model.url}/v1",
            "key": bench.model.key,
            "turns": request.turns,
        }
        return drive(self.name, found, Driver(_DRIVER, {"LANGSMITH_TRACING": "false"}), orders, bench)

    def _found(self) -> Installed | Missing:
        place = which(_COMMAND, os.environ.get("PATH", ""))
        found = installed(_venv_python(place or sys.executable), "deepagents")
        return Missing("deepagents is not installed", _HINT) if isinstance(found, Missing) else found


def _venv_python(place: str) -> str:
    """Where a link leads, up to the environment: the python there is a link itself, to one that has no packages."""
    while os.path.islink(place) and not os.path.exists(os.path.join(os.path.dirname(place), "..", "pyvenv.cfg")):
        place = os.path.normpath(os.path.join(os.path.dirname(place), os.readlink(place)))
    return place
