"""The wire of Anthropic's messages, which Claude Code speaks."""

from __future__ import annotations

import json
from collections.abc import Iterator

from holdfast.testing.conversation import (
    Conversation,
    Event,
    Json,
    Model,
    Outcome,
    Reply,
    Words,
    chunks,
    said_by_user,
    status_word,
    text_of,
    tool_of,
)

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def heard(body: Json, path: str) -> Conversation:
    del path
    most = body.get("max_tokens")
    # The newer place of the schema, and the one before it.
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    tools = [tool for tool in body.get("tools") or () if "input_schema" in tool]
    return Conversation(
        model=str(body.get("model") or ""),
        system=text_of(body.get("system")),
        events=tuple(event for message in body.get("messages") or () for event in _events(message)),
        tools=tuple(tool_of(str(tool["name"]), tool["input_schema"]) for tool in tools),
        streamed=bool(body.get("stream")),
        max_tokens=most if isinstance(most, int) else None,
        schema=wanted.get("schema") if isinstance(wanted.get("schema"), dict) else None,
        forced=(body.get("tool_choice") or {}).get("type") in ("any", "tool"),
    )


def _events(message: Json) -> Iterator[Event]:
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    texts = "\n".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    if message.get("role") == "assistant":
        used = [str(block["name"]) for block in blocks if block.get("type") == "tool_use"]
        yield Model(texts, used[0] if used else "")
        return
    for block in blocks:
        if block.get("type") == "tool_result":
            yield Outcome(text_of(block.get("content")))
    yield from said_by_user(texts)


def whole(reply: Reply) -> Json:
    return {**_message(reply), "content": [_block(reply, done=True)], "stop_reason": _reason(reply)}


def pieces(reply: Reply, body: Json) -> Iterator[tuple[str, Json | str]]:
    del body
    for data in _events_of(reply):
        yield str(data["type"]), data


def _events_of(reply: Reply) -> Iterator[Json]:
    begun = _message(reply)
    # What will have been written is not known at the start; the last event but one has the truth.
    yield {"type": "message_start", "message": {**begun, "usage": {**begun["usage"], "output_tokens": 1}}}
    yield {"type": "content_block_start", "index": 0, "content_block": _block(reply, done=False)}
    yield {"type": "ping"}
    answer = reply.answer
    if isinstance(answer, Words):
        deltas = [{"type": "text_delta", "text": text} for text in chunks(answer.text)]
    else:
        written = json.dumps(answer.arguments)
        deltas = [{"type": "input_json_delta", "partial_json": text} for text in ["", *chunks(written)]]
    for delta in deltas:
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    ended = {"stop_reason": _reason(reply), "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": reply.tokens.given}}
    yield {"type": "message_stop"}


def error(status: int, message: str) -> Json:
    kind = status_word(status, _TYPES, "api_error")
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"}


def _message(reply: Reply) -> Json:
    return {
        "id": f"msg_{reply.mark}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": reply.tokens.taken,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": reply.tokens.given,
        },
    }


def _block(reply: Reply, *, done: bool) -> Json:
    answer = reply.answer
    if isinstance(answer, Words):
        return {"type": "text", "text": answer.text if done else ""}
    given = answer.arguments if done else {}
    return {"type": "tool_use", "id": f"toolu_{reply.mark}", "name": answer.tool.name, "input": given}


def _reason(reply: Reply) -> str:
    return "end_turn" if isinstance(reply.answer, Words) else "tool_use"
