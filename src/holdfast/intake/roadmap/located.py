"""JSON with places: the values of a text, each with where it stands, so that one of them can be replaced in the text.

Of a key that appears twice the last one counts, as elsewhere.
Deliberately absent: no opinion about what the values mean.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple, TypeAlias

MAX_DEPTH = 60
_TOKEN = re.compile(r'[ \t\n\r]*+(?:([\[{])|([\]}])|([,:])|("[^"\\]*+(?:\\.[^"\\]*+)*+")|([-+.\w]++))', re.DOTALL)
Scalar: TypeAlias = str | int | float | bool | None


class Fault(Exception):
    """The text is not JSON that we read; at this offset."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


class Node:
    """A value in a text. One of `items`, `members` is set for a list or a mapping; `scalar` counts otherwise."""

    __slots__ = ("end", "items", "members", "scalar", "start")

    def __init__(self, start: int, scalar: Scalar = None) -> None:
        self.start = start
        self.end = start
        self.scalar = scalar
        self.items: list[Node] | None = None
        self.members: dict[str, Node] | None = None

    def get(self, key: str) -> Node | None:
        return self.members.get(key) if self.members is not None else None

    def text(self, key: str) -> str:
        """The member as words; empty where there is none, or where it is no scalar."""
        found = self.get(key)
        if found is None or found.items is not None or found.members is not None or found.scalar is None:
            return ""
        return found.scalar if isinstance(found.scalar, str) else json.dumps(found.scalar)


class _Open(NamedTuple):
    node: Node
    closing: str


def located(text: str) -> Node:
    """The value of a JSON text, or Fault. No recursion: a file of brackets must not end the process."""
    holder = Node(0)
    holder.items = []
    stack = [_Open(holder, "")]
    position, key, wanted = 0, "", "value"
    while len(stack) > 1 or not holder.items:
        found = _TOKEN.match(text, position)
        if found is None:
            raise Fault("a value is expected here" if position < len(text) else "the file ends too early", position)
        position = found.end()
        opening, closing, comma, string, word = found.groups()
        top = stack[-1]
        if comma is not None:
            wanted = _after_separator(comma, wanted, top, found.start(3))
        elif closing is not None:
            if closing != top.closing or wanted not in ("separator", "value or end", "key or end"):
                raise Fault(f"{closing} is not expected here", found.start(2))
            top.node.end = position
            stack.pop()
            wanted = "separator"
        elif wanted.startswith("key"):
            if string is None:
                raise Fault("a key in quotes is expected here", found.start())
            key, wanted = _string(string, found.start(4)), "colon"
        elif wanted.startswith("value"):
            wanted = _add(stack, key, found, opening, string, word)
        else:
            raise Fault("a comma or a bracket is expected here", found.start())
    if text[position:].strip():
        raise Fault("something follows behind the end", position)
    return holder.items[0]


def _after_separator(char: str, wanted: str, top: _Open, offset: int) -> str:
    if char == ":" and wanted == "colon":
        return "value"
    if char == "," and wanted == "separator" and top.closing:
        return "value" if top.closing == "]" else "key"
    raise Fault(f"{char} is not expected here", offset)


def _add(stack: list[_Open], key: str, found: re.Match[str], opening: str | None, string: str | None, word: str) -> str:
    """Put a value where it belongs; what is wanted next."""
    group = 1 if opening else 4 if string is not None else 5
    node = Node(found.start(group))
    node.end = found.end()
    owner = stack[-1].node
    if owner.items is not None:
        owner.items.append(node)
    elif owner.members is not None:
        owner.members[key] = node
    if opening is None:
        node.scalar = _string(string, node.start) if string is not None else _word(word, node.start)
        return "separator"
    if len(stack) > MAX_DEPTH:
        raise Fault("the file is nested too deeply", node.start)
    if opening == "[":
        node.items = []
    else:
        node.members = {}
    stack.append(_Open(node, "]" if opening == "[" else "}"))
    return "value or end" if opening == "[" else "key or end"


def _string(text: str, offset: int) -> str:
    try:
        value = json.loads(text, strict=False)
    except ValueError as error:
        raise Fault("this text has a wrong escape", offset) from error
    # A lone surrogate cannot be written anywhere.
    return str(value).encode("utf-8", "replace").decode()


def _word(text: str, offset: int) -> Scalar:
    if len(text) > 300:
        raise Fault("this number is too long", offset)
    try:
        value = json.loads(text)
    except ValueError as error:
        raise Fault(f"{text[:40]} is no JSON value", offset) from error
    assert value is None or isinstance(value, bool | int | float)
    return value
