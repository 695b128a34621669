"""One stage at a time: plan, simulate, evaluate, approve, execute, and what each of them refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.store.signing import load_or_create_signer

Tree = Callable[[], dict[str, bytes]]
CHANGE = "intent: Number the release\nsteps:\n  - write: VERSION\n    content: '2'\n"
RISKY = "intent: Deploy\nsteps:\n  - write: .github/workflows/ci.yml\n    content: 'on: push'\n"
BUILDS = "intent: Build\nsteps:\n  - run: [sh, -c, 'tr a-z A-Z < old.txt > built.txt']\n"


@pytest.fixture
def simulated(guarded: Any, write: Callable[[str], str]) -> Callable[[str], dict[str, Any]]:
    """The document of a kept simulation."""

    def simulate(text: str) -> dict[str, Any]:
        document: dict[str, Any] = guarded("simulate", write(text), "--json").document
        return document

    return simulate


def test_the_stages_one_by_one(guarded: Any, write: Callable[[str], str], tree: Tree) -> None:
    """A plan is kept, simulated by its id, decided, approved and executed; only the last changes a file."""
    before = tree()
    plan = guarded("plan", write(CHANGE), "--json").document
    assert plan["status"] == "PLANNED"
    report = guarded("simulate", plan["id"], "--json").document
    assert (report["status"], report["plan_id"]) == ("SUCCESS", plan["id"])
    decision = guarded("evaluate", report["id"], "--json").document
    assert decision["status"] == "NEED_APPROVAL"
    assert guarded("execute", report["id"]).status == 3
    approval = guarded("approve", report["id"], "--reason", "seen", "--json").document
    assert (approval["status"], approval["reason"]) == ("APPROVED", "seen")
    assert tree() == before
    done = guarded("execute", report["id"], "--json").document
    assert done["status"] == "SUCCESS"
    assert (guarded.directory / "VERSION").read_text() == "2"


WHOLE = """
intent: Number it
objective: A release that says its number
rationale: |
  Because it is asked
  for
steps:
  - write: VERSION
    content: '2'
  - delete: old.txt
verify:
  - run: ['true']
  - "Run tests"
health:
  - run: [/bin/true]
"""


def test_a_plan_is_shown_with_its_reasons_and_its_safety(guarded: Any, write: Callable[[str], str]) -> None:
    """The words of `show p-…` have what the JSON has: objective, rationale, verification, health and the way back."""
    plan = guarded("plan", write(WHOLE), "--json").document["id"]
    lines = guarded("show", plan).out.splitlines()
    assert lines[1:] == [
        "Intent     Number it",
        "Objective  A release that says its number",
        "Rationale  Because it is asked",
        "           for",
        "  write VERSION",
        "  delete old.txt",
        "Verified   true",
        "           “Run tests”",
        "Health     /bin/true",
        "On failure rollback",
        "Way back   restore every touched path from the journal, then prove it by digest",
    ]
    bare = guarded("show", guarded("plan", write(CHANGE), "--json").document["id"]).out
    assert "Verified   only by what the configuration asks for\n" in bare
    assert "Health     nothing is asked afterwards\n" in bare and "Objective" not in bare


def test_a_simulation_is_shown_step_by_step(guarded: Any, write: Callable[[str], str]) -> None:
    """The words of `show s-…` say of each step what it would do, its risk, its way back and how it can fail."""
    report = guarded("simulate", write(WHOLE.replace('  - "Run tests"\n', "")), "--json").document
    out = guarded("show", report["id"]).out
    assert "  ✓ step-1  write VERSION: creates the file  safe\n" in out
    assert "  ✓ step-2  delete old.txt: removes the file  cautious\n" in out
    assert out.count("      way back: full, the old object goes back from the journal, proven by digest\n") == 2
    assert "      can fail: target missing, disk full, permission denied, changed by somebody else meanwhile\n" in out


def test_an_approval_is_used_once(guarded: Any, simulated: Callable[[str], dict[str, Any]]) -> None:
    """After an execution was undone, the same approval does not land the change again."""
    id = simulated(CHANGE)["id"]
    guarded("approve", id)
    done = guarded("execute", id, "--json").document
    guarded("undo", done["id"], "--yes")
    again = guarded("execute", id)
    assert again.status == 3
    assert "It was not used before" in again.err
    assert not (guarded.directory / "VERSION").exists()


def test_a_rejection_stops_it(guarded: Any, simulated: Callable[[str], dict[str, Any]]) -> None:
    """A no outweighs any yes, before or after it: exit 5, with the reason that was given."""
    id = simulated(CHANGE)["id"]
    guarded("approve", id)
    assert guarded("reject", id, "--reason", "not on Friday").status == 0
    refused = guarded("execute", id)
    assert (refused.status, "not on Friday" in refused.err) == (5, True)


def test_a_no_is_taken_while_the_workspace_is_another(guarded: Any, simulated: Callable[[str], dict[str, Any]]) -> None:
    """A rejection is recorded whatever the files look like, and holds when they are as before again."""
    id = simulated(CHANGE)["id"]
    guarded("approve", id)
    (guarded.directory / "VERSION").write_text("theirs")
    told = guarded("reject", id, "--reason", "not on Friday", "--json")
    assert (told.status, told.document["status"], told.document["simulation"]) == (0, "REJECTED", id)
    (guarded.directory / "VERSION").unlink()
    refused = guarded("execute", id)
    assert (refused.status, "not on Friday" in refused.err) == (5, True)
    assert not (guarded.directory / "VERSION").exists()


@pytest.mark.parametrize("file", ["plan", "changes"])
def test_a_no_is_to_what_was_simulated(guarded: Any, simulated: Callable[[str], dict[str, Any]], file: str) -> None:
    """What was edited is no simulation that one could answer, and one that never was is unknown."""
    id = simulated(CHANGE)["id"]
    path = guarded.directory / ".holdfast" / "simulations" / id / file
    path.write_text(path.read_text().replace("VERSION", "VERSIOM"))
    assert guarded("reject", id).status == 12
    assert guarded("reject", "s-nothing").status == 2


def test_a_moved_base_is_a_conflict(guarded: Any, simulated: Callable[[str], dict[str, Any]]) -> None:
    """When somebody made the file meanwhile, execution is refused with exit 8, and their file stays."""
    id = simulated(CHANGE)["id"]
    guarded("approve", id)
    (guarded.directory / "VERSION").write_text("theirs")
    refused = guarded("execute", id)
    assert (refused.status, "VERSION" in refused.err) == (8, True)
    assert (guarded.directory / "VERSION").read_text() == "theirs"


@pytest.mark.parametrize("file", ["plan", "report", "changes"])
def test_an_edited_dossier_is_refused(guarded: Any, simulated: Callable[[str], dict[str, Any]], file: str) -> None:
    """Whatever of a kept simulation is edited, it is not carried out: exit 5 or 12, nothing changed."""
    id = simulated(CHANGE)["id"]
    guarded("approve", id)
    path = guarded.directory / ".holdfast" / "simulations" / id / file
    text = path.read_text()
    path.write_text(text.replace("VERSION", "VERSIOM"))
    assert path.read_text() != text
    refused = guarded("execute", id)
    assert refused.status in (5, 12)
    assert not list(guarded.directory.glob("VERSIO*"))


@pytest.mark.parametrize("verb", ["show", "diff", "evaluate", "approve", "reject"])
def test_no_verb_presents_a_forged_change_set(
    guarded: Any, simulated: Callable[[str], dict[str, Any]], verb: str
) -> None:
    """A change set that is not the one its report names is tampering, exit 12: its paths are not told as simulated,
    nobody decides about it, and the way on is named."""
    report = simulated(CHANGE)
    path = guarded.directory / ".holdfast" / "simulations" / report["id"] / "changes"
    path.write_text(path.read_text().replace("VERSION", "old.txt"))
    told = guarded(verb, report["id"])
    assert (told.status, "change set" in told.err) == (12, True)
    assert f"Nothing was changed. Simulate again: holdfast simulate {report['plan_id']}" in told.err
    assert "old.txt" not in told.out + told.err
    assert told.out == ""
    assert not guarded("log", "--json").document["items"]


def test_an_edited_base_is_told_as_damage_and_not_as_a_conflict(
    guarded: Any, write: Callable[[str], str], tree: Tree
) -> None:
    """Where the kept change set says of a file what nobody saw there, execute blames what is kept (exit 12), not the
    workspace, which is as it was; and no words of the interpreter are told."""
    change = 'intent: Edit\nsteps:\n  - update: old.txt\n    old: "%s"\n    content: new\n'
    old = (guarded.directory / "old.txt").read_text()
    id = guarded("simulate", write(change % old.replace("\n", "\\n")), "--json").document["id"]
    guarded("approve", id)
    shelf, before = guarded.directory / ".holdfast" / "simulations" / id, tree()
    kept = json.loads((shelf / "changes").read_text())
    digest = kept["changes"][0][1][5]
    kept["changes"][0][1][5] = ("0" if digest[0] != "0" else "1") + digest[1:]
    (shelf / "changes").write_text(json.dumps(kept))
    refused = guarded("execute", id)
    assert (refused.status, "the kept change set of" in refused.err) == (12, True), refused.err
    assert "changed since" not in refused.err and tree() == before
    report = json.loads((shelf / "report").read_text())
    (shelf / "report").write_text(json.dumps({**report, "surprise": 1}))
    refused = guarded("execute", id)
    assert refused.status == 12 and "is damaged or was edited" in refused.err
    assert "__" not in refused.err and "Error" not in refused.err


def test_no_verb_presents_another_plan(guarded: Any, simulated: Callable[[str], dict[str, Any]]) -> None:
    """A sound plan in the place of the one that was simulated is tampering to whoever looks at it."""
    id, other = simulated(CHANGE)["id"], simulated(RISKY)["id"]
    shelf = guarded.directory / ".holdfast" / "simulations"
    (shelf / id / "plan").write_bytes((shelf / other / "plan").read_bytes())
    assert [guarded(verb, id).status for verb in ("show", "diff", "evaluate", "approve")] == [12] * 4


def test_a_kept_plan_that_was_edited_is_made_again(guarded: Any, write: Callable[[str], str]) -> None:
    """simulate and diff refuse it, exit 12, and say what helps; a simulation made before lands as it was approved."""
    change = write(CHANGE)
    plan = guarded("plan", change, "--json").document["id"]
    report = guarded("simulate", plan, "--json").document["id"]
    guarded("approve", report)
    kept = guarded.directory / ".holdfast" / "plans" / plan / "document"
    kept.write_text(kept.read_text().replace("VERSION", "VERSIOM"))
    for verb in ("simulate", "diff"):
        refused = guarded(verb, plan)
        assert (refused.status, "Make the plan again" in refused.err) == (12, True)
        assert "Simulate again" not in refused.err
    assert guarded("execute", report).status == 0
    assert [path.name for path in guarded.directory.glob("VERSIO*")] == ["VERSION"]
    assert guarded("plan", change).status == 0
    assert guarded("simulate", plan).status == 0


@pytest.mark.parametrize("place", ["plans", "plans/{plan}", "simulations", "simulations/{simulation}"])
def test_a_link_in_place_of_what_is_kept_is_tampering(guarded: Any, write: Callable[[str], str], place: str) -> None:
    """It is not followed: exit 12 with the link's name, for every verb that would read or write there."""
    change = write(CHANGE)
    plan = guarded("plan", change, "--json").document["id"]
    report = guarded("simulate", plan, "--json").document["id"]
    guarded("approve", report)
    here = place.format(plan=plan, simulation=report)
    kept, elsewhere = guarded.directory / ".holdfast" / here, guarded.directory.parent / "elsewhere"
    kept.rename(elsewhere)
    kept.symlink_to(elsewhere)
    before = sorted(path.name for path in elsewhere.rglob("*"))
    verbs = [("simulate", plan), ("plan", change)] if "plans" in place else [("show", report), ("execute", report)]
    for verb in verbs:
        refused = guarded(*verb)
        assert (refused.status, f".holdfast/{here} is a symbolic link" in refused.err) == (12, True), (
            verb,
            refused.err,
        )
    assert sorted(path.name for path in elsewhere.rglob("*")) == before
    kept.unlink()
    assert [guarded(verb, change).status for verb in ("plan", "simulate")] == [0, 0]


def test_another_plan_under_the_id_of_one_is_refused(guarded: Any, write: Callable[[str], str]) -> None:
    """A sound plan that is kept under another plan's id is not taken for that one: exit 12."""
    ids = [guarded("plan", write(text), "--json").document["id"] for text in (CHANGE, RISKY)]
    shelf = guarded.directory / ".holdfast" / "plans"
    for part in (shelf / ids[1]).iterdir():
        (shelf / ids[0] / part.name).write_bytes(part.read_bytes())
    refused = guarded("simulate", ids[0])
    assert (refused.status, "is another plan" in refused.err) == (12, True)


def test_an_edited_content_is_refused(guarded: Any, simulated: Callable[[str], dict[str, Any]]) -> None:
    """The bytes that land are the bytes that were simulated: edited ones are tampering, exit 12."""
    id = simulated(CHANGE)["id"]
    guarded("approve", id)
    (guarded.directory / ".holdfast" / "simulations" / id / "0").write_text("3")
    refused = guarded("execute", id)
    assert (refused.status, "VERSION was edited" in refused.err) == (12, True)
    assert not (guarded.directory / "VERSION").exists()


def test_high_risk_is_typed(guarded: Any, simulated: Callable[[str], dict[str, Any]]) -> None:
    """From high on neither --yes nor a plain approve is enough; the plan's id, typed, is."""
    report = simulated(RISKY)
    assert guarded("approve", report["id"]).status == 3
    assert guarded("approve", report["id"], "--plan", "p-wrong").status == 3
    assert guarded("approve", report["id"], "--plan", report["plan_id"]).status == 0
    assert guarded("execute", report["id"]).status == 0


def test_hints_name_the_command_that_works_without_a_terminal(
    guarded: Any, simulated: Callable[[str], dict[str, Any]]
) -> None:
    """From high on, what `evaluate` and a refused `execute` tell to do has the plan's id; below, it has none."""
    for text, typed in ((RISKY, True), (CHANGE, False)):
        report = simulated(text)
        way = f"holdfast approve {report['id']}" + (f" --plan {report['plan_id']}" if typed else "")
        assert guarded("evaluate", report["id"]).out.endswith(f"Next: {way}\n")
        assert f"Approve with: {way}\n" in guarded("execute", report["id"]).err
        assert guarded(*way.split()[1:]).status == 0


def test_yes_does_not_give_what_must_be_typed(guarded: Any, write: Callable[[str], str]) -> None:
    """`apply --yes` of a risky change keeps the simulation for people to look at: exit 3."""
    refused = guarded("apply", write(RISKY), "--yes")
    assert (refused.status, "holdfast approve s-" in refused.err) == (3, True)
    assert not (guarded.directory / ".github").exists()


def _config(home: Path, me: str, keys: dict[str, str]) -> None:
    rows = "".join(f'{name} = "{key}"\n' for name, key in keys.items())
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = home / "config.toml"
    path.write_text(f'[me]\nname = "{me}"\n[approvers]\n{rows}')
    path.chmod(0o600)


def test_two_people(guarded: Any, simulated: Callable[[str], dict[str, Any]], tmp_path: Path) -> None:
    """With approvers configured, a risky change wants two of them, not one twice; its author is told at once."""
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast"
    homes = {name: tmp_path / name / "holdfast" for name in ("ann", "ben")}
    keys = {name: load_or_create_signer(str(home / "signing.key")).public for name, home in homes.items()}
    keys["me"] = load_or_create_signer(str(own / "signing.key")).public
    for name, home in {**homes, "me": own}.items():
        _config(home, name, keys)
        if home != own:
            (home / "ledger.key").write_bytes((own / "ledger.key").read_bytes())
            (home / "ledger.key").chmod(0o600)
    report = simulated(RISKY)

    def approves(name: str) -> int:
        extra = {} if name == "me" else {"XDG_CONFIG_HOME": str(homes[name].parent)}
        status: int = guarded.fresh("approve", report["id"], "--plan", report["plan_id"], **extra).status
        return status

    try:
        for name, status in (("me", 3), ("ann", 0), ("ann", 0)):
            assert approves(name) == status
            refused = guarded("execute", report["id"])
            assert (refused.status, "of 2 people" in refused.err) == (3, True)
        assert approves("ben") == 0
        assert guarded("execute", report["id"]).status == 0
    finally:
        (own / "config.toml").unlink()


def test_a_simulation_is_not_simulated(guarded: Any, write: Callable[[str], str]) -> None:
    """Its id is known, and told what can be done with it; its plan is named where it can be simulated again."""
    report = guarded("simulate", write(CHANGE), "--json").document
    id, plan = report["id"], report["plan_id"]
    told = guarded("simulate", id)
    assert (told.status, f"{id} is a simulation already, of {plan}\n" in told.err) == (2, True)
    for way in (f"holdfast evaluate {id}", f"holdfast show {id}", f"holdfast simulate {plan}"):
        assert f": {way}\n" in told.err
        assert guarded(*way.split()[1:]).status == 0
    kept = guarded("apply", write(RISKY), "--yes", "--json").document["error"]["hint"].rpartition(" ")[2]
    alone = guarded("simulate", kept)
    assert (alone.status, "already" in alone.err, "holdfast simulate" in alone.err) == (2, True, False)


def test_a_command_is_rehearsed_on_both_kinds(guarded: Any, write: Callable[[str], str]) -> None:
    """What a command makes is the same in an overlay and in a copy, and lands without running it again."""
    documents = [
        guarded("simulate", write(BUILDS), "--shadow", kind, "--json").document for kind in ("overlay", "copy")
    ]
    assert documents[0]["change_set"] == documents[1]["change_set"]
    assert [document["shadow"] for document in documents] == ["overlay", "copy"]
    assert guarded("apply", write(BUILDS), "--yes").status == 0
    assert (guarded.directory / "built.txt").read_text() == (guarded.directory / "old.txt").read_text().upper()


def test_words_become_a_plan_or_an_honest_no(guarded: Any) -> None:
    """A plain request is carried out; an intent without steps is exit 2, with what is missing."""
    assert guarded("apply", "create directory logs", "--yes").status == 0
    assert (guarded.directory / "logs").is_dir()
    vague = guarded("apply", "make it faster", "--yes")
    assert (vague.status, "missing" in vague.err) == (2, True)
    assert guarded("plan", "make it faster", "--json").document["status"] == "NO_STEPS"


def test_the_chain_can_be_walked(guarded: Any, simulated: Callable[[str], dict[str, Any]]) -> None:
    """From the plan, the simulation, the approval or the execution, trace shows the same chain, oldest first."""
    report = simulated(CHANGE)
    approval = guarded("approve", report["id"], "--json").document
    done = guarded("execute", report["id"], "--json").document
    kinds = ["simulation", "decision", "approval", "execution"]
    for id in (report["id"], approval["id"], done["id"], report["plan_id"]):
        items = guarded("trace", id, "--json").document["items"]
        assert [item["kind"] for item in items] == kinds, id
    assert guarded("show", report["id"], "--json").document["plan_id"] == report["plan_id"]
    for id in (report["id"], items[1]["id"], approval["id"]):
        assert id in guarded("show", id).out


def test_decisions_are_replayed(guarded: Any, simulated: Callable[[str], dict[str, Any]]) -> None:
    """Every decision follows again from its inputs; edited inputs are found, exit 12."""
    simulated_id = simulated(CHANGE)["id"]
    guarded("evaluate", simulated_id)
    good = guarded("audit", "replay", "--json")
    assert (good.status, [item["verdict"] for item in good.document["items"]]) == (0, ["same"])
    inputs = next(iter(guarded("show", good.document["items"][0]["id"], "--json").document["inputs"] for _ in [0]))
    blob = guarded.directory / ".holdfast" / "objects" / inputs[:2] / inputs[2:]
    blob.write_bytes(blob.read_bytes()[:-4] + b"edit")
    told = guarded("audit", "replay")
    assert told.status == 12
    assert "1 decision could not be decided again:" in told.err and "otherwise" not in told.err
    assert f"blob {inputs[:12]} does not hold what its name says" in told.err


def test_the_policy_tests_itself(guarded: Any) -> None:
    """The built-in policy passes; a rule whose own test fails is exit 2, and then nothing is decided by it."""
    assert guarded("policy", "test").status == 0
    (guarded.directory / "holdfast.toml").write_text(
        '[[policy.rules]]\nname = "Reviews notes"\npaths = ["notes/**"]\nrisk = "medium"\nmatch = ["other/x"]\n'
    )
    assert guarded("policy", "test").status == 2
    assert guarded("apply", "create directory logs", "--yes").status == 2
    assert not (guarded.directory / "logs").exists()


def test_words_over_a_project_ask_for_its_checks(guarded: Any) -> None:
    """A plan made of words runs the checks that the project has for what it changes, and refuses what breaks them."""
    files = {
        "calc.py": "def add(a, b):\n    return a + b\n",
        "setup.cfg": "",
        "tests/__init__.py": "",
        "tests/test_calc.py": "import unittest\nfrom calc import add\n\n\nclass Adding(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n",
    }
    for name, text in files.items():
        (guarded.directory / name).parent.mkdir(exist_ok=True)
        (guarded.directory / name).write_text(text)
    plan = guarded("plan", "replace 'a + b' with 'b + a' in calc.py", "--json").document
    assert plan["verification_in_words"] == ["Run all checks"]
    present = {row["kind"] for row in plan["understood"]["safety"]["verification"] if row["present"]}
    assert {"syntax", "tests"} <= present
    broken = guarded("apply", "replace 'a + b' with 'a - b' in calc.py", "--yes")
    assert broken.status == 6
    assert (guarded.directory / "calc.py").read_text() == files["calc.py"]
    notes = guarded("plan", "write 'x' to notes.txt", "--json").document
    assert notes["verification_in_words"] == []
