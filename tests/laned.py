"""Work that is ready to land, for tests of the lane: a repository with a roadmap, and proposals without an agent.

ground = site(tmp_path / "workspace")
order = proposed(ground, put("a.py", b"A = 1\n"))
lane_of(ground).land(order)
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from guarded import ME, Ground, fill, guard
from holdfast.engine.landmarks import checkpoint_of
from holdfast.engine.lane import Checkpoint, Lane, from_own_stock
from holdfast.engine.orders import LandOrder, Order, plan_of
from holdfast.engine.proposal import name_of, packed, propose
from holdfast.intake.roadmap import parse
from holdfast.model.plan import Plan, Step
from holdfast.store.database import Row

ROADMAP = b"# R\n\n- [ ] One\n- [ ] Two\n"
FILES = {"ROADMAP.md": ROADMAP, "a.py": b"A = 1\n", "b.py": b"B = 1\n"}
TRUE, FALSE = ("/usr/bin/true",), ("/usr/bin/false",)


def git(place: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=place, check=True, capture_output=True, text=True).stdout


def site(path: Path, files: Mapping[str, bytes] = FILES) -> Ground:
    """A repository under guard, everything committed."""
    path.mkdir(parents=True)
    fill(path, files)
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "base")):
        git(path, *words)
    return guard(path)


def task_id(ground: Ground, title: str = "One") -> str:
    found = parse((ground / "ROADMAP.md").read_bytes(), "ROADMAP.md").tasks
    return next(task.id for task in found if task.title == title)


def order_of(ground: Ground, title: str = "One", accept: tuple[tuple[str, ...], ...] = (TRUE,)) -> Order:
    return Order("u-run", task_id(ground, title), 1, 1, "hand", title, f"do {title}", accept=accept)


def proposed(ground: Ground, *steps: Step, order: Order | None = None) -> LandOrder:
    """What an agent would have brought that did exactly these steps for the order, kept in the workspace's stock."""
    asked = order or order_of(ground)
    plan = plan_of(asked)
    made = ground.hf.simulate(Plan(asked.intent, steps))
    report = replace(made.report, plan_id=plan.id, plan_digest=plan.digest, steps=made.report.steps[:1])
    proposal = propose(ground.hf.site, made._replace(plan=plan, report=report))
    return LandOrder(asked, name_of(packed(proposal)), 1, ME, True, tick=(asked.task,), roadmap="ROADMAP.md")


def lane_of(ground: Ground, checkpoint: Checkpoint = checkpoint_of) -> Lane:
    return Lane(lambda: nullcontext(ground.hf.pipeline), checkpoint, from_own_stock)


def landings(ground: Ground) -> list[Row]:
    """Executions that stand, but for ticks; newest first."""
    rows = ground.hf.log(limit=-1)
    return [row for row in rows if row.status == "COMPLETED" and not row.intent.startswith("Tick ")]


def commits(place: Path) -> list[str]:
    return git(place, "log", "--format=%s").splitlines()[:-1]


def raising(error: BaseException) -> Callable[..., NoReturn]:
    def act(*arguments: object) -> NoReturn:
        raise error

    return act
