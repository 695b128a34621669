"""What answers are worth is told where they are given and where they are used."""

from __future__ import annotations

from collections.abc import Callable

from people import People

CHANGE = "intent: Number the release\nsteps:\n  - write: VERSION\n    content: '2'\n"
RISKY = "intent: Deploy\nsteps:\n  - write: .github/workflows/ci.yml\n    content: 'on: push'\n"
Write = Callable[[str], str]


def test_the_first_of_two_is_told_who_is_missing(write: Write, people: People) -> None:
    """`approve` says how many more people it takes, and how; only the last of them is told to carry it out."""
    report = people.told("me", "simulate", write(RISKY), "--json").document
    yes = ("approve", report["id"], "--plan", report["plan_id"])
    for _ in range(2):  # saying it twice makes nobody two people
        first = people.told("ann", *yes).out
        assert "Approved by 1 of 2 people: 1 more person has to approve it" in first
        assert f"holdfast {' '.join(yes)}" in first
        assert "holdfast execute" not in first
    worth = people.told("ann", *yes, "--json").document
    assert (worth["granted"], worth["people"], worth["people_needed"]) == (False, 1, 2)
    assert f"Carry it out with: holdfast execute {report['id']}\n" in people.told("ben", *yes).out


def test_a_yes_after_a_no_is_not_told_to_go_on(write: Write, people: People) -> None:
    """Whoever approves what somebody rejected learns at once that it does not land."""
    report = people.told("me", "simulate", write(CHANGE), "--json").document
    people.told("ann", "reject", report["id"], "--reason", "not on Friday")
    told = people.told("ben", "approve", report["id"]).out
    assert "It does not land all the same: rejected by ann: not on Friday" in told
    assert "holdfast execute" not in told


def test_an_answer_that_does_not_count_is_marked_with_the_reason(write: Write, people: People) -> None:
    """Only what counts gets a tick; what was used up, or is by somebody who may not, says which rule it breaks."""
    report = people.told("me", "simulate", write(CHANGE), "--json").document
    used = people.told("ann", "approve", report["id"], "--json").document["id"]
    done = people.told("me", "execute", report["id"], "--json").document["id"]
    people.told("me", "undo", done, "--yes")
    gone = people.told("ben", "approve", report["id"], "--json").document["id"]
    counts = people.told("me", "approve", report["id"], "--json").document["id"]
    people.configure(without="ben")
    told = people.told("me", "execute", report["id"]).out
    breaks = "does not count, since it breaks the rule"
    assert f'  . approved by ann: {used}, {breaks} "It was not used before"\n' in told
    assert (
        f'  . approved by ben: {gone}, {breaks} "It is by a configured approver, with that approver\'s key"\n' in told
    )
    assert f"  ✓ approved by me: {counts}\n" in told
    assert told.count("✓ approved") == 1
