"""A redo lands something once more, and is judged as anything that lands; going back is always possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.papers import approvers, command, configure, me, nothing_changes, somebody
from guarded import ME, Ground, guard, put
from holdfast.engine.history import Return
from holdfast.errors import ApprovalNeeded, Denied, HoldfastError, InvalidInput, VerificationFailed
from holdfast.execution.services import Action
from holdfast.model.plan import Call, Service

_CI = ".github/workflows/ci.yml"
_FORBIDS = '[policy]\nforbidden = ["a"]\n'


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = guard(tmp_path / "workspace", {"a": b"old\n", _CI: b"on: push\n"})
    yield ground
    ground.hf.close()


def _undone(ground: Ground, path: str = "a") -> str:
    """A change that landed and was taken back: the id of the undo."""
    landed = ground.apply(put(path, b"new\n"))
    return ground.hf.undo(landed.id, approved_by=ME).id


def test_what_returns_is_simulated_decided_and_approved(ground: Ground) -> None:
    """The execution of a redo names its papers, and the chain of custody holds them all."""
    again = ground.hf.undo(_undone(ground), approved_by=ME)
    assert (ground / "a").read_bytes() == b"new\n"
    entry = [entry for entry in ground.hf.ledger.entries() if entry.kind == "execution"][-1].body
    assert entry["execution_id"] == again.id
    wanted = ("simulation", "decision", "approval")
    papers = {entry.kind: str(entry.body["id"]) for entry in ground.hf.ledger.entries() if entry.kind in wanted}
    assert (entry["simulation"], entry["decision"]) == (papers["simulation"], papers["decision"])
    assert entry["approvals"] == [papers["approval"]]


def _with_a_failing_check() -> str:
    return '[checks]\nrun = [["false"]]\n'


_BARS: dict[str, tuple[Callable[[], str], type[HoldfastError]]] = {
    "forbidden by now": (lambda: _FORBIDS, Denied),
    "a policy that cannot be read": (lambda: "[policy]\nforbiden = []\n", InvalidInput),
    "a check that fails": (_with_a_failing_check, VerificationFailed),
}


@pytest.mark.parametrize("bar", _BARS)
def test_what_would_not_land_today_does_not_return(ground: Ground, bar: str) -> None:
    """Policy and checks of now decide about a redo; nothing changes, and a plain undo asks neither of them."""
    text, error = _BARS[bar]
    undo = _undone(ground)
    standing = ground.apply(put("b", b"made\n"))
    configure(text())
    with nothing_changes(ground), pytest.raises(error):
        ground.hf.undo(undo, approved_by=ME)
    ground.hf.undo(standing.id, approved_by=ME)
    assert not (ground / "b").exists()


def test_a_restore_that_revives_is_judged_too(ground: Ground) -> None:
    """To go to a moment before an undo is to have again what it took away."""
    landed = ground.apply(put("a", b"new\n"))
    ground.hf.undo(landed.id, approved_by=ME)
    moment = ground.hf.show(landed.id)[0].at_ns
    configure(_FORBIDS)
    with nothing_changes(ground), pytest.raises(Denied):
        ground.hf.restore(moment, approved_by=ME)


def test_what_took_two_people_does_not_return_by_one(ground: Ground) -> None:
    """Who made a change cannot bring it back alone, with --yes or without."""
    plan = ground.plan(put(_CI, b"on: [push, pull_request]\n"))
    landed = ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id)
    undo = ground.hf.undo(landed.id, approved_by=ME).id
    configure(approvers(somebody("anna"), somebody("bert"), me()))
    with nothing_changes(ground), pytest.raises(ApprovalNeeded):
        ground.hf.undo(undo, approved_by=ME)
    with nothing_changes(ground):
        told = command(ground, "undo", undo, "--yes")
    assert told.status == 3
    assert told.message == "2 people must approve what this brings back"


@pytest.mark.parametrize("verb", ["undo", "restore"])
def test_a_high_risk_returns_by_consent_that_is_spelled_out(ground: Ground, verb: str) -> None:
    """`undo` and `restore` take the plan's id that their refusal names, and nothing else does."""
    plan = ground.plan(put(_CI, b"on: [push, pull_request]\n"))
    landed = ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id)
    moment = ground.hf.show(landed.id)[0].at_ns
    undo = ground.hf.undo(landed.id, approved_by=ME).id

    def back(consent: str) -> None:
        if verb == "undo":
            ground.hf.undo(undo, approved_by=ME, consent=consent)
        else:
            ground.hf.restore(moment, approved_by=ME, consent=consent)

    for consent in ("", "p-nothing"):
        with nothing_changes(ground), pytest.raises(ApprovalNeeded) as caught:
            back(consent)
    back(caught.value.hint.split('consent="')[1].rstrip('"'))
    assert (ground / _CI).read_bytes() == b"on: [push, pull_request]\n"


def test_an_action_outside_the_files_is_judged_when_it_returns(ground: Ground) -> None:
    """What a redo does to services cannot be rehearsed: it is asked about at its risk, as it was the first time."""
    restart = Service(Call("http://127.0.0.1:9/"), Call("http://127.0.0.1:9/", "DELETE"))
    job = ground.hf.preview_undo(_undone(ground)).job
    way = Return(job._replace(services=(Action(restart, "e-x-0"),)), (), ())
    simulated = ground.hf.again(way)
    decision = ground.hf.evaluate(simulated, ground.hf.verify(simulated))
    assert decision.typed_consent
    assert any("cannot be rehearsed" in reason.rule for reason in decision.reasons)
    with nothing_changes(ground), pytest.raises(ApprovalNeeded):
        ground.hf.go_back(way, approved_by=ME)


def test_the_command_refuses_a_redo_with_the_status_of_any_change(ground: Ground) -> None:
    """What is forbidden by now ends with exit 4, and nothing is changed."""
    undo = _undone(ground)
    configure(_FORBIDS)
    with nothing_changes(ground):
        told = command(ground, "undo", undo, "--yes")
    assert told.status == 4
    assert "policy denies" in told.message
