"""Every hostile agent through the whole product: simulated, judged, landed where a person says yes, and undone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from holdfast.errors import HoldfastError
from holdfast.model.plan import Agent, Plan
from holdfast.testing.ground import TASK, Ground, Looked, make_ground, surroundings
from holdfast.testing.hostile import HostileAgent, HostileProgram, hostile_programs
from holdfast.wiring import Holdfast, init
from holdfast.wiring import open as open_workspace

PROGRAMS = hostile_programs(files=3_000, printed=50_000_000)


def _inside(looked: Looked) -> dict[str, tuple[int, str]]:
    """The workspace, less what Holdfast and git keep there."""
    prefix = "workspace/"
    found = {path[len(prefix) :]: value for path, value in looked.items() if path.startswith(prefix)}
    return {path: value for path, value in found.items() if path.partition("/")[0] not in (".holdfast", ".git")}


def _landed(hf: Holdfast, program: HostileProgram) -> tuple[str, frozenset[str]]:
    """The execution and the paths of the change, or nothing where it is refused."""
    agent = HostileAgent(program)
    plan = Plan("hostile", (Agent(agent.name, TASK, attempts=1, within_ms=program.within_ms),))
    try:
        simulated = hf.simulate(plan, agents={agent.name: agent})
        verified = hf.verify(simulated)
        decision = hf.evaluate(simulated, verified)
        approvals = {"consent": plan.id} if decision.typed_consent else {}
        done = hf.execute(simulated, verified=verified, decision=decision, approved_by="me", **approvals)
    except HoldfastError:
        return "", frozenset()
    return done.id, frozenset(simulated.change_set.paths)


def _record(hf: Holdfast) -> dict[str, object]:
    (found,) = [entry.body for entry in hf.ledger.entries() if entry.kind == "delegation"]
    return dict(found)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_hostile_agent_lands_what_is_allowed_or_nothing(program: HostileProgram, tmp_path: Path) -> None:
    """What lands of a hostile agent's work is exactly the allowed change, an undo takes it back, the record is true."""
    ground: Ground = make_ground(os.path.realpath(tmp_path))
    with surroundings(ground):
        init(ground.workspace)
        before = _inside(ground.look())
        with open_workspace(ground.workspace) as hf:
            execution, paths = _landed(hf, program)
            after = _inside(ground.look())
            moved = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
            assert moved <= paths, "something changed that was not part of the change"
            assert all(program.allows(path) for path in moved)
            record = _record(hf)
            assert record["agent"] == HostileAgent(program).name
            if execution:
                assert record["good"] is True
                assert set(program.must_change) <= moved
                hf.undo(execution, approved_by="me")
            assert _inside(ground.look()) == before
            assert hf.audit().ok
            shown = json.dumps(record)
            assert ground.secret not in shown


def test_a_record_tells_claim_from_measurement(tmp_path: Path) -> None:
    """An agent that did nothing and says it did: its words stand beside what was measured, and nothing lands."""
    program = next(each for each in PROGRAMS if each.name == "claims")
    ground = make_ground(os.path.realpath(tmp_path))
    with surroundings(ground):
        init(ground.workspace)
        with open_workspace(ground.workspace) as hf:
            execution, _ = _landed(hf, program)
            (attempt,) = _record(hf)["attempts"]  # type: ignore[misc]
            assert execution == ""
            assert attempt["claimed"]["words"] and attempt["measured"]["changed_count"] == 0
            assert "Nothing was changed" in attempt["evidence"]
