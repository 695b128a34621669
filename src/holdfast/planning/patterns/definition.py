"""Patterns that users define: decoded TOML or YAML becomes a Pattern, or is refused with the place.

    id = "service_stub"
    description = "A service with its unit file"
    verify = ["run the tests"]                    # optional: checks in plain words
    [inputs.properties.name]                      # JSON schema, draft 2020-12; flat: texts, whole numbers, truth values
    type = "string"
    [inputs]
    required = ["name"]
    [[files]]
    path = "services/${name}.service"
    content = "[Unit]\\nDescription=${name}\\n"

Invariants
  D1  Unknown keys are refused, in the file and in the schema: a rule with a typing error is not a missing rule.
  D2  A template names only inputs that the schema has; that is checked when the pattern is read.
  D3  A pattern from a repository brings no regular expression: one can be written that never ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.model.canonical import Json
from holdfast.model.path import printable
from holdfast.model.tables import Table
from holdfast.planning.patterns.pattern import Draft, Facts, Inputs, Origin, Pattern, Produced, Schema
from holdfast.planning.patterns.schemas import DRAFT
from holdfast.planning.patterns.template import filled, names_in

VERSION = 1
MOST_FILES = 200
MOST_INPUTS = 100
_ID = re.compile(r"[a-z][a-z0-9_]{2,63}")
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")
_MODE = re.compile(r"0?[0-7]{3}")
_TYPES = ("string", "integer", "boolean")
_BY_TYPE: dict[str, tuple[str, ...]] = {
    "string": ("minLength", "maxLength", "pattern", "enum"),
    "integer": ("minimum", "maximum"),
    "boolean": (),
}


class _File(NamedTuple):
    path: str
    content: str
    mode: int | None


def pattern_from(values: Mapping[str, object], file: str, origin: Origin) -> Pattern:
    """The pattern of one decoded file, or InvalidInput with file, table and key."""
    top = Table(values, file)
    if (version := top.integer("version")) not in (None, VERSION):
        top.refuse("version", f"is {version}; this Holdfast reads {VERSION}")
    id = _required(top, "id")
    if not _ID.fullmatch(id):
        top.refuse("id", "must be 3 to 64 lower-case letters, digits and underscores, and begin with a letter")
    description = _required(top, "description")
    title, intent = top.text("title") or description, top.text("intent") or f"Apply the pattern {id}"
    schema = _schema(top, origin)
    files = tuple(_file(table) for table in _some_files(top))
    words = top.texts("verify") or ()
    example = _example(top, schema)
    top.close()
    known = frozenset(_properties(schema))
    for number, each in enumerate(files, 1):
        _require_known(top, f"files.{number}.path", each.path, known)
        _require_known(top, f"files.{number}.content", each.content, known)
    _require_known(top, "intent", intent, known)

    def build(inputs: Inputs, facts: Facts) -> Draft:
        produced = tuple(
            Produced(filled(each.path, inputs, f"{id}: a path"), filled(each.content, inputs, id), each.mode)
            for each in files
        )
        return Draft(filled(intent, inputs, id), produced, words=words)

    return Pattern(id, title, description, schema, example, build, origin=origin)


def _required(table: Table, key: str) -> str:
    text = table.text(key)
    if not text:
        table.refuse(key, "is missing" if text is None else "is empty")
    return text


def _require_known(top: Table, key: str, template: str, known: frozenset[str]) -> None:
    unknown = sorted(names_in(template, f"{printable(top.file)}: {key}") - known)
    if unknown:
        top.refuse(key, f"uses ${{{unknown[0]}}}, and there is no such input")


def _some_files(top: Table) -> tuple[Table, ...]:
    tables = top.tables("files")
    if not 0 < len(tables) <= MOST_FILES:
        top.refuse("files", f"must be 1 to {MOST_FILES} tables with path and content")
    return tables


def _file(table: Table) -> _File:
    path, content, mode = _required(table, "path"), table.text("content"), table.text("mode")
    if content is None:
        table.refuse("content", "is missing")
    if mode is not None and not _MODE.fullmatch(mode):
        table.refuse("mode", 'must be three octal digits such as "755"')
    table.close()
    return _File(path, content, None if mode is None else int(mode, 8))


def _example(top: Table, schema: Schema) -> Inputs:
    table = top.table("example")
    if table is None:
        return {}
    found: dict[str, Json] = {}
    for key in table.keys:
        if key not in _properties(schema):
            table.refuse(key, "is not an input")
        found[key] = _scalar(table, key)
    return found


# ── the schema of the inputs ──


def _schema(top: Table, origin: Origin) -> Schema:
    """Read key by key (D1): what a schema may not say here is refused, never ignored."""
    table = top.table("inputs")
    if table is None:
        return {"$schema": DRAFT, "type": "object", "properties": {}, "required": [], "additionalProperties": False}
    if table.text("$schema") not in (None, DRAFT):
        table.refuse("$schema", f"must be {DRAFT}")
    if table.text("type") not in (None, "object"):
        table.refuse("type", "must be object")
    if table.flag("additionalProperties"):
        table.refuse("additionalProperties", "must be false: an unknown input is an error")
    named = table.table("properties")
    properties: dict[str, Json] = {}
    for name in named.keys if named is not None else ():
        assert named is not None
        if not _NAME.fullmatch(name):
            named.refuse(name, "must be lower-case letters, digits and underscores, and begin with a letter")
        properties[name] = _property(named, name, origin)
    if len(properties) > MOST_INPUTS:
        table.refuse("properties", f"are more than {MOST_INPUTS}")
    required = table.texts("required") or ()
    for name in required:
        if name not in properties:
            table.refuse("required", f"names {name!r}, which is not among the properties")
    table.close()
    return {
        "$schema": DRAFT,
        "type": "object",
        "properties": properties,
        "required": list(dict.fromkeys(required)),
        "additionalProperties": False,
    }


def _property(named: Table, name: str, origin: Origin) -> Json:
    table = named.table(name)
    assert table is not None
    kind = table.choice("type", _TYPES)
    if kind is None:
        table.refuse("type", f"is missing; it is one of {', '.join(_TYPES)}")
    rules: dict[str, Json] = {"type": kind}
    for key in ("title", "description"):
        if (text := table.text(key)) is not None:
            rules[key] = text
    for key in _BY_TYPE[kind]:
        if (rule := _rule(table, key, origin)) is not None:
            rules[key] = rule
    if "default" in table:
        rules["default"] = _scalar(table, "default")
    table.close()
    return rules


def _rule(table: Table, key: str, origin: Origin) -> Json:
    """What the schema says under this key; None for nothing."""
    if key == "enum":
        words = table.texts("enum")
        return None if words is None else list(words)
    if key == "pattern":
        return _regular_expression(table, origin)
    return table.integer(key, least=0 if key.endswith("Length") else -(2**62))


def _regular_expression(table: Table, origin: Origin) -> Json:
    text = table.text("pattern")
    if text is None:
        return None
    if origin == "project":
        table.refuse("pattern", "is not for a repository to say: it may never end", hint="Use enum or maxLength.")
    if not (text.startswith("^") and text.endswith("$")):
        table.refuse("pattern", "must stand between ^ and $")
    try:
        re.compile(text)
    except re.error as error:
        table.refuse("pattern", f"is no regular expression: {error}")
    return text


def _scalar(table: Table, key: str) -> Json:
    value = table.values[key]
    if isinstance(value, bool):
        return table.flag(key)
    return table.integer(key, least=-(2**62)) if isinstance(value, int) else table.text(key)


def _properties(schema: Schema) -> dict[str, Json]:
    found = schema["properties"]
    assert isinstance(found, dict)
    return found
