"""Single fields of a change file: each function takes a value as read and gives it back typed, or raises Fault.

`where` is the key the value stood under, so that the message and the line name it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TypeVar

from holdfast.errors import InvalidPath
from holdfast.intake.values import Fault, Key, Surprise, Value, quoted, word_for
from holdfast.model.path import checked_path

MAX_TARGET_BYTES = 4095
MAX_DURATION_MS = 24 * 60 * 60 * 1000

_MODE = re.compile(r"0?[0-7]{3}")
_SPECIAL_MODE = re.compile(r"[1-7][0-7]{3}")
_DURATION = re.compile(r"([0-9]{1,9})(ms|s|m|h)")
_PERCENTAGE = re.compile(r"([0-9]{1,3})(?:\.([0-9]{1,2}))? ?%")
_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}
# Everything a terminal would obey instead of showing, but for line feed and tab; and halves of surrogate pairs.
_UNSPEAKABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_Word = TypeVar("_Word", bound=str)


def mapping_of(value: Value, what: str, *where: Key) -> dict[str, Value]:
    if isinstance(value, dict):
        return value
    raise Fault(f"{what} must be a mapping, not {word_for(value)}", *where)


def list_of(value: Value, what: str, *where: Key) -> list[Value]:
    if isinstance(value, list):
        return value
    raise Fault(f"{what} must be a list, not {word_for(value)}", *where)


def known_keys(given: Iterable[str], known: frozenset[str], owner: str = "") -> None:
    """Refuse the first key that is not known, with the nearest one that is."""
    for key in given:
        if key not in known:
            place = f" in {owner}" if owner else ""
            raise Fault(f"unknown key {quoted(key)}{place}{suggestion(key, known)}", key)


def required(given: dict[str, Value], key: str, owner: str) -> Value:
    if key not in given:
        raise Fault(f"{owner} needs {quoted(key)}")
    return given[key]


def suggestion(word: str, known: Iterable[str]) -> str:
    """`; did you mean "x"?`, or nothing; difflib is imported only for someone who mistyped."""
    import difflib

    near = difflib.get_close_matches(word[:40].lower(), sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {quoted(near[0])}?" if near else ""


def text_of(value: Value, key: str) -> str:
    """A string as it stands, surrogate escapes included."""
    if isinstance(value, str):
        return value
    hint = ""
    if value is None:
        hint = f'For an empty text write: {key}: ""'
    elif isinstance(value, Surprise):
        hint = f"Quote it: {key}: {quoted(value.text)}"
    elif isinstance(value, (bool, int)):
        hint = f"Quote it: {key}: {quoted(str(value).lower())}"
    raise Fault(f"{key} must be text, not {word_for(value)}", key, hint=hint)


def prose_of(value: Value, key: str) -> str:
    """Text for people: no control characters, nothing that is not a character."""
    text = text_of(value, key)
    bad = _UNSPEAKABLE.search(text)
    if bad:
        raise Fault(f"{key} contains the character U+{ord(bad.group()):04X}, which cannot be shown", key)
    return text


def bytes_of(text: str, key: str) -> bytes:
    """UTF-8, with the escapes U+DC80 to U+DCFF standing for the bytes 80 to FF."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise Fault(f"{key} contains U+{ord(text[error.start]):04X}, which is neither a character nor a byte",
                    key) from None  # fmt: skip


def path_of(value: Value, key: str) -> str:
    """A workspace path, a trailing slash removed."""
    text = value if isinstance(value, str) else text_of(value, key)
    if not text.isascii() and _SURROGATE.search(text):
        # Escapes that together spell UTF-8 would give one file two names; settle on the one the disk would give.
        text = bytes_of(text, key).decode("utf-8", "surrogateescape")
    try:
        return checked_path(text)
    except InvalidPath as error:
        raise Fault(error.message, key, hint=error.hint) from None


def file_path_of(value: Value, key: str, action: str) -> str:
    """A path that must not end in a slash."""
    path = path_of(value, key)
    if isinstance(value, str) and value[-1] == "/":
        raise Fault(f"{quoted(value)}: a trailing slash means a directory; {action} takes a file", key,
                    hint="A directory is made with create.")  # fmt: skip
    return path


def target_of(value: Value, key: str) -> str:
    """The text of a symbolic link; where it points is judged later, by policy."""
    text = text_of(value, key)
    raw = bytes_of(text, key)
    if not raw or b"\0" in raw:
        raise Fault(f"{key} must not be {'empty' if not raw else 'a text with a NUL byte'}", key)
    if len(raw) > MAX_TARGET_BYTES:
        raise Fault(f"{key} is longer than {MAX_TARGET_BYTES} bytes", key)
    return raw.decode("utf-8", "surrogateescape")


def mode_of(value: Value) -> int:
    """Permission bits from three or four octal digits in quotes."""
    if isinstance(value, str):
        return _permission_bits(value)
    if isinstance(value, (int, Surprise)):
        hint = 'Quote it: mode: "0644". Without quotes YAML reads 0644 as the number 420.'
        raise Fault("mode must be text in quotes, not a number", "mode", hint=hint)
    raise Fault(f"mode must be text, not {word_for(value)}", "mode", hint='For example: "0644"')


@lru_cache(maxsize=64)
def _permission_bits(text: str) -> int:
    if _MODE.fullmatch(text):
        return int(text, 8)
    if _SPECIAL_MODE.fullmatch(text):
        raise Fault(f"mode {quoted(text)} sets a set-user-id, set-group-id or sticky bit; Holdfast sets none",
                    "mode", hint='Give permission bits only, such as "0755".')  # fmt: skip
    raise Fault(f"mode {quoted(text)} is not three or four octal digits", "mode", hint='For example: "0644"')


def truth_of(value: Value, key: str) -> bool:
    if isinstance(value, bool):
        return value
    found = quoted(value.text) if isinstance(value, Surprise) else word_for(value)
    raise Fault(f"{key} must be true or false, not {found}", key, hint=f"Write: {key}: true")


def whole_number_of(value: Value, key: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Fault(f"{key} must be a whole number, not {word_for(value)}", key)
    if not low <= value <= high:
        raise Fault(f"{key} must be between {low} and {high}, not {value}", key)
    return value


def word_of(value: Value, key: str, words: tuple[_Word, ...]) -> _Word:
    """One of a few words."""
    text = text_of(value, key)
    for word in words:
        if text == word:
            return word
    raise Fault(f"{key} must be one of {', '.join(words)}; not {quoted(text)}{suggestion(text, words)}", key)


def argv_of(value: Value, key: str) -> tuple[str, ...]:
    """A command and its arguments."""
    if isinstance(value, str):
        raise Fault(f"{key} must be a list of words, not text", key,
                    hint='Give a list, no shell is used: ["make", "test"]')  # fmt: skip
    words = list_of(value, key, key)
    if not words:
        raise Fault(f"{key} must name a command", key)
    return tuple(_argument(word, key, index) for index, word in enumerate(words))


def duration_of(value: Value, key: str) -> int:
    """Milliseconds from a number with a unit."""
    if isinstance(value, (int, Surprise)) and not isinstance(value, bool):
        raise Fault(f"{key} needs a unit", key, hint=f"For example: {key}: 10s (ms, s, m or h)")
    found = _DURATION.fullmatch(text_of(value, key))
    if not found:
        raise Fault(f"{key}: {quoted(str(value))} is not a duration", key, hint="For example: 500ms, 10s, 5m, 2h")
    milliseconds = int(found[1]) * _MILLISECONDS[found[2]]
    if not 1 <= milliseconds <= MAX_DURATION_MS:
        raise Fault(f"{key} must be between 1ms and 24h, not {found[0]}", key)
    return milliseconds


def percentage_of(value: Value, key: str) -> int:
    """Hundredths of a percent from `80` or `"82.5%"`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return whole_number_of(value, key, 0, 100) * 100
    hint = f'For example: {key}: 80, or {key}: "82.5%"'
    if isinstance(value, Surprise):
        raise Fault(f"{key} must be a whole number or text in quotes, not {word_for(value)}", key, hint=hint)
    found = _PERCENTAGE.fullmatch(text_of(value, key))
    hundredths = int(found[1]) * 100 + int((found[2] or "").ljust(2, "0")) if found else -1
    if not 0 <= hundredths <= 10_000:
        raise Fault(f"{key}: {quoted(str(value))} is not between 0 and 100 %", key, hint=hint)
    return hundredths


def _argument(value: Value, key: str, index: int) -> str:
    if not isinstance(value, str):
        raise Fault(f"an argument must be text, not {word_for(value)}", key, index, hint="Quote it.")
    try:
        raw = bytes_of(value, "an argument")
    except Fault as fault:
        raise Fault(fault.message, key, index) from None
    if not raw or b"\0" in raw:
        raise Fault(f"an argument must not {'be empty' if not raw else 'contain a NUL byte'}", key, index)
    return raw.decode("utf-8", "surrogateescape")
