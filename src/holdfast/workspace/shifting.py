"""Owners in a shadow are not owners in the workspace where we are root.

Programs that root starts run as users who are nobody on the host: every owner is that much higher on the disk.
So a shadow's images are moved on the way in and on the way out, access lists included, which name owners too.

Invariant H1: `inside(on_disk(image)) == image`, and an owner that no program inside can be is None, never guessed.
"""

from __future__ import annotations

import os
import struct

from holdfast.model.image import Image, Xattrs

MAPPED = 65_536
# The overlay's own notes; programs can neither see nor set them.
OVERLAY_XATTRS = ("user.overlay.", "trusted.overlay.")
# What a program called like one of them: the kernel keeps it under a name that cannot be mistaken.
ESCAPED_XATTRS = ("user.overlay.overlay.", "trusted.overlay.overlay.")

_ACLS = ("system.posix_acl_access", "system.posix_acl_default")
_VERSION = struct.Struct("<I")
_RULE = struct.Struct("<HHI")
_NAMES_AN_OWNER = (0x02, 0x08)  # ACL_USER, ACL_GROUP; the others name nobody


def our_shift() -> int:
    """How much higher owners are on the disk than inside."""
    from holdfast.sandbox.confined import SHIFT, is_real_root

    return SHIFT if is_real_root() else 0


def on_disk(image: Image, shift: int) -> Image:
    """An image as it must stand in the shadow."""
    if not shift:
        return image
    return image._replace(uid=image.uid + shift, gid=image.gid + shift, xattrs=_moved(image.xattrs, shift))


def inside(image: Image, shift: int) -> Image | None:
    """An image from the shadow as programs saw it; None for an owner that is mapped to nobody."""
    if not image.xattrs:  # nearly all
        kind, mode, uid, gid, size, digest, target, _ = image
        if not shift:
            return image
        shown = Image(kind, mode, uid - shift, gid - shift, size, digest, target)
        return shown if is_mapped(shown.uid, shown.gid, shift) else None
    own = tuple(pair for pair in image.xattrs if not pair[0].startswith(OVERLAY_XATTRS))
    if not shift:
        return image._replace(xattrs=own)
    uid, gid = image.uid - shift, image.gid - shift
    if not (is_mapped(uid, gid, shift) and all(owner >= shift for owner in _named(own))):
        return None
    return image._replace(uid=uid, gid=gid, xattrs=_moved(own, -shift))


def is_mapped(uid: int, gid: int, shift: int) -> bool:
    """Whether programs in a shadow can own such a file, which they must to change it."""
    if shift:
        return 0 <= uid < MAPPED and 0 <= gid < MAPPED
    return uid == os.geteuid() and gid == os.getegid()


def moved_attribute(name: str, value: bytes, by: int) -> bytes:
    """An attribute whose owners, if it names some, are `by` higher."""
    return bytes.fromhex(_moved_rules(value.hex(), by)) if by and name in _ACLS else value


def _moved(xattrs: Xattrs, by: int) -> Xattrs:
    return tuple((name, _moved_rules(value, by) if name in _ACLS else value) for name, value in xattrs)


def _moved_rules(value: str, by: int) -> str:
    head, rules = _rules(value)
    moved = (_RULE.pack(tag, may, who + by if tag in _NAMES_AN_OWNER else who) for tag, may, who in rules)
    return (head + b"".join(moved)).hex()


def _named(xattrs: Xattrs) -> list[int]:
    found = [rule for name, value in xattrs if name in _ACLS for rule in _rules(value)[1]]
    return [who for tag, _, who in found if tag in _NAMES_AN_OWNER]


def _rules(value: str) -> tuple[bytes, list[tuple[int, int, int]]]:
    raw = bytes.fromhex(value)
    return raw[: _VERSION.size], list(_RULE.iter_unpack(raw[_VERSION.size :]))
