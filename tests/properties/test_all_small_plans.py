"""Every plan of up to three operations over two directories and three names, against a dictionary.

A plan lands exactly as the dictionary predicts, or is blocked exactly where it predicts that,
and undo gives back exactly the old tree: kinds, modes, contents, targets, times of files.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import Ground, Tree, fill, guard, put, swap
from holdfast.errors import Blocked
from holdfast.model.plan import Chmod, Create, Delete, Move, Step, Symlink
from properties.dictionary_model import Impossible, Node, World, outcome

_PATHS = ("p", "q", "p/x", "p/y", "q/x", "q/z")
_START: World = {
    "p": Node("directory", 0o755),
    "p/x": Node("file", 0o640, b"px"),
    "p/y": Node("symlink", content=b"x"),
    "q": Node("directory", 0o750),
    "q/z": Node("file", 0o644, b"qz"),
}


def _operations() -> list[Step]:
    """The alphabet: every kind of step on every path where it says something of its own."""
    steps: list[Step] = []
    for path in _PATHS:
        steps += [put(path, b"new"), Delete(path, recursive=True), Symlink(path, "elsewhere"), Create(path, True)]
    steps += [Chmod("p", 0o700), Chmod("p/x", 0o600), Chmod("q/z", 0o555), Chmod("q", 0o555)]
    steps += [
        Delete("p/x"),
        Delete("p"),
        Create("q/x", False),
        swap("p/x", b"px", b"swapped"),
        put("p/x", b"qz", 0o644),
    ]
    steps += [Move(a, b) for a, b in itertools.permutations(("p", "q", "p/x", "q/z", "q/x"), 2)]
    steps += [Move("p/y", "q/x"), Move("p", "q/x/deep"), Move("q/z", "p/y"), Move("p/x", "p/x")]
    return steps


_ALPHABET = _operations()


def _plans(length: int) -> Iterator[tuple[Step, ...]]:
    return itertools.product(_ALPHABET, repeat=length)


def _spread(length: int, *, landing: int, blocked: int) -> Iterator[tuple[Step, ...]]:
    """Every n-th of the plans that can be done, and every m-th of the others: primes, so that all steps have a turn."""
    seen = {True: 0, False: 0}
    for steps in _plans(length):
        possible = _is_possible(steps)
        seen[possible] += 1
        if seen[possible] % (landing if possible else blocked) == 0:
            yield steps


def _is_possible(steps: tuple[Step, ...]) -> bool:
    try:
        outcome(_START, steps)
    except Impossible:
        return False
    return True


@pytest.fixture
def fast_ground() -> Iterator[Ground]:
    """A workspace in memory where there is such a place: thousands of plans need thousands of syncs."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=memory if os.access(memory, os.W_OK) else None))
    workspace = place / "workspace"
    (workspace / "q").mkdir(parents=True)
    fill(workspace, {path: node.content for path, node in _START.items() if node.kind == "file"})
    os.symlink("x", workspace / "p/y")
    os.utime(workspace / "p/y", ns=(10**18, 10**18), follow_symlinks=False)
    for path, node in _START.items():
        if node.kind != "symlink":
            (workspace / path).chmod(node.mode)
    yield guard(workspace)
    shutil.rmtree(place)


def _seen(tree: Tree) -> World:
    return {
        path: Node(thing.kind, 0o777 if thing.kind == "symlink" else thing.mode, thing.content)
        for path, thing in tree.items()
    }


def _judge(ground: Ground, start: Tree, steps: tuple[Step, ...]) -> str:
    """Try one plan and take it back; what became of it."""
    try:
        predicted = outcome(_START, steps)
    except Impossible:
        with pytest.raises(Blocked):
            ground.hf.simulate(ground.plan(*steps))
        return "blocked"
    rehearsal = ground.ready(ground.plan(*steps))
    if not rehearsal.change_set:
        assert predicted == _START, steps
        return "nothing"
    done = rehearsal.execute()
    assert _seen(ground.tree()) == predicted, steps
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == start, steps
    return "landed"


def _judge_all(ground: Ground, plans: Iterator[tuple[Step, ...]]) -> dict[str, int]:
    start = ground.tree()
    assert _seen(start) == _START
    counts = {"blocked": 0, "nothing": 0, "landed": 0}
    for number, steps in enumerate(plans):
        try:
            counts[_judge(ground, start, steps)] += 1
        except BaseException as error:
            error.add_note(f"plan {number}: {steps}")
            raise
    assert ground.journal() == []
    return counts


def test_every_plan_of_one_operation(fast_ground: Ground) -> None:
    """Each single step does what the dictionary says, or is blocked where it says so, and is undone exactly."""
    counts = _judge_all(fast_ground, _plans(1))
    assert counts["landed"] > 20 and counts["blocked"] > 10, counts


@pytest.mark.long
def test_every_plan_of_two_operations(fast_ground: Ground) -> None:
    """So does each pair of steps."""
    counts = _judge_all(fast_ground, _plans(2))
    assert counts["landed"] > 500, counts
    assert fast_ground.hf.audit().ok


@pytest.mark.long
def test_many_plans_of_three_operations(fast_ground: Ground) -> None:
    """So does each of a good thousand triples, spread evenly over all."""
    counts = _judge_all(fast_ground, _spread(3, landing=37, blocked=151))
    assert counts["landed"] > 200 and counts["blocked"] > 1000, counts


@pytest.mark.crash_full
def test_every_plan_of_three_operations(fast_ground: Ground) -> None:
    """So does every triple."""
    counts = _judge_all(fast_ground, _plans(3))
    assert counts["landed"] > 8_000, counts
