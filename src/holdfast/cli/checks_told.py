"""Checks, before they run (so that consent covers them) and after."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.cli.screen import Screen, shown
from holdfast.model.path import printable

if TYPE_CHECKING:
    from holdfast.model.execution import Receipt
    from holdfast.model.plan import HealthCheck, Plan

_WIDEST = 44


def checks_ahead(plan: Plan) -> Iterator[str]:
    """What will be run, and where: these programs have the rights of the person who says yes."""
    rows = [(_named(check), "first, in a scratch copy") for check in plan.verify]
    rows += [(_named(check), "asked afterwards") for check in plan.health if check.kind == "http"]
    rows += [(_named(check), "here, afterwards") for check in plan.health if check.kind == "run"]
    width = min(_WIDEST, max((len(name) for name, _ in rows), default=0))
    yield from (f"  ! {name.ljust(width)}  {what}" for name, what in rows)
    if not rows:
        yield "  ! no checks: the files themselves are all that is verified"


def _named(check: HealthCheck) -> str:
    return f"GET {printable(check.url)}" if check.kind == "http" else printable(shlex.join(check.argv))


def tell_receipts(screen: Screen, heading: str, receipts: Sequence[Receipt]) -> None:
    for receipt in receipts:
        screen.event("receipt", **receipt._asdict())
        if receipt.passed:
            screen.say(f"{heading}: {shown(receipt.detail)}")
