"""config_setup_001: a configuration file, its JSON schema, a typed loader and a test that passes."""

from __future__ import annotations

import json
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.canonical import Json
from holdfast.planning.patterns import schemas
from holdfast.planning.patterns.configuration_source import Setting, loader_source, loader_test
from holdfast.planning.patterns.pattern import Draft, Facts, Inputs, Pattern, Produced
from holdfast.planning.patterns.python_source import (
    joined,
    package_schema,
    refuse_keywords,
    refuse_repeats,
    root_of,
    run_test,
    test_path,
)
from holdfast.planning.patterns.schemas import tables_of, text_of, texts_of

_KINDS: dict[str, str] = {"text": "string", "integer": "integer", "flag": "boolean", "texts": "array"}
_WORDS = {"text": "text", "integer": "a whole number", "flag": "true or false", "texts": "a list of texts"}


class _Names(NamedTuple):
    """The four files."""

    values: str
    schema: str
    loader: str
    test: str


def _build(inputs: Inputs, facts: Facts) -> Draft:
    name, summary, root = text_of(inputs, "name"), text_of(inputs, "summary"), root_of(inputs, facts)
    refuse_keywords("name", name)
    form = text_of(inputs, "format", "json")
    settings = [_setting(f"settings[{number}]", row) for number, row in enumerate(tables_of(inputs, "settings"), 1)]
    refuse_repeats("settings", (setting.name for setting in settings))
    folder, module = text_of(inputs, "folder", "config"), f"{name}_config"
    names = _Names(
        joined(folder, f"{name}.{form}"),
        joined(folder, f"{name}.schema.json"),
        joined(root, f"{module}.py"),
        test_path(text_of(inputs, "tests", "tests"), module),
    )
    files = (
        Produced(names.values, _values(form, settings)),
        Produced(names.schema, _schema(name, summary, settings)),
        Produced(names.loader, loader_source(form, names.values, summary, settings)),
        Produced(names.test, loader_test(module, form, names.values, names.schema, names.test, settings)),
    )
    return Draft(f"Set up the configuration {name}", files, (run_test(root, names.test),))


# ── one setting ──


def _setting(where: str, row: dict[str, Json]) -> Setting:
    kind = text_of(row, "type")
    setting = Setting(
        refuse_keywords(f"{where}.name", text_of(row, "name")),
        kind,
        text_of(row, "description"),
        row["default"],
        _bound(where, row, "minimum", kind),
        _bound(where, row, "maximum", kind),
        tuple(texts_of(row, "choices")),
    )
    if setting.choices and kind != "text":
        raise InvalidInput(f"{where}.choices: only a setting of the type text has choices")
    _check_default(f"{where}.default", setting)
    return setting


def _bound(where: str, row: dict[str, Json], key: str, kind: str) -> int | None:
    value = row.get(key)
    if value is not None and kind != "integer":
        raise InvalidInput(f"{where}.{key}: only a setting of the type integer has one")
    return value if isinstance(value, int) else None


def _check_default(where: str, setting: Setting) -> None:
    """The default must satisfy the setting's own rules: the generated test loads it."""
    value = setting.default
    fits = {
        "text": isinstance(value, str),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "flag": isinstance(value, bool),
        "texts": isinstance(value, list),
    }
    if not fits[setting.kind]:
        raise InvalidInput(f"{where}: must be {_WORDS[setting.kind]}")
    least, most = setting.minimum, setting.maximum
    if least is not None and most is not None and least > most:
        raise InvalidInput(f"{where.removesuffix('.default')}.minimum: {least} is more than the maximum {most}")
    if isinstance(value, int) and ((least is not None and value < least) or (most is not None and value > most)):
        raise InvalidInput(f"{where}: {value} is outside of what the setting allows")
    if setting.choices and value not in setting.choices:
        raise InvalidInput(f"{where}: must be one of {', '.join(setting.choices)}")


# ── the files ──


def _values(form: str, settings: list[Setting]) -> str:
    if form == "json":
        return _json({setting.name: setting.default for setting in settings})
    lines = (
        f"# {setting.description}\n{setting.name} = {json.dumps(setting.default, ensure_ascii=False)}\n"
        for setting in settings
    )
    return "\n".join(lines)


def _schema(name: str, summary: str, settings: list[Setting]) -> str:
    return _json(
        {
            "$schema": schemas.DRAFT,
            "title": name,
            "description": summary,
            "type": "object",
            "properties": {setting.name: _property(setting) for setting in settings},
            "additionalProperties": False,
        }
    )


def _property(setting: Setting) -> Json:
    rules: dict[str, Json] = {"type": _KINDS[setting.kind], "description": setting.description}
    if setting.kind == "texts":
        rules["items"] = {"type": "string"}
    if setting.minimum is not None:
        rules["minimum"] = setting.minimum
    if setting.maximum is not None:
        rules["maximum"] = setting.maximum
    if setting.choices:
        rules["enum"] = list(setting.choices)
    return {**rules, "default": setting.default}


def _json(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


_LINE_ITEM = schemas.text("one line of text", most=500)
SETUP = Pattern(
    "config_setup_001",
    "A configuration file",
    "A configuration file with its JSON schema, a typed Python loader that names the wrong setting, and a test.",
    package_schema(
        ("name", "summary", "settings"),
        name=schemas.name("a name such as server, in lower case"),
        summary=schemas.text("one line about what is configured"),
        folder=schemas.directory("the folder of the configuration file", default="config"),
        format=schemas.choice("the format of the file", "json", "toml", default="json"),
        settings=schemas.items(
            "the settings",
            schemas.table(
                ("name", "type", "description", "default"),
                name=schemas.name("a Python name in lower case"),
                type=schemas.choice("the kind of value", *_KINDS),
                description=schemas.text("one line about the setting"),
                default={
                    "type": ["string", "integer", "boolean", "array"],
                    "description": "the value when the file does not say; text is one line",
                    "items": _LINE_ITEM,
                    "pattern": schemas.LINE,
                    "maxLength": 500,
                },
                minimum={"type": "integer", "description": "the least value of an integer"},
                maximum={"type": "integer", "description": "the greatest value of an integer"},
                choices=schemas.items("the only values of a text", _LINE_ITEM, least=1),
            ),
            least=1,
        ),
    ),
    {
        "name": "server",
        "summary": "How the server listens.",
        "settings": [
            {"name": "host", "type": "text", "description": "the address to listen on", "default": "127.0.0.1"},
            {
                "name": "port",
                "type": "integer",
                "description": "the port to listen on",
                "default": 8080,
                "minimum": 1,
                "maximum": 65535,
            },
            {
                "name": "level",
                "type": "text",
                "description": "how much is logged",
                "default": "info",
                "choices": ["debug", "info", "error"],
            },
            {"name": "tls", "type": "flag", "description": "whether connections are encrypted", "default": False},
            {"name": "admins", "type": "texts", "description": "who may change things", "default": ["root"]},
        ],
    },
    _build,
)
