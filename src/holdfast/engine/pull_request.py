"""What a branch holds, in words for whoever reviews it: tasks, receipts, and what no check says works.

Everything comes from the commits, and from the ledger of the branch; nothing is believed of an agent's words. What
others wrote stands in code spans: it mentions nobody, and links nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.engine.checking import why_unverified
from holdfast.engine.pipeline import Pipeline
from holdfast.errors import HoldfastError, UnknownId
from holdfast.model.canonical import Json
from holdfast.model.saved_simulation import receipt_from
from holdfast.workspace.branch_merge import Incoming
from holdfast.workspace.trailers import one_line, trailer

_MOST_COMMITS = 500
_LONGEST = 200


class Review(NamedTuple):
    title: str
    body: str


class _Entry(NamedTuple):
    commit: str
    title: str
    task: str
    # What passed, as it is told everywhere.
    checks: tuple[str, ...]
    unverified: str


def review_of(pipeline: Pipeline | None, name: str, commits: Sequence[Incoming]) -> Review:
    """`pipeline` is of the branch; None where Holdfast keeps none, and then nothing there was checked by it."""
    entries = [_entry(pipeline, commit) for commit in reversed(commits[:_MOST_COMMITS])]
    tasks = [entry for entry in entries if entry.task]
    what = f"{len(tasks)} tasks" if len(tasks) > 1 else entries[-1].title if entries else "nothing"
    return Review(f"{name}: {what}"[:_LONGEST], "\n".join(_lines(entries, len(commits))) + "\n")


def _lines(entries: Sequence[_Entry], commits: int) -> Iterator[str]:
    yield "## What is in it"
    yield ""
    for entry in entries:
        yield f"- {entry.commit[:12]} {_code(entry.title)}{f' (task {_code(entry.task)})' if entry.task else ''}"
    if commits > len(entries):
        yield f"- and {commits - len(entries):,} commits before"
    yield ""
    yield "## What was checked"
    yield ""
    checked = [entry for entry in entries if entry.checks]
    for entry in checked:
        yield f"- {entry.commit[:12]}: {', '.join(map(_code, entry.checks))}"
    if not checked:
        yield "Nothing."
    yield ""
    yield "## What was not verified"
    yield ""
    doubtful = [entry for entry in entries if entry.unverified]
    for entry in doubtful:
        yield f"- {entry.commit[:12]} {_code(entry.title)}: {_code(entry.unverified)}"
    if not doubtful:
        yield "Nothing: a check that Holdfast ran passed over each of these commits when it landed."


def _entry(pipeline: Pipeline | None, commit: Incoming) -> _Entry:
    title = one_line(commit.message.partition("\n")[0], _LONGEST)
    execution = trailer(commit.message, "Holdfast-Execution")
    task = one_line(trailer(commit.message, "Holdfast-Task"), _LONGEST)
    receipts = _receipts(pipeline, execution) if pipeline is not None and execution else None
    if receipts is None:
        return _Entry(commit.id, title, task, (), "not landed by Holdfast here, so nothing is known of its checks")
    passed = [str(row["detail"]) for row in receipts if row["passed"] and not row.get("unverified")]
    why = one_line(trailer(commit.message, "Holdfast-Unverified"), _LONGEST)
    undo = trailer(commit.message, "Holdfast-Undoes")
    doubt = why_unverified(map(receipt_from, receipts))
    unverified = why or ("an undo, which runs no checks" if undo and doubt else doubt)
    return _Entry(commit.id, title, task, tuple(dict.fromkeys(passed)), unverified)


def _receipts(pipeline: Pipeline, execution: str) -> list[dict[str, Json]] | None:
    """None where the ledger of this branch does not know it: a trailer alone proves nothing."""
    try:
        document = pipeline.records.execution(execution)[1]
    except (UnknownId, HoldfastError):
        return None
    rows = document.get("receipts") if document is not None else None
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else None


def _code(text: str) -> str:
    return f"`{one_line(text, _LONGEST).replace('`', chr(39)) or ' '}`"
