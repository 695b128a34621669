"""What a task names, and what a change lacks of it or leaves lying about: the cases are data."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.path import checked_path
from holdfast.planning.leftovers import defined, leftovers_in
from holdfast.planning.named import named_in
from holdfast.planning.symbols import symbols_in
from holdfast.planning.unmet import Side, unmet


def _cases(name: str) -> list[dict[str, Any]]:
    return tomllib.loads((Path(__file__).parent / name).read_text())["case"]


NAMED, LEFT, SYMBOLS = _cases("named.toml"), _cases("leftovers.toml"), _cases("symbols.toml")
STRAYS = _cases("strays.toml")
BASE = "def kept():\n    return 1\n\n\nclass Box:\n    def size(self):\n        return 2\n"


def changed(path: str, before: str | None, after: str | None) -> dict[str, Side]:
    return {path: Side(before, after, before is not None, after is not None)}


@pytest.mark.parametrize("case", NAMED, ids=[case["task"] for case in NAMED])
def test_a_task_names_these_files(case: dict[str, Any]) -> None:
    """Places of work are named; reasons, comparisons, denials and a program's own files are not."""
    named = named_in(case["task"])
    assert list(named.changed) == case.get("changed", [])
    assert list(named.gone) == case.get("gone", [])


@pytest.mark.parametrize("case", LEFT, ids=[case["name"] for case in LEFT])
def test_what_an_edit_leaves_is_found(case: dict[str, Any]) -> None:
    """Marks and omissions are told with their line; what is meant to be there, or was before, is not."""
    found = leftovers_in(case["path"], case.get("before", ""), case["after"])
    assert list(found) == ([case["told"]] if "told" in case else [])


@pytest.mark.parametrize("case", SYMBOLS, ids=[case["task"] for case in SYMBOLS])
def test_a_task_names_these_symbols(case: dict[str, Any]) -> None:
    """What has them is right, what has another name is told; words that name none are not looked up."""
    told = [f"{symbol.name} {symbol.kind}{' gone' * symbol.gone}" for symbol in symbols_in(case["task"])]
    assert told == case.get("symbols", [])
    if told:
        right = changed(case["path"], case.get("before", ""), case["right"])
        wrong = changed(case.get("wrong_path", case["path"]), case.get("before", ""), case["wrong"])
        assert unmet(case["task"], right, lambda path: True) == ()
        assert [line for line in unmet(case["task"], wrong, lambda path: True) if "the task asks" in line]


@pytest.mark.parametrize("case", STRAYS, ids=[case["name"] for case in STRAYS])
def test_new_files_without_a_place_are_told(case: dict[str, Any]) -> None:
    """What a change makes and neither the task nor the change has a use for; what comes along is not told."""
    there = set(case["there"])
    sides = {
        path: Side("" if path in there else None, text, path in there, True) for path, text in case["change"].items()
    }
    told = [line for line in unmet(case["task"], sides, there.__contains__) if " is new" in line]
    assert [line.partition(" is new")[0] for line in told] == case.get("strays", [])


def test_a_symbol_beside_the_named_file_is_told() -> None:
    """It was asked for in one file, and stands in another; a file that passes it on is enough."""
    words = "Add `slugify(text)` to src/text.py"
    both = {**changed("src/text.py", "", "\n"), **changed("slug.py", "", "def slugify(text):\n    return text\n")}
    assert unmet(words, both, lambda path: True) == ("the task asks for `slugify` in src/text.py, and it is not there",)
    passed_on = {**both, **changed("src/text.py", "", "from slug import slugify\n")}
    assert unmet(words, passed_on, lambda path: True) == ()


def test_what_cannot_be_read_is_not_said_to_lack_anything() -> None:
    """A file too large, or no text."""
    assert unmet("Add `slugify(text)`", {"a.py": Side(None, None, True, True)}, lambda path: True) == ()


def test_a_named_file_that_stays_as_it_is_is_told() -> None:
    """A file of the same name further down counts; one that does not exist yet has to be made."""
    other = changed("b.py", "", "x = 1\n")
    assert unmet("Add x to a.py", other, lambda path: True) == (
        "the task names a.py, and the change leaves it as it is",
    )
    assert unmet("Add x to src/b.py", other, lambda path: False) == (
        "the task names src/b.py, and the change does not make it",
    )
    assert unmet("Add x to b.py", changed("src/b.py", "", "x = 1\n"), lambda path: True) == ()
    assert unmet("Append the totals to report.csv", other, lambda path: False) == ()
    assert unmet("Update discord.py to its newest release", other, lambda path: False) == ()
    assert unmet("Update README.md with a usage section", changed("USAGE.md", "", "x\n"), lambda path: False) == (
        "the task names README.md, and the change does not make it",
    )


def test_a_file_that_should_be_gone_is_told_while_it_stands() -> None:
    """Where it is deleted, nothing is said."""
    words = "Delete old.py"
    assert unmet(words, changed("b.py", "", "x = 1\n"), lambda path: True) == (
        "the task asks to remove old.py, and it is still there",
    )
    assert unmet(words, changed("old.py", "x = 1\n", None), lambda path: False) == ()


def test_definitions_that_an_edit_loses_are_told() -> None:
    """A file that was written anew without half of what it held; not where the task asks for less, or they moved."""
    short = changed("a.py", BASE, "def kept():\n    return 3\n")
    assert unmet("Make kept() return 3 in a.py", short, lambda path: True) == (
        "a.py loses Box, size, and the task does not ask for that",
    )
    assert unmet("Remove the class from a.py", short, lambda path: True) == ()
    longer = changed("a.py", BASE, BASE.partition("class")[0] + "X = 1\n" * 9)
    assert unmet("Give a.py its constants", longer, lambda path: True) == ()  # done on purpose, it seems
    moved = {**short, **changed("b.py", "", "class Box:\n    def size(self):\n        return 2\n")}
    assert unmet("Make kept() return 3 in a.py", moved, lambda path: True) == ()


def test_a_definition_that_stands_twice_is_told() -> None:
    """An edit that was appended in the place of a replacement."""
    twice = changed("a.py", BASE, BASE + "\n\ndef kept():\n    return 3\n")
    assert unmet("Make kept() return 3 in a.py", twice, lambda path: True) == ("a.py defines kept twice",)


def test_there_are_many_cases() -> None:
    """Files that lost their cases must not pass as well tested."""
    assert len(NAMED) >= 30
    assert len(LEFT) >= 20
    assert len(SYMBOLS) >= 30
    assert len(STRAYS) >= 19


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_words_and_any_text_give_paths_and_plain_lines(words: str, text: str) -> None:
    """Whatever is said and written, files are paths of the workspace and sentences have no control characters."""
    named = named_in(words)
    for path in (*named.changed, *named.gone):
        assert checked_path(path) == path
    for line in unmet(words, changed("a.py", "", text), lambda path: True):
        assert line.isprintable()


@pytest.mark.parametrize("piece", ["add a.py to ", "a/", "in a.b ", "add x.", "add `a`, `b` and ", "a.py, ", "to to "])
def test_long_words_take_no_longer_than_they_are(piece: str) -> None:
    """No sentence and no line makes the search explode."""
    task = piece * (64_000 // len(piece))
    began = time.process_time()
    unmet(task, changed("a.js", "", "# " + task), lambda path: True)
    unmet(f"add {task[:900]}", changed("a.js", "", task.replace(" ", "\n")), lambda path: True)
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.js", ("// a" + " " * 390 + "b\n") * 1000),
        ("a.js", "export\n" * 50_000),
        ("a.py", "async\n" * 50_000),
        ("a.ts", "func (" * 50_000),
    ],
)
def test_no_text_of_an_agent_makes_the_look_slow(path: str, text: str) -> None:
    """Comments and definitions are found in time that is linear in the text."""
    began = time.process_time()
    leftovers_in(path, "", text)
    defined(path, text)
    assert time.process_time() - began < 5
