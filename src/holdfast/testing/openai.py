"""The wire of OpenAI's chat completions, which most other providers speak too."""

from __future__ import annotations

import json
from collections.abc import Iterator

from holdfast.testing.conversation import (
    Call,
    Conversation,
    Event,
    Json,
    Model,
    Outcome,
    Reply,
    Tool,
    Words,
    chunks,
    said_by_user,
    status_word,
    text_of,
    tool_of,
)

# Answers never depend on the clock.
MADE_AT = 1_700_000_000
_TYPES = {
    400: "invalid_request_error",
    401: "invalid_api_key",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_exceeded",
}


def heard(body: Json, path: str) -> Conversation:
    del path
    messages = [message for message in body.get("messages") or () if isinstance(message, dict)]
    # The older form of the same field.
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    return Conversation(
        model=str(body.get("model") or ""),
        system="\n".join(text_of(m.get("content")) for m in messages if m.get("role") in ("system", "developer")),
        events=tuple(event for message in messages for event in _events(message)),
        tools=tuple(_tools(body)),
        streamed=bool(body.get("stream")),
        max_tokens=most if isinstance(most, int) else None,
        schema=_schema(body),
        forced=isinstance(body.get("tool_choice"), dict) or body.get("tool_choice") == "required",
    )


def _events(message: Json) -> Iterator[Event]:
    text = text_of(message.get("content"))
    role = message.get("role")
    if role == "user":
        yield from said_by_user(text)
    elif role == "tool":
        yield Outcome(text)
    elif role == "assistant":
        calls = message.get("tool_calls") or ()
        yield Model(text, str(calls[0]["function"]["name"]) if calls else "")


def _tools(body: Json) -> Iterator[Tool]:
    for tool in body.get("tools") or ():
        if tool.get("type") == "function":
            yield tool_of(str(tool["function"]["name"]), tool["function"].get("parameters"))


def _schema(body: Json) -> Json | None:
    wanted = body.get("response_format") or {}
    if wanted.get("type") == "json_object":
        return {}
    found = (wanted.get("json_schema") or {}).get("schema")
    return found if isinstance(found, dict) else None


def whole(reply: Reply) -> Json:
    message: Json = {"role": "assistant", "content": None, "refusal": None}
    if isinstance(reply.answer, Words):
        message["content"] = reply.answer.text
    else:
        message["tool_calls"] = [{"type": "function", "id": _id(reply), "function": _function(reply.answer)}]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(reply)}
    return {**_frame(reply, "chat.completion"), "choices": [choice], "usage": _usage(reply)}


def pieces(reply: Reply, body: Json) -> Iterator[tuple[str, Json | str]]:
    frame = _frame(reply, "chat.completion.chunk")

    def chunk(delta: Json, reason: str | None = None) -> tuple[str, Json]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return "", {**frame, "choices": [choice]}

    if isinstance(reply.answer, Words):
        yield chunk({"role": "assistant", "content": ""})
        for text in chunks(reply.answer.text):
            yield chunk({"content": text})
    else:
        function = _function(reply.answer)
        begun = {"index": 0, "id": _id(reply), "type": "function", "function": {**function, "arguments": ""}}
        yield chunk({"role": "assistant", "content": None, "tool_calls": [begun]})
        for text in chunks(function["arguments"]):
            yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})
    yield chunk({}, _reason(reply))
    if (body.get("stream_options") or {}).get("include_usage"):
        yield "", {**frame, "choices": [], "usage": _usage(reply)}
    yield "", "[DONE]"


def error(status: int, message: str) -> Json:
    kind = status_word(status, _TYPES, "server_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": kind}}


def _frame(reply: Reply, kind: str) -> Json:
    return {"id": f"chatcmpl-{reply.mark}", "object": kind, "created": MADE_AT, "model": reply.model}


def _function(call: Call) -> dict[str, str]:
    return {"name": call.tool.name, "arguments": json.dumps(call.arguments)}


def _id(reply: Reply) -> str:
    return f"call_{reply.mark}"


def _reason(reply: Reply) -> str:
    return "stop" if isinstance(reply.answer, Words) else "tool_calls"


def _usage(reply: Reply) -> Json:
    taken, given = reply.tokens
    return {
        "prompt_tokens": taken,
        "completion_tokens": given,
        "total_tokens": taken + given,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }
