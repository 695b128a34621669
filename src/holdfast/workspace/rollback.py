"""Going back: every operation of a transaction on its old side, made durable, measured.

Used by the transaction that fails and by recovery after a crash: one piece of code, which trusts only the disk.
"""

from __future__ import annotations

import os
from functools import partial
from typing import NamedTuple

from holdfast.errors import InvalidPath
from holdfast.model.execution import Divergence
from holdfast.model.path import checked_path, parent_of, printable
from holdfast.store.journal import Head, Log, Op, write_head
from holdfast.workspace.collector import without_collector
from holdfast.workspace.flip import DISPLACED, Diverged, Flipper, Standing
from holdfast.workspace.observe import is_same, kind_of
from holdfast.workspace.proof import read_again, why_unread
from holdfast.workspace.site import JOURNAL, Site, is_slot
from holdfast.workspace.staging import FEW


class RolledBack(NamedTuple):
    """What a rollback found. Empty `divergence`: everything of ours was taken back and stands as before.

    `untouched` are planned paths that never moved and hold somebody else's change. `had_moved`: something stood as
    planned, so the change had begun to be applied.
    """

    divergence: tuple[Divergence, ...]
    untouched: frozenset[str]
    had_moved: bool = False


def why_not_restorable(ops: tuple[Op, ...]) -> str:
    """Empty, unless rolling back would refuse to touch what these operations name.

    Asked before anything moves and again by recovery: nothing is begun that could not be taken back.
    """
    for op in ops:
        try:
            plain = checked_path(op.path) == op.path
        except InvalidPath as error:
            return error.message
        if not plain:
            return f"{printable(op.path)} has a trailing slash"
        if op.action == "flip" and not is_slot(op.slot):
            return f"the slot of {printable(op.path)} lies outside the store"
    return ""


def barrier(site: Site, txn: str, ops: tuple[Op, ...]) -> None:
    """Make the moves of these operations durable."""
    calls = site.calls
    if len(ops) > FEW:
        calls.sync_file_system(site.state.fd)
        return
    for op in ops:
        if op.action == "mode":
            sync_object(site, op.path)
    flips = [op for op in ops if op.action == "flip"]
    for slot in {op.slot.partition("/")[0]: op.slot for op in flips}.values():
        calls.fsync(site.slot_directory(slot, txn)[0])
    for parent in dict.fromkeys(parent_of(op.path) for op in flips):
        try:
            calls.fsync(site.workspace.directory(parent))
        except OSError as error:
            if error.errno not in DISPLACED:
                raise
            # The directory was itself moved away by another operation, whose own directories are synced.


def sync_object(site: Site, path: str) -> None:
    try:
        fd = site.calls.open_beneath(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW, site.workspace.fd)
    except PermissionError:
        site.calls.sync_file_system(site.state.fd)
        return
    except OSError as error:
        if error.errno in DISPLACED:
            return  # something else stands there now, or a mount hides it: nothing of ours to sync
        raise
    try:
        if kind_of(site.calls.fstat(fd)) is not None:  # a FIFO put there by somebody has nothing to sync
            site.calls.fsync(fd)
    finally:
        site.calls.close(fd)


@without_collector
def roll_back(site: Site, txn: str, log: Log) -> RolledBack:
    """Put every operation on its old side, decided only by what stands on the disk.

    A foreign change is left alone and reported, unless it made the path as it was; all others are still rolled back.
    Any error leaves the head PREPARED, and running this again is safe at every point.
    """
    site.workspace.forget()
    flipper = Flipper(site, txn, log)
    divergence: list[Divergence] = []
    standings: dict[str, Standing] = {}
    had_moved = False
    for op in reversed(log.ops):
        try:
            # The first operation on a path is looked at last and has the last word about it.
            standings[op.path] = standing = flipper.standing(op)
            if standing == "after":
                had_moved = True
                flipper.backward(op)
            elif standing == "foreign":
                copy = flipper.made_again(op)
                if copy is None:
                    how = flipper.how_it_stands(op)
                    divergence.append(Divergence(op.path, f"was changed by somebody else ({how}); left as it is"))
                else:
                    flipper.replace_copy(op, copy)
        except Diverged as error:
            divergence.append(Divergence(error.path, error.detail))
        except PermissionError as error:
            # Somebody took the right away; the others are still rolled back, and a person can decide about this one.
            divergence.append(Divergence(op.path, f"cannot be restored: {error.strerror}"))
    for parent in log.parents:
        set_time(site, parent.path, parent.mtime_ns, parent.inode)
    site.calls.point("rolled-back")
    barrier(site, txn, log.ops)
    untouched = {path for path, standing in standings.items() if standing == "untouched"}
    _prove(site, txn, log, divergence, untouched)
    if not divergence:
        write_head(site.calls, site.state.directory(JOURNAL), Head("ABORTED", txn, log.root))
        site.calls.point("aborted")
    return RolledBack(tuple(divergence), frozenset(untouched), had_moved)


def set_time(site: Site, path: str, mtime_ns: int, inode: int | None = None) -> None:
    """Set the modification time of a directory, if it is there and is this inode (None: whichever it is)."""
    try:
        fd = site.workspace.directory(path)
    except OSError:
        return  # gone or replaced by somebody else: not ours to date
    found = site.calls.fstat(fd)
    if inode not in (None, found.st_ino) or found.st_mtime_ns == mtime_ns:
        return
    try:
        site.calls.utime(fd, ns=(found.st_atime_ns, mtime_ns))
    except PermissionError:
        return  # only its owner may date a directory; what is in it was restored all the same


def _prove(site: Site, txn: str, log: Log, divergence: list[Divergence], untouched: set[str]) -> None:
    """The claim 'as before' is measured: each path we touched is looked up afresh and must be its old object.

    OSError for a path that cannot be looked up: the head stays PREPARED, and the proof is made by the next verb.
    """
    read_again(site.workspace.forget)
    flipper = Flipper(site, txn)
    known = {item.path for item in divergence} | untouched
    first: dict[str, Op] = {}
    for op in log.ops:
        first.setdefault(op.path, op)
    for path, op in first.items():
        if path in known:
            continue
        try:
            found = read_again(partial(flipper.found, op))
        except OSError as error:
            raise OSError(f"{printable(path)} {why_unread(error)}") from error
        if not is_same(found, op.pre):
            divergence.append(Divergence(path, "is not as before"))
