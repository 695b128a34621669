"""The folder of a transaction: removed when nothing of it is needed, kept when it holds what undo needs."""

from __future__ import annotations

import errno

from holdfast.disk.calls import Calls
from holdfast.workspace.observe import look
from holdfast.workspace.site import JOURNAL, KEPT, Site


def remove_stage(site: Site, txn: str) -> None:
    """Delete a transaction's slots and log. Only for stages that never moved anything, or finished ones."""
    journal = site.state.directory(JOURNAL)
    if look(site.calls, journal, txn) is None:
        return
    directory = site.state.directory(f"{JOURNAL}/{txn}")
    # The log goes last: while it exists, the stage can be judged.
    for name in sorted(site.calls.names(directory), key=lambda name: name == "log"):
        found = look(site.calls, directory, name)
        if found is None or found.st_mode & 0o170000 != 0o040000:
            site.calls.unlink(name, dir_fd=directory)
        elif not is_removed(site.calls, directory, name):
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
    site.state.forget()
    try:
        site.calls.move(txn, site.state.directory(JOURNAL), txn, site.state.directory(KEPT))
    except FileNotFoundError:
        return  # a recovery before us did it
