"""A redo is judged: what an undo took away, and another undo brings back, lands once more.

Going back is never refused by policy, since everything that landed can be undone. But an undo of an undo (or a restore
to a moment before one) revives executions, and policy, people and checks may say something else by now. So what it
would do is reported as any change is, and takes the same road: checks, write gate, approvals, the five hard gates.

Invariant I1: the report is about the very change set that the way back carries out, and names it by digest.
"""

from __future__ import annotations

import time

from holdfast.engine.job import Job
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.simulator import Simulated
from holdfast.model.plan import Plan, step_id
from holdfast.model.simulation import Simulation
from holdfast.simulation.report import Performed, step_report
from holdfast.workspace.tree import snapshot


def landing_again(pipeline: Pipeline, job: Job) -> Simulated:
    """What a way back would do, as a simulation. Its files have no steps of their own: the change set tells them."""
    services = tuple(action.service for action in job.services if not action.back)
    plan = Plan(job.intent, services)
    pipeline.simulator.remember(plan)
    changes, base = job.change_set, snapshot(pipeline.site.path, pipeline.site.state.path)
    report = Simulation(
        plan_id=plan.id,
        plan_digest=plan.digest,
        status="SUCCESS",
        change_set=changes.digest,
        base=changes.base,
        base_tree=base.digest,
        predicted_tree=base.digest_after(changes.changes),
        steps=tuple(
            step_report(step, Performed(step_id(index), "unknown", "it cannot be rehearsed"))
            for index, step in enumerate(services)
        ),
        at_ns=time.time_ns(),
    )
    return Simulated(plan, changes, job.seen, job.sources, (), report)
