"""holdfast audit: is the ledger what was written, and do its decisions still follow from their inputs?"""

from __future__ import annotations

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

_ON = "Restore the state from a backup, or go on all the same: holdfast audit accept"
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
        workspace = hf.id
    if not found.ok:
        screen.attach("verification", asdict(found))
        raise Tampering(
            f"Tampering ({found.problem}): {found.message}",
            hint=f"Good before that: {count(found.count, 'record')}. {found.hint or _ON}",
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
        lines = "\n".join(f"  {item.id}: {item.verdict}" for item in different)
        raise Tampering(f"{count(len(different), 'decision')} came out otherwise:\n{lines}")
    screen.answer({"kind": "list", "items": items})
    rest = f"; the inputs of {gone} are gone" if gone else ""
    screen.say(f"{count(len(found) - gone, 'decision')} replayed to the same verdict{rest}.")


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
