"""What a program asked a model and what it is answered, apart from the wire on which that went.

Each wire (`openai`, `responses`, `anthropic`, `gemini`) reads its own form into a Conversation, and writes an Answer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

# What stands on a wire is foreign JSON of any shape; it is taken apart here and in the wires, and nowhere else.
Json: TypeAlias = dict[str, Any]

_REMINDERS = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


class User(NamedTuple):
    """Words of the user, or of the program in the user's name; `whole` has the program's own reminders too."""

    text: str
    whole: str


class Model(NamedTuple):
    """An answer of the model; `tool` is the name of the tool it called, empty when it only spoke."""

    text: str
    tool: str = ""


class Outcome(NamedTuple):
    """What a tool gave back."""

    text: str


Event: TypeAlias = User | Model | Outcome
Form = Literal["function", "custom", "local_shell"]


class Tool(NamedTuple):
    """A tool the program offers; `custom` takes free text instead of JSON."""

    name: str
    properties: Mapping[str, Json]
    required: tuple[str, ...] = ()
    form: Form = "function"


class Conversation(NamedTuple):
    """`schema` is what the answer must look like, `forced` the tool that must be called, where the program says so."""

    model: str
    system: str
    events: tuple[Event, ...]
    tools: tuple[Tool, ...] = ()
    streamed: bool = False
    max_tokens: int | None = None
    schema: Json | None = None
    forced: bool = False

    @property
    def words(self) -> Iterator[str]:
        """What the user said, oldest first."""
        return (event.text for event in self.events if isinstance(event, User) and event.text)

    @property
    def surroundings(self) -> Iterator[str]:
        """Where a program tells its model about the place it works in."""
        yield self.system
        yield from (event.whole for event in self.events if isinstance(event, User))

    @property
    def mark(self) -> str:
        """The same for the same history, and another for every other."""
        return hashlib.sha256(repr((self.system, self.events)).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Words(NamedTuple):
    text: str


class Call(NamedTuple):
    """One call of one tool; `raw` is the free text of a custom tool."""

    tool: Tool
    arguments: Json
    raw: str = ""


Answer: TypeAlias = Words | Call


class Tokens(NamedTuple):
    """Counted by length, so that the same conversation always costs the same."""

    taken: int
    given: int


class Reply(NamedTuple):
    """An answer ready for a wire."""

    answer: Answer
    tokens: Tokens
    model: str
    mark: str


class Wire(Protocol):
    """One API of model providers."""

    def heard(self, body: Json, path: str) -> Conversation: ...

    def whole(self, reply: Reply) -> Json: ...

    def pieces(self, reply: Reply, body: Json) -> Iterator[tuple[str, Json | str]]:
        """Server-sent events: name (empty for none) and data."""
        ...

    def error(self, status: int, message: str) -> Json: ...


def said_by_user(text: str) -> Iterator[User]:
    """Without what programs put into the user's mouth on the way; nothing, when there is nothing."""
    if text.strip():
        yield User(_REMINDERS.sub("", text).strip(), text)


def tool_of(name: str, schema: object, form: Form = "function") -> Tool:
    """From a JSON schema; one without properties is a tool without arguments."""
    found = schema if isinstance(schema, dict) else {}
    properties = {key: value for key, value in (found.get("properties") or {}).items() if isinstance(value, dict)}
    return Tool(name, properties, tuple(found.get("required") or ()), form)


def text_of(content: object) -> str:
    """The words in a content that is a string, or a list of parts with `text` in them."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, (text_of(part) for part in content)))
    if isinstance(content, dict):
        return text_of(content.get("text") or content.get("content") or "")
    return ""


def counted(conversation: Conversation, written: str) -> Tokens:
    """A token is four characters, and nothing is free."""
    read = len(conversation.system) + sum(
        len(event.whole if isinstance(event, User) else event.text) for event in conversation.events
    )
    return Tokens(read // 4 + 1, len(written) // 4 + 1)


def chunks(text: str, most: int = 8) -> list[str]:
    """A text in a few pieces, so that whoever reads a stream has something to put together."""
    size = max(1, -(-len(text) // most))
    return [text[start : start + size] for start in range(0, len(text), size)]


def status_word(status: int, words: Mapping[int, str], otherwise: str) -> str:
    """A provider's own word for a status; `otherwise` for the ones of the server that have none."""
    return words.get(status) or (otherwise if status >= 500 else words[400])
