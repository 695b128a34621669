"""holdfast log: what happened, newest first."""

from __future__ import annotations

from collections.abc import Mapping

import click

from holdfast.cli.documents import list_document, row_document
from holdfast.cli.moments import for_people, for_programs
from holdfast.cli.opening import reading
from holdfast.cli.screen import shown
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count, state, unverified
from holdfast.store.database import Row
from holdfast.store.log_tables import DelegationRow


@verb(name="log")
@click.option("--search", default="", metavar="TEXT", help="Only what has TEXT in its intent or id.")
@click.option("--limit", default=50, type=click.IntRange(min=1), metavar="N", help="At most N (50 unless told).")
def command(face: Face, search: str, limit: int) -> None:
    """List what happened, newest first: what was carried out, and what agents tried and did not do."""
    with reading(face) as hf:
        rows: list[Row | DelegationRow] = [*hf.log(limit=limit + 1, search=search)]
        rows += hf.failed_delegations(limit=limit + 1, search=search)
        doubts = hf.unverified(*(row.at_ns for row in rows))
    rows.sort(key=lambda row: row.at_ns, reverse=True)
    told = rows[:limit]
    face.screen.answer(list_document([_document(row, doubts) for row in told]))
    for row in told:
        face.screen.say(face.screen.fitted(_line(row, doubts)))
    if len(rows) > limit:
        face.screen.note(f"There is more: holdfast log --limit {10 * limit}")
    if not told:
        face.screen.say("Nothing found." if search else "Nothing has happened here yet.")


def _line(row: Row | DelegationRow, doubts: Mapping[str, str]) -> str:
    when = for_people(row.at_ns)[:16]
    if isinstance(row, Row):
        intent = shown(row.intent.strip().partition("\n")[0])
        told = "  ".join(filter(None, (unverified(doubts.get(row.id, "")), intent)))
        return f"{row.id}  {when}  {state(row):<11}  {count(row.changes, 'change'):>10}  {told}"
    agent, task = shown(row.adapter_id), shown(row.task.strip().partition("\n")[0])
    return f"{row.id}  {when}  {'not done':<11}  {count(0, 'change'):>10}  {task} ({agent}: {shown(_why(row))})"


def _why(row: DelegationRow) -> str:
    return row.error.strip().partition("\n")[0]


def _document(row: Row | DelegationRow, doubts: Mapping[str, str]) -> dict[str, object]:
    if isinstance(row, Row):
        return {**row_document(row), "unverified": doubts.get(row.id, "")}
    return {
        "kind": "delegation",
        "id": row.id,
        "status": "NOT_GOOD",
        "at": for_programs(row.at_ns),
        "agent": row.adapter_id,
        "task": row.task,
        "because": row.error,
        "plan_id": row.plan_id,
        "run_id": row.run_id or None,
        "task_id": row.task_id or None,
    }
