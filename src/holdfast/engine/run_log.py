"""The files of a run: every event in a log, what each task saw in one of its own, a heartbeat, the exports.

    RunEvent ──▶ logs/executor.jsonl            all of them but what agents do
             ──▶ logs/execution/<task>.jsonl    everything of one task, with what its agent did
             ──▶ logs/heartbeat.json            when it starts, every few seconds, when it ends
    records  ──▶ execution_results.json, roadmaps/<roadmap>.json       (see store.exports)

Invariants
  L1  A file that cannot be written never stops a run: what landed is in the ledger, and nothing is decided from these.
  L2  Nor does it hide: the first failure is told at once, and when the run ends, what is missing then.
      `lost` counts them, the heartbeat shows it, and the log itself has a LOST line where they are missing, as soon as
      it can be written again.
  L3  A name that a task gives itself never leads out of logs/execution/, and no two ids share a file.
  L4  Texts are bounded, and everything with the shape of a secret is masked, before they are written.
  L5  Events may come from any thread; lines of one file are in the order in which they came.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from holdfast.disk.confined import Root
from holdfast.engine.event_rows import fields_of_event, task_of
from holdfast.engine.pulse import FILE as HEARTBEAT
from holdfast.engine.pulse import Pulse, write_pulse
from holdfast.gates.secrets import masked
from holdfast.model.check import masked_words
from holdfast.model.run import (
    AgentSeen,
    DatabaseBack,
    DatabaseGone,
    Heartbeat,
    RunEvent,
    RunFinished,
    RunRecord,
    RunStarted,
)
from holdfast.model.task import Roadmap, TaskRecord
from holdfast.sandbox.daemon import Identity, identity_of
from holdfast.store.exports import RESULTS, Exports, safe_name
from holdfast.store.line_log import LineLog

EXECUTOR = "logs/executor.jsonl"
FOLDER = "logs/execution"
LOST = "LOST"
LONGEST_TASK_LOG = 4 << 20
TEXT_LIMIT = 2_000
_SHORT = 200


class _Standing(NamedTuple):
    """How the run stands, for the exports; the records are the book's own, which change."""

    run: RunRecord
    roadmap: Roadmap
    records: Mapping[str, TaskRecord]


class RunLog:
    """A `RunWatcher`. `warn` is told one sentence when something cannot be written."""

    def __init__(self, state: Root, warn: Callable[[str], None], clock: Callable[[], int] = time.time_ns) -> None:
        self._state, self._warn, self._clock = state, warn, clock
        self._turn = threading.RLock()
        self._exports = Exports(state, without_secrets)
        self._standing: _Standing | None = None
        self._pulse: Pulse | None = None
        # Lines missing in each file since it was last written.
        self._gaps: Counter[str] = Counter()
        self._told = False
        self._stale = False
        self.lost = 0

    def __call__(self, event: RunEvent) -> None:
        with self._turn:
            if not isinstance(event, AgentSeen):
                self._append(executor_log(self._state), event)
            if task := task_of(event):
                self._append(task_log(self._state, task), event)
            if isinstance(event, (RunStarted, Heartbeat, DatabaseGone, DatabaseBack, RunFinished)):
                self._beat(event)
                self._export()
            if isinstance(event, RunFinished):
                self._sum_up()

    def settled(self, run: RunRecord, roadmap: Roadmap, records: Mapping[str, TaskRecord]) -> None:
        """Something moved: the exports follow, at once or with the next heartbeat."""
        with self._turn:
            self._standing = _Standing(run, roadmap, records)
            self._export()

    def _append(self, log: LineLog, event: RunEvent) -> None:
        now, gap = self._clock(), self._gaps[log.path]

        def write() -> None:
            if gap:
                log.append(now, LOST, {"lines": gap})
                self._gaps[log.path] = 0
            log.append(now, event.event, fields_of_event(event))

        if not self._written(log.path, write):
            self._gaps[log.path] += 1
            self.lost += 1

    def _beat(self, event: RunStarted | Heartbeat | DatabaseGone | DatabaseBack | RunFinished) -> None:
        now = self._clock()
        pulse = self._pulse
        if pulse is None or pulse.run != event.run or isinstance(event, RunStarted):
            pulse = Pulse(event.run, "RUNNING", this_process(), since_ns=now, at_ns=now)
        match event:
            case Heartbeat():
                pulse = pulse._replace(
                    running=event.running, landed=event.landed, usage=event.usage, worked_ms=event.worked_ms,
                    waiting=event.waiting,
                )  # fmt: skip
            case DatabaseGone():
                pulse = pulse._replace(away_ns=event.since_ns, away_until_ns=event.until_ns)
            case DatabaseBack():
                pulse = pulse._replace(away_ns=0, away_until_ns=0)
            case RunFinished():
                pulse = pulse._replace(
                    state=event.state, running=0, waiting=0, landed=event.landed, usage=event.usage,
                    worked_ms=event.worked_ms, away_ns=0, away_until_ns=0,
                )  # fmt: skip
        self._pulse = pulse = pulse._replace(at_ns=now, lost=self.lost)
        self._written(HEARTBEAT, lambda: write_pulse(self._state, pulse))

    def _export(self) -> None:
        standing = self._standing
        if standing is not None:
            self._stale = not self._written(RESULTS, lambda: self._exports.tell(*standing))

    def _sum_up(self) -> None:
        """L2: whoever reads the files later must know that they do not say everything."""
        if self.lost:
            self._warn(f"{self.lost} lines are missing in .holdfast/logs, because they could not be written")
        if self._stale:
            self._warn(f".holdfast/{RESULTS} does not say how the run ended, because it could not be written")

    def _written(self, path: str, write: Callable[[], object]) -> bool:
        """L1, L2."""
        try:
            write()
        except OSError as error:
            if not self._told:
                self._told = True
                reason = error.strerror or type(error).__name__
                self._warn(f".holdfast/{path} cannot be written: {reason}. The run goes on; what is missing is counted")
            return False
        return True


def executor_log(state: Root) -> LineLog:
    return LineLog(state, EXECUTOR, text_limit=TEXT_LIMIT, word=without_secrets)


def task_log(state: Root, task: str) -> LineLog:
    """L3."""
    path = f"{FOLDER}/{safe_name(task)}.jsonl"
    return LineLog(state, path, longest=LONGEST_TASK_LOG, text_limit=TEXT_LIMIT, word=without_secrets)


def without_secrets(text: str) -> str:
    """L4: passwords in addresses, and everything that has the shape of a token."""
    return _short_without(text) if len(text) <= _SHORT else masked(masked_words(text))


@lru_cache(maxsize=1024)
def _short_without(text: str) -> str:
    """Names of runs, tasks and states come again and again."""
    return masked(masked_words(text))


def this_process() -> Identity:
    found = identity_of(os.getpid())
    assert found is not None, "we are alive"
    return found
