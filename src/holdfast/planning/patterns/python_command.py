"""module_creation_cli_command: a command-line program with typed options, and a test that passes."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.model.canonical import Json
from holdfast.planning.patterns import schemas
from holdfast.planning.patterns.pattern import Draft, Facts, Inputs, Pattern, Produced
from holdfast.planning.patterns.python_source import (
    docstring,
    joined,
    literal,
    package_schema,
    refuse_keywords,
    refuse_repeats,
    require_package,
    root_of,
    run_test,
    test_path,
    test_source,
)
from holdfast.planning.patterns.schemas import tables_of, text_of

_TYPES = {"text": "str", "integer": "int", "flag": "bool"}
_KINDS = {"text": str, "integer": int, "flag": bool}
_OURS = frozenset({"help", "no_such_option"})


class _Option(NamedTuple):
    name: str
    kind: str
    help: str
    default: Json

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")


def _option(where: str, row: dict[str, Json]) -> _Option:
    kind, name = text_of(row, "type"), refuse_keywords(f"{where}.name", text_of(row, "name"))
    if name in _OURS:
        raise InvalidInput(f"{where}.name: {name!r} is taken by the program itself")
    if kind == "flag":
        if row.get("default", False) is not False:
            raise InvalidInput(f"{where}.default: a flag is off unless it is given")
        return _Option(name, kind, text_of(row, "help"), False)
    default = row.get("default", "" if kind == "text" else 0)
    if type(default) is not _KINDS[kind]:
        raise InvalidInput(f"{where}.default: must be {'text' if kind == 'text' else 'a whole number'}")
    return _Option(name, kind, text_of(row, "help"), default)


def _build(inputs: Inputs, facts: Facts) -> Draft:
    name, summary, root = text_of(inputs, "name"), text_of(inputs, "summary"), root_of(inputs, facts)
    refuse_keywords("name", name)
    require_package(root, name, facts)
    options = [_option(f"options[{number}]", row) for number, row in enumerate(tables_of(inputs, "options"), 1)]
    refuse_repeats("options", (option.name for option in options))
    home = joined(root, name.replace(".", "/"))
    test = test_path(text_of(inputs, "tests", "tests"), name)
    files = (
        Produced(
            f"{home}/__init__.py",
            f"{docstring(summary)}\nfrom {name}.cli import Options, main\n\n__all__ = {_EXPORTED}\n",
        ),
        Produced(f"{home}/__main__.py", _MAIN.format(doc=docstring(f"python -m {name}"), name=name)),
        Produced(f"{home}/cli.py", _source(name, summary, options)),
        Produced(test, test_source(name, summary, ["Options", "main"], _IMPORTED, [_test(options)])),
    )
    return Draft(f"Create the command {name}", files, (run_test(root, test),))


_EXPORTED = '["Options", "main"]'
_IMPORTED = ("contextlib", "io", "json")
_MAIN = """{doc}
from {name}.cli import main

raise SystemExit(main())
"""
_CLI = """{doc}
from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Options:
    \"\"\"What was asked for on the command line.\"\"\"

{fields}

def parsed(argv: Sequence[str] | None = None) -> Options:
    parser = argparse.ArgumentParser(prog={prog}, description={summary})
{arguments}    return Options(**vars(parser.parse_args(argv)))


def main(argv: Sequence[str] | None = None) -> int:
    \"\"\"Print the options as JSON; the exit status is returned.\"\"\"
    print(json.dumps(dataclasses.asdict(parsed(argv)), ensure_ascii=False))
    return 0
"""


def _source(name: str, summary: str, options: list[_Option]) -> str:
    fields = "".join(f"    {each.name}: {_TYPES[each.kind]} = {literal(each.default)}\n" for each in options)
    return _CLI.format(
        doc=docstring(f"The command line of {name}."),
        fields=fields or "    pass\n",
        prog=literal(name.rpartition(".")[2]),
        # argparse reads a percent sign in a description as the beginning of a name.
        summary=literal(summary.replace("%", "%%")),
        arguments="".join(_argument(each) for each in options),
    )


def _argument(option: _Option) -> str:
    words = literal(option.help.replace("%", "%%"))
    if option.kind == "flag":
        return f'    parser.add_argument("{option.flag}", action="store_true", help={words})\n'
    kind, default = _TYPES[option.kind], literal(option.default)
    return f'    parser.add_argument("{option.flag}", type={kind}, default={default}, help={words})\n'


def _test(options: list[_Option]) -> str:
    given = {each.name: _other(each) for each in options}
    words = [word for each in options for word in _given(each)]
    shown = "[" + ", ".join(literal(word) for word in words) + "]"
    expected = "{" + ", ".join(f"{literal(name)}: {literal(value)}" for name, value in given.items()) + "}"
    defaults = "{" + ", ".join(f"{literal(each.name)}: {literal(each.default)}" for each in options) + "}"
    return f"""
    def _printed(self, *argv: str) -> object:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(module.main(argv), 0)
        return json.loads(out.getvalue())

    def test_without_arguments_every_option_has_its_default(self) -> None:
        self.assertEqual(self._printed(), {defaults})

    def test_options_are_read(self) -> None:
        self.assertEqual(self._printed(*{shown}), {expected})

    def test_an_unknown_option_is_refused(self) -> None:
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as caught:
            module.main(["--no-such-option"])
        self.assertEqual(caught.exception.code, 2)
"""


def _other(option: _Option) -> Json:
    """A value that is not the default."""
    if option.kind == "flag":
        return True
    return f"{option.default}x" if option.kind == "text" else int(str(option.default)) + 1


def _given(option: _Option) -> list[str]:
    return [option.flag] if option.kind == "flag" else [f"{option.flag}={_other(option)}"]


COMMAND = Pattern(
    "module_creation_cli_command",
    "A command-line program",
    "A Python package with a command line: typed options, --help, python -m, and a test that passes.",
    package_schema(
        ("name", "summary"),
        name=schemas.dotted("a Python package such as greet, in lower case"),
        summary=schemas.text("one line about the program"),
        options=schemas.items(
            "its options",
            schemas.table(
                ("name", "type", "help"),
                name=schemas.name("a Python name in lower case; it becomes --name"),
                type=schemas.choice("the kind of value", *_TYPES),
                help=schemas.text("one line for --help"),
                default={"type": ["string", "integer", "boolean"], "description": "the value when it is not given"},
            ),
        ),
    ),
    {
        "name": "greet",
        "summary": "Greet somebody.",
        "options": [
            {"name": "who", "type": "text", "help": "whom to greet", "default": "world"},
            {"name": "times", "type": "integer", "help": "how often", "default": 1},
            {"name": "loud", "type": "flag", "help": "in capital letters"},
        ],
    },
    _build,
)
