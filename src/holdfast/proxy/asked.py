"""The body of a request: read once, strictly, and sent on as it was read.

Invariants
  Q1  What was judged is what is sent: a body that two readers could read differently (a name given twice, NaN) is
      refused.
  Q2  `decoded` never makes more than MAX_BODY bytes of what came, however it was packed.
  Q3  Where the provider itself would go out for the agent (web search, MCP servers, code in the cloud), the border of
      the sandbox would have a hole; such tools are taken out of the list, and what cannot be taken out is refused.
  Q4  Nor does it fetch anything: a picture or a document whose address stands where its bytes could stand is refused,
      since the address alone would carry out what the agent knows. What tools were given and gave is data, and passes.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import NamedTuple, NoReturn, TypeAlias

from holdfast.model.agent import Api
from holdfast.proxy.refusals import Refused
from holdfast.proxy.routes import Route

MAX_BODY = 64 << 20
# What a request without a limit of its own may be expected to say.
ASSUMED_OUTPUT = 32_000
# Below this some providers refuse a limit, and no answer is of use.
LEAST_OUTPUT = 16
_BYTES_A_TOKEN = 3
# Providers count a picture by its size on the screen.
_TOKENS_A_PICTURE = 2_000
_LEAST_THINKING = 1_024

# A JSON object as it stands on the wire.
Body: TypeAlias = dict[str, object]

# Where several names are known, the first is the one that is set where a request has none.
_LIMITS: dict[Api, tuple[str, ...]] = {
    "openai": ("max_completion_tokens", "max_tokens"),
    "responses": ("max_output_tokens",),
    "anthropic": ("max_tokens",),
    "gemini": ("maxOutputTokens", "max_output_tokens"),
}
_GEMINI_SETTINGS = ("generationConfig", "generation_config")
_COUNTS = ("n", "candidateCount", "candidate_count")
# Tools that the agent itself carries out. All others are the provider's (Q3).
_OWN_TOOLS: dict[Api, re.Pattern[str]] = {
    "openai": re.compile(r"function|custom"),
    "responses": re.compile(r"function|custom|local_shell|apply_patch|namespace|tool_search"),
    "anthropic": re.compile(r"|custom|(bash|text_editor|computer|memory|tool_search_tool)_\w+"),
    "gemini": re.compile(r"functionDeclarations|function_declarations"),
}
_OUTSIDE = ("mcp_servers", "web_search_options", "background", "container")
# What is fetched stands under such a name, whatever the wire (Q4): image_url and its url, file_url, fileUri.
_ADDRESS_NAMES = ("url", "uri")
# Bytes stand under these. Some providers take an address there too.
_BYTES_NAMES = frozenset({"data", "file_data", "filedata", "image", "video", "audio", "file"})
_ADDRESS = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*://")
_INLINE = "data:"
# What a tool was given, or gave, as JSON of its own: in which part (by its type, or gemini's name of it), and where.
_TOOL_DATA: dict[Api, tuple[tuple[re.Pattern[str], str], ...]] = {
    "openai": (),
    "responses": ((re.compile(r"\w+_call"), "action"),),
    "anthropic": ((re.compile(r"\w*tool_use"), "input"),),
    "gemini": (
        (re.compile(r"functionCall|function_call"), "args"),
        (re.compile(r"functionResponse|function_response"), "response"),
    ),
}
# Where a conversation stands, what leads to its parts, and how a picture among them begins.
_CONVERSATION: dict[Api, tuple[str, ...]] = {
    "openai": ("messages",),
    "responses": ("input",),
    "anthropic": ("messages",),
    "gemini": ("contents",),
}
_PARTS = ("content", "output", "parts", "functionResponse", "function_response")
_PICTURE = tuple(f"data:image/{kind};base64," for kind in "png jpeg jpg webp gif heic heif bmp".split())
# Where an answer came from: told by the provider, and only ever given back to it.
_SOURCES = ("annotations", "citations")
# Beside what is said to the model. Tools are looked at on their own.
_BESIDE = ("tools", "metadata", "client_metadata")


class Asked(NamedTuple):
    """A request for the model, understood. `limit` is what it allows the answer, for each of `answers`.

    `notes` say what was changed in `body`; without any, it is what stands in `raw`.
    """

    route: Route
    model: str
    body: Body
    raw: bytes
    streams: bool
    limit: int | None
    answers: int
    input_estimate: int
    notes: tuple[str, ...] = ()

    @property
    def sent(self) -> bytes:
        """As it goes out. Bytes that were not changed are not spelled anew: a conversation is long."""
        if not self.notes:
            return self.raw
        text = json.dumps(self.body, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.encode("utf-8", "surrogatepass")

    @property
    def output_wanted(self) -> int:
        return (ASSUMED_OUTPUT if self.limit is None else self.limit) * self.answers


def decoded(data: bytes, encoding: str) -> bytes:
    """Without its content encoding; Refused for one that is not known here (Q2)."""
    if encoding in ("", "identity"):
        return data
    if encoding not in ("gzip", "deflate"):
        raise Refused("body", 415, f"a body encoded as {encoding[:20]!r} is not read here; send it plain or as gzip")
    unpacking = zlib.decompressobj(zlib.MAX_WBITS | 32)
    try:
        plain = unpacking.decompress(data, MAX_BODY + 1)
    except zlib.error:
        raise Refused("body", 400, "the body is not what its content encoding says") from None
    if len(plain) > MAX_BODY:
        raise Refused("body", 413, f"a body has at most {MAX_BODY >> 20} MiB, unpacked")
    if not unpacking.eof or unpacking.unused_data:
        raise Refused("body", 400, "the body is not one whole packed text")
    return plain


def asked_of(route: Route, data: bytes, *, provider_tools: bool = False) -> Asked:
    """Understood, or Refused; tools of the provider are taken out unless they are allowed."""
    body = _object(data)
    notes = () if provider_tools else _kept_inside(route.api, body)
    model = route.model or body.get("model")
    if not isinstance(model, str) or not model:
        raise Refused("body", 400, "the request names no model")
    streams = route.streams or body.get("stream") is True
    if route.api == "openai" and streams and _ask_for_usage(body):
        notes += ("stream_options.include_usage was set",)
    settings = _settings(route.api, body)
    limits = [_whole(settings[name], name) for name in _LIMITS[route.api] if settings.get(name) is not None]
    answers = max([_whole(settings[name], name) for name in _COUNTS if settings.get(name) is not None], default=1)
    limit = max(limits, default=None)
    return Asked(route, model, body, data, streams, limit, answers, _estimated(route.api, body, data), notes)


def _estimated(api: Api, body: Body, data: bytes) -> int:
    """Tokens of a question nobody counted: too many rather than too few.

    A picture counts as one where this wire has pictures. The same letters anywhere else are text, and read as such.
    """
    pictures, rest = list[int](), [body.get(name) for name in _CONVERSATION[api]]
    while rest:
        value = rest.pop()
        if isinstance(value, list):
            rest += value
        elif isinstance(value, dict):
            picture = _picture(api, value)
            if picture.startswith(_PICTURE):
                pictures.append(len(picture))
            else:
                rest += [value[name] for name in _PARTS if name in value]
    return -(-(len(data) - sum(pictures)) // _BYTES_A_TOKEN) + _TOKENS_A_PICTURE * len(pictures)


def _picture(api: Api, part: Body) -> str:
    """The bytes of a picture as this wire spells them in a part, as a `data:` address; empty where it is none."""
    match api, part:
        case "openai", {"type": "image_url", "image_url": {"url": str(address)} | str(address)}:
            return address
        case "responses", {"type": "input_image" | "computer_screenshot", "image_url": str(address)}:
            return address
        case "anthropic", {"type": "image", "source": {"type": "base64", "media_type": str(kind), "data": str(data)}}:
            return f"data:{kind};base64,{data}"
        case "gemini", {"inlineData": {"mimeType": str(kind), "data": str(data)}}:
            return f"data:{kind};base64,{data}"
        case "gemini", {"inline_data": {"mime_type": str(kind), "data": str(data)}}:
            return f"data:{kind};base64,{data}"
    return ""


def lowered(asked: Asked, limit: int) -> Asked | None:
    """The same request with a smaller limit for its answer; None where the provider would not take it so."""
    api = asked.route.api
    settings = _settings(api, asked.body)
    for name in _LIMITS[api]:
        value = settings.get(name)
        if isinstance(value, int) and value > limit:
            settings[name] = limit
    if asked.limit is None:
        settings[_LIMITS[api][0]] = limit
        if api == "gemini" and not any(name in asked.body for name in _GEMINI_SETTINGS):
            asked.body[_GEMINI_SETTINGS[0]] = settings
    thinking = asked.body.get("thinking")
    if isinstance(thinking, dict) and isinstance(thinking.get("budget_tokens"), int):
        if limit < 2 * _LEAST_THINKING:
            return None
        thinking["budget_tokens"] = min(thinking["budget_tokens"], limit // 2)
    change = "set" if asked.limit is None else f"lowered from {asked.limit}"
    note = f"the limit of the answer was {change} to {limit} tokens: that is what the budget affords"
    return asked._replace(limit=limit, notes=(*asked.notes, note))


def _object(data: bytes) -> Body:
    try:
        body = json.loads(data, object_pairs_hook=_once, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise Refused("body", 400, f"the body is not JSON that can be read in one way only: {error}"[:300]) from None
    if not isinstance(body, dict):
        raise Refused("body", 400, "the body is not a JSON object")
    return body


def _once(pairs: list[tuple[str, object]]) -> Body:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is too large")
    return value


def _settings(api: Api, body: Body) -> Body:
    """Where limits stand: in the body, or in gemini's table of settings, which has two spellings."""
    if api != "gemini":
        return body
    tables = [body[name] for name in _GEMINI_SETTINGS if name in body]
    if len(tables) > 1 or not all(isinstance(table, dict) for table in tables):
        raise Refused("body", 400, "generationConfig is one object")
    return tables[0] if tables else {}  # type: ignore[return-value]


def _whole(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise Refused("body", 400, f"{name} is a whole number above zero")
    return value


def _ask_for_usage(body: Body) -> bool:
    """A stream of this wire says what it used only when asked to. The agent sees the further piece, too."""
    options = body.get("stream_options")
    if isinstance(options, dict) and options.get("include_usage") is True:
        return False
    body["stream_options"] = {**(options if isinstance(options, dict) else {}), "include_usage": True}
    return True


# ── what would lead outside (Q3, Q4) ──


def _kept_inside(api: Api, body: Body) -> tuple[str, ...]:
    if body.get("background") not in (None, False):
        raise Refused("body", 403, "an answer made in the background cannot be counted; ask without `background`")
    _refuse_addresses(api, body)
    dropped = [name for name in _OUTSIDE if body.pop(name, None)]
    offered = body.get("tools")
    if isinstance(offered, list):
        offered = [part for tool in offered for part in _named(api, tool)]
        kept = [tool for tool in offered if _is_own(api, tool)]
        dropped += [_name(tool) for tool in offered if not _is_own(api, tool)]
        body["tools"] = kept
        if not kept:
            for name in ("tools", "tool_choice", "toolConfig", "tool_config"):
                body.pop(name, None)
    return tuple(f"{name} was taken out: the provider would go outside for it"[:200] for name in dropped)


def _refuse_addresses(api: Api, body: Body) -> None:
    """Q4. Without recursion: how deep a body is, is the sender's choice."""
    rest = [(name, value) for name, value in body.items() if name not in (*_OUTSIDE, *_BESIDE)]
    while rest:
        name, value = rest.pop()
        if isinstance(value, list):
            if name == "tools" and not all(_is_own(api, part) for tool in value for part in _named(api, tool)):
                raise Refused(
                    "body", 403, "among what is said to the model is a tool that the provider would carry out"
                )
            rest += [(name, one) for one in value]
        elif isinstance(value, dict):
            rest += [(inner, value[inner]) for inner in value if not _is_tool_data(api, name, value, inner)]
        elif isinstance(value, str) and _is_fetched(name.lower(), value):
            raise Refused(
                "body", 403, f"the provider would fetch what {name[:60]!r} names; put the bytes there, as {_INLINE}…"
            )


def _is_tool_data(api: Api, name: str, part: Body, inner: str) -> bool:
    if inner in _SOURCES:
        return True
    kinds = [kind for kind, place in _TOOL_DATA[api] if inner == place]  # for most names there is none
    mark = name if api == "gemini" else str(part.get("type", ""))
    return any(kind.fullmatch(mark) for kind in kinds)


def _is_fetched(name: str, value: str) -> bool:
    if name.endswith(_ADDRESS_NAMES):
        return bool(value) and not value.startswith(_INLINE)
    return name in _BYTES_NAMES and _ADDRESS.match(value) is not None


def _is_own(api: Api, tool: object) -> bool:
    if not isinstance(tool, dict):
        return False
    if api == "gemini":
        return any(_OWN_TOOLS[api].fullmatch(name) for name in tool)
    kind = tool.get("type", "function" if api != "anthropic" else "")
    inner = tool.get("tools") if kind == "namespace" else None
    if isinstance(inner, list) and not all(_is_own(api, one) for one in inner):
        return False
    return isinstance(kind, str) and _OWN_TOOLS[api].fullmatch(kind) is not None


def _named(api: Api, tool: object) -> list[object]:
    """One entry of gemini's list may hold several kinds; then each becomes an entry."""
    return [{name: value} for name, value in tool.items()] if api == "gemini" and isinstance(tool, dict) else [tool]


def _name(tool: object) -> str:
    if not isinstance(tool, dict):
        return "a tool"
    return str(tool.get("type") or "/".join(map(str, tool)))[:60]
