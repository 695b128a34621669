"""The ledger's key: 32 random bytes that the workspace and its agents never see.

Who holds the key can forge a ledger, so it lives with the user, `$XDG_CONFIG_HOME/holdfast/ledger.key`,
under the rules of `store.private`.
A key is made once. A lost key is an error and never replaced in silence:
with a new one every old record would look forged.
"""

from __future__ import annotations

import os

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.homes import config_home
from holdfast.errors import Tampering
from holdfast.model.path import printable
from holdfast.store.private import READ, create_private, open_private

KEY_BYTES = 32


def key_path() -> str:
    return os.path.join(config_home(), "ledger.key")


def load_key(path: str, calls: Calls = CALLS) -> bytes:
    """The key that is there, or Tampering."""
    try:
        fd = open_private(path, READ, calls)
    except FileNotFoundError:
        raise Tampering(
            f"the ledger's key is missing: {printable(path)}",
            hint="Restore it from a backup: without it no record can be checked. Without a backup: holdfast init makes "
            "a new key, and then holdfast audit accept goes on without the old records.",
        ) from None
    try:
        key = calls.read(fd, KEY_BYTES + 1)
    finally:
        calls.close(fd)
    if len(key) != KEY_BYTES:
        raise Tampering(f"{printable(path)} is not a key: it should be {KEY_BYTES} bytes long")
    return key


def load_or_create_key(path: str, calls: Calls = CALLS) -> bytes:
    """The key; a new one where there is none. Racing processes all get the same bytes."""
    if not os.path.lexists(path):
        create_private(path, os.urandom(KEY_BYTES), calls)
    return load_key(path, calls)
