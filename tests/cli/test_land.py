"""`holdfast land NAME`: a branch comes in as one change through the gates, and a merge commit."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import holdfast
from branched import change, kept, person, titles
from holdfast.engine.branch_landing import landing_of, merge
from holdfast.testing import FaultyCalls, KillAt
from roadmapped import git, mapped

MIXED = """\
intent: All kinds
steps:
  - write: b.py
    content: "y = 2\\n"
  - delete: folder/only.txt
  - chmod: {path: tool.sh, mode: "0755"}
  - symlink: {path: link, to: b.py}
"""


def begun(program: Any, text: str = MIXED) -> Any:
    """A branch with a change of every kind; the person has committed something else since, and has edits."""
    here = mapped(program, "Create a.py")
    (here.directory / "folder").mkdir()
    (here.directory / "folder" / "only.txt").write_text("1\n")
    (here.directory / "tool.sh").write_text("true\n")
    git(here, "add", "-A")
    git(here, "commit", "-qm", "more")
    assert here("apply", "--branch", "night", change(here, text), "--yes").status == 0
    (here.directory / "mine.txt").write_text("mine\n")
    git(here, "add", "-A")
    git(here, "commit", "-qm", "mine")
    (here.directory / "old.py").write_text("x = 'edited'\n")
    (here.directory / "new.txt").write_text("new\n")
    return here


def test_a_branch_comes_in_as_one_change_and_a_merge_commit(guarded: Any) -> None:
    """Checked, judged and approved once; parents are what was checked out and the tip, the tree is what git makes of
    both, and edits that were not committed stay as they are, and uncommitted."""
    here = begun(guarded)
    head, tip = (git(here, "rev-parse", name).strip() for name in ("HEAD", "night"))
    done = here.fresh("land", "night", "--yes")
    assert done.status == 0, done.err
    assert git(here, "log", "-1", "--format=%P").split() == [head, tip]
    assert git(here, "status", "--short").splitlines() == [" M old.py", "?? new.txt"]
    assert not (here.directory / "folder").exists()
    assert os.readlink(here.directory / "link") == "b.py"
    assert os.access(here.directory / "tool.sh", os.X_OK)
    message = git(here, "log", "-1", "--format=%B")
    assert message.startswith("Merge branch 'night'\n\n- All kinds\n")
    assert "Holdfast-Execution: e-" in message and "Holdfast-Branch: night" in message
    assert "Checked: make test" in done.out
    again = here("land", "night", "--yes")
    assert (again.status, "nothing to do" in again.out) == (0, True)
    assert sorted(path.name for path in kept(here).parent.iterdir() if path.is_dir()) == [kept(here).name]


def test_its_undo_is_a_commit_too(guarded: Any) -> None:
    """Files and history agree afterwards, and after the undo of the undo."""
    here = begun(guarded)
    assert here("land", "night", "--yes").status == 0
    dirty = git(here, "status", "--short")
    for there in (False, True):
        newest = here("log", "--json").document["items"][0]["id"]
        assert here.fresh("undo", newest, "--yes").status == 0
        assert (here.directory / "b.py").exists() is there
        assert git(here, "status", "--short") == dirty
    assert git(here, "diff", "HEAD", "HEAD~2", "--stat") == ""


def test_a_conflict_is_told_and_nothing_is_changed(guarded: Any) -> None:
    """Exit 8, with the paths."""
    here = begun(guarded, 'intent: Old\nsteps:\n  - write: old.py\n    content: "theirs\\n"\n')
    git(here, "commit", "-qam", "ours")
    before = person(here)
    refused = here("land", "night", "--yes")
    assert (refused.status, "disagree in old.py" in refused.err) == (8, True)
    assert "Nothing was changed." in refused.err
    assert person(here) == before


def test_an_edit_is_never_merged_over(guarded: Any) -> None:
    """Not committed, staged, or a new file in the way: exit 5, nothing is changed."""
    here = begun(guarded, 'intent: Old\nsteps:\n  - write: old.py\n    content: "theirs\\n"\n')
    refused = here("land", "night", "--yes")
    assert (refused.status, "not committed, and changed by the branch: old.py" in refused.err) == (5, True)
    git(here, "add", "old.py")
    before = person(here)
    refused = here("land", "night", "--yes")
    assert (refused.status, "something else is staged where the branch changes something: old.py" in refused.err) == (
        5,
        True,
    )
    assert person(here) == before


def test_a_check_that_fails_keeps_it_out(guarded: Any) -> None:
    """Each side is right for itself, both together are not: exit 6, and nothing is merged."""
    here = mapped(guarded, "Create a.py")
    (here.directory / "Makefile").write_text("test:\n\ttest ! -e b.py -o ! -e mine.txt\n")
    git(here, "commit", "-qam", "checks")
    assert here("apply", "--branch", "night", change(here), "--yes").status == 0
    (here.directory / "mine.txt").write_text("mine\n")
    git(here, "add", "-A")
    git(here, "commit", "-qm", "mine")
    before = person(here)
    assert here.fresh("land", "night", "--yes").status == 6
    assert person(here) == before


def test_without_a_yes_it_waits_for_one(guarded: Any) -> None:
    """Exit 3 where nobody can be asked; what is approved and carried out elsewhere is merged by the same call."""
    here = begun(guarded)
    before = person(here)
    told = here("land", "night")
    assert (told.status, "holdfast land night" in told.err) == (3, True)
    assert person(here) == before


def test_looking_changes_nothing(guarded: Any) -> None:
    """--preview shows the change, and no more."""
    here = begun(guarded)
    before = person(here)
    shown = here("land", "night", "--preview")
    assert (shown.status, "Merges 1 commit of night." in shown.out) == (0, True)
    assert person(here) == before


def test_what_cannot_be_landed_is_told(guarded: Any) -> None:
    """No such branch, the one that is checked out, and a landing on a branch: exit 2."""
    here = mapped(guarded, "Create a.py")
    mine = git(here, "branch", "--show-current").strip()
    for words in (["no"], [mine], ["night", "--branch", "night"]):
        assert here("land", *words).status == 2


def test_no_program_of_the_repository_runs(guarded: Any) -> None:
    """Merge drivers, hooks and textconv that attributes and configuration name are not started: git merges itself."""
    here = mapped(guarded, "Create a.py")
    trace = Path(here.directory).parent / "trace"
    evil = Path(here.directory).parent / "evil.sh"
    evil.write_text(f"#!/bin/sh\necho ran >> {trace}\n")
    evil.chmod(0o755)
    (here.directory / ".gitattributes").write_text("*.py merge=evil diff=evil\n")
    git(here, "add", "-A")
    git(here, "commit", "-qm", "attributes")
    both = 'intent: Old\nsteps:\n  - write: old.py\n    content: "x = 0\\ny = 1\\n"\n'
    assert here("apply", "--branch", "night", change(here, both), "--yes").status == 0
    (here.directory / "old.py").write_text("z = 1\nx = 0\n")
    git(here, "commit", "-qam", "mine")
    for key in ("merge.evil.driver", "diff.evil.textconv", "diff.evil.command", "core.fsmonitor", "gpg.program"):
        git(here, "config", key, str(evil))
    git(here, "config", "commit.gpgSign", "true")
    for name in ("post-merge", "pre-merge-commit", "commit-msg", "reference-transaction", "post-commit"):
        (here.directory / ".git" / "hooks" / name).write_text(evil.read_text())
        (here.directory / ".git" / "hooks" / name).chmod(0o755)
    done = here("land", "night", "--yes")
    assert (done.status, trace.exists()) == (0, False), done.err
    assert (here.directory / "old.py").read_text() == "z = 1\nx = 0\ny = 1\n"


@pytest.mark.parametrize(
    "point",
    [
        "",
        *(pytest.param(point, marks=pytest.mark.long) for point in ("index.held", "ref.moved", "index.installed")),
        "move.announced",
    ],
)
def test_killed_after_it_landed_the_same_call_merges_it_once(guarded: Any, point: str) -> None:
    """Whether before its commit or in the middle of that: one merge commit, which names what landed it."""
    here = begun(guarded)
    pid = os.fork()
    if pid == 0:
        try:
            _landed_and_killed(here, point)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL
    assert (here.directory / "b.py").exists()
    done = here.fresh("land", "night", "--yes")
    assert done.status == 0, done.err
    merges = git(here, "log", "--merges", "--format=%(trailers:key=Holdfast-Execution,valueonly)").split()
    assert merges == [here("log", "--json").document["items"][0]["id"]]
    assert git(here, "status", "--short").splitlines() == [" M old.py", "?? new.txt"]
    assert titles(here, "HEAD").count("All kinds") == 1
    assert not (here.directory / ".git" / "index.lock").exists()


def _landed_and_killed(here: Any, point: str) -> None:
    with holdfast.open(str(here.directory)) as hf:
        landing = landing_of(hf.pipeline, "night")
        assert landing is not None
        execution = hf.execute(hf.simulate(landing.plan), approved_by=hf.me())
        if point:
            faulty = landing.repository._replace(calls=FaultyCalls(KillAt(point)))
            merge(hf.pipeline, landing._replace(repository=faulty), execution.id)
        os.kill(os.getpid(), signal.SIGKILL)


def test_git_agrees_with_what_was_made(guarded: Any) -> None:
    """Objects and references are whole, and a merge that git makes itself has the same tree."""
    here = begun(guarded)
    tree = subprocess.run(
        ["git", "merge-tree", "--write-tree", "HEAD", "night"],
        cwd=here.directory,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    assert here("land", "night", "--yes").status == 0
    assert git(here, "rev-parse", "HEAD^{tree}").strip() == tree
    git(here, "fsck", "--strict")


# ── a pull request ──


def test_the_text_of_a_pull_request_says_what_was_checked_and_what_was_not(guarded: Any) -> None:
    """Commits, checks that passed, what no check says works, and what somebody else committed; it is written, and
    printed with the commands; nothing is pushed, and others' words neither mention nor link."""
    here = mapped(guarded, "Create a.py")
    base = git(here, "branch", "--show-current").strip()
    bare = Path(here.directory).parent / "bare.git"
    git(here, "init", "-q", "--bare", str(bare))
    git(here, "remote", "add", "origin", str(bare))
    evil = 'intent: "@all `x` [go](http://x)"\nsteps:\n  - write: c.py\n    content: "z"\nverify: [{run: ["true"]}]\n'
    assert here("apply", "--branch", "night", change(here), "--yes").status == 0
    assert here("apply", "--branch", "night", change(here, evil), "--yes").status == 0
    git(here, "-C", str(kept(here)), "commit", "-q", "--allow-empty", "-m", "by hand")
    before = person(here)
    told = here("land", "night", "--pr")
    document = here("land", "night", "--pr", "--json").document
    assert (told.status, person(here)) == (0, before)
    body, file = document["body"], Path(document["file"])
    assert file.read_text() == body
    assert body in told.out
    checked, doubtful = body.partition("## What was checked")[2].split("## What was not verified")
    assert ": `true exited with 0 (" in checked
    assert "`Add b`: `no check ran`" in doubtful
    assert "`by hand`: `not landed by Holdfast here" in doubtful
    assert "`@all 'x' [go](http://x)`" in body and "true" not in doubtful
    push, create = document["commands"]
    assert push == "git push origin night"
    assert create.startswith(f"gh pr create --base {base} --head night --title ")
    assert create.endswith(f" --body-file {file}")
    assert git(here, "ls-remote", "origin") == ""


def test_a_trailer_alone_proves_nothing(guarded: Any) -> None:
    """Somebody who commits with the trailers of another execution is not believed."""
    here = mapped(guarded, "Create a.py")
    assert here("apply", "--branch", "night", change(here), "--yes").status == 0
    git(here, "-C", str(kept(here)), "commit", "-q", "--allow-empty", "-m", "forged\n\nHoldfast-Execution: e-aaaaaaaa")
    body = here("land", "night", "--pr", "--json").document["body"]
    assert "`forged`: `not landed by Holdfast here" in body
