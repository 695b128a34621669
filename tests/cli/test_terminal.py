"""A person at a terminal: the question, the colours, the progress. Each test has a real pseudo-terminal."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from terminals import Terminal, start

CHANGE = {"intent": "Use port 81", "steps": [{"write": "conf/site.conf", "content": "port = 81\n"}]}


@pytest.fixture
def terminal() -> Any:
    made = Terminal()
    yield made
    made.close()


@pytest.fixture
def file(write: Callable[[str], str]) -> str:
    return write(json.dumps(CHANGE))


def test_yes_applies(guarded: Any, terminal: Terminal, file: str) -> None:
    """The question comes after the summary; y carries it out."""
    process = start(guarded, terminal, "apply", file)
    terminal.read_until("Apply exactly this? [y/N/d(iff)] ")
    assert "~ conf/site.conf" in terminal.text
    terminal.type("y\n")
    assert process.wait(20) == 0
    assert "Undo with: holdfast undo e-" in terminal.read_all()
    assert (guarded.directory / "conf/site.conf").read_text() == "port = 81\n"


def test_a_hunk_that_applies_elsewhere_stands_above_the_question(
    guarded: Any, terminal: Terminal, write: Callable[[str], str]
) -> None:
    """Whoever is asked about a patch sees that it does not apply where it says, also in the difference."""
    hunk = (
        "--- a/conf/site.conf\n+++ b/conf/site.conf\n@@ -4,3 +4,3 @@\n-port = 80\n+port = 8080\n host = a\n name = b\n"
    )
    process = start(guarded, terminal, "apply", write(hunk))
    terminal.read_until("Apply exactly this? [y/N/d(iff)] ")
    assert terminal.text.count("hunk 1 applies at line 1, 3 lines further up") == 1
    terminal.type("d\n")
    terminal.read_until("+port = 8080")
    assert terminal.text.count("hunk 1 applies at line 1, 3 lines further up") == 2
    terminal.type("n\n")
    assert process.wait(20) == 3


@pytest.mark.parametrize("reply", ["n\n", "\n", "what?\n", "\x04"])
def test_anything_else_is_no(guarded: Any, terminal: Terminal, file: str, reply: str) -> None:
    """No, nothing, something else and the end of input all leave the workspace alone: exit 3, shown dim."""
    process = start(guarded, terminal, "apply", file)
    terminal.read_until("d(iff)] ")
    terminal.type(reply)
    assert process.wait(20) == 3
    assert "Nothing was changed." in terminal.read_all()
    assert "\x1b[2mexit 3\x1b[0m" in terminal.text
    assert (guarded.directory / "conf/site.conf").read_text().startswith("port = 80")


def test_d_shows_the_difference_and_asks_again(guarded: Any, terminal: Terminal, file: str) -> None:
    """d prints the lines that change, and consent is still needed."""
    process = start(guarded, terminal, "apply", file)
    terminal.read_until("d(iff)] ")
    terminal.type("d\n")
    terminal.read_until("+port = 81")
    assert "-port = 80" in terminal.text
    terminal.type("n\n")
    assert process.wait(20) == 3
    assert terminal.read_all().count("Apply exactly this?") == 2


def test_an_edit_during_the_question_is_a_conflict(guarded: Any, terminal: Terminal, file: str) -> None:
    """What was agreed to is no longer what would happen: exit 8, and the edit stands."""
    process = start(guarded, terminal, "apply", file)
    terminal.read_until("d(iff)] ")
    (guarded.directory / "conf/site.conf").write_text("mine\n")
    terminal.type("y\n")
    assert process.wait(20) == 8, terminal.read_all()
    assert "conf/site.conf" in terminal.read_all()
    assert (guarded.directory / "conf/site.conf").read_text() == "mine\n"


def test_undo_asks_too(guarded: Any, terminal: Terminal) -> None:
    """undo shows what it touches and asks before it does."""
    id = guarded.apply(CHANGE).document["id"]
    process = start(guarded, terminal, "undo", id)
    terminal.read_until("Undo exactly this? [y/N/d(iff)] ")
    terminal.type("yes\n")
    assert process.wait(20) == 0
    assert (guarded.directory / "conf/site.conf").read_text().startswith("port = 80")


def test_ctrl_c_at_the_question_changes_nothing(guarded: Any, terminal: Terminal, file: str) -> None:
    """An interruption at the question is 130, with nothing changed."""
    import signal

    process = start(guarded, terminal, "apply", file)
    terminal.read_until("d(iff)] ")
    process.send_signal(signal.SIGINT)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:  # it came in the moment before the read began: a person presses again
        process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert "Nothing was changed." in terminal.read_all()


def test_a_change_file_on_stdin_cannot_be_agreed_to(guarded: Any, terminal: Terminal) -> None:
    """With - the terminal is not on standard input, so consent needs --yes."""
    end = terminal.theirs
    process = guarded.start("apply", "-", stdin=subprocess.PIPE, stdout=end, stderr=end)
    process.communicate(json.dumps(CHANGE).encode(), timeout=20)
    assert process.returncode == 3


@pytest.mark.parametrize(("words", "variable"), [(("--no-color",), {}), ((), {"NO_COLOR": "1"})])
def test_colours_can_be_switched_off(
    guarded: Any, terminal: Terminal, words: tuple[str, ...], variable: dict[str, str]
) -> None:
    """On a terminal there are colours; with --no-color or NO_COLOR there is not one escape sequence."""
    assert "\x1b[" in _doctor(guarded, terminal)
    terminal.text = ""
    assert "\x1b" not in _doctor(guarded, terminal, *words, **variable)


def _doctor(program: Any, terminal: Terminal, *words: str, **more: str) -> str:
    end = terminal.theirs
    process = program.start(*words, "doctor", stdin=end, stdout=end, stderr=end, **more)
    terminal.read_until("Usable here.")
    assert process.wait(20) == 0
    return terminal.read_all()


def test_progress_is_drawn_on_stderr_only(guarded: Any, terminal: Terminal, write: Callable[[str], str]) -> None:
    """A long check is announced on the terminal of standard error; standard output has the answer alone."""
    file = write(json.dumps({**CHANGE, "verify": [{"run": ["sleep", "0.1"]}]}))
    process = guarded.start(
        "apply", file, "--yes", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=terminal.theirs
    )
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "Checking sleep 0.1" in terminal.read_all()
    assert b"Checking" not in out and b"\x1b" not in out


@pytest.mark.parametrize("verb", [("apply", "--yes"), ("simulate",)], ids=["apply", "simulate"])
def test_a_command_of_the_plan_is_announced_while_it_runs(
    guarded: Any, terminal: Terminal, write: Callable[[str], str], verb: tuple[str, ...]
) -> None:
    """The terminal names the command before it has ended, and how many steps there are."""
    steps = [*CHANGE["steps"], {"run": ["sh", "-c", "sleep 15; true"]}]
    process = start(guarded, terminal, *verb, write(json.dumps({"intent": "Wait", "steps": steps})))
    terminal.read_until("Running sh -c 'sleep 15; true'")
    terminal.read_until("1/2")
    assert process.poll() is None
    process.terminate()
    assert process.wait(20) == 130


def test_no_progress_where_nobody_watches(guarded: Any, write: Callable[[str], str]) -> None:
    """With pipes on all sides standard error stays empty."""
    file = write(json.dumps({**CHANGE, "verify": [{"run": ["sleep", "0.1"]}]}))
    assert guarded("apply", file, "--yes").err == ""
