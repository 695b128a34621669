"""`gc --branches`: work trees whose commits are elsewhere go, after consent; one with work in it never does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from branched import change, kept, person
from holdfast.testing import CHANGES, At, FaultyCalls, KillAt
from holdfast.workspace.branch_removal import kept_folders, take_away
from holdfast.workspace.repository import Repository
from roadmapped import git, mapped


def _begun(guarded: Any, *, landed: bool = True) -> Any:
    """A branch `night` with a change of ours, brought in or not."""
    here = mapped(guarded, "Create a.py")
    assert here("apply", "--branch", "night", change(here), "--yes").status == 0
    if landed:
        git(here, "merge", "-q", "--no-edit", "night")
    return here


def _stays(here: Any, why: str) -> None:
    told = here("gc", "--branches", "--yes", "--json")
    assert (told.status, told.document["gone"]) == (0, [])
    assert why in json.dumps(told.document["kept"])
    assert (kept(here) / ".holdfast" / "ledger.jsonl").exists()


def test_a_landed_branch_goes_after_consent(guarded: Any) -> None:
    """Without `--yes` and a terminal: exit 3, and it is listed. Then the work tree goes; the branch stays, and can be
    begun again."""
    here = _begun(guarded)
    before, tip = person(here), git(here, "rev-parse", "night")
    told = here("gc", "--branches")
    assert (told.status, "night: can be taken away" in told.out, kept(here).exists()) == (3, True, True)
    done = here("gc", "--branches", "--yes")
    assert (done.status, "Took away 1 work tree" in done.out) == (0, True)
    assert person(here) == before
    assert git(here, "rev-parse", "night") == tip
    assert git(here, "worktree", "list").count("\n") == 1
    assert not [path for path in (here.directory / ".holdfast" / "branches").iterdir() if path.is_dir()]
    text = 'intent: Add c\nsteps:\n  - write: c.py\n    content: "z = 3\\n"\n'
    assert here("apply", "--branch", "night", change(here, text), "--yes").status == 0


def test_a_branch_that_has_not_landed_stays(guarded: Any) -> None:
    """Its commits are nowhere else."""
    _stays(_begun(guarded, landed=False), "it has not landed in what is checked out")


@pytest.mark.parametrize("what", ["edited", "staged", "new"])
def test_what_is_not_committed_there_keeps_it(guarded: Any, what: str) -> None:
    """Also where the file stands as it is committed, and something else is staged."""
    here = _begun(guarded)
    file = kept(here) / ("new.py" if what == "new" else "old.py")
    before = file.read_text() if file.exists() else ""
    file.write_text("mine = 1\n")
    if what == "staged":
        git(here, "-C", str(kept(here)), "add", "old.py")
        file.write_text(before)
    _stays(here, f"not committed there: {file.name}")


def test_work_that_could_still_land_keeps_it(guarded: Any) -> None:
    """A task that waits for a person."""
    here = _begun(guarded)
    done = here.fresh("run", "--branch", "night", "--agent", "mine", "--ask", "after")
    assert done.status == 3, done.out + done.err
    _stays(here, "waits for a person")


def test_a_deleted_branch_goes_where_its_commits_are_elsewhere(guarded: Any) -> None:
    """Not before: its last commit would be lost with its work tree."""
    here = _begun(guarded, landed=False)
    tip = git(here, "rev-parse", "night").strip()
    git(here, "update-ref", "-d", "refs/heads/night")
    _stays(here, "nothing else has its last commit")
    git(here, "tag", "saved", tip)
    done = here("gc", "--branches", "--yes", "--json")
    assert [tree["branch"] for tree in done.document["gone"]] == ["night"]


def test_a_broken_work_tree_stays(guarded: Any) -> None:
    """What cannot be told is a reason to keep it."""
    here = _begun(guarded)
    (kept(here) / ".git").write_text("gitdir: /etc\n")
    _stays(here, "/etc")


def test_killed_at_any_point_the_next_call_takes_the_rest(guarded: Any) -> None:
    """Half of one that was being taken away is never taken for a work tree, and goes."""
    for point in ("branch.renamed", "branch.forgotten"):
        here = _begun(guarded) if point == "branch.renamed" else _again(guarded)
        state = here.directory / ".holdfast"
        (folder,) = kept_folders(str(state))
        home = Repository.at(str(here.directory), FaultyCalls(KillAt(point), counted=CHANGES))
        assert home is not None
        assert _killed(home, str(state), folder)
        assert here("gc", "--branches", "--yes").status == 0
        assert not [path for path in (state / "branches").iterdir() if path.is_dir()]
        assert git(here, "worktree", "list").count("\n") == 1


@pytest.mark.parametrize("left", ["begun again", "begun again by an earlier version"])
def test_what_a_kill_left_takes_nothing_of_a_branch_that_is_begun_again(guarded: Any, left: str) -> None:
    """Killed while it was taken away, and begun again before it was cleared: the new work tree stays known to git."""
    here = _begun(guarded)
    branches = here.directory / ".holdfast" / "branches"
    folder = kept(here).name
    home = Repository.at(str(here.directory), FaultyCalls(KillAt("branch.renamed"), counted=CHANGES))
    assert home is not None and _killed(home, str(branches.parent), folder)
    _again(here)
    assert [path.name for path in branches.iterdir() if path.is_dir()] == [folder]
    if left == "begun again by an earlier version":
        (branches / f".gone-{folder}").mkdir()
    told = here("gc", "--branches", "--json")
    assert "it has not landed in what is checked out" in json.dumps(told.document["kept"])
    assert [path.name for path in branches.iterdir() if path.is_dir()] == [folder]
    assert f"{branches}/{folder} " in git(here, "worktree", "list")


def test_no_branch_is_begun_while_a_work_tree_goes(guarded: Any) -> None:
    """Between its new name and its end, the lock of all branches is held."""
    here = _begun(guarded)
    state = here.directory / ".holdfast"
    lock = state / "branches"
    held: list[int] = []
    ask = At("branch.renamed", lambda: held.append(subprocess.run(["flock", "-n", lock, "true"]).returncode))
    home = Repository.at(str(here.directory), FaultyCalls(ask, counted=CHANGES))
    assert home is not None
    take_away(home, str(state), kept(here).name)
    assert held == [1]
    assert subprocess.run(["flock", "-n", lock, "true"]).returncode == 0


def _again(here: Any) -> Any:
    text = 'intent: Add c\nsteps:\n  - write: c.py\n    content: "z = 3\\n"\n'
    assert here("apply", "--branch", "night", change(here, text), "--yes").status == 0
    return here


def _killed(home: Repository, state: str, folder: str) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            take_away(home, state, folder)
        finally:
            os._exit(0)
    status = os.waitpid(pid, 0)[1]
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
