"""Paths move in the order of the plan's steps, and each step's result is what the look after landing found."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from blake3 import blake3

from guarded import ME, Ground, Interloper, guard, put
from holdfast.errors import NeedsHuman, VerificationFailed
from holdfast.model.changeset import Change
from holdfast.model.execution import StepResult
from holdfast.model.image import Image
from holdfast.model.plan import Chmod, CommandCheck, Create, Delete, Move, Plan, Read, Run, Step, Symlink
from holdfast.workspace.staging import in_order
from holdfast.workspace.undo import read_past


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = guard(tmp_path / "workspace", {"a": b"a\n", "d/x": b"x\n", "d/y": b"y\n", "z": b"z\n"})
    yield ground
    ground.hf.close()


@pytest.mark.parametrize(
    ("steps", "moved"),
    [
        ((put("z", b"1"), put("a", b"2")), ["z", "a"]),
        ((put("new", b"1"), Delete("a"), put("z", b"2")), ["new", "a", "z"]),
        ((put("z", b"1"), Delete("d", recursive=True), put("a", b"1")), ["z", "d/y", "d/x", "d", "a"]),
        ((put("n/m/f", b"1"), put("a", b"1")), ["n", "n/m", "n/m/f", "a"]),
        ((Move("z", "b"), put("a", b"1")), ["z", "b", "a"]),
        ((Move("d", "e"), put("a", b"1")), ["d/y", "d/x", "d", "e", "e/x", "e/y", "a"]),
        # Merged: one flip, at the last step on the path.
        ((put("a", b"1"), put("z", b"2"), put("a", b"3")), ["z", "a"]),
        # A directory that is made late in the plan's words and needed early: its content cannot come before it.
        ((put("n/f", b"1"), put("z", b"1"), Chmod("n", 0o711)), ["n", "n/f", "z"]),
        # A directory that a later step replaces is emptied at its own step.
        ((Delete("d", recursive=True), put("a", b"1"), put("d", b"file now")), ["d/y", "d/x", "a", "d"]),
    ],
)
def test_paths_move_in_the_order_of_the_plan(ground: Ground, steps: tuple[Step, ...], moved: list[str]) -> None:
    """Steps are carried out in the plan's order; only what a flip needs comes before it."""
    done = ground.apply(*steps)
    assert [op.path for op in read_past(ground.hf.site, done.id).log.ops] == moved
    ground.hf.undo(done.id, approved_by="me")


def test_any_order_keeps_what_a_flip_needs() -> None:
    """Whatever steps the changes belong to, parents come before children, and what goes is empty before."""
    file, directory = Image("file", 0o644, 0, 0, 1, "00"), Image("directory", 0o755, 0, 0)
    changes = [
        Change("d", directory, None),
        Change("d/x", file, None),
        Change("n", None, directory),
        Change("n/m", None, directory),
        Change("n/m/x", None, file, "d/x"),
    ]
    needs = [("d/x", "d"), ("n", "n/m"), ("n/m", "n/m/x"), ("d/x", "n/m/x")]
    for order in itertools.product(range(3), repeat=len(changes)):
        places = {change.path: place for place, change in enumerate(in_order(changes, order))}
        assert len(places) == len(changes)
        assert all(places[first] < places[then] for first, then in needs), order


def _told(step: StepResult) -> tuple[object, ...]:
    return step.success, step.expected_vs_actual_match, step.type, step.size, step.permissions, step.superseded_by


def test_results_are_measured_from_the_workspace(ground: Ground) -> None:
    """Type, size, mode and digest of a step are those of what stands there, and not the rehearsal's sentence."""
    done = ground.apply(
        put("a", b"four", 0o600),
        Create("dir", directory=True, mode=0o750),
        Symlink("l", "a"),
        Delete("z"),
        Read("d/x"),
        Move("d/y", "m"),
    )
    assert [_told(step) for step in done.steps] == [
        (True, True, "file", 4, "0600", ""),
        (True, True, "directory", None, "0750", ""),
        (True, True, "symlink", None, "0777", ""),
        (True, True, "", None, "", ""),
        (True, True, "file", 2, "0644", ""),
        (True, True, "file", 2, "0644", ""),
    ]
    assert [step.actual_state_change for step in done.steps] == [
        "file, 2 bytes, mode 0644 → file, 4 bytes, mode 0600",
        "created: directory, mode 0750",
        "created: link to a",
        "file, 2 bytes, mode 0644 → nothing",
        "none: file, 2 bytes, mode 0644",
        "created: file, 2 bytes, mode 0644",
    ]
    assert done.steps[0].digest == blake3(b"four").hexdigest()
    assert [step.action_type for step in done.steps] == ["WRITE", "CREATE", "SYMLINK", "DELETE", "READ", "MOVE"]


@pytest.mark.parametrize(
    ("steps", "superseded"),
    [
        ((put("a", b"1"), put("z", b"2"), put("a", b"3")), ["step-3", "", ""]),
        ((put("n/f", b"1"), Delete("n", recursive=True), put("a", b"1")), ["step-2", "", ""]),
        ((put("n/f", b"1"), Move("n", "m")), ["step-2", ""]),
        ((Delete("d", recursive=True), put("d/new", b"1")), ["step-2", ""]),
        ((put("a", b"1"), Run(("sh", "-c", "echo 2 > a"))), ["step-2", ""]),
        ((put("a", b"1"), Run(("sh", "-c", "echo 2 > b")), put("z", b"1")), ["", "", ""]),
        # A step that only reads overtakes nothing.
        ((put("a", b"1"), Read("a"), put("z", b"2")), ["", "", ""]),
        ((Read("a"), put("a", b"1")), ["step-2", ""]),
    ],
)
def test_a_step_says_which_later_one_overtook_it(
    ground: Ground, steps: tuple[Step, ...], superseded: list[str]
) -> None:
    """What stands at a path is the last step's work, and an earlier step on it names that one."""
    done = ground.apply(*steps)
    assert [step.superseded_by for step in done.steps] == superseded
    assert all(step.success for step in done.steps)


def test_bytes_that_changed_in_the_slot_do_not_land(tmp_path: Path) -> None:
    """A staged file that was altered, size and times put back, is read before the commit: nothing lands."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"a": b"old"}, calls)

    def alter() -> None:
        (folder,) = (ground.state / "journal").glob("e-*")
        about = (folder / "1").stat()
        with (folder / "1").open("r+b") as file:
            file.write(b"EVIL")
        os.utime(folder / "1", ns=(about.st_atime_ns, about.st_mtime_ns))

    calls.arm("exchange", alter)
    before = ground.tree()
    with pytest.raises((VerificationFailed, NeedsHuman)) as caught:
        ground.apply(put("a", b"new!"))
    assert "a" in caught.value.message
    if isinstance(caught.value, VerificationFailed):
        assert ground.tree() == before
    assert not ground.hf.log()[0].landed


def test_a_rolled_back_step_says_what_stands(ground: Ground) -> None:
    """After a rollback each step tells that nothing of it stands, and that the rollback was invoked and succeeded."""
    with pytest.raises(VerificationFailed):
        ground.apply(put("a", b"1"), Delete("z"), health=(CommandCheck(("false",), 1),))
    _, document = ground.hf.show(ground.hf.log()[0].id)
    assert document is not None
    for step in document["steps"]:  # type: ignore[union-attr]
        assert (step["success"], step["rollback_invoked"], step["rollback_succeeded"]) == (False, True, True)  # type: ignore[index,call-overload]
        assert step["actual_state_change"] == "none; rolled back"  # type: ignore[index,call-overload]
    assert [moment["status"] for moment in document["history"]][-2:] == ["FAILED", "ROLLED_BACK"]  # type: ignore[union-attr,index,call-overload]


def test_a_program_took_its_time_in_another_process_too(ground: Ground) -> None:
    """The result of a command that an earlier process rehearsed says how long it ran there, and not nothing."""
    plan = Plan("wait", (Run(("/bin/sh", "-c", "sleep 0.3; echo new > new")), put("a", b"1")))
    simulated = ground.hf.simulate(plan)
    kept, verified = ground.hf.kept(ground.hf.keep(simulated, ground.hf.verify(simulated)).report.id)
    program, writing = ground.hf.execute(kept, approved_by=ME, verified=verified).steps
    took_ms = kept.report.steps[0].receipt.duration_ms if kept.report.steps[0].receipt else 0
    assert took_ms >= 300
    assert program.completed_ns - program.started_ns == took_ms * 1_000_000
    assert 0 <= writing.completed_ns - writing.started_ns < 300_000_000
