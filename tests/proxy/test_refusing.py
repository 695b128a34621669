"""Requests that do not pass: wrong token, other endpoints, tricks with paths, hosts, lengths and bodies."""

from __future__ import annotations

import gzip
import json
import pickle
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import InvalidInput, Tampering
from holdfast.proxy.exchange import Timeouts
from holdfast.proxy.server import ModelProxy
from holdfast.proxy.upstream import Price, Secret
from proxy.answers import ANTHROPIC, CASES, GEMINI, OPENAI, RESPONSES, Case
from proxy.asking import KEY, TOKEN, asking, private_place, proxied, raw, upstream
from proxy.provider import Provider, providing

HEAD = f"Host: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"
BODY = json.dumps(OPENAI.body)
LINE = "POST /v1/chat/completions HTTP/1.1\r\n"
SIZED, CHUNKED = f"Content-Length: {len(BODY)}\r\n", "Transfer-Encoding: chunked\r\n"
IN_CHUNKS = f"{len(BODY):x}\r\n{BODY}\r\n0\r\n\r\n"


@pytest.fixture
def provider() -> Iterator[Provider]:
    with providing(lambda _: OPENAI.reply(stream=False)) as found:
        yield found


@pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])
@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), KEY])
def test_without_the_token_nothing_is_served(case: Case, token: str, provider: Provider) -> None:
    """Any other token, the true key included, gets the provider's own kind of 401, and nothing goes out."""
    with proxied(provider.url) as (proxy, client):
        answer = client.ask(*case.asking(stream=False), authorization=f"Bearer {token}", x_api_key=token)
        assert answer.status == 401
        assert answer.words == "holdfast: this is not the key that was given to you"
        assert answer.document.get("type") == ("error" if case.api == "anthropic" else None)
        assert answer.headers["x-should-retry"] == "false"
        assert (provider.seen, proxy.failures, proxy.usage.requests) == ([], {"token": 1}, 0)


def test_two_tokens_in_a_query_are_none(provider: Provider) -> None:
    """A key given twice could be read in two ways, so it is not read."""
    with proxied(provider.url) as (_, client):
        answer = client.ask(f"{GEMINI.path}?key={TOKEN}&key=x", GEMINI.body, authorization="none")
        assert (answer.status, provider.seen) == (401, [])


# A method and a target a line; each is asked with the right token, and none is an endpoint.
TARGETS = (Path(__file__).parent / "not_endpoints.txt").read_text(encoding="ascii").splitlines()


@pytest.mark.parametrize("target", TARGETS)
def test_only_the_endpoints_of_the_model_pass(target: str, provider: Provider) -> None:
    """Other methods, paths, spellings, queries and absolute addresses are refused, recorded, and never sent."""
    with proxied(provider.url) as (proxy, client):
        # A body that would pass, so that nothing but the target is refused.
        body = "" if target.startswith(("GET", "HEAD")) else BODY
        found = raw(client._path, f"{target} HTTP/1.1\r\n{HEAD}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert found.startswith(b"HTTP/1.1 403 ")
        assert provider.seen == []
        assert proxy.failures == {"endpoint": 1}
        assert [(refusal.kind, refusal.what) for refusal in proxy.refusals] == [("endpoint", target.partition("?")[0])]


def test_the_same_request_passes_when_nothing_is_wrong(provider: Provider) -> None:
    """What the refusals below and above vary is a request that is answered."""
    with proxied(provider.url) as (_, client):
        for framed in (f"{SIZED}\r\n{BODY}", f"{CHUNKED}\r\n{IN_CHUNKS}"):
            found = raw_open(client._path, f"{LINE}{HEAD}Connection: close\r\n{framed}".encode())
            assert found.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])
def test_only_the_wires_of_the_provider_pass(case: Case, provider: Provider) -> None:
    """An endpoint of another wire is none of this provider's."""
    others = tuple(other.api for other in CASES if other.api != case.api)
    with (
        private_place() as path,
        ModelProxy(path, upstream(provider.url, apis=others), TOKEN),
        asking(path) as client,
    ):
        assert client.ask(*case.asking(stream=False)).status == 403
        assert provider.seen == []


# Each of these is one request at most, whatever a careless reader would make of it.
SMUGGLED = {
    "two lengths": f"{LINE}{HEAD}{SIZED}Content-Length: 40\r\n\r\n{BODY}",
    "length and chunks": f"{LINE}{HEAD}{SIZED}{CHUNKED}\r\n{IN_CHUNKS}",
    "odd encoding": f"{LINE}{HEAD}Transfer-Encoding: xchunked\r\n\r\n{IN_CHUNKS}",
    "two encodings": f"{LINE}{HEAD}Transfer-Encoding: chunked, identity\r\n\r\n{IN_CHUNKS}",
    "a negative length": f"{LINE}{HEAD}Content-Length: -1\r\n\r\n{BODY}",
    "a blank before the colon": f"{LINE}{HEAD}Content-Length : {len(BODY)}\r\n\r\n{BODY}",
    "two hosts": f"{LINE}{HEAD}Host: evil.example\r\n{SIZED}\r\n{BODY}",
    "another host": f"{LINE}{HEAD.replace('127.0.0.1', 'evil.example')}{SIZED}\r\n{BODY}",
    "a host like ours": f"{LINE}{HEAD.replace('127.0.0.1', '127.0.0.1.evil.example')}{SIZED}\r\n{BODY}",
    "no host": f"{LINE}Authorization: Bearer {TOKEN}\r\n{SIZED}\r\n{BODY}",
    "an old protocol": f"POST /v1/chat/completions\r\n{HEAD}\r\n",
    "not HTTP": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc",
    "a line in a header": f"{LINE}{HEAD}X-A: b\nX-Api-Key: c\x00\r\n\r\n",
    "a bad chunk": f"{LINE}{HEAD}{CHUNKED}\r\nzz\r\n{BODY}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("data", SMUGGLED.values(), ids=SMUGGLED)
def test_requests_that_can_be_read_in_two_ways_are_refused(data: str, provider: Provider) -> None:
    """Ambiguous framing, foreign hosts and broken heads are answered with an error, and nothing is sent."""
    with proxied(provider.url) as (_, client):
        found = raw(client._path, data.encode("latin-1"))
        assert found.startswith((b"HTTP/1.1 4", b"HTTP/1.1 501")) and found.count(b"HTTP/1.1 ") == 1
        assert provider.seen == []


def test_what_is_sent_is_framed_anew(provider: Provider) -> None:
    """A second request hidden behind the first is judged on its own: it has no token, so it gets nothing."""
    hidden = "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    first = f"POST /v1/chat/completions HTTP/1.1\r\n{HEAD}Content-Length: {len(BODY)}\r\n\r\n{BODY}"
    with proxied(provider.url) as (_, client):
        found = raw_open(client._path, (first + hidden).encode())
        assert [found.count(b"HTTP/1.1 200"), found.count(b"HTTP/1.1 401"), len(provider.seen)] == [1, 1, 1]


def raw_open(path: str, data: bytes) -> bytes:
    """Like `raw`, without saying early that nothing more will come."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(10)
        connection.connect(path)
        connection.sendall(data)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found


def _model(**more: object) -> bytes:
    return json.dumps({**OPENAI.body, **more}).encode()


BODIES = {
    "empty": b"",
    "not JSON": b"hello",
    "not an object": b"[]",
    "not text": b"\xff\xfe{}",
    "a name twice": b'{"model": "m-1", "model": "m-2", "messages": []}',
    "a name twice, deep": b'{"model": "m-1", "messages": [{"a": 1, "a": 2}]}',
    "not a number": b'{"model": "m-1", "temperature": NaN}',
    "too large a number": b'{"model": "m-1", "temperature": 1e999}',
    "no model": b'{"messages": []}',
    "model is no text": _model(model=["m-1"]),
    "a limit of words": _model(max_tokens="many"),
    "a limit of nothing": _model(max_tokens=0),
    "a true limit": _model(max_tokens=True),
    "half a token": _model(max_tokens=1.5),
    "answers below zero": _model(n=-1),
    "in the background": _model(background=True),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_bodies_that_cannot_be_judged_are_refused(body: bytes, provider: Provider) -> None:
    """What is not one JSON object with one meaning, or evades the count, is refused; the connection lives on."""
    with proxied(provider.url) as (proxy, client):
        assert client.ask(OPENAI.path, body).status in (400, 403)
        assert (provider.seen, proxy.failures) == ([], {"body": 1})
        assert client.ask(OPENAI.path, OPENAI.body).status == 200


def test_a_packed_body_cannot_burst(provider: Provider) -> None:
    """A small gzip of 70 MiB, a broken one and one with a tail are refused."""
    with proxied(provider.url) as (_, client):
        packed = gzip.compress(BODY.encode())
        bodies = (gzip.compress(b" " * (70 << 20)), packed[:-9], packed + b"tail", b"junk")
        found = [client.ask(OPENAI.path, body, content_encoding="gzip").status for body in bodies]
        assert (found, provider.seen) == ([413, 400, 400, 400], [])


def test_a_body_has_a_limit(provider: Provider) -> None:
    """A body that says it is too long, and one that turns out to be, get a 413."""
    with proxied(provider.url) as (_, client):
        start = f"POST /v1/chat/completions HTTP/1.1\r\n{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()
        piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(20)
            connection.connect(client._path)
            connection.sendall(start)
            try:
                for _ in range(80):
                    connection.sendall(piece)
            except OSError:
                pass  # refused before the end: the answer is there all the same
            assert connection.recv(100).startswith(b"HTTP/1.1 413")
        assert provider.seen == []


MCP = {"type": "mcp", "server_url": "https://evil.example"}
FUNCTION = {"type": "function"}
TOOLS: list[tuple[Case, list[object], list[int]]] = [
    (OPENAI, [FUNCTION, {"type": "web_search"}], [0]),
    (OPENAI, [FUNCTION, {"TYPE": "web_search"}, {"type": "function", "Type": "web_search"}], [0]),
    (RESPONSES, [{"type": "custom"}, MCP, FUNCTION], [0, 2]),
    (RESPONSES, [{"type": "namespace", "tools": [FUNCTION]}, {"type": "namespace", "tools": [FUNCTION, MCP]}], [0]),
    (ANTHROPIC, [{"name": "a"}, {"type": "bash_20250124", "name": "bash"}, {"type": "web_fetch_20250910"}], [0, 1]),
    (ANTHROPIC, [{"type": "web_search_20250305"}], []),
    (GEMINI, [{"googleSearch": {}}, {"functionDeclarations": [{"name": "f"}]}, {"urlContext": {}}], [1]),
]


@pytest.mark.parametrize(("case", "tools", "kept"), TOOLS)
def test_the_provider_goes_nowhere_for_the_agent(
    case: Case, tools: list[object], kept: list[int], provider: Provider
) -> None:
    """Tools that the provider itself would carry out are taken out of a request, and that is recorded."""
    lines: list[object] = []
    path, body = case.asking(stream=False)
    with proxied(provider.url, transcript=lines.append) as (_, client):
        client.ask(path, {**body, "tools": tools})
        sent = json.loads(provider.seen[0].body)
        assert sent.get("tools", []) == [tools[n] for n in kept]
        assert "evil.example" not in provider.seen[0].body.decode()
    assert "taken out" in str(lines)


# A wire, what is added to a question on it, and whether that passes.
ADDRESSES = (Path(__file__).parent / "addresses.jsonl").read_text(encoding="ascii").splitlines()


@pytest.mark.parametrize("line", ADDRESSES)
def test_the_provider_fetches_nothing_for_the_agent(line: str, provider: Provider) -> None:
    """An address where bytes could stand is refused on every wire; texts, tool data and inline bytes go as they are."""
    row = json.loads(line)
    (case,) = (one for one in CASES if one.api == row["api"])
    body = {**case.body, **row["more"]}
    with proxied(provider.url) as (proxy, client):
        answer = client.ask(case.path, body)
        if row["passes"]:
            assert json.loads(provider.seen[0].body) == body
        else:
            assert (answer.status, provider.seen, proxy.failures) == (403, [], {"body": 1})
            assert "evil.example" not in answer.words


def _nested(depth: int, innermost: str = "1") -> bytes:
    """A body of this depth; the body itself is the first level."""
    return b'{"model":"m-1","messages":' + b"[" * (depth - 1) + innermost.encode() + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize("depth", [65, 66, 600, 900, 985, 990, 995, 1000, 5_000, 100_000])
def test_a_body_of_more_than_64_levels_is_refused(depth: int, provider: Provider) -> None:
    """It is neither sent nor left unrecorded, whether or not it could be parsed, and the next request passes."""
    lines: list[dict[str, object]] = []
    with proxied(provider.url, transcript=lines.append) as (proxy, client):
        answer = client.ask(OPENAI.path, _nested(depth))
        assert (answer.status, provider.seen, proxy.failures) == (400, [], {"body": 1})
        assert "nested more than 64 deep" in answer.words
        assert client.ask(OPENAI.path, OPENAI.body).status == 200
    assert [line["outcome"] for line in lines] == ["body", "answered"]


def test_a_body_of_64_levels_passes_and_hides_no_address(provider: Provider) -> None:
    """The deepest body that is read is sent and recorded; a part in its deepest place is looked at like any other."""
    lines: list[dict[str, object]] = []
    with proxied(provider.url, transcript=lines.append) as (_, client):
        assert client.ask(OPENAI.path, _nested(64)).status == 200
        assert client.ask(OPENAI.path, _nested(63, '{"image_url":"https://evil.example"}')).status == 403
        assert client.ask(OPENAI.path, _nested(62, '{"image_urls":["https://evil.example"]}')).status == 403
    assert len(provider.seen) == 1 and len(lines) == 3


@pytest.mark.parametrize(
    "more",
    [
        {"previous_response_id": "resp_1"},
        {"Previous-Response-ID": "resp_1"},
        {"conversation": {"id": "conv_1"}},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
        {"input": [{"type": "message", "role": "user", "content": [{"type": "Item_Reference", "id": "msg_1"}]}]},
    ],
)
def test_a_conversation_that_the_provider_keeps_is_not_gone_on_with(
    more: dict[str, object], provider: Provider
) -> None:
    """It would be paid for with each question, by what cannot be counted here: whoever hung up had it for nothing."""
    (case,) = (one for one in CASES if one.api == "responses")
    with proxied(provider.url) as (_, client):
        answer = client.ask(case.path, {**case.body, **more})
        assert (answer.status, provider.seen) == (403, []) and "send all of it" in answer.words
        assert client.ask(case.path, {**case.body, "previous_response_id": None}).status == 200


@pytest.mark.parametrize(
    "model", ["m-1:online", "M-1:Online", "m-search-preview-2026", "x/sonar-pro", "o9-deep-research"]
)
def test_a_model_that_searches_by_itself_is_the_users_choice(model: str, provider: Provider) -> None:
    """An agent that names one gets a refusal; it passes where the user has configured it, or allows such tools."""
    body = {**OPENAI.body, "model": model}
    with proxied(provider.url) as (_, client):
        answer = client.ask(OPENAI.path, body)
        assert (answer.status, provider.seen) == (403, []) and "go outside" in answer.words
    for given, wide in ((upstream(provider.url, model=model), False), (upstream(provider.url), True)):
        with (
            private_place() as place,
            ModelProxy(place, given, TOKEN, provider_tools=wide),
            asking(place) as client,
        ):
            assert client.ask(OPENAI.path, body).status == 200


# ── which model ──

DEAR = "m-1-dear"
PINNED = (
    Price("m-", 1_000_000, 2_000_000),
    Price("m-0-small", 1_000_000, 1_000_000),
    Price("m-2-large", 1_000_000, 9_000_000),
    Price("m-3-cached", 900_000, 1_000_000, 900_000),
)


@pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("wanted", "given"),
    [
        ("m-1", "m-1"),
        (DEAR, "m-1"),
        ("unknown", "m-1"),
        ("m-2-large", "m-1"),
        ("m-0-small", "m-0-small"),
        ("m-0-small-but-dear", "m-1"),
        ("m-3-cached", "m-3-cached"),
    ],
)
def test_an_agent_gets_the_model_that_is_configured(
    case: Case, stream: bool, wanted: str, given: str, provider: Provider
) -> None:
    """Whichever it asks for; another one is left to it only where its very name is listed and no dearer."""
    lines: list[dict[str, object]] = []
    path, body = case.asking(stream=stream)
    body = {**body, "model": wanted} if "model" in body else body
    configured = upstream(provider.url, model="m-1", prices=PINNED)
    with (
        private_place() as place,
        ModelProxy(place, configured, TOKEN, transcript=lines.append),
        asking(place) as client,
    ):
        assert client.ask(path.replace("m-1", wanted), body).status == 200
    (seen,) = provider.seen
    assert f'"{given}"' in seen.body.decode() or f"/{given}:" in seen.path
    assert lines[0]["model"] == given
    assert (f"m-1 was asked instead of {wanted}" in str(lines[0]["notes"])) == (given != wanted)


@pytest.mark.parametrize("tier", ["priority", "fast", "Priority", 1, ["priority"]])
def test_a_dearer_tier_of_service_is_taken_out(tier: object, provider: Provider) -> None:
    """A price is for the usual service; the tiers that cost no more than that pass."""
    with proxied(provider.url) as (_, client):
        for wanted in (tier, "flex"):
            assert client.ask(OPENAI.path, {**OPENAI.body, "service_tier": wanted}).status == 200
        assert ["service_tier" in json.loads(seen.body) for seen in provider.seen] == [False, True]


def test_who_wants_the_provider_to_go_out_can_have_it(provider: Provider) -> None:
    """With `provider_tools` a request is sent as it is."""
    part = {"type": "image_url", "image_url": {"url": "https://pictures.example"}}
    wide = {**OPENAI.body, "tools": [{"type": "web_search"}], "messages": [{"role": "user", "content": [part]}]}
    with proxied(provider.url, provider_tools=True) as (_, client):
        client.ask(OPENAI.path, wide)
        assert json.loads(provider.seen[0].body) == wide


# ── those who are slow, or many ──


def test_a_slow_head_loses_its_connection(provider: Provider) -> None:
    """A client that sends its head byte by byte is cut off after the time for a head, not after that for each byte."""
    with proxied(provider.url, timeouts=Timeouts(head=0.5)) as (_, client):
        start = time.monotonic()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(5)
            connection.connect(client._path)
            sent = 0
            try:
                while sent < 100:
                    connection.sendall(b"G")
                    sent += 1
                    time.sleep(0.05)
            except OSError:
                pass  # cut off: how soon is the question
            assert 5 < sent < 60
        assert time.monotonic() - start > 0.3


@pytest.mark.long
def test_a_slow_body_is_refused(provider: Provider) -> None:
    """A body that does not come in time gets a 408, and an idle connection is closed."""
    with proxied(provider.url, timeouts=Timeouts(idle=0.3, body=0.3)) as (_, client):
        start = f"POST /v1/chat/completions HTTP/1.1\r\n{HEAD}Content-Length: 10\r\n\r\n{{".encode()
        assert raw_open(client._path, start).startswith(b"HTTP/1.1 408")
        assert raw_open(client._path, b"") == b""
        assert provider.seen == []


def test_places_are_limited_and_the_idle_make_room(provider: Provider) -> None:
    """With two places, a third client is served while the other two are idle: the one idle for longest goes."""
    with proxied(provider.url, connections=2) as (_, client):
        assert client.ask("/v1/models").status == 200
        with asking(client._path) as second, asking(client._path) as third:
            assert second.ask("/v1/models").status == 200
            assert third.ask("/v1/models").status == 200
            assert second.ask("/v1/models").status == 200
            assert client.sock.recv(1) == b""


def test_a_flood_of_half_requests_ends(provider: Provider) -> None:
    """Forty connections that say nothing whole hold up an honest client no longer than the time for a head."""
    with proxied(provider.url, timeouts=Timeouts(head=0.5), connections=8) as (_, client):
        flood = []
        for _ in range(40):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(client._path)
            connection.sendall(b"POST /v1")
            flood.append(connection)
        assert client.ask("/v1/models").status == 200
        for connection in flood:
            connection.close()


# ── how it is made ──


ODD = "http://api.example.com ftp://127.0.0.1 https:// https://u:p@h https://h/?q=1 127.0.0.1 http://[::1".split()


@pytest.mark.parametrize("url", ODD)
def test_only_safe_addresses_of_providers_are_taken(url: str) -> None:
    """Plain http leads to loopback only; anything odd is refused before the first request."""
    with private_place() as path, pytest.raises(InvalidInput):
        ModelProxy(path, upstream(url), TOKEN)


@pytest.mark.parametrize("token", ["", "short", KEY, "ünïcödé-0123456789"])
def test_a_token_is_long_and_not_the_key(token: str) -> None:
    """A token that could be guessed, or that is the key itself, is refused."""
    with private_place() as path, pytest.raises(InvalidInput):
        ModelProxy(path, upstream("http://127.0.0.1:1"), token)


def test_the_socket_stands_where_only_we_can_go(tmp_path: Path) -> None:
    """A directory that others may enter is refused, and so is a path where something stands."""
    (tmp_path / "open").mkdir(mode=0o755)
    with pytest.raises(Tampering):
        ModelProxy(str(tmp_path / "open" / "s"), upstream("http://127.0.0.1:1"), TOKEN)
    with (
        private_place() as path,
        ModelProxy(path, upstream("http://127.0.0.1:1"), TOKEN),
        pytest.raises(InvalidInput),
    ):
        ModelProxy(path, upstream("http://127.0.0.1:1"), TOKEN)


def test_a_key_shows_itself_to_nobody() -> None:
    """No rendering of a secret, or of what holds one, has the key in it."""
    secret = Secret(KEY)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!s:>40}",
        str(upstream("https://a.example")),
        str([secret]),
    ]
    assert not any(KEY in text for text in shown)
    with pytest.raises(TypeError):
        pickle.dumps(secret)
    for bad in ("", "two words", "line\nbreak", "ключ"):
        with pytest.raises(InvalidInput):
            Secret(bad)
