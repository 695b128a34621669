"""Orders made from tasks: what an agent is asked, what must be there afterwards, how it lands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterator, Sequence

from holdfast.engine.orders import LandOrder, Order, order_from, packed
from holdfast.engine.roadmap_rules import RoadmapRules
from holdfast.errors import InvalidPath
from holdfast.model.path import checked_path
from holdfast.model.run import RunRecord
from holdfast.model.task import Task, TaskRecord
from holdfast.planning.task_words import TaskText, texts_of
from holdfast.store.large_blobs import LargeBlobs


class RoadmapOrders:
    """`rules` gives the present reading of the roadmap, `route` names the agent for a task, `base` the tree it is for
    (empty where all work is done here)."""

    def __init__(
        self, run: RunRecord, blobs: LargeBlobs, rules: Callable[[], RoadmapRules], route: Callable[[Task], str],
        base: Callable[[], str], *, mirrored: bool,
    ) -> None:  # fmt: skip
        self._run, self._blobs, self._rules, self._route = run, blobs, rules, route
        self._base, self._mirrored = base, mirrored

    def made(self, task: Task, record: TaskRecord) -> TaskRecord:
        rules = self._rules()
        # A task that was taken apart goes on alone, in as many parts as it has now: people edit it meanwhile.
        together = [rules.task(id) for id in rules.together(task.id)] if not record.parts else []
        texts = texts_of(task, rules.roadmap, record.tried, together)
        if record.parts:
            record = record._replace(part=min(record.part, len(texts) - 1), parts=len(texts))
        record = record._replace(agent=record.agent or self._route(task))
        order = self._written(task, together, record, texts[record.part])
        return record._replace(order=self._blobs.put(json.dumps(packed(order), sort_keys=True).encode("ascii")))

    def order(self, record: TaskRecord) -> Order:
        return kept_order(self._blobs, record)

    def land_order(self, record: TaskRecord) -> LandOrder:
        return land_order_of(self._run, self._blobs, record)

    def _written(self, task: Task, together: Sequence[Task], record: TaskRecord, text: TaskText) -> Order:
        options = self._run.options
        return Order(
            run=record.run,
            task=record.task,
            attempt=record.attempt,
            token=record.token,
            agent=record.agent,
            intent=_intent(task, together),
            words=text.whole,
            files=tuple(_plain(text.files)),
            expected=tuple(_plain(text.expected)),
            accept=() if record.part + 1 < record.parts else tuple(_commands((task, *together))),
            mends=options.mends,
            within_ms=options.within_ms,
            unverified_because=options.unverified_because,
            mirrored=self._mirrored,
            base=self._base(),
            together=tuple(other.id for other in together),
        )


def land_order_of(run: RunRecord, blobs: LargeBlobs, record: TaskRecord) -> LandOrder:
    """How a task lands, from the run and its record alone."""
    options, order = run.options, kept_order(blobs, record)
    return LandOrder(
        order=order,
        proposal=record.proposal,
        turn=record.turn,
        by=run.by,
        yes=run.yes,
        ask_after="after" in options.ask,
        ask_destructive="destructive" in options.ask,
        simulation=record.simulation,
        cleared_by=record.cleared_by,
        checkpoint=options.checkpoint != "none",
        tick=(record.task, *order.together) if options.sync and record.part + 1 >= record.parts else (),
        roadmap=run.roadmap,
    )


def kept_order(blobs: LargeBlobs, record: TaskRecord) -> Order:
    """What was asked when the attempt began; UnknownId or Tampering where it is kept no more."""
    return order_from(json.loads(b"".join(blobs.pieces(record.order))))


def _intent(task: Task, together: Sequence[Task]) -> str:
    more = f" and {len(together)} more" if together else ""
    return f"{task.number} {task.title}".strip() + more


def _plain(paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        try:
            yield checked_path(path)
        except InvalidPath:
            continue  # words of the roadmap that are no path of the workspace


def _commands(tasks: Sequence[Task]) -> Iterator[tuple[str, ...]]:
    """Words split as a shell would, and given to none. What cannot be split was no command."""
    for task in tasks:
        try:
            argv = tuple(shlex.split(task.accept))
        except ValueError:
            continue
        if argv:
            yield argv
