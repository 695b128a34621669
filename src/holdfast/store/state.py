"""The state directory: made once, read by every verb.

.holdfast/
  format        {"format": 1, "id": "w-…"}: which workspace this is
  journal/      the open transaction, and the head
  kept/         finished transactions: their logs, and the old objects for undo
  objects/      blobs by digest
  holdfast.db   what happened, for looking things up (can be rebuilt from the ledger)
  ledger.jsonl  the chain
  lock, index   who is at work; what the tree looked like
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from base64 import b32encode
from typing import NamedTuple

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.confined import Root
from holdfast.errors import NotAWorkspace, Tampering
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.store.journal import create_head
from holdfast.store.private import READ, create_in, open_regular

FORMAT = 1
_ID = re.compile(r"[A-Za-z0-9-]{1,64}")  # it becomes a file name elsewhere (see anchor)
_FOLDERS = ("journal", "kept", "objects")


class Identity(NamedTuple):
    id: str
    format: int


def create_state(workspace: str, calls: Calls = CALLS) -> Identity:
    """Make `.holdfast`; a half-made one from an earlier crash is completed. Idempotent, also at once."""
    path = os.path.join(workspace, STATE_DIRECTORY)
    try:
        calls.mkdir(path, 0o700)
    except FileExistsError:
        require_private(path, calls)
    with Root(path, calls) as state:
        _disinherit(state)
        for folder in _FOLDERS:
            try:
                calls.mkdir(folder, 0o700, dir_fd=state.fd)
            except FileExistsError:
                continue
        create_in(state.fd, ".gitignore", b"*\n", calls)
        create_head(calls, state.directory("journal"), state.fd)
        fresh = "w-" + b32encode(os.urandom(10)).decode("ascii").lower()
        # The format file comes last: it says that the rest is complete.
        create_in(state.fd, "format", json.dumps({"format": FORMAT, "id": fresh}).encode() + b"\n", calls)
        calls.fsync(state.fd)
        return read_identity(state)


def _disinherit(state: Root) -> None:
    """Access lists that the workspace hands down would reach every file that is staged here and lands there."""
    for name in ("system.posix_acl_default", "system.posix_acl_access"):
        try:
            state.calls.removexattr(state.fd, name)
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.EOPNOTSUPP):
                raise


def require_private(path: str, calls: Calls = CALLS) -> None:
    """A state directory that came from elsewhere, a repository for instance, must never steer us."""
    found = calls.stat(path, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode):
        raise Tampering(".holdfast is not a directory")
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Tampering(
            ".holdfast is not private to this user",
            hint="It must belong to you with mode 0700; check who made or changed it before you repair it.",
        )


def read_identity(state: Root) -> Identity:
    try:
        fd = open_regular("format", READ, state.calls, state.fd).fd
    except FileNotFoundError:
        raise NotAWorkspace(".holdfast is incomplete", hint="Complete it with: holdfast init") from None
    try:
        data = state.calls.read(fd, 4096)
    finally:
        state.calls.close(fd)
    return _parse_identity(data)


def _parse_identity(data: bytes) -> Identity:
    try:
        found = json.loads(data)
        identity = Identity(str(found["id"]), int(found["format"]))
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise Tampering(f".holdfast/format is damaged: {error}") from error
    if not _ID.fullmatch(identity.id):
        raise Tampering(f".holdfast/format is damaged: {printable(identity.id)!r} is no id of a workspace")
    if identity.format != FORMAT:
        raise NotAWorkspace(
            f".holdfast has format {identity.format}; this Holdfast reads {FORMAT}", hint="Install a newer Holdfast."
        )
    return identity
