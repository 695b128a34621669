"""Checks, before they run (so that consent covers them) and after; and what a plan brings along from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.checks.words import Understood, health_of, understood
from holdfast.cli.screen import Screen, shown
from holdfast.cli.words import count
from holdfast.model.check import subject
from holdfast.model.path import printable

if TYPE_CHECKING:
    from holdfast.model.execution import Receipt
    from holdfast.model.plan import Plan

_WIDEST = 44
_MOST_FILES = 10


def checks_ahead(plan: Plan) -> Iterator[str]:
    """What will be run, and where: health commands have the rights of the person who says yes."""
    rows = [(subject(check), "first, in a shadow") for check in plan.verify]
    rows += [(f"“{shown(text)}”", where) for text in plan.words if (where := _when(text))]
    health = health_of(plan)
    rows += [(subject(check), "asked afterwards") for check in health if check.kind != "run"]
    rows += [(subject(check), "here, afterwards") for check in health if check.kind == "run"]
    if plan.agent:
        rows.append(("every check that is found", "first, in a shadow"))
    yield from brought_along(plan)
    width = min(_WIDEST, max((len(name) for name, _ in rows), default=0))
    yield from (f"  ! {name.ljust(width)}  {what}" for name, what in rows)
    if not rows:
        yield "  ! no checks of its own: only what the configuration asks for is run"
        yield '    the project\'s own are run where it says: verify: "Run tests"'


def _when(text: str) -> str:
    """When words about verification are looked after; empty where all they ask for is health, which has its own row."""
    found = understood([text])
    if not found.health and not found.wants_health:
        return "first, in a shadow"
    rest = found._replace(health=(), wants_health=False)
    return "first, in a shadow; its health checks afterwards" if rest != Understood() else ""


def brought_along(plan: Plan) -> Iterator[str]:
    """The files beside the change file whose contents become part of the change."""
    for name in plan.content_files[:_MOST_FILES]:
        yield f"  < {printable(name)}  read from beside the change file"
    if len(plan.content_files) > _MOST_FILES:
        yield f"  < and {len(plan.content_files) - _MOST_FILES:,} more files from beside the change file"


def how_it_went(status: str, receipts: Sequence[Receipt]) -> str:
    """A rehearsal that succeeded is no success where checks failed."""
    failed = sum(not receipt.passed for receipt in receipts)
    return f"{count(failed, 'check')} FAILED" if failed and status == "SUCCESS" else status


def tell_receipts(screen: Screen, heading: str, receipts: Sequence[Receipt]) -> None:
    for receipt in receipts:
        screen.event("receipt", **receipt._asdict())
        if receipt.passed:
            screen.say(f"{heading}: {shown(receipt.detail)}")
