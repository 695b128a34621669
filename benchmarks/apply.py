"""Apply, undo and recovery against peers on the same work, as ratios from one run.

    python benchmarks/apply.py                everything (about five minutes; 10,000 files one fsync at a time are slow)
    python benchmarks/apply.py --quick        under two minutes: fewer rounds, and no fsync a file for 10,000
    python benchmarks/apply.py --only undo    one part: apply, undo, recovery, flushes, memory
    python benchmarks/apply.py --with-ansible also ansible and pyinfra, in a virtual environment that is thrown away

As root it works on a default ext4 in a loop image; otherwise in --dir, and says which file system that is.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from typing import NamedTuple

from _measure import SOURCE

sys.path.insert(0, SOURCE)

import _agents
import _special
from _contestants import (
    MOVES,
    OURS,
    PEERS,
    SLOW,
    Command,
    Contestant,
    Floor,
    FsyncRename,
    FsyncRenameFsync,
    GitApply,
    Library,
    Move,
    Rsync,
    Work,
)
from _measure import Arena, Verdict, arena, clocked, milliseconds, turns

from holdfast.disk.calls import CALLS

PARTS = ("apply", "undo", "recovery", "flushes", "memory")
MANY = 10_000


class Options(NamedTuple):
    files: tuple[int, ...]
    quick: bool
    only: tuple[str, ...]
    with_ansible: bool
    edited: bool

    def rounds(self, count: int) -> int:
        many, some, one = (1, 3, 7) if self.quick else (3, 9, 21)
        return many if count >= 1000 else some if count > 8 else one


class Report:
    """What is printed, and the same as data."""

    def __init__(self) -> None:
        self.verdicts: list[Verdict] = []
        self.times: dict[str, dict[str, float]] = {}

    def table(self, title: str, seconds: dict[str, float], base: str) -> None:
        self.times[title] = seconds
        print(f"\n{title}")
        for name, value in sorted(seconds.items(), key=lambda item: item[1]):
            ratio = f"{value / seconds[base]:8.2f} × {base}" if base in seconds else ""
            print(f"  {milliseconds(value):>10} ms  {name:<38}{ratio}", flush=True)

    def goal(self, what: str, ours: float, theirs: float, limit: float) -> None:
        self.verdict(Verdict(what, ours / theirs, limit))

    def verdict(self, verdict: Verdict) -> None:
        self.verdicts.append(verdict)
        print(verdict.line(), flush=True)


def one_turn(contestant: Contestant, move: Move) -> float:
    """One timed move; the disk is quiet before it starts, the result is checked after it ended."""
    contestant.ready(move)
    fd = os.open(contestant.folder, os.O_RDONLY)
    CALLS.sync_file_system(fd)
    os.close(fd)
    seconds = clocked(lambda: contestant.go(move))
    contestant.work.require(contestant.folder, move.after)
    contestant.tidy()
    return seconds


def apply(report: Report, place: Arena, count: int, options: Options) -> None:
    folder = os.path.join(place.path, f"apply-{count}")
    work = Work(folder, count, edited=options.edited)
    os.makedirs(folder)
    kinds = [kind for kind in (*OURS, *PEERS) if not (options.quick and count >= MANY and kind in SLOW)]
    if options.with_ansible and count <= 100:
        kinds += _agents.contestants(place.path)
    entrants = [kind(work, os.path.join(folder, kind.__name__)) for kind in kinds if _is_there(kind)]
    medians = _cycle(entrants, options.rounds(count), many=count >= MANY)
    for move in MOVES:
        report.table(f"{move.name} {count:,} files of 4 KiB", medians[move.name], "git apply")
        _goals(report, count, move, medians[move.name])
    for contestant in entrants:
        contestant.close()
    shutil.rmtree(folder)


def _cycle(entrants: list[Contestant], rounds: int, *, many: bool) -> dict[str, dict[str, float]]:
    """create, update, delete, again and again; each move is a turn of everybody, and the first round warms up.

    Where there is one round only, it counts; those that take ten seconds for many files never have more.
    """
    found: dict[str, dict[str, list[float]]] = {move.name: {} for move in MOVES}
    for number in range(rounds + (rounds > 1)):
        for move in MOVES:
            for contestant in entrants:
                once = rounds == 1 or isinstance(contestant, _agents.Tool) or (many and isinstance(contestant, SLOW))
                if number and once:
                    continue
                seconds = one_turn(contestant, move)
                if number or once:
                    found[move.name].setdefault(contestant.name, []).append(seconds)
    return {move: {name: statistics.median(times) for name, times in by.items()} for move, by in found.items()}


def _goals(report: Report, count: int, move: Move, seconds: dict[str, float]) -> None:
    ours, floor = seconds[Library.name], seconds[Floor.name]
    what = f"{move.name} {count:,}"
    if count == 1:
        # A removal without a synced directory is no peer: nothing of it is durable.
        peer = FsyncRenameFsync if move.after == "none" else FsyncRename
        report.goal(f"{what}: Transaction / {peer.name}", ours, seconds[peer.name], 3.0)
        return
    near = f"(the floor itself: {floor / seconds[GitApply.name]:.2f})"
    report.goal(f"{what}: Transaction / git apply, not durable {near}", ours, seconds[GitApply.name], 0.7)
    if Rsync.name in seconds:
        report.goal(f"{what}: Transaction / rsync --fsync", ours, seconds[Rsync.name], 0.1)
    if count >= MANY and Command.name in seconds:
        report.goal(f"{what}: whole command / floor", seconds[Command.name], floor, 4.0)


def _is_there(kind: type[Contestant]) -> bool:
    if kind is Rsync and shutil.which("rsync") is None:
        print("(rsync is not installed: that peer is left out)")
        return False
    if kind is not Command or _special.command_is_there():
        return True
    print("(the command line is not there yet: the whole command is left out)")
    return False


def undo(report: Report, place: Arena, count: int, options: Options) -> None:
    pair = _special.UndoPair(Work(os.path.join(place.path, f"undo-{count}"), count))
    ways = {"Holdfast: Transaction": pair.transaction, "Holdfast: hf.undo": pair.ours, "git apply -R": pair.theirs}
    seconds = turns(options.rounds(count), ways)
    pair.close()
    report.table(f"undo of an update of {count:,} files", seconds, "git apply -R")
    theirs = seconds["git apply -R"]
    report.goal(f"undo {count:,}: planning and Transaction / git apply -R", seconds[Library.name], theirs, 0.5)
    report.goal(f"undo {count:,}: hf.undo, ledger and all / git apply -R", seconds["Holdfast: hf.undo"], theirs, 0.5)


def recovery(report: Report, place: Arena, count: int, options: Options) -> None:
    pair = _special.RecoveryPair(Work(os.path.join(place.path, f"recovery-{count}"), count))
    seconds = turns(min(options.rounds(count), 5), {"Holdfast: recover": pair.ours, "git reset --hard": pair.theirs})
    pair.close()
    report.table(f"recovery of a half-applied update of {count:,} files", seconds, "git reset --hard")
    ours, theirs = seconds["Holdfast: recover"], seconds["git reset --hard"]
    report.goal(f"recovery {count:,}: recover / git reset --hard", ours, theirs, 0.5)


def flushes(report: Report, place: Arena, count: int) -> None:
    counted = _special.flushes(Work(os.path.join(place.path, f"flushes-{count}"), count))
    detail = ", ".join(f"{number} {name}" for name, number in counted.items() if number)
    what = f"update {count:,} through hf.execute: {detail}"
    if count > 8:
        report.verdict(Verdict(what, sum(counted.values()), 5, "flushes"))
    else:
        print(f"          {sum(counted.values()):>8} flushes  (no goal)      {what}")


def memory(report: Report, place: Arena) -> None:
    if not _special.command_is_there():
        print("(the command line is not there yet: its memory is not measured)")
        return
    peak = _special.peak_memory(Work(os.path.join(place.path, "memory"), 100_000, 200))
    report.verdict(Verdict("peak memory of the whole command, 100,000 paths", peak / 1e6, 200, "MB"))


def measure(place: Arena, options: Options) -> Report:
    report = Report()
    print(f"On {place.about}; medians, one run, contestants take turns.")
    for count in options.files:
        if "apply" in options.only:
            apply(report, place, count, options)
        if "undo" in options.only:
            undo(report, place, count, options)
        if "recovery" in options.only and count > 1:
            recovery(report, place, count, options)
    if "flushes" in options.only:
        print("\nflushes (fsync, fdatasync, syncfs), ledger included")
        for count in (1, 9, 100, MANY):
            flushes(report, place, count)
    if "memory" in options.only:
        memory(report, place)
    return report


def _admit_large_changes(folder: str) -> None:
    """The built-in policy denies changes of more than 20,000 files; whoever makes them says so in their own layer."""
    os.makedirs(folder, mode=0o700)
    with open(os.path.join(folder, "config.toml"), "w", encoding="ascii") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write("[policy]\nlimits = { files = 200000, lines = 20000000, deletions = 200000 }\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=None, help="work here instead of in a loop image")
    parser.add_argument("--files", default="1,100,10000", help="numbers of files (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", default=",".join(PARTS), help="parts to run (default: %(default)s)")
    parser.add_argument("--with-ansible", action="store_true", help="install and run ansible and pyinfra as well")
    parser.add_argument("--edit", action="store_true", help="an update changes four lines of a file, not all of it")
    parser.add_argument("--json", metavar="FILE", help="write times and verdicts there")
    given = parser.parse_args()
    files = tuple(int(word) for word in given.files.split(","))
    options = Options(files, given.quick, tuple(given.only.split(",")), given.with_ansible, given.edit)
    with arena(given.dir) as place:
        for variable, name in (("XDG_STATE_HOME", "state"), ("XDG_CONFIG_HOME", "config")):
            os.environ[variable] = os.path.join(place.path, name)
        _admit_large_changes(os.path.join(place.path, "config", "holdfast"))
        report = measure(place, options)
        about = place.about
    print("\nGoals")
    for verdict in report.verdicts:
        print(verdict.line())
    if given.json:
        verdicts = [{**verdict._asdict(), "ok": verdict.ok} for verdict in report.verdicts]
        with open(given.json, "w") as file:
            json.dump({"on": about, "seconds": report.times, "goals": verdicts}, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
