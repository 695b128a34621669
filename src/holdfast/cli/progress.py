"""Progress: a line on the terminal's standard error that goes away again, or events in the stream.

Nothing is drawn before work has taken a while, and nothing at all where nobody watches.
There is no thread behind it: programs are started from this process, and a fork beside threads is a hazard.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from holdfast.cli.screen import Screen, shown

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

_PATIENCE_S = 0.4
_MANY = 2000  # so many of anything take longer than that
_WORDS = {
    "rehearse": "Rehearsing",
    "run": "Running",
    "stage": "Preparing",
    "apply": "Applying",
    "verify": "Checking",
    "health": "Health",
}
# Other people's programs take as long as they like, and report nothing meanwhile.
_LONG = ("run", "verify", "health")


class Progress:
    """Called with stage, done, total; `clear` when other words are to be printed, or the work is over."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._watched = screen.is_terminal(sys.stderr)
        self._stage = ""
        self._since = time.monotonic()
        self._bar: Bar | None = None
        self._task: TaskID | None = None
        screen.make_room = self.clear

    def __call__(self, stage: str, done: int, total: int) -> None:
        self._screen.event("progress", stage=stage, done=done, total=total)
        if not self._watched:
            return
        kind, _, what = stage.partition(": ")
        if kind != self._stage:
            self._stage, self._since = kind, time.monotonic()
        if kind in _LONG or total >= _MANY or time.monotonic() - self._since > _PATIENCE_S:
            self._guarded_draw(_WORDS.get(kind, kind), what, done, total)

    def clear(self) -> None:
        if self._bar is not None:
            bar, self._bar, self._task = self._bar, None, None
            try:
                bar.stop()
            except (OSError, ValueError):
                self._watched = False

    def _guarded_draw(self, word: str, what: str, done: int, total: int) -> None:
        try:
            self._draw(word, what, done, total)
        except (OSError, ValueError):
            self._watched = False  # the terminal went away; the work goes on

    def _draw(self, word: str, what: str, done: int, total: int) -> None:
        if self._bar is None:
            self._bar = _new_bar()
            self._bar.start()
        text = f"{word} {shown(what)}".rstrip()
        if self._task is None:
            self._task = self._bar.add_task(text, total=total)
        self._bar.update(self._task, description=text, completed=done, total=total)
        self._bar.refresh()


def _new_bar() -> Bar:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    return Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
    )
