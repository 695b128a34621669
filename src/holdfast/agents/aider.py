"""aider, through its Python API: its command line ends with 0 whatever happens, and its output is for people.

It edits and does not run commands. It knows the files it is given, those that exist of the ones a task expects, and
those that its model names; it keeps no sessions.
"""

from __future__ import annotations

import os

from holdfast.agents.driven import Driver, Installed, drive, installed
from holdfast.agents.installed import which
from holdfast.agents.program import Missing
from holdfast.agents.prompt import prompt
from holdfast.agents.protocol import Bench, Health
from holdfast.errors import InvalidInput
from holdfast.model.agent import Api, Capability, Request, Result
from holdfast.model.agent_settings import AgentSettings

_DRIVER = "aider_driver.py"
_HINT = "Install it: pipx install aider-chat, or uv tool install aider-chat"
# It would ask the network for prices; a list that is there and new is not asked for again.
_PRICES = ".aider/caches/model_prices_and_context_window.json"


class Aider:
    capabilities: frozenset[Capability] = frozenset(("edit", "usage"))
    api: Api | None = "openai"

    def __init__(self, own: AgentSettings) -> None:
        self.name = own.name
        self._own = own

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
            "files": list(dict.fromkeys((*request.files, *request.expected))),
        }
        env = {
            "OPENAI_API_BASE": f"{bench.model.url}/v1",
            "OPENAI_API_KEY": bench.model.key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "AIDER_ANALYTICS": "false",
        }
        return drive(self.name, found, Driver(_DRIVER, env, ((_PRICES, '{"none": {}}'),)), orders, bench)

    def _found(self) -> Installed | Missing:
        place = which("aider", os.environ.get("PATH", ""))
        if not place:
            return Missing("there is no aider on PATH", _HINT)
        python = os.path.join(os.path.dirname(os.path.realpath(place)), "python")
        found = installed(python, "aider-chat")
        return Missing(found.why, _HINT) if isinstance(found, Missing) else found
