"""Consent: a person says yes to exactly what was shown, or nothing happens.

    --yes ............................ yes, for this call only
    a terminal on both ends .......... the question; d shows the differences and asks again
    anything else .................... exit 3, nothing was changed

There is no environment variable and no setting that says yes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.patch import painted, patch
from holdfast.cli.screen import Screen
from holdfast.cli.summary import note_lines
from holdfast.errors import ApprovalNeeded

if TYPE_CHECKING:
    from holdfast.engine.difference import Difference

_MOST_DIFF_LINES = 2000


def require_consent(screen: Screen, question: str, difference: Difference, *, yes: bool) -> None:
    """Return when there is consent; ApprovalNeeded otherwise."""
    if yes:
        return
    if not screen.can_ask():
        raise ApprovalNeeded(
            "consent is needed, and there is no terminal to ask on",
            hint="Nothing was changed. Give consent to this call with: --yes",
        )
    while True:
        reply = screen.ask(f"{question} [y/N/d(iff)]")
        if reply in ("d", "diff"):
            show_difference(screen, difference, _MOST_DIFF_LINES)
        elif reply in ("y", "yes"):
            return
        else:
            raise ApprovalNeeded("You did not say yes.", hint="Nothing was changed.")


def show_difference(screen: Screen, difference: Difference, most_lines: int = 0) -> None:
    """What to know about it, then every path, line by line; with `most_lines`, a word about the rest."""
    said = 0
    for line in note_lines(difference.notes, most_lines or len(difference.notes)):
        screen.say(line)
    origins = {change.origin for change in difference.changes} - {None}
    # A move is told once, where the file arrives.
    told = [change for change in difference.changes if change.path not in origins or change.post is not None]
    for compared in difference.compared(told):
        for line in painted(screen, patch(compared)):
            if most_lines and said == most_lines:
                screen.say("… and more; all of it: holdfast diff")
                return
            screen.say(line)
            said += 1
