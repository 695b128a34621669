"""What the real programs ask passes as they ask it; what an agent adds to that does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.agent import Api
from holdfast.proxy.server import ModelProxy
from proxy.answers import CASES
from proxy.asking import TOKEN, asking, private_place, upstream
from proxy.provider import providing

REQUESTS = Path(__file__).parent.parent / "agents" / "requests"
AGENTS = ("aider", "claude", "codex", "deep", "gemini", "goose", "opencode", "qwen")
EVERY = [
    pytest.param(json.loads(line), id=f"{name}-{number}")
    for name in AGENTS
    for number, line in enumerate((REQUESTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
]


def sent(asked: dict[str, Any], **more: object) -> tuple[int, Any, str]:
    """The status, the body as the provider got it, and what was recorded; the agent's own model is configured."""
    api: Api = asked["api"]
    (case,) = (case for case in CASES if case.api == api)
    body = {**asked["body"], **more}
    model = asked["body"].get("model") or asked["path"].rpartition("/")[2].partition(":")[0]
    lines: list[object] = []
    with providing(lambda _: case.reply(stream=False)) as provider:
        with (
            private_place() as path,
            ModelProxy(path, upstream(provider.url, model=model), TOKEN, transcript=lines.append),
            asking(path) as client,
        ):
            status = client.ask(asked["path"], body).status
        return status, json.loads(provider.seen[0].body) if provider.seen else None, str(lines)


def expected(body: dict[str, Any]) -> dict[str, Any]:
    """As it came, but for the one tool of the provider's that a program offers by itself, which is codex's."""
    if "tools" not in body:
        return body
    return {**body, "tools": [tool for tool in body["tools"] if tool.get("type") != "web_search"]}


@pytest.mark.parametrize("asked", EVERY)
def test_a_recorded_request_passes_unchanged(asked: dict[str, Any]) -> None:
    """Every field that one of the eight agents was recorded to send reaches the provider as it was sent."""
    status, body, _ = sent(asked)
    assert (status, body) == (200, expected(asked["body"]))


@pytest.mark.parametrize("asked", EVERY)
def test_a_field_that_is_not_known_is_taken_out_of_it(asked: dict[str, Any]) -> None:
    """Whatever is beside the known fields of a wire does not reach the provider, and the record names it."""
    status, body, recorded = sent(asked, models=["m-dear"], MODEL="m-dear", provider={"order": ["dear"]})
    assert (status, body) == (200, expected(asked["body"]))
    for name in ("models", "MODEL", "provider"):
        assert f"{name} was taken out: it is not known here" in recorded


REACHING: list[dict[str, object]] = [
    {"plugins": [{"id": "web"}]},
    {"Plugins": [{"id": "web"}]},
    {"search_parameters": {"mode": "on"}},
    {"searchParameters": {"mode": "on"}},
    {"enable_search": True},
    {"ENABLE_SEARCH": True},
    {"enable-search": True},
    {"image_urls": ["https://evil.example/?stolen=1"]},
    {"Image_URLs": ["https://evil.example/?stolen=1"]},
    {"image_urlſ": ["https://evil.example/?stolen=1"]},
    {"mcp_servers": [{"type": "url", "url": "https://evil.example"}]},
    {"MCP_Servers": [{"type": "url", "url": "https://evil.example"}]},
    {"web_search_options": {"user_location": None}},
    {"container": "c-1"},
    {"background": True},
    {"webhook_url": "https://evil.example"},
]


@pytest.mark.parametrize("more", REACHING, ids=[next(iter(more)) for more in REACHING])
@pytest.mark.parametrize("name", AGENTS)
def test_a_field_that_reaches_outside_is_refused(name: str, more: dict[str, object]) -> None:
    """On every wire and in every spelling; the same request without it has passed above."""
    asked = json.loads((REQUESTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()[0])
    status, body, recorded = sent(asked, **more)
    assert (status, body) == (403, None) and "would go outside" in recorded
