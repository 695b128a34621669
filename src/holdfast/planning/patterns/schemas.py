"""The pieces that input schemas are made of, and typed ways to take validated inputs apart.

A schema's `description` is what a person reads when a value has the wrong form, so it says the form.
Patterns of texts stand between ^ and $ and are applied to the whole text: a line end at the end is no match.
"""

from __future__ import annotations

from holdfast.model.canonical import Json
from holdfast.planning.patterns.pattern import Inputs, Schema

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_NAME = "[a-z][a-z0-9_]*"
# A line that may stand in a comment, a docstring or a string: no control characters, no other line ends, no halves.
_ODD = "\\u0000-\\u001f\\u007f-\\u009f\\u2028\\u2029\\ud800-\\udfff"
LINE = f"^[^{_ODD}]*$"
# The same, and no blank at either end.
_SENTENCE = f"^[^ {_ODD}]([^{_ODD}]*[^ {_ODD}])?$"


def text(description: str, *, most: int = 200, **more: Json) -> Schema:
    """One line without a blank at either end."""
    return {
        "type": "string",
        "description": description,
        "minLength": 1,
        "maxLength": most,
        "pattern": _SENTENCE,
        **more,
    }


def name(description: str) -> Schema:
    return _spelled(description, f"^{_NAME}$", 60)


def dotted(description: str) -> Schema:
    return _spelled(description, f"^{_NAME}(\\.{_NAME})*$", 120)


def class_name(description: str) -> Schema:
    return _spelled(description, "^[A-Z][A-Za-z0-9]*$", 60)


def directory(description: str, **more: Json) -> Schema:
    """A path of plain names without a slash at its end; the empty text is the workspace itself."""
    return {**_spelled(description, "^([A-Za-z0-9_][A-Za-z0-9_-]*(/[A-Za-z0-9_][A-Za-z0-9_-]*)*)?$", 200), **more}


def path(description: str, **more: Json) -> Schema:
    return {**_spelled(description, "^[^\\u0000-\\u001f\\u007f\\ud800-\\udfff]+$", 400), **more}


def choice(description: str, *words: str, **more: Json) -> Schema:
    return {"type": "string", "description": description, "enum": list(words), **more}


def items(description: str, item: Schema, *, least: int = 0, most: int = 50) -> Schema:
    return {"type": "array", "description": description, "items": item, "minItems": least, "maxItems": most}


def table(required: tuple[str, ...], **properties: Json) -> Schema:
    """An object in which nothing else may stand."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def inputs(required: tuple[str, ...], **properties: Json) -> Schema:
    return {"$schema": DRAFT, **table(required, **properties)}


def _spelled(description: str, pattern: str, most: int) -> Schema:
    return {"type": "string", "description": description, "pattern": pattern, "maxLength": most}


# ── validated inputs, taken apart ──


def text_of(values: Inputs, key: str, default: str = "") -> str:
    value = values.get(key, default)
    assert isinstance(value, str), f"{key} was validated as text"
    return value


def tables_of(values: Inputs, key: str) -> list[dict[str, Json]]:
    value = values.get(key, [])
    assert isinstance(value, list), f"{key} was validated as a list"
    rows = [item for item in value if isinstance(item, dict)]
    assert len(rows) == len(value), f"{key} was validated as a list of tables"
    return rows


def texts_of(values: Inputs, key: str) -> list[str]:
    value = values.get(key, [])
    assert isinstance(value, list), f"{key} was validated as a list"
    rows = [item for item in value if isinstance(item, str)]
    assert len(rows) == len(value), f"{key} was validated as a list of texts"
    return rows
