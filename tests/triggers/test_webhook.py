"""Webhooks over real loopback sockets: the right token, and every wrong way to knock."""

from __future__ import annotations

import errno
import http.client
import json
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.engine import webhook
from holdfast.engine.webhook import BODY, CONNECTIONS, Hooks, tokens_of
from holdfast.errors import Blocked, InvalidInput, Tampering
from holdfast.model.trigger import Happened
from holdfast.store.firings import Noted
from holdfast.store.hook_tokens import load_or_create_token, token_path
from triggers.posted import HOOK, NIGHTLY, watchman

TOKEN = "t" * 43
OTHER = "o" * 43
_ANY: dict[str, str] = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": "d-1"}


class Door:
    """A listener with two hooks, and what came through."""

    def __init__(self, hooks: Hooks) -> None:
        self.hooks = hooks

    def call(
        self, path: str = "/hooks/hook", body: bytes = b"{}", method: str = "POST", **headers: str | None
    ) -> tuple[int, dict[str, object]]:
        given = {**_ANY, **{name.replace("_", "-"): value for name, value in headers.items()}}
        connection = http.client.HTTPConnection("127.0.0.1", self.hooks.port, timeout=10)
        try:
            sent = {name: value for name, value in given.items() if value is not None}
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def raw(self, data: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.hooks.port), timeout=10)
        connection.sendall(data)
        return connection


@pytest.fixture
def came() -> list[Happened]:
    return []


@pytest.fixture
def door(came: list[Happened]) -> Iterator[Door]:
    def deliver(event: Happened) -> Noted:
        if event.key == "trouble":
            raise Blocked("the disk is full")
        if event.key == "no-space":
            raise OSError(errno.ENOSPC, "No space left on device")
        known = any((event.trigger, event.key) == (one.trigger, one.key) for one in came)
        came.append(event)
        return "known" if known else "noted"

    with Hooks({"hook": TOKEN, "other": OTHER}, deliver, port=0, within=1.0) as hooks:
        yield Door(hooks)
    assert [thread.name for thread in threading.enumerate() if "holdfast-hook" in thread.name] == []


def test_the_right_token_delivers_the_body_as_data(door: Door, came: list[Happened]) -> None:
    """A POST with the token and a delivery id is accepted, and its body passed on as it came."""
    assert door.call(body=b"$(reboot)\0\xff") == (202, {"accepted": True, "because": "accepted"})
    assert came == [Happened("hook", "webhook", "d-1", "delivery d-1", b"$(reboot)\0\xff")]
    for name in ("X-GitHub-Delivery", "X-Delivery-Id"):
        assert door.call(Idempotency_Key=None, **{name: name})[0] == 202
    assert [event.key for event in came[1:]] == ["X-GitHub-Delivery", "X-Delivery-Id"]


def test_the_same_delivery_starts_nothing_twice(door: Door) -> None:
    """A replay is answered, and says that nothing is started."""
    assert door.call()[0] == 202
    assert door.call() == (200, {"accepted": False, "because": "this delivery is known; nothing is started"})


@pytest.mark.parametrize(
    ("path", "authorization"),
    [
        ("/hooks/hook", None),
        ("/hooks/hook", ""),
        ("/hooks/hook", f"Bearer {OTHER}"),
        ("/hooks/hook", f"Bearer {TOKEN}x"),
        ("/hooks/hook", f"Bearer {TOKEN[:-1]}"),
        ("/hooks/hook", f"bearer {TOKEN}"),
        ("/hooks/hook", TOKEN),
        ("/hooks/hook", "Bearer \xff"),
        ("/hooks/nothing", f"Bearer {TOKEN}"),
        ("/hooks/nothing", "Bearer " + "-" * 43),
        ("/hooks/", "Bearer " + "-" * 43),
        ("/hooks/../hooks/hook", f"Bearer {TOKEN}"),
        ("/hooks/hook/", f"Bearer {TOKEN}"),
        ("/", f"Bearer {TOKEN}"),
    ],
)
def test_without_the_token_of_that_hook_nothing_is_learnt(
    path: str, authorization: str | None, door: Door, came: list[Happened]
) -> None:
    """A wrong, missing or other token gets the same answer as a hook that does not exist, whatever the method."""
    expected = (401, {"accepted": False, "because": "the token is missing or wrong"})
    assert door.call(path, Authorization=authorization) == expected
    assert door.call(path, method="GET", Authorization=authorization) == expected
    assert came == []


def test_two_tokens_are_no_token(door: Door, came: list[Happened]) -> None:
    """A request that names two tokens is refused, also when one of them is right."""
    head = f"POST /hooks/hook HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nAuthorization: Bearer {OTHER}\r\n"
    with door.raw(f"{head}Idempotency-Key: d\r\nContent-Length: 0\r\n\r\n".encode()) as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 401")
    assert came == []


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "OPTIONS", "BREW"])
def test_only_post_is_understood(method: str, door: Door, came: list[Happened]) -> None:
    """Another method with the right token is answered 405."""
    assert door.call(method=method)[0] == 405
    assert came == []


@pytest.mark.parametrize("delivery", [None, "", "a b", "x" * 201, "caf\xe9"])
def test_without_a_delivery_id_nothing_starts(delivery: str | None, door: Door, came: list[Happened]) -> None:
    """A call that could not be told from its own replay is refused."""
    assert door.call(Idempotency_Key=delivery)[0] == 400
    assert door.call(Idempotency_Key="a", X_Delivery_Id="b")[0] == 400
    assert came == []


def test_a_body_of_the_full_size_passes_and_one_byte_more_does_not(door: Door, came: list[Happened]) -> None:
    """The limit holds for a stated length, and for a body in chunks that states none."""
    assert door.call(body=b"x" * BODY, Idempotency_Key="full")[0] == 202
    assert door.call(body=b"x" * (BODY + 1))[0] == 413
    assert door.call(body=iter([b"x" * BODY, b"y"]))[0] == 413  # type: ignore[arg-type]
    assert [len(event.body) for event in came] == [BODY]


def test_a_length_that_is_a_lie_keeps_nobody_waiting(door: Door, came: list[Happened]) -> None:
    """A huge stated length is refused at once, before a byte of the body is read."""
    head = f"POST /hooks/hook HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nIdempotency-Key: d\r\n"
    began = time.monotonic()
    with door.raw(f"{head}Content-Length: 99999999999\r\n\r\n".encode()) as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 413")
    assert time.monotonic() - began < 0.9
    assert came == []


def test_who_waits_to_be_asked_for_the_body_is_asked(door: Door, came: list[Happened]) -> None:
    """A client that expects 100-continue gets it, and then the answer."""
    head = f"POST /hooks/hook HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nIdempotency-Key: d\r\n"
    with door.raw(f"{head}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n".encode()) as connection:
        assert connection.recv(4096).startswith(b"HTTP/1.1 100")
        connection.sendall(b"ok")
        assert connection.recv(4096).startswith(b"HTTP/1.1 202")
    assert [event.body for event in came] == [b"ok"]


@pytest.mark.parametrize("part", ["head", "body"])
def test_a_request_that_drips_is_ended(part: str, door: Door, came: list[Happened]) -> None:
    """A request has its time in all: a byte now and then does not keep it alive."""
    head = f"POST /hooks/hook HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nIdempotency-Key: d\r\n"
    start = head.encode() if part == "head" else f"{head}Content-Length: 500\r\n\r\n".encode()
    began = time.monotonic()
    with door.raw(start) as connection:
        connection.settimeout(0.1)
        answer = b""
        while time.monotonic() - began < 5:
            try:
                answer = connection.recv(4096)
                break
            except TimeoutError:
                connection.sendall(b"X")
    assert answer.startswith(b"HTTP/1.1 408")
    assert 0.9 < time.monotonic() - began < 3
    assert came == []


def test_many_who_hold_the_door_are_shown_out(door: Door, came: list[Happened]) -> None:
    """When every place is taken by silent connections, the oldest leaves and an honest call gets through at once."""
    silent = [door.raw(b"POST /hoo") for _ in range(CONNECTIONS * 2)]
    try:
        began = time.monotonic()
        assert door.call()[0] == 202
        assert time.monotonic() - began < 0.9
        assert len(door.hooks._open) <= CONNECTIONS
    finally:
        for connection in silent:
            connection.close()


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"POST /hooks/hook HTTP/1.1\r\nHost : x\r\n\r\n",
        b"POST /hooks/hook HTTP/1.1\r\n\r\n",
        b"POST /hooks/hook HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
)
def test_what_is_no_request_is_answered_and_ended(data: bytes, door: Door, came: list[Happened]) -> None:
    """Other protocols, broken heads and endless ones get an error and the end; the door stays open for others."""
    with door.raw(data) as connection:
        answer = connection.recv(4096)
    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431", b"HTTP/1.1 408"))
    assert came == []
    assert door.call()[0] == 202


def test_trouble_of_ours_is_said_and_can_be_delivered_again(door: Door) -> None:
    """When a delivery cannot be made durable the caller hears 503, and not that it was accepted."""
    assert door.call(Idempotency_Key="trouble") == (503, {"accepted": False, "because": "the disk is full"})
    because = "the delivery could not be kept: No space left on device"
    assert door.call(Idempotency_Key="no-space") == (503, {"accepted": False, "because": because})


def test_head_is_answered_without_a_body(door: Door, came: list[Happened]) -> None:
    """HEAD gets the status and the length of the answer that a body would have, and breaks nothing in the listener."""
    broken: list[object] = []
    before, threading.excepthook = threading.excepthook, broken.append
    try:
        for path, status in (("/hooks/hook", 405), ("/hooks/nothing", 401), ("/", 401)):
            head = f"HEAD {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
            with door.raw(head.encode()) as connection:
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
            assert answer.startswith(f"HTTP/1.1 {status} ".encode()) and answer.endswith(b"\r\n\r\n")
            assert b"Content-Length: " in answer
    finally:
        door.hooks.close()
        threading.excepthook = before
    assert (broken, came) == ([], [])


def test_it_is_heard_on_the_loopback_alone(door: Door) -> None:
    """The listener is bound to 127.0.0.1; a port that is taken is refused in words."""
    assert door.hooks._socket.getsockname()[0] == "127.0.0.1"
    with pytest.raises(InvalidInput, match="cannot be heard on port"):
        Hooks({}, lambda event: "noted", port=door.hooks.port)


def test_closing_ends_who_is_in_the_middle(came: list[Happened]) -> None:
    """Close does not wait for a caller who waits for us."""
    hooks = Hooks({"hook": TOKEN}, lambda event: "noted", port=0, within=60)
    with hooks:
        connection = Door(hooks).raw(b"POST /hooks/hook HTTP/1.1\r\n")
        deadline = time.monotonic() + 5
        while not hooks._open and time.monotonic() < deadline:
            time.sleep(0.01)
        began = time.monotonic()
    assert time.monotonic() - began < 2
    connection.close()
    assert came == []


def test_from_the_door_to_the_run(workspace: Path) -> None:
    """A call over the loopback starts one run; its replay starts none, and neither does a wrong token."""
    tokens = tokens_of([HOOK, NIGHTLY])
    assert list(tokens) == ["hook"]
    with watchman(workspace, HOOK) as man, Hooks(tokens, man.triggers.happened, port=0) as hooks:
        door = Door(hooks)
        good = f"Bearer {tokens['hook']}"
        statuses = [door.call(Authorization=key, body=b"{}")[0] for key in (good, good, f"Bearer {TOKEN}")]
        assert statuses == [202, 200, 401]
        assert [firing.body for firing in man.after(seconds=1)] == [b"{}"]
        assert door.call(Authorization=good)[0] == 200
        assert man.after(seconds=1) == []


def test_calls_at_the_same_time_start_one_run_for_each_delivery(workspace: Path) -> None:
    """Twelve callers with four deliveries between them start four runs."""
    with watchman(workspace, HOOK) as man, Hooks({"hook": TOKEN}, man.triggers.happened, port=0) as hooks:
        door, statuses = Door(hooks), []
        callers = [
            threading.Thread(target=lambda n=n: statuses.append(door.call(Idempotency_Key=f"d-{n % 4}")[0]))
            for n in range(12)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
        assert sorted(statuses) == [200] * 8 + [202] * 4
        assert len(man.after(seconds=1)) == 4


def test_a_token_is_made_once_and_is_private(home: Path) -> None:
    """The token is in a file of mode 0600 below the user's configuration; asked again, it is the same."""
    path = token_path("hook")
    assert path == f"{home}/xdg_config_home/holdfast/hooks/hook.token"
    token = load_or_create_token(path)
    assert len(token) == 43 and load_or_create_token(path) == token
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    os.unlink(path)
    assert load_or_create_token(path) != token


@pytest.mark.parametrize("damage", ["readable", "link", "short", "newline inside"])
def test_a_token_that_others_could_have_read_is_refused(damage: str, home: Path, tmp_path: Path) -> None:
    """A token file that is open to others, a link, too short or no plain text is tampering."""
    path = Path(token_path("hook"))
    load_or_create_token(str(path))
    if damage == "readable":
        path.chmod(0o644)
    elif damage == "link":
        path.rename(tmp_path / "moved")
        path.symlink_to(tmp_path / "moved")
    else:
        path.write_text("abc" if damage == "short" else f"{TOKEN}\r\nX-Evil: {TOKEN}")
    with pytest.raises(Tampering):
        load_or_create_token(str(path))


def test_the_port_is_a_plain_number() -> None:
    """The port that is used where none is given can be used by an ordinary user."""
    assert 1024 < webhook.WEBHOOK_PORT < 32768
