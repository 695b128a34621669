"""Delegation: an agent works in the shadow, and its work is measured until it is good or its attempts are used up.

    WORKING ──agent ends──▶ CAPTURED ──▶ MEASURED ─┬─ good ───────────────────────▶ DONE
       ▲                                           ├─ not good, attempts left ─┐
       └────────── evidence of what is wrong ──────│◀──────────────────────────┘
                                                   └─ otherwise ──▶ FAILED (exit 11), or LIMIT (exit 10)

Invariants
  W1  Good is measured (see `measuring`). What the agent says, and its exit code, never make it good; an agent that did
      not finish never is.
  W2  Whatever the outcome, the ledger holds what the agent claimed beside what was measured.
  W3  An agent is told only what was measured, bounded; it is told as data, not as instructions.
  W4  What has the shape of a secret is masked before anything is kept or shown: task, words, errors, transcript.
  W5  When somebody changes the workspace where the agent works, there is nothing to try again: Conflict.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from holdfast.agents.bench import SandboxBench
from holdfast.agents.protocol import Agent, Person, Watcher
from holdfast.agents.readiness import require_person
from holdfast.engine.backoff import pause_ms, worth_a_retry
from holdfast.engine.breaker import Breakers, Ticket, Waits
from holdfast.engine.checking import Checking, profile_of
from holdfast.engine.delegation_told import Bounds, failure_of, not_asked, receipt_of, with_amount
from holdfast.engine.escalation import acceptance_escalation, sentence_of
from holdfast.engine.measuring import Measured, Measuring
from holdfast.engine.model_access import Access, Mark, Recorded, model_access
from holdfast.engine.past import outcome_of
from holdfast.engine.room import require_room, told_as_full
from holdfast.errors import Conflict, Interrupted, InvalidInput, Shortage
from holdfast.gates.secrets import masked
from holdfast.model.agent import Attempt, Began, Delegation, Escalated, Happening, Request, Result, reworded
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.configuration import ProgramLimits, Settings
from holdfast.model.path import printable
from holdfast.model.plan import Agent as AgentStep
from holdfast.model.plan import Plan
from holdfast.simulation.workshop import Worked
from holdfast.store.blobs import Blobs
from holdfast.workspace.capture import Captured
from holdfast.workspace.shadow import Shadow
from holdfast.workspace.site import Site

FindAgent = Callable[[str], Agent]
Note = Callable[[Delegation], None]
_MOST_NAMES = 5
# The limit's name when somebody outside wants no more of it.
STOPPED = "stopped"


class _Task(NamedTuple):
    """Everything that stays the same over all attempts."""

    agent: Agent
    step: AgentStep
    shadow: Shadow
    bench: SandboxBench
    access: Access
    measuring: Measuring


class Delegating:
    """Gives the agent steps of one plan to their agents; called by the workshop.

    `of_run`: what the agent may spend of these is what is left of its run's budget, and no limit of its own."""

    def __init__(
        self,
        site: Site,
        settings: Settings,
        plan: Plan,
        checking: Checking,
        find: FindAgent,
        note: Note,
        watcher: Watcher,
        breakers: Breakers,
        person: Person | None = None,
        stop: Callable[[], bool] = bool,
        context: str = "",
        of_run: Collection[Shortage] = (),
    ) -> None:
        self._of_run = of_run
        self._person, self._breakers, self._stop, self._context = person, breakers, stop, context
        self._site, self._settings, self._plan = site, settings, plan
        self._checking, self._find, self._note, self._watcher = checking, find, note, watcher
        self._blobs = Blobs(site.state)

    def __call__(self, shadow: Shadow, step: AgentStep) -> Worked:
        """The work, good, or AgentFailed or LimitReached with what was measured; DiskFull is nobody's failure."""
        with told_as_full(f"{step.name} cannot work"):
            return self._given(shadow, step)

    def _given(self, shadow: Shadow, step: AgentStep) -> Worked:
        agent = self._find(step.name)
        wrong = agent.validate()
        if wrong:
            raise InvalidInput(f"the agent {step.name} cannot be used: {'; '.join(wrong)}", hint="See: holdfast agents")
        own = self._settings.agent(step.name) or AgentSettings(step.name)
        require_person(agent, self._person)
        measuring = Measuring(self._site, self._settings, self._checking, self._plan, step)
        measuring.look_before(shadow)
        attempts: list[Attempt] = []
        record = Recorded()
        try:
            with model_access(agent, own, self._settings, masked, self._site.state, record) as access:
                bench = self._bench(shadow, step, own, access)
                captured, waits = self._worked(_Task(agent, step, shadow, bench, access, measuring), own, attempts)
                short_of = access.short_of(attempts[-1].result)
        finally:
            delegation = Delegation(step.name, masked(step.task), tuple(attempts), record.digest)
            if attempts:
                self._note(delegation)
        if not delegation.good:
            self._escalate_bad_work(delegation)
            raise failure_of(delegation, waits, short_of if short_of in self._of_run else "", self._bounds(step, own))
        return Worked(captured, receipt_of(delegation), bench.enforced)

    def _worked(self, task: _Task, own: AgentSettings, attempts: list[Attempt]) -> tuple[Captured, Waits | None]:
        """Attempt after attempt; what stands in the shadow at the end, and the breaker's word if it ended them."""
        step = task.step
        context = "\n".join(filter(None, (*self._settings.hints, self._context)))
        request = Request(step.task, context, step.files, step.expected, model=own.model, turns=own.turns or 0)
        captured: Captured | None = None
        while True:
            leave = self._breakers.admit(step.name)
            if isinstance(leave, Waits):
                if captured is None:
                    raise not_asked(step.name, leave, time.time_ns())
                return captured, leave
            self._require_wanted()
            task.bench.begin()
            task.bench.see(Began(step.name, len(attempts) + 1, attempts[-1].evidence if attempts else ""))
            attempt, captured = self._attempted(len(attempts) + 1, task, request, leave.ticket)
            attempts.append(attempt)
            _require_unmoved(captured)
            if attempt.good or len(attempts) >= step.attempts or not _worth_another(attempt.result):
                return captured, None
            if attempt.result.ending == "model_error":
                time.sleep(pause_ms(len(attempts), self._plan.digest) / 1000)
            request = request._replace(evidence=attempt.evidence, session=attempt.result.claim.session)

    def _attempted(self, number: int, task: _Task, request: Request, ticket: Ticket) -> Measured:
        """One attempt, counted by the breaker."""
        before = task.access.mark()
        try:
            result = self._told(task.agent.work(request, task.bench), task, before)
            self._require_wanted()
            found = task.measuring.measure(number, result, task.shadow)
            if not found.attempt.good:
                require_room(self._site.state.fd)  # before the shadow, with all that was written, is gone
        except BaseException:  # whatever it is, the attempt says nothing about the agent
            self._breakers.give_back(ticket)
            raise
        for escalation in self._breakers.report(ticket, outcome_of(self._plan.id, result, good=found.attempt.good)):
            self._watched(Escalated(sentence_of(escalation)))
        return found

    def _escalate_bad_work(self, delegation: Delegation) -> None:
        """Finished again and again, and never good: no illness of the agent, and nothing that more attempts mend."""
        found = acceptance_escalation(delegation)
        if found is not None:
            found = found._replace(task=self._plan.id)
            self._breakers.escalate(found)
            self._watched(Escalated(sentence_of(found)))

    def _told(self, result: Result, task: _Task, before: Mark) -> Result:
        """The result with what only we can know: what was spent, and why a model did not answer (W4)."""
        text = masked(task.bench.transcript().decode("utf-8", "replace"))
        claim = result.claim._replace(words=masked(result.claim.words), error=masked(result.claim.error))
        result = with_amount(task.access.explained(result, before), task.bench.limits)
        return result._replace(
            claim=claim,
            detail=masked(result.detail),
            transcript=self._blobs.put(text.encode("utf-8", "surrogatepass")),
        )

    def _require_wanted(self) -> None:
        """What was stopped from outside says nothing about the agent, and is no attempt."""
        if self._stop():
            raise Interrupted("the work was stopped", hint="Nothing was changed.")

    # ── the bench ──

    def _bounds(self, step: AgentStep, own: AgentSettings) -> Bounds:
        return Bounds(step.within_ms, self._settings.limits, own.limits)

    def _bench(self, shadow: Shadow, step: AgentStep, own: AgentSettings, access: Access) -> SandboxBench:
        stated = _tighter(self._settings.limits, own.limits)
        within = min(step.within_ms, stated.time_ms) if stated.time_ms else step.within_ms
        # The bench keeps the time itself, over all attempts.
        profile = profile_of(stated._replace(time_ms=within))._replace(
            network=access.network,
            readable=own.readable,
            proxy_socket=access.socket,
            forward_port=access.port,
        )
        return SandboxBench(
            shadow.view,
            shadow.new_home(),
            profile,
            model=access.model,
            within_ms=within,
            watcher=self._watched,
            spending=access.spent,
            stop=lambda: access.stopped() or (STOPPED if self._stop() else ""),
            person=self._person,
            more_time=self._bounds(step, own).hint(step.name, "time"),
        )

    def _watched(self, happening: Happening) -> None:
        self._watcher(reworded(happening, masked))


def _worth_another(result: Result) -> bool:
    """Work that is finished and not good can be mended; for everything else there is a table."""
    return result.ending == "finished" or worth_a_retry(result.ending).again


def _require_unmoved(captured: Captured) -> None:
    if captured.moved:
        names = ", ".join(map(printable, captured.moved[:_MOST_NAMES]))
        raise Conflict(f"the workspace changed while the agent worked: {names}", hint="Nothing was changed.")


def _tighter(first: ProgramLimits, second: ProgramLimits) -> ProgramLimits:
    rows = zip(first, second, strict=True)
    return ProgramLimits(*(min((v for v in row if v is not None), default=None) for row in rows))
