"""The probe says what is so, and a host that cannot confine gets a refusal, never a lesser sandbox."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from holdfast.errors import SandboxUnavailable
from holdfast.sandbox.confined import run_confined
from holdfast.sandbox.probe import Enforcement, probe
from holdfast.sandbox.process import Command
from sandbox.cell import PLAIN, Cell, as_ordinary_user, said


def _layers_hold(found: Enforcement) -> bool:
    return any(row.what == "layers" and row.enforced for row in found.guarantees)


def test_the_probe_tells_what_holds_here(cell: Cell, public: Path) -> None:
    """Where a sandbox can be had, each promise is listed with the means by which it is kept."""
    found = cell.act(lambda: probe(str(cell.place)))
    assert found.sandboxed and _layers_hold(found)
    assert any(line.startswith("network: enforced, an empty network namespace") for line in found.lines)
    assert any(line.startswith("model proxy: enforced, a port of the sandbox's own loopback") for line in found.lines)
    assert os.listdir(cell.place) and not [name for name in os.listdir(cell.place) if "probe" in name]


def lose_user_namespaces() -> None:
    """Go where the kernel refuses to make user namespaces: into one whose own bound is zero."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    libc.prctl(4, 1, 0, 0, 0)  # dumpable again after a change of user: /proc/self is ours
    assert libc.unshare(0x10000000) == 0
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        Path(f"/proc/self/{name}").write_text(text)
    Path("/proc/sys/user/max_user_namespaces").write_text("0")


@pytest.mark.root
def test_a_host_that_cannot_confine_refuses(public: Path) -> None:
    """Without user namespaces the run is refused with the reason, and the program was not started."""
    cell = Cell(public / "cell", root=False)

    def act() -> object:
        lose_user_namespaces()
        return run_confined(Command(("touch", "started"), cell.view.path, {"PATH": "/bin"}, 9000), cell.view, PLAIN)

    with pytest.raises(SandboxUnavailable, match="user namespace"):
        as_ordinary_user(act)
    assert os.listdir(cell.upper) == []


@pytest.mark.root
def test_a_host_that_cannot_confine_says_so(public: Path) -> None:
    """The probe lists nothing as enforced there, with the kernel's reason."""

    def act() -> Enforcement:
        lose_user_namespaces()
        return probe(str(public / "home"))

    found = as_ordinary_user(act)
    assert not found.sandboxed and not _layers_hold(found)
    assert not any(row.enforced for row in found.guarantees)
    assert all("user namespace" in line for line in found.lines)


def test_what_is_enforced_is_what_the_kernel_confirmed(cell: Cell) -> None:
    """The result of a run names namespaces, privileges, Landlock, seccomp and limits as they really held."""
    ran = cell.run("grep", "-E", "Seccomp:|CapEff|NoNewPrivs", "/proc/self/status")
    assert "CapEff:\t0000000000000000" in said(ran) and "no capabilities" in ran.enforced
    assert ("Seccomp:\t2" in said(ran)) == ("system calls: seccomp" in ran.enforced)
    assert "limits: time, output, memory, processes, disk" in ran.enforced
