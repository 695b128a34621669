"""A full disk, in words: nobody's defect, wherever it is met, and no gate that said no."""

from __future__ import annotations

import os

from holdfast.engine.room import is_full
from holdfast.errors import Blocked, DiskFull, HoldfastError
from holdfast.model.path import printable

# An error that nobody expected knows nothing about what was changed before it.
_UNKNOWN = "What was under way is settled by the next verb."
# Whoever can prove it says so; something of ours may have been kept by then.
_NOTHING = "Nothing in the workspace was changed."


def as_disk_full(error: OSError | HoldfastError) -> DiskFull | None:
    """What to tell when a full disk, or a quota, stands behind it; None when something else does."""
    if isinstance(error, DiskFull):
        return error
    if isinstance(error, OSError):
        return _unexpected(error) if is_full(error) else None
    if type(error) is not Blocked or not is_full(error):  # all else says more than that there is no room
        return None
    return DiskFull(error.message, hint=f"{error.hint} {DiskFull.default_hint}".strip(), changed=error.changed)


def nothing_changed(full: DiskFull) -> DiskFull:
    """The same, for whoever knows that nothing landed."""
    return DiskFull(full.message, hint=f"{_NOTHING} {DiskFull.default_hint}")


def _unexpected(error: OSError) -> DiskFull:
    named = isinstance(error.filename, (str, bytes)) and bool(error.filename)
    name = f" ({printable(os.path.basename(os.fsdecode(error.filename)))})" if named else ""
    return DiskFull(f"there is no room to write: {error.strerror}{name}", hint=f"{DiskFull.default_hint} {_UNKNOWN}")
