"""The start: what is done in a copy of our own process, before bubblewrap takes its place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from guarded import children, children_of_others
from holdfast.errors import SandboxUnavailable
from holdfast.sandbox import stage
from holdfast.sandbox.confined import run_confined
from holdfast.sandbox.process import Command, Finished, beside
from sandbox.cell import PLAIN, SECRET, Cell, as_ordinary_user, attempt, said, stayed_in

_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(stage.__file__))))
SLEEP = Command(("/bin/sleep", "60"), "/", {}, 60_000, grace_ms=0)


@pytest.mark.root
def test_a_process_closed_to_inspection_has_a_sandbox(public: Path) -> None:
    """One that changed its user has no /proc/self to write to: the stage is a program then, and holds as ever."""
    cell = Cell(public / "cell", root=False)
    command = Command(("cat", ".env", "file"), cell.view.path, {"PATH": "/usr/bin:/bin"}, 9000)

    def act() -> tuple[bool, object]:
        return stage.works_in_a_copy_of_us(), run_confined(command, cell.view, PLAIN)

    in_a_copy, ran = as_ordinary_user(act, closed=True)
    assert not in_a_copy
    assert ran.finished.output == b"old\n"  # type: ignore[attr-defined]
    assert any("pid namespace" in word for word in ran.enforced)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("megabytes", "expected"), [(0, "True"), (300, "False")])
def test_the_stage_is_made_in_a_copy_of_a_process_that_is_not_large(megabytes: int, expected: str) -> None:
    """The ordinary case; to copy a large process would take longer than to start an interpreter."""
    code = f"from holdfast.sandbox.stage import *; x = b'x' * ({megabytes} << 20); print(works_in_a_copy_of_us())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": _SOURCE})
    assert done.stdout.strip() == expected, done.stderr


@contextmanager
def busy_threads() -> Iterator[None]:
    """Others who hold every lock there is at any moment: of memory, of imports, of files, of the loader."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            junk = [bytearray(1 << 12) for _ in range(200)]
            junk.append(bytearray(str(len(junk)).encode()))
            for name in ("this_is_no_module", "nor_is_this"):
                try:
                    __import__(name)
                except ImportError:
                    pass
            with open("/dev/null", "wb") as file:
                file.write(b"x")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


@pytest.mark.serial
def test_threads_of_ours_do_not_keep_a_sandbox_from_starting(cell: Cell) -> None:
    """Whatever locks others held at the fork: thirty sandboxes start, one after the other."""
    command = Command(("true",), cell.view.path, {"PATH": "/usr/bin:/bin"}, 20_000)

    def act() -> list[bool]:
        with busy_threads():
            return [run_confined(command, cell.view, PLAIN).succeeded for _ in range(30)]

    assert cell.act(act) == [True] * 30


@pytest.mark.root
def test_nothing_of_our_environment_goes_on(public: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """bubblewrap gets an environment of its own, although it comes from a copy of us; so does the program."""
    monkeypatch.setenv("HOLDFAST_TEST_KEY", SECRET.decode())
    cell = Cell(public / "cell", root=True)
    command = Command(("env",), cell.view.path, {"PATH": "/usr/bin:/bin"}, 9000)
    seen: list[bytes] = []

    def look(_: bytes) -> None:
        for pid in children():
            seen.append(Path(f"/proc/{pid}/environ").read_bytes())

    ran = run_confined(command, cell.view, PLAIN, on_output=look)
    assert seen
    assert not [text for text in (*seen, ran.finished.output) if SECRET in text]


def test_what_goes_wrong_on_the_stage_is_told(cell: Cell) -> None:
    """A layer that is not there: refused with the reason, nothing started, no copy of us goes on."""
    view = cell.view._replace(base=f"{cell.view.base}/nowhere")
    with pytest.raises(SandboxUnavailable, match="nowhere"):
        cell.run("true", view=view)


@pytest.mark.parametrize("path", ["/etc/fstab", "/etc/hostname"])
def test_something_else_of_etc_can_be_shown(cell: Cell, path: str) -> None:
    """What a profile names there is shown, and all that belongs to the system is so too."""
    if not os.path.exists(path):
        pytest.skip(f"no {path} here")
    ran = cell.run("cat", path, "/etc/passwd", profile=PLAIN._replace(readable=(path,)))
    assert ran.finished.output == Path(path).read_bytes() + Path("/etc/passwd").read_bytes()


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/shadow"])
def test_something_of_etc_can_be_hidden(cell: Cell, path: str) -> None:
    """Whether it would have been shown or not, there is nothing to read."""
    ran = cell.run("cat", path, profile=PLAIN._replace(hidden=(path,)))
    assert any("mount namespace" in word for word in ran.enforced)
    assert "root:" not in said(ran)


def test_etc_cannot_be_written(cell: Cell) -> None:
    """Neither what was copied into it, nor what is mounted there, nor the directory itself."""
    ran = cell.python(
        attempt("open('/etc/passwd', 'a').write('x')", "open('/etc/new', 'w')", "os.unlink('/etc/passwd')")
    )
    stayed_in(ran)


def test_etc_shows_the_same_as_ever(cell: Cell) -> None:
    """Exactly what the list names and this host has."""
    ran = cell.run("ls", "/etc")
    shown = {place.split("/")[2] for place in _listed(cell)}
    assert set(said(ran).split()) == shown


def _listed(cell: Cell) -> list[str]:
    from holdfast.sandbox.shown import interpreter, rows

    made = cell.act(lambda: rows(cell.view, PLAIN, interpreter(cell.view.path)))
    return [place for _, _, place in made if place.startswith("/etc/")]


class TestContent:
    """What of /etc is copied, and what is mounted."""

    def test_a_small_file_for_everybody_is_copied(self, tmp_path: Path) -> None:
        """Its bytes are taken."""
        (tmp_path / "a").write_bytes(b"text\n")
        (tmp_path / "a").chmod(0o644)
        assert stage._content(str(tmp_path / "a")) == b"text\n"

    def test_nothing_else_is_copied(self, tmp_path: Path) -> None:
        """Not for everybody, too large, no file: it is mounted, with its own rights."""
        (tmp_path / "closed").write_bytes(b"text\n")
        (tmp_path / "closed").chmod(0o640)
        with (tmp_path / "large").open("wb") as file:
            file.truncate(stage._SMALL + 1)
        os.mkfifo(tmp_path / "pipe", 0o644)
        for name in ("closed", "large", "pipe", "."):
            assert stage._content(str(tmp_path / name)) is None


class TestBeside:
    """A program that runs while we do something else."""

    def test_it_runs_meanwhile(self, tmp_path: Path) -> None:
        """It works while the block does, and its end is waited for when asked."""
        sign = tmp_path / "sign"
        command = Command(("/bin/sh", "-c", f"echo said; touch {sign}"), "/", {"PATH": "/usr/bin:/bin"}, 9000)
        with beside(command) as finish:
            patience = time.monotonic() + 9
            while not sign.exists() and time.monotonic() < patience:
                time.sleep(0.01)
            assert sign.exists()
            done = finish()
        assert (done.succeeded, done.output) == (True, b"said\n")

    def test_its_time_begins_when_it_is_waited_for(self) -> None:
        """A block that took longer than the program may take does not end it."""
        with beside(Command(("/bin/sleep", "0.3"), "/", {}, 400)) as finish:
            time.sleep(0.6)
            assert finish().succeeded

    def test_it_ends_with_the_block(self) -> None:
        """Nobody waited for it, or something was raised: it is gone."""
        others = children_of_others()
        with beside(SLEEP):
            assert len(children() - others) == 1
        assert children() <= others
        with pytest.raises(KeyboardInterrupt), beside(SLEEP):
            raise KeyboardInterrupt
        assert children() <= others

    @pytest.mark.parametrize("after_ms", [0.5, 1, 2, 3, 5])
    def test_an_interruption_at_its_start_leaves_nobody(self, after_ms: float) -> None:
        """Ctrl-C while the process is made: it is raised, and the process is gone."""

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        others = children_of_others()
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                self._interrupted(after_ms)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert children() <= others

    @staticmethod
    def _interrupted(after_ms: float) -> None:
        signal.setitimer(signal.ITIMER_REAL, after_ms / 1000)
        with beside(SLEEP) as finish:
            finish()

    def test_a_signal_is_no_end_to_believe_in(self) -> None:
        """Who says that all of a program is gone is asked only when it exited by itself."""
        asked: list[bool] = []

        def ended() -> bool:
            asked.append(True)
            return True

        killed = self._run("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ended)
        assert (killed.signal, asked) == (signal.SIGKILL, [])
        assert self._run("pass", ended).succeeded
        assert asked == [True]

    @staticmethod
    def _run(code: str, ended: object) -> Finished:
        from holdfast.sandbox.process import run

        return run(Command((sys.executable, "-I", "-S", "-c", code), "/", {}, 9000), ended=ended)  # type: ignore[arg-type]


def test_the_stage_as_a_program_needs_nothing_of_holdfast() -> None:
    """It can be read by any Python, alone."""
    code = f"import sys; sys.argv = ['x', '-1', '-1']; exec(compile(open({stage.__file__!r}).read(), 'stage', 'exec'))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert "OSError" in done.stderr
    assert "holdfast" not in done.stderr
