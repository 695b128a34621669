"""The wish to stop a run: a file that names the run, who asked, and whether at once; so it can be asked from anywhere.

It is about the sitting that goes on, and is forgotten when that ends and before the next one begins.
"""

from __future__ import annotations

from holdfast.disk.confined import Root
from holdfast.model.run import RunRecord
from holdfast.store.exports import read_file, replace_file

_FILE, _NOW = "stop", "now"
_MOST = 256
_ASKED = "asked for it"


class StopWish:
    """Of one workspace, by its state."""

    def __init__(self, state: Root) -> None:
        self._state = state

    def ask(self, run: str, by: str, *, now: bool) -> None:
        replace_file(self._state, _FILE, "\n".join((run, by, _NOW if now else "")).encode())

    def asked(self, run: str) -> str:
        """Who asked for the end of this run, as a sentence; empty where nobody did."""
        words = self._words(run)
        return f"{words[1]} {_ASKED}" if words else ""

    def asked_now(self, run: str) -> bool:
        return self._words(run)[2:] == [_NOW]

    def forget(self, run: str) -> None:
        if self.asked(run):
            replace_file(self._state, _FILE, b"")

    def _words(self, run: str) -> list[str]:
        words = (read_file(self._state, _FILE, _MOST) or b"").decode("utf-8", "replace").split("\n")
        return words if words[0] == run and len(words) > 1 else []


def stopped_by_a_person(run: RunRecord) -> bool:
    """It was asked for from another terminal."""
    return run.state == "STOPPED" and run.because.endswith(_ASKED)
