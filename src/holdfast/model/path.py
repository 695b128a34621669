"""Workspace paths: relative, plain, and never into Holdfast's or git's own state.

A path is a `str` with `/` between names; bytes that are not UTF-8 are surrogate escapes.
The kernel enforces confinement again at every open (see `disk.confined`);
this is the first line, so that a person gets a sentence instead of an errno.
"""

from __future__ import annotations

import re
import unicodedata

from holdfast.errors import InvalidPath

MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 4000
STATE_DIRECTORY = ".holdfast"

# Dependencies and caches, which tools fill and can fill again: they do not count as files of a project.
TOOL_DIRECTORIES = frozenset(
    """node_modules .venv venv site-packages __pycache__ .tox .nox .mypy_cache .pytest_cache .ruff_cache""".split()
)

# What agents read as instructions of the project, at any depth.
INSTRUCTION_FILES = frozenset(
    """AGENTS.md AGENTS.override.md AGENT.md CLAUDE.md CLAUDE.local.md GEMINI.md QWEN.md CONVENTIONS.md .goosehints
    .cursorrules .windsurfrules .clinerules copilot-instructions.md""".split()
)

_PROTECTED = {STATE_DIRECTORY, ".git"}
# Code points that show nothing: those that Unicode calls default ignorable, which some file systems drop when they
# compare names, and the blank of Braille. A name with some of them is an alias of the name without.
_INVISIBLE = frozenset(
    [
        0x00AD,
        0x034F,
        0x061C,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        0x2800,
        0x3164,
        0xFEFF,
        0xFFA0,
        *range(0x180B, 0x1810),
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x2070),
        *range(0xFE00, 0xFE10),
        *range(0xFFF0, 0xFFF9),
        *range(0x1BCA0, 0x1BCA4),
        *range(0x1D173, 0x1D17B),
        *range(0xE0000, 0xE1000),
    ]
)
_DROPPED = dict.fromkeys(_INVISIBLE)


# The spelling of nearly all paths, checked at once. No name begins with a dot, so none is `.`, `..` or protected.
_ORDINARY = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}/)*[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")


def is_ordinary(text: str) -> bool:
    """Whether a path is spelled as nearly all are: it is `checked_path` then, and none of its names is protected."""
    return len(text) <= MAX_PATH_BYTES and _ORDINARY.fullmatch(text) is not None


def checked_path(text: str) -> str:
    """The path without a trailing slash, or InvalidPath."""
    if is_ordinary(text):
        return text
    if not text:
        raise InvalidPath("the path is empty")
    if "\0" in text:
        raise InvalidPath(f"{printable(text)}: the path contains a NUL byte")
    if text.startswith("/"):
        raise InvalidPath(f"{printable(text)}: absolute paths are not allowed")
    path = text.rstrip("/")
    if _byte_length(path) > MAX_PATH_BYTES:
        raise InvalidPath(f"{printable(path[:60])}…: the path is longer than {MAX_PATH_BYTES} bytes")
    for name in path.split("/"):
        _check_name(name, path)
    return path


def is_protected(path: str) -> bool:
    """True for `.holdfast`, `.git` and everything inside them, also under another spelling."""
    return any(_folded(name) in _PROTECTED for name in path.split("/"))


def folded(path: str) -> str:
    """The path in the spelling a case-insensitive or normalising file system would compare, name by name."""
    return "/".join([_folded(name) for name in path.split("/")])


def person_folded(name: str) -> str:
    """A person's name as it is compared: no spelling, blank or invisible character makes somebody else of it."""
    return " ".join(folded(name).split())


def person_name(text: str) -> str:
    """A person's name without the blanks around it; empty where it shows nothing, since such a name is nobody's."""
    return text.strip() if any(ch != " " and _is_plain(ch) for ch in person_folded(text)) else ""


def parent_of(path: str) -> str:
    """The directory a path is in; the empty string is the workspace itself."""
    return path.rpartition("/")[0]


def ancestors_of(path: str) -> list[str]:
    """All directories above a path inside the workspace, outermost first, without the root."""
    names = path.split("/")[:-1]
    return ["/".join(names[: n + 1]) for n in range(len(names))]


def printable(text: str) -> str:
    """A name as it may be shown to a person who must decide: nothing hidden, nothing that moves the cursor."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(ch if _is_plain(ch) else _escaped(ch) for ch in text)


def _check_name(name: str, path: str) -> None:
    if name in ("", ".", ".."):
        shown = name or "an empty name"
        raise InvalidPath(f"{printable(path)}: {shown} is not allowed in a path")
    if _byte_length(name) > MAX_NAME_BYTES:
        raise InvalidPath(f"{printable(name[:60])}…: the name is longer than {MAX_NAME_BYTES} bytes")
    if _folded(name) in _PROTECTED:
        raise InvalidPath(f"{printable(path)}: {printable(name)} is protected")


def _byte_length(text: str) -> int:
    if text.isascii():
        return len(text)
    try:
        return len(text.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        raise InvalidPath(f"{printable(text)}: the path is not valid text") from None


def _folded(name: str) -> str:
    """The spelling a case-insensitive or normalising file system would compare."""
    if name.isascii():
        return name.lower().rstrip(". ")
    plain = unicodedata.normalize("NFKC", name.translate(_DROPPED)).casefold()
    # Normalising once more: folding the case may have taken a composed letter apart.
    return unicodedata.normalize("NFKC", plain).translate(_DROPPED).rstrip(". ")


def _is_plain(ch: str) -> bool:
    # Not printable: controls, bidi and zero-width characters (C*), and every separator (Z*) but the blank.
    return ch.isprintable() and ord(ch) not in _INVISIBLE


def _escaped(ch: str) -> str:
    code = ord(ch)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
