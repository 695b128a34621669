"""A look at the workspace while a program is waited for: on a second processor it costs no time.

The look is as good as one before or after: whoever uses it asks of every path whether it still stands (`Folder.seen`),
and whether it is young enough to stand for the whole tree is the caller's to say.

Invariants
  L1  The thread ends with the block, however that is left.
  L2  It is begun when the program has been started: between fork and exec no second thread of ours is at work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from holdfast.errors import HoldfastError
from holdfast.workspace.tree import Snapshot


class Look:
    def __init__(self, look: Callable[[], Snapshot]) -> None:
        self._look = look
        self._thread: Thread | None = None
        self._found: Snapshot | None = None
        self._error: Exception | None = None

    def begin(self) -> None:
        assert self._thread is None, "one look a program"
        self._thread = Thread(target=self._run, name="look", daemon=True)
        self._thread.start()

    def found(self) -> Snapshot | None:
        """When it is over; None where it was not begun, or the workspace did not let itself be looked at just then."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._found

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._found = self._look()
        except HoldfastError:
            pass  # whoever needs the whole tree looks again, and is told
        except Exception as error:  # noqa: BLE001 - handed over to who waits for it
            self._error = error


@contextmanager
def looking(look: Callable[[], Snapshot]) -> Iterator[Look]:
    beside = Look(look)
    try:
        yield beside
    finally:
        beside.wait()
