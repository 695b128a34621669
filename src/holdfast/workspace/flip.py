"""The flip: one path and one slot change places in one atomic system call.

    before:  path = pre,  slot = post          after:  path = post,  slot = pre

`pre` or `post` may be nothing; then the flip is a rename that never replaces.
Applying, rolling back and undoing are all this one move, so there is one piece of code to trust.

Invariants
  L1  Compare-and-swap: what the swap displaced is checked *after* the swap; when it is not the expected object,
      the swap is reversed and `Diverged` raised. There is no window between check and act.
  L2  What stands on the disk decides whether an operation was done; nothing is remembered.
      Where nothing was and nothing is, the slot decides: it is empty only when its object left it.
      An object that left and is gone was removed, if its directory stands; without that it may be anywhere.
  L3  Somebody else's object is never overwritten or removed: exchanges give it back, renames refuse to replace.
      A file that we made is read before it counts as ours, because a rollback ends with its removal.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence, Set
from typing import Literal

from holdfast.errors import Conflict
from holdfast.model.image import Image, Seen
from holdfast.model.path import printable
from holdfast.store.journal import Log, Op
from holdfast.workspace.observe import is_same, is_untouched, kind_of, look, observe
from holdfast.workspace.proof import proven
from holdfast.workspace.site import Site

# untouched: the operation was never performed, and what stands at the path is somebody else's doing, not ours.
# foreign: the operation was performed, and then somebody changed the path; our old object still lies in the slot.
Standing = Literal["before", "after", "untouched", "foreign"]

_EVER = 1 << 62  # for what its mode closes to us there is nothing but its stamp

# The kernel's words for "what you expected is not there": gone, replaced, turned into a link, moved across a mount.
DISPLACED = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EXDEV, errno.ENOTEMPTY)


class Diverged(Conflict):
    """A path is not what it was when the change was simulated."""

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{printable(path)} {detail}")
        self.path = path
        self.detail = detail


class Flipper:
    """Performs the operations of one transaction, forwards and backwards.

    Who judges standings must give the log: the two halves of a move share a slot, and directories must be known.
    """

    def __init__(self, site: Site, txn: str, log: Log | None = None) -> None:
        self._site = site
        self._txn = txn
        self._calls = site.calls
        self._log = log
        ops = log.ops if log is not None else ()
        self._removal_into = {op.slot: op for op in ops if op.slot and op.post is None}
        self._taken_out_of = {op.slot for op in ops if op.slot in self._removal_into and op.post is not None}

    def check(self, op: Op) -> None:
        """The path must be untouched since it was seen; raises Diverged."""
        directory, name = self._place(op)
        found = look(self._calls, directory, name)
        if not is_untouched(found, op.pre):
            raise Diverged(op.path, _difference(found, op.pre))

    def check_held(self, op: Op) -> None:
        """What comes back from the slot of a finished transaction must be untouched since it was seen there."""
        if not is_untouched(self.held(op), op.post):
            raise Diverged(op.path, "cannot come back: what was kept for it was changed by somebody else")

    def forward(self, op: Op) -> None:
        if op.action == "mode":
            self._set_mode(op, op.pre, op.post)
        else:
            self._swap(op, op.pre, op.post)

    def backward(self, op: Op) -> None:
        if op.action == "mode":
            self._set_mode(op, op.post, op.pre)
        else:
            self._swap(op, op.post, op.pre)

    def made_again(self, op: Op) -> Seen | None:
        """What stands at the path, if it has the very image of the old object, which still lies in the slot.

        That is how a person puts a path right: with another object, or by writing the old content into the one there.
        """
        if op.action == "mode" or op.pre is None or op.pre.image.kind == "directory":
            return None
        if not is_same(self.held(op), op.pre):
            return None
        return self._with_image(op, {op.pre.image})

    def standing_copy(self, op: Op, images: Set[Image]) -> Seen | None:
        """Another object than the old one, with one of its images, at the path of a flip that never happened."""
        found = self.found(op)
        if op.pre is None or found is None or found.st_ino == op.pre.stamp.inode or self.standing(op) != "untouched":
            return None
        seen = self._with_image(op, images)
        if seen is None or seen.image.kind == "directory" or seen.stamp.mtime_ns == op.pre.stamp.mtime_ns:
            return seen
        return None

    def _with_image(self, op: Op, images: Set[Image]) -> Seen | None:
        """What stands at the path, if it has one of these images."""
        found = self.found(op)
        if found is None or kind_of(found) not in {image.kind for image in images}:
            return None
        try:
            seen = observe(self._calls, *self._place(op), wait=False)
        except (Conflict, PermissionError):
            return None  # it keeps changing, or is closed to us: nobody can tell
        return seen if seen is not None and seen.image in images else None

    def how_it_stands(self, op: Op) -> str:
        """In words, in what the object at the path is neither the old nor the planned one."""
        known = [seen.image for seen in (op.pre, op.post) if seen is not None]
        found = self.found(op)
        if found is None:
            return "nothing is there"
        if kind_of(found) not in {image.kind for image in known}:
            return f"a {kind_of(found) or 'special file'} is there instead of a {known[-1].kind}"
        try:
            now = observe(self._calls, *self._place(op), wait=False)
        except (Conflict, PermissionError):
            return "it cannot be read, or keeps changing"
        return _unlike(now.image, known) if now is not None else "nothing is there"

    def replace_copy(self, op: Op, copy: Seen) -> None:
        """The old object back in the place of its copy, which goes where the stage is removed."""
        self._swap(op, copy, op.pre)

    def standing(self, op: Op) -> Standing:
        """On which side of the operation does the disk stand?"""
        found = self.found(op)
        if op.action == "mode":
            return _standing_of_mode(found, op)
        if op.pre is not None and is_same(found, op.pre):
            return "before"  # the old object is never the new one, so this settles it
        held = self.held(op)
        if op.pre is None and found is None:
            return "before" if self._never_happened(op, held) or self._is_directory_of_old(op) else "foreign"
        if is_same(found, op.post) and is_same(held, op.pre):
            return "after" if self._is_as_made(op) else "foreign"
        return "untouched" if self._never_happened(op, held) else "foreign"

    def _never_happened(self, op: Op, held: os.stat_result | None) -> bool:
        """A performed flip leaves the old object in its slot; before it, the new one lies there."""
        if op.post is None:
            # The first half of a move leaves its slot empty again when the second half is done.
            return held is None and (op.slot not in self._taken_out_of or self._is_in_place(op))
        removal = self._removal_into.get(op.slot)
        if held is None and removal is not None:
            return self._is_in_place(removal)
        return is_same(held, op.post)

    def _is_in_place(self, removal: Op) -> bool:
        """The moving object has not left its old place, whatever somebody wrote into it there."""
        found = self.found(removal)
        return found is not None and removal.pre is not None and found.st_ino == removal.pre.stamp.inode

    def _is_as_made(self, op: Op) -> bool:
        """Does a file of our making hold what we wrote? Whatever only moved goes back whole, and need not be read."""
        if op.post is None or op.post.image.kind != "file" or op.slot in self._removal_into:
            return True
        if not op.slot.startswith(self._txn + "/"):
            return True
        return proven(self._calls, *self._place(op), op.post, _EVER) is not None

    def _is_directory_of_old(self, op: Op) -> bool:
        """Is the directory of a path the one that the operation found? If not, it may have taken our object along."""
        assert self._log is not None
        parent = op.path.rpartition("/")[0]
        known = {row.path: row.inode for row in self._log.parents}
        known |= {o.path: o.post.stamp.inode for o in self._log.ops if o.path == parent and o.post is not None}
        try:
            return self._calls.fstat(self._place(op)[0]).st_ino == known.get(parent)
        except Diverged:
            return False

    def held(self, op: Op) -> os.stat_result | None:
        """What lies in the operation's slot now."""
        try:
            slot_directory, slot = self._site.slot_directory(op.slot, self._txn)
        except FileNotFoundError:
            return None
        return look(self._calls, slot_directory, slot)

    def found(self, op: Op) -> os.stat_result | None:
        """What stands at the path now; nothing, when its directory is gone or no longer ours to follow."""
        try:
            directory, name = self._place(op)
        except Diverged:
            return None
        return look(self._calls, directory, name)

    def verify(self, op: Op, flipped_ns: int, gone: Set[str] = frozenset()) -> None:
        """The path must hold exactly what was planned; raises Diverged. `gone` are the directories we removed.

        What somebody touched after the last flip, at `flipped_ns`, is read: its size and time may have been put back.
        """
        if gone and op.post is None and op.path.rpartition("/")[0] in gone:
            return  # judged with its directory; anywhere else the directory must still be there to follow
        directory, name = self._place(op)
        found = look(self._calls, directory, name)
        if not is_same(found, op.post):
            raise Diverged(op.path, _difference(found, op.post))
        if found is None or op.post is None or found.st_ctime_ns <= flipped_ns or op.post.image.kind == "directory":
            return
        if proven(self._calls, directory, name, op.post, flipped_ns) is None:
            raise Diverged(op.path, "was changed by somebody else")

    def _place(self, op: Op) -> tuple[int, str]:
        parent, _, name = op.path.rpartition("/")
        try:
            return self._site.workspace.directory(parent), name
        except OSError as error:
            if error.errno in DISPLACED:
                raise Diverged(op.path, "lies in a directory that is gone or was replaced") from error
            raise

    def _swap(self, op: Op, leaving: Seen | None, entering: Seen | None) -> None:
        directory, name = self._place(op)
        slot_directory, slot = self._site.slot_directory(op.slot, self._txn)
        try:
            self._rename(directory, name, slot_directory, slot, leaving, entering)
        except OSError as error:
            if error.errno == errno.EXDEV and _is_directory(leaving):
                raise Diverged(op.path, "cannot be moved: it is on another file system, or in a layer below") from error
            if error.errno in DISPLACED:
                raise Diverged(op.path, "was replaced or removed by somebody else") from error
            # The kernel names the slot, which tells nobody anything.
            raise OSError(error.errno, error.strerror, op.path) from error
        if _is_directory(leaving) or _is_directory(entering):
            self._site.workspace.forget_below(op.path)
        if leaving is None:
            return
        if not self._is_ours(slot_directory, slot, leaving):
            # L1: give back what we took by mistake. The names now hold it the other way round.
            self._rename(directory, name, slot_directory, slot, entering, leaving)
            raise Diverged(op.path, "was changed by somebody else at the last moment")

    def _rename(
        self, directory: int, name: str, slot_directory: int, slot: str, leaving: Seen | None, entering: Seen | None
    ) -> None:
        if leaving is not None and entering is not None:
            self._calls.exchange(name, directory, slot, slot_directory)
        elif leaving is not None:
            self._calls.move(name, directory, slot, slot_directory)
        elif entering is not None:
            self._calls.move(slot, slot_directory, name, directory)
        else:
            raise AssertionError("a flip of nothing with nothing")

    def _is_ours(self, slot_directory: int, slot: str, expected: Seen) -> bool:
        displaced = look(self._calls, slot_directory, slot)
        if not is_same(displaced, expected):
            return False
        return expected.image.kind != "directory" or self._is_empty(slot_directory, slot)

    def _is_empty(self, slot_directory: int, slot: str) -> bool:
        fd = self._calls.open(slot, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=slot_directory)
        try:
            return not self._calls.names(fd)
        finally:
            self._calls.close(fd)

    def _set_mode(self, op: Op, leaving: Seen | None, entering: Seen | None) -> None:
        assert leaving is not None and entering is not None
        try:
            fd = self._calls.open_beneath(op.path, os.O_PATH | os.O_NOFOLLOW, self._site.workspace.fd)
        except OSError as error:
            if error.errno in DISPLACED:
                raise Diverged(op.path, "was replaced or removed by somebody else") from error
            raise
        try:
            if not is_same(self._calls.fstat(fd), leaving):
                raise Diverged(op.path, "was changed by somebody else at the last moment")
            # An O_PATH descriptor needs no read permission and cannot be redirected; fchmod refuses it, this does not.
            self._calls.chmod(f"/proc/self/fd/{fd}", entering.image.mode)
        finally:
            self._calls.close(fd)


def _is_directory(seen: Seen | None) -> bool:
    return seen is not None and seen.image.kind == "directory"


def _standing_of_mode(found: os.stat_result | None, op: Op) -> Standing:
    assert op.pre is not None and op.post is not None
    if is_same(found, op.post):
        return "after"
    if is_same(found, op.pre):
        return "before"
    # Without our inode or without our mode there is nothing of ours to take back.
    ours = found is not None and found.st_ino == op.post.stamp.inode and found.st_mode & 0o7777 == op.post.image.mode
    return "foreign" if ours else "untouched"


def _difference(found: os.stat_result | None, expected: Seen | None) -> str:
    if expected is None:
        return "exists, although nothing was there"
    if found is None:
        return "is gone"
    if found.st_ino != expected.stamp.inode:
        return "was replaced by somebody else"
    if found.st_mode & 0o7777 != expected.image.mode:
        return f"has mode {found.st_mode & 0o7777:04o} instead of {expected.image.mode:04o}"
    return "was changed by somebody else"


def _unlike(now: Image, known: Sequence[Image]) -> str:
    """`known` are the old object and the planned one, as far as there are such."""
    same = [image for image in known if image.kind == now.kind]
    told = []
    if now.mode not in {image.mode for image in same}:
        told.append(f"mode {now.mode:04o} instead of {' or '.join(_once(f'{image.mode:04o}' for image in same))}")
    if (now.uid, now.gid) not in {(image.uid, image.gid) for image in same}:
        owners = " or ".join(_once(f"{image.uid}:{image.gid}" for image in same))
        told.append(f"owner {now.uid}:{now.gid} instead of {owners}")
    if now.target not in {image.target for image in same}:
        told.append("it leads elsewhere")
    if now.digest not in {image.digest for image in same}:
        told.append("other content")
    if now.xattrs not in {image.xattrs for image in same}:
        told.append("other extended attributes")
    return ", ".join(told) or "content and mode are known ones, but it is another object, or was written again"


def _once(words: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(words)
