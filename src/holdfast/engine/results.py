"""Step results: what each planned step turned out to be, measured after the paths moved and not assumed.

The rehearsal's reports say which paths each step is about, in order; the look after landing (`surroundings`) says what
stands there. A step matches when what it wanted to be there, or gone, is, and each of its paths holds exactly the image
that was planned. A service step matches when its action was done.

Of a change that did not land each step is one of these: never begun; begun, and taken back; or begun, and it stands.
How far the files came is known from their operations (`_Extents`), of a service from its deed.

A path moves once (G5 of `workspace.staging`), so what stands at a path is the work of the last step on it. An earlier
step on that path names that one in `superseded_by`, and what it reports as found there is what the later one left.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, overload

from holdfast.execution.services import Deed
from holdfast.model.changeset import Change, ChangeSet
from holdfast.model.execution import ActionType, Execution, StepResult
from holdfast.model.image import Image
from holdfast.model.path import ancestors_of, printable
from holdfast.model.plan import step_id
from holdfast.model.words import counted
from holdfast.simulation.rehearsal import StepReport
from holdfast.store.journal import Op

_ALL_OR_NOTHING = "not done, because the whole change failed"
_NEVER_BEGUN = "not done, because something before it failed"
_TAKEN_BACK = "done, and taken back, because the whole change failed"
_PARTLY_TAKEN_BACK = "begun, and taken back, because the whole change failed"
_TAKEN_BACK_AFTER_A_CRASH = "taken back, as far as it was done before the process ended"
_STANDS = "done, and it stands: it was not taken back"
_PARTLY_STANDS = "begun, and not taken back"
_NOT_AMONG = "not done: it is not among what landed"
_PROGRAMS = ("run", "agent", "service")
_NOT_REACHED = Deed(0, 0, _NEVER_BEGUN, is_begun=False)
_ACTION_TYPES: Mapping[str, ActionType] = {
    "write": "WRITE", "update": "UPDATE", "create": "CREATE", "delete": "DELETE", "move": "MOVE", "chmod": "CHMOD",
    "symlink": "SYMLINK", "read": "READ", "run": "RUN", "agent": "AGENT", "service": "SERVICE",
}  # fmt: skip

# How far a step came: some of its paths may have moved, and others not.
Extent = Literal["none", "some", "all", "unknown"]
_BACK: Mapping[Extent, str] = {
    "some": _PARTLY_TAKEN_BACK, "all": _TAKEN_BACK, "unknown": _TAKEN_BACK_AFTER_A_CRASH,
}  # fmt: skip
_NOT_BACK: Mapping[Extent, str] = {"some": _PARTLY_STANDS, "all": _STANDS, "unknown": _PARTLY_STANDS}
_DONE: Mapping[Extent, str] = {"some": "begun", "all": "done", "unknown": "done at least in part"}

# What stands at a path now.
Found = Callable[[str], Image | None]


class Steps:
    """Which step is the last one on each path. `expected` is what shall stand at a path in the end."""

    def __init__(self, reports: Sequence[StepReport], expected: Found) -> None:
        self._last: dict[str, int] = {}
        self._covering: dict[str, int] = {}  # directories that were deleted or moved, with all that was in them
        for report in reports:
            for path in _named(report):
                if report.operation == "read":
                    self._last.setdefault(path, report.number)  # it overtakes nothing
                else:
                    self._last[path] = report.number
            if report.operation in ("delete", "move"):
                self._covering.update((path, report.number) for path in (report.target, *_destination(report)))
            if self._covering and report.operation != "delete":
                self._revive(report, expected)

    def last_on(self, path: str) -> int:
        """The number of the step; -1 for a path that no step names, a parent that is made on the way."""
        last = self._last.get(path, -1)
        if self._covering:
            covered = [self._covering[above] for above in (path, *ancestors_of(path)) if above in self._covering]
            last = max(last, *covered) if covered else last
        return last

    def order(self, changes: Sequence[Change]) -> array[int]:
        """For each change the step that it belongs to; parents come when something needs them (G5)."""
        late = max(self._last.values(), default=0) + 1
        return array("i", (late if (last := self.last_on(change.path)) < 0 else last for change in changes))

    def _revive(self, report: StepReport, expected: Found) -> None:
        """What a step puts into a directory that an earlier step took away makes that directory again."""
        for path in _destination(report) or _named(report):
            for above in ancestors_of(path):
                if self._covering.get(above, report.number) != report.number and expected(above) is not None:
                    self._last[above] = report.number


def plan_order(reports: Sequence[StepReport], change_set: ChangeSet) -> Sequence[int]:
    """For each change the number of its step; nothing for a change without steps, which is one step then."""
    return Steps(reports, _planned(change_set)).order(change_set.changes) if reports else ()


class Moves(NamedTuple):
    """When each operation that was begun began, and how many of them were done."""

    times_ns: Sequence[int]
    finished: int


class Measured(NamedTuple):
    """What a transaction came to: its operations, how far they came, and what a look afterwards found.

    `moves` is None where another process came to its end, which took with it how far it was.
    """

    ops: Sequence[Op]
    moves: Moves | None
    reads: Mapping[str, Image]
    found: Found


def step_results(
    reports: Sequence[StepReport], measured: Measured, execution: Execution, deeds: Sequence[Deed] = ()
) -> Sequence[StepResult]:
    """One result a step, in the plan's order; `deeds` are the service actions, as far as they came."""
    times = measured.moves.times_ns if measured.moves is not None else ()
    begun = _Places(measured.ops, len(times))
    started, completed = array("q"), array("q")
    acting: dict[str, Deed] = {}
    for report in reports:
        if report.operation == "service":
            acting[report.step_id] = deed = deeds[len(acting)] if len(acting) < len(deeds) else _NOT_REACHED
            started.append(deed.started_ns or report.started_ns)
            completed.append(deed.ended_ns or report.completed_ns)
            continue
        place = begun.last_of(_result_path(report))
        at = report.started_ns if place is None else times[place]
        ended = place is not None and place + 1 < len(times)
        started.append(at)
        completed.append(times[place + 1] if ended and place is not None else max(at, report.completed_ns))
    return StepResults(reports, started, completed, execution, acting, measured)


class _CameTo(NamedTuple):
    """The part of a result that differs between what landed, what went back and what happened outside the files."""

    success: bool
    matches: bool
    change: str
    error: str
    rollback_invoked: bool = False
    rollback_succeeded: bool = False
    was_reached: bool = True


class _Places:
    """Where the last operation on each path that was begun stands in the order; the next one begins when it ends.

    Two sorted lists: a dictionary of 100,000 paths would be three times as large, when memory is at its peak.
    """

    def __init__(self, ops: Sequence[Op], begun: int) -> None:
        self._order = array("i", sorted(range(begun), key=lambda place: ops[place].path))
        self._paths = [ops[place].path for place in self._order]

    def last_of(self, path: str) -> int | None:
        found = bisect_right(self._paths, path) - 1
        return self._order[found] if found >= 0 and self._paths[found] == path else None


class _Extents:
    """How far each step came that is no service action: its paths, or else those around it in the plan's order.

    Only while paths move it differs from step to step: before that none is begun, after that all are done.
    """

    def __init__(self, steps: Steps, measured: Measured, execution: Execution) -> None:
        statuses = {moment.status for moment in execution.history}
        self._of_all: Extent | None = None
        if "APPLYING" not in statuses:
            self._of_all = "none"
        elif "VERIFYING" in statuses:
            self._of_all = "all"
        elif measured.moves is None:
            self._of_all = "unknown"
        begun, finished = (len(measured.moves.times_ns), measured.moves.finished) if measured.moves else (0, 0)
        self._begun: set[str | int] = set()  # paths, and the numbers of the steps whose work they are
        self._unfinished: set[str | int] = set()
        if self._of_all is None:
            for place, op in enumerate(measured.ops):
                if place < begun:
                    self._begun.update((op.path, steps.last_on(op.path)))
                if place >= finished:
                    self._unfinished.update((op.path, steps.last_on(op.path)))
        self._furthest = max((number for number in self._begun if isinstance(number, int)), default=-1)

    def of(self, report: StepReport) -> Extent:
        if self._of_all is not None:
            return self._of_all
        own = {report.number, *_named(report)}
        if not own & self._begun:
            moves_nothing = not own & self._unfinished
            return "all" if moves_nothing and report.number < self._furthest else "none"
        return "some" if own & self._unfinished else "all"


class StepResults(Sequence[StepResult]):
    """The results, spelled out when somebody looks: 100,000 of them would be a fifth of a change's memory."""

    def __init__(
        self,
        reports: Sequence[StepReport],
        started: Sequence[int],
        completed: Sequence[int],
        execution: Execution,
        acting: Mapping[str, Deed],
        measured: Measured,
    ) -> None:
        self._reports = reports
        self._started = started
        self._completed = completed
        self._landed = execution.status in ("COMPLETED", "PARTIAL")
        self._has_begun = any(moment.status == "APPLYING" for moment in execution.history)
        self._rolled_back = execution.status == "ROLLED_BACK"
        self._acting = acting
        self._details = {item.path: item.detail for item in reversed(execution.divergence)}
        self._found = measured.found
        # What each path was, and what it was to be.
        self._pre: dict[str, Image | None] = {}
        self._post: dict[str, Image | None] = dict(measured.reads)
        for op in measured.ops:
            self._pre.setdefault(op.path, op.pre.image if op.pre is not None else None)
            self._post[op.path] = op.post.image if op.post is not None else None
        self._steps = Steps(reports, self._post.get)
        self._extents = _Extents(self._steps, measured, execution)
        self._wrong: dict[int, str] = {}
        if self._landed:
            for path, image in self._post.items():
                if self._found(path) != image:
                    self._wrong.setdefault(self._steps.last_on(path), path)

    def __len__(self) -> int:
        return len(self._reports)

    @overload
    def __getitem__(self, index: int) -> StepResult: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StepResult]: ...
    def __getitem__(self, index: int | slice) -> StepResult | Sequence[StepResult]:
        if isinstance(index, slice):
            return tuple(self[place] for place in range(*index.indices(len(self))))
        return self._result(self._reports[index], self._started[index], self._completed[index])

    def _result(self, report: StepReport, started_ns: int, completed_ns: int) -> StepResult:
        deed = self._acting.get(report.step_id)
        if deed is not None:
            came_to = self._acted(report, deed)
        else:
            came_to = self._landed_as(report) if self._landed else self._went_back(report)
        image = None if report.operation in _PROGRAMS else self._found(_result_path(report))
        return StepResult(
            step_id=report.step_id,
            operation=report.operation,
            target=report.target,
            started_ns=started_ns if came_to.was_reached else None,
            completed_ns=completed_ns if came_to.was_reached else None,
            precondition_met=report.precondition_met,
            precondition_detail=report.detail,
            expected_vs_actual_match=came_to.matches,
            actual_state_change=came_to.change,
            success=came_to.success,
            rollback_invoked=came_to.rollback_invoked,
            rollback_succeeded=came_to.rollback_succeeded,
            error_message=came_to.error,
            action_type=_ACTION_TYPES.get(report.operation, "WRITE"),
            superseded_by=self._superseded(report),
            type=image.kind if image is not None else "",
            size=image.size if image is not None and image.kind == "file" else None,
            permissions=f"{image.mode:04o}" if image is not None else "",
            digest=image.digest if image is not None else "",
        )

    def _acted(self, report: StepReport, deed: Deed) -> _CameTo:
        """A service action: known from its deed, since there is nothing to look at."""
        what = report.detail.partition(", after the files")[0]
        stands = deed.is_begun and not deed.taken_back
        if not deed.is_begun:
            change, error = "none", self._details.get(report.target, deed.failure)
        elif deed.failure:
            change, error = "not known: it was begun and failed", deed.failure
            if deed.stands:
                error = f"{error}; what it did, if anything, stands: {deed.stands}"
        elif self._landed or deed.taken_back:
            change, error = what, _TAKEN_BACK if deed.taken_back else ""
        else:
            change = what
            why = deed.stands or self._details.get(report.target)
            error = f"done, and it stands: {why}" if why else _STANDS
        return _CameTo(
            success=stands and not deed.failure,
            matches=stands and not deed.failure,
            change=f"{change}, then taken back: {deed.taken_back}" if deed.taken_back else change,
            error=error,
            rollback_invoked=bool(deed.taken_back or deed.stands),
            rollback_succeeded=bool(deed.taken_back),
            was_reached=deed is not _NOT_REACHED,
        )

    def _landed_as(self, report: StepReport) -> _CameTo:
        failure = self._failure(report)
        if failure:
            return _CameTo(success=False, matches=False, change=self._change(report), error=failure)
        # What a step only relied on is nobody's to hold still: it was so when the step was done, and is not any more.
        wrong = self._wrong.get(report.number)
        error = f"{printable(wrong)} was changed meanwhile" if wrong is not None else ""
        return _CameTo(success=True, matches=wrong is None, change=self._change(report), error=error)

    def _went_back(self, report: StepReport) -> _CameTo:
        extent = self._extents.of(report)
        met = next((path for path in _named(report) if path in self._details), "")
        if extent == "none":
            error = self._details.get(met) or (_NEVER_BEGUN if self._has_begun else _ALL_OR_NOTHING)
            return _CameTo(success=False, matches=False, change="none", error=error, was_reached=False)
        as_before = self._rolled_back or self._is_as_before(report)
        stands = not as_before and extent == "all" and self._is_as_planned(report)
        if as_before or stands or not met:
            error = (_BACK if as_before else _NOT_BACK)[extent]
        else:
            error = f"{_DONE[extent]}, but {printable(met)} {self._details[met]}"
        return _CameTo(
            success=stands,
            matches=stands,
            change="none; rolled back" if as_before else self._not_as_before(report),
            error=error,
            rollback_invoked=True,
            rollback_succeeded=as_before,
        )

    def _failure(self, report: StepReport) -> str:
        """Why a step that is no service action does not match what stands; nothing where it does."""
        for path, is_wanted in _wants(report):
            if self._steps.last_on(path) == report.number:
                if is_wanted and path not in self._post:
                    return _NOT_AMONG
                if path in self._pre and (self._found(path) is not None) != is_wanted:
                    return f"{printable(path)} {'is gone' if is_wanted else 'is still there'}"
        wrong = self._wrong.get(report.number)
        return f"{printable(wrong)} is not what was planned" if wrong is not None and wrong in self._pre else ""

    def _is_as_before(self, report: StepReport) -> bool:
        """Of its own paths, where not everything went back."""
        looked = [(path, self._found(path)) for path in _named(report) if path in self._pre]
        return all(found == self._pre[path] for path, found in looked)

    def _is_as_planned(self, report: StepReport) -> bool:
        return all(self._found(path) == self._post[path] for path in _named(report) if path in self._post)

    def _not_as_before(self, report: StepReport) -> str:
        if report.operation in _PROGRAMS:
            left = sum(self._found(path) != self._pre[path] for path in report.affected if path in self._pre)
            return f"not as before: {counted(left, 'path')}"
        return f"not as before: {described(self._found(_result_path(report)))}"

    def _superseded(self, report: StepReport) -> str:
        """The last step that overtook one of this one's paths."""
        last = max((self._steps.last_on(path) for path in _named(report)), default=-1)
        return step_id(last) if last > report.number else ""

    def _change(self, report: StepReport) -> str:
        """What a step that landed changed."""
        if report.operation in _PROGRAMS:
            mine = [path for path in report.affected if self._steps.last_on(path) == report.number]
            standing = sum(path in self._post and self._found(path) == self._post[path] for path in mine)
            return f"changed {counted(standing, 'path')}" if standing else "none"
        path = _result_path(report)
        found = self._found(path)
        before = self._pre.get(path, found)
        if found == before or report.operation == "read":
            return f"none: {described(found)}"
        if before is None:
            return f"created: {described(found)}"
        return f"{described(before)} → {described(found)}"


def described(image: Image | None) -> str:
    """An image in words."""
    if image is None:
        return "nothing"
    if image.kind == "symlink":
        return f"link to {printable(image.target)}"
    size = f", {counted(image.size, 'byte')}" if image.kind == "file" else ""
    return f"{image.kind}{size}, mode {image.mode:04o}"


def _planned(change_set: ChangeSet) -> Found:
    expected: dict[str, Image | None] = {read.path: read.image for read in change_set.reads}
    expected.update((change.path, change.post) for change in change_set.changes)
    return expected.get


def _named(report: StepReport) -> tuple[str, ...]:
    """The paths that a step is about."""
    if report.operation in _PROGRAMS:
        return report.affected
    return report.affected or (report.target,)


def _destination(report: StepReport) -> tuple[str, ...]:
    return report.affected[1:] if report.operation == "move" else ()


def _result_path(report: StepReport) -> str:
    """Where the work of a step is to be seen."""
    destination = _destination(report)
    return destination[0] if destination else report.target


def _wants(report: StepReport) -> Iterator[tuple[str, bool]]:
    """Each path that a step of its own speaks of, and whether something shall stand there."""
    if report.operation in _PROGRAMS:
        return
    destination = _destination(report)
    yield report.target, report.operation not in ("delete", "move")
    yield from ((path, True) for path in destination)
