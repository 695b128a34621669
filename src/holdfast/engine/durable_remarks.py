"""What the library under the engine says: kept, and read for why the end of an item was not recorded.

None of it is for the screen of a person. A logger without any handler prints there what it is told, with a traceback,
so that each of these always has one.
"""

from __future__ import annotations

import logging
from collections import deque

from holdfast.engine.durable_database import trouble

REMARKS = 100
_LIBRARY = "dbos"
# What it stands on. Whoever listens to these still hears them.
_BELOW = ("sqlalchemy", "psycopg")


class Remarks(logging.Handler):
    """What DBOS says through its logger, kept instead of printed over whatever is on the screen."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.kept: deque[str] = deque(maxlen=REMARKS)
        # Why the end of an item could not be recorded, the last time.
        self.unrecorded = "the engine's database cannot be used: how an item ended is not recorded"

    def emit(self, record: logging.LogRecord) -> None:
        from sqlalchemy.exc import DBAPIError

        said = record.getMessage()
        if record.exc_info and isinstance(record.exc_info[1], DBAPIError):
            self.unrecorded = trouble(record.exc_info[1])
        # A failed item says so itself.
        if not said.startswith("Exception encountered in"):
            self.add(said)

    def add(self, said: str) -> None:
        self.kept.append(said[:500])


def speaks_to(handler: logging.Handler | None = None) -> None:
    """The library speaks to this handler alone, and without one to nobody: threads of it outlive the engine."""
    logger = logging.getLogger(_LIBRARY)
    logger.handlers[:] = [handler or logging.NullHandler()]
    logger.propagate = False


def hush() -> None:
    """As soon as the library is there, and before it could say anything."""
    speaks_to()
    for name in _BELOW:
        logging.getLogger(name).addHandler(logging.NullHandler())
