"""The line to a program that may send anything: what it can do to us, message by message."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from holdfast.agents import jsonrpc
from holdfast.agents.events import Event
from holdfast.agents.jsonrpc import Fields, Garbage, Hangup, Peer, Refused

RESULT = b'{"id":1,"result":{"a":"b"}}\n'


class Wired(NamedTuple):
    peer: Peer
    noticed: list[tuple[str, Fields]]
    sent: int

    def answers(self) -> list[Fields]:
        """What was sent to the program, but for the call itself."""
        return [json.loads(line) for line in os.read(self.sent, 1 << 20).splitlines()[1:]]


@contextmanager
def wired(data: bytes) -> Iterator[Wired]:
    """A peer whose program says this, and no more."""
    (ours, theirs), (sent, writing) = os.pipe(), os.pipe()
    noticed: list[tuple[str, Fields]] = []

    def saying() -> None:
        rest = data
        try:
            while rest:
                rest = rest[os.write(theirs, rest) :]
        except BrokenPipeError:
            pass  # nobody listens to the rest
        finally:
            os.close(theirs)

    speaker = threading.Thread(target=saying)
    speaker.start()
    try:
        peer = Peer(ours, writing, _serve, lambda method, fields: noticed.append((method, fields)))
        yield Wired(peer, noticed, sent)
    finally:
        os.close(ours)
        speaker.join()
        os.close(sent)
        os.close(writing)


def _serve(method: str, params: Fields) -> Fields | None:
    return {"got": params} if method == "known" else None


def called(data: bytes) -> Event:
    with wired(data) as line:
        return line.peer.call("do", {})


NO_MESSAGES = {
    "text": b"Loading, please wait\n",
    "an empty line": b"\n",
    "half a message": b'{"id":1,"result":\n',
    "a list": b"[1,2]\n",
    "a number": b"7\n",
    "null": b"null\n",
    "bytes that are no text": b"\xff\xfe\x00{\n",
    "deeper than any stack": b"[" * 100_000 + b"]" * 100_000 + b"\n",
    "a number of too many digits": b'{"id":' + b"9" * 10_000 + b"}\n",
    "an answer to nothing": b'{"id":99,"result":{}}\n',
    "an answer to true, which is no 1": b'{"id":true,"result":{"a":"wrong"}}\n',
    "an answer to 1.0": b'{"id":1.0,"result":{"a":"wrong"}}\n',
    "an answer to a word": b'{"id":"1","result":{"a":"wrong"}}\n',
    "no method": b'{"method":{"a":1},"id":1}\n',
    "a request without end": b'{"method":"m","id":"' + b"x" * 5_000 + b'"}\n',
    "a request numbered by a list": b'{"method":"m","id":[1]}\n',
    "a notification of nothing": b'{"method":"n","params":[1]}\n',
}


@pytest.mark.parametrize("noise", NO_MESSAGES.values(), ids=NO_MESSAGES)
def test_what_is_no_answer_to_us_is_passed_over(noise: bytes) -> None:
    """The answer that comes after it is heard."""
    assert called(noise + RESULT).text("a") == "b"


def test_noise_without_end_is_no_conversation() -> None:
    """A program may print banners, and not for ever."""
    with pytest.raises(Garbage):
        called(b"noise\n" * 2_000 + RESULT)


def test_a_line_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded by one line."""
    monkeypatch.setattr(jsonrpc, "MOST_LINE", 1 << 20)
    with pytest.raises(Garbage, match="without an end"):
        called(b"x" * (3 << 20))


def test_a_small_text_that_would_be_a_large_tree_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message of nothing but brackets costs fifty times its length in memory."""
    monkeypatch.setattr(jsonrpc, "MOST_VALUES", 10_000)
    with pytest.raises(Garbage, match="too many parts"):
        called(b'{"id":1,"result":[' + b"{}," * 20_000 + b"{}]}\n")


def test_a_large_message_is_read_whole() -> None:
    """Diffs of large files come in one line."""
    text = "x" * (5 << 20)
    assert called(json.dumps({"id": 1, "result": {"a": text}}).encode() + b"\n").text("a") == text


def test_the_last_line_needs_no_end() -> None:
    """A program that ends right after its answer has answered."""
    assert called(RESULT.rstrip()).text("a") == "b"


@pytest.mark.parametrize("said", [b"", b"words\n", b'{"id":1,"res'])
def test_a_program_that_is_gone_has_hung_up(said: bytes) -> None:
    """Whatever it said before: no answer came."""
    with pytest.raises(Hangup):
        called(said)


def test_writing_to_a_program_that_is_gone_is_a_hangup() -> None:
    """It is the same end, seen from the other side."""
    (ours, theirs), (sent, writing) = os.pipe(), os.pipe()
    os.close(sent)
    try:
        with pytest.raises(Hangup):
            Peer(ours, writing, _serve, lambda method, fields: None).call("do", {})
    finally:
        for fd in (ours, theirs, writing):
            os.close(fd)


ERRORS = {
    "as the protocol says": ({"code": -32000, "message": "no"}, -32000, "no"),
    "with details": ({"code": 5, "message": "no", "data": {"details": "the key"}}, 5, "no: the key"),
    "a word": ("no", 0, "it gave no reason"),
    "numbers for words": ({"code": "x", "message": 7}, 0, "it gave no reason"),
}


@pytest.mark.parametrize(("error", "code", "message"), ERRORS.values(), ids=ERRORS)
def test_an_error_is_a_refusal_in_words(error: object, code: int, message: str) -> None:
    """Whatever form it has."""
    with pytest.raises(Refused) as refused:
        called(json.dumps({"id": 1, "error": error}).encode() + b"\n")
    assert (refused.value.code, refused.value.message) == (code, message)


def test_an_answer_with_nothing_in_it_is_none() -> None:
    """Neither a result nor an error is not the protocol."""
    with pytest.raises(Garbage):
        called(b'{"id":1}\n')


def test_requests_of_the_program_are_served_while_we_wait() -> None:
    """Those we know get a result, others the error of the protocol, notifications nothing."""
    asks = [
        {"method": "known", "id": "a", "params": {"x": 1}},
        {"method": "fs/write_text_file", "id": 7, "params": {}},
        {"method": "told", "params": {"y": 2}},
    ]
    data = b"".join(json.dumps(ask).encode() + b"\n" for ask in asks)
    with wired(data + RESULT) as line:
        assert line.peer.call("do", {}).text("a") == "b"
        served, unknown = line.answers()
        assert served["id"] == "a" and served["result"] == {"got": {"x": 1}}
        assert unknown["id"] == 7
        assert unknown["error"] == {"code": -32601, "message": "not offered by this client"}
        assert line.noticed == [("told", {"y": 2})]


def test_an_answer_is_heard_from_a_program_that_did_not_wait_for_ours() -> None:
    """It asked, answered, and left: what it asked cannot be told any more, and what it answered stands."""
    (ours, theirs), (sent, writing) = os.pipe(), os.pipe()
    os.write(theirs, b'{"method":"known","id":1}\n' + RESULT)
    os.close(theirs)

    def serve(method: str, fields: Fields) -> Fields:
        os.close(sent)
        return {}

    try:
        peer = Peer(ours, writing, serve, lambda method, fields: None)
        assert peer.call("do", {}).text("a") == "b"
    finally:
        os.close(ours)
        os.close(writing)
