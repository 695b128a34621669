"""Where the model is, what it costs, and the key that opens it.

Invariants
  U1  A Secret shows itself to nobody: repr, str, format, pickling and comparison tell nothing. `reveal` is called
      where the header for the provider is made, and where the key is searched for to be masked.
  U2  Plain http is spoken to this host's loopback only; everything else is https, verified.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple, NoReturn
from urllib.parse import urlsplit

from holdfast.errors import InvalidInput
from holdfast.model.agent import Api
from holdfast.model.path import printable

MILLION = 1_000_000


class Secret:
    """A key that masks itself (U1)."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        if not value or not value.isascii() or not value.isprintable() or " " in value:
            raise InvalidInput("a key is printable ASCII without blanks, and not empty")
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret does not travel")


class Tokens(NamedTuple):
    """What one request used. `cached` was read from the provider's cache, `written` and `kept` were put there, for
    minutes and for an hour; none of them is in `fresh`. `output` holds reasoning too."""

    fresh: int = 0
    output: int = 0
    cached: int = 0
    written: int = 0
    kept: int = 0

    @property
    def input(self) -> int:
        return self.fresh + self.cached + self.written + self.kept


class Price(NamedTuple):
    """Millionths of a dollar for a million tokens, of models whose name begins with `prefix`.

    What is read from a cache costs like fresh input unless `cached` says less: too much rather than too little.
    """

    prefix: str
    input: int
    output: int
    cached: int | None = None

    def of(self, tokens: Tokens) -> int:
        """Rounded up. Writing to the cache costs a quarter more than input, for an hour twice as much."""
        cached = self.input if self.cached is None else self.cached
        quarters = 4 * (tokens.fresh * self.input + tokens.cached * cached + tokens.output * self.output)
        quarters += self.input * (5 * tokens.written + 8 * tokens.kept)
        return -(-quarters // (4 * MILLION))

    def no_dearer_than(self, other: Price) -> bool:
        """In each of its three measures."""
        cached, others = (price.input if price.cached is None else price.cached for price in (self, other))
        return self.input <= other.input and self.output <= other.output and cached <= others


class Upstream(NamedTuple):
    """A provider: `url` without the version (https://api.example.com), the wires it speaks, its key, its prices."""

    url: str
    apis: tuple[Api, ...]
    key: Secret
    prices: tuple[Price, ...] = ()
    # The one that the user has named; empty leaves the choice to the agent.
    model: str = ""
    # A file of certificates to trust besides the system's, for a provider behind a private authority.
    ca_file: str = ""

    def price(self, model: str) -> Price | None:
        """That of the longest prefix that fits."""
        fitting = [price for price in self.prices if model.startswith(price.prefix)]
        return max(fitting, key=lambda price: len(price.prefix), default=None)

    def allowed(self, model: str) -> str:
        """The model that is asked where this one is named: the configured one, or this one if it is no dearer.

        A prefix is not enough to tell: the dearer model often has the longer name.
        """
        if not self.model or model == self.model:
            return model
        own, other = self.price(self.model), self.price(model)
        if own is None or other is None or other.prefix != model:
            return self.model
        return model if other.no_dearer_than(own) else self.model


class Origin(NamedTuple):
    """Where requests go. `authority` is what the Host header says."""

    tls: bool
    host: str
    port: int
    authority: str
    prefix: str


def origin_of(url: str) -> Origin:
    """InvalidInput for anything but https, and http to loopback (U2)."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise InvalidInput(f"the address of the model cannot be read: {error}") from None
    tls = parts.scheme == "https"
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.query or parts.fragment:
        raise InvalidInput(f"not an address of a model: {printable(url)}", hint="It looks like https://api.example.com")
    if not tls and not is_loopback(host):
        raise InvalidInput(
            f"the model at {printable(host)} would be asked without TLS, key included",
            hint="Plain http is for models on this host: http://127.0.0.1:PORT",
        )
    authority = parts.netloc.rpartition("@")[2]
    return Origin(tls, host, port or (443 if tls else 80), authority, parts.path.rstrip("/"))


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
