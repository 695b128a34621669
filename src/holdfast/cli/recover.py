"""holdfast recover: repair what a crash left, and say what that was."""

from __future__ import annotations

import click

from holdfast.cli.closed import Closed, closed_as_failed
from holdfast.cli.opening import opened, recovery_sentence
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.model.path import printable


@verb(name="recover")
@click.option("--accept", is_flag=True, help="Keep what others changed as it stands, and close the matter.")
def command(face: Face, accept: bool) -> None:
    """Repair what a crash left. Every other verb does this too, before its own work."""
    with opened(face, wait=face.options.wait) as hf:
        found = hf.recover(accept=accept)
        workspace, closed = hf.id, closed_as_failed(hf)
    if found is None:
        failed = closed.document() if closed is not None else None
        face.screen.answer({"kind": "recovery", "id": workspace, "status": "clean", "closed_as_failed": failed})
        _tell_nothing(face.screen, closed)
        return
    status = "finished" if found.outcome == "COMMITTED" else "accepted" if found.left else "rolled_back"
    left = [item._asdict() for item in found.left]
    face.screen.answer({"kind": "recovery", "id": found.txn, "status": status, "left": left})
    face.screen.say(recovery_sentence(found))
    for item in found.left:
        face.screen.say(f"  . {printable(item.path)} {shown(item.detail)}")


def _tell_nothing(screen: Screen, closed: Closed | None) -> None:
    if closed is None:
        screen.say("Nothing to recover: the last change ended properly.")
        return
    screen.say(
        f"Nothing to recover: the last change, {closed.id}, is closed as FAILED. What it left is yours to put right:"
    )
    for line in closed.lines():
        screen.say(f"  . {line}")
