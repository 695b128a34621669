"""How an execution that did not land is told: what failed, what was proven, what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.cli.documents import execution_document
from holdfast.cli.screen import shown
from holdfast.cli.words import proven_as_before
from holdfast.errors import Conflict, HoldfastError, VerificationFailed
from holdfast.model.execution import result_word
from holdfast.model.path import printable

MOST_TOLD = 5

if TYPE_CHECKING:
    from holdfast.cli.screen import Screen
    from holdfast.model.execution import Execution
    from holdfast.wiring import Holdfast


@contextmanager
def telling_failure(screen: Screen, hf: Holdfast, moved: str = "") -> Iterator[None]:
    """Complete what is raised inside with what the execution came to; `moved`: what to do where others were quicker."""
    hf.last = None
    try:
        yield
    except HoldfastError as error:
        way_on = moved if isinstance(error, Conflict) and not error.hint else ""
        _tell(screen, hf, error)
        error.hint = " ".join(filter(None, (error.hint, way_on)))
        raise


def _tell(screen: Screen, hf: Holdfast, error: HoldfastError) -> None:
    if hf.last is not None:
        _complete(error, hf.last)
        screen.attach("execution", _document(hf, hf.last))


def _document(hf: Holdfast, execution: Execution) -> dict[str, object]:
    try:
        return execution_document(*hf.show(execution.id))
    except HoldfastError:  # not recorded: it waits for a person, or the records cannot be written or read
        return {"kind": "execution", "id": execution.id, "status": result_word(execution.status)}


def elsewhere(execution: Execution) -> list[str]:
    """What others changed meanwhile, in a line or a few, or why nobody looked: it is theirs, and decides nothing."""
    lines = [f"  ! {printable(item.path)} {shown(item.detail)}" for item in execution.divergence[:MOST_TOLD]]
    if len(execution.divergence) > MOST_TOLD:
        lines.append(f"  and {len(execution.divergence) - MOST_TOLD:,} more: holdfast show {execution.id}")
    if execution.not_looked_at:
        lines.append(f"  . what others changed meanwhile was not looked at: {shown(execution.not_looked_at)}")
    return lines


def _complete(error: HoldfastError, execution: Execution) -> None:
    if execution.status == "ROLLED_BACK":
        error.changed = False
        if any(not receipt.passed for receipt in execution.receipts):
            error.message = f"Health: {error.message}"
        proof = "\n".join([f"Rolled back: {proven_as_before(execution.proven)}.", *elsewhere(execution)])
        error.hint = "\n".join(filter(None, (proof, _what_was_said(error, execution), error.hint)))
    elif execution.status == "ABORTED":
        error.hint = f"{error.hint or 'Nothing was changed.'}\n{_what_was_said(error, execution)}".rstrip()
    elif execution.divergence:
        error.changed = True
        names = "\n".join(f"  {printable(item.path)} {item.detail}" for item in execution.divergence)
        error.message = f"{error.message}\n{names}"


def _what_was_said(error: HoldfastError, execution: Execution) -> str:
    if isinstance(error, VerificationFailed) and execution.receipts:
        return f"What the checks said: holdfast show {execution.id} --log"
    return ""
