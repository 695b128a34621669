"""What the first version wrote is read forever: dossiers, service actions in a log, begun actions, inputs of decisions.

The files in tests/golden are never made again. When one of these tests fails, the reader lost a version:
teach it that version, and put a file of the new one beside the old.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import Ground, guard
from holdfast.cli.documents import execution_document
from holdfast.cli.words import state
from holdfast.disk.calls import CALLS
from holdfast.engine.actions import from_header
from holdfast.engine.evidence import replayed
from holdfast.engine.replay import replay_all
from holdfast.engine.saving import load_plan, load_simulation
from holdfast.errors import InvalidInput
from holdfast.model.plan import Call, CommandCheck, Inline, Service, Update, Write
from holdfast.model.saved_simulation import kept_report_from
from holdfast.store.blobs import Blobs
from holdfast.store.effects import Effects, Open
from holdfast.store.journal import parse_log
from holdfast.workspace.staging import CopyOf

GOLDEN = Path(__file__).parent.parent / "golden"
PLAN, PLAN_DIGEST = "p-odal7fz5", "70c0bf973dd9875a2ab8bb0d207b765dd06dab1219aa47828167718d83581d57"
SIMULATION, REPORT_DIGEST = "s-r6vnpugj", "80e878515e32fb558ea58c2c32e70e363d38a471ad7c1f40593876a0ee90cd62"
ACTIONS = ["write", "update", "create", "create", "delete", "move", "chmod", "symlink", "read", "run", "service"]
CHANGE_SET = "8c8ae349b99ab1989bce3b69f02bcecf731a0bedf9b9a441161ebe55143ad9e5"
PUBLISH = "http://127.0.0.1:46727/publish"


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """A workspace of today with what was kept then."""
    found = guard(tmp_path / "site", {})
    for shelf in ("plans", "simulations"):
        shutil.copytree(GOLDEN / shelf, found.state / shelf, dirs_exist_ok=True)
    yield found
    found.hf.close()


def test_a_plan_of_the_first_version_is_read(ground: Ground) -> None:
    """Every kind of step and of check comes back, with the digest it had and the bytes it brought."""
    plan = load_plan(ground.hf.site, PLAN)
    assert (plan.id, plan.digest) == (PLAN, PLAN_DIGEST)
    assert [step.action for step in plan.steps] == [*ACTIONS, "service"]
    assert [check.kind for check in plan.verify] == ["run", "tests"]
    assert [check.kind for check in plan.health] == ["http", "tcp", "database", "service", "process"]
    write, update = plan.steps[:2]
    assert isinstance(write, Write) and isinstance(update, Update)
    assert (write.content, update.old, update.content) == (
        Inline(b"port = 8080\n"),
        b"port = 80\n",
        Inline(b"port = 81\n"),
    )


def test_a_simulation_of_the_first_version_is_read(ground: Ground) -> None:
    """Plan, report with receipts, change set and new bytes come back, and fit each other by digest."""
    plan, report, changes, sources = load_simulation(ground.hf.site, SIMULATION)
    assert (report.id, report.digest, report.status) == (SIMULATION, REPORT_DIGEST, "SUCCESS")
    assert (plan.digest, changes.digest, changes.base) == (report.plan_digest, report.change_set, report.base)
    assert changes.digest == CHANGE_SET
    assert [step.operation for step in report.steps] == ACTIONS
    assert plan.verify == (CommandCheck(("/bin/true",)),)
    assert [receipt.passed for receipt in report.receipts] == [True]
    assert _bytes_of(sources["built"]) == b"made\n"


def test_a_partial_execution_of_the_first_version_landed_nothing(ground: Ground) -> None:
    """PARTIAL then meant a rollback that left something to others: it is shown so, and undo has nothing to take."""
    kept = json.loads((GOLDEN / "executions" / "partial-1.json").read_text())
    ground.hf.ledger.append("execution", kept["body"], kept["at_ns"])
    ground.hf.recover()
    (row,) = ground.hf.log()
    assert (row.status, row.landed, row.live, state(row)) == ("PARTIAL", False, False, "left in part")
    shown = execution_document(*ground.hf.show(row.id))
    assert (shown["status"], shown["state"], shown["undoable"]) == ("PARTIAL", "PARTIAL", False)
    assert shown["errors"] == kept["body"]["errors"]
    with pytest.raises(InvalidInput, match="ended as PARTIAL and left nothing to undo"):
        ground.hf.undo(row.id, approved_by="me")


def _bytes_of(source: object) -> bytes:
    assert isinstance(source, CopyOf)
    with open(source.open(), "rb") as file:
        return file.read()


def test_services_in_a_log_of_the_first_version_are_read() -> None:
    """The header of a log says what was to be done outside the files, and how it is taken back."""
    log = parse_log((GOLDEN / "journal" / "log").read_bytes())
    (action,) = from_header(log.header, "e-dkxcwvze")
    assert action.service == Service(Call(PUBLISH, "POST", "hello"), Call(PUBLISH, "DELETE"), 5000)
    assert (action.origin, action.back, action.ran) == ("e-dkxcwvze-0", False, None)
    assert log.header["change_set"] == CHANGE_SET
    assert {op.path for op in log.ops} >= {"old", "a", "b", "built", "new", "new/conf", "tool"}


def test_begun_actions_of_the_first_version_are_read() -> None:
    """What was begun and not taken back is known, newest first."""
    directory = os.open(GOLDEN / "journal", os.O_RDONLY | os.O_DIRECTORY)
    try:
        assert Effects(CALLS, directory).standing(3) == [Open(2, False), Open(0, True)]
    finally:
        os.close(directory)


def test_an_unsafe_report_of_the_first_version_is_read_as_it_was() -> None:
    """It derived risk and feasibility from the steps alone, and its digest covers that."""
    row = json.loads((GOLDEN / "simulations" / SIMULATION / "report").read_text())
    report = kept_report_from({**row, "status": "UNSAFE"})
    assert (report.version, report.document()["feasible"]) == (1, row["feasible"])
    with pytest.raises(ValueError, match="contradicts itself"):
        kept_report_from({**row, "version": 2, "status": "UNSAFE"})


def test_inputs_of_a_decision_of_the_first_version_are_read() -> None:
    """The gate can be asked again about what it was shown then; what it says is a matter of the gate's version."""
    decision = replayed((GOLDEN / "decision" / "inputs").read_bytes())
    assert (decision.simulation, decision.simulation_digest) == (SIMULATION, REPORT_DIGEST)
    assert decision.change_set == CHANGE_SET


def test_a_decision_of_gate_version_2_replays_to_the_same_verdict(ground: Ground) -> None:
    """It knew no count of the tree's files: it removes 25 of 30 files, and is still what it was then."""
    site, ledger = ground.hf.site, ground.hf.ledger
    body = json.loads((GOLDEN / "decision" / "gate-2" / "entry.json").read_text())
    Blobs(site.state).put((GOLDEN / "decision" / "gate-2" / "inputs").read_bytes())
    ledger.append("decision", body, 1)
    assert [tuple(item) for item in replay_all(site, ledger)] == [("d-bk3mcv6f", "NEED_APPROVAL", "same", True)]
    ledger.append("decision", {**body, "verdict": "ALLOW"}, 2)
    assert replay_all(site, ledger)[1].verdict == "now NEED_APPROVAL, risk medium"
