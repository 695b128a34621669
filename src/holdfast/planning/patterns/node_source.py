"""module_creation_node_module: an ECMAScript module with a test for node's own runner."""

from __future__ import annotations

import json

from holdfast.errors import InvalidInput
from holdfast.model.canonical import Json
from holdfast.model.check import CommandCheck
from holdfast.planning.patterns import schemas
from holdfast.planning.patterns.pattern import Draft, Facts, Inputs, Pattern, Produced
from holdfast.planning.patterns.python_source import joined, refuse_repeats
from holdfast.planning.patterns.schemas import tables_of, text_of

_WITHIN_MS = 120_000
_CHECKS = {
    "text": 'typeof value === "string"',
    "integer": "Number.isSafeInteger(value)",
    "flag": 'typeof value === "boolean"',
}
_SAMPLES: dict[str, tuple[str, str]] = {"text": ('"a"', "1"), "integer": ("1", '"a"'), "flag": ("true", '"a"')}
_WORDS = frozenset(
    """await break case catch class const continue debugger default delete do else enum export extends false finally for
    function if implements import in instanceof interface let new null package private protected public return static
    super switch this throw true try typeof var void while with yield arguments eval description""".split()
)


def _build(inputs: Inputs, facts: Facts) -> Draft:
    name, summary = text_of(inputs, "name"), text_of(inputs, "summary")
    root, tests = text_of(inputs, "root", "src"), text_of(inputs, "tests", "test")
    makers = tables_of(inputs, "records")
    _refuse_words(makers)
    # In a package of type "module" a plain .js is one; everywhere else only the ending says so.
    ending = "js" if _is_module(facts.text("package.json")) else "mjs"
    source, test = joined(root, f"{name}.{ending}"), joined(tests, f"{name}.test.{ending}")
    up = "/".join([".."] * len(tests.split("/"))) if tests else "."
    files = (
        Produced(source, _source(summary, makers)),
        Produced(test, _test(f"{up}/{source}", summary, makers)),
    )
    return Draft(f"Create the Node module {name}", files, (CommandCheck(("node", "--test", test), _WITHIN_MS),))


def _is_module(package: str) -> bool:
    try:
        found: object = json.loads(package) if package else {}
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("type") == "module"


def _refuse_words(makers: list[dict[str, Json]]) -> None:
    refuse_repeats("records", (text_of(maker, "name") for maker in makers))
    for number, maker in enumerate(makers, 1):
        if text_of(maker, "name") in _WORDS:
            raise InvalidInput(f"records[{number}].name: {text_of(maker, 'name')!r} is taken")
        refuse_repeats(f"records[{number}].fields", (text_of(field, "name") for field in tables_of(maker, "fields")))


def _comment(line: str) -> str:
    """A line that cannot end the comment it stands in."""
    return f"/** {line.replace('*/', '* /')} */\n"


def _source(summary: str, makers: list[dict[str, Json]]) -> str:
    parts = [f"{_comment(summary)}export const description = {json.dumps(summary)};\n"]
    parts += [_maker(maker) for maker in makers]
    return "\n".join([*parts, _MADE] if makers else parts)


_MADE = """function made(what, checks, fields) {
  for (const name of Object.keys(fields)) {
    if (!Object.hasOwn(checks, name)) throw new TypeError(`${what} has no field ${name}`);
  }
  for (const [name, fits] of Object.entries(checks)) {
    if (!fits(fields[name])) throw new TypeError(`${what}: ${name} has the wrong type`);
  }
  return Object.freeze({ ...fields });
}
"""


def _maker(maker: dict[str, Json]) -> str:
    name = text_of(maker, "name")
    summary = text_of(maker, "summary", f"Make a frozen {name}; a wrong field is a TypeError.")
    checks = "".join(
        f"    {text_of(field, 'name')}: (value) => {_CHECKS[text_of(field, 'type')]},\n"
        for field in tables_of(maker, "fields")
    )
    body = f'  return made("{name}", {{\n{checks}  }}, fields);\n'
    return f"{_comment(summary)}export function {name}(fields) {{\n{body}}}\n"


def _test(source: str, summary: str, makers: list[dict[str, Json]]) -> str:
    head = (
        'import assert from "node:assert/strict";\nimport test from "node:test";\n\n'
        f"import * as module from {json.dumps(source)};\n\n"
        'test("it says what it is for", () => {\n'
        f"  assert.equal(module.description, {json.dumps(summary)});\n}});\n"
    )
    return "\n".join([head, *(_maker_test(maker) for maker in makers)])


def _maker_test(maker: dict[str, Json]) -> str:
    name = text_of(maker, "name")
    fields = [(text_of(field, "name"), *_SAMPLES[text_of(field, "type")]) for field in tables_of(maker, "fields")]
    good = "{ " + ", ".join(f"{field}: {value}" for field, value, _ in fields) + " }"
    first, _, wrong = fields[0]
    return (
        f'test("{name} makes a frozen record", () => {{\n'
        f"  const made = module.{name}({good});\n"
        f"  assert.deepEqual(made, {good});\n"
        f"  assert.ok(Object.isFrozen(made));\n"
        f"  assert.throws(() => module.{name}({{ ...made, {first}: {wrong} }}), TypeError);\n"
        f"  assert.throws(() => module.{name}({{ ...made, no_such_field: 1 }}), TypeError);\n}});\n"
    )


def _reads(inputs: Inputs, files: frozenset[str]) -> tuple[str, ...]:
    return ("package.json",) if "package.json" in files else ()


_NAME = "^[a-z][A-Za-z0-9]*$"
MODULE = Pattern(
    "module_creation_node_module",
    "A Node module",
    "An ECMAScript module with a description, optional makers of frozen records, and a test for `node --test`.",
    schemas.inputs(
        ("name", "summary"),
        name={
            "type": "string",
            "description": "a file name such as date-range, in lower case",
            "pattern": "^[a-z][a-z0-9-]*$",
            "maxLength": 60,
        },
        summary=schemas.text("one line about the module"),
        root=schemas.directory("the folder of the source", default="src"),
        tests=schemas.directory("the folder of the tests", default="test"),
        records=schemas.items(
            "functions that make frozen records",
            schemas.table(
                ("name", "fields"),
                name={
                    "type": "string",
                    "description": "a function name such as dateRange",
                    "pattern": _NAME,
                    "maxLength": 60,
                },
                summary=schemas.text("one line about it"),
                fields=schemas.items(
                    "its fields",
                    schemas.table(
                        ("name", "type"),
                        name={
                            "type": "string",
                            "description": "a field name such as firstDay",
                            "pattern": _NAME,
                            "maxLength": 60,
                        },
                        type=schemas.choice("the kind of value", *_CHECKS),
                    ),
                    least=1,
                ),
            ),
        ),
    ),
    {
        "name": "date-range",
        "summary": "Ranges of days.",
        "records": [
            {
                "name": "dateRange",
                "fields": [{"name": "first", "type": "text"}, {"name": "days", "type": "integer"}],
            }
        ],
    },
    _build,
    _reads,
)
