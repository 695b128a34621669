"""Another run over the same roadmap: what landed is done, whether the file can show it or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from delegated import configured
from holdfast.engine.normalising import FILE
from roadmapped import boxes, commits, git, mapped, script, states

LIST = "# Plan\n\n## Tasks\n\n1. Create a.py\n2. Create b.py\n"
PROSE = "# Plan\n\nWe want a module a, and then b, which uses it.\n"
ROWS = [
    {"key": "a", "title": "Create a.py", "body": "", "files": [], "after": [], "line": 3},
    {"key": "b", "title": "Create b.py", "body": "", "files": [], "after": ["a"], "line": 3},
]
RUN = ("run", "--agent", "mine", "--yes", "--take-guessed")


def listed(guarded: Any, text: str = LIST) -> Any:
    """A repository with this roadmap, which has no boxes."""
    here = mapped(guarded)
    (here.directory / "ROADMAP.md").write_text(text)
    git(here, "commit", "-qam", "roadmap")
    return here


def to_begin(here: Any) -> list[str]:
    """What another run would begin, by its numbers."""
    return [turn["number"] for turn in here.fresh(*RUN, "--dry-run", "--json").document["turns"]]


def untick(here: Any, number: str) -> None:
    roadmap: Path = here.directory / "ROADMAP.md"
    roadmap.write_text(roadmap.read_text().replace(f"[x] {number}", f"[ ] {number}"))


def landed(here: Any) -> list[str]:
    return [title for title in commits(here) if title.startswith(("1", "2", "Create"))]


def test_a_numbered_list_is_done_once(guarded: Any) -> None:
    """Its tasks have no boxes: another run knows from the records that they landed, begins nothing, and says done."""
    here = listed(guarded)
    assert here.fresh(*RUN).status == 0
    first = landed(here)
    again = here.fresh(*RUN)
    assert (again.status, again.out.splitlines()[-1]) == (0, "Done: 2 of 2 tasks done.")
    assert (landed(here), len(first)) == (first, 2)
    assert states(here) == ["COMPLETED", "COMPLETED"]
    assert to_begin(here) == []


def test_what_was_taken_back_is_to_do_again(guarded: Any) -> None:
    """Undo asks for it again, from a later run too; while it stands, `reset` refuses and names the undo."""
    here = listed(guarded)
    for _ in range(2):
        assert here.fresh(*RUN).status == 0
    refused = here("reset", "1")
    assert refused.status == 2 and "holdfast undo" in refused.err
    assert here("undo", "1", "--yes").status == 0
    assert not (here.directory / "a.py").exists()
    assert to_begin(here) == ["1"]
    assert here.fresh(*RUN).status == 0
    assert (here.directory / "a.py").exists()
    assert sum("a.py" in title and "ndo" not in title for title in commits(here)) == 2


def test_what_git_took_back_can_be_set_back(guarded: Any) -> None:
    """Past Holdfast nothing says that it is to do again; whoever says so is not told to undo what is gone already."""
    here = listed(guarded)
    assert here.fresh(*RUN).status == 0
    git(here, "reset", "-q", "--hard", "HEAD~1")
    assert here("undo", "2", "--yes").out.splitlines()[-1] == "The workspace stands like that already; nothing to do."
    assert to_begin(here) == []
    assert here("reset", "1").status == 2
    assert here("reset", "2").status == 0
    assert to_begin(here) == ["2"]
    assert here.fresh(*RUN).status == 0
    assert (here.directory / "b.py").exists()


@pytest.mark.parametrize("text", [LIST, "# Plan\n\n- [ ] Create a.py\n- [ ] Create b.py\n"], ids=["list", "boxes"])
def test_a_run_that_goes_on_knows_what_another_landed(guarded: Any, text: str) -> None:
    """What it left open was landed by a later run: `resume` of the first one does not begin it again."""
    here = listed(guarded, text)
    first = here.fresh(*RUN, "--json").document["id"]
    assert here("undo", "create-a", "--yes").status == 0
    assert here.fresh(*RUN).status == 0
    done = commits(here)
    again = here.fresh("resume", first, "--yes")
    assert (again.status, again.out.splitlines()[-1]) == (0, "Done: 2 of 2 tasks done.")
    assert commits(here) == done
    assert here("undo", "create-a", "--yes").status == 0
    assert len(to_begin(here)) == 1


def test_prose_is_done_once(guarded: Any) -> None:
    """The tasks that an agent found in prose are known by their ids, as long as the text stays."""
    here = listed(guarded, PROSE)
    finder = here.directory.parent / "finder.py"
    answer = json.dumps({"version": 1, "title": "Plan", "tasks": ROWS})
    finder.write_text(f"open({FILE!r}, 'w').write({answer!r})\n")
    told = '[agents.{}]\ncommand = ["python3", "{}", "{{task_file}}"]\nnetwork = "none"\n'
    configured(told.format("mine", script(here)) + told.format("finder", finder))
    first = here.fresh(*RUN, "--normalise", "finder")
    assert first.status == 0, first.err
    done = commits(here)
    again = here.fresh(*RUN)
    assert (again.status, again.out.splitlines()[-1]) == (0, "Done: 2 of 2 tasks done.")
    assert commits(here) == done


def test_boxes_that_were_left_alone_are_no_wish(guarded: Any) -> None:
    """After --no-sync an open box was never ticked, so nobody asks for the task by it: it is done. Once `sync` ticked
    it, it is a person's."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    assert here.fresh(*RUN, "--no-sync").status == 0
    done = commits(here)
    again = here.fresh(*RUN, "--no-sync")
    assert (again.status, again.out.splitlines()[-1]) == (0, "Done: 2 of 2 tasks done.")
    assert (commits(here), boxes(here)) == (done, "..")
    first = here("show", "1.1", "--json").document["run"]
    assert here("sync", first).status == 0
    assert boxes(here) == "xx"
    untick(here, "1.2")
    assert to_begin(here) == ["1.2"]


def test_a_box_that_a_person_unticked_asks_again(guarded: Any) -> None:
    """A run ticked it, so an open box is a person's wish, whatever the records say; the others stay done."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    assert here.fresh(*RUN).status == 0
    untick(here, "1.2")
    assert to_begin(here) == ["1.2"]
    assert states(here) == ["COMPLETED", "COMPLETED"]


def test_what_an_earlier_run_landed_and_ticked_is_not_reset(guarded: Any) -> None:
    """Its box is set, and the newest run has no record of it: `reset` and `retry` refuse all the same, and name the
    undo. What only its box calls done is set back to do, and `resume` does it."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    assert here.fresh(*RUN, "--only", "1.1").status == 0
    roadmap: Path = here.directory / "ROADMAP.md"
    roadmap.write_text(roadmap.read_text().replace("[ ] 1.2", "[x] 1.2"))
    assert here.fresh(*RUN).status == 0
    for verb in ("reset", "retry"):
        refused = here(verb, "1.1")
        assert refused.status == 2 and "holdfast undo create-a" in refused.err, refused
    assert states(here) == ["COMPLETED", "COMPLETED"]
    assert here("reset", "1.2").status == 0
    assert states(here) == ["COMPLETED", "PENDING"]
    assert here.fresh("resume", "--yes").status == 0
    assert (here.directory / "b.py").exists()


def test_sync_ticks_what_earlier_runs_landed(guarded: Any) -> None:
    """A task that was landed with --no-sync is done for the newest run, which did not begin it: `sync` sets its box,
    and leaves alone what a person emptied after a run had ticked it."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    assert here.fresh(*RUN, "--no-sync", "--no-checkpoint", "--only", "1.2").status == 0
    assert here.fresh(*RUN).status == 0
    assert (states(here), boxes(here)) == (["COMPLETED", "COMPLETED"], "x.")
    assert "is ticked as things stand" in here("sync").out
    assert boxes(here) == "xx"
    untick(here, "1.2")
    assert "was in line already" in here("sync").out
    assert boxes(here) == "x."


def test_going_on_tries_the_checks_where_work_waits_to_land(guarded: Any) -> None:
    """`resume` says which checks there will be, in the words of `run`."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    first = here.fresh("run", "--agent", "mine", "--yes", "--ask", "after", "--max-tasks", "1")
    told = [line for line in first.err.splitlines() if line.startswith("Checks: ")]
    assert first.status == 3 and told
    assert here("review", "1.1", "--yes").status == 0
    done = here.fresh("resume", "--yes")
    assert [line for line in done.err.splitlines() if line.startswith("Checks: ")] == told


def test_a_task_says_whom_it_waits_for_over_a_file(guarded: Any) -> None:
    """While work on a file waits for a person, the next task on that file says so, in `tasks`, `show` and the end of
    the run; what was begun is not said to wait for it."""
    here = mapped(guarded)
    roadmap = here.directory / "ROADMAP.md"
    roadmap.write_text(
        "# Plan\n\n- [ ] 1.1 Create a.py\n  Files: a.py\n- [ ] 1.2 Create b.py\n"
        "- [ ] 1.3 Create c.py\n  Files: a.py, c.py\n"
    )
    done = here.fresh("run", "--agent", "mine", "--yes", "--ask", "after")
    assert done.status == 3, done.err
    line = "waits for 1.1 (both are about a.py)"
    assert states(here)[2] == "PENDING"
    assert "waits for" not in "".join(here("tasks").out.splitlines()[1:3])
    assert line in here("tasks").out.splitlines()[3] and line in here("show", "1.3").out and line in done.out
