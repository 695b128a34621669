"""Words: what the line of a task says besides its title: a number, an id, labels, paths.

A written id names its task wherever it stands, as in `T014`, `AUTH-7:`, `{#parser}` or `<!-- id: parser -->`.
A number (`1.2`, `3.`, `Task 4`) says where a task stands, and people renumber when they put one in between:
it is kept for people and for "depends on 1.2", and never becomes an id.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from holdfast.intake.roadmap.marks import unsigned

_FRONT = re.compile(
    r"""(?!\[[^\]\n]{1,60}\]\()(?:\*\*|`|\[)?(?:
      (?P<id>T\d{2,6}[a-z]?(?![\w.-])|T\d{1,6}(?=\*\*[ \t])|(?:T\d{1,6}|[A-Z][A-Z0-9]{1,9}-\d{1,7})(?=(?:\*\*|`)?[:\]]))
    | (?P<number>(?:Task|Step|TASK|STEP|task|step)[ ]\d{1,6}(?:\.\d{1,6}){0,8}(?=(?:\*\*)?[ ]?[:.)–—-])
        |\d{1,6}(?:\.\d{1,6}){1,8}(?=[.:)\]*`]|[ \t]+[`*\[A-Z])|\#?\d{1,6}(?=[.:)\]]|\*\*[.:)]))
    )(?:\*\*|`|\])?[.:)]?(?:\*\*)?(?:[ \t]+[–—-](?=[ \t]))?[ \t]*""",
    re.VERBOSE,
)
_LABEL = re.compile(r"\[([A-Za-z][\w-]{0,15}|~?\d{1,5}[a-z]{0,4})\][ \t]*")
_ANCHOR = re.compile(r"\{#([\w.-]{1,64})\}|<!--[ \t]{0,9}id:[ \t]{0,9}([\w.-]{1,64})[ \t]{0,9}-->")
_LINKED = re.compile(r"\[([^\]\n]{1,300})\]\((?:[^()\n]{0,600})\)")
_CITED = re.compile(r"`([^`\n]{1,200})`")
_PLAIN_PATH = re.compile(r"(?<![\w/:.@~-])(?:[\w.@-]{1,100}/){1,20}[\w.@-]{0,100}\.[A-Za-z]\w{0,9}(?![\w/])")
_NAME = re.compile(r"[\w.@/+\[\]{}*-]+\Z")
_ENDING = re.compile(r"[\w)\]*-]\.[A-Za-z]\w{0,9}\Z")
_PLAIN_NAME = re.compile(r"[\w@.-]{1,100}\.[A-Za-z]\w{0,9}\Z")


class Line(NamedTuple):
    """The parts of a task's line."""

    title: str
    number: str = ""
    # An id that the file gives; empty where there is none.
    written: str = ""
    parallel: bool = False


def line_of(text: str) -> Line:
    """The parts of a task's line, behind its mark."""
    whole = text = text.strip()
    written = number = ""
    parallel = False
    text = unsigned(text)
    if "<!--" in text or "{#" in text:
        if anchor := _ANCHOR.search(text):
            written = anchor[1] or anchor[2]
        text = _uncommented(_ANCHOR.sub("", text)).strip()
    front = _FRONT.match(text)
    if front is not None and front.end() < len(text):
        written, number = written or front["id"] or "", (front["id"] or front["number"]).removeprefix("#")
        text = _balanced(text[front.end() :], front[0])
    while text[:1] == "[" and (label := _LABEL.match(text)) and label.end() < len(text):
        parallel = parallel or label[1] == "P"
        text = text[label.end() :]
    # Whatever is taken off, a task keeps a title.
    return Line(plain(text) or whole, number, written, parallel)


def _uncommented(text: str) -> str:
    """Not by a regular expression: many beginnings without an end would be searched for one each."""
    parts: list[str] = []
    position = 0
    while (start := text.find("<!--", position)) >= 0 and (end := text.find("-->", start)) >= 0:
        parts.append(text[position:start])
        position = end + 3
    return "".join(parts) + text[position:]


def _balanced(text: str, front: str) -> str:
    """The text behind a front such as `**T1:`, whose bold ends only later."""
    return "**" + text if front.count("**") % 2 else text


def plain(text: str) -> str:
    """A title without the signs of Markdown, except those of code."""
    if "[" in text:
        text = _LINKED.sub(r"\1", text)
    if "*" in text or "_" in text or "~" in text:
        for sign in ("**", "__", "~~"):
            # In pairs only: `__init__.py` has one such pair as well, and is code.
            if text.count(sign) > 1 and (sign != "__" or text.startswith(sign + text[2:3].strip("_"))):
                text = _unwrapped(text, sign)
    return text.strip()


def _unwrapped(text: str, sign: str) -> str:
    if sign == "__":
        return text[2:].replace("__", "", 1) if not text.startswith("__init__") else text
    return text.replace(sign, "")


def paths_in(text: str) -> tuple[str, ...]:
    """The paths that a sentence names: cited ones with an ending or a slash, others only with both."""
    found: list[str] = []
    if "`" in text:
        found += (cited for cited in _CITED.findall(text) if is_path(cited))
    if "/" in text:
        found += _PLAIN_PATH.findall(_CITED.sub(" ", text) if "`" in text else text)
    return tuple(dict.fromkeys(found)) if len(found) > 1 else tuple(found)


def is_path(text: str) -> bool:
    """Whether a cited text looks like a path of the workspace; nothing relies on it without a check of its own."""
    if not ("/" in text or "." in text) or "://" in text or text[0] in "/-@" or not _NAME.match(text):
        return False
    return "/" in text or _ENDING.search(text) is not None


def listed_paths(value: str) -> tuple[str, ...]:
    """The paths of a line that is there to list them, cited or not."""
    cited = [name for name in _CITED.findall(value) if " " not in name]
    if cited:
        return tuple(dict.fromkeys(cited))
    words = re.split(r"[,;\s]+", re.sub(r"\([^()\n]*\)", " ", value))
    return tuple(dict.fromkeys(word for word in words if "/" in word.strip("/") or _PLAIN_NAME.match(word)))
