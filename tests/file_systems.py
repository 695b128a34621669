"""A fresh file system of any kind, for tests.

    with mounted("btrfs") as place:      # an empty directory on it
        ...

`pytest --file-system btrfs FILES` runs whole test files on one: every temporary directory is there (see conftest.py).

Invariants
  F1  Mounts are made in a mount namespace of this process: nobody else sees them, and they end with it.
  F2  Nothing is left when the process is killed: the loop device is released with its mount, and the image has no name.
  F3  `mounted` holds one loop device.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Literal, get_args

OnDisk = Literal["ext4", "xfs", "btrfs"]
Kind = Literal["ext4", "xfs", "btrfs", "tmpfs", "overlayfs"]
KINDS: tuple[Kind, ...] = get_args(Kind)
MAKE: dict[OnDisk, list[str]] = {
    # Nothing is left to a background thread.
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-m", "single", "-d", "single"],
}
_BASE: dict[Kind, OnDisk] = {"ext4": "ext4", "xfs": "xfs", "btrfs": "btrfs", "overlayfs": "ext4"}
_BYTES = 512 << 20
_MEMORY = "/dev/shm"
_CLONE_NEWNS = 0x00020000


def why_not(kind: Kind) -> str:
    """Why this host cannot give such a file system; empty when it can."""
    if os.geteuid() != 0:
        return f"{kind} for a test needs root (mount)"
    base = _BASE.get(kind)
    if base is not None and not os.path.exists("/dev/loop-control"):
        return f"{kind} for a test needs loop devices"
    tools = ["mount", "umount", *([MAKE[base][0]] if base is not None else [])]
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return f"{kind} for a test needs {', '.join(absent)}" if absent else ""


def mount_alone() -> None:
    """From now on this process, and not the one that forked it, has its own view of what is mounted (F1)."""
    _mount_alone(os.getpid())


@cache
def _mount_alone(_process: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "cannot have a mount namespace")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


@contextmanager
def mounted(kind: Kind) -> Iterator[Path]:
    """An empty directory on a fresh file system; call `why_not` first."""
    mount_alone()
    # A short path: sockets have 107 bytes for theirs.
    place = Path(tempfile.mkdtemp(prefix="hf-", dir="/tmp"))
    place.chmod(0o755)  # ordinary users work there too
    (place / "m").mkdir()
    try:
        _mount(kind, place)
        yield place / "m"
    finally:
        subprocess.run(["umount", "--lazy", place / "m"], check=False)
        if kind == "overlayfs":
            subprocess.run(["umount", "--lazy", place / "base"], check=False)
        shutil.rmtree(place)


def mount_overlay(base: str, at: str) -> None:
    """An overlay whose layers are in `base`; made there by the first call, found there by later ones."""
    layers = {name: os.path.join(base, name) for name in ("lower", "upper", "work")}
    for path in layers.values():
        os.makedirs(path, exist_ok=True)
    options = ",".join(f"{name}dir={path}" for name, path in layers.items())
    subprocess.run(["mount", "-t", "overlay", "-o", options, "overlay", at], check=True)


def _mount(kind: Kind, place: Path) -> None:
    if kind == "tmpfs":
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", place / "m"], check=True)
    elif kind == "overlayfs":
        (place / "base").mkdir()
        _mount_image(_BASE[kind], place / "base")
        mount_overlay(str(place / "base"), str(place / "m"))
    else:
        _mount_image(kind, place / "m")


def _mount_image(kind: OnDisk, at: Path) -> None:
    descriptor, image = tempfile.mkstemp(prefix="hf-image-", dir=_MEMORY if os.path.isdir(_MEMORY) else None)
    try:
        os.truncate(descriptor, _BYTES)
        os.close(descriptor)
        subprocess.run([*MAKE[kind], image], check=True, capture_output=True)
        subprocess.run(["mount", "-t", kind, "-o", "loop", image, at], check=True)
    finally:
        os.unlink(image)
