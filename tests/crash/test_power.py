"""Power cuts on real file systems: whatever was not flushed may be lost, in any part.

Needs root, /dev/fuse and loop devices; says so where it cannot run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, get_args

import pytest

from crash.driver import Arena
from crash.failing import in_child
from crash.power import ALONE, Around, Bench, FileSystem, cuts_of, missing
from crash.scenarios import BY_NAME, SCENARIOS
from file_systems import OnDisk
from holdfast.testing import SYNCS, Drop, Fault, KillAt

Counted = Callable[[int], None]
Sampled = Callable[[Sequence[Any]], list[Any]]
SYSTEMS: tuple[FileSystem, ...] = get_args(FileSystem)
DISKS: tuple[OnDisk, ...] = get_args(OnDisk)
OFTEN = [
    ("ext4", "few"), ("ext4", "many"), ("btrfs", "many"),
    pytest.param("xfs", "many", marks=pytest.mark.long), pytest.param("btrfs", "one", marks=pytest.mark.long),
]  # fmt: skip
_SECTOR = frozenset({"fdatasync"})
_BARRIERS = frozenset({"fsync", "sync_file_system"})
BARRIER_1 = Drop(SYNCS - _SECTOR, until="prepared")
BARRIER_2 = Drop(_BARRIERS, after="flipped", until="applied")
HEAD_PREPARED = Drop(_SECTOR, until="prepared")
HEAD_COMMITTED = Drop(_SECTOR, after="commit", until="committed")
# Killed after a write and before its sync: recovery sees in memory what the disk does not have yet.
UNSYNCED: dict[str, tuple[str, tuple[Fault, ...]]] = {
    "prepared": ("few", (HEAD_PREPARED, KillAt("prepared"))),
    "flipped": ("few", (KillAt("flipped"),)),
    "committed": ("few", (HEAD_COMMITTED, KillAt("committed"))),
    "aborted": ("few-unhealthy", (Drop(_SECTOR, after="rolled-back", until="aborted"), KillAt("aborted"))),
    "recorded": ("few", (Drop(_SECTOR, after="committed", until="ledger.durable"), KillAt("ledger.durable"))),
    "many-flipped": ("many", (KillAt("flipped"),)),
}

CONTROLS: dict[str, tuple[Drop, Around]] = {
    "barrier-1": (BARRIER_1, ALONE),
    "barrier-2": (BARRIER_2, ALONE),
    "head-prepared": (HEAD_PREPARED, Around(neighbour=True)),
    "head-committed": (HEAD_COMMITTED, ALONE),
    "everything": (Drop(SYNCS), ALONE),
}
UNSEEN = {
    ("head-prepared", "btrfs"): "btrfs makes a rename durable only when asked about its own directory: "
    "nothing between the head and barrier 2 can show that the head's sync is missing",
}


def verdict(
    directory: Path,
    system: FileSystem,
    name: str,
    samples: int,
    *faults: Fault,
    around: Around = ALONE,
    sampled: Sampled = list,
) -> tuple[int, list[str]]:
    """How many cuts were tried, and the first things that were wrong after them."""
    reason = missing(system)
    if reason:
        pytest.skip(reason)

    def work() -> list[str]:
        (directory / "arena").mkdir()
        (directory / "bench").mkdir()
        scenario, arena = BY_NAME[name], Arena(str(directory / "arena"))
        outcome = arena.outcome(scenario)
        bench = Bench(str(directory / "bench"), system)
        recording = bench.record(arena, outcome, scenario, *faults, around=around)
        # What nobody ever synced may be lost until Holdfast has promised to be able to bring it back.
        first = recording.prepared_in if around.dirty else 0
        cuts = [cut for cut in cuts_of(recording, samples) if cut.flushes >= first]
        assert len(cuts) > 10, "the disk saw almost nothing"
        cuts = sampled(cuts)
        return [str(len(cuts)), *islice(bench.verdicts(recording, outcome, scenario, cuts), 3)]

    count, *wrong = in_child(work)
    assert count.isdecimal(), count
    return int(count), wrong


@pytest.mark.crash
@pytest.mark.root
@pytest.mark.parametrize(("system", "name"), OFTEN)
def test_a_power_cut(system: FileSystem, name: str, memory: Path, power_cuts: Counted) -> None:
    """After a power cut at any flush the tree is old or new, and new once the change was acknowledged."""
    cuts, wrong = verdict(memory, system, name, 1 if system == "ext4" else 0)
    assert wrong == []
    power_cuts(cuts)


@pytest.mark.crash_full
@pytest.mark.root
@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_power_cut_anywhere(
    system: FileSystem, name: str, memory: Path, sampled: Sampled, power_cuts: Counted
) -> None:
    """The same for every scenario, with many random subsets and torn writes between the flushes."""
    cuts, wrong = verdict(memory, system, name, 6, sampled=sampled)
    assert wrong == []
    power_cuts(cuts)


@pytest.mark.crash_full
@pytest.mark.root
@pytest.mark.parametrize("moment", UNSYNCED)
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_power_cut_after_a_kill_and_a_recovery(
    system: FileSystem, moment: str, memory: Path, power_cuts: Counted
) -> None:
    """What recovery found in memory and acted on survives a power cut, although its writer died before the sync."""
    name, faults = UNSYNCED[moment]
    cuts, wrong = verdict(memory, system, name, 4, *faults)
    assert wrong == []
    power_cuts(cuts)


@pytest.mark.crash
@pytest.mark.root
@pytest.mark.parametrize("moment", ["committed", "aborted", "recorded"])
def test_what_was_not_synced_is_synced_by_recovery(moment: str, memory: Path, power_cuts: Counted) -> None:
    """A process dies between a write and its sync; recovery believes the write, and then so does the disk."""
    name, faults = UNSYNCED[moment]
    cuts, wrong = verdict(memory, "ext4", name, 0, *faults)
    assert wrong == []
    power_cuts(cuts)


@pytest.mark.crash
@pytest.mark.root
def test_an_edit_that_nobody_synced(memory: Path, power_cuts: Counted) -> None:
    """Once a change is prepared, the old bytes of what it replaces survive a power cut, even if just written."""
    cuts, wrong = verdict(memory, "ext4", "few-merge", 2, around=Around(dirty=True))
    assert wrong == []
    power_cuts(cuts)


@pytest.mark.crash_full
@pytest.mark.root
@pytest.mark.parametrize("name", ["few", "many", "few-undo"])
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_neighbour_who_syncs(system: FileSystem, name: str, memory: Path, power_cuts: Counted) -> None:
    """Somebody else's sync in the middle of a change makes half of it durable, and does no harm."""
    cuts, wrong = verdict(memory, system, name, 4, around=Around(neighbour=True))
    assert wrong == []
    power_cuts(cuts)


# ── negative controls: with one sync taken out, the same check must complain ──


@pytest.mark.crash
@pytest.mark.root
@pytest.mark.parametrize("fault", [BARRIER_1, BARRIER_2, HEAD_COMMITTED], ids=["barrier-1", "barrier-2", "head"])
def test_a_missing_sync_is_noticed(fault: Drop, memory: Path) -> None:
    """Without barrier 1, without barrier 2, or without the sync of the head, power cuts are seen to do damage."""
    _, wrong = verdict(memory, "ext4", "few", 1, fault)
    assert wrong != []


@pytest.mark.crash_full
@pytest.mark.root
@pytest.mark.parametrize("name", ["few", "many"])
@pytest.mark.parametrize("system", DISKS)
@pytest.mark.parametrize("control", CONTROLS)
def test_any_missing_sync_is_noticed(control: str, system: OnDisk, name: str, memory: Path) -> None:
    """Each sync of the protocol is needed on each file system, for few changes and for many."""
    if (control, system) in UNSEEN:
        pytest.skip(UNSEEN[control, system])
    fault, around = CONTROLS[control]
    _, wrong = verdict(memory, system, name, 12, fault, around=around)
    assert wrong != []
