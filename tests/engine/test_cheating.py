"""Every way to land what was not simulated, decided on and approved: refused, recorded, and nothing changed.

The attempts end in the real `holdfast execute s-…`; exit statuses are those of the documentation:
3 an approval is missing, 5 a hard gate, 8 the workspace moved, 12 something of ours was edited.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.papers import (
    Case,
    approvers,
    command,
    configure,
    edit_json,
    edit_tables,
    execute,
    hand_in,
    kept_case,
    me,
    refused,
    refuses_to_execute,
    somebody,
    yes_of,
)
from guarded import ME, Ground, guard, put
from holdfast.errors import ApprovalNeeded, Blocked, Conflict
from holdfast.model.plan import CommandCheck, Delete, Run

_FILES = {"a": b"old\n", "conf/site": b"port = 80\n", ".github/workflows/ci.yml": b"on: push\n"}
_YEAR_NS = 365 * 86_400 * 10**9


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = guard(tmp_path / "workspace", _FILES)
    yield ground
    ground.hf.close()


def _approved(ground: Ground, *, evil: bytes = b"new\n") -> Case:
    """An ordinary change that only waits to be executed."""
    case = kept_case(ground, put("a", evil), put("b", b"made\n"))
    assert case.decision.verdict == "NEED_APPROVAL"
    ground.hf.approve(case.decision, by=ME)
    return case


def _dossier(ground: Ground, case: Case) -> Path:
    return ground.state / "simulations" / case.id


def test_an_honest_change_lands(ground: Ground) -> None:
    """The control of all that follows: nobody cheats, and it lands as predicted."""
    case = _approved(ground)
    execute(ground, case)
    assert (ground / "a").read_bytes() == b"new\n"
    assert ground.hf.tree().digest == case.simulated.report.predicted_tree


# ── what was kept is edited ──


def _raise_mode(document: Any) -> None:
    document["steps"][0]["mode"] = 0o777


def _aim_elsewhere(document: Any) -> None:
    document["steps"][0]["path"] = "conf/site"


def _lower_risk(document: Any) -> None:
    document["steps"][0]["risk"] = "SAFE"
    document["highest_risk"] = "SAFE"


def _call_it_a_success(document: Any) -> None:
    document["predicted_tree"] = document["base_tree"]


def _forge_a_receipt(document: Any) -> None:
    document["receipts"].append(
        {
            "command": ["make", "test"],
            "kind": "tests",
            "passed": True,
            "exit_code": 0,
            "duration_ms": 1,
            "log_digest": "",
            "tree_digest": document["predicted_tree"],
            "detail": "all passed",
        }
    )


def _backdate(document: Any) -> None:
    document["made_ns"] -= 1


def _forget_the_digest(document: Any) -> None:
    del document["digest"]


def _forget_the_time(document: Any) -> None:
    del document["made_ns"]


@pytest.mark.parametrize(
    ("file", "edit"),
    [
        ("plan", _raise_mode),
        ("plan", _aim_elsewhere),
        ("plan", _forget_the_digest),
        ("report", _lower_risk),
        ("report", _call_it_a_success),
        ("report", _forge_a_receipt),
        ("report", _backdate),
        ("report", _forget_the_time),
    ],
)
def test_an_edited_document_is_tampering(ground: Ground, file: str, edit: Callable[[Any], None]) -> None:
    """A plan or report in which anything at all was edited is not read back (exit 12)."""
    case = kept_case(ground, put("a", b"new\n"), Delete("conf/site"))
    ground.hf.approve(case.decision, by=ME)
    edit_json(_dossier(ground, case) / file, edit)
    refuses_to_execute(ground, case, 12, "")


@pytest.mark.parametrize("file", ["plan", "report", "changes"])
@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b"null", b"\xff", b'{"version": 1}', b"[" * 100_000], ids=range(7)
)
def test_a_damaged_document_is_tampering(ground: Ground, file: str, damage: bytes) -> None:
    """One that is no document any more is told as such, never as a crash (exit 12)."""
    case = _approved(ground)
    (_dossier(ground, case) / file).write_bytes(damage)
    refuses_to_execute(ground, case, 12, "")


def test_another_plan_in_its_place(ground: Ground) -> None:
    """A sound plan, but not the one that was simulated and approved (exit 5)."""
    case = _approved(ground)
    other = kept_case(ground, put("conf/site", b"port = 8080\n"), put("b", b"made\n"))
    (_dossier(ground, case) / "plan").write_bytes((_dossier(ground, other) / "plan").read_bytes())
    refuses_to_execute(ground, case, 5, "the plan is not the one that was simulated")


def test_an_edited_change_set(ground: Ground) -> None:
    """Another mode for one file: the change set has another digest than report and approval name (exit 5)."""
    case = _approved(ground)
    edit_json(_dossier(ground, case) / "changes", lambda found: found["changes"][0][2].__setitem__(1, 0o777))
    refuses_to_execute(ground, case, 5, "the change set was edited")


def test_another_change_set_in_its_place(ground: Ground) -> None:
    """A change set with its bytes that nobody approved, in the folder of one that was (exit 5)."""
    case, other = _approved(ground), kept_case(ground, put("a", b"evil\n"), put("b", b"evil\n"))
    for name in ("changes", "0", "1"):
        (_dossier(ground, case) / name).write_bytes((_dossier(ground, other) / name).read_bytes())
    refuses_to_execute(ground, case, 5, "the change set was edited")


def test_an_additional_change(ground: Ground) -> None:
    """A change slipped in among the approved ones (exit 5)."""
    case = _approved(ground)

    def slip_in(found: Any) -> None:
        _, pre, post, origin = found["changes"][1]
        found["changes"].append(["z", pre, post, origin])

    edit_json(_dossier(ground, case) / "changes", slip_in)
    refuses_to_execute(ground, case, 5, "the change set was edited")


@pytest.mark.parametrize("steps", [(put("a", b"good\n"),), (Run(("/bin/sh", "-c", "echo good > a")),)])
def test_edited_bytes(ground: Ground, steps: tuple[Any, ...]) -> None:
    """The new content of a file, edited where it is kept, is another content by its digest (exit 12)."""
    case = kept_case(ground, *steps)
    ground.hf.approve(case.decision, by=ME)
    kept = _dossier(ground, case) / "0"
    assert kept.read_bytes() == b"good\n"
    kept.write_bytes(b"evil\n")
    refuses_to_execute(ground, case, 12, "the kept content of a was edited")


def test_bytes_that_are_gone_or_no_file(ground: Ground) -> None:
    """What is missing, and a link out of the folder, are refused as well."""
    case = _approved(ground)
    kept = _dossier(ground, case) / "0"
    kept.unlink()
    refuses_to_execute(ground, case, 5, "the new content of a is missing")
    kept.symlink_to("/etc/passwd")
    refuses_to_execute(ground, case, 12, "")


# ── the policy is edited ──


def test_a_policy_that_changed_makes_an_approval_stale(ground: Ground) -> None:
    """A yes was given under a policy; under another, also a laxer one, it is no yes (exit 3)."""
    case = _approved(ground)
    configure("[policy]\nwithout_health = 'allow'\n")
    refuses_to_execute(ground, case, 3, "digests that were decided on")


def test_a_policy_that_changed_makes_a_decision_stale(ground: Ground) -> None:
    """Whoever still holds the old decision is refused too (exit 5)."""
    case = _approved(ground)
    configure("[policy]\nwithout_health = 'allow'\n")
    with refused(ground, Blocked, 5, "the policy changed since the decision"):
        ground.hf.execute(case.simulated, verified=case.verified, decision=case.decision)


def test_a_policy_that_denies_meanwhile(ground: Ground) -> None:
    """What was approved and is forbidden since is denied (exit 4)."""
    case = _approved(ground)
    configure("[policy]\nforbidden = ['b']\n")
    refuses_to_execute(ground, case, 4, "denies")


def test_a_decision_that_was_edited(ground: Ground) -> None:
    """A decision is compared with the ledger's: one that says ALLOW where the gate asked is refused (exit 5)."""
    case = kept_case(ground, put("a", b"new\n"))
    lax = replace(case.decision, verdict="ALLOW", reasons=(), approvals_needed=0)
    with refused(ground, Blocked, 5, "the decision was edited"):
        ground.hf.execute(case.simulated, verified=case.verified, decision=lax)


# ── approvals ──


def test_no_approval_at_all(ground: Ground) -> None:
    """Without a yes nothing lands (exit 3)."""
    refuses_to_execute(ground, kept_case(ground, put("a", b"new\n")), 3, "approved by 0 of 1 person")


def _executed_and_undone(ground: Ground) -> Case:
    """The base is again what it was, so only the approval stands in the way of doing it again."""
    case = _approved(ground)
    execute(ground, case)
    assert command(ground, "undo", ground.hf.log()[0].id, "--yes").status == 0
    assert ground.hf.tree().digest == case.simulated.report.base_tree
    return case


def test_a_replayed_approval(ground: Ground) -> None:
    """A yes is for one execution: after an undo the same simulation needs a new one (exit 3)."""
    case = _executed_and_undone(ground)
    refuses_to_execute(ground, case, 3, "It was not used before")
    ground.hf.approve(case.decision, by=ME)
    execute(ground, case)


def test_a_copied_approval(ground: Ground) -> None:
    """The used one handed in again, as it is or under a new id, is not a new one (exit 3)."""
    case = kept_case(ground, put("a", b"new\n"))
    approval = ground.hf.approve(case.decision, by=ME)
    execute(ground, case)
    assert command(ground, "undo", ground.hf.log()[0].id, "--yes").status == 0
    hand_in(ground, approval, replace(approval, id="a-fresh"))
    refuses_to_execute(ground, case, 3, "approved by 0 of 1 person")


def test_an_approval_that_was_used_and_failed_is_used(ground: Ground) -> None:
    """An execution whose health failed has spent its approval, although nothing of it stands."""
    case = kept_case(
        ground, Run(("/bin/sh", "-c", "echo new > a")), health=(CommandCheck(("/bin/false",), within_ms=100),)
    )
    ground.hf.approve(case.decision, by=ME)
    assert command(ground, "execute", case.id).status == 6
    refuses_to_execute(ground, case, 3, "It was not used before")


def test_an_expired_approval(ground: Ground) -> None:
    """After its time a yes is none (exit 3)."""
    configure("[policy]\napproval_lifetime = '1s'\n")
    case = _approved(ground)
    time.sleep(1.1)
    refuses_to_execute(ground, case, 3, "has not expired")


@pytest.mark.parametrize(
    ("issued", "expires", "rule"),
    [(-2, -1, "has not expired"), (1, 2, "has been issued"), (0, 10, "longer than policy lets it")],
    ids=["in the past", "in the future", "for ten years"],
)
def test_an_approval_that_grants_itself_time(ground: Ground, issued: int, expires: int, rule: str) -> None:
    """Genuinely signed, but not valid now, or for longer than the policy lets it be (exit 3)."""
    case, now = kept_case(ground, put("a", b"new\n")), time.time_ns()
    times = {"issued_ns": now + issued * _YEAR_NS, "expires_ns": now + expires * _YEAR_NS}
    hand_in(ground, yes_of(me(), case.decision, **times))
    refuses_to_execute(ground, case, 3, rule)


def test_an_approval_signed_with_an_unknown_key(ground: Ground) -> None:
    """The name of an approver with somebody else's key (exit 3)."""
    configure(approvers(me(), somebody("anna")))
    case = kept_case(ground, put("a", b"new\n"))
    mallory = somebody("mallory")
    hand_in(ground, yes_of(mallory, case.decision), yes_of(mallory._replace(name="anna"), case.decision))
    refuses_to_execute(ground, case, 3, "with that approver's key")


def test_a_stranger_where_nobody_is_configured(ground: Ground) -> None:
    """Without configured approvers only this user's own key counts, whatever name it gives (exit 3)."""
    case = kept_case(ground, put("a", b"new\n"))
    hand_in(ground, yes_of(somebody(ME), case.decision))
    refuses_to_execute(ground, case, 3, "with that approver's key")


@pytest.mark.parametrize("field", ["plan", "change_set", "base", "policy", "simulation_digest"])
def test_an_approval_of_something_else(ground: Ground, field: str) -> None:
    """Genuinely signed, for this simulation, but for another digest (exit 3)."""
    case = kept_case(ground, put("a", b"new\n"))
    hand_in(ground, yes_of(me(), case.decision, **{field: "0" * 64}))
    refuses_to_execute(ground, case, 3, "digests that were decided on")


def test_an_approval_that_was_edited_after_signing(ground: Ground) -> None:
    """Whatever is changed in a signed yes, the signature covers it (exit 3)."""
    case = kept_case(ground, put("a", b"new\n"))
    signed = yes_of(me(), case.decision, answer="reject")
    hand_in(ground, replace(signed, answer="approve"))
    refuses_to_execute(ground, case, 3, "Its signature is genuine")


def test_the_approval_of_one_used_for_another(ground: Ground) -> None:
    """A yes to A is none to B, neither by itself nor relabelled (exit 3)."""
    one, other = kept_case(ground, put("a", b"good\n")), kept_case(ground, put("a", b"evil\n"))
    approval = ground.hf.approve(one.decision, by=ME)
    refuses_to_execute(ground, other, 3, "approved by 0 of 1 person")
    hand_in(ground, replace(approval, id="a-relabelled", simulation=other.id))
    refuses_to_execute(ground, other, 3, "Its signature is genuine")
    with refused(ground, ApprovalNeeded, 3, "0 of 1"):
        ground.hf.execute(other.simulated, approval, verified=other.verified, decision=other.decision)
    execute(ground, one)


def test_a_rejection_stops_what_was_approved(ground: Ground) -> None:
    """One genuine no, and no number of yeses helps (exit 5)."""
    case = _approved(ground)
    ground.hf.reject(case.decision, by=ME, reason="look at line 3")
    ground.hf.approve(case.decision, by=ME)
    refuses_to_execute(ground, case, 5, "look at line 3")


# ── two people ──


def _high_risk(ground: Ground) -> Case:
    """A plan that calls itself harmless, and deletes what runs with the project's secrets."""
    configure(approvers(somebody("anna"), somebody("bert"), me()))
    case = kept_case(ground, Delete(".github/workflows", recursive=True), risk="low")
    assert (case.decision.risk_proposed, case.decision.risk_effective) == ("low", "high")
    assert (case.decision.approvals_needed, case.decision.typed_consent) == (2, True)
    return case


def test_a_lie_about_risk(ground: Ground) -> None:
    """The gate judges what would land: one person's yes is not enough, whatever the plan says of itself (exit 3)."""
    case = _high_risk(ground)
    hand_in(ground, yes_of(somebody("anna"), case.decision))
    refuses_to_execute(ground, case, 3, "approved by 1 of 2 people")
    hand_in(ground, yes_of(somebody("bert"), case.decision))
    execute(ground, case)
    assert not (ground / ".github/workflows").exists()


def test_the_same_lie_by_a_command(ground: Ground) -> None:
    """A command is judged by what it did, not by how harmless it looks."""
    configure(approvers(somebody("anna"), somebody("bert")))
    hidden = kept_case(ground, Run(("/bin/sh", "-c", 'rm -r ".git""hub/work""flows"')))
    assert hidden.decision.risk_effective == "high"
    refuses_to_execute(ground, hidden, 3, "approved by 0 of 2 people")


def test_the_same_person_twice(ground: Ground) -> None:
    """Two yeses of one person are one person (exit 3)."""
    case = _high_risk(ground)
    hand_in(ground, yes_of(somebody("anna"), case.decision), yes_of(somebody("anna"), case.decision))
    refuses_to_execute(ground, case, 3, "approved by 1 of 2 people")


def test_one_key_under_two_names(ground: Ground) -> None:
    """A second name for the same key is no second person: nobody gets two votes by configuration alone."""
    anna = somebody("anna")
    configure(approvers(anna, anna._replace(name="anna2"), somebody("bert")))
    case = kept_case(ground, Delete(".github/workflows", recursive=True))
    hand_in(ground, yes_of(anna, case.decision), yes_of(anna._replace(name="anna2"), case.decision))
    refuses_to_execute(ground, case, 3, "approved by 1 of 2 people")


def test_the_author_does_not_count_where_others_can_approve(ground: Ground) -> None:
    """From high on, whoever had it simulated is not one of the two (exit 3)."""
    case = _high_risk(ground)
    with pytest.raises(ApprovalNeeded, match="would not count, since it breaks: It is not for one's own change"):
        ground.hf.approve(case.decision, by=ME)
    hand_in(ground, yes_of(me(), case.decision), yes_of(somebody("anna"), case.decision))
    refuses_to_execute(ground, case, 3, "not for one's own change")


def test_of_two_people_the_other_one_is_enough(ground: Ground) -> None:
    """Where the maker is one of two approvers, nobody waits for an answer that could not count (exit 3, then 0)."""
    configure(approvers(somebody("anna"), me()))
    case = kept_case(ground, Delete(".github/workflows", recursive=True))
    assert (case.decision.approvals_needed, case.decision.typed_consent) == (1, True)
    hand_in(ground, yes_of(me(), case.decision))
    refuses_to_execute(ground, case, 3, "approved by 0 of 1 person")
    hand_in(ground, yes_of(somebody("anna"), case.decision))
    execute(ground, case)
    assert not (ground / ".github/workflows").exists()


def test_an_old_decision_needs_the_people_of_now(ground: Ground) -> None:
    """A decision from when one person could approve does not carry a change once there are more (exit 3)."""
    configure(approvers(me()))
    case = kept_case(ground, Delete(".github/workflows", recursive=True))
    assert case.decision.approvals_needed == 1
    ground.hf.approve(case.decision)
    configure(approvers(me(), somebody("anna"), somebody("bert")))
    with refused(ground, ApprovalNeeded, 3, "approved by 0 of 2 people"):
        ground.hf.execute(case.simulated, verified=case.verified, decision=case.decision)


def test_more_people_than_there_are_is_nobody(ground: Ground) -> None:
    """A policy that wants three people where there are two is not softened: nothing lands (exit 3)."""
    configure(approvers(somebody("anna"), somebody("bert"), more="[policy]\npeople = 3\n"))
    case = kept_case(ground, Delete(".github/workflows", recursive=True))
    hand_in(ground, yes_of(somebody("anna"), case.decision), yes_of(somebody("bert"), case.decision))
    refuses_to_execute(ground, case, 3, "approved by 2 of 3 people")


def test_an_agent_approves(ground: Ground) -> None:
    """An agent's name or key never approves, also where somebody configured it as an approver (exit 3)."""
    claude = somebody("claude")
    configure(approvers(claude, claude._replace(name="carl"), somebody("anna"), more="[agents.claude]\n"))
    case = kept_case(ground, put("a", b"new\n"))
    hand_in(ground, yes_of(claude, case.decision))
    refuses_to_execute(ground, case, 3, "It is not by an agent")
    hand_in(ground, yes_of(claude._replace(name="carl"), case.decision))
    refuses_to_execute(ground, case, 3, "approved by 0 of 1 person")


# ── the workspace is moved ──


def test_a_moved_base(ground: Ground) -> None:
    """A touched file edited between approval and execution is a conflict (exit 8)."""
    case = _approved(ground)
    (ground / "a").write_bytes(b"theirs\n")
    refuses_to_execute(ground, case, 8, "a changed since the simulation")


@pytest.mark.parametrize("whole", [True, False], ids=["directory", "file"])
def test_a_swapped_symlink(ground: Ground, tmp_path: Path, whole: bool) -> None:
    """A file, or the directory above it, replaced by a link to its double outside: a conflict, outside untouched."""
    case = kept_case(ground, put("conf/site", b"port = 1\n"))
    ground.hf.approve(case.decision, by=ME)
    outside = tmp_path / "outside"
    os.rename(ground / "conf", outside)
    if whole:
        (ground / "conf").symlink_to(outside)
    else:
        (ground / "conf").mkdir()
        (ground / "conf/site").symlink_to(outside / "site")
    refuses_to_execute(ground, case, 8, "conf/site changed since the simulation")
    with refused(ground, Conflict, 8):
        ground.hf.execute(case.simulated, verified=case.verified, decision=case.decision)
    assert (outside / "site").read_bytes() == b"port = 80\n"


# ── the tables are edited ──


def _row(ground: Ground, approval: Any) -> int:
    document = {**approval.claims(), "signature": approval.signature, "subject": approval.simulation}
    return edit_tables(
        ground,
        "INSERT INTO approvals VALUES(:id, :subject, :at, :document)",
        id=approval.id,
        subject=approval.simulation,
        at=time.time_ns(),
        document=json.dumps(document),
    )


def test_an_approval_only_in_the_tables(ground: Ground) -> None:
    """A row is no approval, not even one that is genuinely signed: the ledger does not know it (exit 3)."""
    case = kept_case(ground, put("a", b"new\n"))
    assert _row(ground, yes_of(me(), case.decision)) == 1
    refuses_to_execute(ground, case, 3, "approved by 0 of 1 person")


def test_a_decision_edited_in_the_tables(ground: Ground) -> None:
    """ALLOW written over the gate's verdict in the database changes nothing (exit 3)."""
    case = kept_case(ground, put("a", b"new\n"))
    lax = "replace(replace(document, 'NEED_APPROVAL', 'ALLOW'), '\"approvals_needed\": 1', '\"approvals_needed\": 0')"
    assert edit_tables(ground, f"UPDATE decisions SET document={lax}") == 1
    refuses_to_execute(ground, case, 3, "approved by 0 of 1 person")


def _forget(ground: Ground, *tables: str) -> None:
    for table in tables:
        assert edit_tables(ground, f"DELETE FROM {table}") > 0


def test_an_approval_unused_in_the_tables(ground: Ground) -> None:
    """Executions deleted from the database: the approval stays used, because the ledger says so (exit 3)."""
    case = _executed_and_undone(ground)
    _forget(ground, "executions")
    refuses_to_execute(ground, case, 3, "It was not used before")


def test_a_simulation_filed_again_does_not_wash_its_past_away(ground: Ground) -> None:
    """Rows deleted so that report and yes are filed anew: what was used before is still used (exit 3)."""
    case = kept_case(ground, put("a", b"new\n"))
    approval = ground.hf.approve(case.decision, by=ME)
    execute(ground, case)
    assert command(ground, "undo", ground.hf.log()[0].id, "--yes").status == 0
    _forget(ground, "decisions", "approvals", "executions")
    edit_tables(ground, "UPDATE simulations SET id = id || '-old'")
    ground.hf.pipeline.file([case.simulated.report])
    ground.hf.evaluate(case.simulated, case.verified)
    hand_in(ground, approval)
    refuses_to_execute(ground, case, 3, "It was not used before")


def test_a_rejection_is_not_washed_away_either(ground: Ground) -> None:
    """The same trick does not lose a no (exit 5)."""
    case = kept_case(ground, put("a", b"new\n"))
    ground.hf.reject(case.decision, by=ME, reason="never")
    _forget(ground, "simulations", "decisions", "approvals")
    ground.hf.evaluate(case.simulated, case.verified)
    ground.hf.approve(case.decision, by=ME)
    refuses_to_execute(ground, case, 5, "never")


def test_who_made_it_is_not_washed_away_either(ground: Ground) -> None:
    """Nor does it make somebody else the author, so that one's own yes would count (exit 3)."""
    case = _high_risk(ground)
    _forget(ground, "simulations", "decisions")
    config = approvers(somebody("anna"), somebody("bert"), me())
    configure(config.replace(f'name = "{ME}"', 'name = "bert"'))
    ground.hf.evaluate(case.simulated, case.verified)
    configure(config)
    hand_in(ground, yes_of(me(), case.decision), yes_of(somebody("anna"), case.decision))
    refuses_to_execute(ground, case, 3, "not for one's own change")
