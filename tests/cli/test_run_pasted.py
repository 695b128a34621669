"""What a run prints to begin again or to go on: pasted as it stands where the first command was given, it works."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from branched import kept
from roadmapped import git, mapped, roadmap_of

pytestmark = pytest.mark.long


def planned(guarded: Any) -> Any:
    """A roadmap under a name that nobody looks for, in a folder of the workspace."""
    here = mapped(guarded)
    (here.directory / "docs").mkdir()
    (here.directory / "docs/my plan.md").write_text(roadmap_of("Create a.py", "Create b.py"))
    git(here, "rm", "-q", "ROADMAP.md")
    git(here, "add", "-A")
    git(here, "commit", "-qm", "plan")
    return here


def pasted(program: Any, told: str) -> Any:
    """The command of the last line, typed where the one before it was."""
    command = shlex.split(told.splitlines()[-1].partition(": ")[2])
    assert command[0] == "holdfast", told
    return program.fresh(*command[1:])


PLACES = {
    "subdirectory": ("workspace/docs", (), "my plan.md"),
    "elsewhere": (".", ("-C", "workspace"), "docs/my plan.md"),
    "elsewhere, on a branch": (".", ("-C", "workspace", "--branch", "work"), "docs/my plan.md"),
}


@pytest.mark.parametrize("place", PLACES)
def test_what_is_printed_can_be_pasted(guarded: Any, place: str) -> None:
    """After a limit `resume`, after a part `run`, with roadmap, agent and consent as given; wherever one stands."""
    here = planned(guarded)
    folder, before, roadmap = PLACES[place]
    there = type(here)(here.directory.parent / folder)
    assert here.directory.name == "workspace"
    done = there.fresh(*before, "run", roadmap, "--agent", "mine", "--yes", "--only", "1.1", "--budget-time", "1ms")
    assert done.status == 10, done
    led = shlex.join(["holdfast", *before])
    assert done.out.splitlines()[-1] == f"Go on with: {led} resume --budget-time 1s --yes", done.out
    assert (done := there.fresh(*before, "resume", "--budget-time", "10m", "--yes")).status == 0, done
    assert done.out.splitlines()[-1] == f"Go on with: {led} run {shlex.quote(roadmap)} --agent mine --yes", done.out
    assert (done := pasted(there, done.out)).status == 0, done
    tree: Path = kept(here) if "--branch" in before else here.directory
    assert (tree / "docs/my plan.md").read_text().count("- [x]") == 2


def test_a_guessed_roadmap_is_run_by_what_the_refusal_prints(guarded: Any) -> None:
    """The hint has agent and consent, and the end of that run has them too."""
    here = mapped(guarded)
    (here.directory / "ROADMAP.md").write_text("# Tasks\n\n1. Create a.py\n2. Create b.py\n")
    git(here, "commit", "-qam", "list")
    refused = here.fresh("run", "--agent", "mine", "--yes", "--max-tasks", "1")
    assert refused.status == 3 and refused.err.rstrip().endswith("run --agent mine --yes --take-guessed"), refused
    done = here.fresh("run", "--agent", "mine", "--yes", "--max-tasks", "1", "--take-guessed")
    assert done.out.splitlines()[-1] == "Go on with: holdfast run --agent mine --yes --take-guessed", done
    assert pasted(here, done.out).status == 0


def test_a_decision_about_a_task_that_is_not_there_is_told(guarded: Any) -> None:
    """Exit 2 with its name, before anything begins; a pattern may fit nothing, and who named an agent is not asked."""
    here = mapped(guarded, "Create a.py")
    rows = [{"task": "1.1", "agent": "mine"}, {"task": "1.7", "agent": "mine"}, {"task": "9.*", "agent": "mine"}]
    (here.directory / "routing_decisions.json").write_text(json.dumps({"version": 1, "decisions": rows}))
    git(here, "add", "-A")
    git(here, "commit", "-qm", "decided")
    for words in (("run", "--yes"), ("run", "--dry-run")):
        refused = here.fresh(*words)
        assert refused.status == 2 and "decides about 1.7, which ROADMAP.md has not" in refused.err, refused
    assert here.fresh("resume").status == 2  # there has been no run
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0


def test_what_waits_has_the_id_of_its_plan(guarded: Any) -> None:
    """`review --json` names what `--plan` wants typed for work of a high risk; where there is no work yet, nothing."""
    here = mapped(guarded, "Create a.py workflow")
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert done.status == 3, done
    (item,) = here("review", "--json").document["items"]
    assert item["plan"].startswith("p-")
    assert here("review", "1.1", "--yes", "--json").status == 3
    answered = here("review", "1.1", "--yes", "--plan", item["plan"], "--json")
    assert (answered.status, answered.document["plan"]) == (0, item["plan"])
    assert here.fresh("resume", "--yes").status == 0
