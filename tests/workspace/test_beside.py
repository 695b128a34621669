"""A look at the workspace beside a program: its result, and its end."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from holdfast.errors import Conflict
from holdfast.workspace.beside import looking
from holdfast.workspace.tree import Snapshot, snapshot


def test_what_was_looked_at_beside_is_a_look_like_any(workspace: Path) -> None:
    """The tree has the same digest, and the thread is gone with the block."""
    (workspace / "a").write_bytes(b"a")
    with looking(lambda: snapshot(str(workspace), None)) as look:
        look.begin()
        found = look.found()
    assert found is not None
    assert found.digest == snapshot(str(workspace), None).digest
    assert "look" not in {thread.name for thread in threading.enumerate()}


def test_a_look_that_was_not_begun_found_nothing() -> None:
    """A program that could not be started has no look beside it."""
    with looking(lambda: pytest.fail("nobody asked")) as look:
        assert look.found() is None


def test_a_workspace_that_keeps_changing_is_nobodys_fault_yet() -> None:
    """A refusal is not raised beside a program: whoever needs the tree looks again. A defect is raised."""

    def refuses() -> Snapshot:
        raise Conflict("it keeps changing")

    def fails() -> Snapshot:
        raise ZeroDivisionError

    with looking(refuses) as look:
        look.begin()
        assert look.found() is None
    with looking(fails) as look:
        look.begin()
        with pytest.raises(ZeroDivisionError):
            look.found()


def test_a_block_that_is_left_early_leaves_no_thread() -> None:
    """However the wait for the program ends, the look is over first."""
    going, ended = threading.Event(), []

    def slow() -> Snapshot:
        going.wait(5)
        ended.append(True)
        raise Conflict("late")

    def interrupted() -> None:
        with looking(slow) as look:
            look.begin()
            threading.Timer(0.05, going.set).start()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ended
