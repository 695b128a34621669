"""What this host and file system truly do: tried out, not looked up.

Each promise is tried by the code that needs it, in a throw-away workspace beside the real one:
a transaction that creates, one that replaces, one that sets an attribute, an open that must not escape, two locks.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import NamedTuple

from blake3 import blake3

from holdfast.disk.lock import Lock
from holdfast.errors import HoldfastError, Locked, Unsupported
from holdfast.model.changeset import Change, change_set
from holdfast.model.image import Image, Xattrs
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.store.state import create_state
from holdfast.workspace.folder import keep
from holdfast.workspace.observe import observe
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Bytes
from holdfast.workspace.transaction import Transaction, new_txn

_PROBED_XATTR: Xattrs = (("user.holdfast.probe", "01"),)


class Finding(NamedTuple):
    """One promise: does it hold here, and must it? `reason` is the error when it does not."""

    name: str
    holds: bool
    needed: bool
    reason: str = ""


def probe(directory: str) -> tuple[Finding, ...]:
    """Try everything out on the file system of `directory`; what was made for that is removed again."""
    state = os.path.join(directory, STATE_DIRECTORY)
    beside = state if os.path.isdir(state) else directory
    try:
        with TemporaryDirectory(prefix=".holdfast-probe-", dir=beside, ignore_cleanup_errors=True) as place:
            return _probe_in(place)
    except OSError as error:
        return (Finding("writable", False, True, f"{printable(beside)}: {error.strerror}"),)


def require_usable(findings: tuple[Finding, ...]) -> None:
    """Unsupported, naming what is missing, where a promise could not be kept."""
    missing = [f"{finding.name} ({finding.reason})" for finding in findings if finding.needed and not finding.holds]
    if missing:
        raise Unsupported(f"Holdfast cannot keep its promise here: {', '.join(missing)}")


def _probe_in(place: str) -> tuple[Finding, ...]:
    first = _tried("no-replace", lambda: create_state(place))
    if not first.holds:
        return (first,)
    with Site(place) as site:
        return (
            _tried("openat2", lambda: _escape_is_refused(site)),
            _tried("no-replace", lambda: _land(site, b"first")),
            _tried("exchange", lambda: _land(site, b"second")),
            _tried("syncfs", lambda: site.calls.sync_file_system(site.state.fd)),
            _tried("lock", lambda: _lock_excludes(place)),
            _tried("xattrs", lambda: _land(site, b"third", _PROBED_XATTR), needed=False),
        )


def _tried(name: str, attempt: Callable[[], object], *, needed: bool = True) -> Finding:
    try:
        attempt()
    except (OSError, HoldfastError) as error:
        reason = error.message if isinstance(error, HoldfastError) else error.strerror or str(error)
        return Finding(name, False, needed, reason)
    return Finding(name, True, needed)


def _land(site: Site, data: bytes, xattrs: Xattrs = ()) -> None:
    """One real transaction over one file."""
    seen = observe(site.calls, site.workspace.fd, "probe")
    image = Image("file", 0o644, os.geteuid(), os.getegid(), len(data), blake3(data).hexdigest(), xattrs=xattrs)
    change = Change("probe", seen.image if seen is not None else None, image)
    transaction = Transaction(site, new_txn("t"), {})
    transaction.prepare(change_set([change]), {"probe": seen} if seen is not None else {}, {"probe": Bytes(data)})
    transaction.apply()
    transaction.verify()
    transaction.commit()
    keep(site, transaction.txn)


def _escape_is_refused(site: Site) -> None:
    os.close(site.calls.open_beneath(STATE_DIRECTORY, os.O_RDONLY, site.workspace.fd))
    try:
        escaped = site.calls.open_beneath("..", os.O_RDONLY, site.workspace.fd)
    except OSError:
        return
    os.close(escaped)
    raise Unsupported("a path with '..' was opened outside its root")


def _lock_excludes(place: str) -> None:
    path = os.path.join(place, "lock")
    with Lock(path):
        try:
            with Lock(path):
                raise Unsupported("two holders have the lock at once")
        except Locked:
            return
