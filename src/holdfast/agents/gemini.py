"""Gemini CLI: `gemini --prompt` with a stream of JSON, or `gemini --acp`.

GEMINI_CLI_NO_RELAUNCH keeps it to one process, which then also hears SIGTERM.
"""

from __future__ import annotations

import json

from holdfast.agents import installed
from holdfast.agents.events import ERROR_KEPT, Event, api_status, concluded, events, kept, session_name
from holdfast.agents.installed import Wanted
from holdfast.agents.program import Found, Heard, Missing
from holdfast.agents.protocol import ModelAccess, Start
from holdfast.model.agent import Api, Capability, Claim, Request, Usage
from holdfast.sandbox.shown import HOME

_WANTED = Wanted("gemini", "@google/gemini-cli")

_SETTINGS = ".gemini/settings.json"
# A list that allows nothing would be no list.
_NO_SERVER = "none"


class Gemini:
    name = "gemini"
    capabilities: frozenset[Capability] = frozenset({"edit", "shell", "resume", "permission", "usage"})
    api: Api = "gemini"

    def find(self, path: str) -> Found | Missing:
        return installed.find(_WANTED, path)

    def acp(self, found: Found, request: Request, model: ModelAccess) -> Start | None:
        argv = (*found.argv, "--acp", "--skip-trust", *_model(request, model))
        return _start(argv, found, request, model)

    def headless(self, found: Found, request: Request, model: ModelAccess, prompt: str) -> Start:
        session = session_name(request.session)
        argv = (
            *(*found.argv, "--output-format", "stream-json", "--approval-mode", "yolo", "--skip-trust"),
            *_model(request, model),
            *((f"--resume={session}",) if session else ()),
            f"--prompt={prompt}",
        )
        return _start(argv, found, request, model)

    def heard(self, output: bytes, exit_code: int | None) -> Heard:
        claim = Claim()
        for event in events(output):
            claim = _after(claim, event)
        # Only an error of the model's begins like this; the number alone could stand in anything.
        return concluded(
            claim, output, exit_code, api_status(claim.error) if claim.error.startswith("[API Error") else 0
        )


def _model(request: Request, model: ModelAccess) -> tuple[str, ...]:
    # Without a name it first asks a model which model to ask.
    name = request.model or model.model
    return (f"--model={name}",) if name else ()


def _start(argv: tuple[str, ...], found: Found, request: Request, model: ModelAccess) -> Start:
    env = installed.environment(
        found,
        {
            "GEMINI_API_KEY": model.key,
            "GOOGLE_GEMINI_BASE_URL": model.url,
            "GEMINI_CLI_NO_RELAUNCH": "true",
            "GEMINI_FORCE_FILE_STORAGE": "true",
            # Ours stand above those of the project, which is trusted for the sake of its tools.
            "GEMINI_CLI_SYSTEM_SETTINGS_PATH": f"{HOME}/{_SETTINGS}",
        },
    )
    settings = json.dumps(_settings(request), indent=1)
    return Start(argv, env, ((_SETTINGS, settings),), found.readable)


def _settings(request: Request) -> dict[str, object]:
    return {
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "maxAttempts": 2},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "model": {"maxSessionTurns": request.turns or -1, "skipNextSpeakerCheck": True},
        "tools": {"sandbox": False},
        "hooksConfig": {"enabled": False},
        "mcp": {"allowed": [_NO_SERVER]},
    }


def _after(claim: Claim, event: Event) -> Claim:
    kind = event.text("type")
    if kind == "init":
        return claim._replace(session=session_name(event.text("session_id")))
    if kind == "message" and event.text("role") == "assistant":
        before = claim.words if event.true("delta") else ""
        return claim._replace(words=kept(before + event.text("content")))
    if kind == "tool_use":
        return claim._replace(tool_calls=claim.tool_calls + 1, words="")
    if kind == "error":
        return claim._replace(error=kept(event.text("message"), ERROR_KEPT))
    if kind == "result":
        good = event.text("status") == "success"
        error = "" if good else kept(event.text("error", "message") or claim.error, ERROR_KEPT)
        return claim._replace(success=good, error=error, stopped_because=event.text("status"), usage=_usage(event))
    return claim


def _usage(event: Event) -> Usage:
    return Usage(0, event.number("stats", "input_tokens"), event.number("stats", "output_tokens"), None)
