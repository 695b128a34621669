"""A workspace, a layer over it or a copy of it, and prisoners who try to get out; as root, and as an ordinary user.

    cell.python("open('/etc/shadow').read()")   ->  Confined

A prisoner that gets out prints ESCAPED. What happened outside is looked at from outside.
"""

from __future__ import annotations

# Loaded now: after a change of user the interpreter's own directory may be out of reach.
import ctypes
import glob  # noqa: F401
import marshal  # noqa: F401
import os
import pickle
import resource  # noqa: F401
import socket  # noqa: F401
import subprocess  # noqa: F401
import tempfile  # noqa: F401
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from guarded import USER, in_child
from holdfast.disk.confined import Root
from holdfast.errors import HoldfastError
from holdfast.sandbox import probe, shown  # noqa: F401
from holdfast.sandbox.confined import SHIFT, Confined, run_confined
from holdfast.sandbox.process import Command
from holdfast.sandbox.profile import Limits, Profile
from holdfast.sandbox.view import Layer, View
from holdfast.workspace.copying import Copy

T = TypeVar("T")
_PR_SET_DUMPABLE = 4
SECRET = b"the secret of the workspace"
QUICK = Limits(time_ms=20_000, memory_bytes=512 << 20, processes=50, disk_bytes=64 << 20, output_bytes=1 << 20)
PLAIN = Profile(limits=QUICK)


class Cell:
    """`place` holds everything; only its owner may enter it."""

    def __init__(self, place: Path, *, root: bool, layers: int = 1, copied: bool = False) -> None:
        self.place, self.root, self.copied = place, root, copied
        self.workspace = place / "workspace"
        self.secret = place / "secret"
        self.workspace.mkdir(parents=True)
        self.secret.write_bytes(SECRET)
        (self.workspace / "file").write_bytes(b"old\n")
        (self.workspace / ".env").write_bytes(SECRET)
        (self.workspace / ".holdfast").mkdir()
        (self.workspace / ".holdfast" / "key").write_bytes(SECRET)
        # Where a shadow keeps its copy: below the workspace, in what is hidden.
        self.copy = self.workspace / ".holdfast" / "shadows" / "copy"
        rows = tuple(self._layer(place / f"layer{number}") for number in range(0 if copied else layers))
        if copied:
            self.copy.mkdir(parents=True)
        self._before: dict[str, bytes] = {}
        base = str(self.copy if copied else self.workspace)
        self._view = View(str(self.workspace), base, rows, (".holdfast", ".env"), SHIFT if root else 0)
        if not root and os.geteuid() == 0:
            for path in (place, *place.rglob("*")):
                os.chown(path, USER, USER)
        place.chmod(0o700)

    @property
    def view(self) -> View:
        """A copy is made when it is first looked at: tests furnish their workspace before."""
        if self.copied and not os.listdir(self.copy):
            self.act(self._fill_copy)
            self._before = contents(self.copy)
        return self._view

    @property
    def upper(self) -> Path:
        """Where lands what a program writes."""
        return self.copy if self.copied else Path(self._view.layers[-1].upper)

    def written(self) -> dict[str, bytes]:
        """The files that a program has made or changed."""
        return {name: data for name, data in contents(self.upper).items() if data != self._before.get(name)}

    def run(
        self, *argv: str, profile: Profile = PLAIN, view: View | None = None, env: Mapping[str, str] | None = None
    ) -> Confined:
        """As whoever this cell belongs to."""
        shown_view = view or self.view
        command = Command(argv, shown_view.path, env or {"PATH": "/usr/bin:/bin"}, 30_000)
        return self.act(lambda: run_confined(command, shown_view, profile))

    def python(
        self,
        code: str,
        *args: str,
        profile: Profile = PLAIN,
        view: View | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Confined:
        path = self.view.path  # here, not in the child: it makes the copy
        python = self.act(lambda: shown.interpreter(path)).inside
        return self.run(python, "-I", "-S", "-B", "-c", code, *args, profile=profile, view=view, env=env)

    def act(self, action: Callable[[], T]) -> T:
        """Do it as the owner: in a child where we are somebody else."""
        if self.root or os.geteuid() != 0:
            return action()
        return as_ordinary_user(action)

    def _fill_copy(self) -> None:
        with Root(str(self.workspace)) as workspace, Root(str(self.copy)) as copy:
            Copy(workspace, copy, frozenset(self._view.masked), self._view.shift).make()

    def _layer(self, place: Path) -> Layer:
        upper, work = place / "upper", place / "work"
        for path in (upper, work):
            path.mkdir(parents=True)
            if self.root:
                os.chown(path, SHIFT, SHIFT)
        return Layer(str(upper), str(work))


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def as_ordinary_user(action: Callable[[], T], *, closed: bool = False) -> T:
    """In a process like one that the user started; `closed`: as one that became his, which he cannot look into."""
    shared = os.fdopen(os.memfd_create("outcome"), "w+b")

    def act() -> None:
        outcome: Any
        assert closed or ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0) == 0
        try:
            outcome = action()
        except HoldfastError as error:
            outcome = error
        pickle.dump(outcome, shared)
        shared.flush()

    with shared:
        assert in_child(act, uid=USER) == 0
        shared.seek(0)
        outcome = pickle.load(shared)
    if isinstance(outcome, HoldfastError):
        raise outcome
    return outcome  # type: ignore[no-any-return]


def said(confined: Confined) -> str:
    return confined.finished.output.decode("utf-8", "replace")


def mounts(place: Path) -> list[str]:
    """Mounts of the kinds a sandbox makes, and any below a place; other people mount disks meanwhile."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if " - overlay " in line or " - tmpfs " in line or str(place) in line]


def stayed_in(confined: Confined) -> None:
    """The prisoner tried to the end, and did not get out."""
    assert "ESCAPED" not in said(confined), said(confined)
    assert "TRIED" in said(confined), said(confined)
    assert any("pid namespace" in word for word in confined.enforced)


def attempt(*statements: str) -> str:
    """A prisoner's program: each statement by itself; one that does not fail has escaped."""
    lines = ["import os, sys, ctypes, errno", "libc = ctypes.CDLL(None, use_errno=True)"]
    lines += ["def check(r):", "    if r < 0: raise OSError(ctypes.get_errno(), '')", "    return r"]
    for statement in statements:
        lines += ["try:", f"    {statement}", f"    print('ESCAPED', {statement!r})"]
        lines += ["except OSError as error:", f"    print('refused', errno.errorcode.get(error.errno), {statement!r})"]
    return "\n".join([*lines, "print('TRIED')"])
