"""Runs in a mount namespace of its own: mounts foreign things into a workspace, then tries every step on them."""

from __future__ import annotations

import ctypes
import os
import sys

import holdfast
from holdfast.errors import HoldfastError
from holdfast.model.plan import Chmod, Create, Delete, Inline, Move, Plan, Symlink, Update, Write

_BIND, _PRIVATE_RECURSIVE = 4096, (1 << 18) | 16384


def _mount(source: str, target: str, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), None, flags, None):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def main(workspace: str, outside: str) -> None:
    _mount("none", "/", _PRIVATE_RECURSIVE)
    _mount(outside, f"{workspace}/mnt", _BIND)
    _mount(f"{outside}/x", f"{workspace}/file", _BIND)
    steps = [
        Write("mnt/x", Inline(b"evil")),
        Write("mnt/new", Inline(b"evil")),
        Update("mnt/x", b"theirs", Inline(b"evil")),
        Create("mnt/d", True),
        Delete("mnt/x"),
        Delete("mnt", True),
        Move("mnt/x", "y"),
        Move("mnt", "m2"),
        Chmod("mnt/x", 0o777),
        Chmod("mnt", 0o777),
        Symlink("mnt/l", "x"),
        Write("file", Inline(b"evil")),
        Delete("file"),
        Chmod("file", 0o777),
        Move("file", "f2"),
    ]
    with holdfast.open(workspace) as hf:
        for step in steps:
            try:
                hf.execute(hf.simulate(Plan("attack", (step,))), approved_by="attacker")
            except HoldfastError:
                continue
            raise SystemExit(f"not refused: {step}")
        assert not hf.needs_recovery()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
