"""A watchman for tests: triggers over a real workspace, a clock that is moved by hand, and everything that was told."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from guarded import ME, Ground, guard
from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.confined import Root
from holdfast.engine.queue_box import Box
from holdfast.engine.trigger_sources import sources_of
from holdfast.engine.trigger_watch import Watch
from holdfast.engine.triggers import Triggers
from holdfast.model.trigger import Firing, Told
from holdfast.model.trigger_settings import TriggerSettings
from holdfast.store.firings import Firings

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
NIGHTLY = TriggerSettings("nightly", "cron", cron="0 2 * * *", timezone="Europe/Berlin", roadmap="R.md", agent="claude")
HOOK = TriggerSettings("hook", "webhook", agent="mine")
PLANS = TriggerSettings("plans", "changed", changed=("ROADMAP.md", "plans/**"))
INBOX = TriggerSettings("inbox", "queue", queue="inbox", settle_ms=1000)


class Watchman:
    """`started` is what runs were started for; `told` what a person heard."""

    def __init__(self, ground: Ground, settings: tuple[TriggerSettings, ...], now: datetime = NOON) -> None:
        self.now = now
        self.ground = ground
        self.root = Root(str(ground.path), ground.hf.site.calls)
        self.memory = Firings(ground.hf.site.state)
        self.started: list[Firing] = []
        self.told: list[Told] = []
        self.triggers = Triggers(settings, self.memory, lambda: self.now)
        sources = sources_of(settings, self.root, Box(ground.hf.pipeline, ME))
        self.watch = Watch(self.triggers, sources, self.start, self.told.append)

    def start(self, firing: Firing) -> None:
        self.started.append(firing)

    def after(self, **span: float) -> list[Firing]:
        """Let time pass, then look once; what was started by that."""
        self.now += timedelta(**span)
        before = len(self.started)
        self.watch.look(self.now)
        self.watch.fire(self.now)
        return self.started[before:]

    def tales(self) -> list[tuple[str, str]]:
        return [(told.tale, told.words) for told in self.told]

    def close(self) -> None:
        self.memory.close()
        self.root.close()


@contextmanager
def watchman(path: Path, *settings: TriggerSettings, now: datetime = NOON, calls: Calls = CALLS) -> Iterator[Watchman]:
    """A watch of these triggers over the workspace at `path`, which is put under guard where it is not yet."""
    ground = Ground(path, calls) if os.path.isdir(path / ".holdfast") else guard(path, calls=calls)
    found = Watchman(ground, settings, now)
    try:
        found.watch.begin(now)
        yield found
    finally:
        found.close()
        ground.hf.close()
