"""The chain of custody: every decision can be made again from what it was made from, and every link found both ways."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.papers import (
    Case,
    approvers,
    command,
    configure,
    execute,
    hand_in,
    kept_case,
    me,
    refuses_to_execute,
    somebody,
    yes_of,
)
from guarded import ME, Ground, guard, put
from holdfast.engine.evidence import replayed
from holdfast.engine.history import collect
from holdfast.engine.replay import replay_all
from holdfast.engine.tracing import Link, trace
from holdfast.errors import Tampering
from holdfast.model.approval import Approval
from holdfast.model.plan import Call, CommandCheck, Delete, Read, Run, Service, Symlink
from holdfast.store.blobs import Blobs
from holdfast.store.chain import Entry
from holdfast.store.signing import is_signed

_FILES = {"a": b"old\n", ".github/workflows/ci.yml": b"on: push\n", "src/x.py": b"x = 1\n"}
_SECRET = b"AKIA" + b"Q3EGZ7BD4KX5TN2M"
_DAY_NS = 86_400 * 10**9


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    # Not "workspace": that is the name of a build file, and rules look at the names above too.
    ground = guard(tmp_path / "guarded", _FILES)
    yield ground
    ground.hf.close()


def _entries(ground: Ground, kind: str) -> list[Entry]:
    return [entry for entry in ground.hf.ledger.entries() if entry.kind == kind]


def _many_decisions(ground: Ground) -> None:
    """All verdicts, under different policies, with and without commands, checks, secrets and services."""
    kept_case(ground, put("a", b"new\n"))
    kept_case(ground, put("key.txt", b"aws = " + _SECRET + b"\n"), Read("a"))
    kept_case(ground, Run(("/bin/sh", "-c", "echo y > src/y.py; rm a; chmod 755 src/x.py")))
    kept_case(ground, put("a", b"new\n"), verify=(CommandCheck(("/bin/true",)),), risk="critical")
    kept_case(ground, Symlink("out", "/etc"), Service(Call("http://127.0.0.1:9/")))
    configure(approvers(somebody("anna"), somebody("bert"), more='[policy]\nforbidden = ["src"]\npeople = 3\n'))
    kept_case(ground, Delete(".github/workflows", recursive=True))
    kept_case(ground, put("src/x.py", b"x = 2\n"))
    configure('[policy]\nwithout_verification = "allow"\nwithout_health = "allow"\n')
    kept_case(ground, put("a", b"newer\n"))


# ── replay ──


def test_every_decision_replays_to_the_same_verdict(ground: Ground) -> None:
    """Whatever the policy is now, the kept inputs give every decision again, with every reason."""
    _many_decisions(ground)
    recorded = _entries(ground, "decision")
    assert {entry.body["verdict"] for entry in recorded} == {"ALLOW", "NEED_APPROVAL", "DENY"}
    configure('[policy]\nforbidden = ["**"]\n')
    for entry in recorded:
        again = replayed(Blobs(ground.hf.site.state).get(str(entry.body["inputs"])))
        assert (again.id, again.digest) == (entry.body["id"], entry.body["digest"])
        assert [reason.rule for reason in again.reasons] == [row["rule"] for row in entry.body["reasons"]]  # type: ignore[union-attr,index,call-overload]
    assert [item.verdict for item in replay_all(ground.hf.site, ground.hf.ledger)] == ["same"] * len(recorded)
    assert command(ground, "audit", "replay").status == 0


def test_decisions_stay_replayable_after_gc(ground: Ground) -> None:
    """gc forgets plans, simulations and old files; what decisions were made from it keeps."""
    _many_decisions(ground)
    later = time.time_ns() + 400 * _DAY_NS
    for path in (ground.state / "objects").glob("*/*"):
        # As old as they would be then.
        os.utime(path, ns=(0, 0))
    collect(ground.hf.pipeline, keep_ns=30 * _DAY_NS, now_ns=later)
    assert list((ground.state / "simulations").iterdir()) == []
    found = replay_all(ground.hf.site, ground.hf.ledger)
    assert len(found) == 8 and {item.verdict for item in found} == {"same"}


def _inputs_path(ground: Ground, entry: Entry) -> Path:
    digest = str(entry.body["inputs"])
    return ground.state / "objects" / digest[:2] / digest[2:]


def test_edited_inputs_are_found(ground: Ground) -> None:
    """Inputs made to fit another verdict are not those that the ledger names (exit 12)."""
    kept_case(ground, put("a", b"new\n"), risk="critical")
    entry = _entries(ground, "decision")[0]
    path = _inputs_path(ground, entry)
    honest = zlib.decompress(path.read_bytes())
    path.chmod(0o600)
    path.write_bytes(zlib.compress(honest.replace(b'"critical"', b'"low"')))
    assert replay_all(ground.hf.site, ground.hf.ledger)[0].verdict != "same"
    assert command(ground, "audit", "replay").status == 12


@pytest.mark.parametrize(
    "damage",
    [b"", b"x", *map(zlib.compress, (b"{}", b"[1]", b"\xff", b"[" * 100_000))],
    ids=["nothing", "no archive", "empty", "a list", "no text", "nested without end"],
)
def test_damaged_inputs_are_told_as_such(damage: bytes) -> None:
    """What cannot be read as inputs is tampering, never a crash."""
    with pytest.raises(Tampering):
        replayed(damage)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_inputs_of_another_version_are_not_guessed_at(ground: Ground, version: object) -> None:
    """Inputs that say they are of another version are refused, even where everything else would fit."""
    kept_case(ground, put("a", b"new\n"))
    inputs = json.loads(
        zlib.decompress(Blobs(ground.hf.site.state).get(str(_entries(ground, "decision")[0].body["inputs"])))
    )
    assert replayed(zlib.compress(json.dumps(inputs).encode())).verdict == "NEED_APPROVAL"
    with pytest.raises(Tampering, match="version"):
        replayed(zlib.compress(json.dumps({**inputs, "version": version}).encode()))


def test_inputs_hold_no_text_of_the_change(ground: Ground) -> None:
    """A ledger cannot forget: neither it nor the inputs of a decision hold the secret that the gate found."""
    case = kept_case(ground, put("key.txt", b"aws = " + _SECRET + b"\n"))
    assert any("secret" in reason.rule.lower() for reason in case.decision.reasons)
    entry = _entries(ground, "decision")[0]
    assert _SECRET not in zlib.decompress(_inputs_path(ground, entry).read_bytes())
    assert _SECRET not in (ground.state / "ledger.jsonl").read_bytes()


# ── trace ──


def _landed(ground: Ground) -> Case:
    """A change that two people approved, among others that have nothing to do with it."""
    configure(approvers(somebody("anna"), somebody("bert"), me()))
    kept_case(ground, put("a", b"another\n"))
    case = kept_case(ground, Delete(".github/workflows", recursive=True), put("b", b"made\n"))
    refuses_to_execute(ground, case, 3, "0 of 2")
    hand_in(ground, *(yes_of(somebody(name), case.decision) for name in ("anna", "bert")))
    execute(ground, case)
    ground.hf.evaluate(ground.hf.simulate(ground.plan(put("c", b"later\n"))))
    return case


def test_from_an_execution_back_to_its_plan(ground: Ground) -> None:
    """An execution names its approvals, decision and simulation; each is in the ledger, and all digests agree."""
    case = _landed(ground)
    done = _entries(ground, "execution")[-1].body
    decision = next(entry.body for entry in _entries(ground, "decision") if entry.body["id"] == done["decision"])
    simulation = next(entry.body for entry in _entries(ground, "simulation") if entry.body["id"] == done["simulation"])
    answers = [entry.body for entry in _entries(ground, "approval") if entry.body["id"] in done["approvals"]]  # type: ignore[operator]
    assert done["status"] == "COMPLETED"
    assert sorted(str(body["by"]) for body in answers) == ["anna", "bert"]
    assert all(is_signed(_signed(body)) for body in answers)
    assert decision["subject"] == simulation["id"] == case.id
    assert {body["subject"] for body in answers} == {case.id}
    assert simulation["subject"] == done["plan_id"] == case.simulated.plan.id
    assert {
        done["plan_digest"],
        decision["plan_digest"],
        simulation["plan_digest"],
        *(body["plan"] for body in answers),
    } == {case.simulated.plan.digest}
    for name in ("change_set", "base"):
        assert len({body[name] for body in (done, decision, simulation, *answers)}) == 1
    assert {body["policy"] for body in answers} == {decision["policy"]}
    assert decision["simulation_digest"] == simulation["digest"] == case.simulated.report.digest


def _signed(body: Mapping[str, Any]) -> Approval:
    return Approval(**{name: value for name, value in body.items() if name != "subject"})


def test_a_trace_is_the_same_from_every_link(ground: Ground) -> None:
    """From simulation, decision, approval or execution: the same chain, in the order it happened, and nothing else."""
    case = _landed(ground)
    chain = trace(ground.hf.ledger, case.id)
    assert [link.kind for link in chain] == ["simulation", "decision", "execution", "approval", "approval", "execution"]
    assert [link.seq for link in chain] == sorted(link.seq for link in chain)
    for link in chain:
        assert trace(ground.hf.ledger, link.id) == chain, link.kind


def test_a_trace_from_the_plan_leads_to_all_that_came_of_it(ground: Ground) -> None:
    """Forwards too: a plan simulated twice leads to both simulations and everything about them."""
    case = _landed(ground)
    plan = case.simulated.plan
    second = ground.hf.simulate(ground.plan(put("a", b"v\n")))
    assert second.plan.id != plan.id
    links = trace(ground.hf.ledger, plan.id)
    assert _ids(links) >= _ids(trace(ground.hf.ledger, case.id))
    assert {link.kind for link in links} == {"simulation", "decision", "approval", "execution"}


def _ids(links: tuple[Link, ...]) -> set[str]:
    return {link.id for link in links}


def test_a_refusal_before_the_gates_is_in_the_trace(ground: Ground) -> None:
    """What was not even fit to be asked about is part of the story."""
    case = kept_case(ground, put("a", b"new\n"))
    ground.hf.approve(case.decision, by=ME)
    (ground / "a").write_bytes(b"theirs\n")
    refuses_to_execute(ground, case, 8, "changed since")
    assert [link.kind for link in trace(ground.hf.ledger, case.id)] == ["simulation", "decision", "approval", "refusal"]
