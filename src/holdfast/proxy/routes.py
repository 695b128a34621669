"""Which requests may leave: method and path, exactly as the four wires spell them, and nothing beside.

    openai      POST /v1/chat/completions, /chat/completions     GET /v1/models
    responses   POST /v1/responses                               GET /v1/models
    anthropic   POST /v1/messages, /v1/messages/count_tokens
    gemini      POST /v1beta/models/NAME:generateContent, :streamGenerateContent, :countTokens (also /v1/)

Invariants
  R1  What goes upstream is put together from this table, never copied from the request: the path of the endpoint, the
      model's name where it belongs in the path, and the two known settings of a query.
  R2  A target with an escape, an authority, an empty or dotted segment is no path of this table, and refused as it is;
      it is never cleaned first.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, NamedTuple

from holdfast.model.agent import Api
from holdfast.model.path import printable
from holdfast.proxy.refusals import Refused

# generate costs tokens; count and list cost nothing.
Purpose = Literal["generate", "count", "list"]

_FIXED: dict[tuple[str, str], tuple[tuple[Api, ...], Purpose, str]] = {
    ("POST", "/v1/chat/completions"): (("openai",), "generate", "/v1/chat/completions"),
    ("POST", "/chat/completions"): (("openai",), "generate", "/v1/chat/completions"),
    ("POST", "/v1/responses"): (("responses",), "generate", "/v1/responses"),
    ("GET", "/v1/models"): (("openai", "responses"), "list", "/v1/models"),
    ("POST", "/v1/messages"): (("anthropic",), "generate", "/v1/messages"),
    ("POST", "/v1/messages/count_tokens"): (("anthropic",), "count", "/v1/messages/count_tokens"),
}
# A name that may stand in a path.
MODEL_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_GEMINI = re.compile(
    rf"/(?:v1|v1beta)/models/(?P<model>{MODEL_NAME.pattern})"
    r":(?P<verb>generateContent|streamGenerateContent|countTokens)"
)
_QUERY = frozenset({"alt=sse", "beta=true"})


class Target(NamedTuple):
    """A request's target, taken apart; `key` is a token given in the query, which stays here."""

    path: str
    settings: tuple[str, ...]
    key: str


class Route(NamedTuple):
    """Where a request goes. `model` and `streams` only where the path says them."""

    api: Api
    purpose: Purpose
    path: str
    model: str = ""
    streams: bool = False


def target_of(raw: bytes) -> Target:
    """Taken apart, not judged. A target that is not ASCII stays recognisable in what is recorded, and fits no route."""
    path, _, query = raw.decode("ascii", "backslashreplace").partition("?")
    settings = [setting for setting in query.split("&") if setting]
    keys = [setting.removeprefix("key=") for setting in settings if setting.startswith("key=")]
    rest = tuple(setting for setting in settings if not setting.startswith("key="))
    # Of several keys none counts: whoever reads the other one would see another request than we do.
    return Target(path, rest, keys[0] if len(keys) == 1 else "")


def api_of(path: str) -> Api:
    """Whose errors the sender of this will understand; a guess, for refusals only."""
    if path.startswith("/v1/messages"):
        return "anthropic"
    if ":" in path or path.startswith("/v1beta"):
        return "gemini"
    return "responses" if path.startswith("/v1/responses") else "openai"


def route_of(method: str, target: Target, apis: Sequence[Api]) -> Route:
    """The way upstream, or Refused."""
    route = _fixed(method, target.path, apis) or _gemini(method, target.path)
    if route is None or route.api not in apis:
        raise Refused(
            "endpoint", 403, f"{printable(method)} {printable(target.path)[:200]} is no endpoint of the model"
        )
    if not set(target.settings) <= _QUERY or len(set(target.settings)) != len(target.settings):
        raise Refused("endpoint", 403, "the query holds something that is not known here")
    query = "?" + "&".join(target.settings) if target.settings else ""
    return route._replace(path=route.path + query)


def upstream_path(prefix: str, path: str) -> str:
    """Behind the prefix of the provider; a version that both name is said once."""
    version = path.split("/", 2)[1]
    return prefix.removesuffix(f"/{version}") + path


def _fixed(method: str, path: str, apis: Sequence[Api]) -> Route | None:
    found = _FIXED.get((method, path))
    if found is None:
        return None
    speaking, purpose, upstream = found
    return Route(next((api for api in speaking if api in apis), speaking[0]), purpose, upstream)


def _gemini(method: str, path: str) -> Route | None:
    found = _GEMINI.fullmatch(path)
    if found is None or method != "POST":
        return None
    purpose: Purpose = "count" if found["verb"] == "countTokens" else "generate"
    return Route("gemini", purpose, path, found["model"], found["verb"] == "streamGenerateContent")
