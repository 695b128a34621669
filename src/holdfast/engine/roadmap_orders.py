"""Orders made from tasks: what an agent is asked, what must be there afterwards, how it lands.

Invariants
  A1  A task whose acceptance command cannot be run as it is written is given to nobody, whole or in parts: it would be
      done without what its file asks for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from holdfast.checks.words import acceptance_in
from holdfast.engine.orders import LandOrder, Order, order_from, packed
from holdfast.engine.roadmap_rules import RoadmapRules
from holdfast.errors import InvalidInput, InvalidPath, Tampering, UnknownId
from holdfast.intake.roadmap.acceptance import command_of
from holdfast.model.path import checked_path
from holdfast.model.run import RunRecord
from holdfast.model.task import Task, TaskRecord
from holdfast.planning.recovery import repeats_in
from holdfast.planning.task_words import TaskText, texts_of
from holdfast.store.large_blobs import LargeBlobs

_FRESH = 1000


class RoadmapOrders:
    """`rules` gives the present reading of the roadmap, `route` names the agent for a task, `base` the tree it is for
    (empty where all work is done here), `tested` tells whether its tests can run here, `finds` whether those who work
    now would find such a tree."""

    def __init__(
        self, run: RunRecord, blobs: LargeBlobs, rules: Callable[[], RoadmapRules], route: Callable[[Task], str],
        base: Callable[[], str], *, mirrored: bool, finds: Callable[[str], bool],
        tested: Callable[[], bool] = bool,
    ) -> None:  # fmt: skip
        self._run, self._blobs, self._rules, self._route = run, blobs, rules, route
        self._base, self._mirrored, self._finds, self._tested = base, mirrored, finds, tested
        # Orders that this process wrote lately, by digest: what is named by its content need not be read again.
        self._fresh: dict[str, Order] = {}

    def made(self, task: Task, record: TaskRecord) -> TaskRecord:
        rules = self._rules()
        # A task that was taken apart goes on alone, in as many parts as it has now: people edit it meanwhile.
        together = [rules.task(id) for id in rules.together(task.id)] if not record.parts else []
        texts = texts_of(task, rules.roadmap, record.tried, together)
        if record.parts:
            record = record._replace(part=min(record.part, len(texts) - 1), parts=len(texts))
        record = record._replace(agent=record.agent or self._route(task))
        order = self._written(task, together, record, texts[record.part])
        digest = self._blobs.put(json.dumps(packed(order), sort_keys=True).encode("ascii"))
        if len(self._fresh) >= _FRESH:
            self._fresh.clear()
        self._fresh[digest] = order
        return record._replace(order=digest)

    def order(self, record: TaskRecord) -> Order:
        return self._fresh.get(record.order) or kept_order(self._blobs, record)

    def fits(self, record: TaskRecord) -> bool:
        try:
            order = self.order(record)
        except (UnknownId, Tampering):
            return True
        return order.mirrored == self._mirrored and self._finds(order.base)

    def land_order(self, record: TaskRecord) -> LandOrder:
        return _land_order(self._run, self.order(record), record)

    def _written(self, task: Task, together: Sequence[Task], record: TaskRecord, text: TaskText) -> Order:
        options = self._run.options
        accept = tuple(_commands((task, *together)))
        return Order(
            run=record.run,
            task=record.task,
            attempt=record.attempt,
            token=record.token,
            agent=record.agent,
            intent=_intent(task, together),
            words=text.whole,
            files=tuple(_plain(text.files)),
            # Each task of a group is measured by itself, where it lands (L7 of `lane`).
            expected=() if together else tuple(_plain(text.expected)),
            accept=accept if record.part + 1 >= record.parts else (),
            mends=options.mends,
            within_ms=options.within_ms,
            unverified_because=options.unverified_because,
            mirrored=self._mirrored,
            base=self._base(),
            together=tuple(other.id for other in together),
            model=options.model,
            verify_mode="agent" if options.verify_mode == "agent" else "auto",
            plan_first=options.plan_first,
            tested=self._tested(),
            repeats=repeats_in(record.tried, record.agent),
        )


def land_order_of(run: RunRecord, blobs: LargeBlobs, record: TaskRecord) -> LandOrder:
    """How a task lands, from the run and its record alone."""
    return _land_order(run, kept_order(blobs, record), record)


def _land_order(run: RunRecord, order: Order, record: TaskRecord) -> LandOrder:
    options = run.options
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
        unverified=record.unverified,
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
    """InvalidInput for one that cannot be run as it is written (A1)."""
    for task in tasks:
        try:
            argv = command_of(task.accept)
        except InvalidInput as error:
            raise InvalidInput(f"{task.number or task.id}: {error.message}", hint=error.hint) from None
        lines = "\n".join((task.body, *(item.text for item in task.subtasks)))
        yield from dict.fromkeys((*([argv] if argv else []), *acceptance_in(lines)))
