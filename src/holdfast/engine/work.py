"""Work on one order: an agent in a shadow, measured; good work becomes a proposal, everything else an account of it.

    Order ─▶ ground (the workspace, or a mirror of it) ─▶ simulate with the agent ─▶ checks ─▶ proposal in a stock

Invariants
  V1  An order can be worked on twice, here or elsewhere: nothing outside of shadow, stock and ledger is touched.
  V2  Whatever happens is an answer, as long as it is about the work; only what is ours (Interrupted, a lost engine,
      no room on the disk) is raised, so that the engine tries it again later.
  V3  The evidence is what was measured last: bounded, masked, for the agent of the next attempt.
  V4  On another machine, what that machine lacks (a key, a clone, an agent, room, a sandbox, an environment) is no
      answer: Unfit is raised, and the order is given back as it came.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager

from holdfast.agents.protocol import Agent as AgentProgram
from holdfast.agents.protocol import Person, Watcher
from holdfast.agents.readiness import readiness
from holdfast.agents.registry import agent_named
from holdfast.engine.escalation import unpassed
from holdfast.engine.grounds import Place
from holdfast.engine.hiring import hire
from holdfast.engine.measuring import MOST_EVIDENCE
from holdfast.engine.normalising import written_file
from holdfast.engine.orders import Answer, Order, Unworked, Worked, plan_of
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.proposal import name_of, packed, propose
from holdfast.engine.resuming import kept_with
from holdfast.engine.room import is_full
from holdfast.engine.simulator import Hire
from holdfast.errors import (
    AgentFailed,
    DatabaseAway,
    HoldfastError,
    Interrupted,
    InvalidInput,
    LimitReached,
    Locked,
    NotAWorkspace,
    SandboxUnavailable,
    Tampering,
    Unsupported,
)
from holdfast.gates.secrets import masked
from holdfast.model.agent import Delegation, Said, Usage
from holdfast.model.changeset import files_in
from holdfast.model.configuration import Budget, Settings
from holdfast.model.plan import Agent, Plan
from holdfast.planning.recovery import diagnosis_of, seen_in
from holdfast.planning.task_words import fenced
from holdfast.settlement.delegated import delegation_body, transcripts_of
from holdfast.store.dossier import Dossiers

# From an order to where it is worked on, for the thread that asks.
Ground = Callable[[Order], AbstractContextManager[Place]]
_MOST_SAID = 1 << 20
PLAN_FILE = "holdfast-plan.md"
_MOST_PLAN = 16_000
_ASK_FOR_PLAN = (
    f"Do not do the task below yet. Read what it is about, and write a plan for it into the file {PLAN_FILE}: the "
    "files to change, the steps in order, and how each step can be checked. Change no other file."
)


_TASK = "The task, which you plan and do not do:"

# What these say, they say of the machine that they are raised on.
_OF_THE_MACHINE = (SandboxUnavailable, Tampering, Unsupported, NotAWorkspace)


class Unfit(Exception):
    """V4. No HoldfastError, so that nobody takes it for an end of the work."""

    def __init__(self, error: HoldfastError | OSError) -> None:
        told = error.message if isinstance(error, HoldfastError) else error.strerror or str(error)
        super().__init__(masked(told))
        self.error = error
        self.message, self.hint = masked(told), error.hint if isinstance(error, HoldfastError) else ""


class Workbench:
    """Works on orders, several at once in as many threads. `elsewhere`: on a machine without the workspace (V4)."""

    def __init__(
        self,
        ground: Ground,
        agents: Mapping[str, AgentProgram],
        watch: Callable[[Order], Watcher],
        person: Person | None = None,
        left: Callable[[], Budget] = Budget,
        *,
        elsewhere: bool = False,
    ) -> None:
        self._ground, self._agents, self._watch, self._person, self._left = ground, agents, watch, person, left
        self._elsewhere = elsewhere

    def work(self, order: Order, stop: Callable[[], bool] = bool) -> Answer:
        """`stop` says that nobody waits for it any more: Interrupted, and the agent is gone."""
        began = time.monotonic_ns()
        heard: list[Delegation] = []
        try:
            with self._ground(order) as place:
                answer = self._tried(place, order, heard, stop)
        except (Interrupted, Locked, DatabaseAway):
            raise
        except HoldfastError as error:
            if self._elsewhere:
                raise Unfit(error) from error  # it has nothing to work over
            if is_full(error):
                raise
            answer = _failed(order, heard, error)
        except OSError as error:
            if self._elsewhere:
                raise Unfit(error) from error
            raise
        took = (time.monotonic_ns() - began) // 1_000_000
        return answer._replace(usage=_usage(heard), duration_ms=took)

    def _tried(self, place: Place, order: Order, heard: list[Delegation], stop: Callable[[], bool]) -> Answer:
        answer: Answer
        try:
            answer = self._worked(place, order, heard, stop)
        except (Interrupted, Locked, DatabaseAway):
            raise
        except HoldfastError as error:
            if self._elsewhere and (isinstance(error, _OF_THE_MACHINE) or is_full(error)):
                raise Unfit(error) from error
            if is_full(error):
                raise
            answer = _failed(order, heard, error)
        return self._told(place, order, heard, answer)

    def _told(self, place: Place, order: Order, heard: list[Delegation], answer: Answer) -> Answer:
        """The ledger of a mirror is thrown away with it: what was said goes into the real one, or along (Q2)."""
        if place.stock is None:
            return answer
        bodies = [delegation_body(delegation) for delegation in heard]
        place.carry(sorted({digest for body in bodies for digest in transcripts_of(body)}))
        if place.home is not None:
            for delegation in heard:
                place.home.note_delegation(plan_of(order), delegation)
        elif isinstance(answer, Unworked):
            said = json.dumps(bodies)
            return answer._replace(said=said if len(said) <= _MOST_SAID else "")
        return answer

    def _worked(self, place: Place, order: Order, heard: list[Delegation], stop: Callable[[], bool]) -> Answer:
        pipeline, plan = place.pipeline, plan_of(order)
        if self._elsewhere and order.agent not in self._agents:
            require_agent(order.agent, pipeline.governance.settings())
        if self._elsewhere and order.tested:
            require_environment(place, order)
        watcher, left = self._watch(order), self._left()

        def hired(context: str = "") -> Hire:
            most = _minus(left, _usage(heard))
            told = heard.append
            return hire(
                pipeline,
                self._agents,
                watcher,
                self._person,
                told,
                most,
                stop,
                place.home,
                order.model,
                context,
                patient=True,
                repeats=order.repeats,
            )

        if order.agent == "manual":
            simulated = pipeline.simulator.simulate(plan, "copy", hired())
        elif order.plan_first:
            planned = _planned(pipeline, order, hired())
            watcher(Said(planned))
            simulated = pipeline.simulator.simulate(plan, "auto", hired(planned))
        else:
            simulated = pipeline.simulator.simulate(plan, "auto", hired())
        verified = pipeline.simulator.verify(simulated)
        kept = kept_with(pipeline.site, simulated, verified)
        said = [delegation_body(delegation) for delegation in heard]
        proposal = propose(pipeline.site, kept, verified.receipts, said, owner=place.owner)
        Dossiers(pipeline.site.state, "simulations").remove(kept.report.id)  # the proposal holds all of it
        name = name_of(packed(proposal))
        place.carry((*proposal.contents, *proposal.papers, name))
        tries = sum(len(delegation.attempts) for delegation in heard[-1:])  # a plan that came first is no attempt
        return Worked(name, order.agent, files_in(kept.change_set.changes), tries)


def _planned(pipeline: Pipeline, order: Order, hired: Hire) -> str:
    """The agent's own plan for the order, told to it as data when it works; the shadow it was written in is gone."""
    task = f"{_ASK_FOR_PLAN}\n\n{fenced(_TASK, order.words)}"
    step = Agent(order.agent, task, order.files, (PLAN_FILE,), 1, order.within_ms)
    asked = Plan(f"Plan {order.intent}", (step,), unverified_because="nothing of it lands")
    simulated = pipeline.simulator.simulate(asked, "auto", hired)
    found = written_file(pipeline.site, simulated, PLAN_FILE, _MOST_PLAN)[:_MOST_PLAN].decode("utf-8", "replace")
    Dossiers(pipeline.site.state, "simulations").remove(simulated.report.id)
    return f"Your plan for this task, which you wrote before:\n{masked(found).strip()}"


def require_agent(name: str, settings: Settings) -> None:
    """Unsupported where this machine cannot give it work."""
    try:
        health = readiness(agent_named(name, settings), settings).health
    except InvalidInput as error:
        raise Unsupported(error.message, hint=error.hint) from error
    if not health.usable:
        raise Unsupported(f"{name} cannot be given work there: {health.why_not}", hint=health.hint)


def require_environment(place: Place, order: Order) -> None:
    """Unsupported where the tests of what is asked for cannot run here, and no command is named that builds it."""
    pipeline = place.pipeline
    tried = pipeline.simulator.checking.trial()
    missing = (one.detail for one in tried if one.level == "tests" and not one.ready and not one.uncollectable)
    lacks = place.outdated or next(missing, "")
    if lacks and not pipeline.governance.settings().environment.build:
        raise Unsupported(
            f"its environment cannot run the tests: {lacks}",
            hint="Set up the clone there, as for working in it, or name the command that does in the config.toml of "
            'that machine: [environment] build = ["…"]',
        )
    pipeline.site.unbuilt = lacks


def _failed(order: Order, heard: Sequence[Delegation], error: HoldfastError) -> Unworked:
    seen = seen_in(error)._replace(agent=order.agent)
    attempts = next((each.attempts for each in reversed(heard) if each.attempts), ())
    if attempts:
        last = attempts[-1]
        evidence = last.feedback or seen.evidence
        seen = seen._replace(
            limit=last.result.limit, changed=last.changed, missing=last.missing, evidence=masked(evidence)
        )
    found = diagnosis_of(seen)
    told = masked(found.evidence)[:MOST_EVIDENCE]
    pause_ms = error.pause_ms if isinstance(error, AgentFailed) else 0
    short_of = error.of_run if isinstance(error, LimitReached) else ""
    because = masked(error.message if short_of else found.because)
    answer = Unworked(found.category, because, told, order.agent, rounds=len(attempts), unpassed=unpassed(attempts))
    outage = masked(error.outage) if isinstance(error, AgentFailed) else ""
    return answer._replace(final=found.final, pause_ms=pause_ms, short_of=short_of, outage=outage)


def _minus(budget: Budget, used: Usage) -> Budget:
    """What is left of it; at least one of each, since nothing at all would be no bound."""

    def rest(most: int | None, spent: int) -> int | None:
        return None if most is None else max(1, most - spent)

    tokens = used.input_tokens + used.output_tokens
    money = rest(budget.micro_usd, used.micro_usd or 0)
    return budget._replace(micro_usd=money, tokens=rest(budget.tokens, tokens), turns=rest(budget.turns, used.requests))


def _usage(heard: list[Delegation]) -> Usage:
    total = Usage()
    for delegation in heard:
        total = total.plus(delegation.usage)
    return total
