"""A scratch copy: the workspace with a change set applied, somewhere else, for checks to run in.

The change is applied by the same transaction code on another root, so what is checked is what will land.
Until shadows exist this copies the whole tree; its cost grows with the tree (see SHORTCOMINGS.md).
`.holdfast` is never copied, devices, FIFOs and sockets neither.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from holdfast.errors import Blocked
from holdfast.model.changeset import Change, ChangeSet, change_set
from holdfast.model.image import Image, Seen
from holdfast.model.path import STATE_DIRECTORY, parent_of, printable
from holdfast.store.state import create_state
from holdfast.workspace.observe import look, observe
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Bytes, CopyOf, Held, Source
from holdfast.workspace.transaction import Transaction, new_txn


@contextmanager
def scratch_copy(site: Site, change: ChangeSet, sources: Mapping[str, Source]) -> Iterator[str]:
    """The path of the copy; removed at the end, whatever happened."""
    place = tempfile.mkdtemp(prefix="holdfast-scratch-")
    try:
        target = os.path.join(place, "workspace")
        try:
            _copy_tree(site.path, target, place)
        except (shutil.Error, OSError) as error:
            raise Blocked(f"the checks need a copy of the workspace, which cannot be made: {_first(error)}") from error
        _apply(target, site, change, sources)
        yield target
    finally:
        _remove(place)


def _copy_tree(source: str, target: str, place: str) -> None:
    device = os.lstat(source).st_dev

    def uncopied(directory: str, names: list[str]) -> set[str]:
        out = {name for name in names if _stays_out(os.path.join(directory, name), place, device)}
        return out | {STATE_DIRECTORY} if directory == source else out

    shutil.copytree(source, target, symlinks=True, ignore=uncopied)


def _stays_out(path: str, place: str, device: int) -> bool:
    """Special files, other file systems, and the copy itself where temporary files lie inside the workspace."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return True  # gone since it was listed
    return found.st_mode & 0o170000 not in (0o100000, 0o040000, 0o120000) or found.st_dev != device or path == place


def _first(error: shutil.Error | OSError) -> str:
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        source, _, reason = error.args[0][0]
        return f"{printable(os.path.basename(source))}: {reason}"
    return str(error)


def _apply(target: str, site: Site, change: ChangeSet, sources: Mapping[str, Source]) -> None:
    create_state(target)
    with Site(target) as scratch:
        seen = {c.path: s for c in change.changes if c.pre is not None and (s := _observe(scratch, c.path)) is not None}
        local = [_localised(c, seen) for c in change.changes]
        wanted = change_set(c for c in local if c.pre != c.post)
        own = {path: _readable(site, source) for path, source in sources.items()}
        transaction = Transaction(scratch, new_txn("t"), {})
        transaction.prepare(wanted, seen, own)
        transaction.apply()
        transaction.verify()
        transaction.commit()
    shutil.rmtree(os.path.join(target, STATE_DIRECTORY))


def _observe(scratch: Site, path: str) -> Seen | None:
    directory = scratch.workspace.directory(parent_of(path))
    name = path.rpartition("/")[2]
    return observe(scratch.calls, directory, name) if look(scratch.calls, directory, name) is not None else None


def _localised(change: Change, seen: Mapping[str, Seen]) -> Change:
    """A copy made by an ordinary user belongs to that user; only the owner may differ, never the content."""
    there = seen.get(change.path)
    pre = there.image if there is not None else None
    if change.pre is None or pre is None or change.post is None:
        return change._replace(pre=pre)
    return change._replace(pre=pre, post=_owned_like(change.post, change.pre, pre))


def _owned_like(post: Image, real: Image, copy: Image) -> Image:
    same_owner = (post.uid, post.gid) == (real.uid, real.gid)
    return post._replace(uid=copy.uid, gid=copy.gid) if same_owner else post


def _readable(site: Site, source: Source) -> Source:
    """An object held in a slot of the real workspace is read, not flipped: the copy must not consume it."""
    if not isinstance(source, Held):
        return source
    if source.seen is None:
        return Bytes(b"")
    directory, name = site.slot_directory(source.slot, own="")
    path = f"/proc/self/fd/{directory}/{name}"
    return CopyOf(lambda: os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))


def _remove(place: str) -> None:
    """Whatever the checks left, also directories that they closed to us."""
    for directory, names, _ in os.walk(place, topdown=True):
        for name in names:
            path = os.path.join(directory, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(place)
