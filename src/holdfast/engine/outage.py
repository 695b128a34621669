"""An outage: the provider of a model does not answer, refuses or limits, and an agent cannot go on.

    a round ends, not good, and the newest answer of the provider was 408, 429, 5xx, a refusal or none
        ─▶ wait, longer each time, then the same round again ─▶ … ─▶ it answers, or the deadline is over

Invariants
  O1  A round that an outage ended is no attempt: it is not counted, costs the agent none of its time, and says nothing
      about it to its breaker. What it spent is counted with the next.
  O2  It is not waited for without end: the deadline runs from the first silence, and starts again only where something
      was answered in between, a few times at most: an agent can provoke refusals.
  O3  Each pause is told, with the reason and the deadline; whoever stops the work is heard within a moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from typing import NamedTuple

from holdfast.engine.backoff import LONGEST_MS, pause_ms
from holdfast.model.run import RunRecord

FIRST_MS = 2_000
# What a provider asks for is heeded up to this.
_MOST_ASKED_MS = 300_000
_TICK_S = 0.2
_MOST_RENEWALS = 5
_PROVIDER, _CANNOT = "the provider", "cannot be used"


class Away(NamedTuple):
    """Why the newest question had no answer, and how long the provider wants to be left alone."""

    why: str
    asked_ms: int = 0


class Outage:
    """Of one provider, over one agent's work. `longest_ms` 0: nobody waits."""

    def __init__(
        self,
        provider: str,
        longest_ms: int,
        seed: str,
        tell: Callable[[str], None],
        wanted: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`wanted` raises when nobody wants the work any more."""
        self._provider, self._longest_s, self._seed = provider, longest_ms / 1000, seed
        self._tell, self._wanted, self._clock, self._sleep = tell, wanted, clock, sleep
        self._since: float | None = None
        self._times, self._renewed = 0, 0
        # Why nobody waits any more, once the deadline is over.
        self.over = ""

    def waited(self, away: Away, *, answered: bool) -> bool:
        """After a pause: True. False where the deadline is over. `answered`: something was, since the last time."""
        now = self._clock()
        if self._since is None:
            self._since, self._times = now, 0
        elif answered and self._renewed < _MOST_RENEWALS:
            self._since, self._times, self._renewed = now, 0, self._renewed + 1
        left = self._since + self._longest_s - now
        if left <= 0:
            self.over = f"{self.because(away)}, for {self._longest_s / 60:g} minutes" if self._longest_s else ""
            return False
        self._times += 1
        drawn = pause_ms(self._times, self._seed, first_ms=FIRST_MS, longest_ms=LONGEST_MS)
        seconds = min(left, max(drawn, min(away.asked_ms, _MOST_ASKED_MS)) / 1000)
        until = datetime.fromtimestamp(time.time() + left).strftime("%H:%M:%S")
        self._tell(f"{self.because(away)}; asked again in {seconds:.0f} s, until {until}. No attempt is used up")
        end = now + seconds
        while (rest := end - self._clock()) > 0:
            self._wanted()
            self._sleep(min(rest, _TICK_S))
        return True

    def back(self) -> None:
        """It answers."""
        if self._since is not None:
            self._tell(f"the provider {self._provider} answers again, after {self._clock() - self._since:.0f} s")
        self._since, self._times = None, 0

    def because(self, away: Away) -> str:
        return f"{_PROVIDER} {self._provider} {_CANNOT} ({away.why})"


def stopped_for_outage(run: RunRecord) -> bool:
    return run.state == "STOPPED" and run.because.startswith(_PROVIDER) and _CANNOT in run.because
