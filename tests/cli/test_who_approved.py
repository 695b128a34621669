"""The record of an execution names who said yes with an answer that counted, and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from delegated import configured
from holdfast.store.signing import load_or_create_signer
from people import People

CHANGE = "intent: Number the release\nsteps:\n  - write: VERSION\n    content: '2'\n"
RISKY = "intent: Deploy\nsteps:\n  - write: .github/workflows/ci.yml\n    content: 'on: push'\n"
UNHEALTHY = CHANGE + 'health:\n  - run: ["false"]\n    within: 200ms\n'
LOOSE = '[policy]\nwithout_verification = "allow"\nwithout_health = "allow"\n'
Write = Callable[[str], str]


def _newest(guarded: Any) -> dict[str, Any]:
    id = guarded("log", "--json").document["items"][0]["id"]
    document: dict[str, Any] = guarded("show", id, "--json").document
    return document


def _approved(document: dict[str, Any]) -> tuple[str, bool, bool]:
    return document["approved_by"], document["user_approved"], document["approved_at_ns"] > 0


def test_a_refusal_for_want_of_an_approval_says_that_nobody_approved(guarded: Any, write: Write) -> None:
    """Who runs `execute` has not approved by that: no name and no time, in words and in JSON."""
    id = guarded("simulate", write(CHANGE), "--json").document["id"]
    assert guarded("execute", id).status == 3
    done = _newest(guarded)
    assert (done["status"], *_approved(done)) == ("ABORTED", "", False, False)
    assert "Approved  by nobody\n" in guarded("show", done["id"]).out


def test_those_who_approved_are_named_not_who_carried_it_out(guarded: Any, write: Write, people: People) -> None:
    """One of two is named in the refusal, both in the landing; the undo names who took it back."""
    report = people.told("me", "simulate", write(RISKY), "--json").document
    people.told("ben", "approve", report["id"], "--plan", report["plan_id"])
    assert people.told("me", "execute", report["id"]).status == 3
    assert _newest(guarded)["approved_by"] == "ben"
    people.told("ann", "approve", report["id"], "--plan", report["plan_id"])
    done = people.told("me", "execute", report["id"], "--json").document
    assert _approved(done) == ("ben, ann", True, True)
    assert "Approved  by ben, ann\n" in guarded("show", done["id"]).out
    undone = people.told("me", "undo", done["id"], "--yes", "--json").document
    assert _approved(undone) == ("me", True, True)
    assert people.told("me", "execute", report["id"]).status == 3
    assert _approved(_newest(guarded)) == ("", False, False), "what was used up is no approval any more"


@pytest.mark.parametrize("verb", ["apply", "evaluate", "approve", "execute"])
def test_a_maker_is_told_who_can_approve(guarded: Any, write: Write, people: People, verb: str) -> None:
    """The maker of a risky change is not told to approve it: the way on names those whose yes would count."""
    report = people.told("me", "simulate", write(RISKY), "--json").document
    words = {"apply": ("apply", write(RISKY), "--yes")}.get(verb, (verb, report["id"]))
    told = people.told("me", *words)
    id = told.err.rpartition("holdfast execute ")[2].split()[0] if verb == "apply" else report["id"]
    way = f"holdfast approve {id} --plan {report['plan_id']}"
    assert f"Somebody else has to approve it: ann or ben, with: {way}" in told.out + told.err
    said = people.told("ann", *way.split()[1:])
    assert f"Approved by 1 of 2 people: 1 more person has to approve it (ben), with: {way}\n" in said.out
    assert people.told("ben", *way.split()[1:]).out.endswith(f"Carry it out with: holdfast execute {id}\n")
    assert people.told("me", "execute", id).status == 0


def test_an_answer_that_would_not_count_names_whose_would(guarded: Any, write: Write, people: People) -> None:
    """The maker who approves all the same, and somebody who is no approver, are told who can."""
    report = people.told("me", "simulate", write(RISKY), "--json").document
    way = ("approve", report["id"], "--plan", report["plan_id"])
    assert "Somebody else has to approve it: ann or ben." in people.told("me", *way).err
    people.configure(without="ann")
    assert "Somebody else has to approve it: ben." in people.told("ann", *way).err
    assert f"Next: holdfast {' '.join(way)}\n" in people.told("ben", "evaluate", report["id"]).out


def test_what_policy_allows_was_approved_by_nobody(guarded: Any, write: Write, people: People) -> None:
    """Without a yes there is none in the record; `--yes` is this user's, also where nobody had to give it."""
    people.configure(LOOSE)
    id = people.told("me", "simulate", write(CHANGE), "--json").document["id"]
    done = people.told("me", "execute", id, "--json").document
    assert (done["status"], *_approved(done)) == ("SUCCESS", "", False, False)
    assert "Approved  by nobody; policy allowed it\n" in guarded("show", done["id"]).out
    more = write(CHANGE.replace("VERSION", "MORE"))
    assert _approved(people.told("me", "apply", more, "--yes", "--json").document) == ("me", True, True)


def test_blanks_around_a_name_are_no_part_of_it(guarded: Any, write: Write) -> None:
    """Configured with them, as this user or as an approver, a person is the same, and is recorded without them."""
    key = load_or_create_signer().public
    for number, (user, approver) in enumerate([(" ann ", "ann"), ("ann", " ann "), (" ann ", " ann ")]):
        configured(f"[me]\nname = '{user}'\n[approvers]\n'{approver}' = '{key}'\n")
        ran = guarded("apply", write(CHANGE.replace("VERSION", f"V{number}")), "--yes", "--json")
        assert ran.status == 0, ran
        assert _approved(ran.document) == ("ann", True, True)


def test_what_was_rolled_back_names_who_approved_it(guarded: Any, write: Write) -> None:
    """A change that was approved and did not hold keeps the name, also where another yes would be needed now."""
    id = guarded("simulate", write(UNHEALTHY), "--json").document["id"]
    by = guarded("approve", id, "--json").document["by"]
    assert guarded("execute", id).status == 6
    done = _newest(guarded)
    assert (done["status"], *_approved(done)) == ("ROLLED_BACK", by, True, True)


def test_consent_that_is_not_spelled_out_is_no_approval(guarded: Any, write: Write) -> None:
    """`--yes` to a high risk is refused, and in Python a name without the plan's id is as little."""
    import holdfast
    from holdfast.errors import ApprovalNeeded

    with holdfast.open(str(guarded.directory)) as hf:
        with pytest.raises(ApprovalNeeded):
            hf.execute(hf.simulate(hf.plan(write(RISKY))), approved_by="me")
        assert hf.last is not None
        assert (hf.last.approved_by, hf.last.approved_at_ns) == ("", 0)
