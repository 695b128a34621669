"""What configuration says about agents and about the providers of their models; read from decoded tables.

Only the user's and the managed layer may say any of it: these tables start programs and name keys.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from holdfast.model.agent import APIS, Api
from holdfast.model.configuration import NETWORKS, TRANSPORTS, Network, ProgramLimits, Transport
from holdfast.model.tables import Table

_HOST = re.compile(r"(?P<host>\[[0-9a-f:]+\]|[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::(?P<port>[0-9]{1,5}))?")


EditFormat = Literal["whole", "diff", "diff-fenced", "udiff"]
EDIT_FORMATS: tuple[EditFormat, ...] = ("whole", "diff", "diff-fenced", "udiff")


class AgentSettings(NamedTuple):
    """None and empty leave what the agent's own file says."""

    name: str
    transport: Transport | None = None
    network: Network | None = None
    command: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    limits: ProgramLimits = ProgramLimits()
    micro_usd: int | None = None
    tokens: int | None = None
    turns: int | None = None
    # Which provider's models it asks, and which model; empty is the provider its wire belongs to.
    provider: str = ""
    model: str = ""
    # Hosts it may reach besides its model, through the proxy, by name.
    hosts: tuple[str, ...] = ()
    # A folder for tapes of what its model is asked and answers; or a tape, or such a folder, that answers instead.
    record: str = ""
    replay: str = ""
    # How aider's model writes an edit; empty leaves it to the name of the model.
    edit_format: EditFormat | Literal[""] = ""


class Price(NamedTuple):
    """Millionths of a dollar for a million tokens; for every model whose name begins so."""

    model: str
    input_micro_usd: int
    output_micro_usd: int


class ProviderSettings(NamedTuple):
    """Where models are, and where the key to them is: in a variable of our own environment, or in a file."""

    name: str
    url: str
    apis: tuple[Api, ...]
    key_env: str = ""
    key_file: str = ""
    prices: tuple[Price, ...] = ()


Limited = Callable[[Table], ProgramLimits]


def agents_in(table: Table, limits_of: Limited) -> Iterator[AgentSettings]:
    for name in table.keys:
        agent = _section(table, name)
        limits, transport = _section(agent, "limits"), agent.choice("transport", TRANSPORTS)
        yield AgentSettings(
            name=name,
            transport=transport,
            network=agent.choice("network", NETWORKS),
            command=agent.command("command") or (),
            readable=tuple(_readable(agent)),
            limits=limits_of(limits),
            micro_usd=limits.micro_usd("usd"),
            tokens=limits.integer("tokens", least=1),
            turns=limits.integer("turns", least=1),
            provider=agent.text("provider") or "",
            model=agent.text("model") or "",
            hosts=tuple(_hosts(agent)),
            record=_place(agent, "record"),
            replay=_place(agent, "replay"),
            edit_format=agent.choice("edit_format", EDIT_FORMATS) or "",
        )
        if "edit_format" in agent and name != "aider":
            agent.refuse("edit_format", "is for aider alone")
        if "command" in agent and transport in ("headless", "api"):
            agent.refuse(
                "transport",
                f"cannot be {transport!r} beside a command",
                hint='Leave it out, or say "acp" where the program speaks ACP.',
            )
        if "record" in agent and "replay" in agent:
            agent.refuse("replay", "and record cannot both be given")
        limits.close()
        agent.close()


def _readable(agent: Table) -> Iterator[str]:
    """As the sandbox wants them: of a relative path nobody knows what it would be relative to."""
    for path in agent.texts("readable") or ():
        if not path.startswith("/") or {"", ".", ".."} & set(path[1:].split("/")):
            agent.refuse("readable", f"must be absolute, plain paths, without '..' and '/' at the end; not {path!r}")
        yield path


def _hosts(agent: Table) -> Iterator[str]:
    for host in agent.texts("hosts") or ():
        if not host_and_port(host):
            agent.refuse("hosts", f"must be names or addresses with a port, such as example.com:443; not {host!r}")
        yield host


def host_and_port(host: str) -> str:
    """With its port; empty for what is neither a name nor an address. No patterns."""
    match = _HOST.fullmatch(host.lower())
    port = int(match["port"] or 443) if match else 0
    return f"{match['host']}:{port}" if match and 0 < port < 1 << 16 else ""


def _place(table: Table, key: str) -> str:
    path = table.text(key)
    if path is not None and not path.startswith("/"):
        table.refuse(key, "must be an absolute path")
    return path or ""


def providers_in(table: Table) -> Iterator[ProviderSettings]:
    for name in table.keys:
        provider = _section(table, name)
        url = provider.text("url") or ""
        if not _is_address(url):
            provider.refuse("url", "must be an https address, or http on this machine's own loopback")
        apis = tuple(_apis(provider))
        if not apis:
            provider.refuse("api", f"must be a list of {', '.join(APIS)}, and not empty")
        key_env, key_file = provider.text("key_env") or "", provider.text("key_file") or ""
        if key_env and key_file:
            provider.refuse("key_file", "and key_env cannot both be given")
        prices = tuple(_prices(_section(provider, "prices")))
        yield ProviderSettings(name, url.rstrip("/"), apis, key_env, key_file, prices)
        provider.close()


def _is_address(url: str) -> bool:
    """By the host it leads to, not by how it begins: `http://127.0.0.1.example.com` is not this machine."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if not host or parts.username is not None or parts.query or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and host in ("127.0.0.1", "localhost", "::1"))


def _apis(provider: Table) -> Iterator[Api]:
    for word in provider.texts("api") or ():
        known = next((api for api in APIS if api == word), None)
        if known is None:
            provider.refuse("api", f"must be a list of {', '.join(APIS)}; not {word!r}")
        yield known


def _prices(table: Table) -> Iterator[Price]:
    """`model = { input = 3.0, output = 15.0 }`, dollars for a million tokens."""
    for name in table.keys:
        price = _section(table, name)
        paid = price.micro_usd("input"), price.micro_usd("output")
        if paid[0] is None or paid[1] is None:
            table.refuse(name, "needs input and output, in dollars for a million tokens")
        yield Price(name, paid[0], paid[1])
        price.close()


def _section(table: Table, key: str) -> Table:
    found = table.table(key)
    return Table({}, table.file, key) if found is None else found
