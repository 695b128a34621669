"""Agents that edit the roadmap beside their task: its title, its end, a note under another task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from branched import kept
from roadmapped import AGENT, git, mapped, script

pytestmark = pytest.mark.long

EDITS = (
    AGENT
    + """
text = open("ROADMAP.md").read()
if name == "a":
    text = text.replace("# Plan\\n", "# Our plan\\n", 1)
if name == "b":
    text = text.rstrip("\\n") + "\\n\\nThe end.\\n"
if name == "c":
    text = text.replace("1.1 Create a.py\\n", "1.1 Create a.py\\n  Done by hand, once.\\n")
open("ROADMAP.md", "w").write(text)
"""
)
ROADMAP = "# Plan\n\n## Phase 1: Base\n\n- [ ] 1.1 Create a.py\n- [ ] 1.2 Create b.py\n- [ ] 1.3 Create c.py"
AFTER = """# Our plan

## Phase 1: Base

- [x] 1.1 Create a.py
  Done by hand, once.
- [x] 1.2 Create b.py
- [x] 1.3 Create c.py

The end.
"""
WAYS = {
    "serial": ((), ()),
    "parallel": ((), ("--parallel", "2")),
    "group": ((), ("--group", "section")),
    "branch": (("--branch", "work"), ()),
}


def edited(program: Any, before: tuple[str, ...], words: tuple[str, ...]) -> Any:
    """A run to its end; what touches another task's lines is allowed by a person."""
    here = mapped(program)
    (here.directory / "ROADMAP.md").write_text(ROADMAP)
    script(here).write_text(EDITS)
    git(here, "commit", "-qam", "roadmap")
    done = here.fresh(*before, "run", "--agent", "mine", "--yes", *words)
    while done.status == 3:
        for item in here(*before, "review", "--json").document["items"]:
            assert "changes other tasks of the roadmap" in item["because"], item
            assert here(*before, "review", item["id"], "--yes").status == 0
        done = here.fresh(*before, "resume", "--yes")
    assert done.status == 0, done
    return here


@pytest.mark.parametrize("way", WAYS)
def test_a_task_whose_agent_edits_the_roadmap_gets_its_commit(guarded: Any, way: str) -> None:
    """Title, end and note land, every box is ticked, each task has its commit, and git has nothing left to commit."""
    before, words = WAYS[way]
    here = edited(guarded, before, words)
    place: Path = kept(here) if way == "branch" else here.directory
    assert (place / "ROADMAP.md").read_text() == AFTER
    tasks = here(*before, "tasks", "--json").document["tasks"]
    assert all(task["commit"] and not task["because"] for task in tasks), tasks
    assert git(here, "-C", str(place), "status", "--short") == ""
    assert git(here, "-C", str(place), "show", "HEAD:ROADMAP.md") == AFTER


def test_an_undo_of_such_a_task_is_not_stopped_by_the_ticks_beside_its_lines(guarded: Any) -> None:
    """Its words go and its box is empty; the boxes and words of the others stay, and git has nothing left to commit."""
    here, wanted = edited(guarded, (), ()), AFTER
    without = {"1.2": ("\n\nThe end.\n", ""), "1.3": ("  Done by hand, once.\n", ""), "1.1": ("# Our plan", "# Plan")}
    for number, words in without.items():
        done = here.fresh("undo", number, "--yes")
        assert done.status == 0, done
        wanted = wanted.replace(*words).replace(f"[x] {number}", f"[ ] {number}")
        assert (here.directory / "ROADMAP.md").read_text() == wanted
        assert git(here, "status", "--short") == ""
    assert wanted == ROADMAP
