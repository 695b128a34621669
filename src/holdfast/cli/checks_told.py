"""Checks, before they run (so that consent covers them) and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from holdfast.cli.screen import Screen, shown
from holdfast.model.check import subject

if TYPE_CHECKING:
    from holdfast.model.execution import Receipt
    from holdfast.model.plan import Plan

_WIDEST = 44


def checks_ahead(plan: Plan) -> Iterator[str]:
    """What will be run, and where: health commands have the rights of the person who says yes."""
    rows = [(subject(check), "first, in a shadow") for check in plan.verify]
    rows += [(f"“{shown(text)}”", "first, in a shadow") for text in plan.words]
    rows += [(subject(check), "asked afterwards") for check in plan.health if check.kind != "run"]
    rows += [(subject(check), "here, afterwards") for check in plan.health if check.kind == "run"]
    width = min(_WIDEST, max((len(name) for name, _ in rows), default=0))
    yield from (f"  ! {name.ljust(width)}  {what}" for name, what in rows)
    if not rows:
        yield "  ! no checks: the files themselves are all that is verified"


def tell_receipts(screen: Screen, heading: str, receipts: Sequence[Receipt]) -> None:
    for receipt in receipts:
        screen.event("receipt", **receipt._asdict())
        if receipt.passed:
            screen.say(f"{heading}: {shown(receipt.detail)}")
