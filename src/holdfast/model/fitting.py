"""Whether a value from a wire is what a noun says it is: every field, all the way down.

Named tuples and frozen dataclasses name types that Python does not enforce; what came from elsewhere is held to them.

Invariants
  G1  What is not understood does not fit. A boolean is no number.
  G2  A real image has a digest exactly where there is content, and numbers that a file system has.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from holdfast.model.image import Image

_PLAIN = (str, int, bool, NoneType)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEX = re.compile(r"(?:[0-9a-f]{2})*")
_OWNERS = range(1 << 32)


def fits(value: object, kind: Any) -> bool:
    """Is this value of that type? `kind` is a type as annotations spell it."""
    if kind in _PLAIN:
        return type(value) is kind
    if _is_noun(kind):
        return type(value) is kind and _each_field_fits(value, kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value in arguments and type(value) in map(type, arguments)
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and _tuple_fits(value, arguments)
    if origin is Sequence:
        return isinstance(value, tuple) and all(fits(item, arguments[0]) for item in value)
    return False


def is_real(image: Image) -> bool:
    """Can this stand on a disk (G2)?"""
    if not fits(image, Image):
        return False
    if image.kind == "file":
        content = is_digest(image.digest) and not image.target and image.size >= 0
    else:
        content = not image.digest and not image.size and bool(image.target) == (image.kind == "symlink")
    numbers = 0 <= image.mode <= 0o7777 and image.uid in _OWNERS and image.gid in _OWNERS
    named = all(name and "\0" not in name and _HEX.fullmatch(value) for name, value in image.xattrs)
    return numbers and content and named and "\0" not in image.target


def is_digest(text: str) -> bool:
    """The form of SHA-256 and BLAKE3 alike."""
    return _DIGEST.fullmatch(text) is not None


def _each_field_fits(value: object, kind: Any) -> bool:
    return all(fits(getattr(value, name), hint) for name, hint in _fields(kind))


def _is_noun(kind: Any) -> bool:
    return isinstance(kind, type) and (hasattr(kind, "_fields") or is_dataclass(kind))


def _tuple_fits(value: tuple[object, ...], arguments: tuple[Any, ...]) -> bool:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return all(fits(item, arguments[0]) for item in value)
    return len(value) == len(arguments) and all(map(fits, value, arguments))


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...]:
    """What is derived from the rest, and so is nobody's to say, is left out."""
    hints = get_type_hints(kind)
    made = getattr(kind, "__dataclass_fields__", {})
    return tuple((name, hint) for name, hint in hints.items() if name not in made or made[name].init)
