"""What the library under the engine says: kept, and read for why the end of an item was not recorded."""

from __future__ import annotations

import logging
from collections import deque

from holdfast.engine.durable_database import trouble

REMARKS = 100


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
