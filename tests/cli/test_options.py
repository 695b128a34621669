"""The options that every verb takes, and how the program starts and fails."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import holdfast


@pytest.mark.parametrize(
    "words",
    [
        ("-C", "{}", "--json", "log"),
        ("log", "-C", "{}", "--json"),
        ("--json", "log", "-C", "{}"),
        ("-C", "/", "log", "--json", "-C", "{}"),
        ("-C", "{}", "audit", "--json", "verify"),
        ("audit", "verify", "--json", "-C", "{}"),
    ],
)
def test_global_options_stand_anywhere(guarded: Any, words: tuple[str, ...]) -> None:
    """-C and --json mean the same before and after the verb; of two, the later counts."""
    elsewhere = type(guarded)(Path("/"))
    done = elsewhere(*(word.format(guarded.directory) for word in words))
    assert done.status == 0, done
    assert done.document["kind"] in ("list", "verification")


def test_a_file_is_looked_for_in_the_directory_of_c(guarded: Any) -> None:
    """-C works as if started there, as it does for make and git."""
    (guarded.directory / "change.json").write_text('{"intent": "x", "steps": [{"delete": "old.txt"}]}')
    assert type(guarded)(Path("/"))("-C", str(guarded.directory), "apply", "change.json", "--yes").status == 0
    assert not (guarded.directory / "old.txt").exists()


def test_a_workspace_is_found_from_below(guarded: Any) -> None:
    """Every verb works in any directory of the workspace; paths in change files stay relative to its root."""
    below = type(guarded)(guarded.directory / "conf")
    assert below.apply({"intent": "x", "steps": [{"delete": "old.txt"}]}).status == 0


@pytest.mark.parametrize("words", [("--version",), ("-V",), ("--no-color", "--version")])
def test_version_is_answered_without_importing(program: Any, words: tuple[str, ...]) -> None:
    """--version prints one line, and loads neither click nor anything else of ours."""
    code = (
        "import sys; sys.argv = ['holdfast', *sys.argv[1:]]; from holdfast.__main__ import main; main(); "
        "print(*sorted(name for name in sys.modules if name.startswith(('holdfast.', 'click', 'rich', 'json'))))"
    )
    assert program.python(code, *words).out == f"holdfast {holdfast.__version__}\nholdfast.__main__\n"


def test_verbs_that_look_load_little(guarded: Any) -> None:
    """log, status and show start without parsers, checks, rehearsal, progress bars or a way to start processes."""
    id = guarded.apply({"intent": "x", "steps": [{"delete": "old.txt"}]}).document["id"]
    heavy = "{'rich', 'yaml', 'asyncio', 'subprocess', 'urllib.request', 'holdfast.engine.pipeline', \
        'holdfast.simulation.rehearsal', 'holdfast.checks.health', 'holdfast.intake.changefile'}"
    code = (
        "import sys; from holdfast.cli import main; status = main(sys.argv[1:]); "
        f"print(status, *{heavy} & set(sys.modules), file=sys.stderr)"
    )
    for words in (["log"], ["status"], ["show", id], ["diff", id], ["audit", "verify"]):
        done = guarded.python(code, *words)
        assert done.err.split() == ["0"], (words, done.err)


def test_help_lists_every_verb_and_each_has_its_own(program: Any) -> None:
    """--help names all verbs, and each verb explains itself outside a workspace too."""
    names = "init doctor demo apply diff show log status undo restore recover gc audit".split()
    whole, *each = program.batch([["--help"], *([name, "--help"] for name in names)])
    assert [name for name in names if f"  {name} " not in whole.out] == []
    for name, done in zip(names, each, strict=True):
        assert (done.status, done.out.startswith(f"Usage: holdfast {name} ")) == (0, True)


DEFECT = """
import sys
from holdfast.cli.screen import Screen
Screen(sys.argv[1], colour=False).take_over_excepthook()
raise ZeroDivisionError("by zero")
"""


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_defect_is_one_sentence(program: Any, form: str) -> None:
    """What nobody foresaw ends with 1 and a short message, as a document where one was asked for."""
    done = program.python(DEFECT, form)
    assert done.status == 1
    assert "Traceback" not in done.err
    if form == "json":
        assert done.document["error"]["code"] == "internal"
    else:
        assert "ZeroDivisionError: by zero" in done.err


def test_a_defect_shows_its_traceback_to_those_who_ask(program: Any) -> None:
    """HOLDFAST_DEBUG=1 gives the traceback."""
    done = program.python(DEFECT, "text", HOLDFAST_DEBUG="1")
    assert done.status == 1
    assert "Traceback" in done.err


def test_a_plain_encoding_gets_escapes(guarded: Any) -> None:
    """A terminal that knows only ASCII gets escapes instead of a crash."""
    change = {"intent": "x", "steps": [{"symlink": {"path": "link", "to": "old.txt"}}]}
    file = guarded.directory.parent / "change.json"
    file.write_text(json.dumps(change))
    done = guarded.fresh("apply", str(file), "--yes", PYTHONIOENCODING="ascii")
    assert (done.status, "\\u2192" in done.out) == (0, True)
