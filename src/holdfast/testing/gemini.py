"""The wire of Gemini's generateContent: the model's name is in the path, and a stream is whole answers in pieces."""

from __future__ import annotations

from collections.abc import Iterator

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
    status_word,
    text_of,
    tool_of,
)

_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def heard(body: Json, path: str) -> Conversation:
    settings = body.get("generationConfig") or {}
    most = settings.get("maxOutputTokens")
    wanted = settings.get("responseJsonSchema") or settings.get("responseSchema")
    mode = ((body.get("toolConfig") or {}).get("functionCallingConfig") or {}).get("mode")
    return Conversation(
        model=path.rpartition("/")[2].partition(":")[0],
        system=text_of((body.get("systemInstruction") or {}).get("parts")),
        events=tuple(event for content in body.get("contents") or () for event in _events(content)),
        tools=tuple(_tools(body)),
        streamed=path.endswith(":streamGenerateContent"),
        max_tokens=most if isinstance(most, int) else None,
        schema=wanted if isinstance(wanted, dict) else None,
        forced=mode == "ANY",
    )


def _events(content: Json) -> Iterator[Event]:
    parts = content.get("parts") or []
    texts = "".join(str(part.get("text") or "") for part in parts if not part.get("thought"))
    if content.get("role") == "model":
        called = [str(part["functionCall"].get("name")) for part in parts if part.get("functionCall")]
        yield Model(texts, called[0] if called else "")
        return
    for part in parts:
        if result := part.get("functionResponse"):
            given = result.get("response") or {}
            yield Outcome("\n".join(str(value) for value in given.values()))
    yield from said_by_user(texts)


def _tools(body: Json) -> Iterator[Tool]:
    for group in body.get("tools") or ():
        for tool in group.get("functionDeclarations") or ():
            yield tool_of(str(tool["name"]), tool.get("parametersJsonSchema") or tool.get("parameters"))


def whole(reply: Reply) -> Json:
    answer = reply.answer
    return _frame(reply, {"text": answer.text} if isinstance(answer, Words) else _call(reply), last=True)


def pieces(reply: Reply, body: Json) -> Iterator[tuple[str, Json | str]]:
    del body
    answer = reply.answer
    parts: list[Json] = (
        [{"text": text} for text in chunks(answer.text)] if isinstance(answer, Words) else [_call(reply)]
    )
    for number, part in enumerate(parts, 1):
        yield "", _frame(reply, part, last=number == len(parts))


def error(status: int, message: str) -> Json:
    return {"error": {"code": status, "message": message, "status": status_word(status, _STATUSES, "INTERNAL")}}


def _call(reply: Reply) -> Json:
    assert not isinstance(reply.answer, Words)
    return {"functionCall": {"name": reply.answer.tool.name, "args": reply.answer.arguments}}


def _frame(reply: Reply, part: Json, *, last: bool) -> Json:
    taken, given = reply.tokens
    candidate: Json = {"content": {"parts": [part], "role": "model"}, "index": 0}
    if last:
        candidate["finishReason"] = "STOP"
    counts = {"promptTokenCount": taken, "candidatesTokenCount": given, "totalTokenCount": taken + given}
    return {
        "candidates": [candidate],
        "usageMetadata": counts if last else {"promptTokenCount": taken, "totalTokenCount": taken},
        "modelVersion": reply.model,
        "responseId": reply.mark,
    }
