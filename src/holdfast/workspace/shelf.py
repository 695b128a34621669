"""The shelf: where the old objects and texts of finished transactions can be found.

    in a slot ............ the object itself, ready to be flipped back, after its content was read (see `proof`)
    in the blob store .... its bytes, after gc packed it
    beside a log ......... the text that a transaction wrote

Everything else that comes from here is copied, and staging checks its digest on the way.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from holdfast.disk.calls import Calls
from holdfast.model.image import Image, Seen
from holdfast.store.blobs import Blobs
from holdfast.store.contents import TEXT_LIMIT, read_contents
from holdfast.workspace.observe import content_digest, kind_of, look, stamp_of
from holdfast.workspace.proof import proven
from holdfast.workspace.site import KEPT, Site
from holdfast.workspace.staging import Bytes, CopyOf, Held
from holdfast.workspace.turns import Past, Turn


class Shelf:
    def __init__(self, site: Site, pasts: Sequence[Past], settled_ns: int) -> None:
        self._site = site
        self._calls = site.calls
        self._pasts = pasts
        self._settled_ns = settled_ns
        self._blobs = Blobs(site.state)
        self._slots_of: dict[int, list[str]] | None = None

    def object_for(self, turn: Turn, target: Seen) -> Held | None:
        """The old object itself, proven: from the path's own slot, or from that of a later change to where it moved."""
        found = (self._proven(slot, target) for slot in self._slots(turn, target))
        return next((held for held in found if held is not None), None)

    def copy_for(self, turn: Turn, target: Seen) -> CopyOf | None:
        """The old content, from an object that is not the old one itself.

        A transaction in between gave it another mode, or the state was copied: then it is another inode, and may
        have another owner and other times. Its content is what counts; staging gives it the rest.
        """
        for slot in self._slots(turn, target):
            if self._holds(slot, target.image):
                return CopyOf(lambda slot=slot: self._open(slot), target.stamp.mtime_ns)  # type: ignore[misc]
        return None

    def stored(self, digest: str, size: int) -> Bytes | CopyOf | None:
        if size == 0:
            return Bytes(b"")
        try:
            self._calls.close(self._blobs.open(digest))
            return CopyOf(lambda: self._blobs.open(digest))
        except FileNotFoundError:
            data = self.text(digest)
            return Bytes(data) if data is not None else None

    def text(self, digest: str) -> bytes | None:
        for past in self._pasts:
            found = read_contents(self._calls, self._site.state.directory(f"{KEPT}/{past.txn}"), {digest})
            if digest in found:
                return found[digest]
        return None

    def old_bytes(self, turn: Turn, theirs: Image) -> bytes | None:
        """What stood at a path before, checked, as far as a merge wants it."""
        for slot in self._slots(turn, turn.target) if turn.target is not None else ():
            if self._holds(slot, theirs):
                return checked_bytes(self._calls, self._open(slot), theirs)
        source = self.stored(theirs.digest, theirs.size)
        if isinstance(source, CopyOf):
            return checked_bytes(self._calls, source.open(), theirs)
        return source.data if isinstance(source, Bytes) else None

    def held(self, slot: str) -> os.stat_result | None:
        """What lies in a slot; nothing, when there is no such slot."""
        place = self._place(slot)
        return look(self._calls, *place) if place is not None else None

    def _proven(self, slot: str, target: Seen) -> Held | None:
        """With the stamp of this moment: whoever writes to it from now on is seen before it is flipped."""
        place = self._place(slot)
        found = proven(self._calls, *place, target, self._settled_ns) if place is not None else None
        return Held(slot, Seen(target.image, stamp_of(found))) if found is not None else None

    def _place(self, slot: str) -> tuple[int, str] | None:
        if not slot:
            return None
        try:
            return self._site.slot_directory(slot, own="")
        except FileNotFoundError:
            return None

    def _holds(self, slot: str, image: Image) -> bool:
        """Does a file with this content lie in the slot? What its mode closes to us cannot be told."""
        found = self.held(slot)
        if found is None or kind_of(found) != "file" or image.kind != "file" or found.st_size != image.size:
            return False
        try:
            fd = self._open(slot)
        except PermissionError:
            return False
        try:
            return content_digest(self._calls, fd, image.size) == image.digest
        finally:
            self._calls.close(fd)

    def _open(self, slot: str) -> int:
        directory, name = self._site.slot_directory(slot, own="")
        return self._calls.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=directory)

    def _slots(self, turn: Turn, target: Seen) -> list[str]:
        """The path's own slot first, then those that the object was put into later."""
        return list(dict.fromkeys([turn.slot, *self._slots_for(target.stamp.inode)]))

    def _slots_for(self, inode: int) -> list[str]:
        """Slots that an object was put into by any of these transactions."""
        if self._slots_of is None:
            self._slots_of = {}
            for op in (op for past in self._pasts for op in past.log.ops):
                if op.pre is not None and op.slot:
                    self._slots_of.setdefault(op.pre.stamp.inode, []).append(op.slot)
        return self._slots_of.get(inode, [])


def checked_bytes(calls: Calls, fd: int, image: Image) -> bytes | None:
    """The bytes of a small file, if they are those of the image; the descriptor is closed."""
    try:
        data = calls.pread(fd, TEXT_LIMIT + 1, 0)
        return data if content_digest(calls, fd) == image.digest and len(data) == image.size else None
    finally:
        calls.close(fd)
