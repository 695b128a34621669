"""What a program may see, reach and use. A profile is a wish; `probe` says what of it this host enforces."""

from __future__ import annotations

from typing import Literal, NamedTuple

# none: not even loopback of the host. loopback: its own, empty loopback. proxy: one forwarded socket of ours.
Network = Literal["none", "loopback", "proxy", "full"]


class Limits(NamedTuple):
    """Hard ends; 0 is no limit. Memory and disk are for all processes of the run together."""

    time_ms: int = 600_000
    output_bytes: int = 50_000_000
    memory_bytes: int = 4_000_000_000
    processes: int = 200
    disk_bytes: int = 10_000_000_000
    open_files: int = 1024


class Profile(NamedTuple):
    """Paths are absolute. Everything not named is not there, apart from the system's own programs, read-only."""

    network: Network = "none"
    readable: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    # Directories that a program sees as they are and may write to; what it wrote is gone when it ends.
    overlaid: tuple[str, ...] = ()
    proxy_socket: str = ""
    limits: Limits = Limits()
    # A directory that is HOME inside, and nowhere else; it outlives the run. Empty: one in memory that does not.
    home: str = ""
    # With a proxy: the port of the loopback inside that leads to its socket, for programs that know only TCP. 0: none.
    forward_port: int = 0
