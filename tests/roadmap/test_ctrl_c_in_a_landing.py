"""Ctrl-C while something lands: once, and the landing is finished; twice, and everything ends now. Both are safe.

The real program in a process of its own. Two agents work at once, so the second to land stands on a tree that moved,
and its checks run again inside the landing: they are slow, and that is when the signal comes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

import holdfast
from cli.conftest import Program
from roadmapped import agents_alive, boxes, commits, mapped, script, states, wait_until

pytestmark = pytest.mark.long

TITLES = ("Create a.py", "Create b.py", "Create c.py slowly")
# Odd enough to be found among all processes of the machine.
NAP = f"4.{os.getpid():07d}"


@pytest.fixture
def here(workspace: Path) -> Program:
    """A roadmap of three tasks, and a check that takes its time."""
    holdfast.init(str(workspace))
    program: Program = mapped(Program(workspace), *TITLES)
    (workspace / "Makefile").write_text(f"test:\n\tsleep {NAP}\n\tpython3 -m compileall -q .\n")
    subprocess.run(["git", "commit", "-qam", "slow"], cwd=workspace, check=True)
    return program


def landing(here: Program) -> set[str]:
    """Titles of what the ledger says is landing just now, if one of its checks is at work at this moment."""
    if not any(_says(entry, NAP) for entry in Path("/proc").iterdir() if entry.name.isdecimal()):
        return set()
    with holdfast.open(str(here.directory)) as hf:
        standing = hf.runs.standing()
    return {task for task, record in standing.records.items() if record.state == "VALIDATING" and record.landing}


def _says(process: Path, word: str) -> bool:
    try:
        return word.encode() in (process / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return False  # it ended meanwhile


def in_the_second_landing(here: Program) -> subprocess.Popen[bytes]:
    """A run of which one task has landed, and another is landing."""
    words = ("run", "--agent", "mine", "--yes", "--parallel", "2")
    process = here.start(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    wait_until(lambda: process.poll() is not None or (boxes(here).count("x") == 1 and landing(here)), 90)
    assert process.poll() is None, process.communicate()
    return process


def ended(process: subprocess.Popen[bytes], seconds: float) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=seconds)
    return process.returncode, out.decode(), err.decode()


def goes_on(here: Program) -> None:
    """Nothing of an agent is left; told to hurry, the rest lands, everything once; the books are right."""
    wait_until(lambda: not agents_alive(here), 5)
    script(here).write_text(script(here).read_text().replace("time.sleep(120)", "pass"))
    done = here.fresh("resume", "--yes")
    assert done.status == 0, done.err
    assert (boxes(here), states(here)) == ("xxx", ["COMPLETED"] * 3)
    assert sorted(commits(here)[1:]) == [f"1.{place} {title}" for place, title in enumerate(TITLES, 1)]
    assert here("audit", "verify").status == 0


def test_once_finishes_the_landing(here: Program) -> None:
    """What is landing lands, is ticked and committed; nothing else is begun; exit 130, and `resume` does the rest."""
    process = in_the_second_landing(here)
    process.send_signal(signal.SIGINT)
    status, out, err = ended(process, 60)
    assert (status, out.splitlines()[-1]) == (130, "Go on with: holdfast resume --yes"), err
    assert "the landing that is under way is finished" in err
    assert (boxes(here), len(commits(here))) == ("xx.", 3)
    assert here("tasks", "--json").document["status"] == "STOPPED"
    goes_on(here)


def test_twice_stops_now(here: Program) -> None:
    """Exit 130 at once, in the middle of the landing, of which nothing is to be seen; `resume` lands it, once."""
    process = in_the_second_landing(here)
    before, begun = boxes(here), time.monotonic()
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)  # two of a kind at once are one
    process.send_signal(signal.SIGINT)
    status, _, err = ended(process, 60)
    assert (status, "holdfast resume" in err) == (130, True)
    assert time.monotonic() - begun < float(NAP), "it waited for the check"
    assert (boxes(here), len(commits(here))) == (before, 2)
    assert sum((here.directory / name).exists() for name in ("a.py", "b.py")) == 1
    goes_on(here)
