"""holdfast run and its fellows: real processes, a real agent program, a real repository."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from delegated import configured
from roadmapped import agents_alive, boxes, commits, git, mapped, script, states

Tree = Callable[[], dict[str, Any]]
THREE = ("Create a.py", "Create b.py", "Create c.py")


# ── to done ──


def test_a_roadmap_is_driven_to_done(guarded: Any) -> None:
    """Exit 0: every task landed, ticked, and a commit of its own; a line for each on standard error."""
    here = mapped(guarded, *THREE)
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert done.status == 0, done.err
    assert (boxes(here), commits(here)) == ("xxx", ["1.1 Create a.py", "1.2 Create b.py", "1.3 Create c.py"])
    assert git(here, "status", "--short") == ""
    assert "✓ 1.1 Create a.py: landed  1 file" in done.err
    assert done.out.splitlines()[-1] == "Done: 3 of 3 tasks done."


@pytest.mark.long
def test_the_stream_is_events_and_then_the_run(guarded: Any) -> None:
    """--stream-json: each line is an event by its name, the last one is the document of the run."""
    here = mapped(guarded, "Create a.py")
    done = here.fresh("run", "--agent", "mine", "--yes", "--stream-json")
    assert done.status == 0, done.err
    *events, last = [json.loads(line) for line in done.out.splitlines()]
    names = [event["event"] for event in events]
    assert names[:2] == ["CHECKS", "EXECUTION_STARTED"] and names[-1] == "EXECUTION_FINISHED"
    assert {"TASK_STARTED", "TASK_STATE", "AGENT", "TASK_COMPLETED"} <= set(names)
    assert (last["kind"], last["status"], last["totals"]["completed"]) == ("run", "FINISHED", 1)


def test_the_document_is_one(guarded: Any) -> None:
    """--json: one document at the end, with every task; a finished run is resumed by doing nothing."""
    here = mapped(guarded, "Create a.py")
    run = here.fresh("run", "--agent", "mine", "--yes", "--json").document
    task = run["tasks"][0]
    assert (run["kind"], run["exit"], task["status"], task["attempts"]) == ("run", 0, "COMPLETED", 1)
    assert task["commit"] == git(here, "rev-parse", "HEAD").strip()
    again = here.fresh("resume", "--json")
    assert (again.status, again.document["id"], again.document["status"]) == (0, run["id"], "FINISHED")


@pytest.mark.long
def test_only_what_is_asked_for(guarded: Any) -> None:
    """--only takes numbers, --max-tasks bounds: exit 0, and the last line says how to go on with the rest."""
    here = mapped(guarded, *THREE)
    done = here.fresh("run", "--agent", "mine", "--yes", "--only", "1.3", "--only", "1.2", "--max-tasks", "1")
    assert done.status == 0, done.err
    assert (boxes(here), done.out.splitlines()[-1]) == (".x.", "Go on with: holdfast run --agent mine --yes")


@pytest.mark.long
def test_what_is_left_alone_on_request(guarded: Any) -> None:
    """--no-sync leaves the boxes, --no-checkpoint leaves git; `sync` ticks later."""
    here = mapped(guarded, "Create a.py")
    assert here.fresh("run", "--agent", "mine", "--yes", "--no-sync", "--no-checkpoint").status == 0
    assert (boxes(here), commits(here), states(here)) == (".", [], ["COMPLETED"])
    assert here("sync").status == 0
    assert boxes(here) == "x"
    assert here("sync", "--json").document["changed"] is False


# ── failures ──


@pytest.mark.long
def test_a_task_that_fails_is_told_and_tried_again(guarded: Any) -> None:
    """Exit 11, what it needs is blocked, the rest lands; `retry` goes on, and lands it once it can be done."""
    here = mapped(guarded, "Create a.py badly", "Create b.py (depends on 1.1)", "Create c.py")
    done = here.fresh("run", "--agent", "mine", "--yes", "--attempts", "1")
    assert done.status == 11, done.err
    assert states(here) == ["FAILED", "BLOCKED", "COMPLETED"]
    assert done.out.splitlines()[-1] == "Go on with: holdfast retry --failed --yes"
    assert "x = (" not in [path.read_text() for path in here.directory.glob("*.py")]
    text = (here.directory / "ROADMAP.md").read_text()
    shown = here("show", "1.1")
    assert shown.status == 0 and "Attempt   1 by mine" in shown.out
    agent = here.directory.parent / "agent.py"
    agent.write_text(agent.read_text().replace("x = (", "x = 2"))
    again = here.fresh("retry", "--failed", "--yes")
    assert again.status == 0, again.err
    assert boxes(here) == "xxx" and text.count("badly") == 1


@pytest.mark.long
def test_mending_is_no_other_attempt(guarded: Any) -> None:
    """An agent that did nothing, and nothing when it was shown that, made one attempt in two rounds."""
    here = mapped(guarded, "Tidy up")
    script(here).write_text("print('All tidy.')\n")
    done = here.fresh("run", "--agent", "mine", "--yes", "--attempts", "1")
    assert done.status == 11 and "attempt 1 did not land (mine did not do the task in 2 rounds: " in done.err, done.err
    assert "(1 attempt): " in done.out and "2 attempts" not in done.out + done.err


@pytest.mark.long
def test_the_first_failure_can_end_it(guarded: Any) -> None:
    """--on-failure stop: exit 11, and nothing after it was begun."""
    here = mapped(guarded, "Create a.py nothing", "Create b.py")
    done = here.fresh("run", "--agent", "mine", "--yes", "--attempts", "1", "--on-failure", "stop")
    assert done.status == 11, done.err
    assert (boxes(here), states(here)) == ("..", ["FAILED", "PENDING"])


@pytest.mark.long
def test_a_limit_ends_it_in_order(guarded: Any) -> None:
    """Exit 10 when the time of the run is over: the agent is ended, and nothing of its work stays."""
    here = mapped(guarded, "Create a.py slowly", "Create b.py")
    done = here.fresh("run", "--agent", "mine", "--yes", "--budget-time", "4s")
    assert done.status == 10, done.err
    assert "the time of the run is over" in done.out
    assert done.out.splitlines()[-1] == "Go on with: holdfast resume --budget-time 8s --yes"
    for look in ("tasks", "status"):
        assert "o on with: holdfast resume --budget-time 8s --yes" in here(look).out
    assert (here("tasks", "--json").document["status"], agents_alive(here)) == ("LIMIT", [])


def test_before_a_run_the_roadmap_is_told(guarded: Any) -> None:
    """JSON of tasks: a roadmap that is pending, without an id and without a moment."""
    here = mapped(guarded, "Create a.py")
    found = here("tasks", "--json").document
    assert (found["kind"], found["id"], found["status"]) == ("roadmap", "", "PENDING")
    assert found["life"] is None
    assert (found["started"], found["at"]) == (None, None)
    assert [task["status"] for task in found["tasks"]] == ["PENDING"]


@pytest.mark.long
def test_the_same_is_counted_by_all_that_count(guarded: Any) -> None:
    """What was ticked before is done and was landed by no run; what the file defers is not to do: `tasks`, `run` and
    `run --dry-run` say the same before a run, while it begins and after it."""
    here = mapped(guarded, "Create a.py")
    path = here.directory / "ROADMAP.md"
    path.write_text(
        path.read_text().replace("- [ ]", "- [x] 1.2 Create b.py\n- [x] 1.3 Create c.py\n- [>] 1.4 Create d.py\n- [ ]")
    )
    git(here, "commit", "-qam", "more")
    first = here("tasks").out.splitlines()[0]
    assert first.startswith("ROADMAP.md · 4 tasks, 1 to do") and first.endswith("  2 done")
    assert "4 tasks, 1 to do" in here("run", "--dry-run").out
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert "4 tasks, 1 to do; run " in done.err
    for told in (done, here("tasks")):
        assert told.out.startswith("ROADMAP.md · 4 tasks, 0 to do")
        assert told.out.splitlines()[0].endswith("2 done before · 1 landed"), told.out
    totals = here("tasks", "--json").document["totals"]
    assert (totals["completed"], totals["landed"], totals["held"]) == (3, 1, 1)


def test_folders_are_no_files(guarded: Any) -> None:
    """What landed is counted in files, also where folders had to be made for them."""
    here = mapped(guarded, "Create a.py and notes/old/one.txt")
    made = "for name in 'a.py', 'notes/old/one.txt': open(name, 'w').write('x = 1\\n')\n"
    script(here).write_text("import os\nos.makedirs('notes/old')\n" + made)
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert "landed  2 files" in done.out and "landed  2 files" in done.err, done
    assert here("tasks", "--json").document["tasks"][0]["files"] == 2


def test_a_spent_budget_is_raised_when_the_run_goes_on(guarded: Any) -> None:
    """resume with the budget of before stops at once; with a larger one it does what is left."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    assert here.fresh("run", "--agent", "mine", "--yes", "--budget-time", "1ms").status == 10
    assert here.fresh("resume", "--yes").status == 10
    done = here.fresh("resume", "--yes", "--budget-time", "10m")
    assert (done.status, boxes(here)) == (0, "xx"), done.err


# ── before anything begins ──


def test_a_dry_run_touches_nothing(guarded: Any, tree: Tree) -> None:
    """Order, groups and agents are shown; neither the workspace nor the ledger nor the list of runs changed."""
    here = mapped(guarded, "Create a.py", "Create b.py (depends on 1.1)", "Create c.py")
    before, ledger = tree(), (here.directory / ".holdfast/ledger.jsonl").read_bytes()
    done = here.fresh("run", "--dry-run", "--agent", "mine", "--json")
    assert done.status == 0, done.err
    turns = {turn["number"]: (turn["wave"], turn["agent"]) for turn in done.document["turns"]}
    assert turns == {"1.1": (1, "mine"), "1.2": (2, "mine"), "1.3": (1, "mine")}
    assert "Nothing was changed" in here.fresh("run", "--dry-run", "--agent", "mine").out
    assert (tree(), (here.directory / ".holdfast/ledger.jsonl").read_bytes()) == (before, ledger)
    assert here("resume").status == 2


@pytest.mark.parametrize("accept", ["true && grep -q never a.py", ["true"]], ids=str)
def test_a_command_that_cannot_be_run_stops_its_task_before_it_begins(guarded: Any, accept: object) -> None:
    """`tasks` and a dry run say so beforehand; the run asks a person, and no agent was given anything."""
    here = mapped(guarded, "Create a.py")
    queue = [{"id": "T1", "title": "Create a.py", "accept": accept, "status": "pending"}]
    (here.directory / "task_queue.json").write_text(json.dumps(queue))
    assert "this task cannot begin" in here("tasks", "task_queue.json").out
    assert "this task cannot begin" in here("run", "task_queue.json", "--dry-run", "--agent", "mine").out
    done = here.fresh("run", "task_queue.json", "--agent", "mine", "--yes")
    assert done.status == 3 and "its acceptance command cannot be run" in done.out
    assert states(here) == ["NEEDS_REVIEW"] and not (here.directory / "a.py").exists()


@pytest.mark.parametrize("by", ["file", "section", "similarity"])
def test_groups_are_shown_with_their_reason(guarded: Any, by: str) -> None:
    """--group: what would be done together, and why."""
    here = mapped(guarded)
    rows = "- [ ] Parser reads quoted words in `a.py`\n- [ ] Parser reads quoted lines in `a.py`\n"
    (here.directory / "ROADMAP.md").write_text(f"# Plan\n\n## Phase 1: Base\n\n### 1.1 Parser\n\n{rows}")
    done = here.fresh("run", "--dry-run", "--agent", "mine", "--group", by, "--json")
    (turn,) = done.document["turns"]
    assert len(turn["together"]) == 1 and turn["because"].startswith(f"{by}: ")


BAD = [
    (("run", "NONE.md", "--agent", "mine"), "there is no NONE.md"),
    (("run", "Makefile", "--agent", "mine"), "has no tasks"),
    (("run", "bad.json", "--agent", "mine"), "has no tasks: not valid JSON: a value is expected here"),
    (("run", "--agent", "nobody"), "there is no agent nobody"),
    (("run", "--agent", "gone"), "gone cannot be given work"),
    (("run", "--agent", "mine", "--only", "9.9"), "there is no task 9.9"),
    (("run", "--agent", "mine", "--budget-usd", "much"), "is not an amount of dollars"),
    (("run", "--agent", "mine", "--budget-usd", "-1"), "is not an amount of dollars"),
    (("run", "--agent", "mine", "--within", "soon"), "is not a duration"),
    (("run", "/elsewhere.md", "--agent", "mine"), "outside of the workspace"),
    (("resume",), "there has been no run here"),
    (("resume", "u-none"), "there is no run u-none"),
    (("retry", "1.1"), "there has been no run here"),
    (("retry",), "name the tasks, or say --failed"),
    (("reset", "1.1"), "there has been no run here"),
    (("review",), "there has been no run here"),
    (("review", "--yes"), "name the task that this answers"),
    (("stop",), "there has been no run here"),
    (("sync",), "there has been no run here"),
    (("tasks", "u-none"), "there is no run u-none"),
    (("tasks", "NONE.md"), "there is no NONE.md"),
    (("undo", "1.1"), "not an id"),
]


def test_bad_input_is_refused_before_a_run_is_written_down(guarded: Any, tree: Tree) -> None:
    """Exit 2 with the reason, in words and as a document; no run, no change."""
    here = mapped(guarded, *THREE)
    (here.directory / "bad.json").write_text('{"bad": ')
    configured('[agents.mine]\ncommand = ["/bin/true"]\n[agents.gone]\ncommand = ["no-such-program-here"]\n')
    before = tree()
    for (words, wanted), done in zip(BAD, here.batch([[*words, "--json"] for words, _ in BAD]), strict=True):
        assert (done.status, wanted in done.document["error"]["message"]) == (2, True), (words, done)
    assert (tree(), here("tasks").out.splitlines()[-1]) == (before, "No run yet. Start one with: holdfast run")


# ── back ──


def test_undo_of_a_task_takes_everything_back(guarded: Any) -> None:
    """Files, box and commit: the task is to do again, later tasks stay; `resume` lands it anew."""
    here = mapped(guarded, *THREE)
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    assert here("reset", "1.2").status == 2
    shown = here("undo", "1.2", "--preview")
    assert (shown.status, boxes(here)) == (0, "xxx")
    done = here.fresh("undo", "1.2", "--yes")
    assert done.status == 0, done.err
    assert (boxes(here), states(here)) == ("x.x", ["COMPLETED", "PENDING", "COMPLETED"])
    assert not (here.directory / "b.py").exists() and (here.directory / "c.py").exists()
    assert commits(here)[-1] == "Undo 1.2 Create b.py" and git(here, "status", "--short") == ""
    assert "Holdfast-Undoes: " in git(here, "log", "-1", "--format=%B")
    assert here("undo", "1.2", "--yes").status == 2
    again = here.fresh("resume", "--yes")
    assert again.status == 0, again.err
    assert (boxes(here), commits(here)[-1]) == ("xxx", "1.2 Create b.py")


@pytest.mark.long
def test_undo_of_its_execution_is_undo_of_the_task(guarded: Any) -> None:
    """By the execution's id the same happens; an undo that was cut off before the box is finished by asking again."""
    here = mapped(guarded, "Create a.py")
    run = here.fresh("run", "--agent", "mine", "--yes", "--json").document
    execution = run["tasks"][0]["execution"]
    cut_off = (
        "import sys, holdfast; hf = holdfast.open('.'); hf.go_back(hf.preview_undo(sys.argv[1]), approved_by='me')"
    )
    assert here.python(cut_off, execution).status == 0
    assert (boxes(here), states(here)) == ("x", ["COMPLETED"])
    done = here("undo", execution, "--yes")
    assert done.status == 0, done.err
    assert (boxes(here), states(here), commits(here)[-1]) == (".", ["PENDING"], "Undo 1.1 Create a.py")


# ── speed ──


@pytest.mark.long
def test_undo_of_an_undo_of_a_task_brings_everything_back(guarded: Any) -> None:
    """Files, box, commit and record: the task is done again, and there is nothing left to resume."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    undo = here.fresh("undo", "1.2", "--yes", "--json").document["id"]
    assert (boxes(here), states(here)) == ("x.", ["COMPLETED", "PENDING"])
    done = here.fresh("undo", undo, "--yes")
    assert done.status == 0 and "Done again: " in done.out, done.err
    assert (boxes(here), states(here)) == ("xx", ["COMPLETED", "COMPLETED"])
    assert (here.directory / "b.py").exists() and git(here, "status", "--short") == ""
    assert commits(here)[-2:] == ["Undo 1.2 Create b.py", "Redo 1.2 Create b.py"]
    assert here.fresh("resume", "--yes").status == 0
    assert commits(here)[-1] == "Redo 1.2 Create b.py"
    assert here.fresh("undo", "1.2", "--yes").status == 0 and boxes(here) == "x."


def test_verbs_that_look_at_runs_load_little(guarded: Any) -> None:
    """tasks, status and show of a task load neither the durable engine nor anything that changes the workspace."""
    here = mapped(guarded, "Create a.py")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    heavy = "{'dbos', 'sqlalchemy', 'rich', 'yaml', 'asyncio', 'subprocess', 'holdfast.engine.pipeline'}"
    code = "import sys; from holdfast.cli import main; status = main(sys.argv[1:]); "
    for words, loaded in ((["tasks"], heavy), (["status"], heavy), (["show", "1.1"], heavy),
                          (["review"], "{'dbos', 'sqlalchemy'}"), (["stop"], "{'dbos', 'sqlalchemy'}")):  # fmt: skip
        done = here.python(f"{code}print(status, *{loaded} & set(sys.modules), file=sys.stderr)", *words)
        assert done.err.split() == ["0"], (words, done.err)
