"""A proposal: what a worker hands back. Good work that has not landed, as one document and the bytes it names.

    worker:  simulated, verified ──propose──▶ Proposal ──packed──▶ document      bytes ──▶ stock of the worker
                                                                      │                        │ carry
    home:    rebased ◀── Proposal ◀──unpacked (against the plan that was given out)      stock of the workspace

The name of a proposal is the digest of its document; the document names the bytes of every new file, of every text
that it changes as it was before (a merge needs it), the logs of its checks and what the agent said.

Invariants
  P1  Nothing in a document is believed: it is closed and versioned, each value is what its noun says, the digests are
      computed anew, and every part agrees with the others. What does not is Tampering, and nothing was changed.
  P2  The plan is the one that was given out, told by its digest; a worker cannot choose what its work is judged as.
  P3  Paths are checked as those of a change file: relative, plain, never into `.git` or `.holdfast`.
  P4  Bytes are found by digest and hashed whenever they are read; no file is held in memory as a whole.
  P5  What was done elsewhere comes without its witnesses: neither that a check passed there nor what a sandbox
      enforced there was seen by anybody here, so neither is carried on. Work that changes nothing is no proposal.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeVar

from blake3 import blake3

from holdfast.engine.simulator import Simulated
from holdfast.errors import InvalidInput, Tampering, UnknownId
from holdfast.model.canonical import Json, canonical
from holdfast.model.changeset import Change, ChangeSet
from holdfast.model.execution import Receipt
from holdfast.model.fitting import fits, is_digest, is_real
from holdfast.model.image import Image
from holdfast.model.path import checked_path, printable
from holdfast.model.plan import Plan, described
from holdfast.model.saved_plan import plan_from
from holdfast.model.saved_simulation import (
    change_set_from,
    change_set_rows,
    kept_report,
    kept_report_from,
    receipt_from,
)
from holdfast.model.simulation import Simulation
from holdfast.settlement.delegated import transcripts_of
from holdfast.store.contents import TEXT_LIMIT
from holdfast.store.large_blobs import LargeBlobs, Stock
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Bytes, CopyOf, Source, source_pieces

VERSION = 1
_FIELDS = frozenset(("version", "plan", "report", "changes", "receipts", "delegations", "owner"))
_DELEGATION = frozenset(("version", "agent", "task", "task_digest", "good", "usage", "asked", "attempts"))
_MOST_DOCUMENT = 1 << 28
_MOST_DELEGATION = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_HINT = "Nothing was changed. The task has to be worked on again."
_Found = TypeVar("_Found")


class Proposal(NamedTuple):
    plan: Plan
    report: Simulation
    change_set: ChangeSet
    # Of the checks over the work, where it was made; they prove nothing about another tree.
    receipts: tuple[Receipt, ...] = ()
    # What the ledger over there holds about the work of the agent: claimed beside measured.
    delegations: tuple[Mapping[str, Json], ...] = ()
    # Who owned everything where it was made, if owners could not be kept there; None when they are the workspace's.
    owner: tuple[int, int] | None = None
    # Whether another machine did the work, or may have. No document says it: whoever reads one knows where it was.
    elsewhere: bool = False

    def unwitnessed(self) -> Proposal:
        """As it counts here when it was made elsewhere (P5)."""
        report = replace(
            self.report, receipts=(), checked_on="", checks="", checked_in="", enforced=(), base_tests=None
        )
        return self._replace(report=report, receipts=(), elsewhere=True)

    @property
    def contents(self) -> tuple[str, ...]:
        """The digests of the bytes that landing it needs, sorted."""
        images = (image for change in self.change_set.changes for image in needed_images(change))
        return tuple(sorted({image.digest for image in images}))

    @property
    def papers(self) -> tuple[str, ...]:
        """The digests of logs and transcripts, sorted: for people to look at, nothing is decided by them."""
        receipts = (*self.receipts, *(step.receipt for step in self.report.steps if step.receipt is not None))
        said = (digest for body in self.delegations for digest in transcripts_of(body))
        return tuple(sorted({*(receipt.log_digest for receipt in receipts if receipt.log_digest), *said}))


def needed_images(change: Change) -> Iterator[Image]:
    """New bytes, and of a changed text also the old ones. Nothing is needed of an empty file."""
    pre, post = change.pre, change.post
    if post is None or post.kind != "file" or (pre is not None and pre.digest == post.digest):
        return
    if post.size:
        yield post
    if pre is not None and pre.kind == "file" and 0 < pre.size <= TEXT_LIMIT and post.size <= TEXT_LIMIT:
        yield pre


# ── where the work was done ──


def propose(
    site: Site,
    simulated: Simulated,
    receipts: Iterable[Receipt] = (),
    delegations: Iterable[Mapping[str, Json]] = (),
    *,
    owner: tuple[int, int] | None = None,
) -> Proposal:
    """The work as a proposal; its bytes are in the stock of this workspace, durable, when this returns.

    The shadow is gone by now, the workspace stands as it did: Conflict or Tampering where it does not.
    """
    stock = LargeBlobs(site.state)
    changes = simulated.change_set
    for change in changes.changes:
        for image in needed_images(change):
            source = simulated.sources.get(change.path) if image is change.post else None
            stock.take(image.digest, _bytes_of(site, change, source))
    found = tuple(receipts)
    proposal = Proposal(simulated.plan, simulated.report, changes, found, tuple(delegations), owner)
    stock.take(name_of(data := packed(proposal)), [data])
    stock.make_durable()
    return proposal


def packed(proposal: Proposal) -> bytes:
    """The document."""
    plan = proposal.plan
    rows = {
        "version": VERSION,
        "plan": {**plan.document(), "steps": [described(step) for step in plan.steps]},
        "report": kept_report(proposal.report),
        "changes": change_set_rows(proposal.change_set),
        "receipts": [receipt.document() for receipt in proposal.receipts],
        "delegations": proposal.delegations,
        "owner": proposal.owner,
    }
    return json.dumps(rows, sort_keys=True).encode("ascii")


def name_of(document: bytes) -> str:
    """What a proposal is called, and found by in a stock."""
    return str(blake3(document).hexdigest())


def _bytes_of(site: Site, change: Change, source: Source | None) -> Iterator[bytes]:
    if isinstance(source, (Bytes, CopyOf)):
        return source_pieces(site.calls, source)
    path = change.origin or change.path
    return source_pieces(site.calls, CopyOf(lambda: site.calls.open_beneath(path, _READ, site.workspace.fd)))


# ── where it shall land ──


def read_proposal(stock: Stock, name: str, plan: Plan) -> Proposal:
    """The proposal of this name, checked from end to end; UnknownId when it is not here."""
    size, parts = 0, []
    for piece in stock.pieces(name):
        size += len(piece)
        if size > _MOST_DOCUMENT:
            raise Tampering("the proposal is larger than any of ours", hint=_HINT)
        parts.append(piece)
    return unpacked(b"".join(parts), plan)


def unpacked(document: bytes, plan: Plan) -> Proposal:
    """What the document says, if it is a proposal for this plan and agrees with itself; otherwise Tampering."""
    rows = _sound(lambda: json.loads(document))
    if not isinstance(rows, dict) or rows.get("version") != VERSION:
        raise InvalidInput(f"this is no proposal of version {VERSION}", hint=_HINT)
    if rows.keys() != _FIELDS:
        raise Tampering("the proposal has other fields than a proposal has", hint=_HINT)
    proposal = Proposal(
        _the_plan(rows["plan"], plan),
        _sound(lambda: kept_report_from(rows["report"])),
        _sound(lambda: change_set_from(_rows(rows["changes"]))),
        _sound(lambda: tuple(receipt_from(row) for row in rows["receipts"])),
        claims_of(rows["delegations"], plan),
        _owner(rows["owner"]),
    )
    _require_whole(proposal)
    return proposal


def require_contents(proposal: Proposal, stock: Stock) -> None:
    """Every byte that landing needs is here, and is what it is called; Tampering where it is not, UnknownId if gone."""
    for digest in proposal.contents:
        if not stock.has(digest):
            raise UnknownId("bytes of the proposal are not here any more", hint=_HINT)
        for _ in stock.pieces(digest):
            pass  # hashed on the way; the end is reached only by what its name says


def _the_plan(row: object, plan: Plan) -> Plan:
    """P2. Ours is the one that goes on: its fields were read by us."""
    if not isinstance(row, dict) or _sound(lambda: plan_from(row)).digest != plan.digest:
        raise Tampering("the proposal is for another plan than was given out", hint=_HINT)
    return plan


def _rows(row: object) -> Mapping[str, Json]:
    if not isinstance(row, dict) or row.keys() != {"changes", "reads"}:
        raise ValueError("the change set has other fields than a change set has")
    return row


def claims_of(rows: object, plan: Plan) -> tuple[Mapping[str, Json], ...]:
    """Claims, for the ledger: of the plan's own agent, in the ledger's own form, and bounded."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) and row.keys() == _DELEGATION for row in rows):
        raise Tampering("what the agent said is not told as a ledger tells it", hint=_HINT)
    size = _sound(lambda: len(canonical(rows)))  # a ledger takes nothing that has no canonical form
    if any(row["agent"] != plan.agent for row in rows) or size > _MOST_DELEGATION:
        raise Tampering("what the agent said is another agent's, or without end", hint=_HINT)
    if not all(is_digest(digest) for row in rows for digest in transcripts_of(row)):
        raise Tampering("what the agent said is kept under no digest", hint=_HINT)
    return tuple(rows)


def _owner(row: object) -> tuple[int, int] | None:
    found = tuple(row) if isinstance(row, list) else row
    if found is not None and not (fits(found, tuple[int, int]) and all(0 <= id < 1 << 32 for id in found)):  # type: ignore[attr-defined]
        raise Tampering("the proposal has an owner that is nobody", hint=_HINT)
    return found  # type: ignore[return-value]


def _require_whole(proposal: Proposal) -> None:
    """Each part by itself, and all of them together (P1)."""
    plan, report, changes = proposal.plan, proposal.report, proposal.change_set
    if not (fits(report, Simulation) and fits(changes, ChangeSet) and fits(proposal.receipts, tuple[Receipt, ...])):
        raise Tampering("the proposal has values of other kinds than a proposal has", hint=_HINT)
    agree = (
        (report.plan_id, report.plan_digest) == (plan.id, plan.digest)
        and (report.change_set, report.base) == (changes.digest, changes.base)
        and len(report.steps) == len(plan.steps)
        and all(step.precondition != "unmet" for step in report.steps)
    )
    if not agree:
        raise Tampering("the parts of the proposal do not belong together", hint=_HINT)
    if not all(digest == "" or is_digest(digest) for digest in proposal.papers):
        raise Tampering("a log of the proposal is kept under no digest", hint=_HINT)
    if not changes:
        raise Tampering("the proposal changes nothing", hint=_HINT)  # no work of ours ends so (P5)
    for path, images in _images(changes):
        _require_plain(path)
        if not all(image is None or is_real(image) for image in images):
            raise Tampering(f"{printable(path)} is nothing that can stand on a disk", hint=_HINT)


def _images(changes: ChangeSet) -> Iterator[tuple[str, tuple[Image | None, ...]]]:
    yield from ((change.path, (change.pre, change.post)) for change in changes.changes)
    yield from ((change.origin, ()) for change in changes.changes if change.origin is not None)
    yield from ((read.path, (read.image,)) for read in changes.reads)


def _require_plain(path: str) -> None:
    if checked_path(path) != path:
        raise InvalidInput(f"{printable(path)} is not how a path is spelled", hint=_HINT)


def _sound(read: Callable[[], _Found]) -> _Found:
    try:
        return read()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Tampering(f"the proposal is damaged or was edited: {type(error).__name__}", hint=_HINT) from error
