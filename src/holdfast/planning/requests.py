"""Requests that need no thinking: plain sentences with exactly one meaning become steps; all others do not.

| sentence                                                     | step                                             |
|--------------------------------------------------------------|--------------------------------------------------|
| create directory logs                                        | create a directory                               |
| create empty file notes.txt · touch notes.txt                | create a file                                    |
| delete conf/old.conf · remove directory tmp                  | delete; a directory must be empty                |
| delete directory tmp and everything in it                    | delete with all in it                            |
| rename a.txt to b.txt · move a.txt to old/                   | move; a slash at the end keeps the name          |
| make run.sh executable                                       | chmod: who may read it may run it                |
| chmod 0644 a.txt · set the mode of a.txt to 0644             | chmod                                            |
| link current to releases/2 · point current at releases/2     | symlink                                          |
| write 'x' to a.txt                                           | write exactly what is between the quotes         |
| append the line 'x' to a.txt                                 | update: the same content and one line more       |
| replace 'a' with 'b' in a.txt · replace every 'a' with …     | update: one place, or every place                |

Invariants
  Q1  A sentence is understood as a whole or not at all; several are joined by "and", "then", a comma or a semicolon.
  Q2  What a sentence takes for granted is looked up: the file is there, the text stands in it, and once.
  Q3  Paths are checked like those of a change file, before anything is looked up.
  Q4  A word that could mean anything ("it", "everything", "files") names no path unless it is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from holdfast.errors import InvalidPath
from holdfast.model.path import checked_path, parent_of, printable
from holdfast.model.plan import Chmod, Create, Delete, Inline, Move, Step, Symlink, Update, Write
from holdfast.planning.risk import leaves_the_workspace
from holdfast.planning.suspicion import QUOTED

MAX_REQUESTS = 50
_READ_BITS = 0o444
_QUOTES = {"'": "'", '"': '"', "`": "`", "‘": "’", "“": "”"}
_VAGUE = frozenset(
    """it this that them these those everything all anything something nothing stuff file files directory folder
    directories folders code test tests data things here there me us one ones""".split()
)


class Eyes(NamedTuple):
    """How the workspace is looked at: the content of a regular file, and the permission bits of what stands at a path.

    None where there is none. Paths that reach it are checked.
    """

    content: Callable[[str], bytes | None]
    mode: Callable[[str], int | None]


class Unclear(Exception):
    """Why a sentence that looked like a request is none; the message is for a person."""


class _View:
    """The workspace as the sentences before have left it, as far as contents go."""

    def __init__(self, eyes: Eyes) -> None:
        self._eyes = eyes
        self._written: dict[str, bytes] = {}

    def content(self, path: str) -> bytes:
        found = self._written[path] if path in self._written else self._eyes.content(path)
        if found is None:
            raise Unclear(f"there is no file {printable(path)}")
        return found

    def mode(self, path: str) -> int:
        found = self._eyes.mode(path)
        if found is None:
            raise Unclear(f"there is nothing at {printable(path)}")
        return found

    def write(self, path: str, data: bytes) -> None:
        self._written[path] = data


_Match: TypeAlias = re.Match[str]
_Builder: TypeAlias = Callable[[_Match, _View], Step]


def steps_of(text: str, eyes: Eyes) -> tuple[Step, ...] | None:
    """The steps that the sentences ask for; None when one is of no known form, Unclear when one cannot be meant so."""
    view = _View(eyes)
    sentences = _sentences(text)
    if not 0 < len(sentences) <= MAX_REQUESTS:
        return None
    found = [_recognised(sentence) for sentence in sentences]
    if any(item is None for item in found):
        return None  # nothing is looked up for a text that is not understood to its end
    return tuple(build(match, view) for build, match in (item for item in found if item is not None))


def _sentences(text: str) -> list[str]:
    hidden = QUOTED.sub(lambda found: "\0" * len(found.group()), text)
    parts, start = [], 0
    for joint in _JOINT.finditer(hidden):
        parts.append(text[start : joint.start()])
        start = joint.end()
    parts.append(text[start:])
    trimmed = (_POLITE.sub("", part.strip()) for part in parts)
    return [_without_stop(part) for part in trimmed if part]


def _without_stop(sentence: str) -> str:
    return sentence[:-1].rstrip() if sentence.endswith((".", "?", "!")) and not sentence.endswith("..") else sentence


def _recognised(sentence: str) -> tuple[_Builder, _Match] | None:
    for pattern, build in _FORMS:
        found = pattern.fullmatch(sentence)
        if found is not None:
            return build, found
    return None


# ── what each form becomes ──


def _create_directory(found: _Match, _: _View) -> Step:
    return Create(_path(found, "path"), directory=True)


def _create_file(found: _Match, _: _View) -> Step:
    return Create(_file_path(found, "path"), directory=False)


def _delete(found: _Match, view: _View) -> Step:
    path = _path(found, "path")
    view.mode(path)
    return Delete(path, recursive=found["all"] is not None)


def _move(found: _Match, view: _View) -> Step:
    path, to = _path(found, "path"), _path(found, "to")
    if _unquoted(found["to"]).endswith("/"):
        to = f"{to}/{path.rpartition('/')[2]}"
    if path == to or to.startswith(path + "/"):
        raise Unclear(f"{printable(path)} would be moved onto or into itself")
    view.mode(path)
    return Move(path, to)


def _make_executable(found: _Match, view: _View) -> Step:
    path = _path(found, "path")
    mode = view.mode(path)
    return Chmod(path, mode | (mode & _READ_BITS) >> 2)


def _chmod(found: _Match, view: _View) -> Step:
    path = _path(found, "path")
    view.mode(path)
    return Chmod(path, int(found["mode"], 8))


def _symlink(found: _Match, view: _View) -> Step:
    path, target = _file_path(found, "path"), _unquoted(found["to"])
    if leaves_the_workspace(path, target):
        raise Unclear(f"{printable(target)} is not inside the workspace; such a link is written in a change file")
    parent = parent_of(path)
    if parent and not target.startswith(("./", "../")):
        raise Unclear(f"a link is read from its own directory: say ./{printable(target)} or ../{printable(target)}")
    view.mode(_checked(_resolved(parent, target)))
    return Symlink(path, target)


def _resolved(parent: str, target: str) -> str:
    """Where a link's text leads, by spelling; only called for texts that stay inside."""
    names = parent.split("/") if parent else []
    for name in target.split("/"):
        if name == "..":
            names.pop()
        elif name not in ("", "."):
            names.append(name)
    return "/".join(names)


def _write(found: _Match, view: _View) -> Step:
    path, data = _file_path(found, "path"), _bytes(found["text"])
    view.write(path, data)
    return Write(path, Inline(data))


def _append(found: _Match, view: _View) -> Step:
    path = _file_path(found, "path")
    old = view.content(path)
    gap = b"" if not old or old.endswith(b"\n") else b"\n"
    return _updated(path, old, old + gap + _bytes(found["text"]) + b"\n", view)


def _replace(found: _Match, view: _View) -> Step:
    path, wanted, new = _file_path(found, "path"), _bytes(found["old"]), _bytes(found["new"])
    old = view.content(path)
    places = old.count(wanted) if wanted else 0
    if not places:
        raise Unclear(f"{printable(path)} does not contain {printable(found['old'])}")
    if places > 1 and found["every"] is None:
        raise Unclear(f"{printable(path)} contains {printable(found['old'])} {places} times; say: replace every …")
    return _updated(path, old, old.replace(wanted, new), view)


def _updated(path: str, old: bytes, new: bytes, view: _View) -> Step:
    view.write(path, new)
    return Update(path, old, Inline(new))


# ── words and paths ──


def _path(found: _Match, group: str) -> str:
    word = found[group]
    if word == _unquoted(word) and word.lower() in _VAGUE:
        raise Unclear(f'"{word}" names no path; quote it if it is one')  # Q4
    return _checked(_unquoted(word))


def _file_path(found: _Match, group: str) -> str:
    if _unquoted(found[group]).endswith("/"):
        raise Unclear(f"{printable(found[group])} names a directory")
    return _path(found, group)


def _checked(text: str) -> str:
    try:
        return checked_path(text)
    except InvalidPath as error:
        raise Unclear(error.message) from None


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and _QUOTES.get(word[0]) == word[-1] else word


def _bytes(word: str) -> bytes:
    try:
        return _unquoted(word).encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise Unclear(f"{printable(word)} is not valid text") from None


def _form(pattern: str, build: _Builder) -> tuple[re.Pattern[str], _Builder]:
    """`P:name` is a path, bare or quoted; `T:name` is a quoted text; a blank is any white space."""
    quoted = r"(?:'[^'\n]*'|\"[^\"\n]*\"|`[^`\n]*`|‘[^’\n]*’|“[^”\n]*”)"
    bare = r"[^\s'\"`‘’“”,;:|&$<>*?(){}\[\]\\!#~]+"
    pattern = re.sub(r"P:(\w+)", lambda name: f"(?P<{name[1]}>{quoted}|{bare})", pattern)
    pattern = re.sub(r"T:(\w+)", lambda name: f"(?P<{name[1]}>{quoted})", pattern)
    return re.compile(pattern.replace(" ", r"\s+"), re.IGNORECASE), build


_POLITE = re.compile(r"^(?:(?:can|could|would|will) you )?(?:(?:please|kindly|then) )*", re.IGNORECASE)
_VERB = "create|make|mkdir|touch|delete|remove|rename|move|chmod|set|link|symlink|point|write|append|replace"
_JOINT = re.compile(
    # Not from the middle of white space: a text of blanks would be looked through once for each of them.
    rf"(?<!\s)(?:\s*[;\n]\s*|,?\s+(?:and\s+)?then\s+(?=(?:{_VERB})\b)|,?\s+and\s+(?=(?:{_VERB})\b)|,\s+(?=(?:{_VERB})\b))",
    re.IGNORECASE,
)
_A = r"(?:(?:a|an|the) )?"
_ALL = r"(?P<all> and (?:everything|all) (?:in|inside) it| recursively| with (?:all )?its contents?)?"
_FORMS = (
    _form(rf"(?:(?:create|make) {_A}(?:new )?(?:empty )?(?:directory|folder)|mkdir)(?: (?:called|named))? P:path",
          _create_directory),
    _form(rf"(?:create {_A}(?:new )?(?:empty )?file|touch)(?: (?:called|named))? P:path", _create_file),
    _form(rf"(?:delete|remove) {_A}(?:(?:file|directory|folder|link|symlink) )?P:path{_ALL}", _delete),
    _form(rf"(?:rename|move) {_A}(?:(?:file|directory|folder) )?P:path (?:to|as|into) P:to", _move),
    _form(rf"make {_A}(?:(?:file|script) )?P:path executable", _make_executable),
    _form(r"chmod (?P<mode>0?[0-7]{3}) P:path", _chmod),
    _form(r"set (?:the )?(?:mode|permissions) of P:path to (?P<mode>0?[0-7]{3})", _chmod),
    _form(rf"(?:(?:sym)?link|create {_A}(?:symlink|symbolic link)(?: (?:called|named))?) P:path to P:to", _symlink),
    _form(r"point (?:the (?:link|symlink) )?P:path (?:at|to) P:to", _symlink),
    _form(r"write T:text (?:in)?to (?:the file )?P:path", _write),
    _form(r"append the line T:text to (?:the file )?P:path", _append),
    _form(r"replace (?P<every>(?:every|all|each) (?:(?:occurrences?|instances?) of )?)?T:old (?:with|by) T:new in "
          r"(?:the file )?P:path", _replace),
)  # fmt: skip
