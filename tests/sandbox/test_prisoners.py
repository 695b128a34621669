"""Processes: nothing outlives its run, nothing outside is touched, nothing of ours is inherited."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.sandbox.confined import SHIFT, is_real_root, run_confined
from holdfast.sandbox.process import Command
from sandbox.cell import PLAIN, QUICK, SECRET, Cell, attempt, mounts, said, stayed_in

# So long sleeps whoever these tests start, and nobody else: others may run beside them.
NAP = f"6{os.getpid():07}"
DAEMON = """
import os, sys, time
def fork():
    if os.fork(): os._exit(0)
if not os.fork():
    {before}
    time.sleep({nap})
    os._exit(0)
time.sleep(0.2)
print('TRIED')
"""
DAEMONS = {
    "a child": "pass",
    "double fork and new session": "fork(); os.setsid(); fork()",
    "closed output": "fork(); os.setsid(); fork(); os.closerange(0, 100)",
    "no environment": f"fork(); os.setsid(); os.closerange(0, 100); os.execve('/bin/sleep', ['i', '{NAP}'], {{}})",
    "undumpable": "import ctypes; ctypes.CDLL(None).prctl(4, 0); fork(); os.setsid(); os.closerange(0, 100)",
}


def sleepers() -> list[str]:
    """Whoever sleeps that long on this host."""
    lines = []
    for name in (name for name in os.listdir("/proc") if name.isdigit()):
        try:
            command = Path(f"/proc/{name}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if NAP.encode() in command:
            lines.append(command.decode())
    return lines


@pytest.mark.parametrize("way", DAEMONS)
def test_a_daemon_does_not_outlive_its_run(cell: Cell, way: str) -> None:
    """However a daemon detaches itself, it is dead when the run ends, and the result counts and names it."""
    ran = cell.python(DAEMON.format(before=DAEMONS[way], nap=NAP))
    stayed_in(ran)
    assert ran.finished.exit_code == 0
    assert ran.finished.left_behind == 1
    assert ran.left
    assert ran.finished.survivors == 0
    assert sleepers() == []


def test_a_pipeline_that_ends_in_a_moment_was_not_left_behind(cell: Cell) -> None:
    """Children that end right after the program are not counted as left behind."""
    ran = cell.run("sh", "-c", "(sleep 0.02; echo late) & echo early")
    assert (ran.finished.left_behind, ran.left) == (0, "")
    assert said(ran) == "early\nlate\n"


def test_processes_of_the_host_cannot_be_signalled(cell: Cell) -> None:
    """The pids of the host mean nothing inside; a signal to everyone reaches only the prisoner's own."""
    victim = subprocess.Popen(["/bin/sleep", "60"])
    try:
        numbers = [victim.pid, os.getpid(), os.getppid()]
        tries = [f"[os.kill({pid}, 9), 1 / (os.path.exists('/proc/{pid}'))]" for pid in numbers if pid > 40]
        stayed_in(cell.python(attempt(*tries)))
        cell.run("sh", "-c", "kill -9 -1")
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_the_first_process_cannot_be_killed_stopped_traced_or_read(cell: Cell) -> None:
    """What reports on the prisoner is out of its reach, so the report is ours."""
    code = """
import os, signal, ctypes, errno
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGSEGV):
    try:
        os.kill(1, number)
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    reads = [f"open('/proc/1/{name}', 'rb').read(1)" for name in ("mem", "environ", "maps")]
    files = [f"os.open('/proc/1/fd/{number}', os.O_RDWR)" for number in range(12)]
    tries = [*reads, *files, "os.stat('/proc/1/root/')", "check(libc.ptrace(16, 1, 0, 0))"]
    ran = cell.python(code + attempt(*tries) + "\nsys.exit(7)")
    stayed_in(ran)
    assert ran.finished.exit_code == 7


def test_other_processes_cannot_be_traced(cell: Cell) -> None:
    """Attaching to a process, even one's own child, is refused."""
    child = "check(libc.ptrace(16, os.fork() or os._exit(0), 0, 0))"
    stayed_in(cell.python(attempt(child, "check(libc.ptrace(0x4206, 1, 0, 0))")))


def test_open_files_of_ours_are_not_inherited(cell: Cell, public: Path) -> None:
    """A descriptor that was left inheritable does not reach the program, nor do those of the helpers."""
    fd = os.open(cell.secret, os.O_RDONLY)
    os.set_inheritable(fd, True)
    try:
        ran = cell.python("import os\nprint([n for n in sorted(map(int, os.listdir('/proc/self/fd'))) if n > 2][:-1])")
        assert said(ran) == "[]\n"
        stayed_in(cell.python(attempt(*(f"os.fstat({number})" for number in range(3, 200)))))
    finally:
        os.close(fd)


def test_the_environment_is_what_was_given(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys and tokens of ours are not in the environment; home and temporary directory are the sandbox's."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", SECRET.decode())
    ran = cell.run("env", env={"PATH": "/usr/bin:/bin", "GIVEN": "yes", "HOME": "/root"})
    lines = dict(line.split("=", 1) for line in said(ran).splitlines())
    assert set(lines) == {"PATH", "GIVEN", "HOME", "TMPDIR", "HOLDFAST_RUN"}
    assert lines["HOME"] == "/run/holdfast/home"
    assert said(cell.run("sh", "-c", "ls -A ~")) == ""


def test_the_programs_environment_is_not_that_of_our_helpers(cell: Cell) -> None:
    """A library to be preloaded is loaded by the program inside, not by bubblewrap or Python outside of it."""
    library = str(cell.workspace / "evil.so")
    ran = cell.run("true", env={"PATH": "/usr/bin:/bin", "LD_PRELOAD": library, "PYTHONPATH": str(cell.workspace)})
    assert said(ran).count(library) == 1  # the loader's complaint, once: by the program


def test_a_terminal_of_ours_cannot_be_typed_on(cell: Cell) -> None:
    """There is no terminal to reach, and typing for the user is refused on one of the prisoner's own."""
    master, slave = pty.openpty()
    try:
        own = "m, s = os.openpty(); check(libc.ioctl(s, 0x5412, b'x'))"
        high = "m, s = os.openpty(); check(libc.ioctl(s, ctypes.c_ulong(0x100005412), b'x'))"
        tries = ["os.open('/dev/tty', os.O_RDWR)", f"open({os.ttyname(slave)!r}, 'r+b', 0)", own, high]
        stayed_in(cell.python(attempt(*tries)))
    finally:
        os.close(master)
        os.close(slave)


def test_the_uid_outside_is_nobodys(cell: Cell) -> None:
    """As root, what runs inside is a uid on the host that owns nothing; never root itself."""
    if not cell.root:
        pytest.skip("an ordinary user is himself")
    seen: set[int] = set()

    def look(chunk: bytes) -> None:
        time.sleep(0.1)
        for name in (name for name in os.listdir("/proc") if name.isdigit()):
            try:
                if Path(f"/proc/{name}/cmdline").read_bytes() == b"sleep\x000.31\0":
                    seen.add(int(Path(f"/proc/{name}/status").read_text().split("Uid:")[1].split()[0]))
            except (FileNotFoundError, ProcessLookupError):
                continue

    command = Command(("sh", "-c", "sleep 0.31 & echo x; sleep 0.25"), cell.view.path, {"PATH": "/usr/bin:/bin"}, 9000)
    run_confined(command, cell.view, PLAIN, on_output=look)
    assert seen == {SHIFT}


PARENT = """
import sys
sys.path[:0] = {path!r}
from pathlib import Path
from sandbox.cell import Cell
cell = Cell(Path({place!r}), root={root})
cell.run("sh", "-c", "echo $$ > started; setsid sleep {nap} & sleep {nap}")
"""


def test_when_we_are_killed_everything_inside_dies(public: Path) -> None:
    """SIGKILL to Holdfast itself ends the whole sandbox; nobody is left, nothing stays mounted."""
    code = PARENT.format(
        path=[entry for entry in sys.path if entry], place=str(public / "cell"), root=is_real_root(), nap=NAP
    )
    before = mounts(public)
    parent = subprocess.Popen([sys.executable, "-c", code])
    started = public / "cell" / "layer0" / "upper" / "started"
    patience = time.monotonic() + 20
    while not started.exists() and time.monotonic() < patience:
        time.sleep(0.01)
    assert started.exists()
    time.sleep(0.1)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    patience = time.monotonic() + 5
    while sleepers() and time.monotonic() < patience:
        time.sleep(0.02)
    assert sleepers() == []
    assert mounts(public) == before


STUBBORN = f"""
import os, signal, time
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except OSError: pass
if os.fork(): os.setsid()
time.sleep({NAP})
"""


def test_time_ends_everything(cell: Cell) -> None:
    """A program that ignores every signal, and its daemons, end at the limit, and the result says time."""
    started = time.monotonic()
    ran = cell.python(STUBBORN, profile=PLAIN._replace(limits=QUICK._replace(time_ms=400)))
    assert time.monotonic() - started < 5
    assert ran.limit == "time"
    assert not ran.succeeded
    assert ran.finished.survivors == 0
    assert sleepers() == []
