"""The world of a run: the roadmap as people edit it, their answers, the budget, a wish to stop, and the side files.

Invariants
  H1  Whatever a person says is an entry of the ledger: an approval of the simulation where policy asks for one, and an
      `answer` otherwise. An answer names its question, and counts for no other (K4 of `taskbook`). An approval names
      the simulation that it is about, so one that came while the landing still went on that asks is an answer too: the
      gates count it at the next landing. Each is heard once; no clock is asked.
  H2  A roadmap that cannot be read for a moment (it is being saved, it is gone) leaves the last reading in force. Many
      programs save in place, so for a moment there is half a file: tasks are missing only when they stay away.
  H3  With a budget of money, work of which nobody knows what it cost ends the run: it could have cost anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from holdfast.engine.answers import answered
from holdfast.engine.escalation import Escalation, escalation_fields
from holdfast.engine.landed_before import is_gone, with_landed
from holdfast.engine.landmarks import files_of
from holdfast.engine.lane import open_tasks
from holdfast.engine.orders import Landed, plan_of
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.roadmap_file import RoadmapFile
from holdfast.engine.roadmap_orders import kept_order
from holdfast.engine.roadmap_rules import UNDER_WAY, RoadmapRules
from holdfast.engine.run_standing import stands
from holdfast.engine.taskbook import TaskBook
from holdfast.errors import HoldfastError, InvalidInput, Shortage, Tampering, UnknownId
from holdfast.model.configuration import Budget
from holdfast.model.run import RunOptions
from holdfast.model.task import Roadmap, Task, TaskRecord
from holdfast.store.large_blobs import LargeBlobs
from holdfast.store.resilience import ResilienceLog

_EXPORT_EVERY_S = 1.0
# For so long tasks must be missing from the roadmap to have left it.
_AWAY_S = 1.0
Export = Callable[[TaskBook, Roadmap], None]


class RoadmapWorld:
    """`stop` tells why to stop, if somebody asked for it; `export` writes what other tools read."""

    def __init__(
        self,
        pipeline: Pipeline,
        file: RoadmapFile,
        options: RunOptions,
        others: Callable[[Task], Sequence[str]],
        stop: Callable[[], str],
        export: Export,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipeline, self._file, self._options, self._others = pipeline, file, options, others
        self._stop, self._export, self._clock = stop, export, clock
        self._rules: RoadmapRules | None = None
        # The newest reading, and what it says to this run.
        self._seen: tuple[Roadmap, Roadmap] | None = None
        # What the newest reading lacks, and since when.
        self._away: tuple[frozenset[str], float] = frozenset(), 0.0
        self._exported = float("-inf")
        self.left = Budget()
        self.on_said: Callable[[TaskRecord, str], None] = lambda record, words: None

    def rules(self, book: TaskBook) -> RoadmapRules:
        before = self._rules
        try:
            roadmap = self._read(book.run.id)
        except InvalidInput:
            if before is None:
                raise
            return before  # H2
        stale = before is None or before.outdated or before.roadmap is not roadmap
        if before is None or (stale and not self._may_be_half(before.roadmap, roadmap)):
            with_others = self._with_others(book) if self._options.group != "off" else {}
            self._rules = RoadmapRules(roadmap, book, self._options, self._others, with_others)
            self._rules.stop = before.stop if before is not None else ""
        return self.now

    def _read(self, run: str) -> Roadmap:
        """The same object as long as the file stays as it is: what earlier runs landed does not move meanwhile."""
        data, found = self._file.read()
        if self._seen is None or self._seen[0] is not found:
            known = with_landed(self._pipeline.records, self._file, data, found, run)
            self._seen = found, known.asked_for(self._options.only)
        return self._seen[1]

    def _with_others(self, book: TaskBook) -> dict[str, str]:
        """Whom orders under way ask for besides their own task, and by which."""
        blobs, found = LargeBlobs(self._pipeline.site.state), dict[str, str]()
        for record in (record for state in UNDER_WAY for record in book.in_state(state) if record.order):
            try:
                found.update(dict.fromkeys(kept_order(blobs, record).together, record.task))
            except (UnknownId, Tampering):
                continue  # without its order it is never landed; the driver begins it anew
        return found

    def _may_be_half(self, before: Roadmap, now: Roadmap) -> bool:
        """Whether tasks are missing, and not for long (H2)."""
        away = frozenset(task.id for task in before.tasks).difference(task.id for task in now.tasks)
        if away != self._away[0]:
            self._away = away, self._clock()
        return bool(away) and self._clock() - self._away[1] < _AWAY_S

    @property
    def now(self) -> RoadmapRules:
        assert self._rules is not None, "the driver reads the roadmap before it orders anything"
        return self._rules

    def answered(self, record: TaskRecord) -> TaskRecord | None:
        return answered(self._pipeline.records, record)

    def exhausted(self, book: TaskBook, worked_ms: int) -> str:
        budget, usage = self._options.budget, book.usage
        spent = usage.input_tokens + usage.output_tokens
        money = usage.micro_usd or 0
        self.left = _left(budget, money, spent, usage.requests, self._options.parallel)
        if budget.time_ms is not None and worked_ms >= budget.time_ms:
            return f"the time of the run is over ({budget.time_ms // 1000} s)"
        if budget.micro_usd is not None and usage.micro_usd is None:
            return "what the run has cost is not known, and there is a budget of money"  # H3
        if budget.micro_usd is not None and money >= budget.micro_usd:
            return f"the money of the run is spent (${budget.micro_usd / 1e6:.2f})"
        if budget.tokens is not None and spent >= budget.tokens:
            return f"the tokens of the run are used up ({budget.tokens})"
        if budget.turns is not None and usage.requests >= budget.turns:
            return f"the requests of the run are used up ({budget.turns})"
        return ""

    def short_of(self, what: Shortage) -> str:
        budget, parallel = self._options.budget, self._options.parallel
        if what == "price" and budget.micro_usd is not None:
            return "no price is known for the model of an agent, and there is a budget of money"
        bounds: dict[Shortage, tuple[int | None, str]] = {
            "money": (budget.micro_usd, f"${(budget.micro_usd or 0) / 1e6:.2f}"),
            "tokens": (budget.tokens, f"{budget.tokens}"),
            "requests": (budget.turns, f"{budget.turns}"),
        }
        most, told = bounds.get(what, (None, ""))
        shared = f", shared by {parallel} at once" if parallel > 1 else ""
        return f"the {what} of the run did not suffice for what an agent asked next ({told}{shared})" if most else ""

    def landed(self, record: TaskRecord) -> Landed | None:
        order = kept_order(LargeBlobs(self._pipeline.site.state), record)
        rows = self._pipeline.landed(plan_of(order).digest)
        if not rows:
            return None
        left = open_tasks(self._pipeline, order, self._file.path, rows[0].id)
        others = tuple(task for task in order.together if task not in left)
        return Landed(rows[0].id, "", files_of(self._pipeline, rows[0].id), together=others, open=left)

    def taken_back(self, execution: str) -> bool:
        return is_gone(self._pipeline.records, execution)

    def said(self, record: TaskRecord, words: str) -> None:
        if words:
            self.on_said(record, words)

    def escalated(self, escalation: Escalation) -> None:
        ResilienceLog(self._pipeline.site.state).append(time.time_ns(), escalation.kind, escalation_fields(escalation))

    def stop_asked(self) -> str:
        return self._stop() or (self._rules.stop if self._rules is not None else "")

    def moved(self, book: TaskBook, *, last: bool = False) -> None:
        now = self._clock()
        if last or now - self._exported >= _EXPORT_EVERY_S:
            self._exported = now
            self._export(book, self.now.roadmap)

    def tick_all(self, book: TaskBook) -> str:
        """Boxes of what stands and was not ticked, because somebody was killed in between; what stopped that."""
        held = {row.task for row in self.now.roadmap.held}
        open_ones = {task.id for task in self.now.roadmap.tasks if not task.done or task.id in held}
        done = [record for record in book.in_state("COMPLETED") if record.task in open_ones]
        try:
            wanted = {record.task: True for record in done if stands(self._pipeline.records, record)}
            self._file.tick(self._pipeline, wanted, book.run.by)
        except HoldfastError as error:
            return error.message
        return ""


def _left(budget: Budget, money: int, tokens: int, turns: int, parallel: int) -> Budget:
    """What each of those who work at once may spend: a share, so that all of them together stay below the bound."""

    def share(most: int | None, used: int) -> int | None:
        return None if most is None else max(1, (most - used) // max(1, parallel))

    return Budget(share(budget.micro_usd, money), None, share(budget.tokens, tokens), share(budget.turns, turns))
