"""`--yes` of a run whose yes counts when it is given, and not when it lands: asked of a person, and not for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from delegated import configured
from driven_run import Sitting
from guarded import ME, Ground, put
from holdfast.engine.landmarks import checkpoint_of
from holdfast.engine.lane import Lane, from_own_stock
from holdfast.engine.orders import Asked, Landed, Worked, land_order_from, order_from, packed
from holdfast.engine.taskbook import begin_run
from holdfast.model.run import RunRecord
from holdfast.testing import HandEngine
from laned import landings, lane_of, order_of, proposed, site

LANDS = '[run]\nunverified = "land"\n'
SHORT = f'{LANDS}[policy]\napproval_lifetime = "300ms"\n'
NEW = put("new.py", b"N = 1\n")


class Slow:
    """A pipeline that takes its time between the yes and the gates, as one that waits for its lock does."""

    def __init__(self, pipeline: Any) -> None:
        self._pipeline = pipeline

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    def land(self, *arguments: Any, **named: Any) -> Any:
        time.sleep(0.4)
        return self._pipeline.land(*arguments, **named)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    configured(SHORT)
    found = site(tmp_path / "workspace")
    yield found
    found.hf.close()


def slow_lane(ground: Ground) -> Lane:
    return Lane(lambda: nullcontext(Slow(ground.hf.pipeline)), checkpoint_of, from_own_stock)  # type: ignore[arg-type]


def given(ground: Ground) -> int:
    entries = ground.hf.ledger.entries()
    return sum(entry.kind == "approval" and entry.body["reason"] == "--yes" for entry in entries)


def test_a_yes_that_never_lands_is_given_a_few_times_and_then_a_person_is_asked(ground: Ground) -> None:
    """The run ends as waiting, and says why its own yes is not enough; each yes is in the ledger, and there are few."""
    run = begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md", by=ME, yes=True))
    sitting = Sitting(ground, "# R\n\n- [ ] One\n", run=run)

    def work(engine: HandEngine, id: str) -> None:
        order = order_from(engine.argument(id))._replace(accept=())  # type: ignore[arg-type]
        engine.end(id, packed(Worked(proposed(ground, NEW, order=order).proposal, "hand", 1)))

    def land(engine: HandEngine, id: str) -> None:
        engine.end(id, packed(slow_lane(ground).land(land_order_from(engine.argument(id)))))  # type: ignore[arg-type]

    assert sitting.drive({"One": [work, *[land] * 20]}).state == "WAITING"
    simulated, verified = ground.hf.kept(sitting.record("One").simulation)
    ground.hf.approve(ground.hf.evaluate(simulated, verified), by=ME)  # the person says yes, and it lasts no longer
    after = sitting.again()
    assert after.drive({"One": [land] * 20}).state == "WAITING"
    record = after.record("One")
    assert record.state == "NEEDS_REVIEW" and "has not expired" in record.because
    assert not landings(ground) and given(ground) <= 4 and len(after.landings()) <= 6


def test_the_yes_of_a_run_is_given_again_where_it_counts_after_all(ground: Ground) -> None:
    """What was too slow once lands the next time, with another yes to the same simulation."""
    order = proposed(ground, NEW, order=order_of(ground, accept=()))
    question = slow_lane(ground).land(order)
    assert isinstance(question, Asked) and "has not expired" in question.because
    again = order._replace(turn=2, simulation=question.simulation)
    assert isinstance(slow_lane(ground).land(again), Asked)
    configured(LANDS)
    assert isinstance(lane_of(ground).land(again._replace(turn=3)), Landed)
