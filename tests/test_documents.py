"""The documents say only what is there."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from holdfast.cli.verbs import program

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def test_every_feature_names_a_test_that_exists() -> None:
    """Each row of docs/features.md names at least one test file that exists and holds tests, or is not built."""
    rows = [line for line in (ROOT / "docs" / "features.md").read_text().splitlines() if re.match(r"\| F\d\d ", line)]
    assert rows
    for row in rows:
        named = re.findall(r"`(tests/[^`]+\.py)`", row)
        assert bool(named) != ("| not built |" in row), row
        for name in named:
            assert "def test_" in (ROOT / name).read_text() or "TestCase" in (ROOT / name).read_text(), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    """Every relative link in a document leads to a file of this repository."""
    for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


def _options(command: click.Command, context: click.Context) -> set[str]:
    """Of a verb, and of all verbs below it."""
    own = {word for option in command.params for word in (*option.opts, *option.secondary_opts)}
    below = command.list_commands(context) if isinstance(command, click.Group) else []
    found = (command.get_command(context, name) for name in below)  # type: ignore[attr-defined]
    return own.union({"--help"}, *(_options(each, context) for each in found if each is not None))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_verb_and_flag_that_is_named_exists(document: Path) -> None:
    """`holdfast VERB --flag`, wherever it stands: the verb is there, and the flag is one of its own."""
    context = click.Context(program)
    everywhere = {word for option in program.params for word in option.opts}
    for verb, rest in re.findall(r"\bholdfast ([a-z][a-z-]*)([^`\n|#]*)", document.read_text()):
        command = program.get_command(context, verb)
        assert command is not None, f"{document.name} names holdfast {verb}"
        unknown = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest)) - _options(command, context) - everywhere
        assert not unknown, f"{document.name}: holdfast {verb} has no {', '.join(unknown)}"


def test_every_exit_code_in_the_code_is_documented() -> None:
    """Each exit status that an exception carries stands in docs/reference/exit-codes.md."""
    from holdfast import errors

    table = (ROOT / "docs" / "reference" / "exit-codes.md").read_text()
    statuses = {
        value.exit_status
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.HoldfastError)
    }
    for status in statuses:
        assert f"| {status} |" in table, status
