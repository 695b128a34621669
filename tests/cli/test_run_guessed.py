"""A roadmap whose tasks do not say themselves that they are some: nothing of it is begun before a person says so."""

from __future__ import annotations

from typing import Any

import pytest

from delegated import configured
from roadmapped import commits, git, mapped, script
from terminals import Terminal, start

LIST = "# To do\n\n- Create a.py\n- Create b.py\n\n## Done\n\n- Create old.py\n"
RUN = ("run", "--agent", "mine", "--yes")


def listed(guarded: Any) -> Any:
    here = mapped(guarded)
    (here.directory / "ROADMAP.md").write_text(LIST)
    git(here, "commit", "-qam", "roadmap")
    return here


@pytest.fixture
def terminal() -> Any:
    made = Terminal()
    yield made
    made.close()


def test_a_guessed_roadmap_is_not_begun_without_a_word(guarded: Any) -> None:
    """Without a terminal a run over it is refused with exit 3, `--yes` or not, and says what would be a word."""
    here = listed(guarded)
    refused = here(*RUN)
    assert refused.status == 3
    assert "2 tasks of ROADMAP.md would begin" in refused.err and "--take-guessed" in refused.err
    assert not (here.directory / "a.py").exists() and commits(here) == ["roadmap"]
    assert here("tasks", "--json").document["kind"] == "roadmap"  # no run was written down


def test_the_flag_says_that_these_are_the_tasks(guarded: Any) -> None:
    """`--take-guessed` runs it; what is listed as done is left alone."""
    here = listed(guarded)
    assert here(*RUN, "--take-guessed").status == 0
    assert (here.directory / "a.py").exists() and (here.directory / "b.py").exists()
    assert len([title for title in commits(here) if "Create" in title]) == 2


def test_a_task_that_is_named_is_meant(guarded: Any) -> None:
    """Whoever names one with `--only` said that it is a task."""
    here = listed(guarded)
    named = here("tasks", "--json").document["tasks"][1]["id"]
    assert here(*RUN, "--only", named).status == 0
    assert (here.directory / "b.py").exists() and not (here.directory / "a.py").exists()


def test_the_configuration_can_take_them(guarded: Any) -> None:
    """`[run] guessed = "take"` of the user's own configuration; the project's cannot say it."""
    here = listed(guarded)
    (here.directory / "holdfast.toml").write_text('[run]\nguessed = "take"\n')
    assert here(*RUN).status != 0 and not (here.directory / "a.py").exists()
    (here.directory / "holdfast.toml").unlink()
    command = f'command = ["python3", "{script(here)}", "{{task_file}}"]'
    configured(f'[run]\nguessed = "take"\n[agents.mine]\n{command}\nnetwork = "none"\n')
    assert here(*RUN).status == 0 and (here.directory / "a.py").exists()


@pytest.mark.parametrize(("reply", "status"), [("y\n", 0), ("n\n", 3), ("\n", 3)])
def test_a_person_is_shown_the_tasks_and_asked(guarded: Any, terminal: Terminal, reply: str, status: int) -> None:
    """At a terminal all of them are shown with their lines; only yes begins the run."""
    here = listed(guarded)
    process = start(here, terminal, *RUN)
    terminal.read_until("Are these the 2 tasks to work on? [y/N]", 60)
    assert "3  Create a.py" in terminal.text and "4  Create b.py" in terminal.text
    assert "Create old.py" not in terminal.text
    terminal.type(reply)
    terminal.read_all()
    while process.poll() is None:
        terminal.read_all()
    assert process.returncode == status
    assert (here.directory / "a.py").exists() == (status == 0)


def test_the_documents_say_how_sure_the_reader_is(guarded: Any) -> None:
    """`tasks --json` has the format, the confidence, the remarks with their lines, and phases by name."""
    here = listed(guarded)
    found = here("tasks", "--json").document
    assert (found["format"], found["confidence"], found["phases"]) == ("list", "guessed", [])
    assert [row["line"] for row in found["remarks"]] == [3]
    assert here("run", "--dry-run", "--agent", "mine", "--json").document["confidence"] == "guessed"
    (here.directory / "ROADMAP.md").write_text("## Phase 1: Base\n- [ ] Create a.py\n- [y] Odd\n")
    found = here("tasks", "--json").document
    assert (found["format"], found["confidence"]) == ("roadmap", "marked")
    assert [phase["title"] for phase in found["phases"]] == ["Base"]
    assert [task["phase_title"] for task in found["tasks"]] == ["Base"]
    assert [(row["line"], "no known mark" in row["text"]) for row in found["remarks"]] == [(3, True)]
