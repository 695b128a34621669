"""A branch that is deleted, or whose work tree is taken: nothing is lost, and the way back can be pasted."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from branched import change, driven, kept, titles
from holdfast.errors import HoldfastError
from holdfast.model.run import TaskCompleted
from roadmapped import git, mapped


def _pasted(program: Any, told: str, begin: str) -> None:
    """Run the line that begins so, as it was told."""
    command = next(line for line in told.splitlines() if line.strip().startswith(begin)).strip().removeprefix(begin)
    subprocess.run(command, shell=True, cwd=program.directory.parent, check=True, capture_output=True)


def _delete(program: Any) -> None:
    """As a person does who insists: git refuses `branch -D` while the work tree is kept."""
    git(program, "update-ref", "-d", "refs/heads/night")


@pytest.mark.parametrize("words", [["apply", "change.yaml"], ["run"], ["log"], ["status"]])
def test_an_empty_name_is_refused(guarded: Any, words: list[str]) -> None:
    """`--branch=` before and after the verb: exit 2, and nothing lands in the checkout instead."""
    here = mapped(guarded, "Create a.py")
    change(here)
    before = git(here, "status", "--porcelain", "--ignored")
    for line in (["--branch=", *words], [*words, "--branch", ""], ["--branch", "night", *words, "--branch="]):
        told = here(*line)
        assert (told.status, "--branch needs the name of a branch" in told.err) == (2, True)
    assert git(here, "status", "--porcelain", "--ignored") == before
    assert git(here, "branch", "--list", "night") == ""


def test_a_deleted_branch_is_put_back_by_what_is_told(guarded: Any) -> None:
    """Every verb on it is refused with exit 5 and the last commit in a command; after that it goes on, whole."""
    here = mapped(guarded, "Create a.py")
    assert here("apply", "--branch", "night", change(here), "--yes").status == 0
    tip = git(here, "rev-parse", "night")
    _delete(here)
    for words in (["log"], ["apply", change(here), "--yes"], ["run", "--agent", "mine", "--yes"]):
        told = here(*words, "--branch", "night")
        assert (told.status, "the branch night was deleted" in told.err) == (5, True)
    assert git(here, "branch", "--list", "night") == ""
    _pasted(here, told.err, "Put it back: ")
    assert git(here, "rev-parse", "night") == tip
    assert here("undo", "--branch", "night", "--yes", "e-" + _execution(here)).status == 0
    assert git(here, "-C", str(kept(here)), "status", "--short") == ""


def _execution(program: Any) -> str:
    told = git(program, "log", "-1", "--format=%(trailers:key=Holdfast-Execution,valueonly)", "night")
    return told.strip().removeprefix("e-")


def test_a_branch_that_is_deleted_in_mid_run_stops_it(guarded: Any) -> None:
    """What landed stays, nothing more lands and no attempt is used up; the end names the command that brings the branch
    back, exit 5; `resume` then does what is left, and every landing is one commit."""
    here = mapped(guarded, "Create a.py", "Create b.py", "Create c.py")
    run = driven(here, TaskCompleted, lambda: _delete(here))
    assert (run.state, "the branch night was deleted" in run.because) == ("STOPPED", True)
    told = here.fresh("resume", "--branch", "night")
    assert told.status == 5
    assert git(here, "branch", "--list", "night") == ""
    _pasted(here, told.err, "Put it back: ")
    assert titles(here, "night") == ["base", "1.1 Create a.py"]
    tasks = here("tasks", "--branch", "night", "--json").document["tasks"]
    assert tasks[0]["status"] == "COMPLETED"
    assert here.fresh("resume", "--branch", "night", "--yes").status == 0
    assert titles(here, "night") == ["base", "1.1 Create a.py", "1.2 Create b.py", "1.3 Create c.py"]
    assert git(here, "-C", str(kept(here)), "status", "--short") == ""
    tasks = here("tasks", "--branch", "night", "--json").document["tasks"]
    assert {task["attempts"] for task in tasks} == {1}


def test_what_a_run_could_not_commit_is_no_success(guarded: Any) -> None:
    """Something that git cannot do after the last landing: exit 5 and why, not exit 0; `resume` makes the commit."""
    here = mapped(guarded, "Create a.py")
    assert here("apply", "--branch", "night", change(here), "--yes").status == 0
    lock = here.directory / ".git" / "refs" / "heads" / "night.lock"
    lock.write_bytes(b"")
    done = here.fresh("run", "--branch", "night", "--agent", "mine", "--yes")
    assert done.status == 5, done.out
    assert "what lands cannot be committed" in done.out
    lock.unlink()
    assert here.fresh("resume", "--branch", "night", "--yes").status == 0
    assert titles(here, "night") == ["base", "Add b", "1.1 Create a.py"]
    assert git(here, "-C", str(kept(here)), "status", "--short") == ""


@pytest.mark.parametrize("how", ["removed", "a directory", "another repository", "forgotten"])
def test_a_work_tree_without_its_git_is_refused(guarded: Any, tmp_path: Path, how: str) -> None:
    """Its `.git` is gone, is a directory, leads elsewhere, or git forgot it: exit 5, and nothing is taken away."""
    here = mapped(guarded, "Create a.py")
    assert here("apply", "--branch", "night", change(here), "--yes").status == 0
    tree, other = kept(here), tmp_path / "other"
    subprocess.run(["git", "init", "-q", "-b", "night", str(other)], check=True)
    subprocess.run(["git", "-C", str(other), "commit", "-q", "--allow-empty", "-m", "other"], check=True)
    if how == "forgotten":
        shutil.rmtree(here.directory / ".git" / "worktrees")
    else:
        (tree / ".git").unlink()
    if how == "a directory":
        shutil.copytree(other / ".git", tree / ".git")
    elif how == "another repository":
        (tree / ".git").write_text(f"gitdir: {other}/.git\n")
    for words in (["log"], ["apply", change(here), "--yes"], ["run", "--agent", "mine", "--yes"]):
        told = here(*words, "--branch", "night")
        assert told.status == 5, told.err
        assert "history are kept in it" in told.err
    assert (tree / ".holdfast" / "ledger.jsonl").exists() and (tree / "b.py").exists()
    assert git(here, "-C", str(other), "log", "--format=%s") == "other\n"
    if how == "forgotten":
        return
    if how == "a directory":
        assert f"Move {tree}/.git away first." in told.err
        (tree / ".git").rename(tmp_path / "away")
    _pasted(here, told.err, "Mend it: ")
    assert here("log", "--branch", "night").status == 0


def test_one_broken_branch_hides_no_other(guarded: Any) -> None:
    """`status` still lists those that stand."""
    here = mapped(guarded, "Create a.py")
    assert here("apply", "--branch", "night", change(here), "--yes").status == 0
    (kept(here) / ".git").write_text("gitdir: /etc\n")
    assert here("apply", "--branch", "day", change(here), "--yes").status == 0
    assert here("status", "--json").document["branches"] == ["day"]


@pytest.mark.long
def test_a_work_tree_that_is_removed_in_mid_run_is_no_success(guarded: Any) -> None:
    """With `git worktree remove --force` its history goes too: the run ends with an error; the branch has what landed,
    and can be begun again."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    with pytest.raises((HoldfastError, OSError)):
        driven(here, TaskCompleted, lambda: git(here, "worktree", "remove", "--force", str(kept(here))))
    assert titles(here, "night") == ["base", "1.1 Create a.py"]
    assert here.fresh("run", "--branch", "night", "--agent", "mine", "--yes").status == 0
    assert titles(here, "night") == ["base", "1.1 Create a.py", "1.2 Create b.py"]
