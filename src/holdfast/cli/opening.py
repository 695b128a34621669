"""Open a workspace for a verb: repaired first, closed last, and safe when somebody presses Ctrl-C.

    reading    what a crash left is repaired if nobody else is at work and there is room; otherwise the verb only looks
    changing   the lock must be free (exit 9), what a crash left is repaired, and an interruption is rolled back

In `changing`, SIGTERM and SIGHUP count as Ctrl-C, and only the first of them does: a second one must not
interrupt the way back. Whatever stops even that is repaired by the next verb.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from holdfast.cli.screen import Screen
from holdfast.cli.verbs import Face
from holdfast.errors import HoldfastError, Interrupted, Locked, NeedsHuman
from holdfast.wiring import Holdfast
from holdfast.wiring import open as open_workspace

if TYPE_CHECKING:
    from holdfast.engine.pipeline import Progress
    from holdfast.workspace.recovery import Unsettled

_PATIENCE_S = 5.0


@contextmanager
def opened(face: Face, *, wait: float = 0.0, progress: Progress | None = None) -> Iterator[Holdfast]:
    """The workspace as it is; what its tables could not be used for is told at the end."""
    with open_workspace(wait=wait, progress=progress) as hf:
        try:
            yield hf
        finally:
            if hf.records.trouble:
                face.screen.note(hf.records.trouble)


@contextmanager
def reading(face: Face) -> Iterator[Holdfast]:
    with opened(face) as hf:
        _repair_if_there_is_room(face.screen, hf)
        yield hf


@contextmanager
def changing(face: Face) -> Iterator[Holdfast]:
    from holdfast.cli.progress import Progress as Bar

    progress = Bar(face.screen)
    with opened(face, wait=face.options.wait, progress=progress) as hf, _patient(face.screen):
        tell_recovery(face.screen, hf.recover())
        newest = _newest(hf)
        try:
            yield hf
        except KeyboardInterrupt:
            progress.clear()
            raise _interrupted(hf, newest) from None
        except OSError as error:
            raise _without_room(hf, newest, error) from error
        finally:
            progress.clear()


def _repair_if_there_is_room(screen: Screen, hf: Holdfast) -> None:
    """Looking writes nothing, and needs no room."""
    try:
        repair_if_free(screen, hf)
    except (HoldfastError, OSError) as error:
        from holdfast.cli.no_room import as_disk_full

        full = as_disk_full(error)
        if full is None:
            raise
        screen.note(f"{full.message}\nWhat was interrupted is repaired by the first verb that finds room.")


def repair_if_free(screen: Screen, hf: Holdfast) -> None:
    """A verb that only looks repairs too, but waits for nobody."""
    if not hf.needs_recovery():
        return
    try:
        tell_recovery(screen, hf.recover())
    except Locked:
        return  # somebody is at work: what looks unfinished is simply not finished
    except NeedsHuman as error:
        screen.note(f"{error.message}\n{error.hint}")


def tell_recovery(screen: Screen, found: Unsettled | None) -> None:
    if found is None:
        return
    screen.event("recovered", id=found.txn, outcome=found.outcome)
    screen.note(recovery_sentence(found))


def recovery_sentence(found: Unsettled) -> str:
    if found.outcome == "COMMITTED":
        return f"{found.txn} was interrupted after it had landed; its records are complete now."
    if found.left:
        return f"{found.txn} is closed: rolled back, but for what others changed, which stands; its old files are kept."
    return f"{found.txn} was interrupted; rolled back: the workspace is as before."


def _newest(hf: Holdfast) -> str:
    rows = hf.log(limit=1)
    return rows[0].id if rows else ""


def _interrupted(hf: Holdfast, newest: str) -> HoldfastError:
    """What the interruption came to, as the disk says it."""
    try:
        # A check that was just being started holds our lock too, until its program has begun or was killed.
        hf.recover(patience=_PATIENCE_S)
    except HoldfastError as error:
        return error
    rows = hf.log(limit=1)
    if not rows or rows[0].id == newest:
        return Interrupted("Interrupted.", hint="Nothing was changed.")
    id, status = rows[0].id, rows[0].status
    if status == "COMPLETED":
        hint = f"Undo with: holdfast undo {id}"
        return Interrupted(f"Interrupted, but {id} had landed already.", hint=hint, changed=True)
    return Interrupted("Interrupted.", hint=f"{id} was rolled back. The workspace is as before.")


def _without_room(hf: Holdfast, newest: str, error: OSError) -> OSError | HoldfastError:
    """A full disk, with the word that nothing was changed where the records prove it; anything else as it is."""
    from holdfast.cli.no_room import as_disk_full, nothing_changed

    full = as_disk_full(error)
    return nothing_changed(full) if full is not None and _nothing_landed(hf, newest) else error


def _nothing_landed(hf: Holdfast, newest: str) -> bool:
    """No execution was begun since: none is open, none is recorded. What cannot be asked is not known."""
    try:
        return not hf.needs_recovery() and _newest(hf) == newest
    except (HoldfastError, OSError):
        return False


@contextmanager
def _patient(screen: Screen) -> Iterator[None]:
    import signal  # not for verbs that only look

    caught = False

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal caught
        if caught:
            screen.note("Rolling back; a moment.")
            return
        caught = True
        raise KeyboardInterrupt

    # What is ignored (nohup, a shell's background job) stays ignored.
    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    heard = [number for number in signals if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, on_signal) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
