"""Work that no check could verify: a person is asked whatever `--yes` says, and every line about it says so."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delegated import configured
from roadmapped import commits, git, mapped, states

pytestmark = pytest.mark.long


def untested(program: Any, *titles: str) -> Any:
    """A project without anything that could be run."""
    here = mapped(program, *titles)
    (here.directory / "Makefile").unlink()
    git(here, "commit", "-qam", "no tests")
    return here


def test_a_run_waits_with_what_nothing_verified_although_it_has_a_yes(guarded: Any) -> None:
    """Exit 3 with the reason; the answer lands it, and line, table, tasks, show, JSON and commit carry the mark."""
    here = untested(guarded, "Create a.py")
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert done.status == 3, done.err
    assert "needs you: unverified: no tests were found" in done.err
    assert "needs you: unverified: no tests were found" in done.out
    assert "unverified: no tests were found" in here("review").out
    assert here("review", "1.1", "--yes").status == 0
    assert "unverified: no tests were found" in here("tasks").out
    done = here.fresh("resume", "--yes")
    assert done.status == 0, done.err
    assert "✓ 1.1 Create a.py: landed  unverified: no tests were found" in done.err
    assert "Done: 1 of 1 task done, 1 of them unverified." in done.out
    assert "landed  unverified: no tests were found" in here("tasks").out
    assert "landed  unverified: no tests were found" in here("show", "1.1").out
    document = here("tasks", "--json").document
    assert document["tasks"][0]["unverified"] == "no tests were found" and document["totals"]["unverified"] == 1
    assert "Holdfast-Unverified: no tests were found" in git(here, "log", "-1", "--format=%B")


def test_a_yes_of_resume_leaves_what_nothing_verified_as_it_waits(guarded: Any) -> None:
    """Exit 3 as before: the same question about the same simulation, and nothing is checked or laid over again."""
    here = untested(guarded, "Create a.py")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 3

    def kept() -> tuple[Any, list[str]]:
        lines = (here.directory / ".holdfast/ledger.jsonl").read_text().splitlines()
        kinds = [kind for kind in (json.loads(line)["kind"] for line in lines) if kind != "run"]
        return here("review", "--json").document["items"], kinds

    before = kept()
    done = here.fresh("resume", "--yes")
    assert (done.status, kept()) == (3, before), done.err
    assert "needs you: unverified: no tests were found" in done.out


def test_the_others_go_on_while_one_waits_unverified(guarded: Any) -> None:
    """A task whose own acceptance command passed lands; the one beside it waits."""
    here = untested(guarded, "Create a.py", "Create b.py")
    roadmap = here.directory / "ROADMAP.md"
    roadmap.write_text(roadmap.read_text() + "\n  Verify: `python3 b.py`\n")
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert done.status == 3, done.err
    assert states(here) == ["NEEDS_REVIEW", "COMPLETED"], done.out
    assert "unverified" not in git(here, "log", "-1", "--format=%B").lower()


def test_the_users_configuration_lets_it_land(guarded: Any) -> None:
    """With `[run] unverified = "land"` nobody is asked, and the end says how many are unverified."""
    here = untested(guarded, "Create a.py")
    mine = json.dumps(["python3", str(here.directory.parent / "agent.py"), "{task_file}"])
    configured(f'[agents.mine]\ncommand = {mine}\nnetwork = "none"\n[run]\nunverified = "land"\n')
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert done.status == 0, done.err
    assert "1 of them unverified" in done.out and len(commits(here)) == 2


def test_a_command_that_was_red_before_waits_and_lands_with_an_answer(guarded: Any) -> None:
    """`make test` fails before and after: the run waits whatever it was told; a person's yes lands it, marked."""
    here = mapped(guarded, "Create a.py")
    (here.directory / "Makefile").write_text("test:\n\tfalse\n")
    git(here, "commit", "-qam", "red tests")
    why = "unverified: `make test` failed before this change too"
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert done.status == 3 and f"needs you: {why}" in done.out, done.err
    assert here("review", "1.1", "--yes").status == 0
    done = here.fresh("resume", "--yes")
    assert done.status == 0 and "1 of them unverified" in done.out, done.err
    assert f"Holdfast-U{why[1:]}" in git(here, "log", "-1", "--format=%B")


def test_apply_asks_about_what_was_red_before(guarded: Any) -> None:
    """Without a yes it ends with exit 3 and the reason; with one it lands."""
    here = mapped(guarded, "Create a.py")
    (here.directory / "Makefile").write_text("test:\n\tfalse\n")
    change = here.directory / "change.yaml"
    change.write_text("intent: notes\nsteps:\n  - write: notes.txt\n    content: x\nverify: Run all checks\n")
    done = here("apply", str(change))
    assert done.status == 3 and "`make test` failed before this change too" in done.out + done.err, done.err
    assert here("apply", str(change), "--yes").status == 0
    assert (here.directory / "notes.txt").exists()


def test_lists_and_executions_say_that_work_landed_unverified(guarded: Any) -> None:
    """`log`, `status`, `trace`, `show` of the execution and of its intent, and their JSON, give the reason; of work
    that a check passed they say nothing of the kind."""
    here = untested(guarded, "Create a.py", "Create b.py")
    roadmap = here.directory / "ROADMAP.md"
    roadmap.write_text(roadmap.read_text() + "\n  Verify: `python3 b.py`\n")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 3
    assert here("review", "1.1", "--yes").status == 0
    assert here.fresh("resume", "--yes").status == 0
    why = "unverified: no tests were found"
    first, second = (task["execution"] for task in here("tasks", "--json").document["tasks"])
    assert f"Checked   {why}" in here("show", first).out and "unverified" not in here("show", second).out
    assert here("show", first, "--json").document["unverified"] == "no tests were found"
    listed = {row["id"]: row["unverified"] for row in here("log", "--json").document["items"] if "unverified" in row}
    assert listed[first] == "no tests were found" and listed[second] == ""
    assert [line.split()[0] for line in here("log").out.splitlines() if why in line] == [first]
    assert f"2 landed, 1 {why}" in here("status").out
    assert here("status", "--json").document["run"]["unverified"] == 1
    assert why in here("show", here("show", first, "--json").document["intent_id"]).out
    assert all(why in line for line in here("trace", first).out.splitlines() if " execution " in line)
