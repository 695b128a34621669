"""holdfast log: what happened, newest first."""

from __future__ import annotations

import click

from holdfast.cli.documents import list_document, row_document
from holdfast.cli.moments import for_people
from holdfast.cli.opening import reading
from holdfast.cli.screen import shown
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count, state


@verb(name="log")
@click.option("--search", default="", metavar="TEXT", help="Only what has TEXT in its intent or id.")
@click.option("--limit", default=50, type=click.IntRange(min=1), metavar="N", help="At most N (50 unless told).")
def command(face: Face, search: str, limit: int) -> None:
    """List what happened, newest first."""
    with reading(face) as hf:
        found = hf.log(limit=limit + 1, search=search)
    rows = found[:limit]
    face.screen.answer(list_document([row_document(row) for row in rows]))
    for row in rows:
        intent = shown(row.intent.strip().partition("\n")[0])
        changes = count(row.changes, "change")
        line = f"{row.id}  {for_people(row.at_ns)[:16]}  {state(row):<11}  {changes:>10}  {intent}"
        face.screen.say(face.screen.fitted(line))
    if len(found) > limit:
        face.screen.note(f"There is more: holdfast log --limit {10 * limit}")
    if not rows:
        face.screen.say("Nothing found." if search else "Nothing has happened here yet.")
