"""Attending a workspace: what schedules, files, webhooks and queues ask for is started here, and driven to its end.

One run at a time drives a workspace: what fires while one goes on is refused by its lock, recorded and told.
A run that fails is told too, whenever it does and whatever of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext

from holdfast.errors import Blocked, HoldfastError
from holdfast.model.run import RunEvent, RunOptions, RunStarted
from holdfast.model.trigger import Firing, Told
from holdfast.wiring.login import user
from holdfast.wiring.opening import open  # noqa: A004 (`holdfast.open` is the front door)

_PATIENCE = 60.0


def attend(
    path: str,
    stop: threading.Event,
    tell: Callable[[Told], None],
    watch: Callable[[RunEvent], None],
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Until `stop` is set; runs that are under way then stop in order. Locked when another process attends. `ready` is
    called once nothing stands in the way any more."""
    from holdfast.engine.queue_box import Box
    from holdfast.engine.trigger_sources import sources_of
    from holdfast.engine.trigger_watch import utc_now
    from holdfast.engine.trigger_watch import watch as attended
    from holdfast.engine.triggers import Triggers
    from holdfast.engine.webhook import Hooks, tokens_of
    from holdfast.store.firings import Firings

    with ExitStack() as stack:
        hf = stack.enter_context(open(path, wait=_PATIENCE))
        known = hf.pipeline.governance.settings()
        settings = known.triggers
        if not settings:
            raise Blocked("no trigger is configured", hint="Write one into your own config.toml: [triggers.NAME]")
        memory = stack.enter_context(Firings(hf.site.state))
        triggers = Triggers(settings, memory, utc_now)
        tokens = tokens_of(settings)

        @contextmanager
        def heard() -> Iterator[None]:
            """The port belongs to whoever attends: it is opened once nobody else does."""
            with Hooks(tokens, triggers.happened, port=known.run.webhook_port) if tokens else nullcontext():
                ready()
                yield

        running = _Running(hf.path, stop, tell, watch)
        stack.callback(running.join)
        sources = sources_of(settings, hf.site.workspace, Box(hf.pipeline, user()))
        attended(triggers, memory, sources, running.start, tell=tell, stop=stop, within=heard())


class _Running:
    """Runs in threads of their own; `start` comes back when the run is in the ledger."""

    def __init__(
        self, path: str, stop: threading.Event, tell: Callable[[Told], None], watch: Callable[[RunEvent], None]
    ) -> None:
        self._path, self._stop, self._tell, self._watch = path, stop, tell, watch
        self._threads: list[threading.Thread] = []

    def start(self, firing: Firing) -> None:
        begun, refused = threading.Event(), list[HoldfastError]()

        def see(event: RunEvent) -> None:
            if isinstance(event, RunStarted):
                begun.set()
            self._watch(event)

        def drive() -> None:
            try:
                self._drive(firing, see)
            except Exception as error:  # noqa: BLE001 (a thread has nobody above it who would tell)
                failure = error if isinstance(error, HoldfastError) else HoldfastError(f"internal error: {error!r}")
                if begun.is_set():
                    self._tell(Told("failed", firing.trigger, failure.message, firing.id))
                else:
                    refused.append(failure)
            finally:
                begun.set()

        thread = threading.Thread(target=drive, name=f"run for {firing.trigger}")
        self._threads.append(thread)
        thread.start()
        begun.wait()
        if refused:
            raise refused[0]

    def _drive(self, firing: Firing, see: Callable[[RunEvent], None]) -> None:
        from holdfast.engine.roadmap_runs import Crew

        with open(self._path, wait=_PATIENCE) as hf:
            given = hf.pipeline.governance.settings().run
            options = RunOptions(
                agent=firing.agent or "auto", parallel=given.parallel, budget=given.budget, checkpoint=given.checkpoint
            )
            crew = Crew(watcher=see, stop=lambda: "the attendance ends" if self._stop.is_set() else "")
            hf.runs.start(firing.roadmap, options, crew)

    def join(self) -> None:
        for thread in self._threads:
            thread.join()
