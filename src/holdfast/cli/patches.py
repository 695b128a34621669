"""holdfast patches: which patches there are, where each stands, and what a person decides about one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.moments import for_people, for_programs
from holdfast.cli.opening import changing, reading
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count
from holdfast.errors import ApprovalNeeded, Blocked, InvalidInput, UnknownId

if TYPE_CHECKING:
    from holdfast.model.patch_state import Standing
    from holdfast.wiring import Holdfast

_ACTIONS = ("list", "show", "release", "drop")
_LIST = "List them with: holdfast patches"
_QUESTIONS = {"release": "Let this patch be tried again?", "drop": "Drop this patch for good?"}


@verb(name="patches")
@click.argument("action", type=click.Choice(_ACTIONS), default="list")
@click.argument("id", required=False)
@click.option("--reason", default="", help="Why; it is recorded with your name.")
@click.option("--yes", is_flag=True, help="Give this user's consent to this call.")
def command(face: Face, action: str, id: str | None, reason: str, yes: bool) -> None:
    """List the patches; show one with its history; release one from quarantine; drop one.

    What a person decides about a patch is recorded with that person's name; an agent cannot decide.
    """
    if action == "list":
        if id is not None:
            raise InvalidInput("list takes no id", hint=f"Show one with: holdfast patches show {shown(id)}")
        with reading(face) as hf:
            _settle(face.screen, hf)
            _tell_all(face.screen, hf.patches.history.standings())
        return
    if id is None:
        raise InvalidInput(f"{action} needs the id of a patch", hint=_LIST)
    if action == "show":
        with reading(face) as hf:
            _settle(face.screen, hf)
            show_patch(face.screen, hf, _patch(hf, id))
        return
    with changing(face) as hf:
        _decide(face.screen, hf, _patch(hf, id), action, reason, yes=yes)


def _settle(screen: Screen, hf: Holdfast) -> None:
    """A look works on a full disk too; then it says that it may be behind."""
    try:
        hf.patches.settle()
    except (OSError, Blocked) as error:
        screen.note(f"The ledger of patches may be behind the executions: {error}")


def _patch(hf: Holdfast, id: str) -> str:
    try:
        found = hf.resolve(id)
    except UnknownId as error:
        raise UnknownId(error.message, hint=_LIST) from None
    if not found.startswith("x-"):
        raise InvalidInput(f"{found} is no patch", hint=_LIST)
    return found


def _decide(screen: Screen, hf: Holdfast, patch: str, action: str, reason: str, *, yes: bool) -> None:
    if not yes:
        _tell(screen, hf.patches.history.standing(patch))
        if not screen.can_ask():
            raise ApprovalNeeded(
                "consent is needed, and there is no terminal to ask on",
                hint="Nothing was changed. Give consent to this call with: --yes",
            )
        if screen.ask(f"{_QUESTIONS[action]} [y/N]") not in ("y", "yes"):
            raise ApprovalNeeded("You did not say yes.", hint="Nothing was changed.")
    decided = hf.patches.release(patch, reason=reason) if action == "release" else hf.patches.drop(patch, reason=reason)
    screen.answer(_document(decided))
    word = "released; it is judged anew when it is applied" if action == "release" else "dropped"
    screen.say(f"{patch} is {word}. Recorded with your name: {shown(decided.by)}")


def _document(standing: Standing) -> dict[str, object]:
    row = {name: value for name, value in standing._asdict().items() if name not in ("patch", "state", "at_ns")}
    return {
        "kind": "patch",
        "id": standing.patch,
        "status": standing.state.upper(),
        "at": for_programs(standing.at_ns),
        **row,
        "paths": list(standing.paths),
    }


def _tell_all(screen: Screen, standings: tuple[Standing, ...]) -> None:
    screen.answer({"kind": "list", "items": [_document(standing) for standing in reversed(standings)]})
    for standing in reversed(standings):
        _tell(screen, standing)
    if not standings:
        screen.say("No patch was applied here yet. Apply one with: holdfast apply FILE")


def _tell(screen: Screen, standing: Standing) -> None:
    files = count(len(standing.paths), "path")
    why = f"  {shown(standing.reason.partition(chr(10))[0])}" if standing.reason else ""
    screen.say(
        f"{standing.patch}  {standing.state:<12}  {for_people(standing.at_ns)}  {files}  {shown(standing.source)}{why}"
    )


def show_patch(screen: Screen, hf: Holdfast, patch: str) -> None:
    """Its moves, and its text."""
    moves = hf.patches.history.history(patch)
    text = hf.patches.history.text(patch).decode("utf-8", "backslashreplace")
    moments = [_document(move) for move in moves]
    screen.answer({**_document(moves[-1]), "history": moments, "diff": text})
    for move in moves:
        by = f" by {shown(move.by)}" if move.by else ""
        done = f"  {move.execution}" if move.execution else ""
        why = f"  {shown(move.reason.partition(chr(10))[0])}" if move.reason else ""
        screen.say(f"{for_people(move.at_ns)}  {move.state}{by}{done}{why}")
    for line in text.rstrip("\n").split("\n"):
        screen.say("  " + shown(line))
