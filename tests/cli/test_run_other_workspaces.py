"""Tasks that wait for a task of another workspace, which the user's own configuration names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from delegated import configured
from roadmapped import boxes, mapped, script


def _here(guarded: Any, other: Path | None, *titles: str) -> Any:
    here = mapped(guarded, *titles)
    named = f'[run.workspaces]\nlib = "{other}"\n' if other is not None else ""
    configured(f'[agents.mine]\ncommand = ["python3", "{script(here)}", "{{task_file}}"]\nnetwork = "none"\n{named}')
    return here


def _other(tmp_path: Path, box: str) -> Path:
    other = tmp_path / "lib"
    other.mkdir()
    (other / "ROADMAP.md").write_text(f"# Lib\n\n- [x] 1.1 Begin\n- [{box}] 1.2 Add the parser\n")
    return other


def test_a_task_waits_for_one_of_another_workspace(guarded: Any, tmp_path: Path) -> None:
    """It is held back, with the reason, until the task there is ticked; the others go on, and so does it then.

    The number behind the sign is the other roadmap's, and no task of this one.
    """
    other = _other(tmp_path, " ")
    here = _here(guarded, other, "Create a.py (depends on lib#1.2)", "Create b.py", "Create c.py (depends on 1.1)")
    first = here.fresh("run", "--agent", "mine", "--yes")
    assert boxes(here) == ".x."
    assert first.status == 11
    assert "1 task cannot begin: it waits for lib#1.2, which is not done there; 1 of 3 tasks done, 1 left." in first.out
    held = {row["number"]: row["because"] for row in here.fresh("tasks", "--json").document["tasks"]}
    assert held["1.1"] == "it waits for lib#1.2, which is not done there"
    assert "lib#1.2" in first.out + first.err
    (other / "ROADMAP.md").write_text("# Lib\n\n- [x] 1.1 Begin\n- [x] 1.2 Add the parser\n")
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert done.status == 0, done.err
    assert boxes(here) == "xxx"


def test_a_phase_waits_for_a_task_of_another_workspace(guarded: Any, tmp_path: Path) -> None:
    """A prerequisite holds back every task of its phase, and its numbers are the other roadmap's; what it says of
    phases here counts as well."""
    other = _other(tmp_path, " ")
    here = _here(guarded, other, "Create z.py")
    (here.directory / "ROADMAP.md").write_text(
        "# Map\n\n## Phase 1: One\n- [ ] Create a.py\n\n"
        "## Phase 2: Two\n> **Prerequisite**: Phase 1, lib#1.2\n- [ ] Create b.py\n- [ ] Create c.py\n"
    )
    preview = here.fresh("run", "--agent", "mine", "--dry-run", "--json").document
    assert [row["because"] for row in preview["held"]] == ["it waits for lib#1.2, which is not done there"] * 2
    assert [row["title"] for row in preview["turns"]] == ["Create a.py"]
    (other / "ROADMAP.md").write_text("# Lib\n\n- [x] 1.1 Begin\n- [x] 1.2 Add the parser\n")
    preview = here.fresh("run", "--agent", "mine", "--dry-run", "--json").document
    assert preview["held"] == []
    assert [row["wave"] for row in preview["turns"]] == [1, 2, 2]


@pytest.mark.parametrize(
    ("reference", "named", "because"),
    [
        ("lib#1.1", True, ""),
        ("lib#9.9", True, "it waits for lib#9.9, and no task is called so there"),
        ("lib#1.2", False, "it waits for lib#1.2, and [run.workspaces] in your configuration names no lib"),
        ("api#1.1", True, "it waits for api#1.1, and [run.workspaces] in your configuration names no api"),
    ],
)
def test_what_is_not_found_elsewhere_holds_the_task_back(
    guarded: Any, tmp_path: Path, reference: str, named: bool, because: str
) -> None:
    """Only what is done there lets it begin: an unknown workspace or task never does, and the reason says which."""
    other = _other(tmp_path, " ")
    here = _here(guarded, other if named else None, f"Create a.py (depends on {reference})")
    preview = here.fresh("run", "--agent", "mine", "--dry-run", "--json").document
    assert [row["because"] for row in preview["held"]] == ([because] if because else [])


def test_a_link_to_a_roadmap_elsewhere_is_not_followed(guarded: Any, tmp_path: Path) -> None:
    """A roadmap that is a link counts as none that can be read."""
    other = _other(tmp_path, "x")
    (other / "ROADMAP.md").rename(other / "elsewhere.md")
    (other / "ROADMAP.md").symlink_to("elsewhere.md")
    here = _here(guarded, other, "Create a.py (depends on lib#1.2)")
    preview = here.fresh("run", "--agent", "mine", "--dry-run", "--json").document
    (row,) = preview["held"]
    assert row["because"].endswith("has no roadmap that can be read")


def test_a_project_cannot_name_other_workspaces(guarded: Any, tmp_path: Path) -> None:
    """[run.workspaces] in holdfast.toml is refused, with the way on: what is read elsewhere is the user's to say."""
    here = _here(guarded, None, "Create a.py")
    (here.directory / "holdfast.toml").write_text(f'[run.workspaces]\nlib = "{tmp_path}"\n')
    done = here.fresh("run", "--agent", "mine", "--dry-run")
    assert done.status == 2
    assert "your own configuration" in done.err


def test_what_nobody_left_out_is_not_called_done(guarded: Any, tmp_path: Path) -> None:
    """Nothing began, since it waits for what cannot be found: exit 11 and the reason, also for who names the task or
    goes on; what was not asked for waits without a word."""
    here = _here(guarded, None, "Create a.py (depends on nope#1)", "Create b.py")
    because = "it waits for nope#1, and [run.workspaces] in your configuration names no nope"
    words = f"1 task cannot begin: {because}; 0 of 2 tasks done, 1 left."
    named = here.fresh("run", "--agent", "mine", "--yes", "--only", "1.1")
    assert (named.status, named.out.splitlines()[-2:]) == (11, [words, "Go on with: holdfast run --agent mine --yes"])
    asked = here.fresh("run", "--agent", "mine", "--yes", "--only", "1.2")
    assert (asked.status, boxes(here)) == (0, ".x")
    done = here.fresh("run", "--agent", "mine", "--yes", "--json")
    assert (done.status, done.document["exit"], done.document["next"]) == (11, 11, "holdfast run --agent mine --yes")
    again = here.fresh("resume")
    assert (again.status, again.out.splitlines()[-2]) == (11, f"1 task cannot begin: {because}; 1 of 2 tasks done.")
