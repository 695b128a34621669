"""Open a workspace for a verb: repaired first, closed last, and safe when somebody presses Ctrl-C.

    reading    what a crash left is repaired if nobody else is at work and there is room; otherwise the verb only looks
    changing   the lock must be free (exit 9), what a crash left is repaired, and an interruption is rolled back

In `changing`, SIGTERM and SIGHUP count as Ctrl-C, and only the first of them does: a second one must not
interrupt the way back. Whatever stops even that is repaired by the next verb.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face
from holdfast.cli.words import proven_as_before
from holdfast.errors import HoldfastError, Interrupted, Locked, NeedsHuman, Tampering, UnknownId
from holdfast.wiring import Holdfast
from holdfast.wiring import open as open_workspace

if TYPE_CHECKING:
    from holdfast.engine.pipeline import Progress
    from holdfast.store.database import Row
    from holdfast.workspace.recovery import Unsettled

_PATIENCE_S = 5.0
# How an execution ends that leaves the workspace as it was.
_AS_BEFORE = ("ABORTED", "ROLLED_BACK")


@contextmanager
def opened(face: Face, *, wait: float = 0.0, progress: Progress | None = None) -> Iterator[Holdfast]:
    """The workspace as it is; what its tables could not be used for is told at the end."""
    with _workspace(face, wait, progress) as hf, _told_truly(face.screen, hf):
        try:
            yield hf
        except KeyboardInterrupt:
            raise _interrupted(hf) from None
        finally:
            if hf.records.trouble:
                face.screen.note(hf.records.trouble)


@contextmanager
def _workspace(face: Face, wait: float, progress: Progress | None) -> Iterator[Holdfast]:
    """The one around here, or that of the branch that was asked for, which some verbs begin."""
    from holdfast.cli.branch_told import HERE, branch_asked, is_about_runs, opened_branch

    if face.options.branch == HERE or not (face.options.branch or is_about_runs()):
        with open_workspace(wait=wait, progress=progress) as hf:
            try:
                yield hf
            except UnknownId as error:
                error.hint += _on_branches(hf)
                raise
        return
    with open_workspace(wait=wait, progress=progress) as home:
        name = branch_asked(face, home)
        if not name:
            yield home
            return
        with opened_branch(face, home, name, wait, progress) as hf:
            yield hf


def _on_branches(hf: Holdfast) -> str:
    """Where else an id may be known."""
    names = hf.branches()
    return "".join(f"\nOn the branch {shown(name)}: holdfast --branch {shlex.quote(name)} log" for name in names)


@contextmanager
def _told_truly(screen: Screen, hf: Holdfast) -> Iterator[None]:
    """An error that nobody foresaw knows nothing of what was changed before it; the records do."""
    try:
        yield
    except HoldfastError:
        raise
    except Exception:
        screen.unsettled = not _nothing_landed(hf)
        raise


@contextmanager
def reading(face: Face) -> Iterator[Holdfast]:
    with opened(face) as hf:
        _repair_if_there_is_room(face.screen, hf)
        _tell_break(face.screen, hf)
        yield hf


def _tell_break(screen: Screen, hf: Holdfast) -> None:
    """Looking goes on over a broken ledger, and says so."""
    try:
        hf.require_whole_ledger()
    except Tampering as error:
        screen.note(f"{error.message}\n{error.hint}")


@contextmanager
def changing(face: Face) -> Iterator[Holdfast]:
    from holdfast.cli.progress import Progress as Bar

    progress = Bar(face.screen)
    # Around both: a second Ctrl-C must not interrupt the way back.
    with _patient(face.screen), opened(face, wait=face.options.wait, progress=progress) as hf:
        tell_recovery(face.screen, hf.recover())
        hf.require_whole_ledger()  # at once, and not after the work of an hour
        try:
            yield hf
        except OSError as error:
            raise _without_room(hf, error) from error
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
    try:
        if not hf.needs_recovery():
            return
        tell_recovery(screen, hf.recover())
    except Tampering as error:
        screen.note(f"{error.message}\n{error.hint}")
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
    proof = f": {proven_as_before(found.proven)}" if found.proven else ""  # a journal of the first release counts none
    return f"{found.txn} was not finished; rolled back{proof}."


def _interrupted(hf: Holdfast) -> HoldfastError:
    """What became of the executions that this process began, as the disk says it; others have theirs."""
    if not hf.begun:
        return Interrupted("Interrupted.", hint="Nothing was changed.")
    try:
        # A check that was just being started holds our lock too, until its program has begun or was killed.
        hf.recover(patience=_PATIENCE_S)
    except HoldfastError as error:
        # Whoever has the lock now has settled ours first.
        if not isinstance(error, Locked) or not _is_settled(hf):
            return error
    rows = _begun(hf)
    landed = [row.id for row in rows if row.live]
    if landed:
        hint = f"Undo with: holdfast undo {landed[-1]}"
        return Interrupted(f"Interrupted, but {', '.join(landed)} had landed already.", hint=hint, changed=True)
    if any(row.status not in _AS_BEFORE for row in rows):
        return Interrupted("Interrupted.", hint=f"See what is left with: holdfast show {rows[-1].id}", changed=True)
    if rows and rows[-1].status == "ROLLED_BACK":
        document = hf.show(rows[-1].id)[1] or {}
        proven = document.get("paths_proven")
        told = proven_as_before(proven if isinstance(proven, int) else 0)
        return Interrupted("Interrupted.", hint=f"{rows[-1].id} was rolled back: {told}.")
    return Interrupted("Interrupted.", hint="Nothing was changed.")


def _begun(hf: Holdfast) -> list[Row]:
    """The records of what this process began, oldest first."""
    return [row for row in reversed(hf.log(limit=-1)) if row.id in hf.begun]


def _is_settled(hf: Holdfast) -> bool:
    return len(_begun(hf)) == len(hf.begun)


def _without_room(hf: Holdfast, error: OSError) -> OSError | HoldfastError:
    """A full disk, with the word that nothing was changed where the records prove it; anything else as it is."""
    from holdfast.cli.no_room import as_disk_full, nothing_changed

    full = as_disk_full(error)
    return nothing_changed(full) if full is not None and _nothing_landed(hf) else error


def _nothing_landed(hf: Holdfast) -> bool:
    """All that this process began is recorded as taken back. What cannot be asked is not known."""
    if not hf.begun:
        return True
    try:
        return _is_settled(hf) and all(row.status in _AS_BEFORE for row in _begun(hf))
    except Exception:  # noqa: BLE001 - on a failing disk anything may fail, and one error is being told already
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
