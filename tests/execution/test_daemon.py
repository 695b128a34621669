"""A process is known by pid, start time and boot; whoever has its number now is left alone."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from execution.little_site import put_away, wait_for
from guarded import in_child
from holdfast.errors import InvalidInput
from holdfast.sandbox.daemon import Daemon, Identity, end, identity_of, is_alive, launch

ENV = {"PATH": "/usr/bin:/bin"}
STUBBORN = "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"


def _forget(daemon: Daemon) -> None:
    """Nobody remembers."""


@pytest.fixture
def output(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("stranger", [("started", 1), ("boot", "another boot")])
def test_a_pid_that_was_given_away_is_not_signalled(stranger: tuple[str, object]) -> None:
    """Ending goes by identity: a living process with another start time, or after a reboot, is left alone."""
    me = identity_of(os.getpid())
    assert me is not None
    other = me._replace(**{stranger[0]: stranger[1]})  # type: ignore[arg-type]
    assert not is_alive(other)
    assert end(Daemon(other, "nobody carries this"), 0.1)
    assert is_alive(me)


def test_who_does_not_listen_is_killed(output: int, tmp_path: Path) -> None:
    """A program that ignores SIGTERM is gone all the same after the grace."""
    daemon = launch((sys.executable, "-I", "-S", "-c", STUBBORN), str(tmp_path), ENV, output, _forget)
    wait_for(lambda: (tmp_path / "log").read_text() == "up\n")
    assert end(daemon, 0.1)
    assert not is_alive(daemon.identity)


def test_a_program_begins_after_it_is_remembered(output: int, tmp_path: Path) -> None:
    """While it is being remembered the process is there and has not begun; then it begins, the same process."""
    seen: list[tuple[bool, bool]] = []

    def remember(daemon: Daemon) -> None:
        seen.append((is_alive(daemon.identity), (tmp_path / "note").exists()))

    program = f"echo $$ > {tmp_path}/note; sleep 600"
    daemon = launch(("/bin/sh", "-c", program), str(tmp_path), ENV, output, remember)
    wait_for(lambda: (tmp_path / "note").exists() and (tmp_path / "note").read_text() != "")
    assert seen == [(True, False)]
    assert int((tmp_path / "note").read_text()) == daemon.identity.pid
    put_away(daemon)


def test_killed_while_remembering_nothing_has_begun(output: int, tmp_path: Path) -> None:
    """When we are killed before the process was remembered, it ends without having become the program."""
    pids = tmp_path / "pids"

    def die(daemon: Daemon) -> None:
        pids.write_text(str(daemon.identity.pid))
        os.kill(os.getpid(), signal.SIGKILL)

    argv = ("/usr/bin/touch", str(tmp_path / "note"))
    assert in_child(lambda: launch(argv, str(tmp_path), ENV, output, die)) == -9
    wait_for(lambda: identity_of(int(pids.read_text())) is None)
    assert not (tmp_path / "note").exists()


def test_who_waits_to_begin_holds_no_lock_of_ours(output: int, tmp_path: Path) -> None:
    """The process that waits has no descriptor of ours, so that a lock does not outlive whoever held it."""
    held = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    found: list[set[str]] = []

    def look(daemon: Daemon) -> None:
        folder = f"/proc/{daemon.identity.pid}/fd"
        found.append({os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)})

    put_away(launch(("/bin/sleep", "600"), str(tmp_path), ENV, output, look))
    os.close(held)
    assert str(tmp_path / "lock") not in found[0]
    assert {target.partition(":")[0] for target in found[0]} == {os.devnull, str(tmp_path / "log"), "pipe"}


def test_what_cannot_be_executed_is_told(output: int, tmp_path: Path) -> None:
    """A file that is executable and no program gives the reason, not a silent end."""
    script = tmp_path / "script"
    script.write_text("no magic number\n")
    script.chmod(0o755)
    with pytest.raises(InvalidInput, match="Exec format error"):
        launch((str(script),), str(tmp_path), ENV, output, _forget)


def test_a_process_is_somebody_until_it_has_ended() -> None:
    """A zombie, which does nothing more, is nobody."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert identity_of(pid) is None
    os.waitpid(pid, 0)
    assert isinstance(identity_of(os.getpid()), Identity)
