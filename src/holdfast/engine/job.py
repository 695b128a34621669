"""The job: everything one execution needs, whether a simulation or an undo made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from holdfast.checks.words import health_of
from holdfast.engine.actions import actions_of
from holdfast.engine.simulator import Simulated
from holdfast.execution.services import Action
from holdfast.model.changeset import ChangeSet
from holdfast.model.image import Seen
from holdfast.model.plan import HealthCheck
from holdfast.simulation.rehearsal import StepReport
from holdfast.workspace.staging import Source


class Job(NamedTuple):
    """Everything one execution needs; made by a rehearsal or by an undo."""

    intent: str
    plan_id: str
    plan_digest: str
    change_set: ChangeSet
    seen: Mapping[str, Seen]
    sources: Mapping[str, Source]
    steps: Sequence[StepReport] = ()
    health: tuple[HealthCheck, ...] = ()
    undoes: tuple[str, ...] = ()
    revives: tuple[str, ...] = ()
    times: Mapping[str, int] = MappingProxyType({})  # what directories are dated once the files are in place
    services: tuple[Action, ...] = ()
    on_failure: str = "rollback"
    # The papers it stands on: what an execution's entry names, it has used up.
    simulation: str = ""
    decision: str = ""
    approvals: tuple[str, ...] = ()


def job_of(simulated: Simulated) -> Job:
    plan = simulated.plan
    return Job(
        plan.intent,
        plan.id,
        plan.digest,
        simulated.change_set,
        simulated.seen,
        simulated.sources,
        simulated.steps,
        health_of(plan),
        services=actions_of(plan),
        on_failure=plan.on_failure,
        simulation=simulated.report.id,
    )
