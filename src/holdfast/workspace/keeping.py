"""Keeping and forgetting: how long the old objects of finished transactions stay.

    recent ........ in their slots, ready to be flipped back
    older ......... regular files move to the blob store, each content once
    past keeping .. removed with their folder; the ledger still knows that it happened

Invariants
  K1  A folder goes only when no transaction that stays refers to one of its slots.
  K2  Bytes enter the blob store only after their digest was checked.
  K3  Interrupted at any point, every object is either still in its slot or in the store under its digest.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.model.image import Seen
from holdfast.store.blobs import Blobs
from holdfast.store.journal import Log, Op
from holdfast.workspace.folder import is_removed
from holdfast.workspace.observe import content_digest, is_same, look
from holdfast.workspace.recovery import read_log
from holdfast.workspace.site import KEPT, Site

_YOUNG_NS = 3600 * 10**9


class Kept(NamedTuple):
    txn: str
    log: Log
    settled_ns: int

    @property
    def refers_to(self) -> set[str]:
        return {op.slot.partition("/")[0] for op in self.log.ops if op.slot} - {self.txn}


class Reclaimed(NamedTuple):
    """`papers` are plans and simulations that were kept for later."""

    forgotten: tuple[str, ...]
    packed: int
    bytes: int
    papers: int = 0


def all_kept(site: Site) -> list[Kept]:
    """Finished transactions, oldest first."""
    found = []
    for txn in site.calls.names(site.state.directory(KEPT)):
        directory = site.state.directory(f"{KEPT}/{txn}")
        if not site.calls.names(directory):
            # The last step of a removal that was interrupted (the log goes last).
            site.state.forget()
            site.calls.rmdir(txn, dir_fd=site.state.directory(KEPT))
            continue
        found.append(Kept(txn, read_log(site.calls, directory), site.calls.fstat(directory).st_mtime_ns))
    return sorted(found, key=lambda kept: kept.settled_ns)


def reclaim(site: Site, *, forget: Iterable[str], pack: Iterable[str], needed_blobs: set[str]) -> Reclaimed:
    """Drop what is past keeping, move older objects into the blob store, drop blobs that nobody needs."""
    everything = all_kept(site)
    here = {kept.txn for kept in everything}
    asked = set(forget)
    gone = asked - here  # an earlier gc removed them and was interrupted before it could say so
    freed = 0
    for txn in sorted(_closed(everything, asked & here)):
        size, removed = _remove_folder(site, txn)
        freed += size
        gone |= {txn} if removed else set()
    staying = [kept for kept in everything if kept.txn not in gone]
    wanted = set(pack)
    # Room first: packing may need some, and gives none back but for contents that are there twice.
    freed += _drop_blobs(site, needed_blobs | _digests_of(staying))
    packed = _pack_all(site, [kept for kept in staying if kept.txn in wanted])
    return Reclaimed(tuple(sorted(gone)), packed, freed)


def _closed(everything: list[Kept], going: set[str]) -> set[str]:
    """K1: keep what those that stay refer to."""
    while True:
        needed = {ref for kept in everything if kept.txn not in going for ref in kept.refers_to}
        if not going & needed:
            return going
        going -= needed


def _remove_folder(site: Site, txn: str) -> tuple[int, bool]:
    """The bytes freed, and whether the folder is gone: somebody's file in an old directory of ours keeps it."""
    calls = site.calls
    directory = site.state.directory(f"{KEPT}/{txn}")
    freed = 0
    found = {name: there for name in calls.names(directory) if (there := look(calls, directory, name)) is not None}
    directories = [name for name, there in found.items() if there.st_mode & 0o170000 == 0o040000]
    # Directories first, so that one that must stay is met before anything is lost; the log last.
    for name in directories:
        if not is_removed(calls, directory, name):
            return freed, False
    for name in sorted(found.keys() - set(directories), key=lambda name: name == "log"):
        freed += found[name].st_size
        calls.unlink(name, dir_fd=directory)
    site.state.forget()
    calls.rmdir(txn, dir_fd=site.state.directory(KEPT))
    return freed, True


def _pack_all(site: Site, kept: list[Kept]) -> int:
    """As many as there is room for: what finds none for a folder of the store stays in its slot (K3)."""
    packed = 0
    try:
        for item in kept:
            packed += _pack(site, item)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
    return packed


def _pack(site: Site, kept: Kept) -> int:
    # Of our own: adopting opens the folders of the store.
    directory = site.state.open_directory(f"{KEPT}/{kept.txn}")
    try:
        return sum(_is_packed(site, directory, kept.txn, op) for op in kept.log.ops)
    finally:
        site.calls.close(directory)


def _is_packed(site: Site, directory: int, txn: str, op: Op) -> bool:
    own, _, name = op.slot.partition("/")
    if op.pre is None or op.pre.image.kind != "file" or own != txn:
        return False
    if os.geteuid() not in (0, op.pre.image.uid):
        return False  # somebody else's file cannot be closed to others by us; it stays in its slot
    if not is_same(look(site.calls, directory, name), op.pre) or not _holds(site, directory, name, op.pre):
        return False
    # A blob is read by its owner only; the mode of the file it was is in the log.
    site.calls.chmod(name, 0o600, dir_fd=directory)
    Blobs(site.state).adopt(directory, name, op.pre.image.digest)
    return True


def _holds(site: Site, directory: int, name: str, seen: Seen) -> bool:
    fd = site.calls.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)
    try:
        return content_digest(site.calls, fd) == seen.image.digest
    finally:
        site.calls.close(fd)


def _digests_of(staying: list[Kept]) -> set[str]:
    seen = (state for kept in staying for op in kept.log.ops for state in (op.pre, op.post) if state is not None)
    return {state.image.digest for state in seen if state.image.digest}


def _drop_blobs(site: Site, needed: set[str]) -> int:
    """A check that is running now has saved its log but no record yet, so young blobs stay."""
    blobs = Blobs(site.state)
    young = time.time_ns() - _YOUNG_NS
    unneeded = (digest for digest in blobs.digests() if digest not in needed and blobs.written_ns(digest) < young)
    return sum(blobs.remove(digest) for digest in unneeded)
