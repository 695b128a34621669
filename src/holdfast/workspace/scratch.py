"""A scratch copy: the workspace with a change set applied, somewhere else, for checks to run in.

The change is applied by the same transaction code on another root, so what is checked is what will land.
Only for where no sandbox can be had and the user's own configuration does without; elsewhere checks get a shadow.
It copies the whole tree, so its cost grows with the tree.
`.holdfast` is never copied, devices, FIFOs and sockets neither.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from holdfast.disk.calls import CALLS
from holdfast.disk.holes import copy_pieces
from holdfast.errors import Blocked
from holdfast.model.changeset import Change, ChangeSet, change_set
from holdfast.model.image import Image, Seen
from holdfast.model.path import STATE_DIRECTORY, parent_of, printable
from holdfast.store.state import create_state
from holdfast.workspace.observe import kind_of, look, observe
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Bytes, CopyOf, Held, Source
from holdfast.workspace.transaction import Transaction, new_txn

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def scratch_copy(site: Site, change: ChangeSet, sources: Mapping[str, Source]) -> Iterator[str]:
    """The path of the copy; removed at the end, whatever happened."""
    place = tempfile.mkdtemp(prefix="holdfast-scratch-")
    try:
        target = os.path.join(place, "workspace")
        try:
            _copy_tree(site.path, target, place)
        except OSError as error:
            why = f"{printable(os.path.basename(error.filename or site.path))}: {error.strerror}"
            raise Blocked(f"the checks need a copy of the workspace, which cannot be made: {why}") from error
        _apply(target, site, change, sources)
        yield target
    finally:
        _remove(place)


def _copy_tree(source: str, target: str, place: str) -> None:
    """Without recursion: a tree may be deeper than Python's stack. Directories get their mode and times at the end."""
    device = os.lstat(source).st_dev
    made: list[tuple[str, str]] = []
    waiting = [(source, target)]
    while waiting:
        here, there = waiting.pop()
        os.mkdir(there, 0o700)
        made.append((here, there))
        for name in os.listdir(os.fspath(here)):
            path, copy = os.path.join(here, name), os.path.join(there, name)
            found = _worth_copying(path, place, device)
            if found is None or (here == source and name == STATE_DIRECTORY):
                continue
            if stat.S_ISDIR(found.st_mode):
                waiting.append((path, copy))
            elif stat.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(path), copy)
                shutil.copystat(path, copy, follow_symlinks=False)
            else:
                _copy_file(path, copy)
    for here, there in reversed(made):
        shutil.copystat(here, there)


def _copy_file(path: str, copy: str) -> None:
    reading = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        with open(copy, "xb", buffering=0) as writing:
            copy_pieces(CALLS, reading, writing.fileno())
    finally:
        os.close(reading)
    shutil.copystat(path, copy, follow_symlinks=False)


def _worth_copying(path: str, place: str, device: int) -> os.stat_result | None:
    """Not special files, nor other file systems, nor the copy itself where temporary files lie in the workspace."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None  # gone since it was listed
    return found if kind_of(found) is not None and found.st_dev == device and path != place else None


def _apply(target: str, site: Site, change: ChangeSet, sources: Mapping[str, Source]) -> None:
    create_state(target)
    with Site(target) as scratch:
        seen = {c.path: s for c in change.changes if c.pre is not None and (s := _observe(scratch, c.path)) is not None}
        real = {c.path: c for c in change.changes}
        local = [_localised(c, real[c.origin or c.path], seen) for c in change.changes]
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


def _localised(change: Change, owner: Change, seen: Mapping[str, Seen]) -> Change:
    """A copy made by an ordinary user belongs to that user; only the owner may differ, never the content.

    `owner` is the change of the path whose object this was: of its own, or of where it moves from.
    """
    there, before = seen.get(change.path), seen.get(owner.path)
    post = change.post
    if post is not None and owner.pre is not None and before is not None:
        post = _owned_like(post, owner.pre, before.image)
    return change._replace(pre=there.image if there is not None else None, post=post)


def _owned_like(post: Image, real: Image, copy: Image) -> Image:
    same_owner = (post.uid, post.gid) == (real.uid, real.gid)
    return post._replace(uid=copy.uid, gid=copy.gid) if same_owner else post


def _readable(site: Site, source: Source) -> Source:
    """An object held in a slot of the real workspace is read, not flipped: the copy must not consume it."""
    if not isinstance(source, Held):
        return source
    if source.seen is None:
        return Bytes(b"")
    slot = source.slot

    def opened() -> int:
        directory, name = site.slot_directory(slot, own="")
        return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)

    return CopyOf(opened)


def _remove(place: str) -> None:
    """Whatever the checks left: also directories that they closed to us, and trees deeper than any path is long.

    Every directory is moved up beside the first one and emptied there, so that nothing here grows with the depth.
    """
    os.chmod(place, 0o700)
    top = os.open(place, _DIRECTORY)
    try:
        waiting = _emptied(top, top)
        while waiting:
            name = waiting.pop()
            fd = os.open(name, _DIRECTORY, dir_fd=top)
            try:
                waiting += _emptied(fd, top)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    os.rmdir(place)


def _emptied(directory: int, top: int) -> list[str]:
    """Unlink what is in a directory; its directories go to the top, opened for us, under the names returned."""
    moved: list[str] = []
    for name in CALLS.names(directory):
        if not stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
            os.unlink(name, dir_fd=directory)
            continue
        os.chmod(name, 0o700, dir_fd=directory)
        moved.append(os.urandom(12).hex())  # a name that no check has thought of
        os.rename(name, moved[-1], src_dir_fd=directory, dst_dir_fd=top)
    return moved
