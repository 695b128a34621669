"""A person ticks boxes while a run is stopped: what they did is done, and no agent is asked for it."""

from __future__ import annotations

from typing import Any

import pytest

from roadmapped import boxes, git, mapped, states

pytestmark = pytest.mark.long


def tick(here: Any, number: str) -> None:
    path = here.directory / "ROADMAP.md"
    path.write_text(path.read_text().replace(f"- [ ] {number} ", f"- [x] {number} "))


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "not committed"])
def test_what_a_person_ticked_meanwhile_is_done_by_them(guarded: Any, commit: bool) -> None:
    """One that was stopped in the middle, one that failed, and one that was never begun: `resume` begins none of them,
    does what needs them, and says that they were ticked by hand."""
    here = mapped(guarded, "Create a.py badly", "Create b.py (depends on 1.1)", "Create c.py", "Create d.py")
    done = here.fresh("run", "--agent", "mine", "--yes", "--attempts", "1", "--on-failure", "stop")
    assert (done.status, states(here)[0]) == (11, "FAILED"), done
    for number in ("1.1", "1.3"):
        tick(here, number)
    if commit:
        git(here, "commit", "-qam", "done by hand")
    done = here.fresh("resume", "--yes")
    assert done.status == 0, done
    assert (boxes(here), states(here)) == ("xxxx", ["COMPLETED"] * 4)
    assert not (here.directory / "a.py").exists() and not (here.directory / "c.py").exists()
    assert (here.directory / "b.py").exists() and (here.directory / "d.py").exists()
    assert "1.1 Create a.py badly             done  ticked by hand, so no agent was asked" in done.out, done.out
    assert "ticked by hand" in here("show", "1.1").out
