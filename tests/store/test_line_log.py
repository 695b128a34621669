"""Logs of JSON lines: whole lines whatever happens, bounded, masked, put aside when they are long."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.disk.confined import Root
from holdfast.model.check import masked_words
from holdfast.store.line_log import MOST_ITEMS, TEXT_LIMIT, LineLog, cut
from holdfast.testing import Fail, FaultyCalls, ShortWrite

PATH = "logs/deep/some.jsonl"


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Root]:
    with Root(str(tmp_path)) as root:
        yield root


def numbers(log: LineLog) -> list[object]:
    return [row["n"] for row in log.rows()]


def test_lines_are_read_back_in_order(state: Root) -> None:
    """What was appended is what `rows` gives, oldest first, each with version, time and kind."""
    log = LineLog(state, PATH)
    assert list(log.rows()) == []
    log.append(7, "a", {"n": 1, "none": None, "yes": True})
    log.append(8, "b", {"n": 2, "deep": {"list": ["x", 1]}})
    assert list(log.rows()) == [
        {"version": 1, "at_ns": 7, "kind": "a", "n": 1, "none": None, "yes": True},
        {"version": 1, "at_ns": 8, "kind": "b", "n": 2, "deep": {"list": ["x", 1]}},
    ]


def test_only_this_user_reads_it(state: Root, tmp_path: Path) -> None:
    """The file and the folders that were made for it are closed to everybody else."""
    LineLog(state, PATH).append(1, "a", {})
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in (PATH, "logs/deep", "logs")]
    assert modes == [0o600, 0o700, 0o700]


def test_no_line_grows_with_what_somebody_says(state: Root, tmp_path: Path) -> None:
    """Long texts and long lists are cut, at any depth, and say so."""
    LineLog(state, PATH).append(1, "a", {"deep": [{"text": "word " * 100_000}] * 1000})
    (row,) = LineLog(state, PATH).rows()
    deep = row["deep"]
    assert isinstance(deep, list)
    assert deep[-1] == f"… {1000 - MOST_ITEMS} more" and len(deep) == MOST_ITEMS + 1
    assert isinstance(deep[0], dict)
    assert str(deep[0]["text"]).endswith("…")
    assert (tmp_path / PATH).stat().st_size < MOST_ITEMS * (TEXT_LIMIT + 50)


@pytest.mark.parametrize("before", [0, 400, TEXT_LIMIT - 12, TEXT_LIMIT, TEXT_LIMIT + 1990, 10_000])
def test_no_cut_shows_half_a_password(before: int) -> None:
    """Wherever a text is cut, in a password or near one, nothing of it is shown."""
    address = "https://me:" + "hunter2" * 200 + "@example.invalid/"
    shown = cut("x" * before + " " + address + " " + "y" * 10_000, TEXT_LIMIT, masked_words)
    assert "hunter2" not in shown
    assert len(shown) <= TEXT_LIMIT + 1


def test_what_masking_makes_room_for_is_no_half_password() -> None:
    """Where masks are so short that the edge of what was looked at would be shown, no half word stands there."""
    masked = ("https://me:" + "p" * 1000 + "@example.invalid/ ") * 2
    shown = cut(masked + "https://me:" + "hunter2" * 200 + "@example.invalid/", TEXT_LIMIT, masked_words)
    assert "hunter2" not in shown
    assert shown.count("example.invalid") == 2 and shown.endswith("…")


@given(st.text(st.characters(), max_size=40), st.integers(1, 20))
def test_cutting_keeps_short_texts_and_bounds_long_ones(text: str, limit: int) -> None:
    """A text that fits is kept as it is; another is its beginning and a sign."""
    shown = cut(text, limit, str)
    whole = "".join("\ufffd" if "\ud800" <= ch <= "\udbff" else ch for ch in text)
    assert shown == whole if len(text) <= limit else shown == whole[:limit] + "…"


def test_a_line_that_was_cut_short_spoils_itself_alone(state: Root) -> None:
    """After a full disk took half of a line, the error is told, and the next line is whole again."""
    calls = FaultyCalls(counted={"write"})
    with Root(state.path, calls) as faulty:
        log = LineLog(faulty, PATH)
        log.append(1, "a", {"n": 1})
        calls.arm(ShortWrite(1))
        with pytest.raises(OSError, match="No space"):
            log.append(2, "a", {"n": 2})
        calls.disarm()
        log.append(3, "a", {"n": 3})
        log.append(4, "a", {"n": 4})
    assert numbers(LineLog(state, PATH)) == [1, 3, 4]


def test_lines_of_others_are_left_out(state: Root, tmp_path: Path) -> None:
    """What is no JSON object of this version is skipped: half lines, zeros, other versions, other shapes."""
    log = LineLog(state, PATH)
    log.append(1, "a", {"n": 1})
    with (tmp_path / PATH).open("ab") as file:
        file.write(b'\0\0\0\n[1]\n{"version":2,"n":9}\n\n' + b"[" * 100_000 + b'\n{"version":1,"n')
    log.append(2, "a", {"n": 2})
    assert numbers(log) == [1, 2]


def test_a_long_log_is_put_aside_once(state: Root, tmp_path: Path) -> None:
    """At its limit the log is renamed and a fresh one begins; both are read; the one put aside before goes."""
    log = LineLog(state, PATH, longest=300)
    for n in range(40):
        log.append(n, "a", {"n": n})
    found = numbers(log)
    assert found == list(range(40 - len(found), 40)) and 5 < len(found) < 40
    assert sorted(os.listdir(tmp_path / "logs/deep")) == ["some.jsonl", "some.jsonl.1"]
    assert (tmp_path / PATH).stat().st_size <= 400


def test_nobody_waits_while_another_puts_it_aside(state: Root, tmp_path: Path) -> None:
    """While somebody else has the lock for that, a line still goes into the long log."""
    log = LineLog(state, PATH, longest=10)
    log.append(1, "a", {"n": 1})
    with (tmp_path / PATH).open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        log.append(2, "a", {"n": 2})
        assert not (tmp_path / f"{PATH}.1").exists()
    log.append(3, "a", {"n": 3})
    assert (tmp_path / f"{PATH}.1").exists()
    assert numbers(log) == [1, 2, 3]


def test_what_another_put_aside_is_not_put_aside_again(state: Root, tmp_path: Path) -> None:
    """Who opened the long log just before another renamed it goes on in the fresh one, and moves nothing."""
    log = LineLog(state, PATH, longest=10)
    log.append(1, "a", {"n": 1})
    calls = FaultyCalls()
    real = calls.fstat
    looks = 0

    def fstat(fd: int) -> os.stat_result:
        nonlocal looks
        looks += 1
        if looks == 2:  # after the look at the type, before the one at the size
            log.append(2, "a", {"n": 2})
        return real(fd)

    calls.fstat = fstat
    with Root(state.path, calls) as root:
        LineLog(root, PATH, longest=10).append(3, "a", {"n": 3})
    assert looks > 2
    assert [json.loads(line)["n"] for line in (tmp_path / f"{PATH}.1").read_text().splitlines()] == [1]
    assert numbers(log) == [1, 2, 3]


@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "linked folder"])
def test_what_is_no_log_of_ours_is_not_written(kind: str, state: Root, tmp_path: Path) -> None:
    """A link, a FIFO or a directory in place of the log, or a link on the way, is an error, and nothing hangs."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "logs").mkdir()
    place = tmp_path / PATH
    if kind == "linked folder":
        place.parent.symlink_to(outside)
    else:
        place.parent.mkdir()
    if kind == "link":
        place.symlink_to(outside / "file")
    elif kind == "fifo":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    with pytest.raises(OSError):
        LineLog(state, PATH).append(1, "a", {})
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("number", range(1, 30))
def test_no_descriptor_is_left_open_by_an_error(number: int, state: Root) -> None:
    """Whichever call fails, an error is raised or the line is written, and no descriptor stays open."""
    LineLog(state, PATH).append(1, "a", {"n": 1})
    calls = FaultyCalls()
    with Root(state.path, calls) as faulty:
        before = len(os.listdir("/proc/self/fd"))
        calls.arm(Fail(number))
        try:
            LineLog(faulty, PATH, longest=10).append(2, "a", {"n": 2})
        except OSError:
            assert calls.count >= number
        else:
            assert calls.count < number
        calls.disarm()
        assert len(os.listdir("/proc/self/fd")) == before


def test_threads_do_not_mix_their_lines(state: Root) -> None:
    """Eight threads that append to one log leave every line whole, each thread's in its order."""
    log = LineLog(state, PATH)

    def write(thread: int) -> None:
        for n in range(50):
            log.append(n, "a", {"thread": thread, "n": n, "text": "x" * 300})

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = list(log.rows())
    for number in range(8):
        assert [row["n"] for row in rows if row["thread"] == number] == list(range(50))


WRITER = """
import sys
from holdfast.disk.confined import Root
from holdfast.store.line_log import LineLog
log, first = LineLog(Root(sys.argv[1]), sys.argv[2], longest=200_000), int(sys.argv[3])
print("ready", flush=True)
n = first
while True:
    log.append(n, "a", {"n": n, "text": "x" * (n % 400)})
    n += 1
"""


def test_kill_while_writing_costs_no_line_before_it(state: Root) -> None:
    """A writer killed again and again, in the middle of putting logs aside, leaves whole lines in their order."""
    for start in range(0, 6_000_000, 1_000_000):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, state.path, PATH, str(start)], stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(0.05)
        writer.send_signal(signal.SIGKILL)
        writer.communicate()
    found = [int(str(n)) for n in numbers(LineLog(state, PATH, longest=200_000))]
    assert len(found) > 100
    jumps = [b for a, b in zip(found, found[1:], strict=False) if b != a + 1]
    assert all(jump % 1_000_000 == 0 for jump in jumps)
