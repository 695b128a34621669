"""Negative controls: the checks of this suite must complain about designs that are known to be wrong.

What a missing sync does, only a power cut can show: see the controls in `test_power.py`.
"""

from __future__ import annotations

import errno
import os

import pytest

from crash.driver import Arena, Start, discard, interrupted, judge, start, use
from crash.scenarios import BY_NAME, Scenario, act
from crash.walker import walk
from holdfast.errors import HoldfastError
from holdfast.model.plan import Plan
from holdfast.simulation.rehearsal import rehearse
from holdfast.store.journal import Head, write_head
from holdfast.testing import Drop, Fail, FaultyCalls, Kill, KillAt
from holdfast.workspace.flip import Flipper
from holdfast.workspace.rollback import RolledBack
from holdfast.workspace.site import JOURNAL, Site
from holdfast.workspace.transaction import Transaction, new_txn

_MOVES = frozenset({"exchange", "move", "chmod"})
pytestmark = pytest.mark.crash


class InPlace(FaultyCalls):
    """A replacement as many programs make it: open the old file, truncate it, write."""

    def __init__(self) -> None:
        super().__init__()
        setattr(self, "exchange", self._overwrite)  # noqa: B010 - the class has a static method of this name

    def _overwrite(self, name: str, directory: int, other: str, other_directory: int) -> None:
        reading = os.open(other, os.O_RDONLY, dir_fd=other_directory)
        data = os.read(reading, 1 << 20)
        os.close(reading)
        fd = self.open(name, os.O_WRONLY | os.O_TRUNC, dir_fd=directory)
        self.write(fd, data)
        self.close(fd)


class Remembering(Transaction):
    """A rollback that takes back what it remembers having done, instead of looking at the disk."""

    def roll_back(self) -> RolledBack:
        done = self.ops[: max(0, len(self.times_ns) - 1)]
        flipper = Flipper(self._site, self.txn)
        for op in reversed(done):
            flipper.backward(op)
        write_head(self._calls, self._site.state.directory(JOURNAL), Head("ABORTED", self.txn, self.root))
        self.state = "ABORTED"
        return RolledBack((), frozenset())


def mixed_after_errors(arena: Arena, scenario: Scenario, kind: type[Transaction]) -> int:
    """How many errors, each coming after the effect of one move, leave a tree that is not the old one."""
    number, mixed, reached = 0, 0, True
    while reached:
        number += 1
        begun = start(arena, scenario)
        reached = _fails(begun, scenario, kind, Fail(number, errno.EIO, "after"))
        mixed += reached and walk(begun.place.workspace) != begun.old
        discard(begun.place)
    return mixed


def _fails(begun: Start, scenario: Scenario, kind: type[Transaction], fault: Fail) -> bool:
    calls = FaultyCalls(counted=_MOVES)
    with Site(begun.place.workspace, calls) as site:
        rehearsal = rehearse(site, Plan("control", scenario.steps))
        transaction = kind(site, new_txn(), {})
        transaction.prepare(rehearsal.change_set, rehearsal.seen, rehearsal.sources)
        calls.arm(fault)
        try:
            transaction.apply()
        except (OSError, HoldfastError):
            return True
    return False


def test_a_rollback_from_memory_is_noticed(arena: Arena) -> None:
    """Rolling back from a remembered list leaves mixed trees after errors that follow an effect; the real one none."""
    scenario = BY_NAME["few"]
    assert mixed_after_errors(arena, scenario, Remembering) > 0
    assert mixed_after_errors(arena, scenario, Transaction) == 0


OMITTED = {
    "log": Drop(frozenset({"write"}), after="staged", until="logged"),
    "head": Drop(frozenset({"pwrite"}), after="logged", until="prepared"),
}


@pytest.mark.parametrize("omitted", OMITTED.values(), ids=OMITTED)
def test_a_log_or_head_that_was_not_written_is_noticed(omitted: Drop, arena: Arena) -> None:
    """PREPARED over a log that was never written, and paths that move before PREPARED, make the check complain."""
    scenario = BY_NAME["few"]
    outcome, begun = arena.outcome(scenario), start(arena, scenario)
    work = use(begun.place, FaultyCalls(), lambda hf: act(scenario, hf), omitted, KillAt("flipped"))
    assert not interrupted(work)
    assert judge(begun, outcome, scenario, False) != []


@pytest.mark.long
def test_writing_in_place_is_noticed(arena: Arena) -> None:
    """Overwriting files instead of swapping them makes the check complain at some kill point."""
    scenario = BY_NAME["one"]
    outcome = arena.outcome(scenario)
    complaints, number, killed = 0, 0, True
    while killed and not complaints:
        number += 1
        begun = start(arena, scenario)
        killed = not _in_place(begun, scenario, Kill(number))
        complaints += bool(judge(begun, outcome, scenario, not killed))
        discard(begun.place)
    assert complaints


def _in_place(begun: Start, scenario: Scenario, kill: Kill) -> bool:
    try:
        return interrupted(use(begun.place, InPlace(), lambda hf: act(scenario, hf), kill))
    except AssertionError:
        return False  # it noticed by itself that something is wrong, and could not say done
