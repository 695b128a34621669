"""Work on other machines, as the home sees it: the base goes out, proposals come in, through a stock that all share.

    tree as it stands ──manifest, bytes that the clones lack──▶ shared stock ──▶ worker: mirror ─▶ agent ─▶ proposal
    home's own stock ◀──document, bytes, logs, transcripts──── shared stock ◀──────────────────────────────────┘

Invariants
  X1  Clones have what the first commit of the run holds; everything since goes through the stock, committed or not.
  X2  What comes in is hashed on the way and read as any proposal is: nothing of a worker's is believed. In a run whose
      database is shared all work counts as done elsewhere, what was done here too: only that database says who did it.
  X3  What an agent claimed over there is in the ledger here before its work can land.
  X4  A base that was sent and is gone (a database that took over from another may lack it) is sent again, whole: what
      was sent is written before the manifest that names it, so that with the manifest there, the rest is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import NamedTuple

from blake3 import blake3

from holdfast.engine.pipeline import Pipeline
from holdfast.engine.proposal import Proposal, claims_of, read_proposal
from holdfast.errors import Blocked, Tampering, UnknownId
from holdfast.model.canonical import Json
from holdfast.model.plan import Plan
from holdfast.settlement.delegated import transcripts_of
from holdfast.store.large_blobs import LargeBlobs, Stock, carry
from holdfast.workspace.manifest import Manifest, manifest_of, packed_manifest, stocked
from holdfast.workspace.transaction import new_txn

# What nobody asks for is forgotten over there (Z6 of `store.shared_stock`): a long run asks for its base now and then.
_ASK_AGAIN_S = 3_600.0


class _Sent(NamedTuple):
    tree: str
    name: str
    manifest: Manifest
    at: float


def require_no_witness(pipeline: Pipeline) -> None:
    """Blocked where policy asks what a sandbox enforced: nobody here sees that of work elsewhere, so that none of it
    could ever land (X2), and every agent would have worked in vain."""
    if pipeline.governance.policy().sandbox:
        raise Blocked(
            "[policy] sandbox asks what was enforced around every program, and no other machine is believed about that",
            hint="Run it without --database.",
        )


class Distance:
    """Of one run; `commit` is what was checked out when it began."""

    def __init__(self, stock: Stock, commit: str) -> None:
        self._stock, self._commit = stock, commit
        self._sent: _Sent | None = None
        # Whether tests can run where the run began; None: nobody has looked.
        self.tested: bool | None = None

    def base(self, pipeline: Pipeline) -> str:
        """The workspace as it is now, in the stock; what it is called there."""
        with pipeline.locked():
            hidden = pipeline.governance.settings().hidden
            manifest = manifest_of(pipeline.site, hidden=hidden, ignored=False)
            sent = self._sent if self._sent is not None and self._stock.has(self._sent.name) else None
            fresh = sent is not None and time.monotonic() - sent.at < _ASK_AGAIN_S
            if sent is not None and sent.tree == manifest.tree and fresh:
                return sent.name
            before = sent.manifest if sent is not None else None
            known = manifest._replace(commit=self._commit if manifest.commit else "")
            whole = stocked(pipeline.site, known, self._stock, before)
        data = packed_manifest(whole)
        name = str(blake3(data).hexdigest())
        self._stock.take(name, [data])
        self._sent = _Sent(manifest.tree, name, whole, time.monotonic())
        return name

    def has(self, base: str) -> bool:
        """Whether whoever works over there would find this base."""
        return bool(base) and self._stock.has(base)

    def fetch(self, pipeline: Pipeline, name: str, plan: Plan) -> Proposal:
        """A proposal with everything that landing it needs; it is here for good when this returns (X2)."""
        own = LargeBlobs(pipeline.site.state)
        if own.has(name):
            return read_proposal(own, name, plan).unwitnessed()
        proposal = read_proposal(self._stock, name, plan)
        carry(proposal.contents, self._stock, own)
        self._carry_papers(proposal.papers, own)
        document = list(self._stock.pieces(name))
        for body in proposal.delegations:
            self._note(pipeline, plan, body)
        # The document comes last: with it here, the rest is. After the notes nothing is asked of the stock, which may
        # be away: whoever fetches it once more would note them twice.
        own.take(name, document)
        own.make_durable()
        return proposal.unwitnessed()

    def heard(self, pipeline: Pipeline, plan: Plan, said: str) -> None:
        """What came with work that led to nothing; held to the same form as what comes with a proposal (X2)."""
        try:
            bodies = claims_of(json.loads(said), plan)
        except (ValueError, RecursionError) as error:
            raise Tampering("what a worker says of its agent is not JSON") from error
        for body in bodies:
            self._carry_papers(tuple(sorted(transcripts_of(body))), LargeBlobs(pipeline.site.state))
        for body in bodies:
            self._note(pipeline, plan, body)

    def _carry_papers(self, digests: tuple[str, ...], own: LargeBlobs) -> None:
        """For people to look at; one that is gone is missed by nobody else."""
        for digest in digests:
            try:
                carry([digest], self._stock, own)
            except UnknownId:
                continue

    def _note(self, pipeline: Pipeline, plan: Plan, body: Mapping[str, Json]) -> None:
        about = {"id": new_txn("g"), "subject": plan.id, "objective": plan.objective}
        pipeline.note("delegation", {**body, **about})
