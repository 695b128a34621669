"""Claude Code: `claude -p` with a stream of JSON, or its ACP adapter, which is a package of its own.

Its permission prompts are off: the sandbox is the border. As root it refuses that, unless it is told of one.
Settings, hooks and servers that the repository brings are left out: they come from whoever wrote the repository.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.agents import installed
from holdfast.agents.events import ERROR_KEPT, Event, concluded, events, kept, session_name
from holdfast.agents.installed import Adapter, Wanted
from holdfast.agents.program import Found, Heard, Missing
from holdfast.agents.protocol import ModelAccess, Start
from holdfast.model.agent import Api, Capability, Claim, Request, Usage

_WANTED = Wanted("claude", "@anthropic-ai/claude-code")
_ADAPTER = Adapter(
    Wanted("claude-agent-acp", "@agentclientprotocol/claude-agent-acp"), "/claude-agent-acp/dist/index.js"
)
_QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "DISABLE_TELEMETRY": "1",
    "DISABLE_ERROR_REPORTING": "1",
    "CLAUDE_CODE_MAX_RETRIES": "2",
    # After a task it would ask the model what a person might type next: a request that nobody waits for.
    "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION": "false",
    "IS_SANDBOX": "1",
}
# What --setting-sources and --strict-mcp-config say on the command line; the adapter would read the project's too.
_OWN_SETTINGS_ONLY: Mapping[str, object] = {
    "_meta": {"claudeCode": {"options": {"settingSources": ["user"], "strictMcpConfig": True}}}
}


class Claude:
    name = "claude"
    capabilities: frozenset[Capability] = frozenset({"edit", "shell", "resume", "permission", "usage"})
    api: Api = "anthropic"

    def find(self, path: str) -> Found | Missing:
        return installed.find(_WANTED, path, _ADAPTER)

    def acp(self, found: Found, request: Request, model: ModelAccess) -> Start | None:
        adapter = installed.adapted(found, _ADAPTER)
        if not adapter:
            return None
        # The adapter brings a Claude Code of its own; the user's is the one whose version we report.
        env = {**_environment(found, request, model), "CLAUDE_CODE_EXECUTABLE": found.argv[-1]}
        return Start(adapter, env, readable=found.readable, session=_OWN_SETTINGS_ONLY)

    def headless(self, found: Found, request: Request, model: ModelAccess, prompt: str) -> Start:
        session = session_name(request.session)
        argv = (
            *found.argv,
            *("--print", "--output-format", "stream-json", "--verbose"),
            *("--permission-mode", "bypassPermissions", "--setting-sources", "user", "--strict-mcp-config"),
            *(("--max-turns", str(request.turns)) if request.turns else ()),
            *((f"--resume={session}",) if session else ()),
            *("--", prompt),
        )
        return Start(argv, _environment(found, request, model), readable=found.readable)

    def heard(self, output: bytes, exit_code: int | None) -> Heard:
        claim = Claim()
        status = 0
        for event in events(output):
            claim = claim._replace(session=session_name(event.text("session_id")) or claim.session)
            if event.text("type") == "assistant":
                parts = event.each("message", "content")
                claim = claim._replace(tool_calls=claim.tool_calls + _of_type(parts, "tool_use"))
            elif event.text("type") == "result":
                claim = _ended(claim, event)
                status = event.number("api_error_status")
        return concluded(claim, output, exit_code, status)


def _environment(found: Found, request: Request, model: ModelAccess) -> dict[str, str]:
    name = request.model or model.model
    # All the small side questions go to the same model: it is the one the proxy lets through and the user pays for.
    named = {"ANTHROPIC_MODEL": name, "ANTHROPIC_SMALL_FAST_MODEL": name} if name else {}
    reach = {"ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": model.key}
    return installed.environment(found, {**_QUIET, **reach, **named})


def _of_type(parts: tuple[Event, ...], kind: str) -> int:
    return sum(part.text("type") == kind for part in parts)


def _ended(claim: Claim, event: Event) -> Claim:
    """Of the last event. `subtype` says success also when `is_error` is set."""
    good = event.text("subtype") == "success" and not event.true("is_error")
    words = kept(event.text("result"))
    errors = "; ".join(event.texts("errors"))
    return claim._replace(
        words=words if good else "",
        success=good,
        error="" if good else kept(words or errors or event.text("subtype"), ERROR_KEPT),
        stopped_because=kept(event.text("terminal_reason") or event.text("subtype"), 80),
        usage=_usage(event),
    )


def _usage(event: Event) -> Usage:
    given = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return Usage(
        event.number("num_turns"),
        sum(event.number("usage", name) for name in given),
        event.number("usage", "output_tokens"),
        event.money("total_cost_usd"),
    )
