"""Read what stands in a shadow: the image as it would land, the bytes, and the dangers.

Small files are read once and kept, up to a limit; the others are copied from the shadow when they are staged,
and must then still have the digest that was captured.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence

from blake3 import blake3

from holdfast.disk.confined import Root
from holdfast.model.image import Image, Kind, Xattrs, has_special_rights, lost_attribute
from holdfast.model.path import parent_of
from holdfast.workspace.observe import content_digest, kind_of, read_xattrs
from holdfast.workspace.shifting import OVERLAY_XATTRS, inside, is_mapped
from holdfast.workspace.staging import Bytes, CopyOf, Source
from holdfast.workspace.touched import READ, Found, made, name_of, open_file

_SMALL = 1 << 18
_KEPT = 1 << 25
_SPECIALS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Attributes that the kernel gives powers to; access lists are `system.` and ordinary.
_POWERS = ("security.", "trusted.")
# What the kernel notes on a file that it copied up.
_NOTES = frozenset(f"{start}{name}" for start in OVERLAY_XATTRS for name in ("origin", "impure"))


class _Unfit(Exception):
    """An attribute that cannot land, by the name that the program gave it."""

    def __init__(self, name: str) -> None:
        self.name = name.replace(".overlay.overlay.", ".overlay.", 1)


class Posts:
    """What a shadow has; `shift` and `foreign` say whose the owners on its disk really are.

    `unfit` is how attributes begin that cannot land; whatever has one has no image.
    """

    def __init__(
        self, root: Root, shift: int, foreign: Mapping[str, tuple[int, int]], unfit: tuple[str, ...] = ()
    ) -> None:
        self._root, self._shift, self._foreign, self._unfit = root, shift, foreign, unfit
        self._notes = frozenset(name for name in _NOTES if not (unfit and name.startswith(unfit)))
        self._kept: dict[str, Bytes] = {}
        self._room = _KEPT
        # When large files were written.
        self._times: dict[str, int] = {}
        # Owners on the disk, and who they are inside.
        self._owners: dict[tuple[int, int], tuple[int, int]] = {}

    def image(self, path: str, found: os.stat_result) -> Image | str:
        """The image, or the reason why there can be none."""
        kind = kind_of(found)
        if kind is None:
            return f"{_SPECIALS.get(stat.S_IFMT(found.st_mode), 'something special')} cannot land"
        try:
            return self._image(path, kind, found)
        except _Unfit as error:
            return f"the attribute {error.name}, which is an overlay's own, cannot land"

    def _image(self, path: str, kind: Kind, found: os.stat_result) -> Image | str:
        mode = stat.S_IMODE(found.st_mode)
        uid, gid = self._foreign.get(path) or (found.st_uid, found.st_gid)
        if kind == "symlink":
            target = os.readlink(name_of(path), dir_fd=self._root.directory(parent_of(path)))
            image = Image(kind, 0o777, uid, gid, target=target)
        elif kind == "directory":
            image = Image(kind, mode, uid, gid, xattrs=self._attributes(self._root.directory(path)))
        else:
            size, digest, xattrs = self._file(path)
            image = Image(kind, mode, uid, gid, size, digest, xattrs=xattrs)
        return inside(image, self._shift) or "its owner is nobody in the workspace"

    def plain(self, files: Sequence[Found]) -> list[tuple[Image, Bytes] | None]:
        """Small files that have one name and no attributes but the overlay's, some at once; None: ask `image`."""
        opened: list[int] = []
        try:
            self._open_plain(files, opened)
            noted = [fd >= 0 and self._notes.issuperset(os.listxattr(fd)) for fd in opened]
            pairs = zip(opened, files, strict=True)
            read = [os.read(fd, found.st_size + 1) if fd >= 0 else b"" for fd, (_, _, _, found) in pairs]
        finally:
            for fd in opened:
                if fd >= 0:
                    os.close(fd)
        digests = [blake3(data).digest().hex() for data in read]  # a tenth faster than `hexdigest`
        images: list[tuple[Image, Bytes] | None] = []
        for (_, _, _, found), is_noted, data, digest in zip(files, noted, read, digests, strict=True):
            size = found.st_size
            if not is_noted or len(data) != size:
                images.append(None)
                continue
            uid, gid = self._owners[found.st_uid, found.st_gid]
            image = made(Image, ("file", found.st_mode & 0o7777, uid, gid, size, digest, "", ()))
            images.append((image, made(Bytes, (data, found.st_mtime_ns))))
        return images

    def _open_plain(self, files: Sequence[Found], opened: list[int]) -> None:
        """Adds a descriptor for each file for which there is room; a negative one where it cannot be had so easily."""
        owners, foreign = self._owners, self._foreign
        at, folder = "", self._root.fd
        for above, name, path, found in files:
            size, owner, fd = found.st_size, (found.st_uid, found.st_gid), -1
            known = owners.get(owner) or self._owner(*owner)
            if size <= _SMALL and size <= self._room and known is not None and path not in foreign:
                if above != at:
                    at, folder = above, self._root.directory(above)
                try:
                    fd = os.open(name, READ, dir_fd=folder)
                    self._room -= size
                except PermissionError:
                    pass  # `image` opens it for the look
            opened.append(fd)

    def _owner(self, uid: int, gid: int) -> tuple[int, int] | None:
        """Whose a file is in the workspace; None for nobody."""
        shown = uid - self._shift, gid - self._shift
        if self._shift and not is_mapped(*shown, self._shift):
            return None
        self._owners[uid, gid] = shown
        return shown

    def is_bare(self, image: Image, found: os.stat_result) -> bool:
        """The cheap answer for a directory without attributes that was only passed through: all else is equal."""
        owner = self._owner(found.st_uid, found.st_gid)
        return owner is not None and image == Image("directory", stat.S_IMODE(found.st_mode), *owner)

    def is_like(self, found: os.stat_result, standing: os.stat_result) -> bool:
        """The same without an image: whether a directory has the mode and the owner of one of the workspace."""
        owner = self._owners.get((found.st_uid, found.st_gid)) or self._owner(found.st_uid, found.st_gid)
        return found.st_mode == standing.st_mode and owner == (standing.st_uid, standing.st_gid)

    def source(self, path: str) -> Source:
        """Where staging gets the bytes of a file whose image was asked for."""
        kept = self._kept.pop(path, None)
        root = self._root
        return kept if kept is not None else CopyOf(lambda: open_file(root, path), self._times[path])

    def danger(self, old: Image | None, new: Image, found: os.stat_result, inherits: Callable[[], bool]) -> str:
        """Why this must not land although it could; empty when nothing speaks against it."""
        if new.kind == "file" and found.st_nlink > 1:
            return f"a hard link: the shadow has it under {found.st_nlink} names"
        # A directory made in one that hands down its group has the bit by itself.
        if new.mode & stat.S_ISUID or (new.mode & stat.S_ISGID and not (new.kind == "directory" and inherits())):
            return f"set-id bits in its mode {new.mode:04o}"
        if old is not None and old.kind == new.kind == "file" and old != new:
            if has_special_rights(old):
                return "it runs with special rights (set-id or capability), which its new form has not"
            if gone := lost_attribute(old, new):
                return f"the workspace has it with the attribute {gone}, which a program in a shadow cannot keep"
        known = old.xattrs if old is not None else ()
        lost = [name for name, _ in known if name.startswith(OVERLAY_XATTRS)]
        if lost:
            return f"the workspace has it with the attribute {lost[0]}, which no shadow can show"
        gained = [name for name, value in new.xattrs if name.startswith(_POWERS) and (name, value) not in known]
        return f"the attribute {gained[0]}, which can give powers" if gained else ""

    def _attributes(self, fd: int) -> Xattrs:
        """The overlay's own notes are on nearly every file, and not worth reading."""
        names = os.listxattr(fd)
        for name in names:
            if self._unfit and name.startswith(self._unfit):
                raise _Unfit(name)
        foreign = all(name.startswith(OVERLAY_XATTRS) for name in names)
        return () if foreign else read_xattrs(self._root.calls, fd)

    def _file(self, path: str) -> tuple[int, str, Xattrs]:
        """Size, digest and attributes."""
        fd = open_file(self._root, path)
        try:
            about = os.fstat(fd)
            xattrs = self._attributes(fd)
            if about.st_size > min(_SMALL, self._room):
                self._times[path] = about.st_mtime_ns
                return about.st_size, content_digest(self._root.calls, fd, about.st_size), xattrs
            data = os.read(fd, about.st_size + 1)
        finally:
            os.close(fd)
        self._kept[path] = Bytes(data, about.st_mtime_ns)
        self._room -= len(data)
        return len(data), blake3(data).hexdigest(), xattrs
