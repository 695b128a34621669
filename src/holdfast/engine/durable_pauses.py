"""The pauses of the library under the engine: short, and over as soon as the engine is.

The library waits for a database that is away by sleeping ever longer, up to a minute and a half at once. So what ended
meanwhile would be recorded that long after the database is back, whoever closes would leave without it, and the end of
the process would wait for a thread that sleeps.
"""

from __future__ import annotations

import threading
import time

from holdfast.engine.durable import Left

LONGEST = 0.5


class Pauses:
    """Stands where the library looks for the module `time`."""

    def __init__(self) -> None:
        self._of_this_thread = threading.local()

    def end_with(self, over: threading.Event) -> None:
        """From here on this thread, which runs an item, leaves it instead of pausing once that is set (D6)."""
        self._of_this_thread.over = over

    def sleep(self, seconds: float) -> None:
        over = getattr(self._of_this_thread, "over", None)
        if over is None:
            time.sleep(min(seconds, LONGEST))
        elif over.wait(min(seconds, LONGEST)):
            raise Left

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)


PAUSES = Pauses()
