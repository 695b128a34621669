"""What is told is so: one document, the right id, the way on, and nothing that the next line takes back."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import HoldfastError

Write = Callable[[str], str]
CHANGE = "intent: Number the release\nsteps:\n  - write: VERSION\n    content: '2'\n"
RISKY = "intent: Deploy\nsteps:\n  - write: .github/workflows/ci.yml\n    content: 'on: push'\n"
FAILING = CHANGE + "verify: [{run: ['false']}]\n"
UNSAFE = "intent: Pipe\nsteps:\n  - run: [mkfifo, p]\n"


@pytest.fixture
def simulated(guarded: Any, write: Write) -> Callable[[str], dict[str, Any]]:
    def simulate(text: str) -> dict[str, Any]:
        document: dict[str, Any] = guarded("simulate", write(text), "--json").document
        return document

    return simulate


@pytest.fixture
def configure(home: Path) -> Callable[[str], None]:
    def written(text: str) -> None:
        folder = home / "xdg_config_home" / "holdfast"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)
        (folder / "config.toml").chmod(0o600)

    return written


@pytest.mark.parametrize(("text", "status", "code"), [(FAILING, 6, "verification_failed"), (UNSAFE, 5, "blocked")])
def test_a_simulation_that_is_no_good_is_one_document(
    guarded: Any, write: Write, text: str, status: int, code: str
) -> None:
    """A failed check or an unsafe simulation is the error, with the simulation inside; in words, no way on is told."""
    ran = guarded("simulate", write(text), "--json")
    assert (ran.status, ran.document["error"]["code"]) == (status, code)
    assert ran.document["simulation"]["kind"] == "simulation"
    assert ran.document["simulation"]["id"].startswith("s-")
    told = guarded("simulate", write(text))
    assert "Decide with" not in told.out
    assert "SUCCESS" not in told.out


MOVE = """intent: Tidy
steps:
  - {move: {from: old.txt, to: attic/old.txt}}
  - {move: {from: conf, to: settings}}
  - run: [sh, -c, 'echo made > made; test -e attic/old.txt; echo more >> settings/site.conf']
"""


@pytest.mark.parametrize("shadow", ["overlay", "copy"])
def test_a_move_beside_a_command_is_told_as_a_move(guarded: Any, write: Write, shadow: str) -> None:
    """What a step moves and no program touches is no loss: moved in the summary, the same file, and back by undo."""
    old = guarded.directory / "old.txt"
    inode = old.stat().st_ino
    applied = guarded("apply", write(MOVE), "--yes", "--shadow", shadow)
    assert applied.status == 0, applied.err
    assert "→ old.txt → attic/old.txt" in applied.out and "- old.txt" not in applied.out
    assert "+ settings/site.conf" in applied.out, "this one got another content, so it is no move"
    assert (guarded.directory / "attic/old.txt").stat().st_ino == inode
    assert (guarded.directory / "settings/site.conf").read_text().endswith("name = b\nmore\n")
    assert guarded("undo", applied.out.split()[-1], "--yes").status == 0
    assert (old.read_text(), old.stat().st_ino) == ("old\n", inode)
    assert (guarded.directory / "conf/site.conf").read_text().endswith("name = b\n")


def test_what_a_failed_command_said_stands_on_lines_of_its_own(guarded: Any, write: Write) -> None:
    """`show` of a blocked simulation has the words of the command below the step, with no escaped line end."""
    failing = "intent: Fail\nsteps:\n  - run: [sh, -c, 'echo because; echo of this; exit 3']\n"
    id = guarded("simulate", write(failing), "--json").document["simulation"]["id"]
    told = guarded("show", id).out
    assert "exited with 3\n      | because\n      | of this\n" in told
    assert "x0a" not in told


def test_one_is_one(guarded: Any, write: Write) -> None:
    """A path, an entry and a byte are not told as several."""
    steps = "  - run: [sh, -c, 'printf x > one']\n  - {delete: conf, recursive: true}\n  - {write: two, content: y}\n"
    id = guarded("apply", write(f"intent: One\nsteps:\n{steps}"), "--yes", "--json").document["id"]
    told = json.dumps(guarded("show", id, "--json").document)
    for one in ("changed 1 path", "the directory and 1 entry in it", "file, 1 byte, mode"):
        assert one in told
    assert not re.search(r"\b1 (paths|entries|bytes|files)\b", told)


def test_a_check_that_could_not_run_did_not_run(guarded: Any, write: Write) -> None:
    """Where a tool is not installed nothing is told to have run on a shadow; that nothing was changed is."""
    refused = guarded("apply", write(CHANGE + "verify: [{run: [no-such-tool-here]}]\n"), "--yes")
    assert refused.status == 6
    assert " ran on a shadow" not in refused.err and "Nothing was changed." in refused.err


def test_every_exit_status_is_in_the_help(guarded: Any) -> None:
    """The end of `--help` names each one that an error can have, and a caller over ssh takes each for ours."""
    from holdfast.cli.remote import OUR_STATUSES

    def below(kind: type[HoldfastError]) -> set[int]:
        return {kind.exit_status}.union(*(below(sub) for sub in kind.__subclasses__()))

    statuses = {0} | below(HoldfastError)
    named = guarded("--help").out.partition("Exit status:")[2]
    assert {int(number) for number in re.findall(r"(?:^|, )\s*(\d+) ", " ".join(named.split()))} == statuses
    assert statuses == OUR_STATUSES


def test_a_kept_simulation_shows_what_its_checks_came_to(guarded: Any, write: Write) -> None:
    """Nobody who looks at it later takes a failed check for a success, and what the checks said can be read."""
    change = write(CHANGE + "verify: [{run: [sh, -c, 'echo because; exit 3']}, {run: ['true']}]\n")
    id = guarded("simulate", change, "--json").document["simulation"]["id"]
    told = guarded("show", id)
    assert f"{id}  1 check FAILED  " in told.out
    assert "SUCCESS" not in told.out
    assert "✗ sh -c 'echo because; exit 3' exited with 3" in told.out
    assert "✓ true exited with 0" in told.out
    assert f"holdfast show {id} --log" in told.out
    assert [row["passed"] for row in guarded("show", id, "--json").document["receipts"]] == [False, True]
    assert "\n  because\n" in guarded("show", id, "--log").out
    assert guarded("show", id, "--log", "--json").document["receipts"][0]["log"] == "because\n"


def test_what_has_no_log_says_so(guarded: Any, simulated: Any) -> None:
    """A decision ran nothing: --log is refused in words, not ignored; a simulation that ran no checks says so."""
    id = simulated(CHANGE)["id"]
    decision = guarded("evaluate", id, "--json").document["id"]
    refused = guarded("show", decision, "--log")
    assert (refused.status, "only simulations and executions have logs" in refused.err) == (2, True)
    assert "ran no checks" in guarded("show", id, "--log").out


def test_a_denial_is_one_document(guarded: Any, simulated: Any, configure: Callable[[str], None]) -> None:
    """evaluate prints the decision inside the denial, not before it; also as a stream, whose last line it is."""
    configure('[policy]\nwithout_verification = "deny"\n')
    id = simulated(CHANGE)["id"]
    denied = guarded("evaluate", id, "--json")
    assert (denied.status, denied.document["error"]["code"]) == (4, "denied")
    assert denied.document["decision"]["status"] == "DENY"
    last = guarded("evaluate", id, "--stream-json").out.splitlines()[-1]
    assert json.loads(last)["decision"]["status"] == "DENY"


def test_a_simulation_can_be_looked_at(guarded: Any, simulated: Any) -> None:
    """diff shows what a simulation and its plan would change, line by line; show lists the paths."""
    report = simulated(CHANGE)
    decision = guarded("evaluate", report["id"], "--json").document["id"]
    for id in (report["id"], report["plan_id"], decision):
        assert "+2" in guarded("diff", id).out.splitlines()
        assert [row["path"] for row in guarded("diff", id, "--json").document["changes"]] == ["VERSION"]
    assert "+ VERSION" in guarded("show", report["id"]).out
    shown = guarded("show", report["id"], "--json").document
    assert [(row["path"], row["action"]) for row in shown["changes"]] == [("VERSION", "create")]


def test_a_forgotten_simulation_says_so(guarded: Any, simulated: Any) -> None:
    """What gc took can still be shown without its paths, and diff says that it is gone; gc says how many."""
    report = simulated(CHANGE)
    assert "2 kept plans and simulations" in guarded("gc", "--keep-days", "0").out
    assert "no longer kept" in guarded("show", report["id"]).out
    gone = guarded("diff", report["id"])
    assert (gone.status, "any more" in gone.err) == (2, True)


def test_what_was_approved_and_waits_is_not_forgotten(guarded: Any, simulated: Any) -> None:
    """gc leaves an approved simulation to whoever executes it, and takes it when it has landed."""
    id = simulated(CHANGE)["id"]
    assert guarded("approve", id).status == 0
    assert guarded("gc", "--keep-days", "0", "--json").document["papers"] == 0
    assert guarded("execute", id).status == 0
    assert guarded("gc", "--keep-days", "0", "--json").document["papers"] == 2


def test_the_way_on_is_one(guarded: Any, simulated: Any) -> None:
    """Without a terminal approve names the command that works, with the plan's id; a wrong id is told as that."""
    report = simulated(RISKY)
    asked = guarded("approve", report["id"])
    way = f"holdfast approve {report['id']} --plan {report['plan_id']}"
    assert (asked.status, way in asked.err) == (3, True)
    wrong = guarded("approve", report["id"], "--plan", "p-wrong")
    assert (wrong.status, "p-wrong is not this plan's id" in wrong.err) == (3, True)
    assert guarded(*way.split()[1:]).status == 0


def test_a_wrong_plan_is_refused_at_low_risk_too(guarded: Any, simulated: Any) -> None:
    """Whoever names another plan means another plan."""
    assert guarded("approve", simulated(CHANGE)["id"], "--plan", "p-wrong").status == 3


def test_the_id_of_a_plan_is_told_as_one(guarded: Any, simulated: Any) -> None:
    """evaluate, approve, reject and execute of a plan name the verb that comes before them."""
    plan = simulated(CHANGE)["plan_id"]
    for verb in ("evaluate", "approve", "reject", "execute"):
        refused = guarded(verb, plan)
        assert (refused.status, f"holdfast simulate {plan}" in refused.err) == (2, True)


def test_execute_says_who_approved(guarded: Any, simulated: Any) -> None:
    """What needed approval and got it is told with the answer, so that the landing is no surprise."""
    report = simulated(CHANGE)
    approval = guarded("approve", report["id"], "--json").document
    told = guarded("execute", report["id"]).out
    assert f"approved by {approval['by']}: {approval['id']}" in told
    assert told.index("approved by") < told.index("Applied")


def test_apply_claims_no_missing_checks_that_it_runs(
    guarded: Any, write: Write, configure: Callable[[str], None]
) -> None:
    """A plan without checks of its own is told as that; what the configuration asks for is run and told."""
    configure('[checks]\nrun = [["true"]]\n')
    told = guarded("apply", write(CHANGE), "--yes").out
    assert "no checks: " not in told
    assert "Checked: true" in told


def test_trace_counts_and_tells_all(guarded: Any, simulated: Any) -> None:
    """One step is one step, the scale of a step is not called risk, and a refusal names every path."""
    text = "intent: Two\nsteps:\n  - {write: old.txt, content: a}\n  - {write: more.txt, content: b}\n"
    one, two = simulated(CHANGE)["id"], simulated(text)["id"]
    (guarded.directory / "old.txt").write_text("moved")
    (guarded.directory / "more.txt").write_text("moved")
    assert guarded("execute", two).status == 8
    assert ", 1 step, " in guarded("trace", one).out
    told = guarded("trace", two).out
    assert "old.txt changed" in told and "more.txt changed" in told
    assert "risk SAFE" not in told + guarded("show", one).out


def test_a_plan_that_runs_programs_is_never_done_already(guarded: Any, write: Write) -> None:
    """The same plan with a command runs again: its output depends on more than the paths that it names."""
    text = write("intent: Copy\nsteps:\n  - run: [cp, old.txt, new.txt]\n")
    assert guarded("apply", text, "--yes").status == 0
    (guarded.directory / "old.txt").write_text("another\n")
    assert guarded("apply", text, "--yes").status == 0
    assert (guarded.directory / "new.txt").read_text() == "another\n"


def test_what_did_not_land_left_no_trace_in_its_result(guarded: Any, write: Write) -> None:
    """An aborted execution's document ends with what it began with."""
    refused = guarded("apply", write(FAILING), "--yes", "--json")
    done = refused.document["execution"]
    assert (refused.status, done["status"]) == (6, "ABORTED")
    assert done["snapshot_after"] == done["snapshot_before"] != ""
    assert done["user_approved"] or not done["approved_at_ns"]


def test_words_that_say_nothing_are_told_once(guarded: Any) -> None:
    """The refusal of words that are not understood says each thing once."""
    told = guarded("apply", "do something nice").err
    assert "missing: what is wanted: no word says clearly; the steps (" in told
    assert told.count("what is wanted") == 1


# ── what a change file brings along ──


def test_files_that_are_read_along_are_told(guarded: Any, tmp_path: Path) -> None:
    """Whoever says yes sees which files beside the change file become part of the change."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/part.txt").write_text("brought\n")
    (tmp_path / "c.yaml").write_text("intent: x\nsteps:\n  - write: n.txt\n    content_from: sub/part.txt\n")
    for verb in (("simulate",), ("apply", "--preview")):
        assert "< sub/part.txt  read from beside" in guarded(*verb, str(tmp_path / "c.yaml")).out
    told = guarded("simulate", str(tmp_path / "c.yaml"), "--json").document
    assert told["content_files"] == ["sub/part.txt"]


@pytest.mark.parametrize("name", ["secrets/key", "sub/.env", "linked"])
def test_a_hidden_file_is_no_content(guarded: Any, name: str) -> None:
    """A change file in the repository, or above it, cannot make a hidden file part of a plan."""
    workspace: Path = guarded.directory
    (workspace / "holdfast.toml").write_text('[workspace]\nhidden = ["secrets/**", "**/.env", "link"]\n')
    for path in ("secrets/key", "sub/.env", "linked"):
        (workspace / path).parent.mkdir(exist_ok=True)
        (workspace / path).write_text("HIDDEN\n")
    os.symlink("linked", workspace / "link")
    above = workspace.parent / "above.yaml"
    for file, start in ((workspace / "c.yaml", ""), (above, f"{workspace.name}/")):
        file.write_text(f"intent: x\nsteps:\n  - write: n.txt\n    content_from: {start}{name}\n")
        refused = guarded("plan", str(file))
        assert (refused.status, "hidden from programs" in refused.err) == (2, True)
    held = subprocess.run(["grep", "-rl", "HIDDEN", str(workspace / ".holdfast")], capture_output=True, text=True)
    assert held.stdout == ""


@pytest.mark.parametrize("home_of", ["xdg_config_home", "xdg_state_home"])
def test_holdfasts_own_keys_are_no_content(guarded: Any, home: Path, home_of: str) -> None:
    """What belongs to Holdfast itself is never brought along, wherever the change file lies."""
    (home / home_of / "holdfast").mkdir(parents=True, exist_ok=True)
    (home / home_of / "holdfast/thing").write_text("ours\n")
    (home / "c.yaml").write_text(f"intent: x\nsteps:\n  - write: n.txt\n    content_from: {home_of}/holdfast/thing\n")
    refused = guarded("plan", str(home / "c.yaml"))
    assert (refused.status, "belongs to Holdfast" in refused.err) == (2, True)


def test_doctor_warns_of_hidden_files_that_git_tracks(guarded: Any) -> None:
    """What was committed is not hidden; doctor names it, and is content when git knows nothing of it."""
    workspace: Path = guarded.directory
    (workspace / "holdfast.toml").write_text('[workspace]\nhidden = ["secrets/**"]\n')
    (workspace / "secrets").mkdir()
    (workspace / "secrets/key").write_text("HIDDEN\n")
    git = ["git", "-C", str(workspace)]
    subprocess.run([*git, "init", "-q"], check=True)
    told = {row["name"]: row for row in guarded("doctor", "--json").document["checks"]}
    assert told["Hidden"]["ok"] is True
    subprocess.run([*git, "add", "secrets/key"], check=True)
    ran = guarded("doctor", "--json")
    told = {row["name"]: row for row in ran.document["checks"]}
    assert (told["Hidden"]["ok"], ran.document["status"]) == (False, "usable")
    assert "git tracks secrets/key" in told["Hidden"]["detail"]
