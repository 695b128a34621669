"""The breaker of each agent: who fails again and again is left alone for a while, then tried once.

    CLOSED ──failures in a row reach the threshold──▶ OPEN ──asked after the pause──▶ HALF_OPEN (one probe)
       ▲                                               ▲                                   │
       │                                               └──── probe failed or lost ─────────┤
       └────────────────────── probe succeeded ────────────────────────────────────────────┘

    breakers.admit(name)                    Granted(ticket): begin; Waits(why, until): use somebody else
    breakers.report(ticket, outcome)        always, however it ended; or
    breakers.give_back(ticket)              it never began, or was interrupted: no evidence either way
    breakers.vouch(name)                    a person says that the trouble is gone: the pause is over, one may try

Invariants
  B1  The state moves only by TRANSITIONS; a pair that is not there cannot happen, and is asserted.
  B2  A half-open breaker lets one attempt through, over all processes of this host (see `Adapters.change`).
  B3  A probe belongs to a process. When that is gone, the probe is lost, which counts as failed.
      Nothing waits for ever, and no probe is judged by its age.
  B4  The pause doubles with each opening up to a bound. A clock that was set back costs at most one more pause.
  B5  Only the adapter's own failures count: an attempt that finished is a success here, however bad its work was.
      Bad work is the router's business (see `past`).
  B6  An attempt let through earlier that ends while the breaker is not closed moves nothing.

Time is given as nanoseconds of the wall clock, since the state outlives processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from holdfast.engine.escalation import AdapterCrashed, BreakerOpened, Escalation, TimedOut, escalation_fields
from holdfast.engine.past import Outcome, with_attempt
from holdfast.model.agent import Ending
from holdfast.model.canonical import Json
from holdfast.model.words import in_a_row
from holdfast.sandbox.daemon import Identity, identity_of, is_alive
from holdfast.store.adapters import Adapter, Adapters, BreakerState
from holdfast.store.resilience import ResilienceLog

_MS = 1_000_000
# `last_failure` is the one that reaches the threshold, or one that makes further attempts pointless.
Event = Literal[
    "success", "failure", "last_failure", "nothing",
    "cooled", "vouched", "probe_success", "probe_failure", "probe_lost", "probe_nothing",
]  # fmt: skip
TRANSITIONS: dict[tuple[BreakerState, Event], BreakerState] = {
    ("CLOSED", "success"): "CLOSED",
    ("CLOSED", "failure"): "CLOSED",
    ("CLOSED", "last_failure"): "OPEN",
    ("CLOSED", "nothing"): "CLOSED",
    ("OPEN", "cooled"): "HALF_OPEN",
    ("OPEN", "vouched"): "OPEN",
    ("HALF_OPEN", "probe_success"): "CLOSED",
    ("HALF_OPEN", "probe_failure"): "OPEN",
    ("HALF_OPEN", "probe_lost"): "OPEN",
    ("HALF_OPEN", "probe_nothing"): "OPEN",
}
# What an ending says about the adapter. A limit: see `verdict_of`.
_VERDICTS: dict[Ending, Literal["success", "failure", "last_failure", "nothing"]] = {
    "finished": "success",
    "failed": "failure",
    "unauthorized": "last_failure",  # the next attempt has the same key
    "model_error": "failure",
    "limit": "nothing",  # a large task is no illness
    "killed": "failure",
}
TIME = "time"


class Tuning(NamedTuple):
    threshold: int = 3
    pause_ms: int = 30_000
    longest_pause_ms: int = 15 * 60_000


TUNING = Tuning()


class Ticket(NamedTuple):
    """Leave to make one attempt; `probe` is empty unless it is the one that a half-open breaker lets through."""

    name: str
    probe: str = ""


class Granted(NamedTuple):
    ticket: Ticket
    kind: Literal["granted"] = "granted"


class Waits(NamedTuple):
    """`until_ns` is when to ask again; 0 when that depends on an attempt that is under way."""

    why: str
    until_ns: int
    kind: Literal["waits"] = "waits"


Admission: TypeAlias = Granted | Waits


class Moved(NamedTuple):
    """One move of a breaker, for the log."""

    name: str
    before: BreakerState
    event: Event
    after: BreakerState
    failures: int
    openings: int


class Breakers:
    """All breakers of a workspace. `now` is the wall clock in nanoseconds."""

    def __init__(self, adapters: Adapters, log: ResilienceLog, now: Callable[[], int], tuning: Tuning = TUNING) -> None:
        self._adapters = adapters
        self._log = log
        self._now = now
        self._tuning = tuning

    def admit(self, name: str) -> Admission:
        now = self._now()
        admission, moves = self._adapters.change(name, lambda row: admitted(row, now, self._tuning))
        self._tell(moves, now)
        return admission

    def report(self, ticket: Ticket, outcome: Outcome) -> tuple[Escalation, ...]:
        """Count the attempt, move the breaker; what a person should hear of is returned, and in the log."""
        now = self._now()

        def change(row: Adapter) -> tuple[Adapter, list[Moved]]:
            after, moves = judged(row, ticket, verdict_of(outcome), now, self._tuning)
            return with_attempt(after, outcome, now), moves

        moves = self._adapters.change(ticket.name, change)
        self._tell(moves, now)
        found = escalations_of(ticket.name, outcome, moves)
        for escalation in found:
            self._log.append(now, escalation.kind, escalation_fields(escalation))
        return found

    def give_back(self, ticket: Ticket) -> None:
        """No attempt was made, or it was interrupted by us: nothing is counted."""
        now = self._now()
        moves = self._adapters.change(ticket.name, lambda row: judged(row, ticket, "nothing", now, self._tuning))
        self._tell(moves, now)

    def vouch(self, name: str) -> bool:
        """End the pause of an open breaker, whose next attempt is then its probe; False where there is none to end."""
        now = self._now()
        moves = self._adapters.change(name, lambda row: vouched(row, now, self._tuning))
        self._tell(moves, now)
        return bool(moves)

    def escalate(self, escalation: Escalation) -> None:
        """Into the log, like those that `report` finds."""
        self._log.append(self._now(), escalation.kind, escalation_fields(escalation))

    def _tell(self, moves: list[Moved], now: int) -> None:
        for move in moves:
            fields: dict[str, Json] = {
                "agent": move.name, "from": move.before, "event": move.event, "to": move.after,
                "failures": move.failures, "openings": move.openings,
            }  # fmt: skip
            self._log.append(now, "breaker", fields)


def admitted(row: Adapter, now: int, tuning: Tuning) -> tuple[Adapter, tuple[Admission, list[Moved]]]:
    """May an attempt begin? The row afterwards, the answer, and the moves made on the way."""
    if row.state == "CLOSED":
        return row, (Granted(Ticket(row.name)), [])
    if row.state == "HALF_OPEN":
        if _is_under_way(row.probe):
            return row, (Waits(f"{row.name} is being tried once; nobody else may until that has ended", 0), [])
        row, moved = _moved(row, "probe_lost", now)
        return row, (_pausing(row, tuning), [moved])
    if now < row.opened_ns:
        row = row._replace(opened_ns=now, unwell_ns=min(row.unwell_ns, now))  # B4
    if now < paused_until_ns(row, tuning):
        return row, (_pausing(row, tuning), [])
    row, moved = _moved(row, "cooled", now)
    row = row._replace(probe=_our_probe())
    return row, (Granted(Ticket(row.name, row.probe)), [moved])


def judged(row: Adapter, ticket: Ticket, verdict: Event, now: int, tuning: Tuning) -> tuple[Adapter, list[Moved]]:
    """The row after an attempt with this ticket ended so."""
    if row.state == "HALF_OPEN" and ticket.probe == row.probe:
        probed: dict[Event, Event] = {"success": "probe_success", "nothing": "probe_nothing"}
        row, moved = _moved(row, probed.get(verdict, "probe_failure"), now)
        return row, [moved]
    if row.state != "CLOSED":
        return row, []  # B6
    if verdict == "failure" and row.failures + 1 >= tuning.threshold:
        verdict = "last_failure"
    row, moved = _moved(row, verdict, now)
    return row, [moved] if moved.before != moved.after else []


def vouched(row: Adapter, now: int, tuning: Tuning) -> tuple[Adapter, list[Moved]]:
    """The row with its pause over; unchanged where none is running."""
    if row.state != "OPEN" or is_ready(row, now, tuning):
        return row, []
    row, moved = _moved(row, "vouched", now)
    return row._replace(opened_ns=max(0, now - pause_ns(row.openings, tuning))), [moved]


def _moved(row: Adapter, event: Event, now: int) -> tuple[Adapter, Moved]:
    """The one place where a state is assigned (B1)."""
    assert (row.state, event) in TRANSITIONS, f"{row.state} cannot meet {event}"
    after = TRANSITIONS[row.state, event]
    before = row.state
    match event:
        case "success" | "probe_success":
            row = row._replace(failures=0, openings=0, opened_ns=0, unwell_ns=0)
        case "failure":
            row = row._replace(failures=row.failures + 1)
        case "last_failure" | "probe_failure" | "probe_lost":
            row = row._replace(
                failures=row.failures + 1, openings=row.openings + 1, opened_ns=now, unwell_ns=row.unwell_ns or now
            )
        case "nothing" | "cooled" | "vouched" | "probe_nothing":
            pass  # nothing was learnt: the pause that was over stays over
    row = row._replace(state=after, probe="")
    return row, Moved(row.name, before, event, after, row.failures, row.openings)


def verdict_of(outcome: Outcome) -> Event:
    """What the ending says about the adapter; an attempt that ran out of time may be one that hung."""
    if outcome.ending == "limit" and outcome.limit == TIME:
        return "failure"
    return _VERDICTS[outcome.ending]


def escalations_of(name: str, outcome: Outcome, moves: list[Moved]) -> tuple[Escalation, ...]:
    found: list[Escalation] = [
        BreakerOpened(name, move.failures, move.openings, outcome.detail)
        for move in moves
        if move.event in ("last_failure", "probe_failure")
    ]
    if outcome.ending == "limit" and outcome.limit == TIME:
        found.append(TimedOut(name, outcome.task, outcome.duration_ms))
    if outcome.crashed:
        found.append(AdapterCrashed(name, outcome.task, outcome.detail))
    return tuple(found)


def pause_ns(openings: int, tuning: Tuning) -> int:
    """How long a breaker stays open before one attempt is let through."""
    doubled = tuning.pause_ms << min(max(openings - 1, 0), 30)
    return min(doubled, tuning.longest_pause_ms) * _MS


def paused_until_ns(row: Adapter, tuning: Tuning = TUNING) -> int:
    """When an open breaker lets one attempt through; 0 for one that is not open."""
    return row.opened_ns + pause_ns(row.openings, tuning) if row.state == "OPEN" else 0


def is_ready(row: Adapter, now: int, tuning: Tuning = TUNING) -> bool:
    """Is it worth asking `admit`? A probe that was lost is noticed only by somebody who asks."""
    if row.state == "HALF_OPEN":
        return not _is_under_way(row.probe)
    return row.state == "CLOSED" or now < row.opened_ns or now >= paused_until_ns(row, tuning)


def _pausing(row: Adapter, tuning: Tuning) -> Waits:
    return Waits(f"{row.name} failed {in_a_row(row.failures)}, so it is left alone", paused_until_ns(row, tuning))


def _our_probe() -> str:
    """A name for this probe that tells which process makes it (B3)."""
    us = identity_of(os.getpid())
    assert us is not None, "/proc does not show this process"
    return json.dumps([os.urandom(8).hex(), *us])


def _is_under_way(probe: str) -> bool:
    """Is the process that makes this probe alive? What cannot be read names nobody."""
    try:
        found: object = json.loads(probe)
    except ValueError:
        return False
    match found:
        case [str(), int(pid), int(started), str(boot)]:
            return is_alive(Identity(pid, started, boot))
    return False
