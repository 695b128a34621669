"""The Python of config_setup_001: a loader that refuses what it does not know, and its test."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.model.canonical import Json
from holdfast.planning.patterns.python_source import camel, docstring, literal

_TYPES = {"text": "str", "integer": "int", "flag": "bool", "texts": "tuple[str, ...]"}
_WRONG = {"text": "1", "integer": '"a"', "flag": '"yes"', "texts": '"a"'}


class Setting(NamedTuple):
    name: str
    kind: str
    description: str
    default: Json
    minimum: int | None
    maximum: int | None
    choices: tuple[str, ...]


_LOADER = """{doc}
from __future__ import annotations

import {parser}
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ConfigError", "Settings", "load"]


class ConfigError(ValueError):
    \"\"\"The configuration cannot be used; the message names the file and the setting.\"\"\"


@dataclass(frozen=True, slots=True)
class Settings:
{summary}
{fields}

@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    minimum: int | None = None
    maximum: int | None = None
    choices: tuple[str, ...] = ()


_RULES = {{
{rules}}}
_WORDS = {{"text": "text", "integer": "a whole number", "flag": "true or false", "texts": "a list of texts"}}


def load(path: str | Path = {default}) -> Settings:
    \"\"\"The settings in a file; what it does not name has its default, what is not known is refused.\"\"\"
    try:
        values = {parser}.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{{path}}: {{error}}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{{path}}: must be a table of settings")
    for name in values:
        if name not in _RULES:
            raise ConfigError(f"{{path}}: {{name!r}} is not a setting")
    return Settings(**{{name: _checked(f"{{path}}: {{name}}", _RULES[name], value) for name, value in values.items()}})


def _checked(where: str, rule: _Rule, value: object) -> object:
    if rule.kind == "texts" and isinstance(value, list) and all(isinstance(item, str) for item in value):
        return tuple(value)
    if type(value) is not {{"text": str, "integer": int, "flag": bool}}.get(rule.kind):
        raise ConfigError(f"{{where}} must be {{_WORDS[rule.kind]}}")
    if isinstance(value, int) and rule.minimum is not None and value < rule.minimum:
        raise ConfigError(f"{{where}} must be at least {{rule.minimum}}")
    if isinstance(value, int) and rule.maximum is not None and value > rule.maximum:
        raise ConfigError(f"{{where}} must be at most {{rule.maximum}}")
    if rule.choices and value not in rule.choices:
        raise ConfigError(f"{{where}} must be one of {{', '.join(rule.choices)}}")
    return value
"""


def loader_source(form: str, values: str, summary: str, settings: list[Setting]) -> str:
    return _LOADER.format(
        doc=docstring("Configuration: read once, checked, frozen."),
        parser=_parser(form),
        summary=docstring(summary, "    "),
        fields="".join(_field(setting) for setting in settings),
        rules="".join(f"    {literal(setting.name)}: {_rule(setting)},\n" for setting in settings),
        default=literal(values),
    )


def _parser(form: str) -> str:
    return "json" if form == "json" else "tomllib"


def _field(setting: Setting) -> str:
    return f"    # {setting.description}\n    {setting.name}: {_TYPES[setting.kind]} = {literal(setting.default)}\n"


def _rule(setting: Setting) -> str:
    parts = [literal(setting.kind)]
    parts += [f"minimum={setting.minimum}"] if setting.minimum is not None else []
    parts += [f"maximum={setting.maximum}"] if setting.maximum is not None else []
    parts += [f"choices={literal(list(setting.choices))}"] if setting.choices else []
    return f"_Rule({', '.join(parts)})"


_TEST = """{doc}
from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path

import {module} as module

ROOT = Path(__file__).resolve().parents[{depth}]


class {name}Test(unittest.TestCase):
    def _load(self, text: str) -> module.Settings:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config"
            path.write_text(text, encoding="utf-8")
            return module.load(path)

    def test_the_file_holds_the_defaults(self) -> None:
        self.assertEqual(module.load(ROOT / {values}), module.Settings())

    def test_an_empty_file_means_the_defaults(self) -> None:
        self.assertEqual(self._load({empty}), module.Settings())

    def test_an_unknown_setting_is_refused(self) -> None:
        with self.assertRaisesRegex(module.ConfigError, "no_such_setting"):
            self._load({unknown})

    def test_a_missing_file_is_refused(self) -> None:
        with self.assertRaises(module.ConfigError):
            module.load(ROOT / "no" / "such" / "file")

    def test_wrong_values_are_refused_by_name(self) -> None:
        for name, text in {wrong}:
            with self.subTest(text), self.assertRaisesRegex(module.ConfigError, name):
                self._load(text)

    def test_the_schema_knows_the_same_settings(self) -> None:
        schema = json.loads((ROOT / {schema}).read_text(encoding="utf-8"))
        self.assertEqual(sorted(schema["properties"]), sorted(module._RULES))
        self.assertFalse(schema["additionalProperties"])


if __name__ == "__main__":
    unittest.main()
"""


def loader_test(module: str, form: str, values: str, schema: str, path: str, settings: list[Setting]) -> str:
    wrong = "".join(
        f"            ({literal(setting.name)}, {literal(_line(form, setting.name, value))}),\n"
        for setting in settings
        for value in _wrong_values(setting)
    )
    return _TEST.format(
        doc=docstring(f"Tests of {module}."),
        module=module,
        name=camel(module),
        depth=path.count("/"),
        values=literal(values),
        schema=literal(schema),
        empty=literal("{}" if form == "json" else ""),
        unknown=literal(_line(form, "no_such_setting", "1")),
        wrong=f"[\n{wrong}        ]",
    )


def _wrong_values(setting: Setting) -> list[str]:
    """Values that the setting refuses, as they are written in the file."""
    found = [_WRONG[setting.kind]]
    found += [str(setting.minimum - 1)] if setting.minimum is not None else []
    found += [str(setting.maximum + 1)] if setting.maximum is not None else []
    return found + ([literal("no " + " or ".join(setting.choices))] if setting.choices else [])


def _line(form: str, name: str, value: str) -> str:
    return f'{{"{name}": {value}}}' if form == "json" else f"{name} = {value}\n"
