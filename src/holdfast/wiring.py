"""The one place that chooses concrete parts, and the object users hold: `holdfast.open(".")`.

    hf = holdfast.open(".")
    rehearsal = hf.simulate(hf.plan("change.yaml"))     # exactly what would happen; nothing has
    execution = hf.execute(rehearsal, approved_by="me")  # all of it, or none of it
    hf.undo(execution.id, approved_by="me")

Verbs that only look must start fast, so the parts that change things are imported when one of them is asked for.
"""

from __future__ import annotations

import os
import time
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import HoldfastError, VerificationFailed
from holdfast.model.canonical import Json
from holdfast.model.path import STATE_DIRECTORY
from holdfast.store.anchor import anchor_path
from holdfast.store.database import Records, Row
from holdfast.store.journal import read_head
from holdfast.store.keys import key_path, load_key, load_or_create_key
from holdfast.store.ledger import Ledger
from holdfast.store.state import create_state, find_workspace, read_identity
from holdfast.workspace.site import Site

if TYPE_CHECKING:
    from holdfast.engine.changes import Changes
    from holdfast.engine.difference import Difference
    from holdfast.engine.history import Return
    from holdfast.engine.pipeline import Pipeline, Progress, Verified
    from holdfast.model.execution import Divergence, Execution
    from holdfast.model.plan import Plan
    from holdfast.simulation.rehearsal import Rehearsal
    from holdfast.store.audit import Verification
    from holdfast.workspace.keeping import Reclaimed
    from holdfast.workspace.recovery import Unsettled
    from holdfast.workspace.tree import Snapshot


class Holdfast:
    """A workspace under guard."""

    def __init__(
        self, site: Site, ledger: Ledger, records: Records, id: str, wait: float, progress: Progress | None
    ) -> None:
        self.site = site
        self.ledger = ledger
        self.records = records
        self.path = site.path
        self.id = id
        self.lock_path = os.path.join(site.state.path, "lock")
        self.last: Execution | None = None  # what the newest call of `execute` or `go_back` came to, also if it raised
        self._wait = wait
        self._progress = progress
        self._pipeline: Pipeline | None = None

    @property
    def pipeline(self) -> Pipeline:
        if self._pipeline is None:
            from holdfast.engine.pipeline import Pipeline

            self._pipeline = Pipeline(self.site, self.ledger, self.records, self.lock_path, self._wait, self._progress)
        return self._pipeline

    # ── change ──

    def plan(self, path: str) -> Plan:
        """Read a change file ("-" is standard input)."""
        from holdfast.intake.changefile import read_change_file

        return read_change_file(path)

    def already_done(self, plan: Plan) -> Row | None:
        """The execution that did this very plan, when its effect still stands."""
        return self.pipeline.already_done(plan)

    def simulate(self, plan: Plan) -> Rehearsal:
        return self.pipeline.rehearse(plan)

    def verify(self, rehearsal: Rehearsal) -> Verified:
        """Run the plan's checks on a scratch copy; look at the receipts."""
        return self.pipeline.verify(rehearsal)

    def execute(self, rehearsal: Rehearsal, *, approved_by: str, verified: Verified | None = None) -> Execution:
        """All of it, or none of it; raises what stopped it. Checks that did not run yet run first."""
        from holdfast.engine.pipeline import job_of, require_passed

        proof = verified if verified is not None else self.verify(rehearsal)
        try:
            require_passed(proof)
        except VerificationFailed as error:
            self.last = self.pipeline.record_refusal(job_of(rehearsal), approved_by, proof.receipts, error.message)
            raise
        self.last = self.pipeline.execute_rehearsed(rehearsal, approved_by=approved_by, verified=proof)
        self.pipeline.raise_failure()
        return self.last

    def transaction(self, intent: str, *, approved_by: str = "") -> Changes:
        """Collect small changes in a `with` block; they land together when it ends without an exception."""
        from holdfast.engine.changes import Changes

        who = approved_by or user()
        return Changes(intent, lambda plan: self.execute(self.simulate(plan), approved_by=who))

    # ── go back ──

    def preview_undo(self, id: str) -> Return:
        from holdfast.engine.history import undo_of

        return undo_of(self.pipeline, self.resolve(id))

    def preview_restore(self, at_ns: int) -> Return:
        from holdfast.engine.history import restore_to

        return restore_to(self.pipeline, at_ns)

    def go_back(self, way: Return, *, approved_by: str) -> Execution:
        """Carry out a previewed undo or restore."""
        self.last = self.pipeline.execute(way.job, approved_by=approved_by)
        self.pipeline.raise_failure()
        return self.last

    def undo(self, id: str, *, approved_by: str = "") -> Execution:
        return self.go_back(self.preview_undo(id), approved_by=approved_by or user())

    def restore(self, at_ns: int, *, approved_by: str = "") -> Execution:
        return self.go_back(self.preview_restore(at_ns), approved_by=approved_by or user())

    def recover(self, *, accept: bool = False, patience: float = 0.0) -> Unsettled | None:
        return self.pipeline.recover(accept=accept, patience=patience)

    def gc(self, *, keep_days: int = 30) -> Reclaimed:
        from holdfast.engine.history import collect

        return collect(self.pipeline, keep_ns=keep_days * 86_400 * 10**9, now_ns=time.time_ns())

    # ── look ──

    def log(self, *, limit: int = 50, search: str = "") -> list[Row]:
        return self.records.executions(limit=limit, search=search)

    def resolve(self, prefix: str) -> str:
        return self.records.resolve(prefix)

    def show(self, id: str) -> tuple[Row, dict[str, Json] | None]:
        return self.records.execution(self.resolve(id))

    def difference(self, id: str) -> Difference:
        """What an execution changed, with the bytes of both sides as far as they are still kept."""
        from holdfast.engine.difference import past_difference
        from holdfast.settlement.record import KIND

        found = self.resolve(id)
        entry = self.ledger.find(KIND, found)
        return past_difference(self.site, found, str(entry.body["root"]) if entry is not None else "")

    def audit(self) -> Verification:
        return self.ledger.verify()

    def needs_recovery(self) -> bool:
        """Is something unfinished: after a crash, or because somebody is at work right now? A few small reads."""
        journal = self.site.journal()
        head = read_head(self.site.calls, journal)
        if (head is not None and head.state == "PREPARED") or set(self.site.calls.names(journal)) - {"head"}:
            return True
        newest = self.ledger.head()
        return newest is not None and newest.seq > self.records.projected

    def open_divergence(self) -> tuple[Divergence, ...]:
        """What an interrupted rollback left for a person to decide."""
        from holdfast.workspace.recovery import open_divergence

        return open_divergence(self.site)

    def tree(self) -> Snapshot:
        from holdfast.workspace.tree import snapshot

        return snapshot(self.path, self.site.state.path)

    def close(self) -> None:
        self.records.close()
        self.site.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def init(path: str = ".", calls: Calls = CALLS) -> str:
    """Put a workspace under guard; idempotent. The workspace's id is returned."""
    identity = create_state(os.path.abspath(path), calls)
    key = load_or_create_key(key_path(), calls)
    state = os.path.join(os.path.abspath(path), STATE_DIRECTORY)
    ledger = Ledger(state, key, identity.id, anchor_path(identity.id), calls)
    if ledger.head() is None:
        ledger.append("init", {"workspace": identity.id}, time.time_ns())
    from holdfast.settlement.record import catch_up

    records = Records(state)
    try:
        catch_up(ledger, records)
    finally:
        records.close()
    return identity.id


def open(  # noqa: A001 (`holdfast.open` is the front door)
    path: str = ".", *, wait: float = 0.0, progress: Progress | None = None, calls: Calls = CALLS
) -> Holdfast:
    """The workspace at or above `path`; the first verb that changes something repairs what a crash left."""
    site = Site(find_workspace(path), calls)
    try:
        identity = read_identity(site.state)
        ledger = Ledger(site.state.path, load_key(key_path(), calls), identity.id, anchor_path(identity.id), calls)
        records = Records(site.state.path)
        if records.volatile:
            from holdfast.settlement.record import catch_up

            catch_up(ledger, records)
        return Holdfast(site, ledger, records, identity.id, wait, progress)
    except (HoldfastError, OSError):
        site.close()
        raise


def user() -> str:
    """Who is at the keyboard, by the system's name; an approval by this name is only as strong as the login."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid {os.geteuid()}"
