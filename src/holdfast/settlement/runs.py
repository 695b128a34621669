"""Runs and tasks as ledger entries: every move of a task, with what it rests on.

    {"kind": "run",  …}   a run began, was stopped, went on, ended
    {"kind": "task", …}   one task moved; `tried` is the attempt that ended, if one did
    {"kind": "answer", …} a person said yes or no to one question about a task: `question` and `simulation` name it

The tables are folded from these entries, one after the other; a move that the table of states does not know is a
mistake of ours or an edited ledger, and is never projected. A field that an entry does not have was not there yet when
it was written, and stays as it was. Words are bounded: some of them are a worker's.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import Tampering
from holdfast.model.agent import Usage
from holdfast.model.canonical import Json, whole_characters
from holdfast.model.configuration import Budget
from holdfast.model.run import RunOptions, RunRecord
from holdfast.model.task import MOVES, TaskRecord, TaskState, Tried
from holdfast.settlement.log_rows import log_rows
from holdfast.store.chain import Entry
from holdfast.store.database import Records
from holdfast.store.runs import NO_QUESTION, RunRow, Runs, Said, TaskRow

RUN, TASK, ANSWER = "run", "task", "answer"
VERSION = 1
_LONGEST = 4_000
# Everything that an entry says about a task besides its attempts; the next entry says it again.
_FIELDS = tuple(name for name in TaskRecord._fields if name not in ("run", "task", "tried", "usage", "at_ns"))


def run_body(record: RunRecord) -> dict[str, Json]:
    options = record.options
    return {
        **_plain(record._asdict()),
        "version": VERSION,
        "options": {**_plain(options._asdict()), "budget": dict(options.budget._asdict())},
        "because": _short(record.because),
    }


def run_from(body: Mapping[str, Json]) -> RunRecord:
    known = {name: value for name, value in body.items() if name in RunRecord._fields}
    given = body.get("options")
    options = dict(given) if isinstance(given, dict) else {}
    budget = options.pop("budget", None)
    made = RunOptions(**{name: _frozen(value) for name, value in options.items()})  # type: ignore[arg-type]
    if isinstance(budget, dict):
        made = made._replace(budget=Budget(**budget))  # type: ignore[arg-type]
    return RunRecord(**{**known, "options": made})  # type: ignore[arg-type]


def task_body(record: TaskRecord, tried: Tried | None = None) -> dict[str, Json]:
    """The record after its move; of the attempts only the newest, the others are in earlier entries."""
    fields = {name: getattr(record, name) for name in _FIELDS}
    return {
        "version": VERSION,
        "run": record.run,
        "task": record.task,
        **_worded(fields),
        "usage": dict(record.usage._asdict()),
        "tried": _tried(tried) if tried is not None else None,
    }


def answer_body(said: Said) -> dict[str, Json]:
    return {"version": VERSION, **_plain(said._asdict()), "reason": _short(said.reason)}


def _said(body: Mapping[str, Json], at_ns: int) -> Said:
    question = body.get("question")
    return Said(
        str(body["run"]), str(body["task"]), body["yes"] is True, body["skip"] is True, str(body["by"]),
        str(body["reason"]), at_ns, question if type(question) is int else NO_QUESTION, str(body.get("simulation", "")),
    )  # fmt: skip


def folded(before: TaskRecord, body: Mapping[str, Json], at_ns: int, *, lenient: bool = False) -> TaskRecord:
    """The record after this entry; Tampering when its state does not lead there, unless `lenient`: each entry says
    everything about its task but the attempts before it."""
    state = str(body["state"])
    if not lenient and state != before.state and state not in MOVES[before.state]:
        raise Tampering(f"task {before.task} moved from {before.state} to {state}, which no task does")
    fields = {name: body[name] for name in _FIELDS if name in body}
    found = before._replace(**fields, usage=_usage(body["usage"]), at_ns=at_ns)  # type: ignore[arg-type]
    tried = body.get("tried")
    return found._replace(tried=(*before.tried, _tried_from(tried))) if isinstance(tried, dict) else found


def project_run(records: Records, entry: Entry, *, lenient: bool = False) -> bool:
    """A ledger entry as a row; False when it is of another kind. `lenient`: entries before it may be missing."""
    if entry.kind not in (RUN, TASK, ANSWER):
        return False
    runs = Runs(records)
    if not runs.exist():
        runs.prepare()
    log_rows(records, entry)
    records.dependably(lambda: _project(records, runs, entry, lenient))
    return True


def _project(records: Records, runs: Runs, entry: Entry, lenient: bool) -> None:
    """The row and the mark together: an entry that is folded twice would count its attempt twice."""
    with records.connection as transaction:
        transaction.execute("BEGIN IMMEDIATE")
        if entry.seq <= records.projected:
            return
        if entry.kind == RUN:
            body = entry.body
            runs.save_run(RunRow(str(body["id"]), str(body["roadmap"]), str(body["state"]), entry.at_ns, body))
        elif entry.kind == ANSWER:
            runs.save_answer(_said(entry.body, entry.at_ns))
        else:
            before = task_record(runs, str(entry.body["run"]), str(entry.body["task"]))
            record = folded(before, entry.body, entry.at_ns, lenient=lenient)
            agent = record.agent or (record.tried[-1].agent if record.tried else "")
            runs.save_task(TaskRow(record.run, record.task, record.state, agent, record.at_ns, _document(record)))
        records.mark_projected(entry.seq)


def task_record(runs: Runs, run: str, task: str) -> TaskRecord:
    row = runs.task(run, task)
    return TaskRecord(run, task) if row is None else _from_document(row.document)


def task_records(runs: Runs, run: str) -> dict[str, TaskRecord]:
    return {row.task: _from_document(row.document) for row in runs.tasks(run)}


def newest_records(runs: Runs, roadmap: str, state: TaskState, but: str = "") -> list[TaskRecord]:
    """Of the tasks that moved into this state last, in whichever run over that roadmap but this one, how they stand."""
    return [_from_document(row.document) for row in runs.newest(roadmap, state, but)]


def _document(record: TaskRecord) -> dict[str, Json]:
    tried: list[Json] = [_tried(one) for one in record.tried]
    return {**_plain(record._asdict()), "usage": dict(record.usage._asdict()), "tried": tried}


def _from_document(document: Mapping[str, Json]) -> TaskRecord:
    rows = document["tried"]
    tried = tuple(_tried_from(row) for row in rows if isinstance(row, dict)) if isinstance(rows, list) else ()
    known = {name: value for name, value in document.items() if name in TaskRecord._fields}
    return TaskRecord(**{**known, "usage": _usage(document["usage"]), "tried": tried})  # type: ignore[arg-type]


def _tried(tried: Tried) -> dict[str, Json]:
    return {**_worded(tried._asdict()), "usage": dict(tried.usage._asdict())}


def _tried_from(row: Mapping[str, Json]) -> Tried:
    return Tried(**{**row, "usage": _usage(row["usage"])})  # type: ignore[arg-type]


def _usage(value: Json) -> Usage:
    return Usage(**value) if isinstance(value, dict) else Usage()  # type: ignore[arg-type]


def _worded(fields: Mapping[str, object]) -> dict[str, Json]:
    return {name: _short(value) if isinstance(value, str) else value for name, value in _plain(fields).items()}


def _short(text: str) -> str:
    return whole_characters(text[:_LONGEST])


def _frozen(value: Json) -> object:
    return tuple(value) if isinstance(value, list) else value


def _plain(fields: Mapping[str, object]) -> dict[str, Json]:
    """Tuples of words as lists; everything else is JSON already, or is put in by the caller."""
    return {
        name: list(value) if type(value) is tuple else value  # type: ignore[misc]
        for name, value in fields.items()
        if not (isinstance(value, tuple) and hasattr(value, "_asdict"))
    }
