"""holdfast gc: forget old files that undo no longer needs."""

from __future__ import annotations

import click

from holdfast.cli.opening import changing
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count, size


@verb(name="gc")
@click.option("--keep-days", default=30, type=click.IntRange(min=0), metavar="N", help="Keep N days (30 unless told).")
def command(face: Face, keep_days: int) -> None:
    """Forget the old files of executions past keeping. The ten newest stay, whatever their age."""
    with changing(face) as hf:
        done = hf.gc(keep_days=keep_days)
        workspace = hf.id
    face.screen.answer({"kind": "gc", "id": workspace, "status": "done", **done._asdict()})
    face.screen.say(
        f"Forgot {count(len(done.forgotten), 'execution')}, packed {count(done.packed, 'old file')}, "
        f"freed {size(done.bytes)}."
    )
