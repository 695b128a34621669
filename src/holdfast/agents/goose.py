"""goose: `goose run` with a stream of JSON after a banner, or `goose acp`.

A failing model is an apology in text and exit 0: what it prints as an error is all there is.
"""

from __future__ import annotations

import re

from holdfast.agents import installed
from holdfast.agents.events import ERROR_KEPT, Event, api_status, concluded, events, kept, session_name
from holdfast.agents.installed import Wanted
from holdfast.agents.program import Found, Heard, Missing
from holdfast.agents.protocol import ModelAccess, Start
from holdfast.model.agent import Api, Capability, Claim, Request, Usage

_WANTED = Wanted("goose", "@aaif/goose-binary-linux-x64")
_APOLOGY = "Ran into this error:"
_OUT_OF_TURNS = "I've reached the maximum number of actions"
_SESSION = re.compile(r"\)\s+(\d{8}_\d+) ")
_BANNER_BYTES = 4096
_QUIET = {
    "GOOSE_DISABLE_KEYRING": "1",
    "GOOSE_TELEMETRY_ENABLED": "false",
    "GOOSE_TELEMETRY_OFF": "1",
    "GOOSE_DISABLE_SESSION_NAMING": "true",
    "GOOSE_PROVIDER_SKIP_BACKOFF": "true",
}


class Goose:
    name = "goose"
    capabilities: frozenset[Capability] = frozenset({"edit", "shell", "resume", "permission", "usage"})
    api: Api = "openai"

    def find(self, path: str) -> Found | Missing:
        return installed.find(_WANTED, path)

    def acp(self, found: Found, request: Request, model: ModelAccess) -> Start | None:
        return _start((*found.argv, "acp", "--with-builtin", "developer"), found, request, model, "approve")

    def headless(self, found: Found, request: Request, model: ModelAccess, prompt: str) -> Start:
        session = session_name(request.session)
        argv = (
            *(*found.argv, "run", "--output-format", "stream-json", "--with-builtin", "developer"),
            *((f"--max-turns={request.turns}",) if request.turns else ()),
            *(("--resume", f"--session-id={session}") if session else ()),
            f"--text={prompt}",
        )
        return _start(argv, found, request, model, "auto")

    def heard(self, output: bytes, exit_code: int | None) -> Heard:
        claim, message = Claim(session=_session(output)), ""
        for event in events(output):
            # A message comes in pieces that share its name.
            name = event.text("message", "id")
            if name and name != message:
                message, claim = name, claim._replace(words="")
            claim = _after(claim, event)
        return concluded(claim, output, exit_code, _status(claim))


def _start(argv: tuple[str, ...], found: Found, request: Request, model: ModelAccess, mode: str) -> Start:
    reach = {
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": request.model or model.model or "default",
        "OPENAI_HOST": model.url,
        "OPENAI_BASE_PATH": "v1/chat/completions",
        "OPENAI_API_KEY": model.key,
    }
    return Start(argv, installed.environment(found, {**_QUIET, **reach, "GOOSE_MODE": mode}), readable=found.readable)


def _session(output: bytes) -> str:
    """It stands in the banner, before the path."""
    named = _SESSION.search(output[:_BANNER_BYTES].decode("utf-8", "replace"))
    return session_name(named.group(1)) if named else ""


def _after(claim: Claim, event: Event) -> Claim:
    kind = event.text("type")
    if kind == "message" and event.text("message", "role") == "assistant":
        return _said(claim, event.each("message", "content"))
    if kind == "error":
        return claim._replace(success=False, error=kept(event.text("error"), ERROR_KEPT), stopped_because=kind)
    if kind == "complete":
        return _completed(claim, Usage(0, event.number("input_tokens"), event.number("output_tokens"), None))
    return claim


def _completed(claim: Claim, spent: Usage) -> Claim:
    """It says so also after an apology, and when it asks whether to go on."""
    if claim.words.startswith(_OUT_OF_TURNS):
        return claim._replace(success=False, error=claim.words, stopped_because="max_turns", usage=spent)
    return claim._replace(success=not claim.error, stopped_because="complete", usage=spent)


def _said(claim: Claim, parts: tuple[Event, ...]) -> Claim:
    words = "".join(part.text("text") for part in parts if part.text("type") == "text")
    used = sum(part.text("type") == "toolRequest" for part in parts)
    claim = claim._replace(tool_calls=claim.tool_calls + used)
    if words.startswith(_APOLOGY):
        return claim._replace(error=kept(words, ERROR_KEPT))
    return claim._replace(words=kept(claim.words + words))


def _status(claim: Claim) -> int:
    return api_status(claim.error) if claim.error.startswith(_APOLOGY) else 0
