"""Network: nothing of the host's is reached, by any kind of socket, unless the profile says so."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.errors import SandboxUnavailable
from sandbox.cell import PLAIN, Cell, attempt, said, stayed_in


class Listener:
    """A server of the host that counts who came."""

    def __init__(self, family: int, kind: int, address: object) -> None:
        self.reached = threading.Event()
        self._socket = socket.socket(family, kind)
        self._socket.bind(address)  # type: ignore[arg-type]
        if kind == socket.SOCK_STREAM:
            self._socket.listen()
        self.address = self._socket.getsockname()
        self._kind = kind
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        try:
            while True:
                if self._kind == socket.SOCK_STREAM:
                    peer, _ = self._socket.accept()
                    self.reached.set()
                    peer.sendall(b"welcome")
                    peer.close()
                else:
                    self._socket.recvfrom(100)
                    self.reached.set()
        except OSError:
            return

    def close(self) -> None:
        if self._kind == socket.SOCK_STREAM:
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def tcp() -> Iterator[Listener]:
    listener = Listener(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0))
    yield listener
    listener.close()


@pytest.fixture
def udp() -> Iterator[Listener]:
    listener = Listener(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0))
    yield listener
    listener.close()


@pytest.fixture
def abstract() -> Iterator[Listener]:
    listener = Listener(socket.AF_UNIX, socket.SOCK_STREAM, f"\0holdfast-test-{os.getpid()}")
    yield listener
    listener.close()


def connecting(family: str, address: object) -> str:
    return f"s = __import__('socket'); s.socket(s.{family}, s.SOCK_STREAM).connect({address!r})"


def sending(address: object) -> str:
    return f"__import__('socket').socket(2, 2).sendto(b'x', {address!r})"


def test_servers_of_the_host_are_out_of_reach(cell: Cell, tcp: Listener, udp: Listener, abstract: Listener) -> None:
    """TCP, UDP and abstract sockets of the host do not exist inside, and nobody came."""
    name = abstract.address
    tries = [connecting("AF_INET", tcp.address), sending(udp.address), connecting("AF_UNIX", name)]
    stayed_in(cell.python(attempt(*tries)))
    assert not any(listener.reached.wait(0.05) for listener in (tcp, udp, abstract))


def test_nobody_outside_is_reached(cell: Cell) -> None:
    """No address of the world, no name server, by no protocol."""
    where = ("192.0.2.1", 53)
    tries = [connecting("AF_INET", where), sending(where), connecting("AF_INET6", ("2001:db8::1", 443))]
    tries += ["__import__('socket').getaddrinfo('example.com', 80)", sending(("255.255.255.255", 9))]
    stayed_in(cell.python(attempt(*tries)))


@pytest.mark.parametrize("family", [40, 17, 38, 31, 15, 29, 44])
def test_kinds_of_sockets_that_know_no_namespace_are_refused(cell: Cell, family: int) -> None:
    """The machine's own host (vsock), raw packets, the kernel's cryptography, Bluetooth, keys, CAN, XDP."""
    stayed_in(cell.python(attempt(f"__import__('socket').socket({family}, __import__('socket').SOCK_STREAM)")))


def test_a_socket_file_in_the_workspace_leads_nowhere(cell: Cell) -> None:
    """A server listening in the workspace (an agent, a daemon of git) is not reached through the shadow."""
    path = str(cell.workspace / "s")
    listener = Listener(socket.AF_UNIX, socket.SOCK_STREAM, path)
    os.chmod(path, 0o777)
    stayed_in(cell.python(attempt(connecting("AF_UNIX", "s"))))
    assert not listener.reached.wait(0.05)
    listener.close()


def test_sockets_of_agents_and_daemons_are_not_there(cell: Cell, public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the socket of an ssh agent nor that of docker can be found or named."""
    path = str(public / "agent.sock")
    listener = Listener(socket.AF_UNIX, socket.SOCK_STREAM, path)
    os.chmod(path, 0o777)
    monkeypatch.setenv("SSH_AUTH_SOCK", path)
    code = "import os\nprint(os.environ.get('SSH_AUTH_SOCK'))\n"
    ran = cell.python(code + attempt(connecting("AF_UNIX", path)))
    stayed_in(ran)
    assert said(ran).startswith("None\n")
    assert not listener.reached.wait(0.05)
    listener.close()


ECHO = """
import socket, threading
server = socket.create_server(('127.0.0.1', 0))
threading.Thread(target=lambda: server.accept()[0].sendall(b'own'), daemon=True).start()
print(socket.create_connection(server.getsockname(), 2).recv(9).decode())
"""


def test_loopback_is_a_loopback_of_its_own(cell: Cell, tcp: Listener) -> None:
    """With loopback a program can serve itself, and still reaches nothing of the host's."""
    profile = PLAIN._replace(network="loopback")
    assert said(cell.python(ECHO, profile=profile)) == "own\n"
    stayed_in(cell.python(attempt(connecting("AF_INET", tcp.address)), profile=profile))
    assert not tcp.reached.wait(0.05)


def test_without_a_network_there_is_not_even_a_loopback(cell: Cell) -> None:
    """With no network, a program cannot even serve itself over TCP."""
    assert "own" not in said(cell.python(ECHO))


def test_the_proxy_is_the_only_way_out(cell: Cell, public: Path, tcp: Listener) -> None:
    """With a proxy, its socket answers; everything else is as without a network."""
    path = str(public / "proxy.sock")
    listener = Listener(socket.AF_UNIX, socket.SOCK_STREAM, path)
    os.chown(path, os.lstat(cell.place).st_uid, -1)
    os.chmod(path, 0o600)
    profile = PLAIN._replace(network="proxy", proxy_socket=path)
    code = "import os, socket\ns = socket.socket(1)\ns.connect(os.environ['HOLDFAST_PROXY'])\nprint(s.recv(9))"
    assert said(cell.python(code, profile=profile)) == "b'welcome'\n"
    stayed_in(cell.python(attempt(connecting("AF_INET", tcp.address), connecting("AF_UNIX", path)), profile=profile))
    assert not tcp.reached.wait(0.05)
    listener.close()


def test_a_proxy_that_is_not_there_is_not_replaced_by_nothing(cell: Cell) -> None:
    """Without its proxy a run is refused."""
    with pytest.raises(SandboxUnavailable):
        cell.run("true", profile=PLAIN._replace(network="proxy", proxy_socket="/nonexistent/proxy.sock"))


def test_the_full_network_is_the_hosts_and_nothing_claims_otherwise(cell: Cell, tcp: Listener) -> None:
    """With the full network the host's servers are reached, and the result does not list the network as enforced."""
    code = f"import socket; print(socket.create_connection({tcp.address!r}, 2).recv(9))"
    ran = cell.python(code, profile=PLAIN._replace(network="full"))
    assert said(ran) == "b'welcome'\n"
    assert not any("network" in word for word in ran.enforced)


def test_even_with_the_full_network_abstract_sockets_stay_out_of_reach(cell: Cell, abstract: Listener) -> None:
    """Desktops and session buses listen on abstract sockets, which belong to the network; Landlock 6 closes them."""
    if not any(f"Landlock {abi}" in word for word in cell.run("true").enforced for abi in range(6, 20)):
        pytest.skip("needs Landlock 6")
    stayed_in(cell.python(attempt(connecting("AF_UNIX", abstract.address)), profile=PLAIN._replace(network="full")))
    assert not abstract.reached.wait(0.05)
