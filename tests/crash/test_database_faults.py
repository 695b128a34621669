"""Errors at the system calls of SQLite, from outside: whatever the tables meet, what is said is true at once.

The tables are a projection of the ledger. So an error there stops nothing, and hides nothing.
Needs strace, which makes a call fail; says so where it is missing.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from guarded import ME, Ground, guard, put

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="errors from outside need strace")
Counted = Callable[[int], None]
# How each kind of call fails on a bad disk, or on a network file system.
_ERRORS = {
    "fcntl": "ENOLCK",
    "pread64": "EIO",
    "pwrite64": "EIO",
    "openat": "EIO",
    "fdatasync": "EIO",
    "ftruncate": "EIO",
    "mmap": "ENOMEM",
    "newfstatat": "EIO",
}
_PARTS = ("", "-wal", "-shm", "-journal")
_LINE = re.compile(r"^(?:\d+ +)?(\w+)\(")


class Fault(NamedTuple):
    """The n-th call of this kind on the database fails; with `lasting` all later ones too."""

    call: str
    number: int
    lasting: bool

    @property
    def when(self) -> str:
        return f"inject={self.call}:error={_ERRORS[self.call]}:when={self.number}{'+' if self.lasting else ''}"


class Told(NamedTuple):
    status: int
    answer: dict[str, object]
    words: str


def holdfast(ground: Ground, *arguments: str, tracer: tuple[str, ...] = ()) -> Told:
    paths = [f"--trace-path={ground.state}/holdfast.db{suffix}" for suffix in _PARTS]
    before = ["strace", "-f", "-qq", *paths, *tracer] if tracer else []
    program = [sys.executable, "-m", "holdfast", "-C", str(ground.path), "--json", *arguments]
    done = subprocess.run([*before, *program], capture_output=True, text=True, check=False, env={**os.environ})
    return Told(done.returncode, json.loads(done.stdout or "{}"), done.stderr)


def faults(ground: Ground, log: Path, every: int, *arguments: str) -> Iterator[Fault]:
    """Every call on the database that one undisturbed command makes; of each kind, every so manyth."""
    told = holdfast(ground, *arguments, tracer=("-o", str(log)))
    assert told.status == 0, told
    found = (match[1] for line in log.read_text().splitlines() if (match := _LINE.match(line)))
    for call, number in Counter(call for call in found if call in _ERRORS).items():
        for n in range(1, number + 1, every):
            yield Fault(call, n, lasting=False)
        yield Fault(call, 1, lasting=True)


def prepared(path: Path) -> Ground:
    ground = guard(path / "workspace", {"a": b"0"})
    ground.apply(put("b", b"1"))
    ground.hf.close()
    change = path / "change.json"
    change.write_text(json.dumps({"intent": "a becomes 1", "steps": [{"write": "a", "content": "1"}]}))
    return ground


def judged(ground: Ground, fault: Fault, change: str) -> str:
    """What is wrong after a change that met this fault; empty when everything said is true."""
    told = holdfast(ground, "apply", change, "--yes", tracer=("-o", "/dev/null", "-e", fault.when))
    found = (ground / "a").read_bytes()
    if told.status or told.answer.get("status") != "SUCCESS" or found != b"1":
        return f"{fault}: exit {told.status}, a is {found!r}, {told.answer.get('error')}"
    listed = holdfast(ground, "log", "--limit", "1").answer["items"]
    if [item["id"] for item in listed] != [told.answer["id"]]:  # type: ignore[attr-defined]
        return f"{fault}: it is not listed: {listed}"
    ground = Ground(ground.path)
    ground.hf.undo(str(told.answer["id"]), approved_by=ME)
    ground.hf.close()
    return "" if (ground / "a").read_bytes() == b"0" else f"{fault}: it cannot be undone"


def swept(tmp_path: Path, every: int, count: Counted) -> list[str]:
    ground, log = prepared(tmp_path), tmp_path / "log"
    change = str(tmp_path / "change.json")
    found = list(faults(ground, log, every, "apply", change, "--yes"))
    (newest, *_) = (ground := Ground(ground.path)).hf.log(limit=1)
    ground.hf.undo(newest.id, approved_by=ME)
    ground.hf.close()
    count(len(found))
    assert len({fault.call for fault in found}) >= 5, found
    return [wrong for fault in found if (wrong := judged(ground, fault, change))]


def looked(tmp_path: Path, every: int, count: Counted, *verb: str) -> list[str]:
    ground, log = prepared(tmp_path), tmp_path / "log"
    expected = holdfast(ground, *verb).answer
    found = list(faults(ground, log, every, *verb))
    count(len(found))
    wrong = []
    for fault in found:
        told = holdfast(ground, *verb, tracer=("-o", "/dev/null", "-e", fault.when))
        if (told.status, told.answer) != (0, expected):
            wrong.append(f"{fault}: exit {told.status}, {told.answer}, {told.words}")
    return wrong


@pytest.mark.long
@pytest.mark.crash
def test_a_change_whose_tables_fail(tmp_path: Path, kill_points: Counted) -> None:
    """At a sample of the database's calls an error changes nothing: the change lands, is told, listed, and undone."""
    assert swept(tmp_path, 13, kill_points) == []


@pytest.mark.long
@pytest.mark.crash
def test_a_look_whose_tables_fail(tmp_path: Path, kill_points: Counted) -> None:
    """At a sample of the database's calls an error changes nothing about what `log` says."""
    assert looked(tmp_path, 7, kill_points, "log") == []


@pytest.mark.crash_full
def test_a_change_whose_tables_fail_at_every_call(tmp_path: Path, kill_points: Counted) -> None:
    """The same at every call on the database."""
    assert swept(tmp_path, 1, kill_points) == []


@pytest.mark.crash_full
@pytest.mark.parametrize("verb", ["log", "status", "recover"])
def test_a_look_whose_tables_fail_at_every_call(verb: str, tmp_path: Path, kill_points: Counted) -> None:
    """The same for verbs that look, at every call."""
    assert looked(tmp_path, 1, kill_points, verb) == []
