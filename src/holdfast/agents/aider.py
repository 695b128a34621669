"""aider, through its Python API: its command line ends with 0 whatever happens, and its output is for people.

It edits and does not run commands. It knows the files it is given, those that exist of the ones a task expects, and
those that its model names; it keeps no sessions. For everything else it has a map of the repository.

How its model writes an edit is decided by, in this order: the user (`edit_format`), FORMATS, and aider's own list of
models, in which whole files stand for every model that is not known.
"""

from __future__ import annotations

import os
import re
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
# The first row whose pattern is in the name of the model counts. A model whose name says that it has less than some 30
# billion parameters does not quote what it replaces exactly, so it writes whole files; a large one that aider does not
# know yet writes blocks, as its older sisters do.
FORMATS: tuple[tuple[str, str], ...] = (
    (r"(?<![\d.])(?:\d|[12]\d)(?:\.\d+)?b(?![a-z0-9])", "whole"),
    (r"(?:^|[-_./:])(?:nano|tiny|small)(?:$|[-_./:])", "whole"),
    (r"claude-(?:opus|sonnet|haiku)-\d|gpt-[5-9]|(?:^|/)o[3-9](?:$|-)", "diff"),
    (r"gemini-(?:[3-9]|2\.5)[\w.]*-pro", "diff-fenced"),
    (r"deepseek-(?:chat|reasoner|v[3-9])|qwen3-coder-(?:480|plus)|kimi-k\d|glm-[4-9]|grok-(?:code|[4-9])", "diff"),
)


class Aider(Library):
    def _orders(self, request: Request, model: ModelAccess) -> tuple[Driver, Mapping[str, object]]:
        name = request.model or model.model
        orders = {
            "task": prompt(request),
            "model": name,
            "files": list(dict.fromkeys((*request.files, *request.expected))),
            "format": self._own.edit_format or format_for(name),
            # What its model wrote twice over does it no good in the same form; a form that the user chose stays.
            "another": bool(request.repeats % 2) and not self._own.edit_format,
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


def format_for(model: str) -> str:
    """Empty leaves it to aider's own list."""
    name = model.lower()
    return next((form for pattern, form in FORMATS if re.search(pattern, name)), "")
