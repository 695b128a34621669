"""Python as patterns spell it: names, docstrings, records and the command that runs a test with nothing installed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.errors import Blocked, InvalidInput
from holdfast.model.canonical import Json
from holdfast.model.check import CommandCheck
from holdfast.planning.patterns import schemas
from holdfast.planning.patterns.pattern import Facts, Inputs, Schema
from holdfast.planning.patterns.schemas import tables_of, text_of

_KEYWORDS = frozenset(
    """False None True and as assert async await break class continue def del elif else except finally for from global
    if import in is lambda nonlocal not or pass raise return try while with yield match case type""".split()
)
_TYPES = {"text": "str", "integer": "int", "flag": "bool", "texts": "tuple[str, ...]"}
# Two values of each kind that differ, as source.
_SAMPLES = {"text": '"a"', "integer": "1", "flag": "True", "texts": '("a", "b")'}
_WITHIN_MS = 120_000

ROOT = schemas.directory("the folder that holds the source, such as src; by default src where there is one")
TESTS = schemas.directory("the folder of the tests", default="tests")
RECORDS = schemas.items(
    "frozen records with typed fields",
    schemas.table(
        ("name", "fields"),
        name=schemas.class_name("a class name such as Invoice"),
        summary=schemas.text("one line about it"),
        fields=schemas.items(
            "its fields",
            schemas.table(
                ("name", "type"),
                name=schemas.name("a Python name in lower case"),
                type=schemas.choice("the kind of value", *_TYPES),
            ),
            least=1,
        ),
    ),
)


class Record(NamedTuple):
    name: str
    summary: str
    # (name, kind)
    fields: tuple[tuple[str, str], ...]


def root_of(inputs: Inputs, facts: Facts) -> str:
    """Where source goes: as told, else `src` where Python stands there already, else the workspace itself."""
    if "root" in inputs:
        return text_of(inputs, "root")
    return "src" if any(path.startswith("src/") and path.endswith(".py") for path in facts.files) else ""


def joined(*parts: str) -> str:
    """A path of those parts that are not empty."""
    return "/".join(part for part in parts if part)


def refuse_keywords(field: str, name: str) -> str:
    """The dotted name; InvalidInput where one part of it means something to Python."""
    for part in name.split("."):
        if part in _KEYWORDS:
            raise InvalidInput(f"{field}: {part!r} is a word of Python itself and cannot be a name")
    return name


def refuse_repeats(field: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidInput(f"{field}: {name!r} appears twice")
        seen.add(name)


def require_package(root: str, dotted: str, facts: Facts) -> None:
    """Blocked unless every package above a module is there."""
    parents = dotted.split(".")[:-1]
    for number in range(len(parents)):
        path = joined(root, *parents[: number + 1], "__init__.py")
        if path not in facts.files:
            raise Blocked(
                f"there is no package {'.'.join(parents[: number + 1])}: {path} is missing",
                hint="Create it first with the pattern module_creation_python_package.",
            )


def records_in(inputs: Inputs, key: str = "records") -> tuple[Record, ...]:
    found = tuple(_record(f"{key}[{number}]", row) for number, row in enumerate(tables_of(inputs, key), 1))
    refuse_repeats(key, (record.name for record in found))
    return found


def _record(where: str, row: dict[str, Json]) -> Record:
    refuse_keywords(f"{where}.name", text_of(row, "name"))
    fields = tuple((text_of(field, "name"), text_of(field, "type")) for field in tables_of(row, "fields"))
    refuse_repeats(f"{where}.fields", (name for name, _ in fields))
    for name, _ in fields:
        refuse_keywords(f"{where}.fields", name)
    return Record(text_of(row, "name"), text_of(row, "summary", f"One {text_of(row, 'name')}."), fields)


# ── source ──


def docstring(line: str, indent: str = "") -> str:
    """A line of text as a docstring: nothing in it can end the docstring or escape from it."""
    safe = line.replace("\\", "\\\\").replace('"', '\\"')
    return f'{indent}"""{safe}"""\n'


def literal(value: Json) -> str:
    """A value as Python source. JSON's strings are Python's, as far as they hold no half characters."""
    if isinstance(value, list):
        inner = ", ".join(literal(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value) if value is None or isinstance(value, (bool, int)) else json.dumps(value, ensure_ascii=False)


def listed(names: Sequence[str]) -> str:
    return "[" + ", ".join(json.dumps(name) for name in names) + "]"


def module_source(summary: str, records: Sequence[Record]) -> str:
    """A module with a docstring, what it exports, and its records."""
    head = docstring(summary) + "\nfrom __future__ import annotations\n"
    if not records:
        return head + "\n__all__: list[str] = []\n"
    classes = "".join(f"\n\n{record_source(record)}" for record in records)
    exported = listed(sorted(record.name for record in records))
    return f"{head}\nfrom dataclasses import dataclass\n\n__all__ = {exported}\n{classes}"


def record_source(record: Record) -> str:
    fields = "".join(f"    {name}: {_TYPES[kind]}\n" for name, kind in record.fields)
    return f"@dataclass(frozen=True, slots=True)\nclass {record.name}:\n{docstring(record.summary, '    ')}\n{fields}"


def module_test(dotted: str, summary: str, records: Sequence[Record]) -> str:
    """A test of a module with these records."""
    exported = sorted(record.name for record in records)
    cases = [_record_test(record) for record in records]
    return test_source(dotted, summary, exported, ["dataclasses"] if records else [], cases)


def test_source(
    dotted: str, summary: str, exported: Sequence[str], imported: Sequence[str], cases: Sequence[str]
) -> str:
    """A test file that needs the standard library alone; `cases` are further methods of its one class."""
    imports = "".join(f"import {name}\n" for name in sorted({*imported, "unittest"}))
    return (
        f"{docstring(f'Tests of {dotted}.')}\n"
        f"from __future__ import annotations\n\n{imports}\n"
        f"import {dotted} as module\n\n\n"
        f"class {camel(dotted)}Test(unittest.TestCase):\n"
        "    def test_it_says_what_it_is_for(self) -> None:\n"
        f"        self.assertEqual(module.__doc__, {literal(summary)})\n"
        f"        self.assertEqual(sorted(module.__all__), {listed(sorted(exported))})\n"
        f"{''.join(cases)}"
        '\n\nif __name__ == "__main__":\n    unittest.main()\n'
    )


def _record_test(record: Record) -> str:
    arguments = ", ".join(f"{name}={_SAMPLES[kind]}" for name, kind in record.fields)
    first, kind = record.fields[0]
    return (
        f"\n    def test_{snake(record.name)}_is_a_frozen_record(self) -> None:\n"
        f"        made = module.{record.name}({arguments})\n"
        f"        self.assertEqual(made, module.{record.name}({arguments}))\n"
        f"        self.assertEqual(made.{first}, {_SAMPLES[kind]})\n"
        f"        with self.assertRaises(dataclasses.FrozenInstanceError):\n"
        f"            made.{first} = {_SAMPLES[kind]}  # type: ignore[misc]\n"
    )


def camel(dotted: str) -> str:
    return "".join(part.capitalize() for part in dotted.replace(".", "_").split("_"))


def snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")


def test_path(tests: str, dotted: str) -> str:
    return joined(tests, f"test_{dotted.replace('.', '_')}.py")


def run_test(root: str, path: str) -> CommandCheck:
    """Run one test file with the standard library; the source folder comes first on the path of imports."""
    name = path.removesuffix(".py").replace("/", ".")
    program = f"import sys, unittest; sys.path[:0] = [{root or '.'!r}]; unittest.main({name!r}, argv=['unittest'])"
    return CommandCheck(("python3", "-B", "-c", program), _WITHIN_MS)


def package_schema(required: tuple[str, ...], **properties: Json) -> Schema:
    """Inputs that every Python pattern has, and its own."""
    return schemas.inputs(required, **properties, root=ROOT, tests=TESTS)
