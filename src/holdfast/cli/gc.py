"""holdfast gc: forget old files that undo no longer needs."""

from __future__ import annotations

import click

from holdfast.cli.opening import changing
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count, size


@verb(name="gc")
@click.option("--keep-days", default=30, type=click.IntRange(min=0), metavar="N", help="Keep N days (30 unless told).")
def command(face: Face, keep_days: int) -> None:
    """Forget old files past keeping: of executions, of kept plans and simulations.

    The ten newest executions stay, whatever their age, and so does what was approved and still waits to land.
    A simulation that landed, was rejected or denied, or was left by a process that died, goes at any age.
    Nothing is taken from a command that is running.
    """
    with changing(face) as hf:
        done = hf.gc(keep_days=keep_days)
        workspace = hf.id
    face.screen.answer({"kind": "gc", "id": workspace, "status": "done", **done._asdict()})
    kept = count(done.papers, "kept plan or simulation", "kept plans and simulations")
    papers = f" and {kept}" if done.papers else ""
    face.screen.say(
        f"Forgot {count(len(done.forgotten), 'execution')}{papers}, packed {count(done.packed, 'old file')}, "
        f"freed {size(done.bytes)}."
    )
