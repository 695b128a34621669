"""A thousand dry runs, many of them with real commands in the sandbox, on both kinds of shadow: nothing is left of any.

Looked for are mounts, processes, files and descriptors; by eyes of our own, on the host and not in what Holdfast says.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from engine.papers import listing
from guarded import Ground, guard, put
from holdfast.engine.checking import ShadowKind
from holdfast.model.plan import Chmod, CommandCheck, Delete, Move, Run, Step, Symlink

pytestmark = pytest.mark.long

ALL, COMMANDED = 1_000, 200
FILES = {"a": b"old a\n", "d/b": b"old b\n", "d/c": b"old c\n", "run.sh": b"#!/bin/sh\n", "empty/": b""}
WORDS = "echo $$ > a; mkdir -p x/y; mv run.sh x; ln -s x z; : > /tmp/left"
COMMAND = Run(("/bin/sh", "-e", "-c", WORDS))
# Seldom: whoever leaves a process behind is waited for, for a moment.
FORGETFUL = Run(("/bin/sh", "-e", "-c", f"{WORDS}; sleep 300 &"))
# What a simulation is remembered by is meant to stay, until `gc`.
RECORDS = ("simulations", "objects")
CHECK = CommandCheck(("/bin/sh", "-c", "echo junk > made; test -e n"))


class Left(NamedTuple):
    """What a dry run could leave behind. `files`: of the state directory but for records, and temporary ones."""

    mounts: tuple[str, ...]
    processes: tuple[str, ...]
    files: frozenset[str]
    descriptors: int


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """With temporary files in a place of their own, so that each of them is ours."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)  # asked for again
    made = guard(tmp_path / "workspace", FILES)
    yield made
    made.hf.close()


def left(ground: Ground) -> Left:
    place = str(ground.path.parent)
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return Left(
        mounts=tuple(line for line in mounts if place in line),
        processes=tuple(name for name in os.listdir("/proc") if name.isdecimal() and _is_ours(name, place)),
        files=frozenset((*_files(ground.state), *_files(Path(tempfile.gettempdir())))),
        descriptors=len(os.listdir("/proc/self/fd")),
    )


def _is_ours(process: str, place: str) -> bool:
    """A child of ours, or one that names the place, stands in it or has its root there."""
    if int(process) == os.getpid():
        return False
    try:
        about = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        said = Path(f"/proc/{process}/cmdline").read_bytes().decode(errors="replace")
        stands = [os.readlink(f"/proc/{process}/{link}") for link in ("cwd", "root")]
    except OSError:
        return False  # it ended meanwhile, or is somebody else's
    return int(about[1]) == os.getpid() or any(place in words for words in (said, *stands))


def _files(top: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if folder != str(top) or name not in RECORDS]
        yield from (os.path.join(folder, name) for name in (*folders, *names))


def steps_of(number: int) -> tuple[Step, ...]:
    """Each plan is another; two of ten run a command, after file steps and before some."""
    first, last = put("n", b"%d" % number), (Symlink("current", "a"), Chmod("empty", 0o700))
    if number % 10 < 2:
        return (first, FORGETFUL if number % 50 < 2 else COMMAND, *last)
    return (first, put("a", b"new\n"), Delete("d", recursive=True), Move("run.sh", "bin/run"), *last)


def dry_run(ground: Ground, number: int) -> str:
    """Simulated, and some of those with commands verified too; which shadow it was."""
    kind: ShadowKind = "overlay" if number % 2 else "copy"
    checks = (CHECK,) if number % 50 in (10, 11) else ()
    found = ground.hf.simulate(ground.plan(*steps_of(number), verify=checks), shadow=kind)
    assert found.report.status == "SUCCESS"
    if checks:
        assert [receipt.passed for receipt in ground.hf.verify(found).receipts] == [True]
    return found.report.shadow if any(isinstance(step, Run) for step in steps_of(number)) else ""


def test_a_thousand_dry_runs_leave_nothing_behind(ground: Ground) -> None:
    """No mount, no process, no file, no descriptor, though two hundred ran commands, and some left processes."""
    for number in range(20):  # what is loaded, opened and made once is there from here on
        dry_run(ground, number)
    before, tree, digest = left(ground), listing(ground.path), ground.hf.tree().digest
    kinds = [dry_run(ground, number) for number in range(ALL)]
    after = left(ground)
    assert (kinds.count("overlay"), kinds.count("copy")) == (COMMANDED // 2, COMMANDED // 2)
    # Another test's server, which this process started before, is nobody's left-over.
    assert (after.mounts, sorted(set(after.processes) - set(before.processes))) == ((), [])
    assert sorted(after.files - before.files) == []
    assert after.descriptors <= before.descriptors  # fewer: some directories are kept open for a while
    assert (listing(ground.path), ground.hf.tree().digest) == (tree, digest)
