"""aider, through its Python API: its command line ends with 0 whatever happens, and its output is for people.

It edits and does not run commands. It knows the files it is given, those that exist of the ones a task expects, and
those that its model names; it keeps no sessions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from holdfast.agents.driven import Driver, Installed, Library, installed
from holdfast.agents.installed import which
from holdfast.agents.program import Missing
from holdfast.agents.prompt import prompt
from holdfast.agents.protocol import ModelAccess
from holdfast.model.agent import Request

_DRIVER = "aider_driver.py"
_HINT = "Install it: pipx install aider-chat, or uv tool install aider-chat"
# It would ask the network for prices; a list that is there and new is not asked for again.
_PRICES = ".aider/caches/model_prices_and_context_window.json"


class Aider(Library):
    def _orders(self, request: Request, model: ModelAccess) -> tuple[Driver, Mapping[str, object]]:
        orders = {
            "task": prompt(request),
            "model": request.model or model.model,
            "files": list(dict.fromkeys((*request.files, *request.expected))),
        }
        env = {
            "OPENAI_API_BASE": f"{model.url}/v1",
            "OPENAI_API_KEY": model.key,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "AIDER_ANALYTICS": "false",
        }
        return Driver(_DRIVER, env, ((_PRICES, '{"none": {}}'),)), orders

    def _found(self) -> Installed | Missing:
        place = which("aider", os.environ.get("PATH", ""))
        if not place:
            return Missing("there is no aider on PATH", _HINT)
        python = os.path.join(os.path.dirname(os.path.realpath(place)), "python")
        found = installed(python, "aider-chat")
        return Missing(found.why, _HINT) if isinstance(found, Missing) else found
