"""The body of a request: read once, strictly, and sent on as it was read.

Invariants
  Q1  What was judged is what is sent: a body that two readers could read differently (a name given twice, NaN) is
      refused.
  Q2  `decoded` never makes more than MAX_BODY bytes of what came, however it was packed.
  Q3  Where the provider itself would go out for the agent (web search, MCP servers, code in the cloud), the border of
      the sandbox would have a hole; such tools are taken out of the list. A field that asks for the like is refused in
      any spelling, and a field that this wire is not known to have is taken out: nobody here can tell what it does.
  Q4  Nor does it fetch anything: a picture or a document whose address stands where its bytes could stand is refused,
      since the address alone would carry out what the agent knows. What tools were given and gave is data, and passes.
  Q5  A body is at most DEEPEST deep, so that everything that reads it afterwards may go down into it.
  Q6  Where the user has named a model, the agent gets that one, whichever it asks for. Another one is left to it only
      where it is listed by its very name with a price that is no higher.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from typing import NamedTuple, NoReturn, TypeAlias

from holdfast.model.agent import Api
from holdfast.model.path import printable
from holdfast.proxy.refusals import Refused
from holdfast.proxy.routes import MODEL_NAME, Route

MAX_BODY = 64 << 20
# The requests of all agents we know are at most 12 deep, with the schemas of their tools.
DEEPEST = 64
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
# What each wire is known to have, small servers of it included. All else is taken out (Q3).
_FIELDS: dict[Api, frozenset[str]] = {
    "openai": frozenset(
        """model messages max_tokens max_completion_tokens n stream stream_options temperature top_p top_k min_p seed
        stop frequency_penalty presence_penalty repetition_penalty logit_bias logprobs top_logprobs tools tool_choice
        parallel_tool_calls functions function_call response_format reasoning_effort reasoning thinking thinking_budget
        enable_thinking chat_template_kwargs verbosity modalities prediction metadata user safety_identifier
        prompt_cache_key prompt_cache_retention service_tier store""".split()
    ),
    "responses": frozenset(
        """model input instructions max_output_tokens stream stream_options temperature top_p top_logprobs tools
        tool_choice parallel_tool_calls max_tool_calls text reasoning include truncation metadata client_metadata user
        safety_identifier prompt_cache_key prompt_cache_retention service_tier store""".split()
    ),
    "anthropic": frozenset(
        """model messages system max_tokens stream temperature top_p top_k stop_sequences thinking tools tool_choice
        metadata context_management output_config output_format cache_control service_tier""".split()
    ),
    "gemini": frozenset(
        """contents systemInstruction system_instruction generationConfig generation_config tools toolConfig tool_config
        safetySettings safety_settings labels""".split()
    ),
}
# Fields by which one provider or another goes out; compared without case, blanks and strokes.
_OUTSIDE = frozenset(
    """background callback callbacks connectors container enablesearch mcp mcpservers plugin plugins searchoptions
    searchparameters webhook webhooks websearch websearchoptions""".split()
)
# Models that search by themselves, by a suffix for any model or by their names; the user may configure one.
_SEARCHING = re.compile(r":online\b|-search-(?:preview|api)\b|deep-research|(?:^|/)(?:sonar|compound)\b", re.IGNORECASE)
# What the provider keeps of a conversation and puts before a question: it is paid for again, and is not seen here.
_KEPT_THERE = frozenset({"previousresponseid", "conversation"})
# Other tiers of service have other prices than those that were stated.
_TIERS = ("auto", "default", "flex", "standard", "standard_only")
# What is fetched stands under such a name, whatever the wire (Q4): image_url and its url, fileUri, image_urls.
_ADDRESS_NAMES = ("url", "uri", "urls", "uris")
# Bytes stand under these. Some providers take an address there too.
_BYTES_NAMES = frozenset({"data", "filedata", "image", "video", "audio", "file"})
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


def asked_of(
    route: Route, data: bytes, *, provider_tools: bool = False, only: Callable[[str], str] | None = None
) -> Asked:
    """Understood, or Refused; what would lead outside is taken out unless it is allowed.

    `only` says which model is asked instead of the one that is named, if need be that same one (Q6).
    """
    body = _object(data)
    notes = () if provider_tools else _kept_inside(route.api, body)
    model = route.model or body.get("model")
    if not isinstance(model, str) or not model:
        raise Refused("body", 400, "the request names no model")
    if only is not None and (allowed := only(model)) != model:
        notes += (f"{allowed} was asked instead of {printable(model)[:80]}: it is the model that is configured",)
        route, model = _redirected(route, body, allowed), allowed
    if not provider_tools and _SEARCHING.search(model) and (only is None or only("") != model):
        raise Refused("body", 403, f"the provider would go outside for {printable(model)[:60]!r}; ask another model")
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
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise Refused("body", 400, f"the body is not JSON that can be read in one way only: {error}"[:300]) from None
    if not isinstance(body, dict):
        raise Refused("body", 400, "the body is not a JSON object")
    level: list[object] = [body]
    for _ in range(DEEPEST):
        level = [
            inner
            for value in level
            for inner in (value.values() if isinstance(value, dict) else value if isinstance(value, list) else ())
            if isinstance(inner, dict | list)
        ]
        if not level:
            return body
    raise _too_deep()


def _too_deep() -> Refused:
    return Refused("body", 400, f"the body is nested more than {DEEPEST} deep")


def _redirected(route: Route, body: Body, model: str) -> Route:
    """The way to another model: in gemini's path, or in the body."""
    if not route.model:
        body["model"] = model
        return route
    if not MODEL_NAME.fullmatch(model):
        raise Refused(
            "endpoint", 403, f"{printable(model)[:80]}, which is configured, is no name of a model on this wire"
        )
    return route._replace(model=model, path=route.path.replace(f"/{route.model}:", f"/{model}:", 1))


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
    for name, value in body.items():
        if value and (_plain(name) in _OUTSIDE or _plain(name).endswith(_ADDRESS_NAMES)):
            raise Refused("body", 403, f"the provider would go outside for {printable(name)[:60]!r}; ask without it")
        if value and _plain(name) in _KEPT_THERE:
            raise _kept_there(name)
    _refuse_addresses(api, body)
    dropped = [f"{printable(name)} was taken out: it is not known here" for name in body if name not in _FIELDS[api]]
    for name in body.keys() - _FIELDS[api]:
        del body[name]
    if body.get("service_tier") not in (None, *_TIERS):
        del body["service_tier"]
        dropped.append("service_tier was taken out: it changes what an answer costs")
    offered = body.get("tools")
    if isinstance(offered, list):
        offered = [part for tool in offered for part in _named(api, tool)]
        kept = [tool for tool in offered if _is_own(api, tool)]
        outside = [_name(tool) for tool in offered if not _is_own(api, tool)]
        dropped += [f"{name} was taken out: the provider would go outside for it" for name in outside]
        if outside:
            body["tools"] = kept
        if outside and not kept:
            for name in ("tools", "tool_choice", "toolConfig", "tool_config"):
                body.pop(name, None)
    return tuple(note[:200] for note in dropped)


def _kept_there(name: str) -> Refused:
    why = "would put a kept conversation before the question, which can neither be counted nor recorded here"
    return Refused("body", 403, f"with {printable(name)[:60]!r} the provider {why}; send all of it")


def _plain(name: str) -> str:
    """A name without its spelling: some servers read names without regard to case."""
    return "".join(letter for letter in name.casefold() if letter.isalnum())


def _refuse_addresses(api: Api, body: Body) -> None:
    """Q4. Without recursion: how deep a body is, is the sender's choice."""
    rest = [(name, value) for name, value in body.items() if name not in _BESIDE]
    while rest:
        name, value = rest.pop()
        if isinstance(value, list):
            if name == "tools" and not all(_is_own(api, part) for tool in value for part in _named(api, tool)):
                raise Refused(
                    "body", 403, "among what is said to the model is a tool that the provider would carry out"
                )
            rest += [(name, one) for one in value]
        elif isinstance(value, dict):
            if _plain(str(value.get("type"))) == "itemreference":
                raise _kept_there(name)
            rest += [(inner, value[inner]) for inner in value if not _is_tool_data(api, name, value, inner)]
        elif isinstance(value, str) and _is_fetched(_plain(name), value):
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
    if any(name != plain and plain in ("type", "tools") for name in tool for plain in (_plain(name),)):
        return False  # whoever reads names without regard to case would see another tool
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
