"""A workspace and its state directory, held open together.

Invariants
  W1  Workspace and `.holdfast` are on one file system, so that every flip is one rename.
  W2  `.holdfast` is a real directory of ours, closed to everybody else.
  W3  Slot names come from our own logs and still are resolved confined, like any path.
"""

from __future__ import annotations

import errno
import os
import re
from types import TracebackType

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.confined import Root
from holdfast.errors import NotAWorkspace, Tampering, Unsupported
from holdfast.model.path import STATE_DIRECTORY
from holdfast.store.journal import LOG_LIMIT
from holdfast.store.state import require_private

JOURNAL = "journal"
KEPT = "kept"
BRANCHES = "branches"
_TXN = re.compile(r"[a-z]-[a-z0-9]{4,32}")
_SLOT = re.compile(rf"{_TXN.pattern}/\d{{1,9}}")
_HINT = "Nothing was changed. It held the old files of an open transaction; look for it before you do anything else."


class Site:
    def __init__(self, path: str, calls: Calls = CALLS) -> None:
        self.calls = calls
        self.log_limit = LOG_LIMIT
        self.path = os.path.abspath(path)
        # Where programs see it. A mirror is seen at the place of what it mirrors, and a branch's work tree at the
        # person's: editable installations, absolute paths and caches name that place.
        self.seen_at = home_of(self.path)
        # Why what is installed is not what the tree needs; empty where it is, as far as anybody knows.
        self.unbuilt = ""
        state = os.path.join(self.path, STATE_DIRECTORY)
        try:
            require_private(state, calls)
        except FileNotFoundError:
            raise NotAWorkspace(f"no .holdfast in {self.path}") from None
        self.workspace = Root(self.path, calls)
        self.state = Root(state, calls)
        if calls.fstat(self.workspace.fd).st_dev != calls.fstat(self.state.fd).st_dev:
            self.close()
            raise Unsupported(".holdfast is on another file system than the workspace")

    @property
    def is_branch(self) -> bool:
        """Whether it is the work tree of a branch, kept below the state of the person's workspace."""
        return home_of(self.path) != self.path

    def journal(self) -> int:
        """The journal's directory; Tampering when it is gone or something else took its place."""
        try:
            return self.state.directory(JOURNAL)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise Tampering("the journal is missing", hint=_HINT) from error
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.EXDEV):
                raise
            raise Tampering("the journal is a symbolic link or another file system", hint=_HINT) from error

    def slot_directory(self, slot: str, own: str) -> tuple[int, str]:
        """Where a slot lives: with the open transaction, or with the finished one that filled it."""
        txn, _, name = slot.partition("/")
        return self.state.directory(f"{JOURNAL if txn == own else KEPT}/{txn}"), name

    def close(self) -> None:
        self.workspace.close()
        self.state.close()

    def __enter__(self) -> Site:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def home_of(path: str) -> str:
    """The person's workspace, where this is the work tree of a branch that is kept below its state; else the same."""
    home, found, below = path.partition(f"/{STATE_DIRECTORY}/{BRANCHES}/")
    return home if found and STATE_DIRECTORY not in below.split("/") else path


def is_txn(text: str) -> bool:
    """The form of every transaction id."""
    return _TXN.fullmatch(text) is not None


def is_slot(text: str) -> bool:
    """The only form a slot name in a log may have."""
    return _SLOT.fullmatch(text) is not None
