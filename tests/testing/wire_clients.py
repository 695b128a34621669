"""Clients of the four wires in raw HTTP, as small as they can be: they share no code with the server they test.

client = CLIENTS["anthropic"](model, streamed=True)
client.user("task-1: do it")
heard = client.ask()                      # Heard(text=..., tool=..., arguments=..., taken=..., given=...)
client.outcome("done")                    # what the tool gave back; the history grows as a program's does
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from holdfast.testing.model_server import ScriptedModel

Json = dict[str, Any]
WRITE = {
    "type": "object",
    "properties": {"file_path": {"type": "string"}, "content": {"type": "string"}},
    "required": ["file_path", "content"],
}
SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = {"write_file": WRITE, "run_shell_command": SHELL}


class Heard(NamedTuple):
    status: int
    text: str = ""
    tool: str = ""
    arguments: Json | str = ""
    taken: int = 0
    given: int = 0
    error: Mapping[str, Any] = MappingProxyType({})
    headers: Mapping[str, str] = MappingProxyType({})
    raw: bytes = b""


class Client:
    """`tools`: name to schema. `key`: another than the model's."""

    path = ""
    key_header = "Authorization"

    def __init__(
        self, model: ScriptedModel, *, streamed: bool = False, tools: dict[str, Json] = TOOLS, key: str | None = None
    ) -> None:
        self.url, self.streamed, self.tools = model.url, streamed, tools
        self.key = model.key if key is None else key
        self.history: list[Json] = []
        self.system = ""
        self.more: Json = {}

    def ask(self) -> Heard:
        """Send the conversation; the answer becomes part of it."""
        raw = post(self.url, self.place(), self.body(), self.headers())
        if raw.status != 200:
            return raw._replace(error=json.loads(raw.raw))
        heard = self.read_stream(_events(raw.raw)) if self.streamed else self.read(json.loads(raw.raw))
        self.remember(heard)
        return heard._replace(status=200, raw=raw.raw, headers=raw.headers)

    def headers(self) -> dict[str, str]:
        value = f"Bearer {self.key}" if self.key_header == "Authorization" else self.key
        return {"Content-Type": "application/json", self.key_header: value}

    def place(self) -> str:
        return self.path

    def body(self) -> Json:
        raise NotImplementedError

    def user(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def outcome(self, text: str) -> None:
        raise NotImplementedError

    def read(self, document: Json) -> Heard:
        raise NotImplementedError

    def read_stream(self, events: list[Json]) -> Heard:
        raise NotImplementedError

    def remember(self, heard: Heard) -> None:
        raise NotImplementedError


class Chat(Client):
    path = "/v1/chat/completions"

    def body(self) -> Json:
        tools = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in self.tools.items()]
        messages = [{"role": "system", "content": self.system}, *self.history]
        streaming = {"stream": True, "stream_options": {"include_usage": True}} if self.streamed else {}
        return {"model": "m", "messages": messages, **({"tools": tools} if tools else {}), **streaming, **self.more}

    def outcome(self, text: str) -> None:
        self.history.append({"role": "tool", "tool_call_id": self.call, "content": text})

    def read(self, document: Json) -> Heard:
        (choice,) = document["choices"]
        message, usage = choice["message"], document["usage"]
        calls = message.get("tool_calls") or []
        assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
        self.call = calls[0]["id"] if calls else ""
        return self._heard(message["content"], [call["function"] for call in calls], usage)

    def read_stream(self, events: list[Json]) -> Heard:
        *chunks, last = events
        text, calls, ended = "", [], []
        for chunk in chunks:
            (choice,) = chunk["choices"]
            delta = choice["delta"]
            text += delta.get("content") or ""
            ended += [choice["finish_reason"]] if choice["finish_reason"] else []
            for call in delta.get("tool_calls") or []:
                assert call["index"] == 0
                if "id" in call:
                    self.call = call["id"]
                    calls.append(dict(call["function"]))
                else:
                    calls[0]["arguments"] += call["function"]["arguments"]
        assert ended == ["tool_calls" if calls else "stop"]
        assert last["choices"] == []
        return self._heard(text, calls, last["usage"])

    def _heard(self, text: str | None, calls: list[Json], usage: Json) -> Heard:
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
        tool, arguments = (calls[0]["name"], json.loads(calls[0]["arguments"])) if calls else ("", "")
        return Heard(200, text or "", tool, arguments, usage["prompt_tokens"], usage["completion_tokens"])

    def remember(self, heard: Heard) -> None:
        function = {"name": heard.tool, "arguments": json.dumps(heard.arguments)}
        calls = {"tool_calls": [{"id": self.call, "type": "function", "function": function}]} if heard.tool else {}
        self.history.append({"role": "assistant", "content": heard.text or None, **calls})


class Responses(Client):
    path = "/v1/responses"

    def body(self) -> Json:
        tools = [
            {"type": "custom", "name": n} if s is None else {"type": "function", "name": n, "parameters": s}
            for n, s in self.tools.items()
        ]
        body = {"model": "m", "instructions": self.system, "input": self.history, "stream": self.streamed}
        return {**body, "tools": [*tools, {"type": "web_search"}] if tools else [], **self.more}

    def user(self, text: str) -> None:
        part = {"type": "input_text", "text": text}
        self.history.append({"type": "message", "role": "user", "content": [part]})

    def outcome(self, text: str) -> None:
        kind = f"{self.item['type']}_output"
        self.history.append({"type": kind, "call_id": self.item["call_id"], "output": text})

    def read(self, document: Json) -> Heard:
        assert document["status"] == "completed"
        (self.item,) = document["output"]
        usage = document["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        counts = usage["input_tokens"], usage["output_tokens"]
        if self.item["type"] == "message":
            return Heard(200, self.item["content"][0]["text"], "", "", *counts)
        if self.item["type"] == "custom_tool_call":
            return Heard(200, "", self.item["name"], self.item["input"], *counts)
        return Heard(200, "", self.item["name"], json.loads(self.item["arguments"]), *counts)

    def read_stream(self, events: list[Json]) -> Heard:
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        kinds = [event["type"] for event in events]
        assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
        assert kinds[-2:] == ["response.output_item.done", "response.completed"]
        heard = self.read(events[-1]["response"])
        assert events[-2]["item"] == self.item
        grown = "".join(event["delta"] for event in events if event["type"].endswith(".delta"))
        whole = heard.text or heard.arguments
        assert (grown if isinstance(whole, str) else json.loads(grown)) == whole
        return heard

    def remember(self, heard: Heard) -> None:
        self.history.append(self.item)


class Messages(Client):
    path = "/v1/messages?beta=true"
    key_header = "x-api-key"

    def body(self) -> Json:
        tools = [{"name": n, "input_schema": s} for n, s in self.tools.items()]
        body = {"model": "m", "max_tokens": 32000, "messages": self.history, "stream": self.streamed}
        return {**body, "system": [{"type": "text", "text": self.system}], "tools": tools, **self.more}

    def outcome(self, text: str) -> None:
        blocks = [
            {"type": "tool_result", "tool_use_id": self.block["id"], "content": [{"type": "text", "text": text}]},
            {"type": "text", "text": "<system-reminder>\nkeep a list of things to do\n</system-reminder>"},
        ]
        self.history.append({"role": "user", "content": blocks})

    def read(self, document: Json) -> Heard:
        (self.block,) = document["content"]
        assert document["stop_reason"] == ("tool_use" if self.block["type"] == "tool_use" else "end_turn")
        usage = document["usage"]
        assert usage["cache_read_input_tokens"] == usage["cache_creation_input_tokens"] == 0
        return self._heard(usage["input_tokens"], usage["output_tokens"])

    def read_stream(self, events: list[Json]) -> Heard:
        start, block, ping, *deltas, stop, end, last = events
        assert [event["type"] for event in (start, block, ping, stop, end, last)] == [
            "message_start",
            "content_block_start",
            "ping",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
        self.block = block["content_block"]
        grown = "".join(delta["delta"].get("text", "") + delta["delta"].get("partial_json", "") for delta in deltas)
        self.block["text" if self.block["type"] == "text" else "input"] = (
            grown if self.block["type"] == "text" else json.loads(grown)
        )
        return self._heard(start["message"]["usage"]["input_tokens"], end["usage"]["output_tokens"])

    def _heard(self, taken: int, given: int) -> Heard:
        if self.block["type"] == "text":
            return Heard(200, self.block["text"], "", "", taken, given)
        return Heard(200, "", self.block["name"], self.block["input"], taken, given)

    def remember(self, heard: Heard) -> None:
        self.history.append({"role": "assistant", "content": [self.block]})


class Gemini(Client):
    key_header = "x-goog-api-key"

    def place(self) -> str:
        return f"/v1beta/models/m:{'streamGenerateContent?alt=sse' if self.streamed else 'generateContent'}"

    def body(self) -> Json:
        tools = [{"name": n, "parametersJsonSchema": s} for n, s in self.tools.items()]
        system = {"role": "user", "parts": [{"text": self.system}]}
        return {
            "contents": self.history,
            "systemInstruction": system,
            "tools": [{"functionDeclarations": tools}] if tools else [],
            **self.more,
        }

    def user(self, text: str) -> None:
        self.history.append({"role": "user", "parts": [{"text": text}]})

    def outcome(self, text: str) -> None:
        part = {"functionResponse": {"name": self.tool, "response": {"output": text}}}
        self.history.append({"role": "user", "parts": [part]})

    def read(self, document: Json) -> Heard:
        return self.read_stream([document])

    def read_stream(self, events: list[Json]) -> Heard:
        parts = [part for event in events for part in event["candidates"][0]["content"]["parts"]]
        assert [event["candidates"][0].get("finishReason") for event in events][-1] == "STOP"
        usage = events[-1]["usageMetadata"]
        assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"]
        counts = usage["promptTokenCount"], usage["candidatesTokenCount"]
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        self.tool = calls[0]["name"] if calls else ""
        if calls:
            return Heard(200, "", self.tool, calls[0]["args"], *counts)
        return Heard(200, "".join(part["text"] for part in parts), "", "", *counts)

    def remember(self, heard: Heard) -> None:
        part = {"functionCall": {"name": heard.tool, "args": heard.arguments}} if heard.tool else {"text": heard.text}
        self.history.append({"role": "model", "parts": [part]})


CLIENTS: dict[str, type[Client]] = {"openai": Chat, "responses": Responses, "anthropic": Messages, "gemini": Gemini}


def post(url: str, place: str, body: Json | bytes | None, headers: dict[str, str], method: str = "POST") -> Heard:
    """One request on a connection of its own; status, headers and the raw body."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    try:
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        connection.request(method, place, data, headers)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Heard(response.status, raw=response.read(), headers=found)
    finally:
        connection.close()


def _events(raw: bytes) -> list[Json]:
    """Server-sent events; where an event has a name, its data says the same."""
    found = []
    for block in raw.decode().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        if fields["data"] != "[DONE]":
            found.append(json.loads(fields["data"]))
            assert fields.get("event", found[-1].get("type")) == found[-1].get("type")
    return found
