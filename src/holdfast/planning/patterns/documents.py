"""Status documents: JSON for programs, a table for people; both are refreshed when they are there already."""

from __future__ import annotations

import json
from collections.abc import Sequence

from holdfast.model.canonical import Json
from holdfast.model.path import printable
from holdfast.planning.patterns.pattern import Inputs, Produced
from holdfast.planning.patterns.schemas import text_of


def as_json(value: Json) -> str:
    # ASCII: names that are not UTF-8 travel as escapes.
    return json.dumps(value, indent=2, ensure_ascii=True) + "\n"


def table_in_markdown(title: str, lead: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(_cell(value) for value in row)} |" for row in rows]
    return f"# {title}\n\n{lead}\n\n" + "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text of a repository in a table: it can neither end the cell nor become a link, a tag or an invisible thing."""
    plain = printable(text)
    return "".join(f"\\{char}" if char in "\\|`*_[]<>#!" else char for char in plain)


def document_files(inputs: Inputs, default: str, as_text: str, markdown: str) -> tuple[Produced, ...]:
    files = (Produced(text_of(inputs, "output", default), as_text, refreshes=True),)
    if "markdown" not in inputs:
        return files
    return (*files, Produced(text_of(inputs, "markdown"), markdown, refreshes=True))


def document_reads(inputs: Inputs, default: str, files: frozenset[str]) -> tuple[str, ...]:
    """The documents that are there already, since they are updated from exactly what they hold."""
    named = (text_of(inputs, "output", default), text_of(inputs, "markdown"))
    return tuple(path for path in named if path in files)
