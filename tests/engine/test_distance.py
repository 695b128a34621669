"""Work on other machines, as the home sees it: nothing of a worker's is believed, nor what it says of its agent."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guarded import Ground, put
from holdfast.engine.distance import Distance
from holdfast.engine.orders import plan_of
from holdfast.errors import Tampering
from holdfast.model.agent import Delegation
from holdfast.settlement.delegated import delegation_body
from holdfast.store.large_blobs import LargeBlobs
from holdfast.workspace.manifest import unpacked_manifest
from laned import order_of, proposed, site

CLAIM: dict[str, Any] = dict(delegation_body(Delegation("hand", "do One", ())))


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = site(tmp_path / "workspace")
    yield found
    found.hf.close()


def noted(ground: Ground) -> list[dict[str, Any]]:
    return [dict(entry.body) for entry in ground.hf.ledger.entries() if entry.kind == "delegation"]


def test_what_a_worker_says_of_its_agent_is_in_the_ledger_here(ground: Ground, stock: LargeBlobs) -> None:
    """As claimed, under the plan that was given out."""
    plan = plan_of(order_of(ground))
    Distance(stock, "").heard(ground.hf.pipeline, plan, json.dumps([CLAIM]))
    (body,) = noted(ground)
    assert body["subject"] == plan.id and {name: body[name] for name in CLAIM} == CLAIM


HOSTILE: dict[str, str] = {
    "no JSON": "{",
    "nested without end": "[" * 100_000,
    "no list": json.dumps(CLAIM),
    "no claims": json.dumps([1]),
    "another agent's": json.dumps([{**CLAIM, "agent": "claude"}]),
    "one field too many": json.dumps([{**CLAIM, "subject": "p-other"}]),
    "one field too few": json.dumps([{name: CLAIM[name] for name in CLAIM if name != "good"}]),
    "no canonical form": json.dumps([{**CLAIM, "task": "\ud800"}]),
    "without end": json.dumps([{**CLAIM, "task": "x" * (2 << 20)}]),
    "a blob of no digest": json.dumps([{**CLAIM, "asked": "../../etc/passwd"}]),
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_is_no_claim_is_not_noted(ground: Ground, stock: LargeBlobs, said: str) -> None:
    """Tampering, and the ledger has nothing of it."""
    with pytest.raises(Tampering):
        Distance(stock, "").heard(ground.hf.pipeline, plan_of(order_of(ground)), said)
    assert noted(ground) == []


def test_a_transcript_that_is_gone_is_missed_by_nobody(ground: Ground, stock: LargeBlobs) -> None:
    """The claim counts; its words were for people to look at."""
    said = json.dumps([{**CLAIM, "asked": "ab" * 32}])
    Distance(stock, "").heard(ground.hf.pipeline, plan_of(order_of(ground)), said)
    assert len(noted(ground)) == 1


def test_the_base_is_sent_once_as_long_as_the_tree_stands(ground: Ground, stock: LargeBlobs) -> None:
    """And again when something landed; what the order names is that tree."""
    distance = Distance(stock, "")
    first = distance.base(ground.hf.pipeline)
    assert distance.base(ground.hf.pipeline) == first
    ground.apply(put("a.py", b"A = 2\n"))
    second = distance.base(ground.hf.pipeline)
    assert first != second
    trees = [unpacked_manifest(b"".join(stock.pieces(name))).tree for name in (first, second)]
    assert len(set(trees)) == 2


def test_a_proposal_is_here_for_good_once_it_was_fetched(ground: Ground, stock: LargeBlobs) -> None:
    """Document, bytes and claims; a second time nobody asks over there."""
    order = proposed(ground, put("new.py", b"N = 1\n"))
    own, distance = LargeBlobs(ground.hf.site.state), Distance(stock, "")
    proposal = distance.fetch(ground.hf.pipeline, order.proposal, plan_of(order.order))
    for digest in (order.proposal, *proposal.contents):
        stock.take(digest, own.pieces(digest))
        own.remove(digest)
    assert distance.fetch(ground.hf.pipeline, order.proposal, plan_of(order.order)) == proposal
    assert all(own.has(digest) for digest in (order.proposal, *proposal.contents))
    for digest in (order.proposal, *proposal.contents):
        stock.remove(digest)
    assert distance.fetch(ground.hf.pipeline, order.proposal, plan_of(order.order)) == proposal


def test_bytes_that_are_others_over_there_do_not_come_here(ground: Ground, stock: LargeBlobs, tmp_path: Path) -> None:
    """Whoever edits the shared stock can take away, and never change."""
    order = proposed(ground, put("new.py", b"N = 1\n"))
    own, distance = LargeBlobs(ground.hf.site.state), Distance(stock, "")
    proposal = distance.fetch(ground.hf.pipeline, order.proposal, plan_of(order.order))
    for digest in (order.proposal, *proposal.contents):
        stock.take(digest, own.pieces(digest))
        own.remove(digest)
    (digest,) = proposal.contents
    (tmp_path / "stock" / ".holdfast" / "objects" / digest[:2] / digest[2:]).write_bytes(b"N = 6\n")
    with pytest.raises(Tampering):
        distance.fetch(ground.hf.pipeline, order.proposal, plan_of(order.order))
    assert not own.has(digest) and not own.has(order.proposal)
