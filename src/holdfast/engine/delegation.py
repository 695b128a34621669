"""Delegation: an agent works in the shadow, and its work is measured until it is good or its attempts are used up.

    WORKING ──agent ends──▶ CAPTURED ──▶ MEASURED ─┬─ good ───────────────────────▶ DONE
       ▲                                           ├─ not good, attempts left ─┐
       └────────── evidence of what is wrong ──────│◀──────────────────────────┘
                                                   └─ otherwise ──▶ FAILED (exit 11), or LIMIT (exit 10)

Invariants
  W1  Good is measured (see `measuring`). What the agent says, and its exit code, never make it good; an agent that did
      not finish never is.
  W2  Whatever the outcome, the ledger holds what the agent claimed beside what was measured.
  W3  An agent is told only what was found (see `first_prompt`) and what was measured, bounded; it is told as data,
      not as instructions.
  W4  What has the shape of a secret is masked before anything is kept or shown: task, words, errors, transcript.
  W5  When somebody changes the workspace where the agent works, there is nothing to try again: Conflict.
  W6  Work that comes to the same change as the time before is asked for otherwise, and the third time not again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from holdfast.agents.bench import SandboxBench
from holdfast.agents.prompt import prompt
from holdfast.agents.protocol import Agent, Person, Watcher
from holdfast.agents.readiness import raised, require_able, require_person
from holdfast.engine.backoff import pause_ms, worth_a_retry
from holdfast.engine.breaker import Breakers, Ticket, Waits
from holdfast.engine.checking import Checking, profile_of
from holdfast.engine.delegation_told import Bounds, failure_of, not_asked, receipt_of, with_amount
from holdfast.engine.escalation import acceptance_escalation, sentence_of
from holdfast.engine.first_prompt import FirstPrompt
from holdfast.engine.measuring import Measured, Measuring
from holdfast.engine.model_access import Access, Mark, Recorded, model_access
from holdfast.engine.outage import Away, Outage
from holdfast.engine.past import outcome_of
from holdfast.engine.room import is_full, require_room, told_as_full
from holdfast.engine.transcript import without_secrets_in
from holdfast.environment.detect import environment_of, this_shell
from holdfast.errors import Conflict, HoldfastError, Interrupted, InvalidInput, Shortage
from holdfast.gates.secrets import masked
from holdfast.model.agent import Attempt, Began, Claim, Delegation, Escalated, Happening, Request, Result, reworded
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.configuration import ProgramLimits, Settings
from holdfast.model.path import printable
from holdfast.model.plan import Agent as AgentStep
from holdfast.model.plan import Plan
from holdfast.planning.recovery import understood_evidence
from holdfast.simulation.workshop import Worked
from holdfast.store.blobs import Blobs
from holdfast.workspace.capture import Captured
from holdfast.workspace.shadow import Shadow
from holdfast.workspace.site import Site

FindAgent = Callable[[str], Agent]
Note = Callable[[Delegation], None]
_MOST_NAMES, _MOST_FILES = 5, 50
_MOST_REPEATS = 1
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
    outage: Outage


class Delegating:
    """Gives the agent steps of one plan to their agents; called by the workshop.

    `of_run`: what the agent may spend of these is what is left of its run's budget, and no limit of its own.
    `outage_ms`: so long a provider that serves nothing is waited for (see `outage`). `repeats`: how often the orders
    before came to the same."""

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
        outage_ms: int = 0,
        repeats: int = 0,
    ) -> None:
        self._outage_ms, self._repeats = outage_ms, repeats
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
        require_able(agent, step.name)
        own = self._settings.agent(step.name) or AgentSettings(step.name)
        require_person(agent, self._person)
        measuring = Measuring(self._site, self._settings, self._checking, self._plan, step)
        measuring.look_before(shadow)
        attempts: list[Attempt] = []
        record = Recorded()
        try:
            with model_access(agent, own, self._settings, masked, self._site.state, record) as access:
                bench = self._bench(shadow, step, own, access)
                outage = self._outage(access, bench)
                task = _Task(agent, step, shadow, bench, access, measuring, outage)
                captured, waits = self._worked(task, own, attempts)
                short_of = access.short_of(attempts[-1].result)
        finally:
            delegation = Delegation(step.name, masked(step.task), tuple(attempts), record.digest)
            if attempts:
                self._note(delegation)
        if not delegation.good:
            self._escalate_bad_work(delegation)
            of_run = short_of if short_of in self._of_run else ""
            raise failure_of(delegation, waits, of_run, self._bounds(step, own), outage.over)
        return Worked(captured, receipt_of(delegation), bench.enforced)

    def _worked(self, task: _Task, own: AgentSettings, attempts: list[Attempt]) -> tuple[Captured, Waits | None]:
        """Attempt after attempt; what stands in the shadow at the end, and the breaker's word if it ended them."""
        step = task.step
        context = "\n".join(filter(None, (*self._settings.hints, self._context)))
        request = Request(step.task, context, step.files, step.expected, model=own.model, turns=own.turns or 0)
        request = request._replace(repeats=self._repeats)
        informed = False
        captured: Captured | None = None
        came_to = ""
        while True:
            leave = self._breakers.admit(step.name)
            if isinstance(leave, Waits):
                if captured is None:
                    raise not_asked(step.name, leave, time.time_ns())
                return captured, leave
            self._require_wanted()
            if not informed:
                first = FirstPrompt(self._site, self._settings, self._checking, self._plan)
                request, informed = first.filled(request, task.shadow, task.measuring.before, step.name), True
            task.bench.begin(_told_first(request))
            task.bench.see(Began(step.name, len(attempts) + 1, attempts[-1].feedback if attempts else ""))
            attempt, captured = self._attempted(len(attempts) + 1, task, request, leave.ticket)
            attempts.append(attempt)
            _require_unmoved(captured)
            if attempt.complete or len(attempts) >= step.attempts or not _worth_another(attempt.result):
                return captured, None
            if task.outage.over:
                return captured, None
            before, came_to = came_to, _came_to(attempt, captured)
            if came_to and came_to == before:
                # A program that breaks down is its breaker's affair.
                if request.repeats >= _MOST_REPEATS and attempt.result.ending == "finished":
                    task.bench.see(Escalated(f"{step.name} came to the same again and again; it is not asked again"))
                    return captured, None
                request = self._otherwise(task, request, attempt)
            else:
                request = request._replace(repeats=0, session=attempt.result.claim.session)
            if attempt.result.ending == "model_error":
                time.sleep(pause_ms(len(attempts), self._plan.digest) / 1000)
            request = request._replace(evidence=attempt.feedback, failing="")

    def _otherwise(self, task: _Task, request: Request, attempt: Attempt) -> Request:
        """W6. The session that led there is left, and the files that are at issue are named."""
        named = (place.path for place in understood_evidence(attempt.evidence, attempt.changed).places)
        files = tuple(dict.fromkeys((*request.files, *attempt.changed, *named)))[:_MOST_FILES]
        what = "the same change" if attempt.changed else "no change"
        task.bench.see(Escalated(f"{task.step.name} came to {what} again; it is asked otherwise, in a new session"))
        return request._replace(repeats=request.repeats + 1, session="", files=files)

    def _attempted(self, number: int, task: _Task, request: Request, ticket: Ticket) -> Measured:
        """One attempt, counted by the breaker. A round that an outage ended is none (O1), and is made again."""
        before = task.access.mark()
        try:
            while True:
                spent = task.access.spent()
                result = self._told(_asked_to_work(task, request), task, before)
                self._require_wanted()
                found = task.measuring.measure(number, result, task.shadow)
                away = _away(found.attempt, task.access)
                if away is None:
                    task.outage.back()
                    break
                answered = task.access.spent().output_tokens > spent.output_tokens
                if not task.outage.waited(away, answered=answered):
                    break
                task.bench.give_time_back()
                request = request._replace(session=result.claim.session or request.session)
                before = before._replace(failures=task.access.mark().failures)
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
        claim = result.claim._replace(words=masked(result.claim.words), error=masked(result.claim.error))
        result = with_amount(task.access.explained(result, before), task.bench.limits)
        return result._replace(
            claim=claim,
            detail=masked(result.detail),
            transcript=self._blobs.put(without_secrets_in(task.bench.transcript())),
        )

    def _require_wanted(self) -> None:
        """What was stopped from outside says nothing about the agent, and is no attempt."""
        if self._stop():
            raise Interrupted("the work was stopped", hint="Nothing was changed.")

    def _outage(self, access: Access, bench: SandboxBench) -> Outage:
        def tell(text: str) -> None:
            bench.see(Escalated(masked(text)))

        return Outage(access.provider, self._outage_ms, self._plan.digest, tell, self._require_wanted)

    # ── the bench ──

    def _bounds(self, step: AgentStep, own: AgentSettings) -> Bounds:
        return Bounds(step.within_ms, self._settings.limits, own.limits)

    def _bench(self, shadow: Shadow, step: AgentStep, own: AgentSettings, access: Access) -> SandboxBench:
        stated = _tighter(self._settings.limits, own.limits)
        within = min(step.within_ms, stated.time_ms) if stated.time_ms else step.within_ms
        # The bench keeps the time itself, over all attempts.
        environment = environment_of(this_shell(), self._site.seen_at, readable=self._settings.environment.readable)
        profile = profile_of(stated._replace(time_ms=within), environment)
        profile = profile._replace(
            network=access.network,
            readable=(*own.readable, *environment.readable),
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
            environment=environment,
        )

    def _watched(self, happening: Happening) -> None:
        self._watcher(reworded(happening, masked))


def _told_first(request: Request) -> str:
    """What an agent is told, for the transcript; a task that cannot be handed over is refused by its adapter."""
    try:
        return prompt(request)
    except InvalidInput:
        return request.task


def _asked_to_work(task: _Task, request: Request) -> Result:
    """Its result; an adapter that raises what is not ours, or returns something else, is an agent that failed."""
    try:
        result: object = task.agent.work(request, task.bench)
    except HoldfastError:
        raise
    except Exception as error:  # see above
        if is_full(error):
            raise
        return _failed(task.step.name, raised(error))
    if isinstance(result, Result) and isinstance(result.claim, Claim):
        return result
    return _failed(task.step.name, f"its work returned {type(result).__name__}, and no result")


def _failed(name: str, why: str) -> Result:
    return Result(name, "python", "failed", Claim(success=False), why)


def _came_to(attempt: Attempt, captured: Captured) -> str:
    """The digest of its change, where the agent itself came to an end."""
    return captured.change_set.digest if attempt.result.ending in ("finished", "failed") else ""


def _away(attempt: Attempt, access: Access) -> Away | None:
    """Why the provider served nothing at last, where that may be what is wrong with this attempt."""
    ended_otherwise = attempt.result.limit not in ("", "time")
    return None if attempt.good or ended_otherwise else access.away()


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
