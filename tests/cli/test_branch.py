"""`--branch NAME`: everything lands on a branch, in a work tree that Holdfast keeps; the person's is not touched."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from branched import change, driven, kept, person, titles
from delegated import configured
from holdfast.model.run import TaskMoved
from roadmapped import git, mapped, script

# ── apply ──


def test_a_change_lands_on_a_branch_and_nowhere_else(guarded: Any) -> None:
    """It is a commit of the branch with its trailers; files, index, HEAD and stash of the person stay as they are, and
    what they had not committed is told and left out."""
    here = mapped(guarded, "Create a.py")
    (here.directory / "old.py").write_text("x = 'edited'\n")
    (here.directory / "staged.py").write_text("s = 1\n")
    git(here, "add", "staged.py")
    before = person(here)
    done = here.fresh("apply", "--branch", "night", change(here), "--yes")
    assert done.status == 0, done.err
    assert person(here) == before
    assert titles(here, "night") == ["base", "Add b"]
    assert git(here, "show", "night:b.py") == "y = 2\n"
    assert git(here, "show", "night:old.py") == "x = 0\n"
    assert "Holdfast-Execution: e-" in git(here, "log", "-1", "night")
    assert "2 paths not committed there: left out (old.py, staged.py)" in done.err
    assert git(here, "-C", str(kept(here)), "status", "--short") == ""


def test_what_landed_on_a_branch_is_undone_there(guarded: Any) -> None:
    """The hint names the branch; the undo is a commit that says what it takes back."""
    here = mapped(guarded, "Create a.py")
    landed = here("apply", "--branch", "night", change(here), "--yes")
    words = landed.out.splitlines()[-1].removeprefix("Undo with: holdfast ").split()
    assert words[:3] == ["--branch", "night", "undo"]
    before = person(here)
    assert here(*words, "--yes").status == 0
    assert person(here) == before
    assert [row.partition(":")[0].split()[0] for row in titles(here, "night")] == ["base", "Add", "Undo"]
    assert git(here, "diff", "--stat", "night~2", "night") == ""
    assert "Holdfast-Undoes: " in git(here, "log", "-1", "night")


def test_an_existing_branch_goes_on_from_its_tip(guarded: Any) -> None:
    """Nothing of what is checked out gets in."""
    here = mapped(guarded, "Create a.py")
    git(here, "branch", "night")
    git(here, "commit", "-q", "--allow-empty", "-m", "later")
    assert here("apply", "--branch", "night", change(here), "--yes").status == 0
    assert titles(here, "night") == ["base", "Add b"]


def test_a_branch_that_is_checked_out_is_refused(guarded: Any) -> None:
    """Here or in another work tree: exit 5, nothing is made, and the place is named."""
    here = mapped(guarded, "Create a.py")
    mine = git(here, "branch", "--show-current").strip()
    other = Path(here.directory).parent / "elsewhere"
    git(here, "worktree", "add", "-q", "-b", "other", str(other))
    for name, place in ((mine, here.directory), ("other", other)):
        refused = here("apply", "--branch", name, change(here), "--yes")
        assert refused.status == 5
        assert f"{name} is checked out in {place}" in refused.err
        assert "Nothing was changed." in refused.err
    assert not [path for path in (here.directory / ".holdfast" / "branches").iterdir() if path.is_dir()]


def test_git_itself_keeps_the_branch_from_the_person(guarded: Any) -> None:
    """While the work tree is kept, the branch can neither be checked out a second time nor deleted."""
    here = mapped(guarded, "Create a.py")
    here("apply", "--branch", "night", change(here), "--yes")
    for words in (["checkout", "-q", "night"], ["branch", "-D", "night"]):
        assert subprocess.run(["git", *words], cwd=here.directory, capture_output=True, check=False).returncode


def test_what_is_no_name_of_a_branch_is_refused(guarded: Any) -> None:
    """Exit 2, and nothing is made."""
    here = mapped(guarded, "Create a.py")
    refused = here("apply", "--branch=@{-1}", change(here), "--yes")
    assert (refused.status, "cannot be the name of a branch" in refused.err) == (2, True)
    assert not (here.directory / ".holdfast" / "branches").exists()


def test_nothing_to_begin_at_is_told(guarded: Any) -> None:
    """Without a repository, and before the first commit: exit 2 with the way on."""
    told = guarded("apply", "--branch", "night", change(guarded), "--yes")
    assert (told.status, "git init" in told.err) == (2, True)
    git(guarded, "init", "-q")
    told = guarded("apply", "--branch", "night", change(guarded), "--yes")
    assert (told.status, "has no commit yet" in told.err) == (2, True)


def test_looking_begins_no_branch(guarded: Any) -> None:
    """A preview, a dry run and a list of a branch that is not kept: exit 2; nothing is made, not even the branch."""
    here = mapped(guarded, "Create a.py")
    for words in (["apply", change(here), "--preview"], ["run", "--dry-run"], ["log"], ["undo", "e-aaaaaaaa"]):
        told = here(*words, "--branch", "night")
        assert (told.status, "keeps no work tree for a branch night" in told.err) == (2, True)
    assert git(here, "branch", "--list", "night") == ""


def test_verbs_about_no_branch_say_so(guarded: Any) -> None:
    """They are refused rather than done elsewhere."""
    for verb in ("init", "doctor"):
        assert guarded(verb, "--branch", "night").status == 2


# ── hostile repositories ──


def test_nothing_that_the_repository_names_is_started(guarded: Any) -> None:
    """Hooks, filters and watchers that the repository configures are not run when the work tree is made, nor when
    something lands; a filtered file stands there as it is committed."""
    here = mapped(guarded, "Create a.py")
    top, trace = here.directory, Path(here.directory).parent / "trace"
    (top / ".gitattributes").write_text("*.sealed filter=evil\n")
    (top / "a.sealed").write_text("as committed\n")
    git(here, "add", "-A")
    git(here, "commit", "-qm", "sealed")
    evil = Path(here.directory).parent / "evil.sh"
    evil.write_text(f"#!/bin/sh\necho ran >> {trace}\ncat\n")
    evil.chmod(0o755)
    for name in ("post-checkout", "pre-commit", "reference-transaction", "post-index-change"):
        (top / ".git" / "hooks" / name).write_text(evil.read_text())
        (top / ".git" / "hooks" / name).chmod(0o755)
    for key in ("filter.evil.smudge", "filter.evil.clean", "core.fsmonitor", "core.editor"):
        git(here, "config", key, str(evil))
    trace.unlink(missing_ok=True)
    assert here("apply", "--branch", "night", change(here), "--yes").status == 0
    assert not trace.exists()
    assert (kept(here) / "a.sealed").read_text() == "as committed\n"


def test_a_commit_that_brings_a_state_is_refused(guarded: Any) -> None:
    """What is committed under .holdfast would become Holdfast's own state: exit 5."""
    here = mapped(guarded, "Create a.py")
    blob = subprocess.run(
        ["git", "hash-object", "-w", "--stdin"], cwd=here.directory, input=b"{}", capture_output=True, check=True
    ).stdout.decode()
    git(here, "update-index", "--add", "--cacheinfo", f"100644,{blob.strip()},.holdfast/format")
    git(here, "commit", "-qm", "hostile")
    refused = here("apply", "--branch", "night", change(here), "--yes")
    assert (refused.status, "the place of Holdfast's own state" in refused.err) == (5, True)


def test_a_linked_list_of_work_trees_is_refused(guarded: Any) -> None:
    """A `.git/worktrees` that leads elsewhere would have git write there: exit 5."""
    here = mapped(guarded, "Create a.py")
    outside = Path(here.directory).parent / "outside"
    outside.mkdir()
    os.symlink(outside, here.directory / ".git" / "worktrees")
    refused = here("apply", "--branch", "night", change(here), "--yes")
    assert (refused.status, "is a symbolic link" in refused.err) == (5, True)
    assert not list(outside.iterdir())


# ── the place in the sandbox ──


def test_commands_see_the_branch_at_the_persons_place(guarded: Any) -> None:
    """A command of a plan runs at the path of the person's workspace, over the files of the branch."""
    here = mapped(guarded, "Create a.py")
    (here.directory / "old.py").write_text("x = 'edited'\n")
    text = 'intent: Look\nsteps:\n  - run: ["sh", "-c", "pwd > where; cat old.py >> where"]\n'
    done = here.fresh("apply", "--branch", "night", change(here, text), "--yes")
    assert done.status == 0, done.err
    assert git(here, "show", "night:where").splitlines() == [str(here.directory), "x = 0"]


def test_commands_and_checks_over_a_branch_can_ask_git(guarded: Any) -> None:
    """Versions from tags and lists of files are those of the branch, for commands of a plan and for checks alike."""
    here = mapped(guarded, "Create a.py")
    (here.directory / "Makefile").write_text("test:\n\tgit ls-files --error-unmatch old.py\n\tgit describe --tags\n")
    git(here, "commit", "-qam", "Ask git")
    git(here, "tag", "v3.1")
    text = 'intent: Look\nsteps:\n  - run: ["sh", "-c", "git describe --tags > version; git ls-files > listed"]\n'
    done = here.fresh("apply", "--branch", "night", change(here, text + "verify:\n  - run: [make, test]\n"), "--yes")
    assert done.status == 0, done.err
    assert git(here, "show", "night:version") == "v3.1\n"
    assert git(here, "show", "night:listed") == git(here, "ls-tree", "-r", "--name-only", "night~")
    assert titles(here, "night") == ["base", "Ask git", "Look"]


# ── run ──


def test_a_roadmap_is_driven_on_a_branch(guarded: Any) -> None:
    """A commit for each task with its box, in a tree that is clean afterwards; the person's own is as it was, and
    whoever works alone works after what landed before."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    (here.directory / "old.py").write_text("x = 'edited'\n")
    before = person(here)
    done = here.fresh("run", "--branch", "night", "--agent", "mine", "--yes")
    assert done.status == 0, done.err
    assert person(here) == before
    assert titles(here, "night") == ["base", "1.1 Create a.py", "1.2 Create b.py"]
    assert git(here, "show", "night:ROADMAP.md").count("- [x]") == 2
    assert "Holdfast-Task: create-b-py" in git(here, "log", "-1", "night")
    assert git(here, "-C", str(kept(here)), "status", "--short") == ""
    events = done.err.splitlines()
    first, second = (
        next(n for n, line in enumerate(events) if word in line) for word in ("1.1 Create a.py: landed", "1.2")
    )
    assert first < second
    assert here("status", "--json").document["branches"] == ["night"]


@pytest.mark.long
def test_a_task_is_undone_on_its_branch_and_done_again(guarded: Any) -> None:
    """Its box is unticked there, in one commit; `resume` on the branch does it again. Asked without the branch, an id
    of it is not known, and where it may be is told."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    assert here.fresh("run", "--branch", "night", "--agent", "mine", "--yes", "--parallel", "2").status == 0
    before = person(here)
    told = here("undo", "1.2", "--yes")
    assert (told.status, "holdfast --branch night log" in told.err) == (2, True)
    assert here.fresh("--branch", "night", "undo", "1.2", "--yes").status == 0
    assert git(here, "show", "night:ROADMAP.md").count("- [x]") == 1
    assert here.fresh("resume", "--branch", "night", "--yes").status == 0
    assert git(here, "show", "night:ROADMAP.md").count("- [x]") == 2
    assert sorted(titles(here, "night")[1:3]) == ["1.1 Create a.py", "1.2 Create b.py"]
    assert titles(here, "night")[3:] == ["Undo 1.2 Create b.py", "1.2 Create b.py"]
    assert person(here) == before


@pytest.mark.long
def test_an_agent_on_a_branch_can_ask_git(guarded: Any) -> None:
    """It stands at the person's place, and sees the history of the branch."""
    here = mapped(guarded, "Create a.py")
    asks = (
        "import os, subprocess\n"
        "said = subprocess.run(['git', 'log', '--format=%s'], capture_output=True, text=True).stdout\n"
        "open('a.py', 'w').write(f'# {os.getcwd()} {said.strip()}\\n')\n"
    )
    script(here).write_text(asks)
    assert here.fresh("run", "--branch", "night", "--agent", "mine", "--yes").status == 0
    assert git(here, "show", "night:a.py") == f"# {here.directory} base\n"


@pytest.mark.long
def test_a_run_on_a_branch_says_how_it_goes_on_there(guarded: Any) -> None:
    """Every command it names has the branch in it."""
    here = mapped(guarded, "Create a.py badly", "Create b.py")
    done = here.fresh("run", "--branch", "night", "--agent", "mine", "--yes", "--attempts", "1")
    assert done.status == 11
    assert done.out.splitlines()[-1].startswith("Go on with: holdfast --branch night retry create-a-py")
    assert here("tasks", "--branch", "night").out.splitlines()[-1].endswith("is finished.")


# ── by configuration ──


def test_the_persons_configuration_has_runs_land_on_a_branch(guarded: Any) -> None:
    """[run] branch: `run` lands there and its fellows look there; `--branch .` is the workspace itself. A change lands
    where it always did."""
    here = mapped(guarded, "Create a.py")
    agent = f'[agents.mine]\ncommand = ["python3", "{script(here)}", "{{task_file}}"]\nnetwork = "none"\n'
    configured(f'{agent}[run]\nbranch = "night"\n')
    assert here("tasks", "--json").document["kind"] == "roadmap"  # nothing is begun by looking
    before = person(here)
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert done.status == 0, done.err
    assert person(here) == before
    assert titles(here, "night") == ["base", "1.1 Create a.py"]
    assert here("tasks", "--json").document["totals"]["completed"] == 1
    assert here("tasks", "--branch", ".", "--json").document["kind"] == "roadmap"
    assert here("apply", change(here), "--yes").status == 0
    assert (here.directory / "b.py").exists()


def test_a_project_cannot_choose_the_branch(guarded: Any) -> None:
    """It comes with the repository: exit 2."""
    here = mapped(guarded, "Create a.py")
    (here.directory / "holdfast.toml").write_text('[run]\nbranch = "main"\n')
    refused = here("run", "--agent", "mine", "--yes")
    assert (refused.status, "is not for a project to say" in refused.err) == (2, True)


def test_boxes_without_a_landing_are_committed(guarded: Any) -> None:
    """What a person ticks in the work tree of the branch is a commit of its own, by `sync` and at the end of a run;
    other words that they wrote into the roadmap stay theirs."""
    here = mapped(guarded, "Create a.py", "Create b.py", "Create c.py")
    assert here.fresh("run", "--branch", "night", "--agent", "mine", "--yes", "--only", "1.1").status == 0
    roadmap = kept(here) / "ROADMAP.md"
    roadmap.write_text(roadmap.read_text().replace("- [ ] 1.2", "- [x] 1.2"))
    synced = here("sync", "--branch", "night")
    assert (synced.status, "Committed ROADMAP.md as " in synced.out) == (0, True)
    assert git(here, "-C", str(kept(here)), "status", "--short") == ""
    assert titles(here, "night")[:2] == ["base", "1.1 Create a.py"]
    assert len(titles(here, "night")) == 3
    roadmap.write_text(roadmap.read_text().replace("- [x] 1.2", "- [ ] 1.2"))
    assert here.fresh("run", "--branch", "night", "--agent", "mine", "--yes", "--only", "1.3").status == 0
    assert git(here, "-C", str(kept(here)), "status", "--short") == ""
    assert here("sync", "--branch", "night").status == 0
    roadmap.write_text(roadmap.read_text().replace("- [ ] 1.2", "- [x] 1.2") + "\nMine.\n")
    before = titles(here, "night")
    assert here("sync", "--branch", "night").status == 0
    assert titles(here, "night") == before


def test_a_task_that_was_done_already_leaves_the_branch_clean(guarded: Any) -> None:
    """Somebody commits the same file there while the agent works: nothing lands, and its box is a commit."""
    here = mapped(guarded, "Create a.py\n  Verify: `make test`")

    def by_hand() -> None:
        (kept(here) / "a.py").write_text("x = 1\n")
        git(here, "-C", str(kept(here)), "add", "a.py")
        git(here, "-C", str(kept(here)), "commit", "-qm", "By hand")

    run = driven(here, TaskMoved, by_hand, "VALIDATING")
    assert run.state == "FINISHED", here("tasks", "--branch", "night").out
    (task,) = here("tasks", "--branch", "night", "--json").document["tasks"]
    assert titles(here, "night") == ["base", "By hand", f"Tick ROADMAP.md: {task['id']}"]
    assert git(here, "show", "night:ROADMAP.md").count("- [x]") == 1
    assert git(here, "-C", str(kept(here)), "status", "--short") == ""
