"""A run that does related tasks together, and an agent that forgets some of them."""

from __future__ import annotations

from typing import Any

import pytest

from roadmapped import boxes, git, mapped, script, states

ROADMAP = (
    "# Plan\n\n## Phase 1: Base\n\n### Texts\n\n- [ ] 1.1 Write s.txt\n- [ ] 1.2 Write t.txt\n- [ ] 1.3 Write u.txt\n"
)
FORGETFUL = """
import re, sys
for name in re.findall(r"Write ([sut])\\.txt", open(sys.argv[1]).read()):
    if name != {forgotten!r}:
        open(name + ".txt", "w").write(name + "\\n")
"""


@pytest.mark.parametrize(("forgotten", "number"), [("u", 2), ("s", 0)])
def test_what_was_done_of_a_group_lands_and_the_rest_is_begun_again(guarded: Any, forgotten: str, number: int) -> None:
    """One file of three is never made: the other two land and are ticked, also where the first task is the one that
    lacks it, and only that one fails, after attempts of its own."""
    here = mapped(guarded)
    (here.directory / "ROADMAP.md").write_text(ROADMAP)
    script(here).write_text(FORGETFUL.format(forgotten=forgotten))
    done = here.fresh("run", "--agent", "mine", "--yes", "--group", "section", "--attempts", "2", "--no-checkpoint")
    assert done.status == 11, done
    wanted = ["COMPLETED"] * 3
    wanted[number] = "FAILED"
    assert states(here) == wanted
    assert boxes(here) == "".join("x" if state == "COMPLETED" else "." for state in wanted)


def test_a_box_that_the_agent_of_a_group_ticked_too_early_is_open_again(guarded: Any) -> None:
    """It ticks both and does one: the other one is not done by that, whatever the file said when it landed."""
    here = mapped(guarded)
    (here.directory / "ROADMAP.md").write_text(ROADMAP)
    git(here, "commit", "-qam", "texts")
    script(here).write_text(
        FORGETFUL.format(forgotten="u")
        + "text = open('ROADMAP.md').read()\nopen('ROADMAP.md', 'w').write(text.replace('[ ]', '[x]'))\n"
    )
    done = here.fresh("run", "--agent", "mine", "--yes", "--group", "section", "--attempts", "2")
    assert (done.status, states(here), boxes(here)) == (11, ["COMPLETED", "COMPLETED", "FAILED"], "xx."), done
    assert git(here, "status", "--short") == ""
