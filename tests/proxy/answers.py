"""What each wire looks like: a question, its answer as a document and as a stream, and what both used."""

from __future__ import annotations

import json
from typing import NamedTuple

from holdfast.model.agent import Api
from holdfast.proxy.upstream import Tokens
from proxy.provider import Reply, streamed


class Case(NamedTuple):
    api: Api
    path: str
    body: dict[str, object]
    document: dict[str, object]
    events: tuple[object, ...]
    tokens: Tokens
    # Where this wire carries the key, upstream.
    key_header: str
    stream_path: str = ""

    def asking(self, *, stream: bool) -> tuple[str, dict[str, object]]:
        if self.api == "gemini":
            return (self.stream_path if stream else self.path), dict(self.body)
        return self.path, {**self.body, **({"stream": True} if stream else {})}

    def reply(self, *, stream: bool) -> Reply:
        return streamed(*self.pieces()) if stream else Reply((json.dumps(self.document).encode(),))

    def pieces(self) -> tuple[bytes, ...]:
        done = (b"data: [DONE]\n\n",) if self.api == "openai" else ()
        return (*(event_bytes(event) for event in self.events), *done)


def event_bytes(event: object) -> bytes:
    kind = event.get("type") if isinstance(event, dict) else None
    name = f"event: {kind}\n" if kind else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


OPENAI = Case(
    "openai",
    "/v1/chat/completions",
    {"model": "m-1", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 500},
    {
        "choices": [{"message": {"role": "assistant", "content": "Hello there"}}],
        "usage": {
            "prompt_tokens": 120,
            "completion_tokens": 30,
            "prompt_tokens_details": {"cached_tokens": 100},
            "completion_tokens_details": {"reasoning_tokens": 12},
        },
    },
    (
        {"choices": [{"delta": {"content": "Hello "}}], "usage": None},
        {"choices": [{"delta": {"content": "there"}}], "usage": None},
        {
            "choices": [],
            "usage": {"prompt_tokens": 120, "completion_tokens": 30, "prompt_tokens_details": {"cached_tokens": 100}},
        },
    ),
    Tokens(20, 30, 100),
    "authorization",
)
RESPONSES = Case(
    "responses",
    "/v1/responses",
    {"model": "m-1", "input": "hello", "max_output_tokens": 500},
    {
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello there"}]}],
        "usage": {
            "input_tokens": 120,
            "input_tokens_details": {"cached_tokens": 100},
            "output_tokens": 30,
            "output_tokens_details": {"reasoning_tokens": 12},
        },
    },
    (
        {"type": "response.created", "response": {"id": "r", "usage": None}},
        {"type": "response.output_text.delta", "delta": "Hello "},
        {"type": "response.output_text.delta", "delta": "there"},
        {"type": "response.output_text.done", "text": "Hello there"},
        {
            "type": "response.completed",
            "response": {
                "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hello there"}]}],
                "usage": {"input_tokens": 120, "input_tokens_details": {"cached_tokens": 100}, "output_tokens": 30},
            },
        },
    ),
    Tokens(20, 30, 100),
    "authorization",
)
ANTHROPIC = Case(
    "anthropic",
    "/v1/messages?beta=true",
    {"model": "m-1", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 500},
    {
        "type": "message",
        "content": [{"type": "text", "text": "Hello there"}],
        "usage": {
            "input_tokens": 20,
            "cache_creation_input_tokens": 8,
            "cache_read_input_tokens": 100,
            "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 3},
            "output_tokens": 30,
        },
    },
    (
        {
            "type": "message_start",
            "message": {
                "usage": {
                    "input_tokens": 20,
                    "cache_creation_input_tokens": 8,
                    "cache_read_input_tokens": 100,
                    "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 3},
                    "output_tokens": 1,
                }
            },
        },
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello "}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "there"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 30}},
        {"type": "message_stop"},
    ),
    Tokens(20, 30, 100, 5, 3),
    "x-api-key",
)
GEMINI = Case(
    "gemini",
    "/v1beta/models/m-1:generateContent",
    {"contents": [{"parts": [{"text": "hello"}]}], "generationConfig": {"maxOutputTokens": 500}},
    {
        "candidates": [{"content": {"parts": [{"text": "Hello there"}]}}],
        "usageMetadata": {
            "promptTokenCount": 120,
            "cachedContentTokenCount": 100,
            "candidatesTokenCount": 18,
            "thoughtsTokenCount": 12,
            "totalTokenCount": 150,
        },
    },
    (
        {
            "candidates": [{"content": {"parts": [{"text": "Hello "}]}}],
            "usageMetadata": {"promptTokenCount": 120, "cachedContentTokenCount": 100, "candidatesTokenCount": 5},
        },
        {
            "candidates": [{"content": {"parts": [{"text": "there"}]}}],
            "usageMetadata": {
                "promptTokenCount": 120,
                "cachedContentTokenCount": 100,
                "candidatesTokenCount": 18,
                "thoughtsTokenCount": 12,
            },
        },
    ),
    Tokens(20, 30, 100),
    "x-goog-api-key",
    "/v1beta/models/m-1:streamGenerateContent?alt=sse",
)
CASES = (OPENAI, RESPONSES, ANTHROPIC, GEMINI)
