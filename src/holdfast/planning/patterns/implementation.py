"""implementation_status: for each expected item, which of its files and symbols are there, and which tests name it.

    done       all of it is there, and a test names it
    untested   all of it is there, and no test does
    partial    some of it is there
    missing    nothing of it is there

A symbol is there when its file has a line that reads like its definition (def, class, function, func, fn, struct,
type, const, an assignment at the first column …). A test names an item when one of its symbols stands in the test as a
whole word; for an item without symbols, when the name of one of its files (without the ending) does.
This is evidence that something exists, not that it works: for that there are checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from holdfast.errors import Blocked, InvalidInput
from holdfast.model.canonical import Json
from holdfast.model.path import printable
from holdfast.planning.filekinds import kind_of_file
from holdfast.planning.patterns import schemas
from holdfast.planning.patterns.documents import as_json, document_files, document_reads, table_in_markdown
from holdfast.planning.patterns.pattern import Draft, Facts, Inputs, Pattern
from holdfast.planning.patterns.python_source import refuse_repeats
from holdfast.planning.patterns.schemas import tables_of, text_of, texts_of

Standing = Literal["done", "untested", "partial", "missing"]
_SOURCE = re.compile(r"\.(py|pyi|js|mjs|cjs|jsx|ts|tsx|go|rs|java|kt|rb|php|cs|swift|c|h|cc|cpp|hpp|scala)$")
_WORDS = (
    r"def|class|function\*?|func(?:[ \t]*\([^)\n]*\))?|fn|struct|enum|trait|interface|type|const|let|var|val|record"
    r"|object|module"
)
_MODIFIERS = r"export|default|pub(?:\([^)\n]*\))?|public|private|protected|static|final|abstract|async|unsafe|data"


class Item(NamedTuple):
    """`symbols` are (file, name)."""

    id: str
    title: str
    files: tuple[str, ...]
    symbols: tuple[tuple[str, str], ...]


class Found(NamedTuple):
    item: Item
    standing: Standing
    missing: tuple[str, ...]
    tests: tuple[str, ...]


def _items(inputs: Inputs) -> list[Item]:
    found = []
    for number, row in enumerate(tables_of(inputs, "items"), 1):
        pairs = (symbol.partition("::") for symbol in texts_of(row, "symbols"))
        item = Item(
            text_of(row, "id"),
            text_of(row, "title"),
            tuple(texts_of(row, "files")),
            tuple((path, name) for path, _, name in pairs),
        )
        if not item.files and not item.symbols:
            raise InvalidInput(f"items[{number}]: names neither a file nor a symbol, so nothing could be found")
        found.append(item)
    refuse_repeats("items", (item.id for item in found))
    return found


def _defines(text: str, name: str) -> bool:
    word = re.escape(name)
    return (
        re.search(
            rf"(?m)^[ \t]*(?:(?:{_MODIFIERS})[ \t]+)*(?:{_WORDS})[ \t]+{word}\b|^{word}[ \t]*(?::[^=\n]*)?=", text
        )
        is not None
    )


def found_of(item: Item, facts: Facts, words: dict[str, frozenset[str]]) -> Found:
    """`words` are those of each test file."""
    missing = [path for path in item.files if path not in facts.files]
    missing += [f"{path}::{name}" for path, name in item.symbols if not _defines(_text(path, facts), name)]
    named = {name for _, name in item.symbols} or {_stem(path) for path in item.files}
    # A test file that belongs to the item is part of it and does not count as naming it.
    tests = tuple(path for path, said in words.items() if named & said and path not in item.files)
    there = len(item.files) + len(item.symbols) - len(missing)
    return Found(item, _standing(there, missing, tests), tuple(missing), tests)


def _text(path: str, facts: Facts) -> str:
    if path in facts.files and path not in facts.contents:
        raise Blocked(f"{printable(path)} is too large to be looked through for definitions")
    return facts.text(path)


def _standing(there: int, missing: Iterable[str], tests: tuple[str, ...]) -> Standing:
    if not there:
        return "missing"
    if list(missing):
        return "partial"
    return "done" if tests else "untested"


def _stem(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def _tests(files: Iterable[str]) -> list[str]:
    return sorted(path for path in files if _SOURCE.search(path) and kind_of_file(path) == "test")


def _build(inputs: Inputs, facts: Facts) -> Draft:
    words = {
        path: frozenset(re.findall(r"\w+", facts.text(path))) for path in _tests(facts.files) if path in facts.contents
    }
    unread = [path for path in _tests(facts.files) if path not in facts.contents]
    found = [found_of(item, facts, words) for item in _items(inputs)]
    counts: dict[str, Json] = {
        standing: sum(each.standing == standing for each in found)
        for standing in ("done", "untested", "partial", "missing")
    }
    status: Json = {"version": 1, **counts, "items": [_row(each) for each in found], "tests_not_read": list(unread)}
    lead = ", ".join(f"{number} {standing}" for standing, number in counts.items())
    markdown = table_in_markdown(
        "Implementation",
        f"{lead}. Made from the tree by the pattern {ID}.",
        ("item", "title", "standing", "missing", "tests"),
        [
            (each.item.id, each.item.title, each.standing, ", ".join(each.missing), ", ".join(each.tests))
            for each in found
        ],
    )
    files = document_files(inputs, _OUTPUT, as_json(status), markdown)
    return Draft("Record what is implemented", files, words=("check the syntax",))


def _row(found: Found) -> Json:
    return {
        "id": found.item.id,
        "title": found.item.title,
        "standing": found.standing,
        "files": list(found.item.files),
        "symbols": [f"{path}::{name}" for path, name in found.item.symbols],
        "missing": list(found.missing),
        "tests": list(found.tests),
    }


def _reads(inputs: Inputs, files: frozenset[str]) -> tuple[str, ...]:
    named = {path for item in _items(inputs) for path, _ in item.symbols if path in files}
    return (*sorted(named | set(_tests(files))), *document_reads(inputs, _OUTPUT, files))


ID = "implementation_status"
_OUTPUT = "docs/implementation-status.json"
STATUS = Pattern(
    ID,
    "What is implemented",
    "Writes or refreshes a document that says which expected files and symbols there are, and which tests name them.",
    schemas.inputs(
        ("items",),
        items=schemas.items(
            "what is expected",
            schemas.table(
                ("id",),
                id=schemas.text("a short name", most=60),
                title=schemas.text("one line about it"),
                files=schemas.items("files that must be there", schemas.path("a path in the workspace")),
                symbols=schemas.items(
                    "definitions that must be there",
                    {
                        "type": "string",
                        "description": "a file and a name in it, such as src/billing.py::Invoice",
                        "pattern": "^[^\\u0000-\\u001f\\u007f\\ud800-\\udfff:]+::[A-Za-z_][A-Za-z0-9_]*$",
                        "maxLength": 400,
                    },
                ),
            ),
            least=1,
            most=1000,
        ),
        output=schemas.path("the JSON document", default=_OUTPUT),
        markdown=schemas.path("a document for people as well, such as docs/implementation.md"),
    ),
    {
        "items": [
            {"id": "1.1", "title": "Invoices", "files": ["src/billing.py"], "symbols": ["src/billing.py::Invoice"]}
        ]
    },
    _build,
    _reads,
)
