"""CONNECT: a way to a few named hosts, for programs that need more than their model. Bytes are counted, not read.

Invariants
  N1  A tunnel leads only to a host and port that stand in the list, letter by letter.
  N2  The address is looked up here, once, and judged before it is used: a name that leads to this host or to a private
      network opens nothing. Only an address that is itself in the list may be such a one, and `localhost`.
"""

from __future__ import annotations

import ipaddress
import select
import socket
import time
from collections.abc import Iterable

import h11

from holdfast.errors import InvalidInput
from holdfast.model.agent_settings import host_and_port
from holdfast.model.path import printable
from holdfast.proxy.exchange import House
from holdfast.proxy.headers import bears
from holdfast.proxy.record import Noted
from holdfast.proxy.refusals import Refused
from holdfast.proxy.routes import Target
from holdfast.proxy.wire import Wire

_PIECE = 1 << 16


def listed(hosts: Iterable[str]) -> frozenset[str]:
    """The list as `host:port`; InvalidInput for what is neither a name nor an address. No patterns."""
    found = {host: host_and_port(host) for host in hosts}
    for host, place in found.items():
        if not place:
            raise InvalidInput(
                f"not a host that can be allowed: {printable(host)}", hint="It looks like example.com:443"
            )
    return frozenset(found.values())


def carry(house: House, client: Wire, request: h11.Request) -> None:
    """Judge, connect, and carry bytes until either side is done. Refused when it may not be."""
    place = request.target.decode("ascii", "backslashreplace").lower()
    if not bears(request.headers, Target("", (), ""), house.token):
        raise Refused("token", 401, "this is not the key that was given to you")
    if house.record.fault is not None:
        raise Refused("busy", 503, "requests cannot be recorded any more, so none is sent")
    if place not in house.hosts:
        raise Refused("endpoint", 403, f"{printable(place)[:200]} cannot be reached from here")
    start = time.monotonic()
    outward = _connected(house, place)
    sent = received = 0
    try:
        client.send(h11.Response(status_code=200, headers=[], reason=b"Connection established"))
        first = client.state.trailing_data[0]
        outward.settimeout(house.timeouts.body)
        outward.sendall(first)
        sent, received = _carried(client.socket, outward, house.timeouts.answer)
        sent += len(first)
    except OSError:
        pass  # either side went away, which is how many a tunnel ends
    finally:
        house.pool.leave(outward)
        house.tally.carry(sent + received)
        note = f"{sent} bytes out, {received} bytes in"
        ms = round((time.monotonic() - start) * 1000)
        house.record.note(Noted("openai", "CONNECT", place, 200, "tunnel", ms, notes=(note,)))


def _connected(house: House, place: str) -> socket.socket:
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)[0]
        if not _may_lead_to(host, str(address[0])):
            raise Refused("endpoint", 403, f"{printable(host)} leads into a private network")
        return house.pool.connected(family, address, house.timeouts.connect)
    except OSError as error:
        raise Refused("unreachable", 502, f"{printable(host)} cannot be reached: {error.strerror or error}") from None


def _may_lead_to(host: str, address: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        found = ipaddress.ip_address(address.partition("%")[0])
        return found.is_loopback if host == "localhost" else found.is_global
    return True  # an address in the list stands for itself


def _carried(inner: socket.socket, outward: socket.socket, silence: float) -> tuple[int, int]:
    """Both directions; a side that has no more to say is told on, and the other may go on. Bytes out, bytes in."""
    counts = {inner.fileno(): 0, outward.fileno(): 0}
    ways = {inner.fileno(): (inner, outward), outward.fileno(): (outward, inner)}
    waiting = select.poll()
    for fd in ways:
        waiting.register(fd, select.POLLIN)
    open_ways = set(ways)
    while open_ways and (ready := waiting.poll(silence * 1000)):
        for fd, _ in ready:
            source, sink = ways[fd]
            piece = source.recv(_PIECE)
            if piece:
                sink.sendall(piece)
                counts[fd] += len(piece)
            else:
                waiting.unregister(fd)
                open_ways.discard(fd)
                sink.shutdown(socket.SHUT_WR)
    return counts[inner.fileno()], counts[outward.fileno()]
