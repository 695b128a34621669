"""What waits for a person: told with its reasons, answered at a terminal or by name, and gone on with."""

from __future__ import annotations

import getpass
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.test_terminal import Terminal, start
from holdfast.store.signing import load_or_create_signer
from roadmapped import boxes, commits, git, mapped, script, states

pytestmark = pytest.mark.long

TWO = ("Create a.py", "Create b.py")
Tree = Callable[[], dict[str, Any]]


@pytest.fixture
def terminal() -> Any:
    made = Terminal()
    yield made
    made.close()


def waiting(guarded: Any, *words: str, titles: tuple[str, ...] = TWO) -> Any:
    """A run that can only go on with a person."""
    here = mapped(guarded, *titles)
    done = here.fresh("run", "--agent", "mine", *words)
    assert done.status == 3, done.err
    assert done.out.splitlines()[-1] == "Decide with: holdfast review"
    return here


def ledger(here: Any) -> list[dict[str, Any]]:
    lines = (here.directory / ".holdfast/ledger.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_policy_asks_and_a_signature_answers(guarded: Any, tree: Tree) -> None:
    """Without --yes nothing landed; yes signs an approval, no rejects, and `resume` does what was said."""
    here = waiting(guarded)
    assert not {"a.py", "b.py"} & tree().keys()
    listed = here("review")
    assert "+ a.py" in listed.out and "Gate: needs approval" in listed.out
    assert "+x = 1" in here("review", "1.1", "--diff").out
    yes = here("review", "1.1", "--yes", "--json").document
    assert (yes["answer"], yes["signed"]) == ("yes", True)
    assert here("review", "1.2", "--no", "--reason", "not now").status == 0
    done = here.fresh("resume")
    assert done.status == 11, done.err
    assert (boxes(here), states(here)) == ("x.", ["COMPLETED", "FAILED"])
    assert "rejected by" in here("show", "1.2").out


def test_the_run_asks_before_it_begins(guarded: Any) -> None:
    """--ask before: nothing was worked on; yes lets it begin, skip leaves it out, and the rest goes on."""
    here = waiting(guarded, "--ask", "before", "--yes")
    document = here("review", "--json").document
    assert [(item["number"], item["attempts"]) for item in document["items"]] == [("1.1", 0), ("1.2", 0)]
    assert here("review", "1.1", "--skip").status == 0
    assert "Go on with: holdfast resume" in here("review", "1.2", "--yes").out
    done = here.fresh("resume", "--yes")
    assert done.status == 0, done.err
    assert (boxes(here), states(here)) == (".x", ["SKIPPED", "COMPLETED"])


def test_a_deletion_is_asked_about_once(guarded: Any) -> None:
    """--ask destructive: only what deletes waits; a signed yes answers what the run asks too."""
    here = waiting(guarded, "--ask", "destructive", "--yes", titles=("Create a.py", "Create b.py and removes old.py"))
    assert states(here) == ["COMPLETED", "NEEDS_REVIEW"]
    assert "it deletes files" in here("review").out
    assert here("review", "1.2", "--yes").status == 0
    done = here.fresh("resume", "--yes")
    assert done.status == 0, done.err
    assert boxes(here) == "xx" and not (here.directory / "old.py").exists()


def test_a_person_is_asked_one_by_one(guarded: Any, terminal: Terminal) -> None:
    """At a terminal: d shows the difference and asks again, y approves, anything else leaves it for later."""
    here = waiting(guarded)
    process = start(here, terminal, "review")
    terminal.read_until("Go on with it? [y/n/d(iff)/s(kip)/L(ater)] ")
    terminal.type("d\n")
    terminal.read_until("+x = 1")
    terminal.type("y\n")
    terminal.read_until("1.1 Create a.py: approved.")
    terminal.read_until("? 1.2 Create b.py")
    terminal.type("\n")
    assert process.wait(20) == 0
    assert "1 task still waits. Go on with: holdfast resume" in terminal.read_all()
    done = here.fresh("resume")
    assert (done.status, boxes(here)) == (3, "x."), done.err


def test_a_moved_workspace_is_asked_about_anew(guarded: Any) -> None:
    """What was shown no longer fits: a yes is not to something else, so the work is laid over anew and asked about."""
    here = waiting(guarded, titles=("Create a.py and removes old.py",))
    (here.directory / "old.py").write_text("x = 5\n")
    listed = here("review")
    assert "asks again" in listed.out
    assert here("review", "1.1", "--yes").status == 0
    done = here.fresh("resume", "--json")
    assert done.status in (3, 11), done
    assert (here.directory / "old.py").read_text() == "x = 5\n" and boxes(here) == "."


OLD = "x = 0\n# 1\n# 2\n# 3\n# 4\n# 5\ny = 0\n"
EDITS = """
text = open("old.py").read()
open("old.py", "w").write(text.replace("x = 0", "x = 1"))
"""
AN_HOUR_AGO = """
import sys, time
now = time.time_ns
time.time_ns = lambda: now() - 3600 * 10**9
sys.argv = ["holdfast", *sys.argv[1:]]
from holdfast.__main__ import main
main()
"""


def overtaken(guarded: Any) -> Any:
    """One edit waits for a person, and somebody edits the far end of the same file: it must be laid over anew."""
    here = mapped(guarded, "Create nothing, mend old.py")
    script(here).write_text(EDITS)
    (here.directory / "old.py").write_text(OLD)
    git(here, "commit", "-qam", "old")
    assert here.fresh("run", "--agent", "mine", "--yes", "--ask", "after").status == 3
    (here.directory / "old.py").write_text(OLD.replace("y = 0", "y = 7"))
    return here


def not_landed(here: Any) -> None:
    assert (states(here), commits(here)) == (["NEEDS_REVIEW"], ["old"])
    assert (here.directory / "old.py").read_text() == OLD.replace("y = 0", "y = 7")


def test_a_yes_to_what_is_still_on_a_screen_is_none_to_what_is_asked_by_now(guarded: Any, terminal: Terminal) -> None:
    """Somebody else answered meanwhile, and it was asked about anew: the late yes is refused, told, and lands nothing;
    one to what is asked now lands it."""
    here = overtaken(guarded)
    process = start(here, terminal, "review")
    terminal.read_until("L(ater)] ")
    assert here("review", "1.1", "--yes").status == 0
    assert here.fresh("resume", "--yes").status == 3
    terminal.type("y\n")
    assert process.wait(20) == 0
    assert "that question is not asked any more" in terminal.read_all()
    assert here.fresh("resume", "--yes").status == 3
    not_landed(here)
    assert here("review", "1.1", "--yes").status == 0
    assert here.fresh("resume", "--yes").status == 0
    assert (here.directory / "old.py").read_text() == OLD.replace("y = 0", "y = 7").replace("x = 0", "x = 1")


def test_a_clock_that_is_set_back_makes_no_yes_of_an_old_one(guarded: Any) -> None:
    """The next question is an hour older than the answer to the one before, and is another one all the same."""
    here = overtaken(guarded)
    assert here("review", "1.1", "--yes").status == 0
    assert here.python(AN_HOUR_AGO, "resume", "--yes").status == 3
    not_landed(here)


def approvers(**names: str) -> None:
    """The user's own configuration with these approvers and their keys; `alice` is who sits here."""
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast" / "config.toml"
    rows = "".join(f'{name} = "{key}"\n' for name, key in names.items())
    path.write_text(f'[me]\nname = "alice"\n[approvers]\n{rows}{path.read_text()}')


def own_key() -> str:
    return load_or_create_signer(str(Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast" / "signing.key")).public


def test_yes_is_given_under_the_name_that_counts(guarded: Any) -> None:
    """Where approvers are named, `--yes` is the approval of the one who sits here, and the run lands by it."""
    here = mapped(guarded, "Create a.py")
    approvers(alice=own_key())
    done = here.fresh("run", "--agent", "mine", "--yes")
    assert (done.status, boxes(here)) == (0, "x"), done.err
    assert {entry["by"] for entry in bodies(here, "approval")} == {"alice"}
    assert {entry["by"] for entry in bodies(here, "run")} == {"alice"}


def test_a_yes_that_does_not_count_asks_somebody_whose_does(guarded: Any, tmp_path: Path) -> None:
    """The work is kept to look at and to sign; an approver's signature lands it, also in a run with --yes."""
    here = mapped(guarded, "Create a.py")
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast"
    ben = tmp_path / "ben" / "holdfast"
    approvers(ben=load_or_create_signer(str(ben / "signing.key")).public)
    (ben / "config.toml").write_text((own / "config.toml").read_text().replace('"alice"', '"ben"'))
    (ben / "ledger.key").write_bytes((own / "ledger.key").read_bytes())
    for file in ("config.toml", "ledger.key"):
        (ben / file).chmod(0o600)
    asked = here.fresh("run", "--agent", "mine", "--yes")
    assert asked.status == 3 and "the approval of alice would not count" in asked.out
    assert "+ a.py" in here("review").out
    said = here.fresh("review", "1.1", "--yes", "--json", XDG_CONFIG_HOME=str(ben.parent))
    assert said.document["signed"] is True, said.err
    done = here.fresh("resume", "--yes")
    assert (done.status, boxes(here)) == (0, "x"), done.err


def bodies(here: Any, kind: str) -> list[dict[str, Any]]:
    lines = (here.directory / ".holdfast/ledger.jsonl").read_text().splitlines()
    return [entry["body"] for entry in map(json.loads, lines) if entry["kind"] == kind]


def test_high_risk_wants_the_plan_typed_out(guarded: Any) -> None:
    """--yes is not enough, neither for the run nor for the review: the plan's id is asked for, and then it lands."""
    here = waiting(guarded, "--yes", titles=("Create a.py and a workflow",))
    refused = here("review", "1.1", "--yes", "--json")
    assert refused.status == 3
    plan = refused.document["error"]["hint"].rpartition("--plan ")[2]
    assert f" --yes --plan {plan}|--no|--skip\n" in here("review").out
    assert here("review", "1.1", "--yes", "--plan", "p-other").status == 3
    assert here("review", "1.1", "--yes", "--plan", plan).status == 0
    done = here.fresh("resume")
    assert done.status == 0, done.err
    assert (here.directory / ".github/workflows/ci.yml").exists() and boxes(here) == "x"


def test_two_people_answer_for_one_task(guarded: Any, tmp_path: Path) -> None:
    """Where policy wants two, one yes leaves it waiting, with the same work to look at; the second one lands it."""
    here = mapped(guarded, "Create a.py and a workflow")
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast"
    homes = {name: tmp_path / name / "holdfast" for name in ("ann", "ben")}
    keys = {name: load_or_create_signer(str(home / "signing.key")).public for name, home in homes.items()}
    keys["me"] = load_or_create_signer(str(own / "signing.key")).public
    rows = "".join(f'{name} = "{key}"\n' for name, key in keys.items())
    agents = (own / "config.toml").read_text()
    for name, home in {**homes, "me": own}.items():
        (home / "config.toml").write_text(f'[me]\nname = "{name}"\n[approvers]\n{rows}{agents}')
        (home / "ledger.key").write_bytes((own / "ledger.key").read_bytes())
        for file in ("config.toml", "ledger.key"):
            (home / file).chmod(0o600)

    def approves(name: str) -> int:
        elsewhere = {"XDG_CONFIG_HOME": str(homes[name].parent)}
        hint = here.fresh("review", "1.1", "--yes", "--json", **elsewhere).document["error"]["hint"]
        plan = hint.rpartition("--plan ")[2]
        status: int = here.fresh("review", "1.1", "--yes", "--plan", plan, **elsewhere).status
        return status

    assert here.fresh("run", "--agent", "mine", "--yes").status == 3
    assert approves("ann") == 0
    half = here.fresh("resume")
    assert (half.status, states(here), boxes(here)) == (3, ["NEEDS_REVIEW"], "."), half.err
    assert approves("ben") == 0
    done = here.fresh("resume")
    assert (done.status, boxes(here)) == (0, "x"), done.err


def test_a_yes_to_going_on_covers_what_waits(guarded: Any) -> None:
    """`resume --yes` approves what policy lets one person approve, under the name of who says it; what must be typed
    out still waits, and so does what somebody rejected."""
    risky = "Create c.py with a workflow"
    here = waiting(guarded, titles=(*TWO, risky))
    assert here("review", "1.2", "--no").status == 0
    done = here.fresh("resume", "--yes")
    assert done.status == 3, done.err
    assert states(here) == ["COMPLETED", "FAILED", "NEEDS_REVIEW"]
    (approval,) = (row for row in ledger(here) if row["kind"] == "approval" and row["body"]["answer"] == "approve")
    assert (approval["body"]["by"], approval["body"]["reason"]) == (getpass.getuser(), "--yes")


@pytest.mark.parametrize("stage", ["after", "destructive"])
def test_a_yes_to_going_on_is_no_answer_to_the_run(guarded: Any, stage: str) -> None:
    """What --ask wants looked at waits on, also where policy would let one person approve it."""
    here = waiting(guarded, "--ask", stage, titles=("Create a.py and removes old.py",))
    assert here.fresh("resume", "--yes").status == 3
    assert states(here) == ["NEEDS_REVIEW"]


def test_nothing_to_answer_is_refused(guarded: Any) -> None:
    """A task that does not wait cannot be answered; with nothing waiting, review says so."""
    here = mapped(guarded, "Create a.py")
    assert here.fresh("run", "--agent", "mine", "--yes").status == 0
    assert here("review").out == "Nothing waits for you.\n"
    assert here("review", "1.1", "--yes").status == 2


def test_an_answered_question_waits_for_nobody(guarded: Any) -> None:
    """Before `resume` hears it an answer is told as one, by every verb that looks; another answer says what it
    replaces, and is the one that counts."""
    here, me = waiting(guarded), getpass.getuser()
    assert "1 task still waits. Go on with: holdfast resume" in here("review", "1.1", "--yes").out
    listed = here("tasks")
    assert f"1.1 Create a.py  approved by {me}; holdfast resume goes on\n" in listed.out
    assert "waits for you" in listed.out and listed.out.count("needs you") == 1
    assert "1 wait for you (holdfast review), 1 answered" in here("status").out
    assert f"1.1 Create a.py: approved by {me}; holdfast resume goes on" in here("review").out
    assert [item["number"] for item in here("review", "--json").document["items"]] == ["1.2"]
    assert here("tasks", "--json").document["totals"]["waiting"] == 1

    assert f"left out. That replaces: approved by {me}" in here("review", "1.1", "--skip").out
    assert "left it out" in here("show", "1.1").out
    assert "That replaces" in here("review", "1.1", "--yes").out
    assert f"That replaces: approved by {me}" not in here("review", "1.2", "--no").out
    assert f"rejected. That replaces: approved by {me}" in here("review", "1.1", "--no").out
    stands = here("review", "1.1", "--yes")
    assert (stands.status, f"was rejected by {me}, and that stands" in stands.err) == (8, True), stands.err
    assert "Nothing waits for you. Go on with: holdfast resume" in here("review").out
    assert "is answered. Go on with: holdfast resume" in here("tasks").out
    assert "go on with: holdfast resume" in here("status").out
    assert here.fresh("resume").status == 11
    assert states(here) == ["FAILED", "FAILED"]


def test_the_last_of_two_answers_counts(guarded: Any) -> None:
    """Approved and then left out, a task is left out; left out and then approved, it lands."""
    here = waiting(guarded)
    for task, first, last in (("1.1", "--yes", "--skip"), ("1.2", "--skip", "--yes")):
        assert here("review", task, first).status == here("review", task, last).status == 0
    assert here.fresh("resume").status == 0
    assert (states(here), boxes(here)) == (["SKIPPED", "COMPLETED"], ".x")
