"""Who can have come from a program: told from the numbers where that is certain, and else from a look at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.sandbox.family import Family
from holdfast.sandbox.newcomers import Moment, moment, newcomers

SOURCE = str(Path(__file__).parents[2] / "src")
HOUR_S = 3600.0
MARK = "HOLDFAST_TEST_MARK=7d1c5e"
# Prints how often all processes were listed, in each of twenty runs.
COUNTED = """
import sys
from holdfast.sandbox.process import Command, run
listed = []
sys.addaudithook(lambda event, about: listed.append(1) if event == "os.listdir" and about[0] == "/proc" else None)
for _ in range(20):
    listed.clear()
    assert run(Command(("/bin/true",), "/", {}, 9000)).succeeded
    print(len(listed))
"""


@contextmanager
def sleeper(*, marked: bool = True) -> Iterator[int]:
    """One in a session of its own."""
    name, _, value = MARK.partition("=")
    process = subprocess.Popen(["/bin/sleep", "60"], env={name: value} if marked else {}, start_new_session=True)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def just_before(pid: int, ago_s: float = 0.0) -> Moment:
    return Moment(pid - 1, time.monotonic() - ago_s)


class TestTheNumbers:
    def test_whoever_was_started_since_is_among_them(self) -> None:
        """The first one, and every later one, with all between."""
        with sleeper() as first, sleeper() as second:
            found = newcomers(just_before(first), moment())
            assert found is not None
            assert (found[0], second in found) == (first, True)

    def test_nobody_is_an_answer(self) -> None:
        """No number was given between a moment and itself."""
        now = moment()
        found = newcomers(now, now)
        assert found is not None
        assert len(found) == 0

    def test_a_last_number_below_the_first_is_no_answer(self) -> None:
        """The circle was closed: a newer one may have any number."""
        assert newcomers(just_before(1 << 22), moment()) is None

    def test_many_numbers_are_no_answer(self) -> None:
        """To ask for thousands would take longer than to look at those who are there."""
        assert newcomers(Moment(1000, time.monotonic()), Moment(2000, time.monotonic())) is None

    def test_a_long_time_is_no_answer(self) -> None:
        """All numbers may have been given since, and each of them again."""
        with sleeper() as pid:
            assert newcomers(just_before(pid, HOUR_S), moment()) is None

    def test_few_free_numbers_are_no_answer(self) -> None:
        """Where the host is full of threads, the circle is closed by the next few."""
        began = time.monotonic() - 0.001
        assert newcomers(Moment(5000, began), Moment(5001, began, threads=1 << 22)) is None

    @pytest.mark.root
    @pytest.mark.parametrize("said", ["0.00 0.00 0.00 1/9 {pid}", "0.00 0.00 0.00 0/0 0", ""])
    def test_what_a_container_shows_in_place_of_the_kernel_is_no_answer(self, tmp_path: Path, said: str) -> None:
        """Another file over the kernel's own: whatever it says, everybody is looked at."""
        (tmp_path / "loadavg").write_text(said.format(pid=os.getpid()))
        code = "from holdfast.sandbox.newcomers import *\nprint(moment())"
        script = f'mount --bind {tmp_path}/loadavg /proc/loadavg && exec "$0" -c "$1"'
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", script, sys.executable, code],
            capture_output=True,
            text=True,
            env={"PYTHONPATH": SOURCE, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )
        assert done.stdout == "None\n", done.stderr


class TestAFamily:
    @pytest.mark.parametrize("ago_s", [0.0, HOUR_S])
    def test_one_that_left_the_session_is_found(self, ago_s: float) -> None:
        """By its mark: among the newcomers after a moment, among all after a long time."""
        with sleeper(marked=False) as program, sleeper() as daemon:
            members = Family(program, MARK, just_before(program, ago_s)).members()
            assert sorted(members) == [program, daemon]

    def test_one_that_is_older_by_number_is_found_when_the_circle_was_closed(self) -> None:
        """A number below the program's is no way out."""
        with sleeper() as daemon:
            assert Family(1 << 22, MARK, just_before(1 << 22)).members() == [daemon]

    def test_without_a_moment_everybody_is_looked_at(self) -> None:
        """A service is looked for that was started long before us."""
        with sleeper() as daemon:
            assert Family(-1, MARK).members() == [daemon]

    def test_a_look_without_end_finds_somebody(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where new ones come and go faster than we look, nobody is said to be gone."""
        monkeypatch.setattr("holdfast.sandbox.family._LOOKS", 0)
        monkeypatch.setattr("holdfast.sandbox.family._PATIENCE_S", 0.0)
        with sleeper(marked=False) as program:
            assert Family(program, MARK, just_before(program)).members() == [program]
            assert Family(-1, MARK).members() == [-1]

    def test_threads_are_not_counted(self) -> None:
        """A process of many threads is one, although each has a number among the newcomers."""
        many = "for _ in range(9): threading.Thread(target=time.sleep, args=(60,)).start()"
        code = f"import threading, time\n{many}\nprint('all there')"
        name, _, value = MARK.partition("=")
        argv = [sys.executable, "-I", "-S", "-u", "-c", code]
        with subprocess.Popen(argv, env={name: value}, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                assert newcomers(just_before(process.pid), moment()) is not None
                assert Family(process.pid, MARK, just_before(process.pid)).members() == [process.pid]
            finally:
                process.send_signal(signal.SIGKILL)


@pytest.mark.serial
def test_a_short_run_does_not_look_at_everybody() -> None:
    """What it costs to be sure that nobody is left does not grow with the host; the best of twenty runs."""
    argv = [sys.executable, "-c", COUNTED]
    done = subprocess.run(argv, capture_output=True, text=True, env={"PYTHONPATH": SOURCE})
    counts = [int(line) for line in done.stdout.split()]
    assert (len(counts), min(counts, default=-1)) == (20, 0), done.stderr
