"""The smallest value that a JSON schema lets pass; for what a program demands and no script cares about."""

from __future__ import annotations

from collections.abc import Mapping

WORDS = "Scripted work"


def example(schema: Mapping[str, object]) -> object:
    """The first of several choices; only required properties; words where words are wanted."""
    if "const" in schema:
        return schema["const"]
    for name in ("enum", "examples"):
        if isinstance(choices := schema.get(name), list) and choices:
            return choices[0]
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(choices := schema.get(name), list) and choices and isinstance(choices[0], dict):
            return example(choices[0])
    return _of_type(schema)


def _of_type(schema: Mapping[str, object]) -> object:
    kind = schema.get("type")
    # Gemini writes its types in capitals.
    kind = str(kind[0] if isinstance(kind, list) and kind else kind).lower()
    if kind == "object" or "properties" in schema:
        return _object(schema)
    simple: dict[str, object] = {"integer": 1, "number": 1, "boolean": False, "array": [], "null": None}
    return simple.get(kind, WORDS)


def _object(schema: Mapping[str, object]) -> dict[str, object]:
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return {}
    names = required if isinstance(required, list) else list(properties)
    return {str(name): example(properties.get(name) or {}) for name in names}
