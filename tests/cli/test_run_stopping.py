"""A run that is stopped: by Ctrl-C once and twice, by a signal, from another terminal, by kill -9. Then it goes on."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from typing import Any

import pytest

from cli.test_terminal import Terminal, start
from roadmapped import agents_alive, boxes, commits, mapped, script, states, wait_until

pytestmark = pytest.mark.long

SLOW = ("Create a.py", "Create b.py slowly", "Create c.py")
RUN = ("run", "--agent", "mine", "--yes")
NO_HURRY = "time.sleep(120)"


@pytest.fixture
def terminal() -> Any:
    made = Terminal()
    yield made
    made.close()


def begun(here: Any, *words: str, **more: Any) -> subprocess.Popen[bytes]:
    """A run whose second task is being worked on, and would be for two minutes."""
    process: subprocess.Popen[bytes] = here.start(*RUN, *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    wait_until(lambda: process.poll() is not None or (boxes(here) == "x.." and agents_alive(here)))
    assert process.poll() is None, process.communicate()
    return process


def ended(process: subprocess.Popen[bytes], seconds: float = 20) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out.decode(), err.decode()


def goes_on(here: Any) -> None:
    """Nothing of the agent is left; told to hurry, the rest lands, and the first task is not done twice."""
    wait_until(lambda: not agents_alive(here), 20)
    assert (boxes(here), commits(here)) == ("x..", ["1.1 Create a.py"])
    agent = script(here)
    agent.write_text(agent.read_text().replace(NO_HURRY, "pass"))
    done = here.fresh("resume", "--yes")
    assert done.status == 0, done.err
    assert (boxes(here), states(here)) == ("xxx", ["COMPLETED"] * 3)
    assert sorted(commits(here)) == ["1.1 Create a.py", "1.2 Create b.py slowly", "1.3 Create c.py"]


def test_who_looks_on_is_told_soon_who_is_at_work(guarded: Any) -> None:
    """Within 4 seconds of its beginning, and `status` and `tasks` agree on how long the run has worked."""
    here = mapped(guarded, *SLOW[1:2])
    process = here.start(*RUN, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: process.poll() is not None or agents_alive(here))
    wait_until(lambda: "under way: 1 at work, 0 landed" in here("status").out, 4)
    before = here("status", "--json").document["run"]["worked_ms"]
    between = here("tasks", "--json").document["worked_ms"]
    assert 0 < before <= between <= here("status", "--json").document["run"]["worked_ms"]
    process.send_signal(signal.SIGINT)
    assert ended(process)[0] == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_once_stops_in_order(guarded: Any, number: signal.Signals) -> None:
    """Exit 130 within seconds, the run is STOPPED, what to type next is the last line; `resume` goes on."""
    here = mapped(guarded, *SLOW)
    process = begun(here)
    process.send_signal(number)
    status, out, err = ended(process)
    assert (status, out.splitlines()[-1]) == (130, "Go on with: holdfast resume --yes"), err
    assert "the landing that is under way is finished" in err
    assert here("tasks", "--json").document["status"] == "STOPPED"
    goes_on(here)


def test_twice_stops_now(guarded: Any) -> None:
    """Exit 130 at once, in mid-work; no agent is left, and `resume` goes on. A new run must wait for that."""
    here = mapped(guarded, *SLOW)
    process = begun(here)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    status, _, err = ended(process, 5)
    assert status == 130 and "holdfast resume" in err
    if here("tasks", "--json").document["status"] == "RUNNING":
        refused = here.fresh(*RUN)
        assert (refused.status, "was interrupted" in refused.err) == (5, True)
    goes_on(here)


def test_who_leaves_now_is_told_that_something_landed(guarded: Any) -> None:
    """`stop --now` after a landing: the answer for programs says that the workspace was changed."""
    here = mapped(guarded, *SLOW)
    process = begun(here, "--json")
    assert here("stop", "--now").status == 0
    status, out, _ = ended(process)
    assert (status, json.loads(out)["error"]["changed"]) == (130, True)


def renamed(here: Any, table: str, name: str) -> None:
    with closing(sqlite3.connect(here.directory / ".holdfast" / "engine.db", timeout=30)) as database:
        database.execute(f"ALTER TABLE {table} RENAME TO {name}")


def test_a_broken_engine_ends_the_run_in_our_words(guarded: Any) -> None:
    """A database of the engine that cannot be used any more is exit 5, and the answer says that something landed."""
    here = mapped(guarded, *SLOW)
    process = begun(here, "--json")
    renamed(here, "workflow_status", "gone")
    status, out, err = ended(process, 60)
    told = json.loads(out)["error"]
    assert (status, told["code"], told["changed"]) == (5, "blocked", True), err
    assert told["message"].startswith("the engine's database cannot be used: no such table")
    renamed(here, "gone", "workflow_status")
    goes_on(here)


def test_a_kill_is_survived(guarded: Any) -> None:
    """kill -9: no agent stays behind, `status` and `tasks` say that it was interrupted, `resume` goes on."""
    here = mapped(guarded, *SLOW)
    process = begun(here)
    process.kill()
    assert ended(process)[0] == -signal.SIGKILL
    assert "was interrupted; go on with: holdfast resume" in here("status").out
    assert "was interrupted" in here("tasks").out.splitlines()[-1]
    assert "it was interrupted" in here("stop").out
    refused = here.fresh(*RUN)
    assert (refused.status, "Go on with it first: holdfast resume u-" in refused.err) == (5, True)
    goes_on(here)


@pytest.mark.parametrize("words", [("stop",), ("stop", "--now")])
def test_stop_from_another_terminal(guarded: Any, words: tuple[str, ...]) -> None:
    """While it runs others look, a second run is refused (9), and `stop` ends it; `resume` is not stopped again."""
    here = mapped(guarded, *SLOW)
    process = begun(here)
    looked = here("status", "--json").document["run"]
    assert (looked["life"], looked["pid"], looked["state"]) == ("alive", process.pid, "RUNNING")
    second = here.fresh(*RUN, "--json")
    assert (second.status, second.document["error"]["code"]) == (9, "locked")
    back = ("restore", "--at", "1 hour ago", "--yes")
    for verb in (("reset", "1.3"), ("retry", "1.3"), ("undo", "1.1", "--yes"), back):
        assert here.fresh(*verb).status == 9, verb
    assert here(*words).status == 0
    assert ended(process)[0] == 130
    goes_on(here)


def test_a_person_watches_and_presses_ctrl_c(guarded: Any, terminal: Terminal) -> None:
    """On a terminal: a table that fits, gone at the end; Ctrl-C is answered, and the cursor is given back."""
    here = mapped(guarded, *SLOW, *(f"Create z{number}.py" for number in range(40)))
    process = start(here, terminal, *RUN)
    terminal.read_until("1.2 Create b.py slowly  mine  writing b.py", 60)
    assert "ROADMAP.md · 43 tasks, 42 to do" in terminal.text and " more: holdfast tasks" in terminal.text
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    text = terminal.read_all()
    assert "Ctrl-C again stops now" in text and "Go on with: holdfast resume" in text
    assert text.rfind("\x1b[?25h") > text.rfind("\x1b[?25l")
    wait_until(lambda: not agents_alive(here), 5)


def test_nobody_reading_changes_nothing(guarded: Any) -> None:
    """A reader of events who goes away (EPIPE) does not stop the run."""
    here = mapped(guarded, "Create a.py")
    reading, writing = os.pipe()
    process = here.start(*RUN, "--stream-json", stdout=writing, stderr=subprocess.DEVNULL)
    os.close(writing)
    os.read(reading, 10)
    os.close(reading)
    assert process.wait(60) == 0
    assert boxes(here) == "x"
