"""Signatures: the user's Ed25519 key, and whether an approval was signed by the key it names.

The key lives with the user, `$XDG_CONFIG_HOME/holdfast/signing.key`, under the rules of `store.private`;
it is made once. Programs in a sandbox never see it: their HOME is another one, and the file is not shown to them.
A signature proves that whoever had this key said yes to these bytes. Whose key it is, configuration says.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.homes import config_home
from holdfast.errors import ApprovalNeeded, Tampering
from holdfast.model.approval import Approval
from holdfast.model.path import printable
from holdfast.store.private import READ, create_private, open_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED_BYTES = 32


def signing_key_path() -> str:
    return os.path.join(config_home(), "signing.key")


class Signer:
    """One person's key. `public` is what others put into their configuration."""

    def __init__(self, seed: bytes) -> None:
        # Only whoever signs or checks pays for loading the library.
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key: Ed25519PrivateKey = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self._key.public_key().public_bytes_raw().hex()

    def signed(self, approval: Approval) -> Approval:
        """The approval with this key and its signature."""
        mine = replace(approval, key=self.public)
        return replace(mine, signature=self._key.sign(mine.signed_bytes()).hex())


def load_or_create_signer(path: str | None = None, calls: Calls = CALLS) -> Signer:
    """The user's signer; a new key where there is none. Racing processes all get the same one."""
    where = path if path is not None else signing_key_path()
    make_signing_key(where, calls)
    return load_signer(where, calls)


def make_signing_key(path: str | None = None, calls: Calls = CALLS) -> None:
    """The user's key where there is none yet, without loading what signs."""
    where = path if path is not None else signing_key_path()
    if not os.path.lexists(where):
        create_private(where, os.urandom(SEED_BYTES), calls)


def load_signer(path: str | None = None, calls: Calls = CALLS) -> Signer:
    where = path if path is not None else signing_key_path()
    try:
        fd = open_private(where, READ, calls)
    except FileNotFoundError:
        raise ApprovalNeeded(
            f"there is no signing key to approve with: {printable(where)}", hint="Make one with: holdfast init"
        ) from None
    try:
        seed = calls.read(fd, SEED_BYTES + 1)
    finally:
        calls.close(fd)
    if len(seed) != SEED_BYTES:
        raise Tampering(f"{printable(where)} is not a signing key: it should be {SEED_BYTES} bytes long")
    return Signer(seed)


def is_signed(approval: Approval) -> bool:
    """Did the key that the approval names sign exactly these claims? Anything malformed is a no."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(approval.key))
        key.verify(bytes.fromhex(approval.signature), approval.signed_bytes())
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True
