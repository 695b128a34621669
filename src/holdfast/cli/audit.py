"""holdfast audit verify: is the ledger what was written?"""

from __future__ import annotations

from dataclasses import asdict

import click

from holdfast.cli.opening import repair_if_free
from holdfast.cli.verbs import Face, global_options, verb
from holdfast.cli.words import count
from holdfast.errors import HoldfastError, Tampering
from holdfast.wiring import open as open_workspace

command = click.Group("audit", help="Check the ledger.", no_args_is_help=False, params=global_options())


@verb(name="verify")
def verify(face: Face) -> None:
    """Check every record against the chain, the key and the anchor; say where it was touched."""
    screen = face.screen
    with open_workspace() as hf:
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


command.add_command(verify)
