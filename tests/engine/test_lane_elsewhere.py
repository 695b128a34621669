"""Work that another machine did, as it comes to the lane: what that machine saw, nobody here saw."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegated import configured
from guarded import ME, Ground, put
from holdfast.engine.distance import Distance
from holdfast.engine.landmarks import checkpoint_of
from holdfast.engine.lane import Fetch, Lane, from_own_stock
from holdfast.engine.orders import LandAnswer, Landed, LandOrder, Order, Unlanded, plan_of
from holdfast.engine.proposal import Proposal, name_of, packed
from holdfast.model.changeset import Change, change_set
from holdfast.model.plan import Plan
from holdfast.store.large_blobs import LargeBlobs
from holdfast.workspace.tree import snapshot
from laned import FALSE, ROADMAP, TRUE, landings, order_of, site

NEW = put("new.py", b"N = 1\n")
CONFINED = ("network: none, own namespace", "files: nothing but the view")
BASE = "ab" * 32


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = site(tmp_path / "workspace")
    yield found
    found.hf.close()


def made(ground: Ground, order: Order, **said: Any) -> Proposal:
    """What whoever has the same tree can write down without having done anything: NEW, and what they say of it."""
    plan = plan_of(order)
    found = ground.hf.simulate(Plan(order.intent, (NEW,)))
    report = replace(found.report, plan_id=plan.id, plan_digest=plan.digest, steps=found.report.steps[:1], **said)
    return Proposal(plan, report, found.change_set, report.receipts)


def forged(ground: Ground, order: Order) -> Proposal:
    """With receipts for the very tree that it makes, of checks that never passed anywhere."""
    found = ground.hf.simulate(Plan("x", (NEW,), verify=plan_of(order).verify))
    failed = ground.hf.verify(found).receipts
    tree = found.report.predicted_tree
    passed = tuple(each._replace(passed=True, detail="exited with 0", tree_digest=tree) for each in failed)
    assert passed and not any(each.passed for each in failed)
    on = snapshot(ground.hf.site.path, ground.hf.site.state.path).digest
    checks = ground.hf.pipeline.simulator.checking.settings_digest()
    return made(ground, order, receipts=passed, checked_on=on, checks=checks)


def of(proposal: Proposal, *changes: Change) -> Proposal:
    """The proposal with another change set, all parts of which belong together."""
    found = change_set(changes)
    report = replace(proposal.report, change_set=found.digest, base=found.base)
    return proposal._replace(report=report, change_set=found)


def land(ground: Ground, stock: LargeBlobs, order: Order, proposal: Proposal, fetch: Fetch) -> LandAnswer:
    stock.put(b"N = 1\n")
    stock.put(packed(proposal))
    lane = Lane(lambda: nullcontext(ground.hf.pipeline), checkpoint_of, fetch)
    name = name_of(packed(proposal))
    return lane.land(LandOrder(order, name, 1, ME, True, tick=(order.task,), roadmap="ROADMAP.md"))


def sent(ground: Ground, stock: LargeBlobs, order: Order, proposal: Proposal) -> LandAnswer:
    """It comes through the stock that all share."""
    return land(ground, stock, order, proposal, Distance(stock, "").fetch)


def refused(ground: Ground, answer: LandAnswer) -> Unlanded:
    assert isinstance(answer, Unlanded), answer
    assert not landings(ground) and (ground / "ROADMAP.md").read_bytes() == ROADMAP
    return answer


@pytest.mark.parametrize("mirrored", [True, False])
def test_receipts_of_a_worker_are_not_believed(ground: Ground, stock: LargeBlobs, mirrored: bool) -> None:
    """Whatever the order says about where it is worked on: the check runs here, and here it fails."""
    order = order_of(ground, accept=(FALSE,))._replace(mirrored=mirrored)
    assert refused(ground, sent(ground, stock, order, forged(ground, order))).category == "test"


def test_receipts_of_an_order_that_was_given_out_are_never_believed(ground: Ground) -> None:
    """Also in a later sitting that lands it out of the workspace's own stock."""
    order = order_of(ground, accept=(FALSE,))._replace(base=BASE)
    own = LargeBlobs(ground.hf.site.state)
    assert refused(ground, land(ground, own, order, forged(ground, order), from_own_stock)).category == "test"


@pytest.mark.parametrize("given_out", [True, False], ids=["elsewhere", "here"])
def test_what_a_worker_says_was_enforced_satisfies_no_policy(
    ground: Ground, stock: LargeBlobs, given_out: bool
) -> None:
    """A policy that asks for isolation is met by what this machine enforced, and by nobody's word."""
    configured('[policy]\nsandbox = ["network"]\n')
    order = order_of(ground)._replace(mirrored=True)
    proposal = made(ground, order, enforced=CONFINED)
    if given_out:
        answer = refused(ground, sent(ground, stock, order, proposal))
        assert answer.final and "isolation of: network" in answer.because
    else:
        own = LargeBlobs(ground.hf.site.state)
        assert isinstance(land(ground, own, order, proposal, from_own_stock), Landed)


def test_work_without_a_change_is_no_work(ground: Ground, stock: LargeBlobs) -> None:
    """A worker that did nothing completes no task, whatever checks pass on what stood before."""
    order = order_of(ground, accept=(TRUE,))
    answer = refused(ground, sent(ground, stock, order, of(made(ground, order))))
    assert answer.final and "changes nothing" in answer.because


@pytest.mark.parametrize("how", ["what stands", "a removal of what is not there"])
def test_work_that_stands_already_is_a_persons_to_judge(ground: Ground, stock: LargeBlobs, how: str) -> None:
    """Anybody can send what stands already; that cannot be told from work that somebody else did too."""
    order = order_of(ground, accept=(TRUE,))
    proposal = made(ground, order)
    (change,) = proposal.change_set.changes
    if how == "what stands":
        ground.apply(NEW)
        sham = change
    else:
        sham = Change("gone.py", change.post, None)
    before = len(landings(ground))
    answer = sent(ground, stock, order, of(proposal, sham))
    assert isinstance(answer, Unlanded) and answer.final and "only a person can tell" in answer.because
    assert len(landings(ground)) == before and (ground / "ROADMAP.md").read_bytes() == ROADMAP


def test_work_that_the_repository_ignores_is_not_done_already(ground: Ground, stock: LargeBlobs) -> None:
    """Nothing of it is left to land, and nothing of it stands: it goes back as work that does not fit."""
    ground.apply(put(".gitignore", b"new.py\n"))
    order = order_of(ground, accept=(TRUE,))
    before = len(landings(ground))
    answer = sent(ground, stock, order, made(ground, order))
    assert isinstance(answer, Unlanded) and answer.category == "conflict" and not answer.final
    assert len(landings(ground)) == before and (ground / "ROADMAP.md").read_bytes() == ROADMAP
