"""The folder of a transaction: removed when nothing of it is needed, kept when it holds what undo needs.

From its first moment until everything in it is durable a stage carries a mark: the sticky bit of its directory.
The mark goes just before the head says PREPARED, so it proves that nothing of the stage ever moved;
a stage without it is judged by its log, and one that cannot be judged is not removed (recovery, R2).
It is a bit of the directory and not a file in it, because it must be there whenever the directory is:
btrfs makes a synced slot durable together with its directory, and without the names beside it.
"""

from __future__ import annotations

import errno
import stat
from functools import partial

from holdfast.disk.calls import Calls
from holdfast.workspace.observe import look
from holdfast.workspace.proof import read_again
from holdfast.workspace.site import JOURNAL, KEPT, Site

_OURS = 0o700
_MARKED = _OURS | stat.S_ISVTX


def make_stage(site: Site, txn: str) -> None:
    site.calls.mkdir(txn, _MARKED, dir_fd=site.state.directory(JOURNAL))


def take_mark_away(site: Site, txn: str) -> None:
    """Everything in the stage is durable. No sync: the head and its log now say more than the mark."""
    site.calls.fchmod(site.state.directory(f"{JOURNAL}/{txn}"), _OURS)


def is_marked(site: Site, txn: str) -> bool:
    """Was this stage certainly never prepared? An empty one is as good: it has nothing to lose."""
    directory = site.state.directory(f"{JOURNAL}/{txn}")
    return bool(site.calls.fstat(directory).st_mode & stat.S_ISVTX) or not site.calls.names(directory)


def remove_stage(site: Site, txn: str) -> None:
    """Delete a transaction's slots and log. Only for stages that never moved anything, or finished ones."""
    journal = site.state.directory(JOURNAL)
    if look(site.calls, journal, txn) is None:
        return
    directory = site.state.directory(f"{JOURNAL}/{txn}")
    # The log goes last: while it exists, the stage can be judged.
    for name in sorted(site.calls.names(directory), key=lambda name: name == "log"):
        try:
            site.calls.unlink(name, dir_fd=directory)
        except (IsADirectoryError, PermissionError):  # Linux says the first of a directory, POSIX the second
            if not is_removed(site.calls, directory, name):
                keep(site, txn)
                return
    site.state.forget()
    site.calls.rmdir(txn, dir_fd=site.state.directory(JOURNAL))


def is_removed(calls: Calls, directory: int, name: str) -> bool:
    """Remove a directory from a slot; False when somebody who had it open put something into it, which is not ours."""
    try:
        calls.rmdir(name, dir_fd=directory)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def keep(site: Site, txn: str) -> None:
    """After commit: the slots, which now hold the old objects, become undo material."""
    read_again(site.state.forget)
    journal, kept = (read_again(partial(site.state.directory, room)) for room in (JOURNAL, KEPT))
    try:
        site.calls.move(txn, journal, txn, kept)
    except FileNotFoundError:
        return  # a recovery before us did it


def is_folder_there(site: Site, txn: str) -> bool:
    """Is what undo needs still here: kept, or about to be?"""
    return any(look(site.calls, site.state.directory(room), txn) is not None for room in (KEPT, JOURNAL))
