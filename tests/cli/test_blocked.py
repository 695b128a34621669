"""A simulation that cannot land: it has an id, a report and a ledger entry like any other, and tells the truth."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest

BLOCKED = """intent: Tidy
steps:
  - write: new.txt
    content: x
  - delete: absent.txt
  - chmod: {path: old.txt, mode: "0600"}
"""
FAILING = "intent: Build\nsteps:\n  - run: [sh, -c, 'echo no such rule; exit 3']\n  - write: x\n    content: y\n"
UNSAFE = "intent: Pipe\nsteps:\n  - run: [mkfifo, p]\n"
EVERY_STEP = """intent: All kinds of steps
steps:
  - run: [make, build]
  - service: {restart: web}
  - agent: claude
    task: Write the tests
  - move: {from: old.txt, to: b.txt}
"""


def entries(guarded: Any, kind: str) -> list[dict[str, Any]]:
    import holdfast

    with holdfast.open(str(guarded.directory)) as hf:
        return [dict(entry.body) for entry in hf.ledger.entries() if entry.kind == kind]


@pytest.mark.parametrize("verb", ["simulate", "apply"])
@pytest.mark.parametrize(("text", "place"), [(BLOCKED, 1), (FAILING, 0)], ids=["file step", "run step"])
def test_a_blocked_simulation_is_recorded(
    guarded: Any, write: Callable[[str], str], verb: str, text: str, place: int
) -> None:
    """Exit 5; the report has every step, is in the ledger, and can be shown, traced and refused by its id."""
    done = guarded(verb, write(text), "--json")
    report = done.document["simulation"]
    assert (done.status, report["status"], report["feasible"]) == (5, "BLOCKED", False)
    wanted = ["met"] * place + ["unmet"] + ["unknown"] * (len(report["steps"]) - place - 1)
    assert [step["precondition"] for step in report["steps"]] == wanted
    recorded = entries(guarded, "simulation")
    assert [(row["id"], row["digest"], row["status"]) for row in recorded] == [
        (report["id"], report["digest"], "BLOCKED")
    ]
    shown = guarded("show", report["id"])
    assert shown.status == 0
    assert f"✗ step-{place + 1}" in shown.out
    assert guarded("show", report["id"], "--json").document["report"]["feasible"] is False
    assert guarded("trace", report["id"]).status == 0
    refused = guarded("execute", report["id"])
    assert refused.status == 5
    assert "the rehearsal ended as BLOCKED" in refused.err


def test_an_unsafe_simulation_is_critical_and_not_feasible(guarded: Any, write: Callable[[str], str]) -> None:
    """What must not land is no safe and feasible plan, whatever its steps say."""
    report = guarded("simulate", write(UNSAFE), "--json").document["simulation"]
    assert (report["status"], report["highest_risk"], report["feasible"]) == ("UNSAFE", "CRITICAL", False)


def test_a_plan_with_every_kind_of_step_is_shown(guarded: Any, write: Callable[[str], str]) -> None:
    """Steps without a path are shown by what they do."""
    plan = guarded("plan", write(EVERY_STEP), "--json").document
    shown = guarded("show", plan["id"])
    assert shown.status == 0
    assert shown.out.splitlines()[2:6] == [
        "  run make build",
        "  service restart web",
        "  agent claude: Write the tests",
        "  move old.txt → b.txt",
    ]


def test_a_report_that_is_gone_is_a_failed_gate(guarded: Any, write: Callable[[str], str]) -> None:
    """`execute` without the kept report ends with exit 5, and the ledger has the refusal."""
    id = guarded("simulate", write("intent: N\nsteps:\n  - write: n\n    content: '1'\n"), "--json").document["id"]
    assert guarded("approve", id).status == 0
    shutil.rmtree(guarded.directory / ".holdfast" / "simulations" / id)
    refused = guarded("execute", id, "--json")
    assert refused.status == 5
    assert refused.document["error"]["code"] == "blocked"
    assert [row["simulation"] for row in entries(guarded, "refusal")] == [id]
    assert not (guarded.directory / "n").exists()


def test_what_must_not_land_is_not_nothing_to_do(guarded: Any, write: Callable[[str], str]) -> None:
    """A command that made nothing but a pipe is refused by apply (exit 5, recorded), and its preview says UNSAFE."""
    file = write(UNSAFE)
    done = guarded("apply", file, "--yes")
    assert done.status == 5, done.out
    assert "p: a FIFO cannot land" in done.out + done.err
    assert [row["status"] for row in entries(guarded, "execution")] == ["ABORTED"]
    seen = guarded("apply", file, "--preview", "--json").document
    assert (seen["status"], seen["dangers"]) == ("UNSAFE", ["p: a FIFO cannot land"])


def test_a_command_that_changed_nothing_says_so_to_programs(guarded: Any, write: Callable[[str], str]) -> None:
    """The JSON of an apply with nothing to do says why: the command changed nothing, or all is as it should be."""
    done = guarded("apply", write("intent: Look\nsteps:\n  - run: ['true']\n"), "--json").document
    assert (done["status"], done["because"]) == ("UNCHANGED", "The command changed nothing")


def test_a_simulated_step_has_the_names_of_other_tools(guarded: Any, write: Callable[[str], str]) -> None:
    """In the JSON of simulate and of show; the report keeps the digest that its own names give."""
    text = "intent: Pipe\nsteps:\n  - write: new.txt\n    content: x\n  - service: {call: 'http://127.0.0.1:9/x'}\n"
    report = guarded("simulate", write(text), "--json").document
    shown = guarded("show", report["id"], "--json").document["report"]
    for steps in (report["steps"], shown["steps"]):
        first, call = steps
        assert (first["precondition_status"], first["affected_resources"]) == ("met", ["new.txt"])
        assert (first["rollback_capability"], first["confirmations_required"]) == ("FULL", [])
        assert (call["rollback_capability"], bool(call["confirmations_required"])) == ("NONE", True)
