"""CONNECT: only to what stands in the list, never into private networks by a name, bytes counted."""

from __future__ import annotations

import base64
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from holdfast.errors import InvalidInput
from holdfast.proxy.tunnel import _may_lead_to, listed
from proxy.asking import TOKEN, proxied, raw

BEARER = f"Proxy-Authorization: Bearer {TOKEN}\r\n"
NOBODY = "http://127.0.0.1:9"


@contextmanager
def echo() -> Iterator[int]:
    """A server that says back what it hears, in capitals, until the other side is done."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            try:
                while True:
                    peer, _ = server.accept()
                    with peer:
                        while piece := peer.recv(65536):
                            peer.sendall(piece.upper())
            except OSError:
                return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def connecting(place: str, head: str = BEARER) -> bytes:
    return f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{head}\r\n".encode()


@pytest.mark.parametrize(
    "head", [BEARER, f"Proxy-Authorization: Basic {base64.b64encode(f'x:{TOKEN}'.encode()).decode()}\r\n"]
)
@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_a_listed_host_is_reached(name: str, head: str) -> None:
    """Bytes go both ways, half-closed ends included; both directions are counted and recorded."""
    lines: list[Mapping[str, object]] = []
    with echo() as port, proxied(NOBODY, hosts=(f"{name}:{port}",), transcript=lines.append) as (proxy, client):
        found = raw(client._path, connecting(f"{name}:{port}", head) + b"hello")
        assert found.startswith(b"HTTP/1.1 200") and found.endswith(b"\r\n\r\nHELLO")
        deadline = time.monotonic() + 5
        while not proxy.tunnelled and time.monotonic() < deadline:
            time.sleep(0.01)
        assert proxy.tunnelled == 10
    assert lines[0]["method"] == "CONNECT" and lines[0]["notes"] == ["5 bytes out, 5 bytes in"]


def test_everything_else_is_not_reached() -> None:
    """Other ports, other names, addresses, odd spellings and wrong tokens open nothing."""
    with echo() as port, proxied(NOBODY, hosts=("example.com", "example.org:8443")) as (proxy, client):
        places = [f"127.0.0.1:{port}", f"localhost:{port}", f"[::1]:{port}", "example.com:80", "example.com",
                  "example.org:443",
                  "www.example.com:443", "example.com.evil.example:443", "example.com:443/x", "u@example.com:443",
                  "0x7f000001:443", "2130706433:443"]  # fmt: skip
        found = [raw(client._path, connecting(place)).split(b" ")[1] for place in places]
        assert found == [b"403"] * len(places)
        assert proxy.failures == {"endpoint": len(places)} and proxy.tunnelled == 0
        assert raw(client._path, connecting("example.com:443", "")).split(b" ")[1] == b"401"
        wrong = "Proxy-Authorization: Basic !!\r\n"
        assert raw(client._path, connecting("example.com:443", wrong)).split(b" ")[1] == b"401"


def test_names_lead_to_public_addresses_only() -> None:
    """A name that resolves to this host or a private network opens nothing; a listed address stands for itself."""
    inner = ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "::1", "fe80::1%eth0", "fd00::1", "0.0.0.0"]
    assert not any(_may_lead_to("example.com", address) for address in inner)
    assert _may_lead_to("example.com", "93.184.216.34")
    assert _may_lead_to("10.0.0.1", "10.0.0.1")
    assert _may_lead_to("localhost", "127.0.0.1") and not _may_lead_to("localhost", "10.0.0.1")


def test_the_list_holds_names_and_nothing_clever() -> None:
    """The port is 443 unless said; patterns, paths and empty names are refused."""
    assert listed(("Example.com", "a.b:8080", "[::1]:1")) == {"example.com:443", "a.b:8080", "[::1]:1"}
    for bad in ("*.example.com", "", "example.com/", "a b", "a:0", "a:99999", ".", "https://a"):
        with pytest.raises(InvalidInput):
            listed((bad,))


def test_an_open_tunnel_ends_with_the_proxy() -> None:
    """A tunnel that nobody closes does not hold up the end."""
    with (
        echo() as port,
        proxied(NOBODY, hosts=(f"127.0.0.1:{port}",)) as (proxy, client),
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
    ):
        connection.settimeout(5)
        connection.connect(client._path)
        connection.sendall(connecting(f"127.0.0.1:{port}"))
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        start = time.monotonic()
        proxy.close()
        assert time.monotonic() - start < 10
        assert connection.recv(100) == b""
