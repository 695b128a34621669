"""A workspace with shadows, and a program of our own that works in them for real, confined as any other.

    with shaded(tmp_path / "workspace", {"a": b"old"}) as site, open_shadow(site) as shadow:
        stood = perform(shadow.view, [("write", "a", "new")])
        land(site, shadow.capture())

What the program saw in the end (`stood`) is looked at from inside, with code that Holdfast does not share.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from guarded import fill, tree_of
from holdfast.errors import SandboxUnavailable
from holdfast.model.changeset import Change
from holdfast.sandbox.confined import run_confined
from holdfast.sandbox.process import Command
from holdfast.sandbox.profile import Limits, Profile
from holdfast.sandbox.view import View
from holdfast.store.state import create_state
from holdfast.workspace.capture import Captured
from holdfast.workspace.observe import RACY_NS
from holdfast.workspace.shadow import Shadow
from holdfast.workspace.site import Site
from holdfast.workspace.staging import CopyOf
from holdfast.workspace.transaction import Transaction, new_txn
from holdfast.workspace.tree import snapshot

Act: TypeAlias = tuple[str | int, ...]
# path to kind, mode, uid, gid, content in hexadecimal, attributes
Stood: TypeAlias = dict[str, list[object]]
PYTHON = next(path for path in ("/usr/bin/python3", sys.executable) if os.access(path, os.X_OK))
PROGRAM = (Path(__file__).parent / "shaded_program.py").read_text(encoding="utf-8")
_MINUTE = 60_000


@contextmanager
def shaded(path: Path, files: Mapping[str, bytes]) -> Iterator[Site]:
    path.mkdir(parents=True, exist_ok=True)
    fill(path, files)
    create_state(str(path))
    with Site(str(path)) as site:
        yield site


def perform(view: View, acts: Sequence[Act]) -> Stood:
    """Do these things in a view, in order, and tell what stands there then; what cannot be done is passed over."""
    out = confined(view, PYTHON, "-I", "-S", "-B", "-c", PROGRAM, json.dumps(acts))
    stood: Stood = json.loads(out)
    return stood


def confined(view: View, *argv: str) -> bytes:
    """Run a program in a view; its output. Skips where this host has no sandbox at all."""
    command = Command(argv, view.path, {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}, _MINUTE, 1 << 26)
    try:
        done = run_confined(command, view, Profile(limits=Limits(time_ms=_MINUTE)))
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox here: {error}")
    assert done.succeeded, done.finished.output.decode(errors="replace")
    return done.finished.output


def shell(shadow: Shadow, script: str) -> None:
    """Any program at all, for what a few words say best."""
    confined(shadow.view, "/bin/sh", "-e", "-c", script)


def captured_by(shadow: Shadow, keep: Sequence[str] = ()) -> Captured:
    """What a shadow captures, which must be the same with a look at the workspace in hand and without."""
    time.sleep(RACY_NS / 1e9)  # a look believes no younger stamp, and would then be of no use to the capture
    bare, known = shadow.capture(keep), shadow.capture(keep, snapshot(shadow.view.path, None))
    assert known._replace(sources={}) == bare._replace(sources={})
    assert known.sources.keys() == bare.sources.keys()
    for path, source in known.sources.items():
        assert source.mtime_ns == bare.sources[path].mtime_ns
        assert isinstance(source, CopyOf) or source == bare.sources[path]
    return known


def land(site: Site, captured: Captured) -> None:
    """As every change lands: by a transaction."""
    transaction = Transaction(site, new_txn(), {})
    transaction.prepare(captured.change_set, captured.seen, captured.sources)
    transaction.apply()
    transaction.verify()
    transaction.commit()


def standing(site: Site) -> Stood:
    """The workspace, told as `perform` tells a view."""
    return {
        path: [
            thing.kind,
            0o777 if thing.kind == "symlink" else thing.mode,
            *thing.owner,
            thing.content.hex(),
            [[name, value.hex()] for name, value in thing.xattrs],
        ]
        for path, thing in tree_of(Path(site.path)).items()
        if ".git" not in path.split("/")
    }


def changes(captured: Captured) -> dict[str, str]:
    """Path to one letter: new, gone, edited, mode, another kind."""
    return {change.path: _letter(change) for change in captured.change_set.changes}


def _letter(change: Change) -> str:
    pre, post = change.pre, change.post
    if pre is None or post is None:
        return "new" if pre is None else "gone"
    if pre.kind != post.kind:
        return post.kind
    return "mode" if pre._replace(mode=post.mode) == post else "edited"
