"""What is executed is what was simulated: over generated plans, on both kinds of shadow; or nothing at all."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from engine.papers import Standing, configure, listing, refused
from engine.plans import START, file_plans, mixed_plans, world_of
from guarded import ME, OLD_NS, Ground, fill, guard, put
from holdfast.engine.checking import ShadowKind
from holdfast.engine.simulator import Simulated
from holdfast.errors import Conflict
from holdfast.model.decision import Decision
from holdfast.model.plan import Delete, Move, Read, Run, Step
from properties.dictionary_model import World

_KINDS = st.sampled_from(["overlay", "copy"])


@contextmanager
def _fresh() -> Iterator[Ground]:
    """A workspace that stands as START says, old enough that nothing has to wait for the clock."""
    place = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    try:
        workspace = place / "workspace"
        fill(workspace, {path: node.content for path, node in START.items() if node.kind == "file"})
        for path, node in START.items():
            if node.kind == "symlink":
                os.symlink(node.content, workspace / path)
            else:
                (workspace / path).chmod(node.mode)
            os.utime(workspace / path, ns=(OLD_NS, OLD_NS), follow_symlinks=False)
        ground = guard(workspace)
        assert world_of(ground.tree()) == START
        yield ground
        ground.hf.close()
    finally:
        shutil.rmtree(place)


def _lands_as_simulated(ground: Ground, steps: tuple[Step, ...], predicted: World, kind: ShadowKind) -> Simulated:
    hf = ground.hf
    before = listing(ground.path)
    simulated = hf.simulate(ground.plan(*steps), shadow=kind)
    assert listing(ground.path) == before
    hf.execute(simulated, approved_by=ME, consent=simulated.plan.id)
    assert hf.tree().digest == simulated.report.predicted_tree
    assert world_of(ground.tree()) == predicted
    _rests(ground, before, simulated)
    return simulated


def _rests(ground: Ground, before: dict[str, Standing], simulated: Simulated) -> None:
    """What the change set does not name is the same object with the same times."""
    named = set(simulated.change_set.paths)
    parents = {os.path.dirname(path) or "." for path in named}
    after = listing(ground.path)
    for path in before.keys() - named - parents:
        assert after[path] == before[path], path


@settings(max_examples=120)
@given(file_plans())
def test_file_plans_land_as_simulated(made: tuple[tuple[Step, ...], World]) -> None:
    """After any plan of file steps the tree has the digest the report predicted, and is what a dictionary predicts."""
    with _fresh() as ground:
        _lands_as_simulated(ground, *made, "auto")


@pytest.mark.long
@settings(max_examples=100)
@given(mixed_plans(), _KINDS)
def test_plans_with_commands_land_as_simulated(made: tuple[tuple[Step, ...], World], kind: ShadowKind) -> None:
    """So it is when real commands made the changes; an overlay and a copy find the very same change set."""
    with _fresh() as ground:
        other = ground.hf.simulate(ground.plan(*made[0]), shadow="copy" if kind == "overlay" else "overlay")
        simulated = _lands_as_simulated(ground, *made, kind)
        assert simulated.change_set == other.change_set
        assert simulated.report.predicted_tree == other.report.predicted_tree
        assert {simulated.report.shadow, other.report.shadow} == {"overlay", "copy"}


@pytest.mark.crash_full
@pytest.mark.parametrize("kind", ["overlay", "copy"])
def test_many_more_plans_land_as_simulated(kind: ShadowKind, sampled: Callable[[range], list[int]]) -> None:
    """So it is over many more plans, each executed from either kind of shadow."""

    @settings(max_examples=len(sampled(range(300))))
    @given(mixed_plans())
    def attempt(made: tuple[tuple[Step, ...], World]) -> None:
        with _fresh() as ground:
            _lands_as_simulated(ground, *made, kind)

    attempt()


# ── the world moves in between ──


class Meddling(NamedTuple):
    """Something a stranger does to one path; `act` returns whether it could be done there."""

    name: str
    act: Callable[[Path], bool]


def _edit(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    about = path.stat()
    path.write_bytes(b"a stranger's\n")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    return True


def _chmod(path: Path) -> bool:
    if path.is_symlink() or not path.exists():
        return False
    path.chmod(path.stat().st_mode ^ 0o010)
    return True


def _remove(path: Path) -> bool:
    if (path.is_dir() and not path.is_symlink()) or not os.path.lexists(path):
        return False
    path.unlink()
    return True


def _link_instead(path: Path) -> bool:
    """Where a file was, a link that says the same when it is read."""
    if not _remove(path):
        return False
    path.symlink_to("/etc/hostname")
    return True


def _directory_instead(path: Path) -> bool:
    if not _remove(path):
        return False
    path.mkdir()
    return True


def _appear(path: Path) -> bool:
    if os.path.lexists(path) or not path.parent.is_dir() or path.parent.is_symlink():
        return False
    path.write_bytes(b"a stranger's\n")
    return True


_MEDDLING = tuple(
    Meddling(act.__name__.strip("_"), act)
    for act in (_edit, _chmod, _remove, _link_instead, _directory_instead, _appear)
)


# Which of the paths, and what is done there; the next that can be done, where it cannot.
_MEDDLED = st.tuples(st.integers(0, 30), st.integers(0, len(_MEDDLING) - 1))


def _refusals(ground: Ground, steps: tuple[Step, ...], kind: ShadowKind, chosen: tuple[int, int]) -> Iterator[str]:
    """Simulate, let a stranger act on a path of the base, execute: a conflict, and nothing but the stranger's act.

    Yields what the stranger did, if anything.
    """
    hf = ground.hf
    simulated = hf.simulate(ground.plan(*steps), shadow=kind)
    decision = hf.evaluate(simulated)
    approval = hf.approve(decision, by=ME)
    base = [change.path for change in simulated.change_set.changes]
    base += [read.path for read in simulated.change_set.reads]
    number, first = chosen
    path = ground.path / (base[number % len(base)] if base else "nowhere at all/x")
    done = next((each.name for each in (*_MEDDLING[first:], *_MEDDLING) if each.act(path)), None)
    if done is None:
        return
    note(f"{done} {path}")
    with refused(ground, Conflict, 8):
        hf.execute(simulated, approval, decision=decision)
    yield done


def test_a_moved_base_is_refused_for_file_plans() -> None:
    """Whatever a stranger does to a path that a plan touches or reads, execution is refused with nothing changed."""
    struck: list[str] = []

    @settings(max_examples=100)
    @given(file_plans(), _MEDDLED)
    def attempt(made: tuple[tuple[Step, ...], World], chosen: tuple[int, int]) -> None:
        with _fresh() as ground:
            struck.extend(_refusals(ground, made[0], "auto", chosen))

    attempt()
    assert len(struck) >= 50
    assert set(struck) >= {"edit", "remove", "appear"}


@pytest.mark.long
def test_a_moved_base_is_refused_for_plans_with_commands() -> None:
    """The same where commands made the changes, on both kinds of shadow."""
    struck: list[str] = []

    @settings(max_examples=30)
    @given(mixed_plans(), _KINDS, _MEDDLED)
    def attempt(made: tuple[tuple[Step, ...], World], kind: ShadowKind, chosen: tuple[int, int]) -> None:
        with _fresh() as ground:
            struck.extend(f"{kind} {name}" for name in _refusals(ground, made[0], kind, chosen))

    attempt()
    assert len(struck) >= 15
    assert {word.split()[0] for word in struck} == {"overlay", "copy"}


def _simulated(ground: Ground, *steps: Step) -> tuple[Simulated, Decision]:
    simulated = ground.hf.simulate(ground.plan(*steps))
    decision = ground.hf.evaluate(simulated)
    ground.hf.approve(decision, by=ME)
    return simulated, decision


@pytest.mark.parametrize(
    "steps",
    [(Delete("d", recursive=True),), (Move("d", "moved"),), (Run(("/bin/rm", "-r", "d")),)],
    ids=["deleted", "moved", "deleted by a command"],
)
def test_what_a_stranger_put_into_a_doomed_directory_stays(steps: tuple[Step, ...]) -> None:
    """A file that appears in a directory which the plan removes is a conflict; it is never removed with it."""
    with _fresh() as ground:
        simulated, decision = _simulated(ground, *steps)
        (ground / "d/theirs").write_bytes(b"precious\n")
        with refused(ground, Conflict, 8, ending="ROLLED_BACK"):
            ground.hf.execute(simulated, decision=decision)


def _socket_instead(path: Path) -> bool:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))
    return True


def _fifo_instead(path: Path) -> bool:
    path.unlink()
    os.mkfifo(path)
    return True


@pytest.mark.parametrize(
    "act",
    [_edit, _remove, _link_instead, _directory_instead, _fifo_instead, _socket_instead],
    ids=lambda act: act.__name__,
)
def test_what_moves_must_still_be_there(act: Callable[[Path], bool]) -> None:
    """A file that moves onto another's place is copied when it is staged; anything else there by then is a conflict."""
    with _fresh() as ground:
        simulated, decision = _simulated(ground, Delete("a"), Move("b", "a"))
        assert act(ground / "b")
        with refused(ground, Conflict, 8):
            ground.hf.execute(simulated, decision=decision)


def test_a_path_that_was_only_read_counts() -> None:
    """A plan that reads a file is refused when that file is another one, although it does not touch it."""
    with _fresh() as ground:
        simulated, decision = _simulated(ground, Read("a"), put("new", b"made from a\n"))
        (ground / "a").write_bytes(b"another\n")
        with refused(ground, Conflict, 8):
            ground.hf.execute(simulated, decision=decision)


def test_a_change_elsewhere_neither_stops_nor_is_lost() -> None:
    """What a stranger does to other paths stays, and the plan lands beside it."""
    with _fresh() as ground:
        simulated, decision = _simulated(ground, put("new", b"ours\n"))
        (ground / "a").write_bytes(b"theirs\n")
        ground.hf.execute(simulated, decision=decision)
        assert (ground / "a").read_bytes() == b"theirs\n"
        assert (ground / "new").read_bytes() == b"ours\n"


def test_a_strict_base_refuses_a_change_anywhere() -> None:
    """With `strict_base` the whole tree must be what was simulated."""
    configure("[policy]\nstrict_base = true\n")
    with _fresh() as ground:
        simulated, decision = _simulated(ground, put("new", b"ours\n"))
        (ground / "a").write_bytes(b"theirs\n")
        with refused(ground, Conflict, 8, "something in the tree changed"):
            ground.hf.execute(simulated, decision=decision)
