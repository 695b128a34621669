"""Undo and restore are one road: show what will be touched, ask, take it, and let the tasks follow that landed it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from holdfast.cli.checks_told import tell_receipts
from holdfast.cli.consent import require_consent
from holdfast.cli.documents import change_document, execution_document
from holdfast.cli.ending import elsewhere, telling_failure
from holdfast.cli.gate_told import require_approval, tell_decision
from holdfast.cli.screen import Screen, shown
from holdfast.cli.summary import summary
from holdfast.cli.words import count, duration
from holdfast.engine.difference import PlannedDifference
from holdfast.errors import ApprovalNeeded
from holdfast.model.path import printable
from holdfast.wiring import Holdfast

if TYPE_CHECKING:
    from holdfast.engine.checking import Verified
    from holdfast.engine.history import Return
    from holdfast.engine.run_following import Followed
    from holdfast.engine.simulator import Simulated
    from holdfast.model.decision import Decision


def go_back(screen: Screen, hf: Holdfast, way: Return, question: str, *, yes: bool, preview: bool) -> str:
    """The id of the execution that went back; empty where none did."""
    difference = PlannedDifference(hf.site, way.changes, way.job.sources)
    _tell(screen, way, difference)
    if not way.changes and not way.services:
        screen.answer(_preview_document(way, "UNCHANGED"))
        screen.say("The workspace stands like that already; nothing to do.")
        return ""
    if preview:
        screen.answer(_preview_document(way, "REHEARSED"))
        screen.say("Preview only: nothing was changed.")
        return ""
    if has_runs(hf):
        hf.runs.require_undoable(way.job.undoes, way.job.revives)  # before anybody is asked
    judged = _judged(screen, hf, way, question, difference, yes=yes) if way.job.revives else None
    if judged is None:
        require_consent(screen, question, difference, yes=yes)
    with hf.taking_back(way) as following:  # while the person thought, a run may have begun; from here on none can
        with telling_failure(screen, hf):
            if judged is not None:
                execution = hf.execute(judged.simulated, verified=judged.verified, decision=judged.decision, way=way)
            else:
                execution = hf.go_back(way, approved_by=hf.me())
        screen.answer({**execution_document(*hf.show(execution.id)), **_notes(way)})
        told = f", {count(len(way.services), 'service action')}" if way.services else ""
        screen.say(f"Restored {count(execution.changes, 'path')}{told} in {duration(execution.duration_ms)}.")
        for line in elsewhere(execution):
            screen.say(line)
        screen.say(screen.way(f"Redo with: holdfast undo {execution.id}"))
        if following is not None:
            _tell_followed(screen, following(execution.id))
    return execution.id


class _Judged(NamedTuple):
    simulated: Simulated
    verified: Verified
    decision: Decision


def _judged(
    screen: Screen, hf: Holdfast, way: Return, question: str, difference: PlannedDifference, *, yes: bool
) -> _Judged:
    """What comes back lands once more: checked, judged and approved as any change; ApprovalNeeded where it is not."""
    simulated = hf.again(way)
    verified = hf.verify(simulated)
    tell_receipts(screen, "Checked", verified.receipts)
    decision = hf.evaluate(simulated, verified)
    tell_decision(screen, decision)
    if decision.verdict == "NEED_APPROVAL":
        try:
            if decision.approvals_needed > 1:
                raise ApprovalNeeded(f"{decision.approvals_needed} people must approve what this brings back")
            require_approval(screen, decision, simulated.plan.id, question, difference, yes=yes)
        except ApprovalNeeded as error:
            if decision.approvals_needed > 1 or (decision.typed_consent and not screen.can_ask()):
                error.hint = "Nothing was changed. Apply the change once more, so that it can be approved."
            raise
        hf.approve(decision)
    return _Judged(simulated, verified, decision)


def has_runs(hf: Holdfast) -> bool:
    from holdfast.store.runs import Runs

    return Runs(hf.records).exist()


def follow(screen: Screen, hf: Holdfast, undo: str) -> None:
    """Bring the tasks in line with what was taken back, or came back."""
    _tell_followed(screen, hf.runs.followed(undo))


def _tell_followed(screen: Screen, found: Followed) -> None:
    screen.event(
        "taken_back", tasks=list(found.tasks), returned=list(found.returned), commit=found.commits,
        remarks=list(found.remarks),
    )  # fmt: skip
    committed = f", committed as {', '.join(id[:7] for id in found.commits.split())}" if found.commits else ""
    if found.tasks:
        screen.say(f"To do again: {', '.join(map(shown, found.tasks))}{committed}.")
    if found.returned:
        screen.say(f"Done again: {', '.join(map(shown, found.returned))}{committed}.")
    for remark in found.remarks:
        screen.note(f"! {shown(remark)}")


def _tell(screen: Screen, way: Return, difference: PlannedDifference) -> None:
    if screen.form != "text":
        return
    screen.say(screen.style(shown(way.job.intent), "bold"))
    for line in summary(difference):
        screen.say(line)
    for words in way.services:
        screen.say(f"  ! {shown(words)}  cannot be rehearsed")
    for path in way.merged:
        screen.say(f"  = {printable(path)}  edited since: that edit stays, ours goes")
    for item in way.left:
        screen.say(f"  . {printable(item.path)} {shown(item.detail)}")
    if way.removal is not None:
        screen.say(f"  ! removes {way.removal.files:,} of {count(way.removal.of, 'file')} in this workspace")


def _notes(way: Return) -> dict[str, object]:
    left = [item._asdict() for item in way.left]
    removal = None if way.removal is None else way.removal._asdict()
    return {"merged": list(way.merged), "left": left, "services": list(way.services), "mass_removal": removal}


def _preview_document(way: Return, status: str) -> dict[str, object]:
    changes = [change_document(change) for change in way.changes]
    return {"kind": "simulation", "id": way.job.plan_id, "status": status, "undoes": list(way.job.undoes),
            "changes": changes, **_notes(way)}  # fmt: skip
