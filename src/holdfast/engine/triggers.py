"""Triggers: what is due, from the clock and from what sources tell. It reads no clock, no file and no socket.

    sources ──happened, saw──▶ Triggers ──due──▶ Firing ──begin──▶ (start a run) ──started | failed──▶ memory
    clock ────due(now)───────▶     └─────────── memory: noted before anybody hears of it

Invariants
  E1  A firing is durable as DUE before `due` returns it, and durable as BEGUN before its run is started.
  E2  Killed while DUE: it is due again, for nothing was started. Killed while BEGUN: it is never started again, and it
      is told (`doubtful`), for whoever started it may have come far. So never twice, and never lost without a word.
  E3  Of all the moments of a schedule that passed unattended, one firing is made, for the last of them.
  E4  A trigger that is seen for the first time, or with another rule, begins now: nothing from before fires.
  E5  Files fire when they differ from what they were when they fired last, and have been left alone for `settle`.
  E6  A clock that was set back fires nothing twice. A schedule whose last moment lies ahead is told (`ahead`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from holdfast.engine.cron import Schedule
from holdfast.errors import InvalidInput
from holdfast.model.path import printable
from holdfast.model.trigger import Firing, FiringState, Happened, Mark, firing_id
from holdfast.model.trigger_settings import TriggerSettings
from holdfast.store.firings import Firings, Noted

TAKEN = "taken"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCKS_DIFFER = timedelta(minutes=5)


class _Look(NamedTuple):
    """What the files of a trigger look like, and since when they do."""

    like: str
    since: datetime


class Triggers:
    """`clock` says when what sources tell has happened. `happened` may be called from any thread."""

    def __init__(self, settings: Iterable[TriggerSettings], memory: Firings, clock: Callable[[], datetime]) -> None:
        self._settings = {trigger.name: trigger for trigger in settings}
        self._memory = memory
        self._clock = clock
        self._looks: dict[str, _Look] = {}
        self._schedules = {
            trigger.name: Schedule(trigger.cron, trigger.timezone, trigger.name)
            for trigger in self._settings.values()
            if trigger.kind == "cron"
        }
        for name in self._schedules:
            self._marked(self._settings[name], lambda rule: Mark(rule.name, _rule(rule), moment_ns=_ns(clock())))

    @property
    def settings(self) -> tuple[TriggerSettings, ...]:
        return tuple(self._settings.values())

    # ── what sources tell ──

    def happened(self, event: Happened) -> Noted:
        """A delivery, or a file in a queue: durable when this returns. The same one again fires nothing."""
        trigger = self._settings.get(event.trigger)
        if trigger is None or trigger.kind != event.kind:
            raise InvalidInput(f"there is no trigger {printable(event.trigger)} that waits for a {event.kind}")
        now = _ns(self._clock())
        id = firing_id(event.trigger, event.kind, event.key)
        return self._memory.note(Firing(id, event.trigger, event.kind, now, now, event.what, event.body))

    def saw(self, name: str, like: str, now: datetime, what: str = "") -> bool:
        """What the files of a trigger look like now; True when that made it due (E5)."""
        trigger = self._settings[name]
        mark = self._marked(trigger, lambda rule: Mark(rule.name, _rule(rule), like=like))
        look = self._looks.get(name)
        if look is None or look.like != like or look.since > now:
            look = self._looks[name] = _Look(like, now)
        if like == mark.like or now - look.since < timedelta(milliseconds=trigger.settle_ms):
            return False
        id = firing_id(name, "changed", f"{mark.like} {like} {_ns(now)}")
        firing = Firing(id, name, "changed", _ns(now), _ns(now), what)
        return self._memory.note(firing, mark._replace(like=like)) == "noted"

    # ── what is due ──

    def due(self, now: datetime) -> tuple[Firing, ...]:
        """Everything that waits to be started, the oldest first; noted before it is told (E1)."""
        for name, schedule in self._schedules.items():
            mark = self._memory.mark(name)
            passed = None if mark is None else schedule.passed(_moment(mark.moment_ns), now)
            if mark is not None and passed is not None:
                last = _ns(passed.last)
                firing = Firing(firing_id(name, "cron", str(last)), name, "cron", last, _ns(passed.first))
                self._memory.note(firing, mark._replace(moment_ns=last))
        return tuple(self._whole(firing) for firing in self._memory.in_state("DUE"))

    def next(self, now: datetime) -> datetime | None:
        """When the clock makes something due next; None when only what happens outside does."""
        coming = [schedule.after(max(now, self._passed(name))) for name, schedule in self._schedules.items()]
        return min((moment for moment in coming if moment is not None), default=None)

    def doubtful(self) -> tuple[Firing, ...]:
        """Begun, and nobody knows whether a run was started: whoever began them was killed (E2)."""
        return tuple(self._whole(firing) for firing in self._memory.in_state("BEGUN"))

    def ahead(self, now: datetime) -> tuple[str, ...]:
        """Schedules that wait for a moment that was already counted: the clock was ahead, and was set back (E6)."""
        return tuple(name for name in self._schedules if self._passed(name) > now + _CLOCKS_DIFFER)

    def is_known(self, firing: Firing) -> bool:
        """Does the configuration still have the trigger that made it?"""
        trigger = self._settings.get(firing.trigger)
        return trigger is not None and trigger.kind == firing.kind

    # ── what became of it ──

    def begin(self, firing: Firing) -> bool:
        """From here on it is never started again; False when somebody else began it."""
        return self._memory.move(firing.id, "DUE", "BEGUN")

    def started(self, firing: Firing) -> None:
        self._memory.move(firing.id, "BEGUN", "STARTED")

    def failed(self, firing: Firing, because: str) -> None:
        """Whoever was asked to start it refused, and says that nothing was started."""
        self._memory.move(firing.id, "BEGUN", "FAILED", because)

    def put_off(self, firing: Firing) -> None:
        """Whoever was asked to start it says that nothing was started, and that it will be possible later."""
        self._memory.move(firing.id, "BEGUN", "DUE")

    def missed(self, firing: Firing, because: str, *, was: FiringState = "BEGUN") -> None:
        """It will not be started, and somebody was told."""
        self._memory.move(firing.id, was, "MISSED", because)

    def _whole(self, firing: Firing) -> Firing:
        """With what the configuration says now."""
        trigger = self._settings.get(firing.trigger)
        if trigger is None:
            return firing
        roadmap = taken_path(trigger, firing.id) if trigger.kind == "queue" else trigger.roadmap
        return firing._replace(roadmap=roadmap, agent=trigger.agent)

    def _marked(self, trigger: TriggerSettings, first: Callable[[TriggerSettings], Mark]) -> Mark:
        """The trigger's mark; a fresh one where there is none for this rule (E4)."""
        mark = self._memory.mark(trigger.name)
        if mark is None or mark.rule != _rule(trigger):
            mark = first(trigger)
            self._memory.set_mark(mark)
        return mark

    def _passed(self, name: str) -> datetime:
        mark = self._memory.mark(name)
        return _EPOCH if mark is None else _moment(mark.moment_ns)


def taken_path(trigger: TriggerSettings, id: str) -> str:
    """Where a queue file stands once it was taken: under our name for it, whatever it was called."""
    return f"{trigger.queue}/{TAKEN}/{id}.json"


def _rule(trigger: TriggerSettings) -> str:
    """What is watched. Another roadmap or agent is no other rule."""
    said = "\0".join((trigger.kind, trigger.cron, trigger.timezone, *trigger.changed))
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()


def _ns(moment: datetime) -> int:
    """Exact: a float of seconds would make two ids of one moment."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000


def _moment(ns: int) -> datetime:
    return _EPOCH + timedelta(microseconds=ns // 1000)
