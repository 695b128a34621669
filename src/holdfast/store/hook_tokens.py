"""The tokens of webhooks: who knows one may start that trigger's runs.

    $XDG_CONFIG_HOME/holdfast/hooks/NAME.token     43 characters, mode 0600, under the rules of `store.private`

A token is made once. To make another, remove the file; whoever had the old one is locked out from then on.
"""

from __future__ import annotations

import os
import re
import secrets

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.homes import config_home
from holdfast.errors import Tampering
from holdfast.model.path import printable
from holdfast.store.private import READ, create_private, open_private

_BYTES = 32
_LONGEST = 1024
_FORM = re.compile(r"[A-Za-z0-9_.~+/=-]{32,512}")


def token_path(name: str) -> str:
    """`name` was checked when the configuration was read: it is one plain name."""
    return os.path.join(config_home(), "hooks", f"{name}.token")


def load_or_create_token(path: str, calls: Calls = CALLS) -> str:
    """The token; a new one where there is none. Tampering when others could have read it."""
    if not os.path.lexists(path):
        create_private(path, secrets.token_urlsafe(_BYTES).encode("ascii") + b"\n", calls)
    fd = open_private(path, READ, calls)
    try:
        data = calls.read(fd, _LONGEST)
    finally:
        calls.close(fd)
    token = data.decode("ascii", "replace").strip()
    if not _FORM.fullmatch(token):
        raise Tampering(
            f"{printable(path)} holds no token of at least 32 plain characters",
            hint="Remove it, and a new one is made.",
        )
    return token
