"""Why the proxy says no, and how each provider would have said it.

Agents understand the errors of their provider and nothing else, so a refusal of ours takes that form.
`x-should-retry: false` and the kind "insufficient_quota" are what the clients in use look at before they try again:
a budget that is spent does not come back by waiting.
"""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from holdfast.model.agent import Api

# auth, model_error and unreachable are the provider's doing; all others are ours.
Kind = Literal[
    "auth", "model_error", "unreachable",
    "token", "endpoint", "body", "budget", "price", "tape", "busy",
]  # fmt: skip
KINDS: tuple[Kind, ...] = (
    "auth", "model_error", "unreachable",
    "token", "endpoint", "body", "budget", "price", "tape", "busy",
)  # fmt: skip

_OPENAI = {401: "invalid_api_key", 403: "permission_denied", 429: "insufficient_quota"}
_ANTHROPIC = {
    400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
    413: "request_too_large", 429: "rate_limit_error",
}  # fmt: skip
_GEMINI = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 409: "ABORTED",
    429: "RESOURCE_EXHAUSTED", 502: "UNAVAILABLE", 503: "UNAVAILABLE",
}  # fmt: skip


class Refused(Exception):
    """A request that is answered by us. It never leaves this room: the answer to it is an HTTP response."""

    def __init__(self, kind: Kind, status: int, message: str) -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.status = status
        self.message = message


class Refusal(NamedTuple):
    """What is remembered of one: enough to tell a person what was tried."""

    kind: Kind
    what: str
    message: str


def error_body(api: Api, status: int, message: str) -> bytes:
    """The error as this provider says it."""
    words = f"holdfast: {message}"
    if api == "anthropic":
        return _json({"type": "error", "error": {"type": _ANTHROPIC.get(status, "api_error"), "message": words}})
    if api == "gemini":
        return _json({"error": {"code": status, "message": words, "status": _GEMINI.get(status, "UNKNOWN")}})
    kind = _OPENAI.get(status, "invalid_request_error" if status < 500 else "server_error")
    return _json({"error": {"message": words, "type": kind, "param": None, "code": kind}})


def _json(value: object) -> bytes:
    return json.dumps(value).encode("ascii")
