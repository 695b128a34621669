"""Undo keeps a later edit, whatever road a change came by: command, kept simulation, agent, roadmap, undo."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from delegated import configured
from roadmapped import AGENT, boxes, mapped, script

LINES = "".join(f"{n}\n" for n in range(1, 21))
CHANGED = LINES.replace("\n3\n", "\nthree\n")
SED = ["sed", "-i", "s/^3$/three/", "f"]
# Edits the line of the shared file that its task names, and makes the file that the task expects.
EDITS = (
    AGENT
    + """
number = re.search(r"line (\\d+)", words).group(1)
text = open("f").read()
open("f", "w").write(text.replace(f"\\n{number}\\n", f"\\nline {number}\\n"))
"""
)


def by_command(here: Any) -> str:
    return str(here.apply({"intent": "Three in words", "steps": [{"run": SED}]}).document["id"])


def by_kept_simulation(here: Any) -> str:
    change = {"intent": "Three in words", "steps": [{"write": "f", "content": CHANGED}]}
    simulation = here("simulate", "-", "--json", stdin=json.dumps(change)).document["id"]
    here("approve", simulation, "--reason", "seen")
    return str(here("execute", simulation, "--json").document["id"])


def by_agent(here: Any) -> str:
    configured(f"[agents.mine]\ncommand = {json.dumps(['/bin/sed', *SED[1:]])}\n")
    done = here("apply", "Write three in words in f", "--agent", "mine", "--yes", "--json")
    return str(done.document["id"])


def by_undo_of_an_undo(here: Any) -> str:
    back = here("undo", by_command(here), "--yes", "--json").document["id"]
    return str(here("undo", back, "--yes", "--json").document["id"])


ROADS = {
    "command": by_command,
    "kept simulation": by_kept_simulation,
    "agent": by_agent,
    "redo": by_undo_of_an_undo,
}


@pytest.fixture
def here(guarded: Any) -> Any:
    (guarded.directory / "f").write_text(LINES)
    return guarded


@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_a_later_edit_elsewhere_is_kept(here: Any, road: Callable[[Any], str]) -> None:
    """Our line goes, theirs stays; the difference is still told in full, and redo merges as well."""
    id, file = road(here), here.directory / "f"
    assert file.read_text() == CHANGED
    file.write_text(CHANGED + "21\n")
    shown = here("diff", id)
    assert "-3\n" in shown.out and "+three\n" in shown.out and "no longer kept" not in shown.out, shown
    undone = here("undo", id, "--yes", "--json")
    assert undone.status == 0, undone
    assert file.read_text() == LINES + "21\n"
    file.write_text(LINES + "21\n22\n")
    assert here("undo", undone.document["id"], "--yes").status == 0
    assert file.read_text() == CHANGED + "21\n22\n"


@pytest.mark.parametrize("road", ROADS.values(), ids=ROADS)
def test_a_later_edit_in_the_same_place_is_a_conflict_with_its_reason(here: Any, road: Callable[[Any], str]) -> None:
    """Exit 8, nothing changed, and it says where; a text that is not kept is told as that, and not as an overlap."""
    id, file = road(here), here.directory / "f"
    file.write_text(CHANGED.replace("three", "drei"))
    done = here("undo", id, "--yes")
    assert (done.status, "f was edited since, in the same place" in done.err) == (8, True), done
    file.write_text(CHANGED + "21\n")
    (here.directory / ".holdfast/kept" / id / "contents").unlink()
    done = here("undo", id, "--yes")
    assert (done.status, "in the same place" in done.err) == (8, False), done
    assert "f was edited since; the text that this change wrote there is not kept" in done.err
    assert file.read_text() == CHANGED + "21\n"


@pytest.mark.long
def test_two_tasks_of_a_roadmap_in_one_file(guarded: Any) -> None:
    """The first of two tasks is undone: its line goes back, the line of the second stays."""
    (guarded.directory / "f").write_text(LINES)
    here = mapped(guarded, "Create a.py and change line 3 of f", "Create b.py and change line 15 of f")
    script(here).write_text(EDITS)
    ran = here.fresh("run", "--agent", "mine", "--yes")
    assert ran.status == 0, ran
    second = LINES.replace("\n15\n", "\nline 15\n")
    assert (here.directory / "f").read_text() == second.replace("\n3\n", "\nline 3\n")
    undone = here.fresh("undo", "1.1", "--yes")
    assert undone.status == 0, undone
    assert (boxes(here), (here.directory / "f").read_text()) == (".x", second)
    assert (here.directory / "b.py").exists() and not (here.directory / "a.py").exists()
