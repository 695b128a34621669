"""The port that leads to the proxy: every byte, both ways, at once, and nothing else."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.errors import InvalidInput, SandboxUnavailable
from holdfast.sandbox.confined import Confined
from holdfast.sandbox.profile import Profile
from sandbox.cell import PLAIN, Cell, attempt, said, stayed_in

PORT = 4000
CALL = f"import socket, sys, os, time\ndef call(): return socket.create_connection(('127.0.0.1', {PORT}), 9)\n"


@contextmanager
def proxy(cell: Cell, place: Path, serve: Callable[[socket.socket], None], queue: int = 128) -> Iterator[Profile]:
    """A server of ours on a socket file that only the owner of the cell may use; a thread for each connection."""
    path = str(place / "proxy.sock")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    os.chown(path, os.lstat(cell.place).st_uid, -1)
    os.chmod(path, 0o600)
    server.listen(queue)

    def accept() -> None:
        while True:
            try:
                peer, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serving, args=(peer,), daemon=True).start()

    def serving(peer: socket.socket) -> None:
        with peer:
            try:
                serve(peer)
            except OSError:
                pass  # the program left first; some of these tests want that

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield PLAIN._replace(network="proxy", proxy_socket=path, forward_port=PORT)
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def everything(peer: socket.socket) -> bytes:
    heard = b""
    while piece := peer.recv(1 << 16):
        heard += piece
    return heard


def backwards(peer: socket.socket) -> None:
    """Reads to the end of what the program says, and only then answers: it needs the half-close."""
    peer.sendall(everything(peer)[::-1])


def inside(cell: Cell, code: str, profile: Profile) -> Confined:
    return cell.python(CALL + code, profile=profile)


def test_the_port_is_open_before_the_first_instruction(cell: Cell, public: Path) -> None:
    """The very first thing a program does may be to call."""
    with proxy(cell, public, backwards) as profile:
        ran = inside(cell, "s = call(); s.sendall(b'abc'); s.shutdown(1); print(s.recv(9))", profile)
    assert (said(ran), ran.succeeded, ran.finished.left_behind) == ("b'cba'\n", True, 0)


def test_every_byte_arrives_in_both_directions(cell: Cell, public: Path) -> None:
    """Megabytes of any bytes, written faster than they are read, and the end of each direction by itself."""
    with proxy(cell, public, backwards) as profile:
        code = (
            "data = os.urandom(5 << 20) + bytes(range(256))\ns = call(); s.sendall(data); s.shutdown(1)\n"
            "back = b''\nwhile piece := s.recv(1 << 16): back += piece; time.sleep(0.0005)\n"
            "print(back == data[::-1])"
        )
        assert said(inside(cell, code, profile)) == "True\n"


def test_both_talk_at_the_same_time(cell: Cell, public: Path) -> None:
    """Nothing waits for the other direction: each side sends more than all buffers hold before it reads."""
    size = 8 << 20

    def both(peer: socket.socket) -> None:
        sender = threading.Thread(target=peer.sendall, args=(b"x" * size,))
        sender.start()
        heard = len(everything(peer))
        sender.join()
        counted.append(heard)

    counted: list[int] = []
    with proxy(cell, public, both) as profile:
        code = (
            f"import threading\ns = call()\ndef send(): s.sendall(b'y' * {size}); s.shutdown(1)\n"
            "t = threading.Thread(target=send); t.start(); n = 0\n"
            "while n < " + str(size) + ": n += len(s.recv(1 << 16))\nt.join(); print(n); print(s.recv(1))"
        )
        assert said(inside(cell, code, profile)) == f"{size}\nb''\n"
    assert counted == [size]


def test_a_stream_is_not_held_back(cell: Cell, public: Path) -> None:
    """Each small piece is passed on when it comes: events of a model are seen one by one, not in heaps."""

    def stream(peer: socket.socket) -> None:
        for _ in range(20):
            peer.sendall(b"event\n")
            peer.recv(1)  # the program has seen it; a held-back piece would stop everything here

    with proxy(cell, public, stream) as profile:
        code = "s = call(); got = []\nfor _ in range(20): got.append(s.recv(99)); s.sendall(b'.')\nprint(set(got))"
        assert said(inside(cell, code, profile)) == "{b'event\\n'}\n"


def test_a_broken_connection_does_not_look_like_an_end(cell: Cell, public: Path) -> None:
    """When the proxy dies with something unread, the program sees a reset, after what was said; not a clean end."""

    def break_off(peer: socket.socket) -> None:
        peer.recv(1)
        peer.sendall(b"part")
        go.wait(5)  # closed with bytes unread

    go = threading.Event()
    with proxy(cell, public, break_off) as profile:
        code = "s = call(); s.sendall(b'x' * 1000); print(s.recv(9), flush=True)\nprint(s.recv(9))"
        threading.Timer(1.0, go.set).start()
        ran = inside(cell, code, profile)
    assert "b'part'\n" in said(ran) and "ConnectionResetError" in said(ran)


def test_an_early_answer_arrives(cell: Cell, public: Path) -> None:
    """A proxy that refuses a long request before it has read it is heard."""

    def refuse(peer: socket.socket) -> None:
        peer.recv(10)
        peer.sendall(b"HTTP/1.1 413 too long\r\n\r\n")

    with proxy(cell, public, refuse) as profile:
        flood = "for _ in range(200): s.sendall(b'x' * 65536)"
        code = f"s = call()\ntry:\n    {flood}\nexcept OSError: pass\nprint(s.recv(99))"
        assert "413 too long" in said(inside(cell, code, profile))


def test_a_program_that_leaves_is_noticed_outside(cell: Cell, public: Path) -> None:
    """When the program closes in the middle of an answer, the proxy cannot go on sending for ever."""
    noticed = threading.Event()

    def endless(peer: socket.socket) -> None:
        try:
            while True:
                peer.sendall(b"x" * 65536)
        except OSError:
            noticed.set()

    with proxy(cell, public, endless) as profile:
        assert inside(cell, "s = call(); s.recv(10); s.close(); time.sleep(0.5)", profile).succeeded
        assert noticed.wait(2)


def test_last_words_are_delivered(cell: Cell, public: Path) -> None:
    """What a program sent just before it ended still reaches the proxy, whole."""
    heard: list[int] = []
    done = threading.Event()

    def listen(peer: socket.socket) -> None:
        heard.append(len(everything(peer)))
        done.set()

    with proxy(cell, public, listen) as profile:
        assert inside(cell, "s = call(); s.sendall(b'x' * 300000); os._exit(0)", profile).succeeded
        assert done.wait(2)
    assert heard == [300_000]


def test_hundreds_of_connections_at_once(cell: Cell, public: Path) -> None:
    """400 open connections, each served, without one process or thread more."""
    with proxy(cell, public, backwards, queue=16) as profile:
        code = (
            "ss = [call() for _ in range(400)]\n"
            "for n, s in enumerate(ss): s.sendall(b'%03d' % n); s.shutdown(1)\n"
            "print(sum(s.recv(9) == (b'%03d' % n)[::-1] for n, s in enumerate(ss)))\n"
            "print(len([p for p in os.listdir('/proc') if p.isdigit()]), len(os.listdir('/proc/1/task')))"
        )
        ran = inside(cell, code, profile._replace(limits=profile.limits._replace(open_files=2048)))
    assert said(ran) == "400\n2 1\n"


def test_more_connections_than_there_is_room_for_wait(cell: Cell, public: Path) -> None:
    """Beyond the bound they are queued, and served when others end; the first process does not grow without end."""
    with proxy(cell, public, backwards) as profile:
        code = (
            "ss = [call() for _ in range(700)]\n"
            "for s in ss: s.sendall(b'ab'); s.shutdown(1)\n"
            "print(sum(s.recv(9) == b'ba' and not s.close() for s in ss))"
        )
        ran = inside(cell, code, profile._replace(limits=profile.limits._replace(open_files=2048)))
    assert said(ran) == "700\n"


def test_a_busy_proxy_does_not_stall_the_connections_it_has(cell: Cell, public: Path) -> None:
    """While its queue is full and it accepts nobody, an old connection is carried on; later the others get through."""
    path = str(public / "busy.sock")
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(path)
    os.chown(path, os.lstat(cell.place).st_uid, -1)
    os.chmod(path, 0o600)
    server.listen(1)

    def serve() -> None:
        first, _ = server.accept()
        with first:
            for _ in range(3):
                first.sendall(first.recv(9))
        for _ in range(20):
            peer, _ = server.accept()
            with peer:
                backwards(peer)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    code = (
        "a = call(); a.sendall(b'1'); print(a.recv(9)); more = [call() for _ in range(20)]\n"
        "for s in more: s.sendall(b'xy'); s.shutdown(1)\n"
        "time.sleep(0.2)\na.sendall(b'2'); print(a.recv(9)); a.sendall(b'3'); print(a.recv(9))\n"
        "print({s.recv(9) for s in more})"
    )
    ran = inside(cell, code, PLAIN._replace(network="proxy", proxy_socket=path, forward_port=PORT))
    server.close()
    assert said(ran) == "b'1'\nb'2'\nb'3'\n{b'yx'}\n"


def test_a_proxy_that_has_gone_refuses(cell: Cell, public: Path) -> None:
    """With nobody at the socket, a call is broken off at once, and the run goes on."""
    with proxy(cell, public, backwards) as profile:
        pass
    ran = inside(cell, "try: print(call().recv(9))\nexcept ConnectionResetError: print('reset')", profile)
    assert (said(ran), ran.succeeded) == ("reset\n", True)


def test_only_the_loopback_inside_leads_there(cell: Cell, public: Path) -> None:
    """Neither another address inside, nor the same port outside, nor another port of the loopback answers."""
    with proxy(cell, public, backwards) as profile:
        tries = [
            f"__import__('socket').create_connection({where!r}, 1)"
            for where in (("127.0.0.2", PORT), ("::1", PORT), ("127.0.0.1", PORT + 1), ("192.0.2.1", 80))
        ]
        stayed_in(cell.python(attempt(*tries), profile=profile))
        noticed: list[str] = []

        def look() -> None:
            time.sleep(0.3)
            try:
                socket.create_connection(("127.0.0.1", PORT), 1).close()
                noticed.append("reached")
            except OSError:
                noticed.append("refused")

        thread = threading.Thread(target=look)
        thread.start()
        inside(cell, "time.sleep(0.8)", profile)
        thread.join()
    assert noticed == ["refused"]


def test_the_forwarder_cannot_be_ended_from_inside(cell: Cell, public: Path) -> None:
    """It is part of the first process: no signal reaches it, and it answers afterwards."""
    with proxy(cell, public, backwards) as profile:
        code = (
            "import signal\n"
            "for n in range(1, 65):\n"
            "    try: os.kill(1, n)\n    except OSError: pass\n"
            "s = call(); s.sendall(b'abc'); s.shutdown(1); print(s.recv(9))"
        )
        ran = inside(cell, code, profile)
    assert (said(ran), ran.finished.exit_code) == ("b'cba'\n", 0)


def test_orphans_are_collected_while_connections_are_carried(cell: Cell, public: Path) -> None:
    """Hundreds of short-lived orphans do not stay as zombies, which would count against the limit."""
    with proxy(cell, public, backwards) as profile:
        code = (
            "s = call()\nfor _ in range(300):\n"
            "    p = os.fork()\n    if not p:\n        os.fork() or os._exit(0)\n        os._exit(0)\n"
            "    os.waitpid(p, 0)\n"
            "time.sleep(0.2); print(len([p for p in os.listdir('/proc') if p.isdigit()]))\n"
            "s.sendall(b'abc'); s.shutdown(1); print(s.recv(9))"
        )
        ran = inside(cell, code, profile._replace(limits=profile.limits._replace(processes=20)))
    assert (said(ran), ran.limit) == ("2\nb'cba'\n", "")


def test_what_is_left_behind_is_counted_as_without_a_forwarder(cell: Cell, public: Path) -> None:
    """A daemon is one process left behind; the forwarder is none."""
    with proxy(cell, public, backwards) as profile:
        ran = inside(cell, "os.fork() or (os.setsid(), time.sleep(60))", profile)
    assert (ran.finished.left_behind, ran.finished.survivors) == (1, 0)
    assert ran.finished.duration_ms < 5000


def test_a_port_without_a_proxy_is_refused(cell: Cell, public: Path) -> None:
    """A port belongs to a proxy, is one of the ordinary ones, and nothing is started otherwise."""
    with proxy(cell, public, backwards) as profile:
        for wrong in (
            profile._replace(network="none"),
            profile._replace(forward_port=80),
            PLAIN._replace(forward_port=9),
        ):
            with pytest.raises(InvalidInput, match="cannot lead to a proxy"):
                cell.run("true", profile=wrong)
    with pytest.raises(SandboxUnavailable):
        cell.run("true", profile=profile._replace(proxy_socket="/nonexistent/proxy.sock"))


def test_a_proxy_without_a_port_stays_as_it_was(cell: Cell, public: Path) -> None:
    """Without a port nothing listens inside, and the socket is there."""
    with proxy(cell, public, backwards) as profile:
        plain = profile._replace(forward_port=0)
        stayed_in(
            cell.python(attempt(f"__import__('socket').create_connection(('127.0.0.1', {PORT}), 1)"), profile=plain)
        )
        code = "s = socket.socket(1); s.connect(os.environ['HOLDFAST_PROXY']); s.sendall(b'ab'); s.shutdown(1)\n"
        assert said(inside(cell, f"{code}print(s.recv(9))", plain)) == "b'ba'\n"


LATENCY = """
def ask(s):
    s.sendall(b'POST /v1/messages HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: 2\\r\\n\\r\\n{}')
    answer = b''
    while not answer.endswith(b'!'): answer += s.recv(65536)
def median(s):
    for _ in range(50): ask(s)
    took = []
    for _ in range(400):
        began = time.perf_counter(); ask(s); took.append(time.perf_counter() - began)
    return sorted(took)[200] * 1e6
straight = socket.socket(1); straight.connect(os.environ['HOLDFAST_PROXY'])
through = call(); through.setsockopt(6, 1, 1)
print(*(min(median(s) for _ in range(3)) for s in (straight, through)))
"""


@pytest.mark.serial
def test_a_request_is_carried_in_far_less_than_a_millisecond(cell: Cell, public: Path) -> None:
    """A request and its answer over the port, against the same over the socket itself; medians, the best of three."""

    def answer(peer: socket.socket) -> None:
        while peer.recv(1 << 16):
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n!")

    with proxy(cell, public, answer) as profile:
        straight, through = map(float, said(inside(cell, LATENCY, profile)).split())
    print(f"{straight:.0f} µs over the socket, {through:.0f} µs over the port")
    assert through - straight < 1000
