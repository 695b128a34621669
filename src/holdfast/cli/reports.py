"""The lines of `doctor`: a subject, what was found, a verdict, and more lines below it where there is more to say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from holdfast.cli.screen import Screen

_COLUMN = 15


class Report(NamedTuple):
    """`ok` is the verdict (None: neither good nor bad); where a `needed` one is not, Holdfast is not usable here."""

    name: str
    detail: str
    ok: bool | None
    needed: bool = False
    more: tuple[str, ...] = ()


def tell(screen: Screen, reports: Sequence[Report]) -> None:
    for report in reports:
        mark = "" if report.ok is None else "ok" if report.ok else "NO" if report.needed else "no"
        verdict = "  " + screen.style(mark, "green" if report.ok else "red") if mark else ""
        screen.say(f"{report.name:<{_COLUMN}}{report.detail}{verdict}")
        for line in report.more:
            screen.say(" " * _COLUMN + line)
