"""holdfast review: what waits for a person, with the reasons; and the person's answer.

    a simulation that policy wants signed ...... the road of approve and reject: signed, typed out from risk high on
    a simulation that only the run asks about .. a yes or no in the ledger
    nothing to look at yet ..................... a yes lets the task begin, or go on as was proposed

Invariants
  E1  A yes is to exactly what was shown: where the workspace moved meanwhile, the work is laid over it anew, checked
      anew, and asked about anew. What is said to a question that is not asked any more is refused; a
      signature names the simulation that it is for.
  E2  Without a terminal nothing is answered unless the task is named and the answer is given as an option.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from holdfast.cli.documents import list_document
from holdfast.cli.run_told import MARKS, answer_of, label, one_line, task_document
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count
from holdfast.engine.run_standing import resume_with
from holdfast.errors import ApprovalNeeded, Conflict, InvalidInput, UnknownId

if TYPE_CHECKING:
    from holdfast.cli.screen import Screen
    from holdfast.engine.checking import Verified
    from holdfast.engine.difference import PlannedDifference
    from holdfast.engine.run_standing import Standing
    from holdfast.engine.simulator import Simulated
    from holdfast.model.decision import Decision
    from holdfast.model.task import Task, TaskRecord
    from holdfast.wiring import Holdfast

_PATIENCE_S = 30.0
Reply = Literal["yes", "no", "skip"]
_REPLIES: dict[str, Reply] = {"y": "yes", "yes": "yes", "n": "no", "no": "no", "s": "skip", "skip": "skip"}


class Shown(NamedTuple):
    """What is kept of the work that waits, with what policy says to it."""

    simulated: Simulated
    verified: Verified
    decision: Decision
    difference: PlannedDifference


@verb(name="review")
@click.argument("task", default="")
@click.option("--yes", "reply", flag_value="yes", help="Say yes to TASK.")
@click.option("--no", "reply", flag_value="no", help="Say no to TASK: it failed.")
@click.option("--skip", "reply", flag_value="skip", help="Leave TASK out; the rest goes on without it.")
@click.option("--reason", default="", help="Why; it is recorded with the answer.")
@click.option("--plan", "typed", default="", metavar="ID", help="The plan's id, typed: needed from risk high on.")
@click.option("--diff", "diff", is_flag=True, help="Show what would land.")
@click.option("--run", "run", default="", metavar="RUN", help="Of this run; the newest one if not given.")
def command(face: Face, task: str, reply: Reply | None, reason: str, typed: str, diff: bool, run: str) -> None:
    """Say what waits for you, and why; on a terminal ask about one after the other: y, n, d(iff), s(kip), or later."""
    if reply is not None and not task:
        raise InvalidInput("name the task that this answers", hint="Nothing was changed. See: holdfast review")
    from holdfast.cli.opening import opened

    with opened(face, wait=max(face.options.wait, _PATIENCE_S)) as hf:
        standing = hf.runs.standing(run)
        waiting = _waiting(hf, standing, task)
        desk = _Desk(face.screen, hf, standing, reason, typed)
        if reply is not None:
            desk.answer(*waiting[0], reply)
        elif face.screen.can_ask() and not diff:
            desk.ask_all(waiting)
        else:
            desk.list_all(waiting, diff=diff)
        now = hf.runs.standing(standing.run.id) if desk.answered else standing
        _tell_next(face.screen, hf, now, desk.answered, len(_waiting(hf, now, "")))


def _waiting(hf: Holdfast, standing: Standing, task: str) -> list[tuple[Task, TaskRecord]]:
    """All of them that nobody answered, or the one that was named, which must be one that is asked about."""
    rows = [(item, record) for item, record in standing.rows() if record.state == "NEEDS_REVIEW"]
    if not task:
        return [row for row in rows if row[0].id not in standing.answered]
    id = hf.runs.resolve(task, standing.run.id)
    named = [row for row in rows if row[0].id == id]
    if not named:
        raise InvalidInput(f"{id} does not wait for anybody", hint="Nothing was changed. See: holdfast tasks")
    return named


class _Desk:
    """Where one run is reviewed."""

    def __init__(self, screen: Screen, hf: Holdfast, standing: Standing, reason: str, typed: str) -> None:
        self._screen, self._hf, self._standing = screen, hf, standing
        self._reason, self._typed = reason, typed
        self.answered = 0

    # ── look ──

    def list_all(self, waiting: list[tuple[Task, TaskRecord]], *, diff: bool) -> None:
        self._screen.answer(list_document([self._document(task, record) for task, record in waiting]))
        for task, record in waiting:
            found = self._show(task, record)
            if diff and found is not None:
                self._show_difference(found)
            typed = f" --plan {found.simulated.plan.id}" if found is not None and found.decision.typed_consent else ""
            self._screen.say(self._screen.way(f"    holdfast review {task.id} --yes{typed}|--no|--skip"))
        for task, _ in self._standing.rows():
            if task.id in self._standing.answered:
                answer = answer_of(self._standing, task.id)
                go_on = self._screen.way("holdfast resume goes on")
                self._screen.say(f"{MARKS['PENDING']} {label(task)}: {answer}; {go_on}")

    def _document(self, task: Task, record: TaskRecord) -> dict[str, object]:
        """With the id of the plan, which is what `--plan` wants typed; empty where there is no work to look at."""
        try:
            plan = self._hf.records.paper("simulations", record.simulation).subject if record.simulation else ""
        except UnknownId:
            plan = ""
        return {**task_document(task, record), "plan": plan}

    def _show(self, task: Task, record: TaskRecord) -> Shown | None:
        """What is asked; with the paths and what policy says, where there is work to look at."""
        screen = self._screen
        screen.say(screen.style(f"? {label(task)}", "bold"))
        screen.say(f"    {one_line(record.because)}")
        for tried in record.tried[-3:]:
            screen.say(f"    attempt {tried.attempt} ({tried.category}): {one_line(tried.evidence)[:200]}")
        if screen.form != "text":
            return None
        found = self._found(record)
        if found is not None:
            from holdfast.cli.gate_told import tell_decision
            from holdfast.cli.summary import left_out, summary

            for line in summary(found.difference):
                screen.say(f"  {line}")
            if made := found.simulated.report.by_products:
                screen.say(f"    . {left_out([item.path for item in made])}")
            tell_decision(screen, found.decision)
        return found

    def _found(self, record: TaskRecord) -> Shown | None:
        """None where there is nothing to look at (yet, or any more)."""
        from holdfast.engine.difference import PlannedDifference

        if not record.simulation:
            return None
        try:
            simulated, verified = self._hf.kept(record.simulation)
        except (Conflict, UnknownId) as error:
            self._screen.say(f"    {one_line(error.message)}: a yes has it laid over what stands now, and asks again")
            return None
        decision = self._hf.evaluate(simulated, verified)
        difference = PlannedDifference(self._hf.site, simulated.change_set.changes, simulated.sources)
        return Shown(simulated, verified, decision, difference)

    def _show_difference(self, found: Shown) -> None:
        from holdfast.cli.consent import show_difference

        show_difference(self._screen, found.difference, 2000)

    # ── ask ──

    def ask_all(self, waiting: list[tuple[Task, TaskRecord]]) -> None:
        for task, record in waiting:
            found = self._show(task, record)
            reply = self._asked(found)
            if reply is not None:
                try:
                    self._answer(task, record, reply, found)
                except Conflict as error:  # E1; the others are still asked about
                    self._screen.say(f"  {one_line(error.message)}. {error.hint}")

    def _asked(self, found: Shown | None) -> Reply | None:
        """None is for later: nothing is said, and it waits on."""
        choices = "[y/n/d(iff)/s(kip)/L(ater)]" if found is not None else "[y/n/s(kip)/L(ater)]"
        while True:
            said = self._screen.ask(f"  Go on with it? {choices}")
            if said in ("d", "diff") and found is not None:
                self._show_difference(found)
            else:
                return _REPLIES.get(said)

    # ── answer ──

    def answer(self, task: Task, record: TaskRecord, reply: Reply) -> None:
        self._answer(
            task, record, reply, self._show(task, record) if self._screen.form == "text" else self._found(record)
        )

    def _answer(self, task: Task, record: TaskRecord, reply: Reply, found: Shown | None) -> None:
        before = answer_of(self._standing, task.id)
        signed = found is not None and found.decision.verdict == "NEED_APPROVAL"
        if signed and found is not None and reply == "yes":
            self._require_not_rejected(task, record)
            self._approve(found)
            if before:  # what was said unsigned stands against it (N3 of `answers`)
                self._hf.runs.answer(task.id, yes=True, reason=self._reason, run=record.run, shown=record)
        elif signed and found is not None and reply == "no":
            self._hf.reject(found.decision, reason=self._reason)
        else:
            yes, skip = reply == "yes", reply == "skip"
            self._hf.runs.answer(task.id, yes=yes, skip=skip, reason=self._reason, run=record.run, shown=record)
        self.answered += 1
        word = {"yes": "approved" if signed else "yes", "no": "rejected" if signed else "no", "skip": "left out"}[reply]
        self._screen.answer(
            {**self._document(task, record), "answer": reply, "signed": signed and reply != "skip"}
            | {"replaced": before}
        )
        self._screen.say(f"  {label(task)}: {word}." + (f" That replaces: {before}." if before else ""))

    def _require_not_rejected(self, task: Task, record: TaskRecord) -> None:
        """A signed no to this work stands, whoever says yes to it afterwards."""
        after = self._standing.answered.get(task.id)
        if after is not None and after.state == "FAILED" and after.heard > record.heard:
            raise Conflict(
                f"{label(task)} was {one_line(after.because)}, and that stands",
                hint=f"Nothing was said. Have it done anew: holdfast resume, then holdfast retry {task.id}",
            )

    def _approve(self, found: Shown) -> None:
        """This user's signature; from risk high on the plan's id is typed, here or as an option."""
        from holdfast.cli.gate_told import require_approval

        decision, plan = found.decision, found.simulated.plan.id
        if self._typed and self._typed != plan:
            raise ApprovalNeeded(f"{one_line(self._typed)} is not this plan's id", hint="Nothing was changed.")
        if decision.typed_consent and not self._typed:
            if not self._screen.can_ask():
                raise ApprovalNeeded(
                    f"risk {decision.risk_effective} needs explicit consent: the plan's id, typed out",
                    hint=f"Nothing was changed. Add: --plan {plan}",
                )
            require_approval(self._screen, decision, plan, "", found.difference, yes=False)
        self._hf.approve(decision, reason=self._reason)
        if decision.approvals_needed > 1:
            self._screen.say(f"  {decision.approvals_needed} people must approve this; your approval is recorded.")


def _tell_next(screen: Screen, hf: Holdfast, standing: Standing, answered: int, left: int) -> None:
    pulse = hf.runs.pulse()
    alive = pulse is not None and pulse.run == standing.run.id and pulse.life(time.time_ns()) in ("alive", "silent")
    then = "The run goes on by itself." if alive else screen.way(f"Go on with: {resume_with(standing.run)}")
    if answered:
        rest = f"{count(left, 'task')} still {'waits' if left == 1 else 'wait'}. " if left else ""
        screen.say(rest + then)
    elif left:
        screen.say(f"{count(left, 'task')} {'waits' if left == 1 else 'wait'} for you.")
    else:
        screen.say("Nothing waits for you." + (f" {then}" if standing.answered else ""))
