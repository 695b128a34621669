"""Health checks ask the real host, patiently but within their time, and survive whatever it answers."""

from __future__ import annotations

import http.server
import os
import re
import resource
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.checks.health import check_health
from holdfast.model.execution import Receipt
from holdfast.model.plan import CommandCheck, HealthCheck, HttpCheck

Health = Callable[..., Receipt]
Serve = Callable[..., Any]


def answer(status: int, body: bytes = b"ok", extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), extra, body)


def always(raw: bytes) -> Callable[[socket.socket, int], None]:
    return lambda connection, _: connection.sendall(raw)


@pytest.fixture
def healthy(tmp_path: Path, save_log: Callable[[bytes], str]) -> Health:
    def run(check: HealthCheck) -> Receipt:
        (receipt,) = check_health([check], directory=str(tmp_path), tree_digest="tree-9", save_log=save_log)
        return receipt

    return run


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health?deep=1" else 404)
        self.end_headers()
        self.wfile.write(b"all systems fine")

    def log_request(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def ordinary() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


class TestAnOrdinaryServer:
    def test_the_expected_answer_passes(self, healthy: Health, ordinary: str, logs: dict[str, bytes]) -> None:
        """Status and text as expected: one request, a receipt bound to the tree."""
        url = f"{ordinary}/health?deep=1#fragment"
        receipt = healthy(HttpCheck(url, contains="systems fine"))
        assert (receipt.passed, receipt.kind, receipt.exit_code, receipt.tree_digest) == (True, "http", None, "tree-9")
        assert receipt.command == ("GET", url)
        assert receipt.detail.startswith(f"GET {url} answered 200 after ")
        assert logs[receipt.log_digest].endswith(b"all systems fine")

    def test_another_status_can_be_expected(self, healthy: Health, ordinary: str) -> None:
        """That a path is gone may be the point of a change."""
        assert healthy(HttpCheck(f"{ordinary}/gone", status=404)).passed

    def test_a_name_is_resolved(self, healthy: Health, ordinary: str) -> None:
        """`localhost` may mean ::1 first, where nobody listens; the next address is tried."""
        assert healthy(HttpCheck(ordinary.replace("127.0.0.1", "localhost") + "/health?deep=1")).passed

    def test_a_proxy_in_the_environment_is_not_used(self, healthy: Health, ordinary: str, free_port: int) -> None:
        """The address in the plan is the one asked."""
        os.environ["http_proxy"] = f"http://127.0.0.1:{free_port}"
        try:
            assert healthy(HttpCheck(f"{ordinary}/health?deep=1")).passed
        finally:
            del os.environ["http_proxy"]


class TestAWrongAnswer:
    def test_the_detail_tells_what_was_answered_and_how_often(self, healthy: Health, serve: Serve) -> None:
        """One sentence says it all, and the time is used up before giving up."""
        server = serve(always(answer(500)))
        receipt = healthy(HttpCheck(f"{server.url}/health", within_ms=1000))
        times = len(server.requests)
        assert not receipt.passed
        assert times > 3
        assert receipt.detail.startswith(f"GET {server.url}/health answered 500, {times} times in ")
        assert 900 <= receipt.duration_ms < 1500

    def test_it_recovers_at_the_third_request(self, healthy: Health, serve: Serve, logs: dict[str, bytes]) -> None:
        """A service that needs a moment is healthy; the log keeps what was answered before."""
        server = serve(lambda connection, number: connection.sendall(answer(200 if number == 3 else 503)))
        receipt = healthy(HttpCheck(server.url, within_ms=5000))
        assert receipt.passed
        assert len(server.requests) == 3
        assert receipt.detail.endswith(", at attempt 3")
        assert b"answered 503 (2 times)\n" in logs[receipt.log_digest]

    def test_the_last_answer_is_the_one_told(self, healthy: Health, serve: Serve) -> None:
        """When answers differ, the sentence does not pretend they were all the same."""
        server = serve(lambda connection, number: connection.sendall(answer(503 if number == 1 else 500)))
        receipt = healthy(HttpCheck(server.url, within_ms=400))
        told = re.search(r"answered 500, in (\d+) of (\d+) attempts within ", receipt.detail)
        assert told is not None and 0 < int(told[1]) < int(told[2]), receipt.detail

    def test_a_missing_text_fails(self, healthy: Health, serve: Serve) -> None:
        """200 with an error page is not healthy."""
        server = serve(always(answer(200, b"maintenance")))
        receipt = healthy(HttpCheck(server.url, contains="ready", within_ms=600))
        assert not receipt.passed
        assert "answered 200 without the text 'ready'" in receipt.detail

    def test_a_redirect_is_not_followed(self, healthy: Health, serve: Serve) -> None:
        """Another server's 200 proves nothing about this one."""
        other = serve(always(answer(200)))
        server = serve(always(answer(302, b"", b"Location: %s/\r\n" % other.url.encode())))
        receipt = healthy(HttpCheck(server.url, within_ms=600))
        assert (receipt.passed, other.requests) == (False, [])
        assert "answered 302" in receipt.detail


class TestABrokenServer:
    def test_refused_connections_are_retried(self, healthy: Health, free_port: int) -> None:
        """Nobody listens yet: that is an attempt, not an exception."""
        receipt = healthy(HttpCheck(f"http://127.0.0.1:{free_port}/", within_ms=300))
        assert not receipt.passed
        assert "failed: connection refused, " in receipt.detail

    def test_a_server_that_starts_late_is_found(self, healthy: Health, free_port: int, tmp_path: Path) -> None:
        """The usual case after a restart."""
        server: list[http.server.HTTPServer] = []

        def late() -> None:
            time.sleep(0.4)
            server.append(http.server.HTTPServer(("127.0.0.1", free_port), _Handler))
            server[0].handle_request()

        thread = threading.Thread(target=late)
        thread.start()
        receipt = healthy(HttpCheck(f"http://127.0.0.1:{free_port}/", status=404, within_ms=5000))
        thread.join()
        server[0].server_close()
        assert receipt.passed

    @pytest.mark.parametrize(
        ("raw", "words"),
        [
            (b"", "the connection was closed without an answer"),
            (b"\0\xff garbage \r\n\r\n", "the answer is not HTTP"),
            (b"SSH-2.0-OpenSSH_9.2\r\n", "the answer is not HTTP"),
            (b"HTTP/1.1 abc\r\n\r\n", "the answer is not HTTP"),
            (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 500 + b"\r\nok", "the answer is not HTTP"),
            (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\n\r\nok", "the answer is not HTTP"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", "the answer broke off"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "the answer broke off"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab", "the answer broke off"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nab", "the answer is not HTTP"),
        ],
    )
    def test_garbage_is_a_failed_attempt(self, healthy: Health, serve: Serve, raw: bytes, words: str) -> None:
        """Whatever bytes come back, there is a receipt with a sentence."""
        receipt = healthy(HttpCheck(serve(always(raw)).url, within_ms=500))
        assert not receipt.passed
        assert f"failed: {words}" in receipt.detail

    def test_a_reset_is_a_failed_attempt(self, healthy: Health, serve: Serve) -> None:
        """A connection torn down in mid-answer is told as such."""

        def reset(connection: socket.socket, _: int) -> None:
            connection.sendall(b"HTTP/1.1 200")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            connection.close()

        receipt = healthy(HttpCheck(serve(reset).url, within_ms=500))
        assert not receipt.passed
        assert "failed: connection reset by peer" in receipt.detail

    def test_no_tls_where_tls_was_asked_is_a_failed_attempt(self, healthy: Health, serve: Serve) -> None:
        """https against a plain server."""
        url = serve(always(answer(200))).url.replace("http:", "https:")
        receipt = healthy(HttpCheck(url, within_ms=200))
        assert not receipt.passed
        assert "failed: TLS: " in receipt.detail

    def test_an_unknown_name_is_a_failed_attempt(self, healthy: Health) -> None:
        """Also a name that no resolver would take."""
        for host in ("nobody.invalid", "a" * 70 + ".invalid", "999.1.1.1.1"):
            assert not healthy(HttpCheck(f"http://{host}/", within_ms=100)).passed


class TestASlowServer:
    @pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
    def test_a_trickle_ends_at_the_deadline(self, healthy: Health, serve: Serve, head: bytes) -> None:
        """A byte now and then, in status line, header or body, gains the server nothing."""

        def trickle(connection: socket.socket, _: int) -> None:
            connection.sendall(head or b"HTTP/1.1 2")
            end = time.monotonic() + 4
            while time.monotonic() < end:
                connection.sendall(b"0")
                time.sleep(0.02)

        receipt = healthy(HttpCheck(serve(trickle).url, within_ms=400))
        assert not receipt.passed
        assert receipt.duration_ms < 900
        assert "did not answer in time, once in " in receipt.detail

    @pytest.mark.parametrize("scheme", ["http", "https"])
    def test_silence_ends_at_the_deadline(self, healthy: Health, serve: Serve, scheme: str) -> None:
        """A server that accepts and never answers, also not to a TLS greeting."""
        gone = threading.Event()
        url = serve(lambda connection, number: gone.wait(5)).url.replace("http:", f"{scheme}:")
        receipt = healthy(HttpCheck(url, within_ms=300))
        gone.set()
        assert not receipt.passed
        assert 250 <= receipt.duration_ms < 900

    def test_a_slow_answer_within_the_time_passes(self, healthy: Health, serve: Serve) -> None:
        """One attempt may take most of the time."""

        def slow(connection: socket.socket, _: int) -> None:
            time.sleep(0.5)
            connection.sendall(answer(200))

        assert healthy(HttpCheck(serve(slow).url, within_ms=800)).passed

    @pytest.mark.parametrize(
        "head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"]
    )
    def test_an_endless_body_does_not_fill_memory(self, healthy: Health, serve: Serve, head: bytes) -> None:
        """A mebibyte is looked at, however much is sent and whatever length is claimed."""
        stop = threading.Event()

        def flood(connection: socket.socket, _: int) -> None:
            connection.sendall(head)
            while not stop.is_set():
                connection.sendall(b"x" * 65536)

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        server = serve(flood)
        receipt = healthy(HttpCheck(server.url, contains="never there", within_ms=300))
        stop.set()
        assert not receipt.passed
        assert receipt.duration_ms < 900
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # KiB


class TestABadUrl:
    @pytest.mark.parametrize(
        "url",
        [
            "ftp://127.0.0.1/",
            "file:///etc/passwd",
            "/health",
            "http://",
            "http://127.0.0.1:99999/",
            "http://127.0.0.1:x/",
            "http://[::1/",
            "http://127.0.0.1/a b",
            "http://127.0.0.1/\r\nX-Injected: 1",
            "http://127.0.0.1/ü",
        ],
    )
    def test_it_fails_at_once(self, healthy: Health, url: str) -> None:
        """No time is spent on what no attempt can make better."""
        receipt = healthy(HttpCheck(url, within_ms=10_000))
        assert not receipt.passed
        assert receipt.duration_ms < 1000
        assert "is not a URL" in receipt.detail
        assert "\n" not in receipt.detail

    def test_a_password_is_refused_and_not_repeated(
        self, healthy: Health, serve: Serve, logs: dict[str, bytes]
    ) -> None:
        """Neither sent nor shown nor logged."""
        server = serve(always(answer(200)))
        receipt = healthy(HttpCheck(server.url.replace("//", "//user:hunter2@")))
        assert (receipt.passed, server.requests) == (False, [])
        assert "hunter2" not in repr(receipt)
        assert b"hunter2" not in logs[receipt.log_digest]


class TestACommand:
    def test_it_is_retried_until_it_passes(self, healthy: Health, tmp_path: Path) -> None:
        """It runs in the workspace itself and sees what is there."""
        script = "echo x >> tries; test $(wc -l < tries) -ge 3"
        receipt = healthy(CommandCheck(("sh", "-c", script), within_ms=5000))
        assert (receipt.passed, receipt.kind, receipt.exit_code) == (True, "run", 0)
        assert (tmp_path / "tries").read_text() == "x\n" * 3
        assert receipt.detail.endswith(", at attempt 3")

    def test_the_detail_tells_how_often_it_failed(
        self, healthy: Health, tmp_path: Path, logs: dict[str, bytes]
    ) -> None:
        """The last output is in the log."""
        receipt = healthy(CommandCheck(("sh", "-c", "echo x >> tries; echo broken; exit 4"), within_ms=500))
        times = len((tmp_path / "tries").read_text().split())
        assert (receipt.passed, receipt.exit_code) == (False, 4)
        assert f"exited with 4, {times} times in " in receipt.detail
        assert logs[receipt.log_digest].endswith(b"broken\n")

    def test_a_hanging_command_is_bounded(self, healthy: Health) -> None:
        """Also when it ignores SIGTERM."""
        receipt = healthy(CommandCheck(("sh", "-c", "trap '' TERM; while :; do sleep 1; done"), within_ms=300))
        assert not receipt.passed
        assert "was killed" in receipt.detail
        assert receipt.duration_ms < 1500

    def test_a_missing_program_fails_at_once(self, healthy: Health) -> None:
        """Waiting does not install it."""
        receipt = healthy(CommandCheck(("no-such-program",), within_ms=10_000))
        assert not receipt.passed
        assert receipt.duration_ms < 1000
        assert receipt.detail == "no-such-program could not be run: no-such-program: not found on PATH"


def test_all_checks_are_asked_in_order(tmp_path: Path, save_log: Callable[[bytes], str], free_port: int) -> None:
    """A failure does not hide the others, and progress tells each new state."""
    told: list[tuple[int, int, str]] = []
    checks: list[HealthCheck] = [HttpCheck(f"http://127.0.0.1:{free_port}/", within_ms=120), CommandCheck(("true",))]
    receipts = check_health(
        checks,
        directory=str(tmp_path),
        tree_digest="t",
        save_log=save_log,
        progress=lambda *row: told.append(row),
    )
    assert [(r.kind, r.passed) for r in receipts] == [("http", False), ("run", True)]
    assert told[0] == (0, 2, f"GET http://127.0.0.1:{free_port}/")
    assert told[-1] == (1, 2, "true")
