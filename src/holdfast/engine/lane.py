"""The lane: where good work lands, one piece at a time, on the workspace as it is now.

    proposal ─▶ landed already? ─▶ rebased ─▶ checked again where the tree moved ─▶ judged ─▶ the one transaction
                     │                                                              │                │
                     └────────────────────────────────▶ ticked ─▶ committed ◀───────┼────────────────┘
                                                                 a person is asked ◀┘

Invariants
  L1  Landing the same order again is the same landing: its plan's digest is in the ledger's entry of the execution, and
      what is there already is not done twice. This holds after a kill at any point, since recovery comes first. What
      somebody took back since is not landed again either: a person says whether the task is begun anew.
  L2  What lands passed every check on the tree that it makes, and every gate; nothing of the worker's is believed:
      neither that the files are there that were asked for, nor that a box of the roadmap may be ticked. An order with
      a base was given out, and whatever came of it was done elsewhere (P5 of `proposal`), also when a later sitting
      lands it out of the workspace's own stock.
  L3  Once it landed, nothing that fails afterwards makes it not landed: a tick or a commit that could not be made is a
      remark, and the next landing or `sync` makes it.
  L4  A person's yes is for the simulation that they saw. Laid over anew it is another one, and they are asked again.
  L5  Where nothing is left to land, the task is done only if this machine saw the work and the checks pass. A worker
      elsewhere can always send what stands already, so there a person says whether it is done.
  L6  `--yes` is the yes of whoever drives, under their own name. Where it would not count, somebody is asked whose yes
      does, and the work is kept for them to look at. To one simulation it is given a few times at most: an approval is
      an answer that leads to another landing, and one that never counts when it lands would do so for ever.
  L7  Of a group, each task is ticked and done by its own evidence in what landed, with every file that it asks for; the
      others stay open. Where none of them has all of its files, nothing lands.
  L8  Where no check says that the work is good, a person looks at it first, whatever policy and `--yes` say, unless
      the user's configuration lets it land. That it is unverified, and why, is in the answer and in the commit. What
      whoever drives wanted unchecked, and said why, is theirs to give `--yes` to.
  L9  A task is not ticked while the change lacks what it names, unless a person who saw that says yes: `--yes` was
      given before anybody saw it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from holdfast.checks.baseline import flaky_told
from holdfast.engine.branch_lost import require_branch
from holdfast.engine.checking import Landable, Verified
from holdfast.engine.difference import past_difference
from holdfast.engine.landmarks import files_of, remarks_on, text_left
from holdfast.engine.looked_up import missing_files
from holdfast.engine.measuring import MOST_EVIDENCE, failed_check
from holdfast.engine.orders import Asked, LandAnswer, Landed, LandOrder, Order, Unlanded, plan_of
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.proposal import Proposal, read_proposal
from holdfast.engine.rebasing import AlreadyThere, Collided, Rebased, rebased
from holdfast.engine.resuming import found_in, kept_with, resumed
from holdfast.engine.roadmap_file import RoadmapFile
from holdfast.engine.room import is_full
from holdfast.engine.second_look import meddles
from holdfast.engine.simulator import Simulated
from holdfast.errors import (
    ApprovalNeeded,
    Conflict,
    DatabaseAway,
    Denied,
    HoldfastError,
    Interrupted,
    Locked,
    Tampering,
    UnknownId,
    VerificationFailed,
)
from holdfast.gates.evidence import compared
from holdfast.gates.report_rules import UNMET
from holdfast.gates.secrets import masked
from holdfast.intake.roadmap import boxes
from holdfast.model.changeset import ChangeSet, change_set
from holdfast.model.decision import Decision
from holdfast.model.execution import Receipt
from holdfast.model.path import printable
from holdfast.model.plan import Plan
from holdfast.model.saved_simulation import receipt_from
from holdfast.model.task import Task
from holdfast.planning.expected import expected_files
from holdfast.planning.failures import understood
from holdfast.planning.grouping import shown_by
from holdfast.planning.recovery import Seen, diagnosis_of, seen_in
from holdfast.planning.touched import asked_words
from holdfast.settlement.record import KIND
from holdfast.store.blobs import Blobs
from holdfast.store.large_blobs import LargeBlobs
from holdfast.workspace.githistory import Commit

# After the landing: commit what landed, for the tasks that it completed; one commit for each repository it touched.
Checkpoint = Callable[[Pipeline, LandOrder, str, Sequence[str]], Sequence[Commit]]
# A proposal by its name, with its bytes in the workspace's own stock when this returns.
Fetch = Callable[[Pipeline, str, Plan], Proposal]
_NOTHING = change_set(())
_YES, _MOST_YES = "--yes", 3
_SHOWN = 3


class _Ready(NamedTuple):
    """Judged, and fit to be carried out."""

    simulated: Simulated
    verified: Verified
    decision: Decision
    # Why no check says that it works; empty where one does.
    unverified: str


class Lane:
    """Of one workspace. `opened` gives a pipeline of the thread that asks."""

    def __init__(self, opened: Callable[[], AbstractContextManager[Pipeline]], checkpoint: Checkpoint, fetch: Fetch):
        self._opened, self._checkpoint, self._fetch = opened, checkpoint, fetch

    def land(self, order: LandOrder) -> LandAnswer:
        with self._opened() as pipeline:
            pipeline.recover(patience=60.0)  # L1: what a crash left is known before anything is asked
            require_branch(pipeline.site)
            plan = plan_of(order.order)
            try:
                answer = _stood(pipeline, order, plan) or self._landed(pipeline, order, plan)
            except (Interrupted, Locked, DatabaseAway):
                raise
            except ApprovalNeeded as error:
                return Asked(order.simulation, error.message)  # another answer may still come to the same
            except HoldfastError as error:
                if is_full(error):
                    raise
                return _unlanded(seen_in(error))
            if isinstance(answer, Unlanded) and answer.taken_back:
                return _unticked(pipeline, order, answer)
            return self._settled(pipeline, order, answer) if isinstance(answer, Landed) else answer

    # ── until it stands ──

    def _landed(self, pipeline: Pipeline, order: LandOrder, plan: Plan) -> LandAnswer:
        ready = self._ready(pipeline, order, plan)
        if not isinstance(ready, _Ready):
            return ready
        asked = self._asked(pipeline, order, ready)
        if asked is not None:
            return asked
        execution = pipeline.land(
            ready.simulated, ready.verified, ready.decision, approved_by=_said_yes(pipeline, order, ready)
        )
        try:
            pipeline.raise_failure()
        except ApprovalNeeded as error:
            return Asked(order.simulation or self._kept(pipeline, ready), error.message, unverified=ready.unverified)
        return Landed(execution.id, "", execution.changes, unverified=ready.unverified)

    def _ready(self, pipeline: Pipeline, order: LandOrder, plan: Plan) -> _Ready | LandAnswer:
        found = self._simulated(pipeline, order, plan)
        if isinstance(found, (Landed, Unlanded)):
            return found
        simulated, verified = found
        failed = [receipt for receipt in verified.receipts if not receipt.passed]
        if failed:
            return _failed_checks(pipeline, failed, tuple(simulated.change_set.paths))
        if missing := _missing_of(pipeline, order.order, order.roadmap, simulated.change_set):
            return _missing(missing)
        decision = pipeline.decide(simulated, verified)
        if decision.verdict == "DENY":
            raise Denied("; ".join(f"{reason.rule}: {reason.detail}" for reason in decision.reasons))
        tree = verified.lands_as or simulated.report.predicted_tree
        return _Ready(simulated, verified, decision, _why_unverified(order, verified, tree))

    def _simulated(
        self, pipeline: Pipeline, order: LandOrder, plan: Plan
    ) -> tuple[Simulated, Verified] | Landed | Unlanded:
        """What a person was asked about, as long as it fits; otherwise the proposal, laid over what stands now."""
        if order.simulation:
            try:
                return _of_this_plan(resumed(pipeline.site, order.simulation), plan)
            except (Conflict, UnknownId):
                pass  # the workspace moved where it matters, or it was cleaned away: it is laid over again
        proposal = self._fetch(pipeline, order.proposal, plan)
        if order.order.base:
            proposal = proposal.unwitnessed()  # L2
        match outcome := rebased(pipeline, proposal):
            case Collided():
                return Unlanded("conflict", masked(outcome.error().message), outcome.evidence())
            case AlreadyThere():
                return _elsewhere(outcome) if proposal.elsewhere else _standing(pipeline, order, plan)
            case Rebased():
                return outcome.simulated, _verified(pipeline, order, proposal, outcome.simulated)

    def _asked(self, pipeline: Pipeline, order: LandOrder, ready: _Ready) -> Asked | None:
        """Whether a person must look first; `--yes` is given here, where policy lets one person give it."""
        decision, was_seen = ready.decision, order.simulation == ready.simulated.report.id
        why = ready.unverified
        wanted, doubt = _wanted(pipeline, order, ready.simulated), _unverified_asks(pipeline, order, why)
        if (wanted or doubt) and not (order.cleared_by and was_seen):  # L4
            seen = order.simulation if was_seen else self._kept(pipeline, ready)
            signed = bool(doubt) and decision.verdict == "NEED_APPROVAL"
            # What else policy asks about it is no less; that nothing verified it was said.
            more = [
                reason.detail
                for reason in decision.reasons
                if doubt and reason.verdict == "NEED_APPROVAL" and (reason.risk != "low" or reason.rule == UNMET)
            ]
            return Asked(seen, "; ".join(filter(None, (doubt, wanted, *more))), signed, why)
        if decision.verdict != "NEED_APPROVAL":
            return None
        refused = ""
        lacks = any(reason.rule == UNMET for reason in decision.reasons)  # L9
        if order.yes and not lacks and not decision.typed_consent and decision.approvals_needed <= 1:
            refused = _given(pipeline, decision)
            if not refused:
                return None
        if was_seen:
            return None  # the hard gates count the answers
        reasons = [reason.detail for reason in decision.reasons if reason.verdict == "NEED_APPROVAL"]
        return Asked(self._kept(pipeline, ready), refused or "; ".join(reasons), unverified=why)

    def _kept(self, pipeline: Pipeline, ready: _Ready) -> str:
        kept = kept_with(pipeline.site, ready.simulated, ready.verified)
        pipeline.decide(kept, ready.verified)
        return kept.report.id

    # ── once it stands ──

    def _settled(self, pipeline: Pipeline, order: LandOrder, landed: Landed) -> Landed:
        """L3. What stood so already has no execution, and nothing of ours to commit."""
        remarks = [*landed.remarks, *_flaky(pipeline, landed.execution)]
        left = open_tasks(pipeline, order.order, order.roadmap, landed.execution)
        if left:
            remarks.append(f"nothing in it is about {', '.join(left)}, which stays open")
        if set(order.tick).difference(left) and order.roadmap:
            _tried(remarks, "not ticked", lambda: _ticked(pipeline, order, landed.execution, left))
        made: list[Commit] = []
        if order.checkpoint and landed.execution:
            tasks = [task for task in (order.order.task, *order.order.together) if task not in left]
            _tried(
                remarks,
                "not committed",
                lambda: made.extend(
                    self._checkpoint(pipeline, order._replace(unverified=landed.unverified), landed.execution, tasks)
                ),
            )
        remarks += remarks_on(made)
        files = files_of(pipeline, landed.execution) if landed.execution else 0
        ids = " ".join(commit.id for commit in made)
        others = tuple(task for task in order.order.together if task not in left)
        return Landed(landed.execution, ids, files, tuple(remarks), others, left, landed.unverified)


def _stood(pipeline: Pipeline, order: LandOrder, plan: Plan) -> Landed | Unlanded | None:
    """L1, with what its record says of its checks."""
    answer = landed_as(pipeline, plan)
    if not isinstance(answer, Landed):
        return answer
    document = pipeline.records.execution(answer.execution)[1]
    if document is None:
        return answer._replace(unverified=order.unverified)  # the record is kept no more
    found = Verified(tuple(receipt_from(row) for row in document["receipts"]), "")
    tree = next((proof.tree_digest for proof in found.proofs if proof.origin), "")
    return answer._replace(unverified=_why_unverified(order, found, tree))


def from_own_stock(pipeline: Pipeline, name: str, plan: Plan) -> Proposal:
    return read_proposal(LargeBlobs(pipeline.site.state), name, plan)


def landed_as(pipeline: Pipeline, plan: Plan) -> Landed | Unlanded | None:
    """What became of this plan: it stands, it was taken back, or it never landed (L1)."""
    rows = pipeline.landed(plan.digest, live=False)
    if not rows:
        return None
    standing = next((row.id for row in rows if row.live), "")
    if standing:
        return Landed(standing, "", 0)
    why = f"{rows[0].id} had landed it, and was taken back"
    return Unlanded("unknown", why, why, final=True, taken_back=True)


def open_tasks(pipeline: Pipeline, order: Order, roadmap: str, execution: str) -> tuple[str, ...]:
    """L7. What no longer can be looked at shows nothing."""
    asked = order.task, *order.together
    if len(asked) == 1:
        return ()
    try:
        tasks = _tasks_of(pipeline, order, roadmap)
        added = _added_by(pipeline, execution) if execution else {}
    except (HoldfastError, OSError):
        tasks, added = [], {}
    lacking = {task.id for task in tasks if missing_files(pipeline.site, _files_of(task), _NOTHING)}
    shown = shown_by(tasks, added, accepted=not order.unverified_because) - lacking
    # Something landed and passed the checks: where it shows nothing else, it is the first task that lacks nothing.
    first = next((id for id in asked if id not in lacking), "")
    return tuple(id for id in asked if id not in (shown or {first}))


def _flaky(pipeline: Pipeline, execution: str) -> tuple[str, ...]:
    """Tests that failed over what landed, and passed when they were run again: whoever looks at the task is told."""
    document = pipeline.records.execution(execution)[1] if execution else None
    told = (flaky_told(str(row["detail"])) for row in (document or {}).get("receipts", ()))
    return tuple(dict.fromkeys(filter(None, told)))


def _tasks_of(pipeline: Pipeline, order: Order, roadmap: str) -> list[Task]:
    """What the order asks for, as far as the roadmap still has it."""
    known = {task.id: task for task in RoadmapFile(pipeline.site, roadmap).read()[1].tasks}
    return [known[id] for id in (order.task, *order.together) if id in known]


def _files_of(task: Task) -> tuple[str, ...]:
    return expected_files(asked_words(task))


def _missing_of(pipeline: Pipeline, order: Order, roadmap: str, changes: ChangeSet) -> tuple[str, ...]:
    """What was asked for and will not be there; of a group only where each of its tasks lacks something (L7)."""
    if not order.together:
        return missing_files(pipeline.site, order.expected, changes)
    tasks = _tasks_of(pipeline, order, roadmap)
    missing = [missing_files(pipeline.site, _files_of(task), changes) for task in tasks]
    return tuple(path for paths in missing for path in paths) if all(missing) else ()


def _added_by(pipeline: Pipeline, execution: str) -> dict[str, str]:
    entry = pipeline.ledger.find(KIND, execution)
    if entry is None:
        return {}
    past = past_difference(pipeline.site, execution, str(entry.body["root"]))
    return {
        change.path: compared(change.path, old.data or b"", new.data or b"").added
        for change, old, new in past.compared(past.changes)
    }


def _ticked(pipeline: Pipeline, order: LandOrder, execution: str, left: Sequence[str]) -> None:
    """L7. Whoever did the work may have ticked what stays open, too."""
    text = text_left(pipeline, execution, order.roadmap) if execution and left else None
    claimed = boxes(text, order.roadmap) if text is not None else {}
    wanted = {task: task not in left for task in order.tick if task not in left or claimed.get(task)}
    RoadmapFile(pipeline.site, order.roadmap).tick(pipeline, wanted, order.by)


def _unticked(pipeline: Pipeline, order: LandOrder, gone: Unlanded) -> Unlanded:
    """Whoever was killed after the landing may have ticked its box."""
    remarks, empty = [gone.because], dict.fromkeys(order.tick, False)
    if empty and order.roadmap:
        file = RoadmapFile(pipeline.site, order.roadmap)
        _tried(remarks, "its box stays as it is", lambda: file.tick(pipeline, empty, order.by))
    return gone._replace(because="; ".join(remarks))


def _verified(pipeline: Pipeline, order: LandOrder, proposal: Proposal, simulated: Simulated) -> Verified:
    """Receipts of this very workspace, for this very change set and tree, are good still; all others are made anew."""
    report, changes = proposal.report, simulated.change_set
    same = report.base_tree == simulated.report.base_tree and proposal.change_set.digest == changes.digest
    found = found_in(report)._replace(lands_as=simulated.report.predicted_tree)
    # Where nothing proves anything, why that is is not kept: it is found out again.
    if same and not order.order.mirrored and any(proof.tree_digest for proof in found.proofs):
        return found
    return pipeline.simulator.verify(simulated)


def _of_this_plan(found: tuple[Simulated, Verified], plan: Plan) -> tuple[Simulated, Verified]:
    """Whatever a person said yes to: this order lands as its own plan, or it could not be told that it landed (L1)."""
    if found[0].plan.digest != plan.digest:
        raise Tampering("the simulation that was asked about is of another plan")
    return found


def _given(pipeline: Pipeline, decision: Decision) -> str:
    """The yes of whoever drives this, under the name that it is counted by; why it would not count (L6)."""
    earlier = pipeline.governance.custody_of(decision.simulation).approvals
    if sum(approval.reason == _YES and approval.policy == decision.policy for approval in earlier) >= _MOST_YES:
        return f"--yes was given to it {_MOST_YES} times, and did not count when it was to land"
    try:
        pipeline.file([pipeline.governance.approve(decision, reason=_YES)])
    except ApprovalNeeded as error:
        return error.message
    return ""


def _said_yes(pipeline: Pipeline, order: LandOrder, ready: _Ready) -> str:
    """Who wanted this landing, where policy asks nobody: who looked at it, or gave the run `--yes`."""
    if order.cleared_by and order.simulation == ready.simulated.report.id:
        return order.cleared_by
    return pipeline.governance.me() if order.yes else ""


def _wanted(pipeline: Pipeline, order: LandOrder, simulated: Simulated) -> str:
    """Why a person is asked, whatever policy says; empty when they are not."""
    if order.ask_after:
        return "it asks before it lands"
    if order.ask_destructive and any(change.post is None for change in simulated.change_set.changes):
        return "it deletes files"
    if order.roadmap and meddles(pipeline.site, simulated, order.roadmap, (order.order.task, *order.order.together)):
        return "it changes other tasks of the roadmap"
    return ""


def _why_unverified(order: LandOrder, verified: Verified, tree: str) -> str:
    """A simulation that is taken up again does not know why; what the person was told then is known."""
    why = verified.why_unverified(tree)
    if why and order.order.unverified_because:
        return f"skipped: {order.order.unverified_because}"
    return order.unverified or why if why else ""


def _unverified_asks(pipeline: Pipeline, order: LandOrder, why: str) -> str:
    """L8."""
    if not why or order.order.unverified_because:
        return ""
    return "" if pipeline.governance.settings().run.unverified == "land" else f"unverified: {why}"


def _standing(pipeline: Pipeline, land: LandOrder, plan: Plan) -> Landed | Unlanded:
    """Somebody did exactly this. It is done if the checks say so, and there is nothing of ours to undo."""
    verified = pipeline.simulator.checking.verify(plan, Landable(_NOTHING, {}, {}))
    failed = [receipt for receipt in verified.receipts if not receipt.passed]
    if failed:
        return _failed_checks(pipeline, failed)
    if missing := _missing_of(pipeline, land.order, land.roadmap, _NOTHING):
        return _missing(missing)
    if (verified.doubt or not verified.proofs) and not land.order.unverified_because:
        because = f": {verified.doubt}" if verified.doubt else ""
        nobody = f"the workspace stood so already, and no check says that it is done{because}"
        return Unlanded("unknown", nobody, nobody, final=True)
    why = "" if verified.proofs and not verified.doubt else f"skipped: {land.order.unverified_because}"
    return Landed("", "", 0, ("the workspace stood so already",), unverified=why)


def _elsewhere(found: AlreadyThere) -> Unlanded:
    """L5. Final: another attempt could send the same."""
    names = ", ".join(map(printable, found.paths[:_SHOWN]))
    more = f" and {len(found.paths) - _SHOWN} more" if len(found.paths) > _SHOWN else ""
    why = f"work from another machine leaves nothing to land, since {names}{more} stood so already"
    return Unlanded("unknown", f"{why}: only a person can tell whether the task is done", why, final=True)


def _missing(paths: Sequence[str]) -> Unlanded:
    names = ", ".join(map(printable, paths))
    return Unlanded("missing file", f"not there: {names}", f"These files were expected and are not there: {names}.")


def _failed_checks(pipeline: Pipeline, failed: Sequence[Receipt], known: Collection[str] = ()) -> Unlanded:
    """`known` are paths of the workspace, so that a module of its own is not taken for one that is not installed."""
    blobs = Blobs(pipeline.site.state)
    logs = [(receipt, blobs.get(receipt.log_digest) if receipt.log_digest else b"") for receipt in failed]
    told = "\n\n".join(failed_check(blobs, receipt, pipeline.site.seen_at) for receipt in failed)[:MOST_EVIDENCE]
    why = tuple(understood(receipt, log, known, pipeline.site.seen_at) for receipt, log in logs)
    message = masked("; ".join(receipt.detail for receipt in failed))
    return _unlanded(Seen(VerificationFailed.code, message, failures=why, evidence=told))


def _unlanded(seen: Seen) -> Unlanded:
    found = diagnosis_of(seen)
    return Unlanded(found.category, masked(found.because), masked(found.evidence)[:MOST_EVIDENCE], found.final)


def _tried(remarks: list[str], what: str, act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:  # noqa: BLE001  it stands in the workspace: whatever fails now must not say otherwise (L3)
        remarks.append(f"{what}: {masked(str(error)) or type(error).__name__}")
