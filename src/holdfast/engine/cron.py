"""When a schedule is due. The rules of cron are cronsim's (docs/adr/0013-cron.md); what they mean for us is here.

Invariants
  K1  Moments only grow: the one after a moment is later than it, on the one clock that never jumps (UTC).
  K2  With an hour that is stated, a schedule goes by the clock on the wall: a time that is skipped in spring is due
      when the clock has jumped, and one that comes twice in autumn is due the first time only.
      With `*` for the hour it goes by time that passes: every hour is an hour, the doubled one too.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from holdfast.errors import InvalidInput, Unsupported

# How far back to look for the newest moment, so that a year of minutes is not counted one by one.
_LOOKS = tuple(timedelta(hours=hours) for hours in (1, 25, 24 * 32, 24 * 367, 24 * 367 * 10))
# Two hours of minutes, the most that one change of the clock can give back or take.
_MOST_REPEATED = 121


class Passed(NamedTuple):
    """The moments of a schedule in a span of time: the first and the last of them."""

    first: datetime
    last: datetime


class Schedule:
    """One cron expression in one time zone; InvalidInput when it never comes."""

    def __init__(self, expression: str, zone: str = "UTC", name: str = "") -> None:
        self._zone = ZoneInfo(zone)
        self._expression = _by_the_wall(expression)
        try:
            comes = self.after(datetime(2024, 1, 1, tzinfo=UTC)) is not None
        except ValueError:
            comes = False
        if not comes:
            raise InvalidInput(f"[triggers.{name}] cron never comes, or cannot be understood: {expression!r}")

    def after(self, moment: datetime) -> datetime | None:
        """The first due moment after this one; None when there is none in fifty years."""
        simulated = _simulator(self._expression, moment.astimezone(self._zone))
        for _ in range(_MOST_REPEATED):
            try:
                found = next(simulated).astimezone(UTC)
            except StopIteration:
                return None
            # In the doubled hour cronsim starts from the wall's time, and so may name a moment that is over (K1).
            if found > moment:
                return found
        return None

    def passed(self, after: datetime, now: datetime) -> Passed | None:
        """What became due after the one moment and up to the other; None when nothing did."""
        first = self.after(after)
        if first is None or first > now:
            return None
        return Passed(first, self._last(first, now))

    def _last(self, first: datetime, now: datetime) -> datetime:
        found: datetime | None = None
        for look in _LOOKS:
            begin = now - look
            found = first if begin <= first else self.after(begin)
            if found is not None and found <= now:
                break
        newest = first if found is None or found > now else found
        while (coming := self.after(newest)) is not None and coming <= now:
            newest = coming
        return newest


def _by_the_wall(expression: str) -> str:
    """`*/30 2 * * *` states its hour, so it goes by the wall (K2); cronsim takes a leading star for the other kind."""
    minute, hour, *rest = expression.split()
    if hour != "*":
        minute = f"0-59{minute[1:]}" if minute.startswith("*") else minute
        hour = f"0-23{hour[1:]}" if hour.startswith("*") else hour
    return " ".join((minute, hour, *rest))


def _simulator(expression: str, moment: datetime) -> Iterator[datetime]:
    """ValueError where cronsim refuses. It is imported here: whoever has no schedule need not have the library."""
    try:
        from cronsim import CronSim, CronSimError
    except ImportError as error:
        raise Unsupported(
            "schedules need the package cronsim, which is not installed", hint="pip install 'holdfast[run]'"
        ) from error
    try:
        return CronSim(expression, moment)
    except CronSimError as error:
        raise ValueError(str(error)) from error
