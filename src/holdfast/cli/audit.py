"""holdfast audit: is the ledger what was written, and do its decisions still follow from their inputs?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli.opening import opened, repair_if_free
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, global_options, verb
from holdfast.cli.words import count
from holdfast.errors import ApprovalNeeded, HoldfastError, Tampering

if TYPE_CHECKING:
    from holdfast.engine.breaks import Break
    from holdfast.engine.replay import Replay

_ON = "Restore the state from a backup, or go on all the same: holdfast audit accept"
_MOST_ROWS = 5
command = click.Group(
    "audit", help="Check the ledger, and decide again what was decided.", no_args_is_help=False, params=global_options()
)


@verb(name="verify")
def verify(face: Face) -> None:
    """Check every record against the chain, the key and the anchor; say where it was touched."""
    screen = face.screen
    with opened(face) as hf:
        try:
            repair_if_free(screen, hf)
        except HoldfastError as error:
            screen.note(error.message)  # the verdict below says it with the place
        found = hf.audit()
        rows = hf.rows_unlike_the_ledger() if found.ok else []
        workspace = hf.id
    if not found.ok:
        screen.attach("verification", asdict(found))
        raise Tampering(
            f"Tampering ({found.problem}): {found.message}",
            hint=f"Good before that: {count(found.count, 'record')}. {found.hint or _ON}",
        )
    if rows:
        screen.attach("rows", rows)
        named = ", ".join(shown(row) for row in rows[:_MOST_ROWS]) + (" …" if len(rows) > _MOST_ROWS else "")
        raise Tampering(
            f"Tampering (tables): the ledger is whole, but {count(len(rows), 'row')} of holdfast.db "
            f"{'says' if len(rows) == 1 else 'say'} otherwise: {named}",
            hint="An edited row makes nothing land. To have the tables made again from the ledger: "
            "mv .holdfast/holdfast.db .holdfast/holdfast.db.edited",
        )
    screen.answer({"kind": "verification", "id": workspace, "status": "ok", **asdict(found)})
    screen.say(f"The ledger is whole: {found.message}.")


@verb(name="replay")
def replay(face: Face) -> None:
    """Decide again everything that was decided, from the inputs that the ledger vouches for."""
    from holdfast.engine.replay import replay_all

    screen = face.screen
    with opened(face) as hf:
        repair_if_free(screen, hf)
        found = replay_all(hf.site, hf.ledger)
    different = [item for item in found if item.verdict not in ("same", "inputs gone")]
    gone = sum(item.verdict == "inputs gone" for item in found)
    items = [item._asdict() for item in found]
    if different:
        screen.attach("decisions", items)
        told = (_told([item for item in different if item.decided is decided], decided) for decided in (True, False))
        raise Tampering("\n".join(filter(None, told)))
    screen.answer({"kind": "list", "items": items})
    rest = f"; the inputs of {gone} are gone" if gone else ""
    screen.say(f"{count(len(found) - gone, 'decision')} replayed to the same verdict{rest}.")


def _told(found: Sequence[Replay], decided: bool) -> str:
    """Nothing where there are none."""
    said = "came out otherwise" if decided else "could not be decided again"
    lines = [f"  {item.id}: {item.verdict}" for item in found]
    return "\n".join([f"{count(len(found), 'decision')} {said}:", *lines]) if found else ""


@verb(name="accept")
@click.option("--break", "typed", default="", metavar="ID", help="The id of the break, typed; --yes does not exist.")
def accept(face: Face, typed: str) -> None:
    """Go on over a broken ledger: record the break, keep what is proven, and anchor it anew."""
    screen = face.screen
    with opened(face, wait=face.options.wait) as hf:
        found = hf.find_break()
        if found is None:
            screen.answer({"kind": "break", "id": hf.id, "status": "whole"})
            screen.say("The ledger is whole: there is nothing to accept.")
            return
        _show(screen, found)
        if not typed and screen.can_ask():
            typed = screen.ask(f"Type {found.id} to accept exactly this, anything else stops:")
        if typed != found.id:
            what = f"{shown(typed)} is not this break's id" if typed else "a broken ledger is accepted by typing its id"
            raise ApprovalNeeded(
                what, hint=f"Nothing was changed. Accept it with: holdfast audit accept --break {found.id}"
            )
        hf.accept_break(found.id)
    screen.answer({"kind": "break", "status": "accepted", **_document(found)})
    screen.say(f"Accepted: the ledger goes on with {count(len(found.before) + len(found.after), 'proven record')}.")
    screen.say(f"The old file is kept as .holdfast/ledger.{found.id}.jsonl.")


def _show(screen: Screen, found: Break) -> None:
    proven = len(found.before) + len(found.after)
    screen.say(f"Broken     {shown(found.message)}")
    screen.say(f"Proven     {count(proven, 'record')}; they stay. What is not proven goes.")
    if found.rebuilt:
        names = ", ".join(kept.txn for kept in found.rebuilt)
        screen.say(f"Kept       {names}: landed, without a proven record; recorded again, so that undo works")
    screen.say("Approvals  none given so far counts any more")


def _document(found: Break) -> dict[str, object]:
    return {
        "id": found.id,
        "message": found.message,
        "proven": len(found.before) + len(found.after),
        "rebuilt": [kept.txn for kept in found.rebuilt],
    }


command.add_command(verify)
command.add_command(accept)
command.add_command(replay)
