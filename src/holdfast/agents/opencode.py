"""opencode: `opencode run --format json`, or `opencode acp`.

The model is a provider of our own in its settings. What the repository says about opencode is left out.
A failing model is asked six times, over more than a minute; nothing in its settings makes that less.
"""

from __future__ import annotations

import json

from holdfast.agents import installed
from holdfast.agents.events import ERROR_KEPT, Event, concluded, events, kept, session_name
from holdfast.agents.installed import Wanted
from holdfast.agents.program import Found, Heard, Missing
from holdfast.agents.protocol import ModelAccess, Start
from holdfast.model.agent import Api, Capability, Claim, Request, Usage

_WANTED = Wanted("opencode", "opencode-ai")
_PROVIDER = "holdfast"
_KEY = "HOLDFAST_MODEL_KEY"
_NAMELESS = "default"
_QUIET = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    # It installs packages of its own at its first start; a port where nobody listens makes that fail at once.
    "npm_config_registry": "http://127.0.0.1:9/",
}


class Opencode:
    name = "opencode"
    capabilities: frozenset[Capability] = frozenset({"edit", "shell", "resume", "permission", "usage"})
    api: Api = "openai"

    def find(self, path: str) -> Found | Missing:
        return installed.find(_WANTED, path)

    def acp(self, found: Found, request: Request, model: ModelAccess) -> Start | None:
        return _start((*found.argv, "acp"), found, request, model, "ask")

    def headless(self, found: Found, request: Request, model: ModelAccess, prompt: str) -> Start:
        session = session_name(request.session)
        argv = (
            *(*found.argv, "run", "--format", "json", f"--model={_PROVIDER}/{_model(request, model)}"),
            *((f"--session={session}",) if session else ()),
            *("--", prompt),
        )
        return _start(argv, found, request, model, "allow")

    def heard(self, output: bytes, exit_code: int | None) -> Heard:
        claim, status = Claim(usage=Usage()), 0
        for event in events(output):
            claim = _after(claim, event)
            status = event.number("error", "data", "statusCode") or status
        return concluded(claim, output, exit_code, status)


def _model(request: Request, model: ModelAccess) -> str:
    return request.model or model.model or _NAMELESS


def _start(argv: tuple[str, ...], found: Found, request: Request, model: ModelAccess, permission: str) -> Start:
    env = installed.environment(found, {**_QUIET, _KEY: model.key})
    settings = json.dumps(_settings(request, model, permission), indent=1)
    return Start(argv, env, ((".config/opencode/opencode.json", settings),), found.readable)


def _settings(request: Request, model: ModelAccess, permission: str) -> dict[str, object]:
    name = _model(request, model)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": _PROVIDER,
        "options": {"baseURL": f"{model.url}/v1", "apiKey": f"{{env:{_KEY}}}"},
        "models": {name: {"name": name, "tool_call": True}},
    }
    actions = dict.fromkeys(("edit", "bash", "webfetch", "external_directory"), permission)
    return {
        "provider": {_PROVIDER: provider},
        "model": f"{_PROVIDER}/{name}",
        "small_model": f"{_PROVIDER}/{name}",
        "permission": actions,
        "autoupdate": False,
        "share": "disabled",
        # It would keep a git repository of its own of everything in the workspace.
        "snapshot": False,
        # What is denied is told to its model, which goes on with something else; otherwise its turn would be over.
        "experimental": {"continue_loop_on_deny": True},
        "agent": {"build": {"steps": request.turns}} if request.turns else {},
    }


def _after(claim: Claim, event: Event) -> Claim:
    claim = claim._replace(session=session_name(event.text("sessionID")) or claim.session)
    kind, part = event.text("type"), event.at("part")
    if kind == "text":
        return claim._replace(words=kept(part.text("text")))
    if kind == "tool_use":
        return claim._replace(tool_calls=claim.tool_calls + 1)
    if kind == "step_finish":
        reason = kept(part.text("reason"), 80)
        spent = (claim.usage or Usage()).plus(_usage(part))
        return claim._replace(success=reason == "stop" or None, stopped_because=reason, usage=spent)
    if kind == "error":
        error = event.text("error", "data", "message") or event.text("error", "name")
        return claim._replace(success=False, error=kept(error, ERROR_KEPT), stopped_because=kind)
    return claim


def _usage(part: Event) -> Usage:
    given = (
        part.number("tokens", "input")
        + part.number("tokens", "cache", "read")
        + part.number("tokens", "cache", "write")
    )
    return Usage(1, given, part.number("tokens", "output") + part.number("tokens", "reasoning"), None)
