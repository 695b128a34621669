"""Requests that pass: the four wires, streamed or not, with the key put in and everything counted."""

from __future__ import annotations

import gzip
import json
import os
import threading
import time

import pytest

from holdfast.model.agent import Usage
from holdfast.proxy.server import ModelProxy
from proxy.answers import ANTHROPIC, CASES, GEMINI, OPENAI, RESPONSES, Case, event_bytes
from proxy.asking import KEY, TOKEN, asking, private_place, proxied, upstream
from proxy.provider import Reply, providing, streamed

BOTH = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
EACH = pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])


@EACH
@BOTH
def test_an_answer_passes_unchanged_and_is_counted(case: Case, stream: bool) -> None:
    """Each wire's answer comes back byte for byte; tokens and money are those the provider reports."""
    reply = case.reply(stream=stream)
    with providing(lambda _: reply) as provider, proxied(provider.url) as (proxy, client):
        answer = client.ask(*case.asking(stream=stream))
        assert (answer.status, answer.body) == (200, b"".join(p for p in reply.pieces if isinstance(p, bytes)))
        assert answer.headers["content-type"] == dict(reply.headers)["Content-Type"]
        tokens = case.tokens
        # In quarters of a millionth of a dollar: what is written to a cache costs a quarter more, for an hour double.
        quarters = 4 * (tokens.fresh + tokens.cached + 2 * tokens.output) + 5 * tokens.written + 8 * tokens.kept
        assert proxy.usage == Usage(1, tokens.input, tokens.output, -(-quarters // 4))
        assert not proxy.estimated


@EACH
@BOTH
def test_the_key_replaces_the_token(case: Case, stream: bool) -> None:
    """Upstream sees the true key where this wire has it, the token nowhere, and no other credential of the agent."""
    mine = {"authorization": f"Bearer {TOKEN}", "x_api_key": "sk-other", "x_goog_api_key": "other", "cookie": "a=b"}
    more = {"proxy_authorization": "Basic b3RoZXI=", "openai_organization": "org", "x_forwarded_for": "1.2.3.4"}
    with providing(lambda _: case.reply(stream=stream)) as provider, proxied(provider.url) as (_, client):
        assert client.ask(*case.asking(stream=stream), **mine, **more).status == 200
        (seen,) = provider.seen
        assert (seen.header(case.key_header) or "").removeprefix("Bearer ") == KEY
        text = repr(seen)
        assert text.count(KEY) == 1
        for foreign in (TOKEN, "sk-other", "other", "a=b", "org", "1.2.3.4", "Forwarded", "Via"):
            assert foreign not in text
        assert seen.header("host") == provider.url.removeprefix("http://")
        assert seen.header("accept-encoding") == "identity"


@pytest.mark.parametrize("way", ["authorization", "x_api_key", "x_goog_api_key", "key"])
def test_the_token_is_taken_wherever_clients_put_it(way: str) -> None:
    """Bearer, two headers and a query setting all carry the token; a token in the query goes no further."""
    path, body = GEMINI.asking(stream=True)
    headers = {} if way == "key" else {way: f"Bearer {TOKEN}" if way == "authorization" else TOKEN}
    if way == "key":
        path, headers = f"{path}&key={TOKEN}", {"authorization": "Bearer nothing"}
    with providing(lambda _: GEMINI.reply(stream=True)) as provider, proxied(provider.url) as (_, client):
        assert client.ask(path, body, **headers).status == 200
        assert provider.seen[0].path == "/v1beta/models/m-1:streamGenerateContent?alt=sse"


def test_headers_pass_by_a_list() -> None:
    """What says how to read a request passes both ways; account names and cookies do not come back."""
    reply = Reply(
        (b'{"usage": {"input_tokens": 1, "output_tokens": 1}}',),
        headers=(
            ("Content-Type", "application/json"),
            ("request-id", "r-1"),
            ("anthropic-ratelimit-tokens-remaining", "5"),
            ("Set-Cookie", "session=1"),
            ("anthropic-organization-id", "org-1"),
        ),
    )
    asked = {"anthropic_version": "2023-06-01", "anthropic_beta": "b", "x_stainless_lang": "js", "x_unknown": "no"}
    with providing(lambda _: reply) as provider, proxied(provider.url) as (_, client):
        answer = client.ask(*ANTHROPIC.asking(stream=False), **asked)
        seen = provider.seen[0]
        assert [seen.header(n) for n in ("anthropic-version", "anthropic-beta", "x-stainless-lang", "x-unknown")] == [
            "2023-06-01", "b", "js", None,
        ]  # fmt: skip
        assert answer.headers["request-id"] == "r-1"
        assert answer.headers["anthropic-ratelimit-tokens-remaining"] == "5"
        assert not {"set-cookie", "anthropic-organization-id", "server"} & answer.headers.keys()


def test_a_stream_is_passed_on_as_it_comes() -> None:
    """The first piece is with the agent while the provider still holds the second one back."""
    first, rest = OPENAI.pieces()[0], b"".join(OPENAI.pieces()[1:])
    go = threading.Event()
    with providing(lambda _: streamed(first, go, rest)) as provider, proxied(provider.url) as (_, client):
        path, body = OPENAI.asking(stream=True)
        client.request("POST", path, json.dumps(body), {"authorization": f"Bearer {TOKEN}"})
        response = client.getresponse()
        assert response.read1(len(first)) == first
        go.set()
        assert response.read() == rest


def test_a_stream_of_chat_completions_is_asked_for_its_usage() -> None:
    """Only when asked does this wire report usage in a stream; other settings of the stream stay."""
    path, body = OPENAI.asking(stream=True)
    with providing(lambda _: OPENAI.reply(stream=True)) as provider, proxied(provider.url) as (_, client):
        client.ask(path, {**body, "stream_options": {"other": 1}})
        assert json.loads(provider.seen[0].body)["stream_options"] == {"other": 1, "include_usage": True}
        client.ask(*RESPONSES.asking(stream=True))
        assert "stream_options" not in json.loads(provider.seen[1].body)


def test_models_are_listed_and_tokens_counted_for_nothing() -> None:
    """The free endpoints pass and cost nothing at all: no model was asked for an answer."""
    with providing(lambda _: Reply((b'{"input_tokens": 7}',))) as provider, proxied(provider.url) as (proxy, client):
        assert client.ask("/v1/models").status == 200
        assert client.ask("/v1/messages/count_tokens", {"model": "m-1", "messages": []}).status == 200
        assert client.ask("/v1beta/models/m-1:countTokens", {"contents": []}).status == 200
        assert [seen.method for seen in provider.seen] == ["GET", "POST", "POST"]
        assert proxy.usage == Usage(0, 0, 0, 0)


@pytest.mark.parametrize(
    ("base", "path", "wanted"),
    [
        ("", "/chat/completions", "/v1/chat/completions"),
        ("/", "/v1/chat/completions", "/v1/chat/completions"),
        ("/v1", "/v1/chat/completions", "/v1/chat/completions"),
        ("/api/v1", "/chat/completions", "/api/v1/chat/completions"),
        ("/api", "/v1/chat/completions", "/api/v1/chat/completions"),
    ],
)
def test_the_provider_may_stand_behind_a_prefix(base: str, path: str, wanted: str) -> None:
    """A base address with a path, or with the version that requests name as well, leads to the same endpoint."""
    with providing(lambda _: OPENAI.reply(stream=False)) as provider, proxied(provider.url + base) as (_, client):
        assert client.ask(path, OPENAI.body).status == 200
        assert provider.seen[0].path == wanted


def test_bodies_may_be_chunked_or_packed() -> None:
    """Chunked and gzip bodies arrive upstream as plain JSON with a length; zstd is refused with a reason."""
    data = json.dumps(OPENAI.body).encode()
    with providing(lambda _: OPENAI.reply(stream=False)) as provider, proxied(provider.url) as (_, client):
        headers = {"authorization": f"Bearer {TOKEN}"}
        client.request("POST", OPENAI.path, iter([data[:9], data[9:]]), headers, encode_chunked=True)
        assert client.getresponse().read()
        assert client.ask(OPENAI.path, gzip.compress(data), content_encoding="gzip").status == 200
        assert [json.loads(seen.body) for seen in provider.seen] == [OPENAI.body, OPENAI.body]
        assert [seen.header("content-encoding") for seen in provider.seen] == [None, None]
        refused = client.ask(OPENAI.path, data, content_encoding="zstd")
        assert (refused.status, "zstd" in refused.words, len(provider.seen)) == (415, True, 2)


def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    """`Expect: 100-continue` gets its 100 for a request that passes the judgement of its head."""
    with providing(lambda _: OPENAI.reply(stream=False)) as provider, proxied(provider.url) as (_, client):
        assert client.ask(OPENAI.path, OPENAI.body, expect="100-continue").status == 200


def test_connections_are_kept() -> None:
    """Twenty requests of one client, and of a second one after it, need one connection upstream."""
    with (
        providing(lambda _: OPENAI.reply(stream=True)) as provider,
        private_place() as path,
        ModelProxy(path, upstream(provider.url), TOKEN),
    ):
        for _ in range(2):
            with asking(path) as client:
                for _ in range(10):
                    assert client.ask(*OPENAI.asking(stream=True)).status == 200
        assert (len(provider.seen), provider.connections) == (20, 1)


def test_a_kept_connection_that_the_provider_closed_is_not_used() -> None:
    """When the provider hangs up after an answer, announced or not, the next request goes over a new one, once."""
    plain = OPENAI.reply(stream=False)
    replies = [plain, plain._replace(headers=(("Connection", "close"),)), plain._replace(hangs_up=True), plain]
    with providing(lambda _: replies.pop(0)) as provider, proxied(provider.url) as (_, client):
        for _ in range(4):
            assert client.ask(OPENAI.path, OPENAI.body).status == 200
            time.sleep(0.1)
        assert (len(provider.seen), provider.connections) == (4, 3)


def test_many_clients_at_once_are_counted_together() -> None:
    """Sixteen clients at the same time get their own answers, and the total is the sum."""
    with (
        providing(lambda seen: OPENAI.reply(stream=b'"stream"' in seen.body)) as provider,
        private_place() as path,
        ModelProxy(path, upstream(provider.url), TOKEN) as proxy,
    ):

        def work(number: int, results: list[bool]) -> None:
            with asking(path) as client:
                for _ in range(5):
                    answer = client.ask(*OPENAI.asking(stream=number % 2 == 0))
                    results.append(b"[DONE]" in answer.body if number % 2 == 0 else "usage" in answer.document)

        results: list[bool] = []
        threads = [threading.Thread(target=work, args=(number, results)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True] * 80
        assert proxy.usage == Usage(80, 80 * 120, 80 * 30, 80 * (120 + 60))


def test_the_watcher_is_told_each_total() -> None:
    """`on_spent` gets the running total after every answer, before the agent has seen its end."""
    told: list[Usage] = []
    with (
        providing(lambda _: OPENAI.reply(stream=False)) as provider,
        proxied(provider.url, on_spent=told.append) as (proxy, client),
    ):
        for number in range(1, 4):
            client.ask(OPENAI.path, OPENAI.body)
            assert told[-1] == proxy.usage == Usage(number, 120 * number, 30 * number, 180 * number)
    assert len(told) == 3


def test_everything_ends_with_the_proxy() -> None:
    """Fifty proxies, each closed while clients hold connections and wait: no thread, descriptor or socket is left."""
    hold = threading.Event()
    with providing(
        lambda seen: streamed(OPENAI.pieces()[0], hold) if b"stream" in seen.body else OPENAI.reply(stream=False)
    ) as provider:
        before = (threading.active_count(), _descriptors())
        for _ in range(50):
            with private_place() as path:
                with (
                    ModelProxy(path, upstream(provider.url), TOKEN) as proxy,
                    asking(path) as idle,
                    asking(path) as busy,
                ):
                    idle.ask(OPENAI.path, OPENAI.body)
                    where, body = OPENAI.asking(stream=True)
                    busy.request("POST", where, json.dumps(body), {"authorization": f"Bearer {TOKEN}"})
                    busy.getresponse().read1(10)
                    start = time.monotonic()
                    proxy.close()
                    assert time.monotonic() - start < 10
                assert not os.path.exists(path)
        hold.set()
        deadline = time.monotonic() + 10
        while (threading.active_count(), _descriptors()) > before and time.monotonic() < deadline:
            time.sleep(0.05)  # the provider's own threads see their connections end
        assert (threading.active_count(), _descriptors()) <= before


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_pieces_of_any_size_give_the_same_count() -> None:
    """An answer that trickles in byte by byte is passed on and counted like one that comes at once."""
    whole = b"".join(event_bytes(event) for event in ANTHROPIC.events)
    reply = streamed(*(whole[n : n + 7] for n in range(0, len(whole), 7)))
    with providing(lambda _: reply) as provider, proxied(provider.url) as (proxy, client):
        assert client.ask(*ANTHROPIC.asking(stream=True)).body == whole
        assert proxy.usage[:3] == Usage(1, 128, 30)[:3]
