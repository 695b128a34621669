"""A workspace and its state directory, held open together.

Invariants
  W1  Workspace and `.holdfast` are on one file system, so that every flip is one rename.
  W2  `.holdfast` is a real directory of ours, closed to everybody else.
  W3  Slot names come from our own logs and still are resolved confined, like any path.
"""

from __future__ import annotations

import os
import re
import stat
from types import TracebackType

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.confined import Root
from holdfast.errors import NotAWorkspace, Tampering, Unsupported
from holdfast.model.path import STATE_DIRECTORY

JOURNAL = "journal"
KEPT = "kept"
_SLOT = re.compile(r"([a-z]-[a-z0-9]{4,32})/(\d{1,9})")


class Site:
    def __init__(self, path: str, calls: Calls = CALLS) -> None:
        self.calls = calls
        self.path = os.path.abspath(path)
        state = os.path.join(self.path, STATE_DIRECTORY)
        self._check_state(state)
        self.workspace = Root(self.path, calls)
        self.state = Root(state, calls)
        if calls.fstat(self.workspace.fd).st_dev != calls.fstat(self.state.fd).st_dev:
            self.close()
            raise Unsupported(".holdfast is on another file system than the workspace")

    def slot_directory(self, slot: str, own: str) -> tuple[int, str]:
        """Where a slot lives: with the open transaction, or with the finished one that filled it."""
        txn, _, name = slot.partition("/")
        return self.state.directory(f"{JOURNAL if txn == own else KEPT}/{txn}"), name

    def close(self) -> None:
        self.workspace.close()
        self.state.close()

    def __enter__(self) -> Site:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _check_state(self, state: str) -> None:
        try:
            found = self.calls.stat(state, follow_symlinks=False)
        except FileNotFoundError:
            raise NotAWorkspace(f"no .holdfast in {self.path}") from None
        if not stat.S_ISDIR(found.st_mode):
            raise Tampering(".holdfast is not a directory")
        if found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise Tampering(
                ".holdfast is not private to this user",
                hint="It must belong to you with mode 0700; check who changed it before you repair it.",
            )


def is_slot(text: str) -> bool:
    """The only form a slot name in a log may have."""
    return _SLOT.fullmatch(text) is not None
