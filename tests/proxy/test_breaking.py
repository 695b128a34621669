"""When somebody goes away: the provider, the agent, in the middle or before; and errors that providers give."""

from __future__ import annotations

import http.client
import json
import re
import socket
import ssl
import threading
import time
from pathlib import Path

import pytest

from certificates import certificate
from holdfast.model.agent import Usage
from holdfast.proxy.budget import Spending
from holdfast.proxy.exchange import Timeouts
from holdfast.proxy.server import ModelProxy
from proxy.answers import ANTHROPIC, CASES, OPENAI, Case
from proxy.asking import KEY, TOKEN, Client, asking, private_place, proxied, upstream
from proxy.provider import Break, Reply, providing, streamed


def begin(client: Client, case: Case) -> http.client.HTTPResponse:
    path, body = case.asking(stream=True)
    client.request("POST", path, json.dumps(body), {"authorization": f"Bearer {TOKEN}"})
    return client.getresponse()


def test_an_answer_that_breaks_off_breaks_off_for_the_agent() -> None:
    """The agent sees that its stream is not whole; what was reported counts, and the answer as it was set aside."""
    pieces = ANTHROPIC.pieces()[:4]
    with providing(lambda _: streamed(*pieces, Break())) as provider, proxied(provider.url) as (proxy, client):
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            begin(client, ANTHROPIC).read()
        settled(proxy, 1)
        # Reported: 128 in, 1 out. Heard: "Hello there", 11 bytes. Allowed: 500.
        assert proxy.usage[:3] == (1, 128, 500)
        assert proxy.estimated and proxy.failures == {"unreachable": 1}


def settled(proxy: ModelProxy, requests: int, seconds: float = 5) -> None:
    """The agent may see the break before the purse does."""
    deadline = time.monotonic() + seconds
    while proxy.usage.requests < requests and time.monotonic() < deadline:
        time.sleep(0.01)


def test_a_document_that_breaks_off_is_no_answer() -> None:
    """A length that is not reached is an error for the agent, not a shorter document."""
    reply = Reply((b'{"usage": ', Break()), sized=True)
    with providing(lambda _: reply) as provider, proxied(provider.url) as (proxy, client):
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            client.ask(OPENAI.path, OPENAI.body)
        settled(proxy, 1)
        assert proxy.estimated and proxy.usage.input_tokens == -(-len(json.dumps(OPENAI.body)) // 3)


def test_an_agent_that_vanishes_ends_the_request_upstream() -> None:
    """The provider sees the end while it is still silent, and the proxy goes on serving others."""
    hold = threading.Event()
    reply = streamed(ANTHROPIC.pieces()[0], 0.3, b": wait\n\n", 0.3, b": wait\n\n", 0.3, b": wait\n\n")
    with providing(lambda _: reply) as provider, proxied(provider.url) as (proxy, client):
        response = begin(client, ANTHROPIC)
        response.read1(10)
        response.close()
        client.close()
        assert provider.left.wait(5)
        settled(proxy, 1)
        assert proxy.usage[:3] == (1, 128, 500) and proxy.estimated
        hold.set()
        provider.answer = lambda _: OPENAI.reply(stream=False)
        with asking(client._path) as other:
            assert other.ask(OPENAI.path, OPENAI.body).status == 200


@pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])
def test_an_agent_that_leaves_after_the_last_word_is_counted_exactly(case: Case) -> None:
    """It has all it asked for; that the answer ends a moment later is heard by us alone, and nothing is estimated."""
    pieces = case.pieces()
    with providing(lambda _: streamed(*pieces, 0.1)) as provider, proxied(provider.url) as (proxy, client):
        response, said = begin(client, case), b""
        while not said.endswith(pieces[-1]):
            said += response.read1(1 << 16)
        response.close()
        client.close()
        settled(proxy, 1)
        assert (proxy.usage[:3], proxy.estimated) == ((1, case.tokens.input, case.tokens.output), False)


def test_an_agent_that_vanishes_before_the_answer_is_noticed() -> None:
    """While the provider thinks and has said nothing, the end of the agent ends the wait."""
    hold = threading.Event()

    def slow(_: object) -> Reply:
        hold.wait(20)
        return OPENAI.reply(stream=False)

    with providing(slow) as provider, proxied(provider.url) as (proxy, client):
        client.request("POST", OPENAI.path, json.dumps(OPENAI.body), {"authorization": f"Bearer {TOKEN}"})
        while not provider.seen:
            time.sleep(0.01)
        client.close()
        start = time.monotonic()
        settled(proxy, 1)
        assert time.monotonic() - start < 10
        assert (proxy.usage.requests, proxy.usage.output_tokens, proxy.estimated) == (1, 500, True)
        hold.set()


@pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])
@pytest.mark.parametrize("after", [0, 1])
def test_hanging_up_does_not_make_an_answer_free(case: Case, after: int) -> None:
    """An agent that leaves each of 30 answers, before or after its first piece, has soon spent its budget."""
    hold = threading.Event()
    path, body = case.asking(stream=True)
    with (
        providing(lambda _: streamed(*case.pieces()[:after], hold, *case.pieces()[after:])) as provider,
        proxied(provider.url, Spending(tokens=3000)) as (proxy, client),
    ):
        for number in range(30):
            with asking(client._path) as leaving:
                leaving.request("POST", path, json.dumps(body), {"authorization": f"Bearer {TOKEN}"})
                if proxy.exhausted:
                    break
                while len(provider.seen) <= number and not proxy.exhausted:
                    time.sleep(0.005)
                if after and not proxy.exhausted:
                    leaving.getresponse().read1(1)
            settled(proxy, number + 1, seconds=1)
        # Each answer may have 500 tokens: five or six fit into the budget, the last of them with a lower limit.
        allowed = [int(re.findall(rb"[Tt]okens\":(?: )?([0-9]+)", seen.body)[0]) for seen in provider.seen]
        assert len(allowed) <= 6 and proxy.exhausted and proxy.estimated
        assert sum(allowed) == proxy.usage.output_tokens
        hold.set()


def test_a_connection_that_the_provider_drops_without_an_answer_costs_the_question() -> None:
    """Nobody hung up here, and nothing was said: what was set aside for the answer is given back."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drop() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1 << 16)

        thread = threading.Thread(target=drop)
        thread.start()
        with proxied(f"http://127.0.0.1:{server.getsockname()[1]}") as (proxy, client):
            assert client.ask(OPENAI.path, OPENAI.body).status == 502
            assert proxy.usage.input_tokens > 0 and proxy.usage.output_tokens == 0 and proxy.estimated
        thread.join()


@pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])
def test_an_unreachable_provider_is_a_502(case: Case) -> None:
    """A refused connection is told in the provider's form, counted apart from its errors, and costs nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with proxied(f"http://127.0.0.1:{taken.getsockname()[1]}") as (proxy, client):
            answer = client.ask(*case.asking(stream=False))
            assert answer.status == 502
            assert "cannot be reached: Connection refused" in answer.words
            assert proxy.failures == {"unreachable": 1}
            assert proxy.usage == Usage(1, 0, 0, 0)


def test_a_silent_provider_is_given_up() -> None:
    """After the time for an answer the agent gets a 502; what was asked may have cost, so it is estimated."""
    hold = threading.Event()
    with (
        providing(lambda _: hold.wait(10) and OPENAI.reply(stream=False)) as provider,  # type: ignore[arg-type,return-value]
        proxied(provider.url, timeouts=Timeouts(answer=0.3)) as (proxy, client),
    ):
        answer = client.ask(OPENAI.path, OPENAI.body)
        assert (answer.status, proxy.failures, proxy.estimated) == (502, {"unreachable": 1}, True)
        hold.set()


def test_nonsense_from_a_provider_is_a_502() -> None:
    """A server that does not speak HTTP is unreachable, with a reason."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(100)
                peer.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=talk)
        thread.start()
        with proxied(f"http://127.0.0.1:{server.getsockname()[1]}") as (proxy, client):
            assert client.ask(OPENAI.path, OPENAI.body).status == 502
            assert proxy.failures == {"unreachable": 1}
        thread.join()


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "model_error"), (401, "auth"), (403, "auth"), (429, "model_error"), (500, "model_error")]
)
def test_errors_of_the_provider_pass(status: int, kind: str) -> None:
    """Status, body and when to come back are the provider's; they cost nothing, and each kind is counted."""
    headers = (("Content-Type", "application/json"), ("Retry-After", "7"))
    reply = Reply((b'{"error": {}}',), status, headers)
    with providing(lambda _: reply) as provider, proxied(provider.url) as (proxy, client):
        answer = client.ask(OPENAI.path, OPENAI.body)
        assert (answer.status, answer.body, answer.headers["retry-after"]) == (status, b'{"error": {}}', "7")
        assert proxy.failures == {kind: 1}
        assert proxy.usage == Usage(1, 0, 0, 0) and not proxy.estimated


def test_an_error_that_repeats_the_key_does_not_tell_it() -> None:
    """Some servers quote the key they refuse; the agent gets it masked."""
    said = f'{{"error": {{"message": "bad key {KEY}!"}}}}'.encode()
    with providing(lambda _: Reply((said[:40], said[40:]), 401)) as provider, proxied(provider.url) as (_, client):
        assert client.ask(OPENAI.path, OPENAI.body).body == b'{"error": {"message": "bad key [masked]!"}}'


def test_redirects_are_not_followed() -> None:
    """A provider that sends us elsewhere gets nothing from us there, and the agent is not told where."""
    reply = Reply((b"",), 307, (("Location", "http://127.0.0.1:1/steal"),))
    with providing(lambda _: reply) as provider, proxied(provider.url) as (_, client):
        answer = client.ask(OPENAI.path, OPENAI.body)
        assert (answer.status, len(provider.seen), b"steal" in answer.body) == (502, 1, False)


def test_packed_answers_are_refused() -> None:
    """An answer that came compressed though plain was asked for cannot be counted, so it is not passed."""
    reply = Reply((b"\x1f\x8b",), headers=(("Content-Encoding", "gzip"),))
    with providing(lambda _: reply) as provider, proxied(provider.url) as (proxy, client):
        assert client.ask(OPENAI.path, OPENAI.body).status == 502
        assert proxy.estimated and proxy.usage.input_tokens > 0


@pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_a_count_is_estimated(case: Case, stream: bool) -> None:
    """A third of the bytes, rounded up: of the question, and of what was said."""
    said = "x" * 100
    parts = {
        "openai": {"choices": [{"delta" if stream else "message": {"content": said}}]},
        "responses": {"type": "response.output_text.delta", "delta": said},
        "anthropic": {"type": "content_block_delta", "delta": {"text": said}},
        "gemini": {"candidates": [{"content": {"parts": [{"text": said}]}}]},
    }
    data = json.dumps(parts[case.api]).encode()
    reply = streamed(b"data: " + data + b"\n\n") if stream else Reply((data,))
    path, body = case.asking(stream=stream)
    with providing(lambda _: reply) as provider, proxied(provider.url) as (proxy, client):
        assert client.ask(path, body).status == 200
        assert proxy.usage[:3] == (1, -(-len(json.dumps(body)) // 3), 34)
        assert proxy.estimated


def test_the_end_does_not_wait_for_a_handshake() -> None:
    """A provider that takes the connection and says nothing does not hold up the end of the proxy."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://localhost:{silent.getsockname()[1]}"
        with proxied(url) as (proxy, client):
            client.request("POST", OPENAI.path, json.dumps(OPENAI.body), {"authorization": f"Bearer {TOKEN}"})
            peer, _ = silent.accept()
            assert peer.recv(1)
            start = time.monotonic()
            proxy.close()
            assert time.monotonic() - start < 10
            peer.close()


def test_tls_is_verified(tmp_path: Path) -> None:
    """A certificate nobody vouches for is a 502 with the reason; vouched for, the same provider answers."""
    both, alone = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(both)
    with providing(lambda _: OPENAI.reply(stream=True), context) as provider:
        with proxied(provider.url) as (proxy, client):
            answer = client.ask(*OPENAI.asking(stream=True))
            assert answer.status == 502 and "self-signed certificate" in answer.words
            assert (provider.seen, proxy.failures) == ([], {"unreachable": 1})
        with (
            private_place() as path,
            ModelProxy(path, upstream(provider.url, ca_file=alone), TOKEN) as trusting,
            asking(path) as client,
        ):
            for _ in range(3):
                assert client.ask(*OPENAI.asking(stream=True)).body == b"".join(OPENAI.pieces())
            assert trusting.usage.requests == 3 and len(provider.seen) == 3
            assert provider.connections == 2


def test_who_leaves_after_the_last_word_has_heard_a_whole_answer() -> None:
    """The wire's own end of an answer came, and then the agent left before the connection ended: it is charged what
    the provider reported, and nothing is estimated."""
    hold = threading.Event()
    path, body = ANTHROPIC.asking(stream=True)
    with (
        providing(lambda _: streamed(*ANTHROPIC.pieces(), hold)) as provider,
        proxied(provider.url, Spending(tokens=100_000)) as (proxy, client),
    ):
        with asking(client._path) as leaving:
            leaving.request("POST", path, json.dumps(body), {"authorization": f"Bearer {TOKEN}"})
            answer, heard = leaving.getresponse(), b""
            while b"message_stop" not in heard:
                heard += answer.read1(1 << 16)
        settled(proxy, 1)
        assert not proxy.estimated
        assert proxy.usage[1:3] == (ANTHROPIC.tokens.input, ANTHROPIC.tokens.output)
        hold.set()
