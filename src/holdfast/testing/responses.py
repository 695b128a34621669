"""The wire of OpenAI's responses, which codex speaks: items in, items out, and tools that take free text.

Nothing is kept between requests, so a program that sends only the id of an earlier response is refused, as it would
be by a provider that does not know the id.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count

from holdfast.testing.conversation import (
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
    text_of,
    tool_of,
)
from holdfast.testing.openai import MADE_AT
from holdfast.testing.openai import error as error

_CALLS = ("function_call", "custom_tool_call", "local_shell_call")


def heard(body: Json, path: str) -> Conversation:
    del path
    given = body.get("input") or ()
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    instructions = [text_of(item.get("content")) for item in items if item.get("role") in ("system", "developer")]
    wanted = (body.get("text") or {}).get("format") or {}
    most = body.get("max_output_tokens")
    choice = body.get("tool_choice")
    return Conversation(
        model=str(body.get("model") or ""),
        system="\n".join([str(body.get("instructions") or ""), *instructions]),
        events=tuple(event for item in items for event in _events(item)),
        tools=tuple(_tools(body)),
        streamed=bool(body.get("stream")),
        max_tokens=most if isinstance(most, int) else None,
        schema=wanted.get("schema") if wanted.get("type") == "json_schema" else None,
        forced=choice == "required" or (isinstance(choice, dict) and choice.get("type") != "allowed_tools"),
    )


def _events(item: Json) -> Iterator[Event]:
    kind = item.get("type") or "message"
    text = text_of(item.get("content"))
    if kind == "message" and item.get("role") == "user":
        yield from said_by_user(text)
    elif kind == "message" and item.get("role") == "assistant":
        yield Model(text)
    elif kind in _CALLS:
        yield Model("", str(item.get("name") or "local_shell"))
    elif kind in [f"{call}_output" for call in _CALLS]:
        yield Outcome(text_of(item.get("output")))


def _tools(body: Json) -> Iterator[Tool]:
    for tool in body.get("tools") or ():
        kind = tool.get("type")
        if kind == "function":
            yield tool_of(str(tool["name"]), tool.get("parameters"))
        elif kind == "custom":
            yield tool_of(str(tool["name"]), None, "custom")
        elif kind == "local_shell":
            yield tool_of("local_shell", None, "local_shell")


def whole(reply: Reply) -> Json:
    return _response(reply, "completed", [_item(reply, "completed")])


def pieces(reply: Reply, body: Json) -> Iterator[tuple[str, Json | str]]:
    del body
    number = count()
    for kind, data in _events_of(reply):
        yield kind, {"type": kind, "sequence_number": next(number), **data}


def _events_of(reply: Reply) -> Iterator[tuple[str, Json]]:
    begun, done = _item(reply, "in_progress"), _item(reply, "completed")
    yield "response.created", {"response": _response(reply, "in_progress", [])}
    yield "response.in_progress", {"response": _response(reply, "in_progress", [])}
    yield "response.output_item.added", {"output_index": 0, "item": begun}
    yield from _growing(reply, {"item_id": done["id"], "output_index": 0})
    yield "response.output_item.done", {"output_index": 0, "item": done}
    yield "response.completed", {"response": _response(reply, "completed", [done])}


def _growing(reply: Reply, place: Json) -> Iterator[tuple[str, Json]]:
    answer = reply.answer
    if isinstance(answer, Words):
        part = {**place, "content_index": 0}
        yield "response.content_part.added", {**part, "part": _part("")}
        for text in chunks(answer.text):
            yield "response.output_text.delta", {**part, "delta": text, "logprobs": []}
        yield "response.output_text.done", {**part, "text": answer.text, "logprobs": []}
        yield "response.content_part.done", {**part, "part": _part(answer.text)}
    elif answer.tool.form == "function":
        written = json.dumps(answer.arguments)
        for text in chunks(written):
            yield "response.function_call_arguments.delta", {**place, "delta": text}
        yield "response.function_call_arguments.done", {**place, "arguments": written}
    elif answer.tool.form == "custom":
        for text in chunks(answer.raw):
            yield "response.custom_tool_call_input.delta", {**place, "delta": text}
        yield "response.custom_tool_call_input.done", {**place, "input": answer.raw}


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item(reply: Reply, status: str) -> Json:
    answer, done = reply.answer, status == "completed"
    if isinstance(answer, Words):
        content = [_part(answer.text)] if done else []
        return {
            "type": "message",
            "id": f"msg_{reply.mark}",
            "status": status,
            "role": "assistant",
            "content": content,
        }
    call: Json = {"status": status, "call_id": f"call_{reply.mark}"}
    match answer.tool.form:
        case "function":
            written = json.dumps(answer.arguments) if done else ""
            return {**call, "type": _CALLS[0], "id": f"fc_{reply.mark}", "name": answer.tool.name, "arguments": written}
        case "custom":
            given = answer.raw if done else ""
            return {**call, "type": _CALLS[1], "id": f"ctc_{reply.mark}", "name": answer.tool.name, "input": given}
        case "local_shell":
            return {**call, "type": _CALLS[2], "id": f"lsh_{reply.mark}", "action": answer.arguments}


def _response(reply: Reply, status: str, output: list[Json]) -> Json:
    return {
        "id": f"resp_{reply.mark}",
        "object": "response",
        "created_at": MADE_AT,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": reply.model,
        "output": output,
        "parallel_tool_calls": False,
        "previous_response_id": None,
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": _usage(reply) if status == "completed" else None,
    }


def _usage(reply: Reply) -> Json:
    taken, given = reply.tokens
    return {
        "input_tokens": taken,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": given,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": taken + given,
    }
