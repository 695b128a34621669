"""Power cuts: what is left on a disk when the machine dies, for every moment and many ways of losing writes.

    record   a real file system on a disk that logs (see `blockdisk`); the scenario runs once and acknowledges
    cut      for each flush: all before it is there; of what came after it, any subset, the last one perhaps torn
    check    mount (the file system replays its own journal), recover, judge; as after a kill

A disk may write back what was not flushed in any order and in any part; only a sector is written whole.
When the acknowledgement lies before the end of an interval between two flushes, the power may have failed after it,
so every state of that interval must show the change.

Everything happens in a mount namespace of a child process: mounts and loop devices vanish with it,
and several tests can cut the power of their own disks at the same time, as long as nobody syncs all of them.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from crash.blockdisk import Disk, Event, Flushed, Marked, Written, events
from crash.driver import Arena, Outcome, Place, Start, interrupted, judge, prepare, recover, start_at, use
from crash.scenarios import Scenario, act
from crash.walker import undated, walk
from file_systems import MAKE, OnDisk, mount_alone, mount_overlay
from holdfast.testing import At, Fault, FaultyCalls

FileSystem = Literal["ext4", "xfs", "btrfs", "overlay-ext4", "overlay-xfs", "overlay-btrfs"]
# What a disk writes whole. btrfs needs its superblock of 4 KiB written whole and cannot be mounted otherwise;
# that is a promise between btrfs and its disks, and nothing that a program on top of it could mend.
_WHOLE: dict[OnDisk, int] = {"ext4": 512, "xfs": 512, "btrfs": 4096}
_MIB = 1 << 20
_SIZES: dict[OnDisk, int] = {"ext4": 24 * _MIB, "xfs": 320 * _MIB, "btrfs": 128 * _MIB}
_DISKS: dict[FileSystem, OnDisk] = {
    "ext4": "ext4",
    "xfs": "xfs",
    "btrfs": "btrfs",
    "overlay-ext4": "ext4",
    "overlay-xfs": "xfs",
    "overlay-btrfs": "btrfs",
}


def disk_of(system: FileSystem) -> OnDisk:
    """The file system that writes to the disk; an overlay stands on one."""
    return _DISKS[system]


def missing(system: FileSystem) -> str:
    """Why power cannot be cut here; empty when it can."""
    if os.geteuid() != 0:
        return "cutting the power needs root (mount, loop devices, /dev/fuse)"
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            return f"cutting the power needs {device}"
    disk = disk_of(system)
    tools = ["mount", "umount", "losetup", MAKE[disk][0], *(["btrfs"] if disk == "btrfs" else [])]
    absent = [tool for tool in tools if shutil.which(tool) is None]
    return f"cutting the power needs {', '.join(absent)}" if absent else ""


class Around(NamedTuple):
    """What others do meanwhile.

    `dirty`: what a person wrote before the change is not synced.
    `neighbour`: somebody syncs a file of their own between the flips and barrier 2, which on a journaling
    file system makes our renames durable at a moment that we did not choose.
    """

    dirty: bool = False
    neighbour: bool = False


ALONE = Around()


class Cut(NamedTuple):
    """One state of the disk: the durable writes of the first `flushes` flushes, and some of the pending ones."""

    flushes: int
    pending: tuple[Written, ...]
    label: str
    must_be_new: bool


class Recording(NamedTuple):
    """What one run asked of the disk: the image before it, and the writes between flushes."""

    base: str
    intervals: tuple[tuple[Written, ...], ...]
    prepared_in: int
    acknowledged_in: int
    begun: Start
    sector: int


class Bench:
    """A directory with images and mount points, in a mount namespace of this process. Call in a child process only."""

    def __init__(self, directory: str, system: FileSystem) -> None:
        mount_alone()
        self._directory = directory
        self._system: FileSystem = system
        self._disk = disk_of(system)
        self._mount_point = self._make("mnt")
        self._fuse_point = self._make("fuse")
        self._overlay_point = self._make("over") if system != self._disk else ""
        self.place = Place(os.path.join(self._overlay_point or self._mount_point, "place"))

    def record(
        self, arena: Arena, outcome: Outcome, scenario: Scenario, *faults: Fault, around: Around = ALONE
    ) -> Recording:
        """Run the scenario once on the logging disk."""
        image, base, log = (os.path.join(self._directory, name) for name in ("image", "base", "log"))
        with open(image, "wb") as file:
            file.truncate(_SIZES[self._disk])
        subprocess.run([*MAKE[self._disk], image], check=True, stdout=subprocess.DEVNULL)
        shutil.copyfile(image, base)
        disk = Disk(self._fuse_point, image, log)
        try:
            self._mount(disk.path)
            try:
                begun = self._run(disk, arena, outcome, scenario, faults, around)
            finally:
                self._unmount()
        finally:
            disk.close()
        return _divided(base, log, begun, _WHOLE[self._disk])

    def verdicts(
        self, recording: Recording, outcome: Outcome, scenario: Scenario, cuts: Iterable[Cut]
    ) -> Iterator[str]:
        """What is wrong after each cut."""
        durable, state = recording.base, os.path.join(self._directory, "state")
        applied = 0
        for cut in sorted(cuts, key=lambda cut: cut.flushes):
            while applied < cut.flushes:
                _write_to(durable, recording.intervals[applied])
                applied += 1
            _copy_sparse(durable, state)
            _write_to(state, cut.pending)
            for what in self._judged(state, recording.begun, outcome, scenario, cut):
                yield f"{self._system}, {scenario.name}, {cut.label}: {what}"

    def _run(
        self, disk: Disk, arena: Arena, outcome: Outcome, scenario: Scenario, faults: tuple[Fault, ...], around: Around
    ) -> Start:
        """Faults that kill the process are followed by a recovery, which then acknowledges what it found."""
        arena.furnish(self.place)
        self._sync()
        prepare(self.place, scenario)
        if scenario.manner == "merge" and not around.dirty:
            self._sync()  # the edit by a person; whatever Holdfast itself did must be durable without this
        begun = start_at(self.place)
        disk.mark("begin")
        noted = At("prepared", lambda: disk.mark("prepared"))
        if around.neighbour:
            faults = (At("flipped", self._neighbour), *faults)
        if interrupted(use(self.place, FaultyCalls(), lambda hf: act(scenario, hf), noted, *faults)):
            disk.mark("acknowledged")
        else:
            recover(self.place)
            if undated(walk(self.place.workspace)) == outcome.new:
                disk.mark("acknowledged")
        disk.mark("end")
        return begun

    def _sync(self) -> None:
        # Only our own file system: a sync of everything would make durable what a test beside us must be able to lose.
        subprocess.run(["sync", "-f", self._mount_point], check=True)

    def _neighbour(self) -> None:
        with open(os.path.join(self._mount_point, "not-ours"), "wb") as file:
            file.write(b"somebody else's\n")
            file.flush()
            os.fsync(file.fileno())

    def _judged(self, state: str, begun: Start, outcome: Outcome, scenario: Scenario, cut: Cut) -> list[str]:
        self._mount(state)
        try:
            return judge(begun, outcome, scenario, cut.must_be_new)
        finally:
            self._unmount()

    def _mount(self, disk: str) -> None:
        if self._disk == "btrfs":
            # The kernel remembers devices by their unique id, and all our images have the same.
            subprocess.run(["btrfs", "device", "scan", "--forget"], check=False, capture_output=True)
        subprocess.run(["mount", "-t", self._disk, "-o", "loop", disk, self._mount_point], check=True)
        if self._overlay_point:
            mount_overlay(self._mount_point, self._overlay_point)

    def _unmount(self) -> None:
        gc.collect()  # a simulation that something still refers to holds a descriptor there
        if self._overlay_point:
            subprocess.run(["umount", self._overlay_point], check=True)
        subprocess.run(["umount", self._mount_point], check=True)

    def _make(self, name: str) -> str:
        path = os.path.join(self._directory, name)
        os.mkdir(path)
        return path


def cuts_of(recording: Recording, samples: int, seed: int = 1) -> Iterator[Cut]:
    """At each flush: nothing more, everything more, and random parts of more, in part torn."""
    chance = random.Random(seed)
    for number, pending in enumerate(recording.intervals):
        new = recording.acknowledged_in <= number
        yield Cut(number, (), f"flush {number}, nothing after it", new)
        if not pending:
            continue
        yield Cut(number, pending, f"flush {number}, all {len(pending)} writes after it", new)
        for sample in range(min(samples, 2 ** len(pending))):
            chosen = [write for write in pending if chance.random() < 0.5]
            torn = chosen and sample % 2
            if torn:
                chosen[-1] = _torn(chosen[-1], recording.sector, chance)
            label = (
                f"flush {number}, {len(chosen)} of {len(pending)} writes after it{', torn' if torn else ''} #{sample}"
            )
            yield Cut(number, tuple(chosen), label, new)


def _torn(write: Written, sector: int, chance: random.Random) -> Written:
    sectors = len(write.data) // sector
    return Written(write.offset, write.data[: sector * chance.randrange(1, sectors)]) if sectors > 1 else write


def _divided(base: str, log: str, begun: Start, sector: int) -> Recording:
    """The writes after "begin", cut at the flushes; those before it go into the base."""
    happened = list(events(log))
    first, last = happened.index(Marked("begin")), happened.index(Marked("end"))
    _write_to(base, [event for event in happened[:first] if isinstance(event, Written)])
    intervals: list[list[Written]] = [[]]
    marks: dict[str, int] = {}
    for event in happened[first:last]:
        if isinstance(event, Written):
            intervals[-1].append(event)
        elif isinstance(event, Flushed):
            intervals.append([])
        else:
            marks[event.text] = len(intervals) - 1
    never = len(intervals)
    passed = marks.get("prepared", never), marks.get("acknowledged", never)
    return Recording(base, tuple(map(tuple, intervals)), *passed, begun, sector)


def _write_to(path: str, writes: Iterable[Event]) -> None:
    with open(path, "r+b", buffering=0) as file:
        for write in writes:
            assert isinstance(write, Written)
            os.pwrite(file.fileno(), write.data, write.offset)


def _copy_sparse(source: str, target: str) -> None:
    subprocess.run(["cp", "--sparse=always", source, target], check=True)
