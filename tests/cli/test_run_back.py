"""Going back over what tasks landed, as typed: after a kill, over several tasks at once, and work done by hand."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from roadmapped import boxes, commits, git, mapped, states

# A run that dies after the landing, and before the book knows of it.
KILLED = """
import os, signal
from holdfast.engine import outcomes
outcomes.Outcomes.landed = lambda *anything: os.kill(os.getpid(), signal.SIGKILL)
from holdfast.__main__ import main
main()
"""
# The move alone, as after a kill: what follows it for tasks is not done.
_BACK = "import sys, holdfast; hf = holdfast.open('.'); hf.go_back({}, approved_by='me')"
UNDO = _BACK.format("hf.preview_undo(sys.argv[1])")
RESTORE = _BACK.format("hf.preview_restore(hf.show(sys.argv[1])[0].at_ns - 1)")


# An undo in the middle of which somebody starts a run.
MEANWHILE = """
import subprocess, sys
from holdfast.wiring import Holdfast
go_back = Holdfast.go_back
def meanwhile(self, *given, **named):
    run = subprocess.run([sys.executable, "-m", "holdfast", "run", "--agent", "mine", "--yes"], capture_output=True)
    open("../meanwhile", "w").write(f"{run.returncode} {run.stderr.decode()}")
    return go_back(self, *given, **named)
Holdfast.go_back = meanwhile
from holdfast.__main__ import main
main()
"""


def killed_after_landing(program: Any) -> tuple[Any, str]:
    """The workspace, and the execution that nobody wrote down."""
    here = mapped(program, "Create a.py")
    assert here.python(KILLED, "run", "--agent", "mine", "--yes").status == -signal.SIGKILL
    rows = here("log", "--json").document["items"]
    landed = [row["id"] for row in rows if not row["intent"].startswith("Tick")]
    assert len(landed) == 1 and (here.directory / "a.py").exists() and states(here) == ["VALIDATING"]
    return here, landed[0]


@pytest.mark.long
def test_what_a_killed_run_landed_is_undone_once_the_run_knows_of_it(guarded: Any) -> None:
    """Until then undo and restore are refused, and say what to do first; after `resume` the undo is like any other."""
    here, landed = killed_after_landing(guarded)
    for verb in (("undo", landed, "--yes"), ("restore", "--at", landed, "--yes")):
        refused = here.fresh(*verb)
        assert refused.status == 5 and "holdfast resume" in refused.err, refused
        assert (here.directory / "a.py").exists()
    assert here("undo", landed, "--preview").status == 0
    assert here.fresh("resume", "--yes").status == 0
    assert (states(here), commits(here)) == (["COMPLETED"], ["1.1 Create a.py"])
    assert here.fresh("undo", landed, "--yes").status == 0
    assert (states(here), boxes(here), (here.directory / "a.py").exists()) == (["PENDING"], ".", False)


def test_nobody_begins_a_run_in_the_middle_of_an_undo(guarded: Any) -> None:
    """It is refused as long as the undo goes on, so that no agent works over what is taken back below it."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    run = here.fresh("run", "--agent", "mine", "--yes", "--only", "1.1", "--json").document
    assert here.python(MEANWHILE, "undo", run["tasks"][0]["execution"], "--yes").status == 0
    status, _, said = (here.directory.parent / "meanwhile").read_text().partition(" ")
    assert status == "9" and "under way" in said
    assert (states(here), boxes(here), (here.directory / "a.py").exists()) == (["PENDING", "PENDING"], "..", False)


@pytest.mark.long
def test_what_was_taken_back_behind_a_killed_run_stays_away(guarded: Any) -> None:
    """`resume` finds that out, lands nothing, and asks; a yes has the task done anew."""
    here, landed = killed_after_landing(guarded)
    assert here.python(UNDO, landed).status == 0
    waits = here.fresh("resume", "--yes")
    assert waits.status == 3, waits
    assert not (here.directory / "a.py").exists() and states(here) == ["NEEDS_REVIEW"]
    assert "was taken back" in here("tasks").out
    assert here("review", "1.1", "--yes").status == 0
    assert here.fresh("resume", "--yes").status == 0
    assert (states(here), (here.directory / "a.py").exists()) == (["COMPLETED"], True)


@pytest.mark.long
def test_restore_takes_tasks_with_it(guarded: Any) -> None:
    """Files, boxes and commits: what landed after that moment is to do again; `resume` lands it anew."""
    here = mapped(guarded, "Create a.py", "Create b.py", "Create c.py")
    run = here.fresh("run", "--agent", "mine", "--yes", "--json").document
    second = run["tasks"][1]["execution"]
    assert here("restore", "--at", second, "--preview").status == 0
    assert states(here) == ["COMPLETED"] * 3
    done = here.fresh("restore", "--at", second, "--yes")
    assert done.status == 0 and "To do again: " in done.out, done
    assert (boxes(here), states(here)) == ("x..", ["COMPLETED", "PENDING", "PENDING"])
    assert commits(here)[-1] == "Restore to an earlier moment" and git(here, "status", "--short") == ""
    assert not (here.directory / "b.py").exists() and not (here.directory / "c.py").exists()
    assert here.fresh("resume", "--yes").status == 0
    assert (boxes(here), commits(here)[-2:]) == ("xxx", ["1.2 Create b.py", "1.3 Create c.py"])


@pytest.mark.long
def test_a_restore_that_was_cut_off_is_finished_by_asking_again(guarded: Any) -> None:
    """The files are back already; the task, and the commit, follow."""
    here = mapped(guarded, "Create a.py")
    run = here.fresh("run", "--agent", "mine", "--yes", "--json").document
    landed = run["tasks"][0]["execution"]
    assert here.python(RESTORE, landed).status == 0
    assert (boxes(here), states(here)) == (".", ["COMPLETED"])
    done = here("restore", "--at", landed, "--yes")
    assert done.status == 0 and "To do again: " in done.out, done
    assert states(here) == ["PENDING"] and commits(here)[-1] == "Undo 1.1 Create a.py"
    assert git(here, "status", "--short") == ""


@pytest.mark.long
def test_resume_does_what_was_taken_back_behind_its_back(guarded: Any) -> None:
    """An undo from Python, or one that was cut off: the task is to do again, although the run had finished."""
    here = mapped(guarded, "Create a.py")
    run = here.fresh("run", "--agent", "mine", "--yes", "--json").document
    landed = run["tasks"][0]["execution"]
    assert here.python(UNDO, landed).status == 0
    assert (boxes(here), states(here)) == ("x", ["COMPLETED"])
    assert here.fresh("resume", "--yes").status == 0
    assert (boxes(here), states(here), (here.directory / "a.py").exists()) == ("x", ["COMPLETED"], True)
    assert here("show", "1.1", "--json").document["execution"] != landed


@pytest.mark.long
def test_what_a_person_did_by_hand_keeps_its_tick(guarded: Any) -> None:
    """Undone, done by hand, ticked and committed: `sync` leaves it alone."""
    here = mapped(guarded, "Create a.py")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    assert here.fresh("undo", "1.1", "--yes").status == 0
    roadmap = here.directory / "ROADMAP.md"
    (here.directory / "a.py").write_text("x = 'by hand'\n")
    roadmap.write_text(roadmap.read_text().replace("[ ]", "[x]"))
    git(here, "add", "-A")
    git(here, "commit", "-qm", "by hand")
    assert here("sync", "--json").document["changed"] is False
    assert (boxes(here), commits(here)[-1], git(here, "status", "--short")) == ("x", "by hand", "")


def test_nobody_is_told_of_edits_that_they_did_not_make(guarded: Any) -> None:
    """A box that an undo set again differs from what is checked out, and is nobody's edit: `sync` does not find it in
    the commit that took the task back."""
    here = mapped(guarded, "Create a.py")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    assert here("undo", "1.1", "--yes").status == 0
    assert git(here, "status", "--short") == ""
    newest = here("log", "--json").document["items"][0]
    assert newest["intent"].startswith("Tick ROADMAP.md")
    assert here("undo", newest["id"], "--yes").status == 0
    synced = here("sync")
    assert (synced.status, synced.err) == (0, "")


@pytest.mark.long
def test_an_undo_names_the_tasks_that_need_what_goes(guarded: Any) -> None:
    """What is done and depends on it, by a word or by its phase or by way of others, is named before anything goes."""
    here = mapped(guarded)
    (here.directory / "ROADMAP.md").write_text(
        "## Phase 1: Base\n- [ ] 1.1 Create a.py\n- [ ] 1.2 Create b.py (depends on 1.1)\n- [ ] 1.3 Create c.py\n"
        "## Phase 2: More\n**Prerequisites**: Phase 1\n- [x] 2.1 Create old.py\n- [ ] 2.2 Create d.py\n"
    )
    git(here, "commit", "-qam", "roadmap")
    assert here.fresh("run", "--agent", "mine", "--yes", "--max-tasks", "3").status in (0, 11)
    alone = here("undo", "1.2", "--preview")
    assert "in need of it: 2.1 Create old.py. They stay" in alone.err + alone.out
    told = here("undo", "1.1", "--preview")
    assert "in need of it: 1.2 Create b.py" in told.err + told.out and "1.3" not in told.err + told.out
    assert (here.directory / "a.py").exists()
