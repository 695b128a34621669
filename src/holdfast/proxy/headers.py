"""Headers: the throw-away token is checked and taken away, the true key put in, and little else passes.

Invariants
  H1  The token is compared in constant time, in the four places where clients put a key.
  H2  Request and response headers pass by allow-list. So no other credential of the agent's leaves, no cookie, no
      account name and no trace of us comes or goes, and hop-by-hop headers end here.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Iterable
from typing import TypeAlias

from holdfast.model.agent import Api
from holdfast.proxy.refusals import Refused
from holdfast.proxy.routes import Target
from holdfast.proxy.upstream import Secret, is_loopback

Headers: TypeAlias = list[tuple[bytes, bytes]]

_KEYS = (b"x-api-key", b"x-goog-api-key")
# What says how to read the request, and who asks. No content-type: we send JSON, because we have read it as JSON.
_ASKED = frozenset(
    b"""accept user-agent anthropic-version anthropic-beta openai-beta idempotency-key originator session_id
    conversation_id x-app x-goog-api-client x-client-request-id""".split()
)
_ASKED_FAMILIES = (b"x-stainless-",)
_ANSWERED = frozenset(
    b"""content-type cache-control retry-after retry-after-ms x-should-retry request-id x-request-id
    openai-processing-ms openai-version""".split()
)
_ANSWERED_FAMILIES = (b"x-ratelimit-", b"anthropic-ratelimit-")


def bears(headers: Iterable[tuple[bytes, bytes]], target: Target, token: str) -> bool:
    """Whether the throw-away token is among what was presented."""
    presented = [target.key.encode("ascii", "replace")]
    for name, value in headers:
        if name == b"authorization":
            presented.append(_bearer(value))
        elif name == b"proxy-authorization":
            presented += [_bearer(value), *_basic(value)]
        elif name in _KEYS:
            presented.append(value)
    return any(hmac.compare_digest(one, token.encode("ascii")) for one in presented)


def refuse_other_hosts(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Inside the sandbox we are a loopback address; whoever means another host has taken a wrong turn on purpose."""
    for name, value in headers:
        if name == b"host" and not is_loopback(_host(value.decode("latin-1").lower())):
            raise Refused("endpoint", 403, "that host cannot be reached from here")


def asked_headers(headers: Iterable[tuple[bytes, bytes]], api: Api, key: Secret, authority: str) -> Headers:
    """What goes upstream."""
    kept: Headers = [(b"host", authority.encode("ascii")), (b"accept-encoding", b"identity")]
    kept += [(name, value) for name, value in headers if name in _ASKED or name.startswith(_ASKED_FAMILIES)]
    secret = key.reveal().encode("ascii")
    if api == "anthropic":
        kept.append((b"x-api-key", secret))
    elif api == "gemini":
        kept.append((b"x-goog-api-key", secret))
    else:
        kept.append((b"authorization", b"Bearer " + secret))
    return kept


def answered_headers(headers: Iterable[tuple[bytes, bytes]], key: Secret) -> Headers:
    """What comes back, without the key."""
    secret = key.reveal().encode("ascii")
    kept = [(name, value) for name, value in headers if name in _ANSWERED or name.startswith(_ANSWERED_FAMILIES)]
    return [(name, value.replace(secret, b"[masked]")) for name, value in kept]


def value_of(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> str:
    """The header's values, lower case, joined; empty when there is none."""
    return ",".join(value.decode("latin-1").strip().lower() for name, value in headers if name == wanted)


def _host(authority: str) -> str:
    return authority[1:].partition("]")[0] if authority.startswith("[") else authority.partition(":")[0]


def _bearer(value: bytes) -> bytes:
    scheme, _, rest = value.partition(b" ")
    return rest.strip() if scheme.lower() == b"bearer" else b""


def _basic(value: bytes) -> list[bytes]:
    """How programs give the user part of a proxy's address: as name, as password, or as both."""
    scheme, _, rest = value.partition(b" ")
    if scheme.lower() != b"basic":
        return []
    try:
        name, _, word = base64.b64decode(rest.strip(), validate=True).partition(b":")
    except binascii.Error:
        return []
    return [name, word]
