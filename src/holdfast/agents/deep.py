"""A deep agent of LangChain's, driven by us in a process of its own. It plans and edits; no sessions, no shell.

Its Python is one that has deepagents: `deepagents-python` on PATH (a link to the python of an environment made for it),
or the one that Holdfast itself runs on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from holdfast.agents.driven import Driver, Installed, Library, installed
from holdfast.agents.installed import which
from holdfast.agents.program import Missing
from holdfast.agents.prompt import prompt
from holdfast.agents.protocol import ModelAccess
from holdfast.model.agent import Request
from holdfast.model.agent_settings import AgentSettings

_DRIVER = "deep_driver.py"
_COMMAND = "deepagents-python"
_HINT = (
    "Make an environment for it, pip install deepagents langchain-openai langchain-anthropic there, "
    f"and link its python as {_COMMAND} into a folder on PATH."
)
_CLAUDE = "claude"


class Deep(Library):
    def __init__(self, own: AgentSettings) -> None:
        super().__init__(own)
        if own.provider == "anthropic" or (not own.provider and own.model.startswith(_CLAUDE)):
            self.api = "anthropic"

    def _orders(self, request: Request, model: ModelAccess) -> tuple[Driver, Mapping[str, object]]:
        orders = {
            "task": prompt(request),
            "model": request.model or model.model,
            "provider": self.api,
            "url": model.url if self.api == "anthropic" else f"{model.url}/v1",
            "key": model.key,
            "turns": request.turns,
        }
        return Driver(_DRIVER, {"LANGSMITH_TRACING": "false"}), orders

    def _found(self) -> Installed | Missing:
        place = which(_COMMAND, os.environ.get("PATH", ""))
        found = installed(_venv_python(place or sys.executable), "deepagents")
        return Missing("deepagents is not installed", _HINT) if isinstance(found, Missing) else found


def _venv_python(place: str) -> str:
    """Where a link leads, up to the environment: the python there is a link itself, to one that has no packages."""
    while os.path.islink(place) and not os.path.exists(os.path.join(os.path.dirname(place), "..", "pyvenv.cfg")):
        place = os.path.normpath(os.path.join(os.path.dirname(place), os.readlink(place)))
    return place
