"""Qwen Code: `qwen` with a stream of JSON like Claude's, or `qwen --acp`.

A failing model is asked seven times, over a minute; nothing in its settings makes that less.
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

_WANTED = Wanted("qwen", "@qwen-code/qwen-code")

_SETTINGS = ".qwen/settings.json"
# A list that allows nothing would be no list.
_NO_SERVER = "none"


class Qwen:
    name = "qwen"
    capabilities: frozenset[Capability] = frozenset({"edit", "shell", "resume", "permission", "usage"})
    api: Api = "openai"

    def find(self, path: str) -> Found | Missing:
        return installed.find(_WANTED, path)

    def acp(self, found: Found, request: Request, model: ModelAccess) -> Start | None:
        return _start(
            (*found.argv, "--acp", "--auth-type", "openai", "--approval-mode", "default"), found, request, model
        )

    def headless(self, found: Found, request: Request, model: ModelAccess, prompt: str) -> Start:
        session = session_name(request.session)
        argv = (
            *(*found.argv, "--auth-type", "openai", "--approval-mode", "yolo", "--output-format", "stream-json"),
            *(("--max-session-turns", str(request.turns)) if request.turns else ()),
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


def _start(argv: tuple[str, ...], found: Found, request: Request, model: ModelAccess) -> Start:
    name = request.model or model.model
    env = installed.environment(
        found,
        {
            "OPENAI_API_KEY": model.key,
            "OPENAI_BASE_URL": f"{model.url}/v1",
            **({"OPENAI_MODEL": name} if name else {}),
            "QWEN_CODE_NO_RELAUNCH": "true",
            "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1",
            # Ours stand above those of the project.
            "QWEN_CODE_SYSTEM_SETTINGS_PATH": f"{HOME}/{_SETTINGS}",
        },
    )
    settings = json.dumps(_settings(), indent=1)
    return Start(argv, env, ((_SETTINGS, settings),), found.readable)


def _settings() -> dict[str, object]:
    return {
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}},
        "model": {"skipNextSpeakerCheck": True, "generationConfig": {"maxRetries": 0}},
        "tools": {"sandbox": False},
        "disableAllHooks": True,
        "mcp": {"allowed": [_NO_SERVER]},
        # It would ask the model what a person might type next, and what of this task to remember for the next one.
        "ui": {"enableFollowupSuggestions": False},
        "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
    }


def _after(claim: Claim, event: Event) -> Claim:
    claim = claim._replace(session=session_name(event.text("session_id")) or claim.session)
    kind = event.text("type")
    if kind == "assistant":
        used = sum(part.text("type") == "tool_use" for part in event.each("message", "content"))
        return claim._replace(tool_calls=claim.tool_calls + used)
    if kind == "result":
        return _ended(claim, event)
    return claim


def _ended(claim: Claim, event: Event) -> Claim:
    good = event.text("subtype") == "success" and not event.true("is_error")
    said = event.text("result") or event.text("error", "message")
    return claim._replace(
        words=kept(said) if good else "",
        success=good,
        error="" if good else kept(said or event.text("subtype"), ERROR_KEPT),
        stopped_because=kept(event.text("subtype"), 80),
        usage=Usage(
            event.number("num_turns"),
            event.number("usage", "input_tokens"),
            event.number("usage", "output_tokens"),
            None,
        ),
    )
