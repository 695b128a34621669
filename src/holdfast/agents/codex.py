"""Codex: `codex exec --json`, or its ACP adapter, which is a package of its own.

Its own sandbox is off (`--dangerously-bypass-approvals-and-sandbox` is its name for "a sandbox is already there"):
inside ours it could not make a second one, and every command would fail.
"""

from __future__ import annotations

import json

from holdfast.agents import installed
from holdfast.agents.events import ERROR_KEPT, Event, api_status, concluded, events, kept, session_name
from holdfast.agents.installed import Adapter, Wanted
from holdfast.agents.program import Found, Heard, Missing
from holdfast.agents.protocol import ModelAccess, Start
from holdfast.model.agent import Api, Capability, Claim, Request, Usage

_WANTED = Wanted("codex", "@openai/codex")
_ADAPTER = Adapter(Wanted("codex-acp", "@zed-industries/codex-acp"), "/codex-acp/bin/codex-acp.js")
_KEY = "HOLDFAST_MODEL_KEY"
_OVERLOADED = "experiencing high demand"
_TOOLS = frozenset({"command_execution", "file_change", "mcp_tool_call", "web_search"})


class Codex:
    name = "codex"
    capabilities: frozenset[Capability] = frozenset({"edit", "shell", "resume", "permission", "usage"})
    api: Api = "responses"

    def find(self, path: str) -> Found | Missing:
        return installed.find(_WANTED, path, _ADAPTER)

    def acp(self, found: Found, request: Request, model: ModelAccess) -> Start | None:
        adapter = installed.adapted(found, _ADAPTER)
        return _start(adapter, found, request, model, "untrusted") if adapter else None

    def headless(self, found: Found, request: Request, model: ModelAccess, prompt: str) -> Start:
        session = session_name(request.session)
        argv = (
            *(*found.argv, "exec", "--json", "--skip-git-repo-check", "--disable", "plugins"),
            "--dangerously-bypass-approvals-and-sandbox",
            *(("resume", session) if session else ()),
            *("--", prompt),
        )
        return _start(argv, found, request, model, "never")

    def heard(self, output: bytes, exit_code: int | None) -> Heard:
        claim = Claim()
        for event in events(output):
            claim = _after(claim, event)
        return concluded(claim, output, exit_code, _status(claim))


def _start(argv: tuple[str, ...], found: Found, request: Request, model: ModelAccess, asks: str) -> Start:
    env = installed.environment(found, {_KEY: model.key})
    return Start(argv, env, ((".codex/config.toml", _config(request, model, asks)),), found.readable)


def _config(request: Request, model: ModelAccess, asks: str) -> str:
    name = request.model or model.model
    lines = (
        *((f"model = {_toml(name)}",) if name else ()),
        'model_provider = "holdfast"',
        f"approval_policy = {_toml(asks)}",
        'sandbox_mode = "danger-full-access"',
        "check_for_update_on_startup = false",
        "[analytics]",
        "enabled = false",
        "[feedback]",
        "enabled = false",
        "[model_providers.holdfast]",
        'name = "holdfast"',
        f"base_url = {_toml(f'{model.url}/v1')}",
        f'env_key = "{_KEY}"',
        'wire_api = "responses"',
        "request_max_retries = 1",
        "stream_max_retries = 1",
    )
    return "\n".join(lines) + "\n"


def _toml(text: str) -> str:
    # A JSON string is a basic string of TOML, as long as nothing beyond the control characters is escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _after(claim: Claim, event: Event) -> Claim:
    kind, item = event.text("type"), event.at("item")
    if kind == "thread.started":
        return claim._replace(session=session_name(event.text("thread_id")))
    if kind == "item.completed" and item.text("type") == "agent_message":
        return claim._replace(words=kept(item.text("text")))
    if kind == "item.completed" and item.text("type") in _TOOLS:
        return claim._replace(tool_calls=claim.tool_calls + 1)
    if kind == "turn.completed":
        return claim._replace(success=True, error="", stopped_because=kind, usage=_usage(event))
    if kind == "error":
        return claim._replace(error=kept(event.text("message"), ERROR_KEPT))
    if kind == "turn.failed":
        error = kept(event.text("error", "message"), ERROR_KEPT)
        return claim._replace(success=False, error=error, stopped_because=kind)
    return claim


def _status(claim: Claim) -> int:
    """It names a status only for some. A refused request is the provider's own JSON, a failing server is a phrase."""
    if claim.success is not False:
        return 0
    if claim.error.startswith('{"error"'):
        return 400
    return 500 if _OVERLOADED in claim.error else api_status(claim.error)


def _usage(event: Event) -> Usage:
    return Usage(0, event.number("usage", "input_tokens"), event.number("usage", "output_tokens"), None)
