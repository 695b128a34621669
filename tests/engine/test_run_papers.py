"""gc and runs: what waits for weeks can still land; what is settled is forgotten with its age."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import ME, Ground, put
from holdfast.engine.history import collect
from holdfast.engine.orders import Asked, Landed, LandOrder, packed
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.model.run import RunRecord
from holdfast.model.task import TaskRecord
from holdfast.store.large_blobs import LargeBlobs
from laned import landings, lane_of, proposed, site

DAY_NS = 86_400 * 10**9


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """Where no blob is too young to be forgotten."""
    monkeypatch.setattr("holdfast.workspace.keeping._YOUNG_NS", -DAY_NS)
    found = site(tmp_path / "workspace")
    yield found
    found.hf.close()


def waiting(ground: Ground) -> tuple[TaskBook, LandOrder, TaskRecord]:
    """A task whose work waits for a person, as the driver leaves it."""
    order = proposed(ground, put("new.py", b"N = 1\n"))._replace(ask_after=True)
    answer = lane_of(ground).land(order)
    assert isinstance(answer, Asked)
    digest = LargeBlobs(ground.hf.site.state).put(json.dumps(packed(order.order), sort_keys=True).encode())
    book = TaskBook(ground.hf.pipeline, begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md")), lambda event: None)
    record = TaskRecord(book.run.id, order.order.task, attempt=1, token=1, order=digest, turn=1)
    book.move(record._replace(state="IN_PROGRESS"))
    book.move(record._replace(state="VALIDATING", proposal=order.proposal))
    asked = record._replace(state="NEEDS_REVIEW", proposal=order.proposal, simulation=answer.simulation)
    book.move(asked)
    return book, order._replace(turn=2, simulation=answer.simulation, cleared_by=ME), book.of(order.order.task)


def months_later(ground: Ground) -> None:
    collect(ground.hf.pipeline, keep_ns=30 * DAY_NS, now_ns=time.time_ns() + 90 * DAY_NS)


def test_what_waits_for_a_person_lands_after_months(ground: Ground) -> None:
    """Order, proposal, its bytes and the simulation are there still."""
    book, order, record = waiting(ground)
    book.move_run("WAITING", "1 needs a person")
    months_later(ground)
    stock = LargeBlobs(ground.hf.site.state)
    assert stock.has(record.order) and stock.has(record.proposal)
    assert isinstance(lane_of(ground).land(order), Landed) and len(landings(ground)) == 1


def test_what_waits_lands_after_months_without_its_simulation_too(ground: Ground) -> None:
    """The proposal is laid over again: its bytes were kept."""
    _, order, _ = waiting(ground)
    months_later(ground)
    plain = order._replace(simulation="", ask_after=False)
    assert isinstance(lane_of(ground).land(plain), Landed)


@pytest.mark.parametrize("how", ["the task is settled", "the run is over"])
def test_what_is_settled_is_forgotten(ground: Ground, how: str) -> None:
    """Nothing of it stays once it is old."""
    book, _, record = waiting(ground)
    if how == "the task is settled":
        book.move(record._replace(state="FAILED"))
    else:
        book.move_run("FINISHED")
    months_later(ground)
    stock = LargeBlobs(ground.hf.site.state)
    assert not stock.has(record.order) and not stock.has(record.proposal)
    assert not (ground.state / "simulations" / record.simulation).exists()


def test_a_proposal_that_cannot_be_read_stops_no_gc(ground: Ground) -> None:
    """It lands nothing, so it needs nothing."""
    _, _, record = waiting(ground)
    (ground.state / "objects" / record.proposal[:2] / record.proposal[2:]).write_bytes(b"{}")
    months_later(ground)
