"""Texts: what a transaction put at each path, kept beside its slots, so that a later undo can merge.

    bytes of a change file .... are in memory already
    everything else ........... is read where it landed: a kept simulation, what a program or an agent made, a task of
                                a roadmap, an old object that an undo brought back; by recovery, all of it

Invariants
  X1  The road by which a change came makes no difference to what is kept of it.
  X2  A text is kept only when its bytes are those of the image. Whoever edits the file meanwhile, or takes it away,
      sends us to the source that it was copied from; where that is gone too, the text is not kept.
  X3  Kept is text of at most 1 MiB a file, each content once. Memory holds one file and one batch of them.
  X4  What was only moved, or got another mode, brought no text of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

from blake3 import blake3

from holdfast.disk.calls import Calls
from holdfast.errors import HoldfastError
from holdfast.model.image import Image
from holdfast.model.path import parent_of
from holdfast.store.contents import NAME, TEXT_LIMIT, write_contents
from holdfast.store.journal import Op
from holdfast.workspace.observe import look
from holdfast.workspace.recovery import read_log
from holdfast.workspace.site import JOURNAL, Site
from holdfast.workspace.staging import Bytes, CopyOf, Source

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def keep_texts(site: Site, txn: str, ops: Sequence[Op], sources: Mapping[str, Source]) -> None:
    """After the commit, while its folder is still in the journal; OSError leaves nothing behind."""
    # Of our own: sources may open more directories of the state than are kept open.
    directory = site.state.open_directory(f"{JOURNAL}/{txn}")
    try:
        write_contents(site.calls, directory, _texts(site, ops, sources))
    finally:
        site.calls.close(directory)


def keep_texts_after_crash(site: Site, txn: str) -> None:
    """The same for a transaction that was committed, and whose process ended before its texts were kept."""
    directory = site.state.directory(f"{JOURNAL}/{txn}")
    if look(site.calls, directory, NAME) is None:
        keep_texts(site, txn, read_log(site.calls, directory).ops, {})


def _texts(site: Site, ops: Sequence[Op], sources: Mapping[str, Source]) -> Iterator[tuple[str, bytes]]:
    known: set[str] = set()
    for path, image in _written(ops):
        if image.digest in known:
            continue
        data = _text(site, path, image, sources.get(path))
        if data is not None:
            known.add(image.digest)
            yield image.digest, data


def _written(ops: Sequence[Op]) -> Iterator[tuple[str, Image]]:
    """Where new content stands that may be a text."""
    moved = {op.slot for op in ops if op.post is None}
    for op in {op.path: op for op in ops}.values():
        image = op.post.image if op.post is not None else None
        if image is None or image.kind != "file" or image.size > TEXT_LIMIT or op.slot in moved:
            continue
        if op.pre is None or op.pre.image.digest != image.digest:
            yield op.path, image


def _text(site: Site, path: str, image: Image, source: Source | None) -> bytes | None:
    if isinstance(source, Bytes):
        return source.data
    data = _checked(site.calls, lambda: _opened(site, path), image)
    if data is None and isinstance(source, CopyOf):
        data = _checked(site.calls, source.open, image)
    return data


def _opened(site: Site, path: str) -> int:
    return site.calls.open(path.rpartition("/")[2], _READ, dir_fd=site.workspace.directory(parent_of(path)))


def _checked(calls: Calls, opened: Callable[[], int], image: Image) -> bytes | None:
    """X2. What cannot be opened or read has no bytes; that is no failure of a change that is committed."""
    try:
        fd = opened()
    except (OSError, HoldfastError):
        return None
    try:
        data = calls.pread(fd, image.size + 1, 0)
    except OSError:
        return None
    finally:
        calls.close(fd)
    return data if len(data) == image.size and blake3(data).hexdigest() == image.digest else None
