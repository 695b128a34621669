"""The namespace that root's sandboxes are made in: made once, lent to all, never taken for anything else."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from holdfast.sandbox.confined import SHIFT, is_real_root, run_confined
from holdfast.sandbox.process import Command
from holdfast.sandbox.strangers import namespace_of_strangers
from sandbox.cell import PLAIN, Cell

_NOBODY = 65534  # whom the kernel shows for a uid that is not mapped

pytestmark = pytest.mark.skipif(not is_real_root(), reason="only the host's own root has strangers to be")


def forked(act: Callable[[], bool]) -> bool:
    """In a process of its own, since it spoils descriptors; whether it said yes."""
    child = os.fork()
    if child == 0:
        said = 1
        try:
            said = 0 if act() else 1
        finally:
            os._exit(said)
    return os.waitpid(child, 0)[1] == 0


def test_it_is_made_once() -> None:
    """Asked again, it is the same descriptor of the same namespace, and that is not ours."""
    first = namespace_of_strangers(SHIFT)
    assert namespace_of_strangers(SHIFT) == first
    assert os.readlink(f"/proc/self/fd/{first}") != os.readlink("/proc/self/ns/user")


def test_the_real_root_is_nobody_in_it() -> None:
    """What is mapped begins far above every user of this host."""

    def act() -> bool:
        import ctypes

        namespace = namespace_of_strangers(SHIFT)
        if ctypes.CDLL(None).setns(namespace, 0x10000000):
            return False
        with open("/proc/self/uid_map", encoding="ascii") as file:
            return file.read().split() == ["0", str(SHIFT), "65536"] and os.getuid() == _NOBODY

    assert forked(act)


def test_what_was_put_under_its_number_is_not_lent() -> None:
    """Somebody closed all our descriptors, and opened a file: another namespace is made, and the file stays open."""

    def act() -> bool:
        first = namespace_of_strangers(SHIFT)
        other = os.open("/dev/null", os.O_RDONLY)
        os.dup2(other, first)
        second = namespace_of_strangers(SHIFT)
        is_namespace = os.readlink(f"/proc/self/fd/{second}").startswith("user:[")
        return second != first and is_namespace and os.readlink(f"/proc/self/fd/{first}") == "/dev/null"

    assert forked(act)


def test_a_sandbox_starts_after_its_number_was_closed(cell: Cell) -> None:
    """As in a program that becomes a daemon between two runs."""
    command = Command(("true",), cell.view.path, {"PATH": "/usr/bin:/bin"}, 9000)

    def act() -> bool:
        run_confined(command, cell.view, PLAIN)
        os.close(namespace_of_strangers(SHIFT))
        return run_confined(command, cell.view, PLAIN).succeeded

    assert cell.act(act)


def test_nobody_is_mapped_to_himself() -> None:
    """Without a shift the real root would be root inside."""
    with pytest.raises(AssertionError):
        namespace_of_strangers(0)
