"""holdfast audit: is the ledger what was written, and do its decisions still follow from their inputs?"""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.opening import opened, repair_if_free
from holdfast.cli.verbs import Face, global_options, verb
from holdfast.cli.words import count
from holdfast.errors import HoldfastError, Tampering

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
            hint=f"Good before that: {count(found.count, 'record')}. {found.hint or 'Compare with a backup.'}",
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


command.add_command(verify)
command.add_command(replay)
