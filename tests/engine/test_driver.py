"""The driver: from what is durable it computes the next move, and it can be killed between any two of them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from driven_run import (
    DAY_NS,
    PROPOSAL,
    Ending,
    Killed,
    Sitting,
    asked,
    cancelled,
    failed,
    landed,
    lost,
    still,
    unlanded,
    unworked,
    worked,
)
from guarded import Ground, at_most, guard, put
from holdfast.engine.job import job_of
from holdfast.engine.orders import Unworked, land_order_from, order_from, packed, plan_of
from holdfast.errors import Blocked
from holdfast.model.agent import Escalated, Usage
from holdfast.model.configuration import Budget
from holdfast.model.fix import CATEGORIES, Category
from holdfast.model.run import AgentSeen, Heartbeat, RunFinished, RunOptions, TaskCompleted, TaskFailed, TaskMoved
from holdfast.store.database import Paper
from holdfast.testing import HandEngine

ONE = "# R\n\n- [ ] One\n"
THREE = "# R\n\n- [ ] One\n- [ ] Two\n- [ ] Three\n"
CHAIN = "# R\n\n- [ ] One\n- [ ] Two (depends on One)\n"


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", {"ROADMAP.md": ONE.encode()})
    yield found
    found.hf.close()


# ── state by state ──


def test_work_that_is_good_lands_and_is_completed(ground: Ground) -> None:
    """PENDING, IN_PROGRESS, VALIDATING, COMPLETED; the record names the execution and its commit."""
    sitting = Sitting(ground, ONE)
    assert sitting.drive({"One": [worked(3), landed("e-7")]}).state == "FINISHED"
    record = sitting.record("One")
    assert sitting.moves("One") == ["IN_PROGRESS", "VALIDATING", "COMPLETED"]
    assert (record.execution, record.commit, record.proposal) == ("e-7", "c0ffee", PROPOSAL)
    assert [event.execution for event in sitting.events if isinstance(event, TaskCompleted)] == ["e-7"]


@pytest.mark.parametrize("category", get_args(Category))
def test_work_that_fails_is_tried_again_and_not_for_ever(ground: Ground, category: Category) -> None:
    """Every kind of failure leads back to PENDING or DEFERRED, and at last to FAILED, TIMEOUT or a person."""
    assert category in CATEGORIES
    sitting = Sitting(ground, ONE, options=RunOptions(attempts=6))
    sitting.later_ns = DAY_NS
    run = sitting.drive({"One": [unworked(category)] * 9})
    record = sitting.record("One")
    assert run.state in ("FINISHED", "WAITING") and record.state in ("FAILED", "TIMEOUT", "NEEDS_REVIEW")
    assert 2 <= len(record.tried) <= 6 and {tried.category for tried in record.tried} == {category}
    assert not sitting.landings()


def test_what_is_final_is_asked_and_never_tried_again(ground: Ground) -> None:
    """A gate said no: NEEDS_REVIEW after one attempt, and the run waits for a person."""
    sitting = Sitting(ground, ONE)
    assert sitting.drive({"One": [unworked("unknown", final=True)]}).state == "WAITING"
    assert sitting.moves("One") == ["IN_PROGRESS", "NEEDS_REVIEW"] and len(sitting.works()) == 1


def test_a_conflict_at_landing_leads_to_another_attempt(ground: Ground) -> None:
    """VALIDATING, PENDING, and the next attempt has another id; the first proposal is never landed again."""
    sitting = Sitting(ground, ONE)
    assert sitting.drive({"One": [worked(), unlanded()]}).state == "FINISHED"
    assert sitting.moves("One") == ["IN_PROGRESS", "VALIDATING", "PENDING", "IN_PROGRESS", "VALIDATING", "COMPLETED"]
    assert len(set(sitting.works())) == 2 and len(set(sitting.landings())) == 2


def test_what_is_deferred_waits_until_nothing_else_can_start(ground: Ground) -> None:
    """The host failed: DEFERRED, the others go first, and then it starts again."""
    sitting = Sitting(ground, THREE)
    sitting.later_ns = DAY_NS
    assert sitting.drive({"One": [unworked("environment")]}).state == "FINISHED"
    assert sitting.moves("One")[:3] == ["IN_PROGRESS", "DEFERRED", "PENDING"]
    assert [id.split(".")[1] for id in sitting.works()][-1] == sitting.record("One").task


def test_an_error_of_our_own_is_told_as_one_with_when_it_is_tried_again(ground: Ground) -> None:
    """Not the agent failed: the book, and whoever looks on, know what broke, and not before when it is begun again."""
    sitting = with_time(Sitting(ground, ONE), 120)

    def broken(engine: HandEngine, id: str) -> None:
        engine.fail(id, "FileNotFoundError: [Errno 2] No such file or directory: 'mirrors/2'")

    began = time.time_ns()
    assert sitting.drive({"One": [broken]}).state == "FINISHED"
    (told,) = (event for event in sitting.events if isinstance(event, TaskFailed))
    assert (told.category, told.strategy) == ("environment", "defer")
    assert told.because.startswith("Holdfast itself failed, and not the agent: FileNotFoundError: ")
    assert began < told.not_before_ns <= time.time_ns() + 60 * 10**9
    deferred = next(event for event in sitting.events if isinstance(event, TaskMoved) and event.state == "DEFERRED")
    assert "Holdfast itself failed" in deferred.because and "tried again later" in deferred.because


def test_what_waits_for_its_time_does_not_end_the_run(ground: Ground) -> None:
    """An agent that is ill gets a pause first; nothing starts before it is over, and the run goes on."""
    sitting, waited = Sitting(ground, ONE), list[float]()
    pause = sitting.pause

    def later(seconds: float) -> None:
        waited.append(seconds)
        sitting.later_ns += 2 * 10**9
        pause(seconds)

    sitting.pause = later  # type: ignore[method-assign]
    assert sitting.drive({"One": [unworked("agent error")]}).state == "FINISHED"
    assert waited and sitting.record("One").state == "COMPLETED"


LEFT_ALONE = unworked("agent error")._replace(pause_ms=30_000, because="hand is not asked at the moment")


def with_time(sitting: Sitting, seconds: int = 10) -> Sitting:
    """Whoever waits there waits so long."""
    pause = sitting.pause

    def later(waited: float) -> None:
        sitting.later_ns += seconds * 10**9
        pause(waited)

    sitting.pause = later  # type: ignore[method-assign]
    return sitting


def test_an_agent_that_is_left_alone_costs_a_task_no_attempt(ground: Ground) -> None:
    """Its breaker is open: the task is to do again when that is over, however few attempts it has, and is done."""
    sitting = with_time(Sitting(ground, THREE, options=RunOptions(agent="hand", attempts=1)), 1)
    begun: list[int] = []

    def later(engine: HandEngine, id: str) -> None:
        begun.append(sitting.later_ns)
        sitting.engine.end(id, packed(LEFT_ALONE))

    assert sitting.drive({"Two": [later, later, later]}).state == "FINISHED"
    record = sitting.record("Two")
    assert set(sitting.states().values()) == {"COMPLETED"}
    assert (record.attempt, record.tried, record.left_alone) == (1, (), 0)
    assert len(begun) == 3 and begun[1] - begun[0] >= 20 * 10**9
    assert len(set(sitting.works())) == len(sitting.works()) == 6
    assert not [event for event in sitting.events if isinstance(event, TaskFailed)]
    told = [event.happening for event in sitting.events if isinstance(event, AgentSeen)]
    assert told == [Escalated("hand is not asked at the moment")] * 3


def test_a_task_that_made_its_agent_ill_lets_others_go_first(ground: Ground) -> None:
    """When the pause is over, who failed would be the first of the roadmap, and would make it longer for all."""
    ill = unworked("agent error")
    sitting = with_time(Sitting(ground, THREE, options=RunOptions(agent="hand")), 1)
    assert sitting.drive({"One": [ill, LEFT_ALONE], "Two": [LEFT_ALONE], "Three": [LEFT_ALONE]}).state == "FINISHED"
    last = list(dict.fromkeys(id.split(".")[1] for id in reversed(sitting.works())))
    assert last == [sitting.record(title).task for title in ("One", "Three", "Two")]


def test_nobody_waits_for_ever_for_an_agent_that_is_left_alone(ground: Ground) -> None:
    """After many pauses it is a failure like others, and at last a person is needed."""
    sitting = with_time(Sitting(ground, ONE, options=RunOptions(agent="hand")), 3_600)
    assert sitting.drive({"One": [LEFT_ALONE] * 99}).state == "FINISHED"
    record = sitting.record("One")
    assert (record.state, len(record.tried)) == ("FAILED", 3) and len(sitting.works()) == 8 + 3


def test_the_pauses_of_one_failure_are_not_those_of_the_next(ground: Ground) -> None:
    """Once the agent was asked again, they are counted from the beginning."""
    sitting = with_time(Sitting(ground, ONE, options=RunOptions(agent="hand")), 3_600)
    assert sitting.drive({"One": [*[LEFT_ALONE] * 8, unworked(), *[LEFT_ALONE] * 8]}).state == "FINISHED"
    assert (sitting.record("One").state, len(sitting.record("One").tried)) == ("COMPLETED", 1)


def test_a_worker_cannot_put_a_task_off_for_years(ground: Ground) -> None:
    """However long it says that its agent is left alone, it is no longer than a breaker stays open."""
    sitting = with_time(Sitting(ground, ONE, options=RunOptions(agent="hand")), 600)
    assert sitting.drive({"One": [LEFT_ALONE._replace(pause_ms=1 << 52)]}).state == "FINISHED"
    assert sitting.record("One").state == "COMPLETED"


@pytest.mark.parametrize(("agent", "asked_again"), [("auto", ["first", "second"]), ("first", ["first"])])
def test_whoever_fits_best_by_then_takes_a_task_that_waited(ground: Ground, agent: str, asked_again: list[str]) -> None:
    """Unless a person named the agent."""
    asked: list[str] = []

    def route(task: Any) -> str:
        asked.append("first" if agent == "first" or not asked else "second")
        return asked[-1]

    sitting = with_time(Sitting(ground, ONE, options=RunOptions(agent=agent), route=route))
    assert sitting.drive({"One": [LEFT_ALONE]}).state == "FINISHED"
    assert asked == asked_again and sitting.record("One").agent == asked_again[-1]


# ── what is asked for and cannot be looked at ──

UNFIT = "# R\n\n- [ ] One\n  **Verify**: `true && grep -q never a.py`\n- [ ] Two\n"


def test_a_task_whose_command_cannot_be_run_is_not_begun(ground: Ground) -> None:
    """It waits for a person, with the reason, and a yes alone does not begin it; put right, it is asked for whole."""
    sitting = Sitting(ground, UNFIT)
    assert sitting.drive().state == "WAITING"
    assert sitting.states() == {"One": "NEEDS_REVIEW", "Two": "COMPLETED"}
    assert "&& is for a shell" in sitting.record("One").because and len(sitting.works()) == 1
    sitting.say("One", yes=True)
    after = sitting.again()
    assert after.drive().state == "WAITING" and len(after.works()) == 1
    after.file.write_text(UNFIT.replace("true && ", ""), encoding="utf-8")
    after.say("One", yes=True)
    last = after.again()
    assert last.drive().state == "FINISHED"
    order = order_from(last.engine.argument(last.works()[-1]))  # type: ignore[arg-type]
    assert order.accept == (("grep", "-q", "never", "a.py"),)


def test_a_question_waits_and_a_yes_goes_on(ground: Ground) -> None:
    """NEEDS_REVIEW ends the sitting as WAITING; after a yes the next one lands the same work, in another turn."""
    sitting = Sitting(ground, ONE)
    assert sitting.drive({"One": [worked(), asked("s-9")]}).state == "WAITING"
    sitting.say("One", yes=True)
    after = sitting.again()
    assert after.drive().state == "FINISHED"
    assert after.moves("One") == ["IN_PROGRESS", "VALIDATING", "NEEDS_REVIEW", "VALIDATING", "COMPLETED"]
    order = land_order_from(after.engine.argument(after.landings()[-1]))  # type: ignore[arg-type]
    assert (order.simulation, order.cleared_by, order.turn) == ("s-9", "tester", 2)
    assert len(after.works()) == 1


def test_a_landing_that_was_taken_back_before_the_book_knew_completes_nothing(ground: Ground) -> None:
    """Killed after the landing ended, and undone: landing it again finds that out, and a person is asked (D4)."""
    landing = ground.apply(put("one", b"1\n")).id
    ground.hf.undo(landing, approved_by="tester")
    sitting = Sitting(ground, ONE)
    gone = unlanded("unknown", final=True)._replace(taken_back=True)
    assert sitting.drive({"One": [worked(), landed(landing), gone]}).state == "WAITING"
    assert sitting.moves("One") == ["IN_PROGRESS", "VALIDATING", "NEEDS_REVIEW"] and len(sitting.landings()) == 2


def test_a_yes_to_what_was_taken_back_begins_it_anew(ground: Ground) -> None:
    """A person was asked, said yes, it landed, and was taken back: that proposal is over, and a yes is to new work."""
    sitting = Sitting(ground, ONE)
    assert sitting.drive({"One": [worked(), asked("s-9")]}).state == "WAITING"
    sitting.say("One", yes=True)
    gone = unlanded("unknown", final=True)._replace(taken_back=True)
    after = sitting.again()
    assert after.drive({"One": [gone]}).state == "WAITING" and after.record("One").proposal == ""
    after.say("One", yes=True)
    last = after.again()
    assert last.drive().state == "FINISHED" and len(set(last.works())) == 2


def approve(sitting: Sitting, simulation: str, by: str) -> None:
    """As the tables have it once somebody signed."""
    now = time.time_ns()
    paper = Paper(f"a-{by}-{now}", simulation, now, {"answer": "approve", "by": by})
    sitting.pipeline.records.save_paper("approvals", paper, 0)


@pytest.mark.parametrize(("asks_about", "state"), [("s-9", "FINISHED"), ("s-10", "WAITING")])
def test_who_answers_while_it_lands_need_not_answer_again(ground: Ground, asks_about: str, state: str) -> None:
    """Two must say yes: the second one does while the first one's landing finds that out. What they saw counts, and
    nothing else does."""
    sitting = Sitting(ground, ONE)
    assert sitting.drive({"One": [worked(), asked("s-9")]}).state == "WAITING"
    approve(sitting, "s-9", "ann")
    after = sitting.again()

    def meanwhile(engine: HandEngine, id: str) -> None:
        approve(after, "s-9", "ben")
        engine.end(id, packed(asked(asks_about)))

    assert after.drive({"One": [meanwhile]}).state == state
    assert len(after.works()) == 1


def test_one_answer_is_looked_at_once(ground: Ground) -> None:
    """Where it is not enough, the task waits for another one, also in a later sitting."""
    sitting = Sitting(ground, ONE)
    sitting.drive({"One": [worked(), asked("s-9")]})
    approve(sitting, "s-9", "ann")
    after = sitting.again()
    assert after.drive({"One": [asked("s-9")]}).state == "WAITING" and len(after.landings()) == 2
    last = after.again()
    assert last.drive().state == "WAITING" and len(last.landings()) == 2


@pytest.mark.parametrize(("skip", "state"), [(False, "FAILED"), (True, "SKIPPED")])
def test_a_no_ends_a_task(ground: Ground, skip: bool, state: str) -> None:
    """FAILED, or SKIPPED where the rest shall go on without it."""
    sitting = Sitting(ground, ONE)
    sitting.drive({"One": [worked(), asked()]})
    sitting.say("One", yes=False, skip=skip)
    after = sitting.again()
    assert after.drive().state == "FINISHED"
    assert after.record("One").state == state and len(after.landings()) == 1


def test_what_needs_a_lost_task_is_blocked(ground: Ground) -> None:
    """BLOCKED with the reason; it is never started."""
    sitting = Sitting(ground, CHAIN, options=RunOptions(attempts=1))
    assert sitting.drive({"One": [unworked()]}).state == "FINISHED"
    assert sitting.states() == {"One": "FAILED", "Two (depends on One)": "BLOCKED"}
    assert sitting.record("One").task in sitting.record("Two").because and len(sitting.works()) == 1


def test_a_task_that_asks_before_it_starts_is_asked_once(ground: Ground) -> None:
    """PENDING, NEEDS_REVIEW; after a yes it starts, and no attempt asks again."""
    sitting = Sitting(ground, ONE, options=RunOptions(ask=("before",)))
    assert sitting.drive().state == "WAITING" and not sitting.works()
    sitting.say("One", yes=True)
    after = sitting.again()
    assert after.drive({"One": [unworked()]}).state == "FINISHED"
    assert after.moves("One")[:3] == ["NEEDS_REVIEW", "PENDING", "IN_PROGRESS"]


def test_nobody_to_ask_is_a_question_and_not_the_end_of_the_run(ground: Ground) -> None:
    """Where no agent can be given a task, that task waits for a person, and the others go on."""

    def route(task: Any) -> str:
        if task.title == "One":
            raise Blocked("no agent can do this")
        return "hand"

    sitting = Sitting(ground, THREE, route=route)
    assert sitting.drive().state == "WAITING"
    assert sitting.states() == {"One": "NEEDS_REVIEW", "Two": "COMPLETED", "Three": "COMPLETED"}
    assert sitting.record("One").because == "no agent can do this"


# ── limits and stopping ──


def test_no_more_tasks_are_begun_than_a_run_may_have(ground: Ground) -> None:
    """Attempts at a task that was begun are not counted again, also not after a kill."""
    sitting = Sitting(ground, THREE, options=RunOptions(most_tasks=2))
    assert sitting.drive({"One": [unworked()]}).state == "FINISHED"
    assert sitting.states() == {"One": "COMPLETED", "Two": "COMPLETED", "Three": "PENDING"}
    assert sitting.book.begun == sitting.again().book.begun == 2


def test_nothing_starts_while_stopping_and_the_landing_is_not_left_alone(ground: Ground) -> None:
    """Stop is heard in mid-landing: it lands, what is worked on is cancelled, and nothing else is begun."""
    sitting = Sitting(ground, THREE, options=RunOptions(parallel=2))

    def stop(engine: HandEngine, id: str) -> None:
        sitting.stopping = "somebody"
        engine.end(id, packed(landed("e-1")))

    assert sitting.drive({"One": [worked(), stop], "Two": [still] * 9, "Three": [still] * 9}).state == "STOPPED"
    assert sitting.states() == {"One": "COMPLETED", "Two": "PENDING", "Three": "PENDING"}
    assert len(sitting.works()) == 3 and len(sitting.landings()) == 1 and not sitting.engine.open()
    assert sitting.again().drive().state == "FINISHED"


def test_a_budget_that_is_used_up_ends_the_sitting(ground: Ground) -> None:
    """LIMIT with the reason; what had ended good stays, and lands when somebody allows more."""
    sitting = Sitting(ground, THREE, options=RunOptions(budget=Budget(tokens=100)))
    spent = worked()._replace(usage=Usage(1, 90, 20, 0))
    run = sitting.drive({"One": [spent]})
    assert (run.state, "tokens" in run.because) == ("LIMIT", True)
    assert sitting.record("One").state == "VALIDATING" and len(sitting.works()) == 1


def test_the_time_of_a_sitting_that_was_killed_counts(ground: Ground) -> None:
    """Its moves tell how long it was at work, so that kills do not lengthen a run; the time in between is not work."""
    sitting = Sitting(ground, THREE)

    def die(engine: HandEngine, id: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        sitting.drive({"Two": [die]})
    moved = max(record.at_ns for record in sitting.book.records.values())
    lived = (moved - sitting.book.run.at_ns) // 1_000_000
    after = sitting.again()
    assert after.book.uncounted_ms == lived
    assert after.drive().worked_ms >= lived
    assert after.again().book.uncounted_ms == 0


def test_a_task_that_stops_the_run_stops_it_whatever_happens_to_the_roadmap(ground: Ground) -> None:
    """With on_failure = stop nothing new starts, also where a landing ticked the file in between."""
    options = RunOptions(attempts=1, on_failure="stop", parallel=2)
    sitting = Sitting(ground, THREE, options=options)

    def tick(engine: HandEngine, id: str) -> None:
        sitting.file.write_text(THREE.replace("[ ] Two", "[x] Two"), encoding="utf-8")
        engine.end(id, packed(landed()))

    # Two lands, One fails while it does; then the file is ticked.
    order = [("Two", worked()), ("One", unworked()), ("Two", tick)]

    def end_next() -> None:
        sitting.pause(0.5)
        title, ending = order.pop(0)
        sitting.settle(next(item for item in sitting.engine.open() if sitting.title_of(item) == title), ending)

    sitting.engine.on_pause = end_next
    assert sitting.driver.drive().state == "STOPPED"
    assert sitting.states() == {"One": "FAILED", "Two": "COMPLETED", "Three": "PENDING"}


# ── landing once ──


def test_a_landing_that_the_engine_lost_is_begun_again_as_the_same_landing(ground: Ground) -> None:
    """Failed, taken away, cancelled: another turn for the same order and proposal, never another attempt."""
    sitting = Sitting(ground, ONE)
    assert sitting.drive({"One": [worked(), failed, lost]}).state == "FINISHED"
    orders = [land_order_from(sitting.engine.argument(id)) for id in sitting.landings()]  # type: ignore[arg-type]
    assert [order.turn for order in orders] == [1, 2, 3]
    assert len({(order.order, order.proposal) for order in orders}) == 1 and len(sitting.works()) == 1


def test_a_landing_whose_end_is_not_known_is_never_followed_by_another_attempt(ground: Ground) -> None:
    """After three tries a person is asked; their yes begins the same landing again, since it may have landed."""
    sitting = Sitting(ground, ONE)
    assert sitting.drive({"One": [worked(), failed, cancelled, lost]}).state == "WAITING"
    assert sitting.record("One").landing
    sitting.say("One", yes=True)
    after = sitting.again()
    assert after.drive().state == "FINISHED"
    assert len(after.works()) == 1 and len(after.landings()) == 4


def test_a_doubtful_landing_waits_for_its_turn(ground: Ground) -> None:
    """A yes is heard while something else lands: there is one landing at a time, and both end."""
    sitting = Sitting(ground, THREE)
    assert sitting.drive({"One": [worked(), failed, failed, failed]}).state == "WAITING"
    sitting.say("One", yes=True)
    after = sitting.again()
    assert after.drive().state == "FINISHED"
    assert set(after.states().values()) == {"COMPLETED"}


def test_a_landing_of_another_release_is_landed_again_and_not_worked_on_again(ground: Ground) -> None:
    """It may have landed: only the same order can find that out."""
    sitting = Sitting(ground, ONE)

    def die(engine: HandEngine, id: str) -> None:
        engine.age(id)
        raise Killed

    with pytest.raises(Killed):
        sitting.drive({"One": [worked(), die]})
    after = sitting.again()
    assert after.drive().state == "FINISHED"
    assert len(after.works()) == 1 and len(after.landings()) == 2


def test_work_of_another_release_is_begun_as_another_attempt(ground: Ground) -> None:
    """Nobody here will ever run it: it is cancelled, and the task starts anew."""
    sitting = Sitting(ground, ONE)

    def die(engine: HandEngine, id: str) -> None:
        engine.age(id)
        raise Killed

    with pytest.raises(Killed):
        sitting.drive({"One": [die]})
    after = sitting.again()
    assert after.drive().state == "FINISHED"
    assert len(set(after.works())) == 2 and after.record("One").state == "COMPLETED"


@pytest.mark.parametrize("overlapping", [True, False])
def test_an_order_for_another_sitting_is_not_given_out(ground: Ground, overlapping: bool) -> None:
    """Written for work over the workspace itself, or over a mirror, it is cancelled and written anew (D8)."""
    sitting = Sitting(ground, ONE, overlapping=not overlapping)

    def die(engine: HandEngine, id: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        sitting.drive({"One": [die]})
    (first,) = sitting.works()
    after = sitting.again(overlapping=overlapping)
    assert after.drive().state == "FINISHED"
    (item,) = after.engine.items(first)[:1]
    assert item.state == "cancelled"
    orders = [order_from(after.engine.argument(id)) for id in dict.fromkeys(after.works())]
    assert [order.mirrored for order in orders] == [not overlapping, overlapping]
    assert (after.record("One").state, after.record("One").attempt) == ("COMPLETED", 2)


def test_an_order_whose_tree_nobody_finds_is_not_given_out(ground: Ground) -> None:
    """It names a base in a stock that those who work now do not have, or has none where they need one (D8)."""
    sitting = Sitting(ground, ONE)
    sitting.orders._base = lambda: "ab" * 32

    def die(engine: HandEngine, id: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        sitting.drive({"One": [die]})
    after = sitting.again()
    assert after.drive().state == "FINISHED"
    orders = [order_from(after.engine.argument(id)) for id in dict.fromkeys(after.works())]
    assert [order.base for order in orders] == ["ab" * 32, ""]


@pytest.mark.parametrize("landing", [False, True], ids=["work", "landing"])
def test_without_its_order_nothing_is_asked(ground: Ground, landing: bool) -> None:
    """A power cut took what was asked: work is tried anew; a landing, which may have been, is a person's matter."""
    sitting = Sitting(ground, ONE)

    def die(engine: HandEngine, id: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        sitting.drive({"One": [worked(), die] if landing else [die]})
    digest = sitting.record("One").order
    (ground.state / "objects" / digest[:2] / digest[2:]).write_bytes(b"")
    sitting.engine.forget("", 0)
    after = sitting.again()
    after.later_ns = DAY_NS
    assert after.drive().state == ("WAITING" if landing else "FINISHED")
    assert after.record("One").state == ("NEEDS_REVIEW" if landing else "COMPLETED")


def landed_for_real(sitting: Sitting, title: str) -> str:
    """An execution of what was asked last for the task, of which the book knows nothing."""
    ground = sitting.ground
    plan = plan_of(sitting.orders.order(sitting.record(title)))
    job = job_of(ground.hf.simulate(ground.plan(put("landed.py", b"L = 1\n"))))
    done = ground.hf.pipeline.execute(job._replace(plan_id=plan.id, plan_digest=plan.digest), approved_by="tester")
    assert done.status == "COMPLETED"
    return done.id


def test_no_attempt_is_begun_where_the_one_before_has_landed_after_all(ground: Ground) -> None:
    """However the book came to think otherwise: the ledger knows, and the task is completed by that landing."""
    sitting = Sitting(ground, ONE)

    def land_and_deny(engine: HandEngine, id: str) -> None:
        sitting.execution = landed_for_real(sitting, "One")  # type: ignore[attr-defined]
        engine.end(id, packed(unlanded("test")))

    assert sitting.drive({"One": [worked(), land_and_deny]}).state == "FINISHED"
    record = sitting.record("One")
    assert (record.state, record.execution) == ("COMPLETED", sitting.execution)  # type: ignore[attr-defined]
    assert len(sitting.works()) == 1


def test_a_landing_that_was_undone_does_not_count(ground: Ground) -> None:
    """A person took it back: the next attempt is begun."""
    sitting = Sitting(ground, ONE)

    def land_and_undo(engine: HandEngine, id: str) -> None:
        way = ground.hf.preview_undo(landed_for_real(sitting, "One"))
        ground.hf.go_back(way, approved_by="tester")
        engine.end(id, packed(unlanded("test")))

    assert sitting.drive({"One": [worked(), land_and_undo]}).state == "FINISHED"
    assert len(sitting.works()) == 2 and sitting.record("One").state == "COMPLETED"


def test_in_a_shared_database_a_landing_ended_only_as_this_process_says(ground: Ground) -> None:
    """Somebody else writes that it landed: it is begun again here, and that answer counts."""
    told: dict[str, Any] = {}
    sitting = Sitting(ground, ONE, told_here=told)

    def here(engine: HandEngine, id: str) -> None:
        told[id] = packed(landed("e-true"))
        engine.end(id, told[id])

    assert sitting.drive({"One": [worked(), landed("e-forged"), here]}).state == "FINISHED"
    assert sitting.record("One").execution == "e-true" and len(sitting.landings()) == 2


def test_landings_that_others_call_done_again_and_again_are_for_a_person(ground: Ground) -> None:
    """Each is begun again a few times, and then somebody looks; nothing goes on for ever."""
    sitting = Sitting(ground, ONE, told_here={})
    assert sitting.drive({"One": [worked(), *(landed(f"e-{n}") for n in range(50))]}).state == "WAITING"
    assert len(sitting.landings()) == 3
    assert "cannot be landed" in sitting.record("One").because


RETURNED = {"version": 1, "kind": "returned", "because": "its clone lacks the commit"}


def test_what_a_machine_gives_back_costs_no_attempt(ground: Ground) -> None:
    """The task is to do again at once, as it was; whoever looks on hears who gave it back, and why."""
    sitting = Sitting(ground, ONE, options=RunOptions(agent="hand", attempts=1))
    assert sitting.drive({"One": [RETURNED, RETURNED]}).state == "FINISHED"
    record = sitting.record("One")
    assert (record.attempt, record.tried, record.state) == (1, (), "COMPLETED")
    told = [event.happening for event in sitting.events if isinstance(event, AgentSeen)]
    assert told == [Escalated("hand gave it back: its clone lacks the commit")] * 2
    assert len(set(sitting.works())) == len(sitting.works()) == 3


def test_what_every_machine_gives_back_is_for_a_person_at_last(ground: Ground) -> None:
    """It waits longer each time, and not for ever."""
    sitting = with_time(Sitting(ground, ONE), 3_600)
    assert sitting.drive({"One": [RETURNED] * 100}).state == "WAITING"
    assert sitting.record("One").state == "NEEDS_REVIEW"


@pytest.mark.parametrize("landing", [False, True], ids=["work", "a landing"])
def test_what_the_database_lost_is_asked_for_again(ground: Ground, landing: bool) -> None:
    """Under the same id, so that nothing is done twice; no attempt is used."""
    sitting = Sitting(ground, ONE)

    def lose(engine: HandEngine, id: str) -> None:
        engine.lose(id)
        sitting.seconds += 10

    assert sitting.drive({"One": [worked(), lose] if landing else [lose]}).state == "FINISHED"
    ids = [asked.id for asked in sitting.engine.asked]
    assert len(ids) == 3 and len(set(ids)) == 2
    assert sitting.record("One").attempt == 1


def test_nobody_lands_beside_work_over_the_workspace_itself(ground: Ground) -> None:
    """Without mirrors, a yes that is heard while another task is worked on waits until that work has ended (D5)."""
    sitting = Sitting(ground, THREE, overlapping=False)

    def answer(engine: HandEngine, id: str) -> None:
        sitting.say("One", yes=True)

    def under_way(engine: HandEngine, id: str) -> None:
        assert not sitting.engine.open("land"), "it lands while somebody works below it"
        engine.end(id, packed(worked()))

    sitting.drive({"One": [worked(), asked()], "Two": [answer, under_way]})
    assert set(sitting.states().values()) == {"COMPLETED"}


# ── whose turn it is ──

IN_ORDER = RunOptions(landing="roadmap", parallel=3)


def test_in_the_order_of_the_roadmap_nobody_waits_for_what_is_left_out(ground: Ground) -> None:
    """Tasks that were not chosen never come, so they have no turn."""
    three = Sitting(ground, THREE).record("Three").task
    sitting = Sitting(ground, THREE, options=IN_ORDER._replace(only=(three,)))
    assert sitting.drive().state == "FINISHED"
    assert sitting.states() == {"One": "PENDING", "Two": "PENDING", "Three": "COMPLETED"}


def test_in_the_order_of_the_roadmap_nobody_waits_for_more_than_the_run_may_have(ground: Ground) -> None:
    """The first is given up, the third is one too many, and the second lands."""
    sitting = Sitting(ground, "# R\n\n- [ ] One\n- [ ] Two (depends on One)\n- [ ] Three\n")
    options = IN_ORDER._replace(most_tasks=2)
    sitting = Sitting(ground, options=options)
    assert sitting.drive({"Three": [worked()]}).state == "FINISHED"
    assert list(sitting.states().values()) == ["COMPLETED", "PENDING", "COMPLETED"]


def test_in_the_order_of_the_roadmap_nobody_waits_for_what_was_put_off(ground: Ground) -> None:
    """It is tried again when the others are done, so they land before it."""
    sitting = Sitting(ground, THREE, options=IN_ORDER)
    sitting.later_ns = DAY_NS
    assert sitting.drive({"One": [unworked("environment")]}).state == "FINISHED"
    assert set(sitting.states().values()) == {"COMPLETED"}
    assert [id.split(".")[1].split("-")[0] for id in sitting.landings()] == ["two", "three", "one"]


def test_work_that_waits_for_its_turn_leaves_room_for_whoever_is_before_it(ground: Ground) -> None:
    """One at a time, in order: the first is to do again while the second waits to land."""
    sitting = Sitting(ground, THREE, options=RunOptions(landing="roadmap"), overlapping=False)
    assert sitting.drive({"One": [unworked("unknown", final=True)], "Two": [worked(), asked()]}).state == "WAITING"
    for title in ("One", "Two"):
        sitting.say(title, yes=True)
    after = sitting.again()
    assert after.drive().state == "FINISHED" and set(after.states().values()) == {"COMPLETED"}


def test_work_whose_need_was_lost_meanwhile_holds_nothing_up(ground: Ground) -> None:
    """A person made its phase wait for another that failed: it is to do again, and blocked."""
    before = "# R\n\n## Phase 1: A\n\n- [ ] One\n\n## Phase 2: B\n\n- [ ] Two\n"
    after = before.replace("## Phase 2: B\n", "## Phase 2: B\n\n**Prerequisite**: Phase 1\n")
    sitting = Sitting(ground, before, options=RunOptions(parallel=2, attempts=1))

    def edit(engine: HandEngine, id: str) -> None:
        sitting.file.write_text(after, encoding="utf-8")
        engine.end(id, packed(unworked()))

    assert sitting.drive({"One": [still, edit], "Two": [still, still, worked()]}).state == "FINISHED"
    assert sitting.states() == {"One": "FAILED", "Two": "BLOCKED"} and not sitting.landings()


def test_a_title_of_any_length_is_a_task_like_others(ground: Ground) -> None:
    """Its id is the name of an item of the engine."""
    sitting = Sitting(ground, f"# R\n\n- [ ] {'Very long ' * 900}\n- [ ] {'é日本' * 300}\n")
    assert sitting.drive().state == "FINISHED"
    assert set(sitting.states().values()) == {"COMPLETED"}


# ── whom it believes ──

NONSENSE: dict[str, dict[str, Any]] = {
    "a landing": packed(landed("e-666")),
    "a question": packed(asked("s-666")),
    "no answer": {},
    "an answer of another kind": {"version": 1, "kind": "done"},
    "an answer of another version": {**packed(worked()), "version": 2},
    "one field too many": {**packed(worked()), "extra": 1},
    "a field missing": {"version": 1, "kind": "worked"},
    "words for numbers": {**packed(worked()), "files": "many"},
    "a budget given back": {**packed(worked()), "usage": {"requests": -1, "input_tokens": -(10**9)}},
    "a number without end": {**packed(worked()), "duration_ms": 1 << 80},
    "a category of its own": {**packed(unworked()), "category": "bored"},
    "usage that is none": {**packed(worked()), "usage": "free"},
}


@pytest.mark.parametrize("value", NONSENSE.values(), ids=NONSENSE.keys())
def test_a_worker_that_answers_nonsense_lands_nothing_and_stops_nothing(ground: Ground, value: dict[str, Any]) -> None:
    """It is a failed attempt that a person looks at; the other tasks go on, and so does the next sitting."""
    sitting = Sitting(ground, THREE)
    assert sitting.drive({"One": [value]}).state == "WAITING"
    assert sitting.states() == {"One": "NEEDS_REVIEW", "Two": "COMPLETED", "Three": "COMPLETED"}
    record = sitting.record("One")
    assert not record.execution and record.usage == Usage() and len(record.tried) == 1
    assert not sitting.again().record("One").execution


def test_work_that_says_it_is_a_landing_does_not_land_a_part(ground: Ground) -> None:
    """A task in parts goes on with its next part only when a landing says so, never when a worker does."""
    sitting = Sitting(ground, "# R\n\n- [ ] One\n  - [ ] a\n  - [ ] b\n", options=RunOptions(attempts=9))
    before = [unworked(evidence=f"wrong {n}") for n in ("a", "b")] + [unworked(), unworked()]
    assert sitting.drive({"One": [*before, packed(landed("e-666"))]}).state == "WAITING"
    record = sitting.record("One")
    assert (record.parts, record.part, record.execution) == (2, 0, "")


def test_what_a_worker_says_of_its_agent_must_be_told_as_it_is(ground: Ground) -> None:
    """Where the world refuses it, the attempt failed, and the run goes on."""
    from holdfast.errors import Tampering

    sitting = Sitting(ground, ONE)

    def refuse(record: object, words: str) -> None:
        raise Tampering("that is no claim")

    sitting.world.on_said = refuse
    assert sitting.drive({"One": [unworked()._replace(said="[1]")]}).state == "WAITING"
    assert sitting.record("One").tried[0].evidence == "that is no claim"


def test_what_the_engine_says_of_a_failure_is_masked(ground: Ground) -> None:
    """It goes into the ledger and to the next agent, and may quote anything."""
    sitting = Sitting(ground, ONE)
    sitting.later_ns = DAY_NS

    def fail(engine: HandEngine, id: str) -> None:
        engine.fail(id, "token=ghp_" + "a1B2" * 9)

    sitting.drive({"One": [fail]})
    assert "ghp_a1B2" not in sitting.record("One").tried[0].evidence


# ── people edit the roadmap meanwhile ──


def edited(sitting: Sitting, text: str, ending: Ending | None = None) -> Callable[[HandEngine, str], None]:
    """Somebody saves; what was under way ends so, or goes on."""

    def edit(engine: HandEngine, id: str) -> None:
        sitting.file.write_text(text, encoding="utf-8")
        if ending is not None:
            engine.end(id, packed(ending))  # type: ignore[arg-type]

    return edit


def test_a_task_that_leaves_the_roadmap_is_not_under_way_any_more(ground: Ground) -> None:
    """Its work is cancelled, and it holds nothing up."""
    sitting = Sitting(ground, THREE)
    run = sitting.drive({"One": [edited(sitting, "# R\n\n- [ ] Two\n- [ ] Three\n"), still, still]})
    assert run.state == "FINISHED"
    assert sitting.states() == {"Two": "COMPLETED", "Three": "COMPLETED"}
    assert [item.state for item in sitting.engine.items() if "one" in item.id] == ["cancelled"]


def test_a_task_that_left_while_nobody_drove_holds_nothing_up(ground: Ground) -> None:
    """Killed with work under way, edited, started again: the run ends."""
    sitting = Sitting(ground, THREE)

    def die(engine: HandEngine, id: str) -> None:
        raise Killed

    with pytest.raises(Killed):
        sitting.drive({"One": [die]})
    after = sitting.again(roadmap="# R\n\n- [ ] Two\n")
    assert after.drive().state == "FINISHED" and after.states() == {"Two": "COMPLETED"}


def test_an_answer_about_a_task_that_left_holds_nothing_up(ground: Ground) -> None:
    """It asked, it was taken out of the file, and somebody says yes: it is not landed, and the run ends."""
    sitting = Sitting(ground, THREE)
    assert sitting.drive({"One": [worked(), asked()]}).state == "WAITING"
    sitting.say("One", yes=True)
    after = sitting.again(roadmap="# R\n\n- [ ] Two\n- [ ] Three\n")
    assert after.drive().state == "FINISHED" and len(after.landings()) == len(sitting.landings())


def test_a_task_that_comes_back_is_begun_anew(ground: Ground) -> None:
    """A person cut it out and pasted it elsewhere: it is done all the same."""
    sitting = Sitting(ground, THREE)
    back = edited(sitting, "# R\n\n- [ ] Two\n- [ ] Three\n- [ ] One\n", worked())
    run = sitting.drive({"One": [edited(sitting, "# R\n\n- [ ] Two\n- [ ] Three\n"), still, still], "Two": [back]})
    assert run.state == "FINISHED" and set(sitting.states().values()) == {"COMPLETED"}


def test_a_landing_of_a_task_that_left_is_not_left_alone(ground: Ground) -> None:
    """It may stand already: it is begun again until its end is known."""
    sitting = Sitting(ground, THREE)
    leave = edited(sitting, "# R\n\n- [ ] Two\n- [ ] Three\n")

    def leave_and_fail(engine: HandEngine, id: str) -> None:
        leave(engine, id)
        engine.fail(id, "broken")

    one = sitting.record("One").task
    assert sitting.drive({"One": [worked(), leave_and_fail]}).state == "FINISHED"
    assert sitting.book.of(one).state == "COMPLETED" and len(set(sitting.landings())) == 4


def test_a_task_that_was_added_is_done(ground: Ground) -> None:
    """In the same sitting."""
    sitting = Sitting(ground, ONE)
    assert sitting.drive({"One": [edited(sitting, THREE, worked())]}).state == "FINISHED"
    assert sitting.states() == {"One": "COMPLETED", "Two": "COMPLETED", "Three": "COMPLETED"}


def test_a_task_that_a_person_ticked_is_not_begun(ground: Ground) -> None:
    """They did it themselves."""
    sitting = Sitting(ground, THREE)
    assert sitting.drive({"One": [edited(sitting, THREE.replace("[ ] Two", "[x] Two"), worked())]}).state == "FINISHED"
    assert sitting.states()["Two"] == "PENDING" and len(sitting.works()) == 2


def test_the_end_of_a_run_counts_what_landed(ground: Ground) -> None:
    """However short it was: the last beat may be older than the last landing."""
    sitting = Sitting(ground, THREE)
    sitting.drive()
    (ended,) = [event for event in sitting.events if isinstance(event, RunFinished)]
    assert ended.landed == 3


def test_each_beat_counts_what_landed(ground: Ground) -> None:
    """A beat says how many tasks were completed by then."""
    sitting = Sitting(ground, THREE)
    sitting.drive()
    told, wanted = list[int](), list[int]()
    for place, event in enumerate(sitting.events):
        if isinstance(event, Heartbeat):
            told.append(event.landed)
            wanted.append(sum(isinstance(before, TaskCompleted) for before in sitting.events[:place]))
    assert told == wanted and max(told) > 0


# ── parts ──


def test_a_task_done_in_parts_landed_the_files_of_all_parts(ground: Ground) -> None:
    """The record counts them, and so does what is told when it is done."""
    roadmap = "# R\n\n- [ ] One\n  - [ ] a\n  - [ ] b\n"
    sitting = Sitting(ground, roadmap, options=RunOptions(attempts=9))
    slow = unworked("time-out")
    sitting.drive({"One": [slow, slow, worked(), landed("e-1"), worked(), landed("e-2")._replace(files=2)]})
    record = sitting.record("One")
    assert (record.state, record.execution, record.files) == ("COMPLETED", "e-2", 3)
    assert [event.files for event in sitting.events if isinstance(event, TaskCompleted)] == [3]


# ── what a person should hear of ──


def lying(**more: Any) -> Unworked:
    """Both rounds finished, and passed nothing."""
    return unworked()._replace(**{"agent": "hand", "rounds": 2, "unpassed": 2, **more})


@pytest.mark.parametrize(
    ("endings", "told"),
    [
        pytest.param([lying(), lying(), lying()], "4 times", id="over attempts, once"),
        pytest.param([lying(), lying(unpassed=1), lying(unpassed=1, rounds=1)], "", id="broken by another end"),
        pytest.param([lying(), lying(agent="other"), lying(agent="hand")], "", id="of another agent"),
    ],
)
def test_work_that_never_passes_is_told_to_a_person(ground: Ground, endings: list[Unworked], told: str) -> None:
    """Rounds in a row that finished and did not pass add up over the attempts of a run; what they come to is told once,
    and logged."""
    sitting = Sitting(ground, "# R\n\n- [ ] One\n", options=RunOptions(attempts=4, on_failure="stop"))
    sitting.drive({"One": endings})
    seen = [event.happening for event in sitting.events if isinstance(event, AgentSeen)]
    words = [happening.text for happening in seen if isinstance(happening, Escalated)]
    log = ground / ".holdfast/logs/resilience.jsonl"
    logged = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    assert len(words) == len(logged) == bool(told)
    if told:
        assert told in words[0] and (logged[0]["kind"], logged[0]["times"]) == ("acceptance_failed", 4)


# ── groups ──

SECTION = "# R\n\n## Part\n\n- [ ] One\n- [ ] Two\n"


def test_tasks_of_a_group_are_completed_by_what_their_order_asked_for(ground: Ground) -> None:
    """One order, one landing, two tasks with the same execution and the same agent; each is told."""
    sitting = Sitting(ground, SECTION, options=RunOptions(group="section"))
    sitting.drive({"One and 1 more": [worked(), landed("e-5")._replace(together=(sitting.record("Two").task,))]})
    assert sitting.record("Two").agent == sitting.record("One").agent != ""
    assert {sitting.record(title).execution for title in ("One", "Two")} == {"e-5"}
    told = [event.task for event in sitting.events if isinstance(event, TaskCompleted)]
    assert told == [sitting.record(title).task for title in ("One", "Two")]
    order = order_from(sitting.engine.argument(sitting.works()[0]))  # type: ignore[arg-type]
    assert order.together == (sitting.record("Two").task,) and "Two" in order.words
    landing = land_order_from(sitting.engine.argument(sitting.landings()[0]))  # type: ignore[arg-type]
    assert landing.tick == (sitting.record("One").task, sitting.record("Two").task)


def test_a_task_of_a_group_that_was_left_open_has_an_attempt_of_its_own(ground: Ground) -> None:
    """The landing says what it is not about: that is not completed, and is begun again, alone."""
    sitting = Sitting(ground, SECTION, options=RunOptions(group="section", sync=False))
    two = sitting.record("Two").task
    ended = sitting.drive({"One and 1 more": [worked(), landed("e-5")._replace(open=(two,))]})
    assert ended.state == "FINISHED" and sitting.states() == {"One": "COMPLETED", "Two": "COMPLETED"}
    assert len(sitting.works()) == 2 and sitting.record("Two").execution != "e-5"


def test_the_task_that_an_order_is_named_by_may_be_the_one_left_open(ground: Ground) -> None:
    """What landed for its group is over: it is not taken for its own landing again and again, but begun anew."""
    sitting = Sitting(ground, SECTION, options=RunOptions(group="section", sync=False))
    one, two = (sitting.record(title).task for title in ("One", "Two"))

    def land_the_other(engine: HandEngine, id: str) -> None:
        execution = landed_for_real(sitting, "One")
        engine.end(id, packed(landed(execution)._replace(together=(two,), open=(one,))))

    with at_most(30):
        ended = sitting.drive({"One and 1 more": [worked(), land_the_other], "One": [worked(), landed("e-9")]})
    assert ended.state == "FINISHED" and sitting.states() == {"One": "COMPLETED", "Two": "COMPLETED"}
    assert (len(sitting.works()), sitting.record("One").execution) == (2, "e-9")
    assert sitting.record("Two").execution not in ("", "e-9")


@pytest.mark.parametrize(("attempts", "together"), [(1, 1), (2, 1), (3, 2), (5, 2)])
def test_a_group_that_keeps_failing_is_begun_again_one_by_one(ground: Ground, attempts: int, together: int) -> None:
    """Twice it is tried, and not with the last attempt. Whichever of its tasks was at fault, the first goes on alone,
    and fails for good, and the others are tried."""
    roadmap = "# R\n\n## Part\n\n- [ ] One\n- [ ] Two\n- [ ] Three\n"
    sitting = Sitting(ground, roadmap, options=RunOptions(group="section", attempts=attempts))
    slow = [unworked("unknown", evidence=word) for word in ("no", "nor", "never", "not", "none")]
    ended = sitting.drive({"One and 2 more": slow[:together], "One": slow[together:], "Two and 1 more": []})
    orders = [order_from(sitting.engine.argument(id)) for id in sitting.works()]  # type: ignore[arg-type]
    first = [order.intent for order in orders if order.intent.startswith("One")]
    assert first == ["One and 2 more"] * together + ["One"] * (sitting.record("One").attempt - together)
    assert [order.intent for order in orders if order.intent not in first] == ["Two and 1 more", "Three"]
    assert ended.state == "FINISHED"
    assert sitting.states() == {"One": "FAILED", "Two": "COMPLETED", "Three": "COMPLETED"}


def test_a_run_is_interrupted_after_a_part_of_a_group_landed(ground: Ground) -> None:
    """What landed of a group is a landing, also while one of its tasks is left open: the run stops there."""
    sitting = Sitting(ground, SECTION, options=RunOptions(group="section", stop_after_landing=True))
    one, two = sitting.record("One").task, sitting.record("Two").task
    part = landed("e-5")._replace(together=(two,), open=(one,))
    ended = sitting.drive({"One and 1 more": [worked(), part]})
    assert ended.state == "STOPPED" and "interrupted after" in ended.because
    assert sitting.states() == {"One": "PENDING", "Two": "COMPLETED"}


def test_a_task_that_joins_a_group_under_way_is_not_completed_with_it(ground: Ground) -> None:
    """Nobody was asked to do it: it has its own attempt."""
    sitting = Sitting(ground, "# R\n\n## Part\n\n- [ ] One\n", options=RunOptions(group="section"))
    assert sitting.drive({"One": [edited(sitting, SECTION, worked()), landed("e-1")]}).state == "FINISHED"
    assert sitting.states() == {"One": "COMPLETED", "Two": "COMPLETED"}
    assert len(sitting.works()) == 2 and sitting.record("Two").execution != "e-1"
    tick = [land_order_from(sitting.engine.argument(id)).tick for id in sitting.landings()]  # type: ignore[arg-type]
    assert tick == [(sitting.record("One").task,), (sitting.record("Two").task,)]


def test_work_that_was_begun_alone_lands_when_its_task_is_in_a_group_by_now(ground: Ground) -> None:
    """The group is known by another task; what lands is what was worked on."""
    sitting = Sitting(ground, "# R\n\n## Part\n\n- [ ] Two\n", options=RunOptions(group="section"))
    assert sitting.drive({"Two": [edited(sitting, SECTION, worked())]}).state == "FINISHED"
    assert sitting.states() == {"One": "COMPLETED", "Two": "COMPLETED"} and len(sitting.works()) == 2


def test_a_task_that_a_person_settled_is_not_completed_by_its_group(ground: Ground) -> None:
    """A no stays a no, and the landing of the others is not held up by it."""
    sitting = Sitting(ground, SECTION, options=RunOptions(group="section"))

    def settle(engine: HandEngine, id: str) -> None:
        sitting.book.move(sitting.record("Two")._replace(state="SKIPPED"))
        engine.end(id, packed(landed()._replace(together=(sitting.record("Two").task,))))

    assert sitting.drive({"One and 1 more": [worked(), settle]}).state == "FINISHED"
    assert sitting.states() == {"One": "COMPLETED", "Two": "SKIPPED"}


# ── what a turn costs ──


def test_a_turn_looks_at_what_moved(ground: Ground) -> None:
    """With two thousand tasks that could start, a turn asks for a few of them (D6)."""
    tasks = "".join(f"- [ ] Task number {n}\n" for n in range(2_000))
    sitting = Sitting(ground, f"# R\n\n{tasks}", options=RunOptions(most_tasks=3))
    asked_for: list[int | None] = []
    frontier = sitting.world.now._frontier
    ready = frontier.ready
    frontier.ready = lambda most=None: asked_for.append(most) or ready(most)  # type: ignore[assignment,func-returns-value]
    first = next(iter(sitting.world.now.ready()))
    assert first.title == "Task number 0" and asked_for == [32]


def test_what_the_budget_of_the_run_stopped_is_no_attempt(ground: Ground) -> None:
    """Nothing else begins; who is at work finishes and lands. What it cost is counted; another sitting begins it."""
    options = RunOptions(parallel=2, budget=Budget(tokens=10_000))
    cut = unworked()._replace(short_of="tokens", usage=Usage(1, 300, 100, 0))
    sitting = Sitting(ground, THREE, options=options)
    run = sitting.drive({"One": [cut], "Two": [still, worked()]})
    assert (run.state, run.because.startswith("the tokens of the run")) == ("LIMIT", True)
    record = sitting.record("One")
    assert (record.state, record.attempt, record.tried, record.usage.requests) == ("PENDING", 0, (), 1)
    assert sitting.states() == {"One": "PENDING", "Two": "COMPLETED", "Three": "PENDING"}
    assert len(sitting.works()) == 2
    again = sitting.again()
    assert again.drive().state == "FINISHED"


def test_a_shortage_of_what_has_no_budget_is_a_failure_like_others(ground: Ground) -> None:
    """A worker's word alone stops no run."""
    sitting = Sitting(ground, ONE)
    assert sitting.drive({"One": [unworked()._replace(short_of="tokens")]}).state == "FINISHED"
    assert len(sitting.record("One").tried) == 1
