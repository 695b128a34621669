"""The one place that chooses concrete parts, and the object users hold: `holdfast.open(".")`.

    hf = holdfast.open(".")
    rehearsal = hf.simulate(hf.plan("change.yaml"))     # exactly what would happen; nothing has
    execution = hf.execute(rehearsal, approved_by="me")  # all of it, or none of it
    hf.undo(execution.id, approved_by="me")
"""

from __future__ import annotations

import os
import time
from types import TracebackType

from holdfast.disk.calls import CALLS, Calls
from holdfast.engine.history import Return, collect, restore_to, undo_of
from holdfast.engine.pipeline import Pipeline, Progress, Verified, job_of, require_passed
from holdfast.errors import HoldfastError, VerificationFailed
from holdfast.model.canonical import Json
from holdfast.model.execution import Divergence, Execution
from holdfast.model.path import STATE_DIRECTORY, checked_path
from holdfast.model.plan import Chmod, Create, Delete, Inline, Move, Plan, Step, Symlink, Update, Write
from holdfast.simulation.rehearsal import Rehearsal
from holdfast.store.anchor import anchor_path
from holdfast.store.audit import Verification
from holdfast.store.database import Records, Row
from holdfast.store.keys import key_path, load_key, load_or_create_key
from holdfast.store.ledger import Ledger
from holdfast.store.state import create_state, find_workspace, read_identity
from holdfast.workspace.keeping import Reclaimed
from holdfast.workspace.recovery import Unsettled, open_divergence
from holdfast.workspace.site import Site
from holdfast.workspace.tree import Snapshot, snapshot

class Holdfast:
    """A workspace under guard."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.path = pipeline.site.path

    def plan(self, path: str) -> Plan:
        """Read a change file ("-" is standard input)."""
        from holdfast.intake.changefile import read_change_file

        return read_change_file(path)

    def already_done(self, plan: Plan) -> Row | None:
        """The execution that did this very plan, when its effect still stands."""
        return self._pipeline.already_done(plan)

    def simulate(self, plan: Plan) -> Rehearsal:
        return self._pipeline.rehearse(plan)

    def verify(self, rehearsal: Rehearsal) -> Verified:
        """Run the plan's checks on a scratch copy; look at the receipts."""
        return self._pipeline.verify(rehearsal)

    def execute(self, rehearsal: Rehearsal, *, approved_by: str, verified: Verified | None = None) -> Execution:
        """All of it, or none of it; raises what stopped it. Checks that did not run yet run first."""
        proof = verified if verified is not None else self.verify(rehearsal)
        try:
            require_passed(proof)
        except VerificationFailed as error:
            self._pipeline.record_refusal(job_of(rehearsal), approved_by, proof.receipts, error.message)
            raise
        execution = self._pipeline.execute_rehearsed(rehearsal, approved_by=approved_by, verified=proof)
        self._pipeline.raise_failure()
        return execution

    def transaction(self, intent: str, *, approved_by: str = "") -> Changes:
        """Collect small changes in a `with` block; they land together when it ends without an exception."""
        return Changes(self, intent, approved_by or user())

    def preview_undo(self, id: str) -> Return:
        return undo_of(self._pipeline, self.resolve(id))

    def preview_restore(self, at_ns: int) -> Return:
        return restore_to(self._pipeline, at_ns)

    def go_back(self, way: Return, *, approved_by: str) -> Execution:
        """Carry out a previewed undo or restore."""
        execution = self._pipeline.execute(way.job, approved_by=approved_by)
        self._pipeline.raise_failure()
        return execution

    def undo(self, id: str, *, approved_by: str = "") -> Execution:
        return self.go_back(self.preview_undo(id), approved_by=approved_by or user())

    def restore(self, at_ns: int, *, approved_by: str = "") -> Execution:
        return self.go_back(self.preview_restore(at_ns), approved_by=approved_by or user())

    def recover(self, *, accept: bool = False) -> Unsettled | None:
        return self._pipeline.recover(accept=accept)

    def gc(self, *, keep_days: int = 30) -> Reclaimed:
        return collect(self._pipeline, keep_ns=keep_days * 86_400 * 10**9, now_ns=time.time_ns())

    def log(self, *, limit: int = 50, search: str = "") -> list[Row]:
        return self._pipeline.records.executions(limit=limit, search=search)

    def resolve(self, prefix: str) -> str:
        return self._pipeline.records.resolve(prefix)

    def show(self, id: str) -> tuple[Row, dict[str, Json] | None]:
        return self._pipeline.records.execution(self.resolve(id))

    def audit(self) -> Verification:
        return self._pipeline.ledger.verify()

    def open_divergence(self) -> tuple[Divergence, ...]:
        """What an interrupted rollback left for a person to decide."""
        return open_divergence(self._pipeline.site)

    def tree(self) -> Snapshot:
        return snapshot(self.path, self._pipeline.site.state.path)

    @property
    def pipeline(self) -> Pipeline:
        return self._pipeline

    def close(self) -> None:
        self._pipeline.records.close()
        self._pipeline.site.close()

    def __enter__(self) -> Holdfast:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class Changes:
    """Steps collected in a `with` block. `execution` is there after a successful end."""

    def __init__(self, hf: Holdfast, intent: str, approved_by: str) -> None:
        self._hf = hf
        self._intent = intent
        self._approved_by = approved_by
        self._steps: list[Step] = []
        self.execution: Execution | None = None

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self._steps.append(Write(checked_path(path), Inline(data), mode))

    def update(self, path: str, old: bytes, data: bytes, *, mode: int | None = None) -> None:
        self._steps.append(Update(checked_path(path), old, Inline(data), mode))

    def create(self, path: str, *, mode: int | None = None) -> None:
        """An empty file; with a trailing slash, a directory."""
        self._steps.append(Create(checked_path(path), path.endswith("/"), mode))

    def delete(self, path: str, *, recursive: bool = False) -> None:
        self._steps.append(Delete(checked_path(path), recursive))

    def move(self, path: str, to: str) -> None:
        self._steps.append(Move(checked_path(path), checked_path(to)))

    def chmod(self, path: str, mode: int) -> None:
        self._steps.append(Chmod(checked_path(path), mode))

    def symlink(self, path: str, target: str) -> None:
        self._steps.append(Symlink(checked_path(path), target))

    def __enter__(self) -> Changes:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is None and self._steps:
            plan = Plan(self._intent, tuple(self._steps))
            self.execution = self._hf.execute(self._hf.simulate(plan), approved_by=self._approved_by)


def init(path: str = ".", calls: Calls = CALLS) -> str:
    """Put a workspace under guard; idempotent. The workspace's id is returned."""
    identity = create_state(os.path.abspath(path), calls)
    key = load_or_create_key(key_path(), calls)
    state = os.path.join(os.path.abspath(path), STATE_DIRECTORY)
    ledger = Ledger(state, key, identity.id, anchor_path(identity.id), calls)
    if ledger.head() is None:
        ledger.append("init", {"workspace": identity.id}, time.time_ns())
    Records(state).close()
    return identity.id


def open(path: str = ".", *, wait: float = 0.0, progress: Progress | None = None, calls: Calls = CALLS) -> Holdfast:
    """The workspace at or above `path`; what a crash left is repaired first."""
    site = Site(find_workspace(path), calls)
    try:
        identity = read_identity(site.state)
        ledger = Ledger(site.state.path, load_key(key_path(), calls), identity.id, anchor_path(identity.id), calls)
        records = Records(site.state.path)
        return Holdfast(Pipeline(site, ledger, records, os.path.join(site.state.path, "lock"), wait, progress))
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
