"""The world of a run: answers to what was asked, budgets that end it, a roadmap that people save while it goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from driven_run import Sitting, worked
from guarded import ME, Ground, guard, put
from holdfast.model.agent import Usage
from holdfast.model.configuration import Budget
from holdfast.model.run import RunOptions
from holdfast.model.task import TaskRecord
from holdfast.settlement.runs import ANSWER, answer_body
from holdfast.store.chain import Record
from holdfast.store.runs import Said

TWO = "# R\n\n- [ ] One\n- [ ] Two\n"


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", {"ROADMAP.md": TWO.encode()})
    yield found
    found.hf.close()


# ── answers ──


def waiting(sitting: Sitting, **fields: Any) -> TaskRecord:
    """A task that waits for a person."""
    record = sitting.record("One")
    sitting.book.move(record._replace(state="NEEDS_REVIEW", **fields))
    return sitting.record("One")


def test_only_what_is_said_to_the_question_is_an_answer(ground: Ground) -> None:
    """A yes to an earlier question is none to this one (H1)."""
    sitting = Sitting(ground, TWO)
    sitting.say("One", yes=True)
    record = waiting(sitting)
    assert sitting.world.answered(record) is None
    sitting.say("Two", yes=True)
    assert sitting.world.answered(record) is None
    sitting.say("One", yes=True)
    answered = sitting.world.answered(record)
    assert answered is not None and (answered.state, answered.cleared_by) == ("PENDING", ME)


HOUR_NS = 3_600 * 10**9


@pytest.mark.parametrize("by_ns", [-HOUR_NS, 0, HOUR_NS], ids=["set back", "right", "fast"])
@pytest.mark.parametrize(
    "fields",
    [{}, {"proposal": "ab" * 32, "simulation": "s-1"}, {"proposal": "ab" * 32, "landing": True}],
    ids=["nothing was done", "it waits to land", "it may have landed"],
)
def test_an_answer_to_another_question_is_none_by_whatever_clock(
    ground: Ground, fields: dict[str, Any], by_ns: int
) -> None:
    """The first question was answered, late or early, and asked once more: that answer is spent (H1, K4)."""
    sitting = Sitting(ground, TWO)
    first = waiting(sitting, **fields)
    sitting.book.move(first._replace(state="PENDING", landing=False))
    second = waiting(sitting, **fields)
    task, simulation = second.task, second.simulation
    for asked, shown in ((first.asked, simulation), (second.asked, "s-other"), (second.asked + 1, simulation)):
        say_at(sitting, Said(sitting.book.run.id, task, True, False, ME, "", time.time_ns() + by_ns, asked, shown))
        assert sitting.world.answered(second) is None
    say_at(sitting, Said(sitting.book.run.id, task, True, False, ME, "", time.time_ns() + by_ns, 2, simulation))
    assert second.asked == 2 and sitting.world.answered(second) is not None


def say_at(sitting: Sitting, said: Said) -> None:
    """By the clock of whoever says it."""
    sitting.pipeline.note_run([Record(ANSWER, answer_body(said), said.at_ns)])


def test_what_was_said_to_no_question_in_particular_is_not_counted(ground: Ground) -> None:
    """As earlier releases wrote it: nobody knows what was shown then, so the person is asked."""
    sitting = Sitting(ground, TWO)
    record = waiting(sitting)
    say_at(sitting, Said(sitting.book.run.id, record.task, True, False, ME, "", time.time_ns()))
    assert sitting.world.answered(record) is None


def test_a_stale_answer_takes_no_place(ground: Ground) -> None:
    """What is said to the question before, after this one was answered, does not wash that answer away."""
    sitting = Sitting(ground, TWO)
    first = waiting(sitting)
    sitting.book.move(first._replace(state="PENDING"))
    second = waiting(sitting)
    sitting.say("One", yes=True)
    say_at(sitting, Said(sitting.book.run.id, first.task, False, False, ME, "", time.time_ns(), first.asked))
    answered = sitting.world.answered(second)
    assert answered is not None and answered.cleared_by == ME


def test_the_newest_answer_counts(ground: Ground) -> None:
    """A person changes their mind before anybody looked."""
    sitting = Sitting(ground, TWO)
    record = waiting(sitting)
    sitting.say("One", yes=True)
    sitting.say("One", yes=False, skip=True)
    answered = sitting.world.answered(record)
    assert answered is not None and answered.state == "SKIPPED"


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ({}, "PENDING"),
        ({"proposal": "ab" * 32}, "PENDING"),
        ({"proposal": "ab" * 32, "simulation": "s-1"}, "VALIDATING"),
        ({"proposal": "ab" * 32, "landing": True}, "VALIDATING"),
    ],
    ids=["nothing was done", "what was done cannot land", "it waits to land", "it may have landed"],
)
def test_a_yes_goes_on_where_it_stood(ground: Ground, fields: dict[str, Any], state: str) -> None:
    """To work, or to the landing; what may have landed is never worked on again."""
    sitting = Sitting(ground, TWO)
    record = waiting(sitting, **fields)
    sitting.say("One", yes=True)
    answered = sitting.world.answered(record)
    assert answered is not None and (answered.state, answered.landing) == (state, bool(fields.get("landing")))


def test_the_reason_of_a_no_is_told(ground: Ground) -> None:
    """With who said it."""
    sitting = Sitting(ground, TWO)
    record = waiting(sitting)
    run, now = sitting.book.run.id, time.time_ns()
    say_at(sitting, Said(run, record.task, False, False, "somebody", "too risky", now, record.asked))
    answered = sitting.world.answered(record)
    assert answered is not None and (answered.state, answered.because) == ("FAILED", "somebody said no: too risky")


# ── budgets ──

SPENT = Usage(10, 1_000, 500, 2_000_000)


@pytest.mark.parametrize(
    ("budget", "word"),
    [
        (Budget(micro_usd=2_000_000), "money"),
        (Budget(tokens=1_500), "tokens"),
        (Budget(turns=10), "requests"),
        (Budget(time_ms=60_000), "time"),
    ],
    ids=["money", "tokens", "requests", "time"],
)
def test_each_kind_of_budget_ends_a_run_when_it_is_reached(ground: Ground, budget: Budget, word: str) -> None:
    """At the bound, not one below it."""
    sitting = Sitting(ground, TWO, options=RunOptions(budget=budget))
    sitting.book.usage = SPENT
    assert word in sitting.world.exhausted(sitting.book, 60_000)
    sitting.book.usage = Usage(9, 999, 500, 1_999_999)
    assert sitting.world.exhausted(sitting.book, 59_999) == ""


def test_a_budget_of_money_ends_where_nobody_knows_the_price(ground: Ground) -> None:
    """It could have cost anything (H3); without such a budget it does not matter."""
    sitting = Sitting(ground, TWO, options=RunOptions(budget=Budget(micro_usd=10**9)))
    sitting.book.usage = Usage(1, 1, 1, None)
    assert "not known" in sitting.world.exhausted(sitting.book, 0)
    free = Sitting(ground, TWO)
    free.book.usage = Usage(1, 1, 1, None)
    assert free.world.exhausted(free.book, 0) == ""


def test_those_who_work_at_once_share_what_is_left(ground: Ground) -> None:
    """All of them together stay below the bound; what has no bound is not shared."""
    sitting = Sitting(ground, TWO, options=RunOptions(parallel=4, budget=Budget(micro_usd=2_000_400, turns=10)))
    sitting.book.usage = SPENT
    sitting.world.exhausted(sitting.book, 0)
    assert sitting.world.left == Budget(micro_usd=100, turns=1)


def test_a_usage_that_is_reported_reaches_the_budget_of_the_next_agent(ground: Ground) -> None:
    """What one attempt used is not there for the next."""
    sitting = Sitting(ground, TWO, options=RunOptions(budget=Budget(tokens=1_000)))
    sitting.drive({"One": [worked()._replace(usage=Usage(1, 300, 100, 0))]})
    assert sitting.world.left.tokens == 600


# ── the roadmap, while people save it ──


def test_a_roadmap_that_is_gone_for_a_moment_leaves_the_last_reading(ground: Ground) -> None:
    """Moved away, unreadable, or no file: the run goes on (H2)."""
    sitting = Sitting(ground, TWO)
    before = sitting.world.rules(sitting.book)
    sitting.file.rename(sitting.file.with_suffix(".bak"))
    assert sitting.world.rules(sitting.book) is before
    sitting.file.mkdir()
    assert sitting.world.rules(sitting.book) is before


def test_half_a_file_is_no_roadmap(ground: Ground) -> None:
    """Many programs truncate and then write: what is missing for a moment has not left (H2)."""
    sitting = Sitting(ground, TWO)
    before = sitting.world.rules(sitting.book)
    sitting.file.write_text("", encoding="utf-8")
    assert sitting.world.rules(sitting.book) is before
    sitting.seconds += 0.5
    sitting.file.write_text("# R\n\n- [ ] One\n", encoding="utf-8")
    sitting.seconds += 0.6
    assert sitting.world.rules(sitting.book) is before, "the second half was not missing for long"
    sitting.file.write_text(TWO, encoding="utf-8")
    assert [task.title for task in sitting.world.rules(sitting.book).roadmap.tasks] == ["One", "Two"]


def test_a_task_that_stays_away_has_left(ground: Ground) -> None:
    """Also while boxes are ticked meanwhile."""
    sitting = Sitting(ground, TWO)
    sitting.file.write_text("# R\n\n- [ ] Two\n", encoding="utf-8")
    assert sitting.world.rules(sitting.book).has(sitting.record("One").task)
    sitting.seconds += 0.6
    sitting.file.write_text("# R\n\n- [x] Two\n", encoding="utf-8")
    sitting.world.rules(sitting.book)
    sitting.seconds += 0.6
    assert [task.title for task in sitting.world.rules(sitting.book).roadmap.tasks] == ["Two"]


def test_a_new_task_is_seen_at_once(ground: Ground) -> None:
    """Nothing is missing, so nobody waits."""
    sitting = Sitting(ground, TWO)
    sitting.file.write_text(TWO + "- [ ] Three\n", encoding="utf-8")
    assert len(sitting.world.rules(sitting.book).roadmap.tasks) == 3


def test_boxes_that_a_kill_left_are_ticked(ground: Ground) -> None:
    """From the book; what is ticked already is left alone."""
    sitting = Sitting(ground, TWO)
    landed = ground.apply(put("one", b"1\n")).id
    sitting.book.move(sitting.record("One")._replace(state="COMPLETED", execution=landed))
    assert sitting.world.tick_all(sitting.book) == ""
    assert sitting.file.read_text(encoding="utf-8") == TWO.replace("[ ] One", "[x] One")
    assert sitting.world.tick_all(sitting.book) == ""


def test_boxes_of_what_does_not_stand_are_left_alone(ground: Ground) -> None:
    """What one task landed was undone behind the run's back; the other found everything done, and landed nothing."""
    sitting = Sitting(ground, TWO)
    landed = ground.apply(put("one", b"1\n")).id
    ground.hf.undo(landed, approved_by=ME)
    sitting.book.move(sitting.record("One")._replace(state="COMPLETED", execution=landed))
    sitting.book.move(sitting.record("Two")._replace(state="COMPLETED"))
    assert sitting.world.tick_all(sitting.book) == ""
    assert sitting.file.read_text(encoding="utf-8") == TWO.replace("[ ] Two", "[x] Two")
