"""A directory as a program in the sandbox sees it: a base, and layers above it that take what is written."""

from __future__ import annotations

from typing import NamedTuple


class Layer(NamedTuple):
    """Two directories of ours on one file system: what was written, and the kernel's workbench."""

    upper: str
    work: str


class Repository(NamedTuple):
    """A directory of ours as git's own for a view, which finds its objects in another one; both absolute."""

    own: str
    objects: str


class View(NamedTuple):
    """All paths are absolute but `masked`, which are relative to `path`.

    With layers the base is only read, and the last layer alone is written to; the kernel allows two.
    Without layers the base is a copy made for this purpose, and is written to itself.
    """

    path: str  # where it appears inside: the workspace's own path, so that absolute paths keep their meaning
    base: str
    layers: tuple[Layer, ...] = ()
    masked: tuple[str, ...] = ()  # looks empty inside, and cannot be written
    shift: int = 0  # owners in the layers are this much higher than they appear inside (only where we are root)
    # The file `.git`, which is masked, leads there and nowhere else.
    repository: Repository | None = None
