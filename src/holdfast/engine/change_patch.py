"""A change set as a patch: what would land, in the form in which everybody reads and sends changes.

Invariant C1: the patch does what the change set does to files, all of it, or there is none (InvalidInput says why).
A file that moves is deleted and created in it. Directories are in no patch, so one that stays empty is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.engine.difference import Compared, PlannedDifference
from holdfast.errors import InvalidInput
from holdfast.model.changeset import ChangeSet
from holdfast.model.image import Image
from holdfast.model.patch import FilePatch, Patch
from holdfast.model.patch_make import make
from holdfast.model.path import printable
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Source


class _File(NamedTuple):
    """One side of a file; no data is no file."""

    data: bytes | None
    mode: int | None


def patch_of(site: Site, change_set: ChangeSet, sources: Mapping[str, Source]) -> Patch:
    files = []
    for compared in PlannedDifference(site, change_set.changes, sources).compared(change_set.changes):
        made = _file(compared)
        if made is not None:
            files.append(made)
    if not files:
        raise InvalidInput("no file is changed")
    return Patch(tuple(files))


def _file(compared: Compared) -> FilePatch | None:
    change = compared.change
    kinds = {image.kind for image in (change.pre, change.post) if image is not None}
    if kinds == {"directory"}:
        return None
    if kinds != {"file"}:
        raise InvalidInput(f"{printable(change.path)} is or becomes a {' or a '.join(sorted(kinds - {'file'}))}")
    reasons = [side.why_not for side in (compared.old, compared.new) if side.data is None]
    if reasons:
        raise InvalidInput(f"{printable(change.path)} is {reasons[0]}")
    old, new = _side(change.pre, compared.old.data), _side(change.post, compared.new.data)
    return make(old.data, new.data, change.path, old_mode=old.mode, new_mode=new.mode)


def _side(image: Image | None, data: bytes | None) -> _File:
    return _File(None, None) if image is None else _File(data, image.mode)
