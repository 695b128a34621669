"""Programs are started in one way, kept within bounds, and gone afterwards."""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from holdfast.errors import InvalidInput, Unsupported
from holdfast.sandbox.process import MARK, Command, Finished, clean_environment, run

SECRET = "HOLDFAST_TEST_API_KEY"
PYTHON = sys.executable


def start(
    *argv: str,
    cwd: Path | str = "/",
    timeout_ms: int = 10_000,
    output_limit: int = 1 << 20,
    grace_ms: int = 300,
    env: dict[str, str] | None = None,
) -> Finished:
    environment = clean_environment(str(cwd)) if env is None else env
    return run(Command(argv, str(cwd), environment, timeout_ms, output_limit, grace_ms))


def python(code: str, *argv: str, cwd: Path | str = "/", timeout_ms: int = 10_000) -> Finished:
    return start(PYTHON, "-I", "-S", "-c", code, *argv, cwd=cwd, timeout_ms=timeout_ms)


def alive(pid: int) -> bool:
    """A zombie is not alive: it waits for somebody else's wait()."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in ("Z", "X")


def command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def children_of_this_process() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def eventually(condition: object, seconds: float = 5.0) -> bool:
    assert callable(condition)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def secret_around() -> Iterator[None]:
    os.environ[SECRET] = "sk-very-secret"
    yield
    del os.environ[SECRET]


class TestWhatReachesTheProgram:
    def test_arguments_are_passed_literally(self) -> None:
        """Blanks, quotes, globs, variables, newlines and non-UTF-8 bytes arrive as they were given."""
        argv = ["a b", "$HOME", "`id`", "; rm -rf x", "*", "'\"", "line\nline", "", "--", "\udcff", "ü"]
        code = "import sys, os; sys.stdout.buffer.write(b'\\0'.join(os.fsencode(a) for a in sys.argv[1:]))"
        assert python(code, *argv).output == b"\0".join(os.fsencode(a) for a in argv)

    def test_environment_is_exactly_what_was_given(self, secret_around: None) -> None:
        """A key in our environment is not in the program's; besides what was given there is only the mark."""
        given = {"PATH": "/usr/bin:/bin", "ONLY": "this"}
        lines = start("env", env=given).output.decode().splitlines()
        assert {line.partition("=")[0] for line in lines} == {"PATH", "ONLY", MARK}

    def test_the_clean_environment_holds_no_secret(self, secret_around: None, tmp_path: Path) -> None:
        """Four variables, none of them ours but the search path."""
        environment = clean_environment(str(tmp_path), tmpdir="/t")
        assert environment == {**environment, "HOME": str(tmp_path), "LANG": "C.UTF-8", "TMPDIR": "/t"}
        assert set(environment) == {"PATH", "HOME", "LANG", "TMPDIR"}
        assert b"sk-very-secret" not in start("env", env=environment).output

    def test_the_search_path_has_only_absolute_entries(self) -> None:
        """An empty or relative entry would run whatever stands in the directory."""
        assert clean_environment("/h", ":.:bin:/usr/bin::/bin:")["PATH"] == "/usr/bin:/bin"
        assert clean_environment("/h", ".")["PATH"].startswith("/")

    def test_no_descriptor_is_inherited(self) -> None:
        """Not even one that was made inheritable."""
        read_end, write_end = os.pipe()
        os.set_inheritable(write_end, True)
        try:
            output = python("import os; print(sorted(os.listdir('/proc/self/fd')))").output
        finally:
            os.close(read_end)
            os.close(write_end)
        assert output == b"['0', '1', '2', '3']\n"  # 3 is the listing itself

    def test_standard_input_is_empty(self) -> None:
        """A program that asks a question gets no answer instead of waiting for one."""
        assert python("import sys; print(repr(sys.stdin.read()))").output == b"''\n"

    def test_there_is_no_terminal_to_talk_to(self) -> None:
        """A new session has no controlling terminal, so nothing can be typed into ours."""
        code = (
            "import os\ntry: os.open('/dev/tty', os.O_RDWR)\nexcept OSError: print('none', os.getsid(0) == os.getpid())"
        )
        assert python(code).output == b"none True\n"

    def test_ignored_and_blocked_signals_are_not_inherited(self) -> None:
        """What our caller ignores, or we block, the program meets with the default action."""
        numbers = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGUSR1)
        before = {number: signal.signal(number, signal.SIG_IGN) for number in numbers}
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        try:
            output = start("grep", "-E", "^Sig(Blk|Ign):", "/proc/self/status").output
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            for number, handler in before.items():
                signal.signal(number, handler)
        _, blocked, _, ignored = output.split()
        # 32 and 33 belong to the C library: no program may change them, so whatever our own caller left stays.
        of_the_library = 1 << 31 | 1 << 32
        assert (int(blocked, 16), int(ignored, 16) & ~of_the_library) == (0, 0)

    def test_a_crash_leaves_no_core_file(self, tmp_path: Path) -> None:
        """The directory may be the user's; also where our own limit would allow one."""
        soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        try:
            finished = start("sh", "-c", "ulimit -c; kill -ABRT $$", cwd=tmp_path)
        finally:
            resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
        assert (finished.output, finished.signal, os.listdir(tmp_path)) == (b"0\n", signal.SIGABRT, [])


class TestWhatCannotBeStarted:
    @pytest.mark.parametrize(
        ("argv", "reason"),
        [
            ((), "empty"),
            (("",), "empty"),
            (("no-such-program-anywhere",), "not found on PATH"),
            (("./missing",), "not found"),
            (("./plain",), "not executable"),
            (("./folder",), "not a file"),
            (("./no-format",), "cannot be started: Exec format error"),
            (("./lost-interpreter",), "cannot be started: No such file"),
            (("true", "a\0b"), "NUL"),
            (("true", "\ud800"), "cannot be passed"),
            (("plain-on-path",), "not found on PATH"),
        ],
    )
    def test_it_is_refused_with_the_reason(self, tmp_path: Path, argv: tuple[str, ...], reason: str) -> None:
        """Nothing is started, and the message says what is wrong."""
        (tmp_path / "plain").write_text("#!/bin/sh\n")
        (tmp_path / "folder").mkdir()
        for name, text in (("no-format", "echo hi\n"), ("lost-interpreter", "#!/no/such\n"), ("plain-on-path", "")):
            (tmp_path / name).write_text(text)
            (tmp_path / name).chmod(0o755)
        environment = {"PATH": f":.:{os.path.relpath(tmp_path, '/')}:/usr/bin:/bin"}
        with pytest.raises(InvalidInput, match=reason):
            start(*argv, cwd=tmp_path, env=environment)

    def test_a_missing_directory_is_refused(self, tmp_path: Path) -> None:
        """The message names the directory, not the program."""
        with pytest.raises(InvalidInput, match="gone is not a directory"):
            start("true", cwd=tmp_path / "gone", env={"PATH": "/bin"})

    @pytest.mark.parametrize("environment", [{"A=B": "x"}, {"": "x"}, {"A": "x\0y"}])
    def test_an_impossible_environment_is_refused(self, environment: dict[str, str]) -> None:
        """No variable can pretend to be another one."""
        with pytest.raises(InvalidInput):
            start("/bin/true", env=environment)

    def test_ignored_sigchld_is_refused(self) -> None:
        """Where the kernel throws exit codes away, a failed check would look like any other."""
        before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        try:
            with pytest.raises(Unsupported, match="SIGCHLD"):
                start("false")
        finally:
            signal.signal(signal.SIGCHLD, before)

    @pytest.mark.root
    @pytest.mark.parametrize("mount", ["mount -t tmpfs none /proc", "true"])
    def test_a_proc_that_shows_others_is_refused(self, mount: str) -> None:
        """No /proc, or that of another pid namespace: nobody who is left could be found, so nothing is started."""
        code = (
            "from holdfast.sandbox.process import *\nfrom holdfast.errors import Unsupported\n"
            "try: run(Command(('/bin/echo', 'started'), '/', {}, 9000), on_output=print)\n"
            "except Unsupported as error: print('refused:', error)"
        )
        argv = ["unshare", "-mp", "--fork", "sh", "-c", f'{mount} && exec "$0" -c "$1"', PYTHON, code]
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True)
        assert done.stdout.startswith("refused: /proc is "), done.stderr

    def test_a_program_beside_the_directory_is_found_by_relative_path(self, tmp_path: Path) -> None:
        """A path with a slash is taken from the command's directory, not from ours."""
        (tmp_path / "tool").write_text("#!/bin/sh\necho ran in $PWD\n")
        (tmp_path / "tool").chmod(0o755)
        assert start("./tool", cwd=tmp_path).output == f"ran in {tmp_path}\n".encode()


class TestHowItEnds:
    def test_the_exit_code_is_reported(self) -> None:
        """Exit 7 is 7, no signal, no time-out, and no success."""
        finished = start("sh", "-c", "echo out; echo err >&2; exit 7")
        assert finished[:3] == (7, None, False)
        assert (finished.output, finished.succeeded) == (b"out\nerr\n", False)
        assert start("true").succeeded

    def test_death_by_signal_is_reported(self) -> None:
        """A signal is not an exit code."""
        finished = start("sh", "-c", "kill -SEGV $$")
        assert finished[:3] == (None, signal.SIGSEGV, False)
        assert not finished.succeeded

    def test_a_hanging_program_ends_at_the_deadline(self) -> None:
        """The deadline is kept while it runs; SIGTERM is enough for a program that obeys."""
        began = time.monotonic()
        finished = start("sleep", "60", timeout_ms=200, grace_ms=5000)
        assert (finished.timed_out, finished.signal) == (True, signal.SIGTERM)
        assert 0.2 <= time.monotonic() - began < 30
        assert 200 <= finished.duration_ms < 30_000

    def test_last_words_after_sigterm_are_kept(self) -> None:
        """A test runner that prints its summary when asked to stop is heard; its exit 0 is no success."""
        finished = start("sh", "-c", "trap 'echo stopping; exit 0' TERM; sleep 60 & wait", timeout_ms=300)
        assert (finished.output, finished.exit_code, finished.timed_out) == (b"stopping\n", 0, True)
        assert not finished.succeeded

    def test_a_program_that_ignores_sigterm_is_killed(self) -> None:
        """After the grace comes SIGKILL, for its children too."""
        began = time.monotonic()
        finished = start("sh", "-c", "trap '' TERM; while :; do sleep 1; done", timeout_ms=200)
        assert (finished.timed_out, finished.signal, finished.survivors) == (True, signal.SIGKILL, 0)
        assert time.monotonic() - began < 30

    def test_a_stopped_program_is_killed(self) -> None:
        """SIGTERM waits for a stopped process; SIGKILL does not."""
        finished = start("sh", "-c", "kill -STOP $$", timeout_ms=200)
        assert (finished.timed_out, finished.survivors) == (True, 0)

    def test_endless_output_ends_at_the_deadline(self) -> None:
        """A program that prints without pause does not keep us from looking at the clock."""
        finished = start("yes", timeout_ms=200, output_limit=1000)
        assert finished.timed_out
        assert finished.output_truncated > 0
        assert finished.duration_ms < 1000

    def test_a_closed_output_is_not_the_end(self) -> None:
        """A program that closes its output early is still waited for."""
        assert start("sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 4").exit_code == 4


class TestOutput:
    def test_200_megabytes_are_counted_not_kept(self) -> None:
        """Head and tail are kept, the rest is counted to the byte, and memory stays small."""
        size, limit = 200_000_000, 100_000
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        code = (
            "import os\nb = b'x' * 999_999 + b'\\n'\n"
            f"for _ in range({size // 1_000_000}): os.write(1, b)\nos.write(1, b'END')"
        )
        seen = 0

        def count(chunk: bytes) -> None:
            nonlocal seen
            seen += len(chunk)

        command = Command((PYTHON, "-I", "-S", "-c", code), "/", clean_environment("/"), 60_000, limit)
        finished = run(command, on_output=count)
        assert (finished.exit_code, seen) == (0, size + 3)
        assert finished.output_truncated == size + 3 - limit
        assert finished.output.startswith(b"xxx")
        assert finished.output.endswith(b"END")
        assert b"[... %d bytes left out ...]" % finished.output_truncated in finished.output
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 20_000  # KiB

    @pytest.mark.parametrize("limit", [0, 1, 2, 5, 9, 10, 11])
    def test_head_and_tail_are_exact(self, limit: int) -> None:
        """For every limit the kept bytes are the first and the last ones, and the sum is right."""
        finished = start("printf", "0123456789", output_limit=limit)
        if limit >= 10:
            assert (finished.output, finished.output_truncated) == (b"0123456789", 0)
            return
        head, _, rest = finished.output.partition(b"\n[... ")
        tail = rest.partition(b" ...]\n")[2]
        assert (head, tail) == (b"0123456789"[: (limit + 1) // 2], b"0123456789"[10 - limit // 2 :])
        assert finished.output_truncated == 10 - limit

    def test_output_arrives_while_the_program_runs(self) -> None:
        """A listener hears the first line long before the end."""
        heard: list[float] = []
        command = Command(("sh", "-c", "echo first; sleep 0.5"), "/", clean_environment("/"), 5000)
        run(command, on_output=lambda chunk: heard.append(time.monotonic()))
        assert time.monotonic() - heard[0] > 0.4


DAEMON = """
import os, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for fd in range(3): os.close(fd)
open(sys.argv[1], 'w').write(str(os.getpid()))
time.sleep(60)
"""


class TestWhatIsLeftBehind:
    def test_background_children_are_killed_and_counted(self, tmp_path: Path) -> None:
        """A program that exits 0 and leaves two children: both die, both are counted, the exit code stands."""
        finished = start("sh", "-c", "sleep 60 & echo $!; sleep 60 & echo $!", cwd=tmp_path)
        pids = [int(word) for word in finished.output.split()]
        assert (finished.exit_code, finished.left_behind, finished.survivors) == (0, 2, 0)
        assert [alive(pid) for pid in pids] == [False, False]

    def test_a_child_that_ignores_sigterm_is_killed(self) -> None:
        """Being left behind does not make it immune."""
        finished = start("sh", "-c", "(trap '' TERM; echo $$; while :; do sleep 1; done) & sleep 0.1")
        assert (finished.exit_code, finished.survivors) == (0, 0)
        assert finished.left_behind >= 1

    def test_a_daemon_is_found(self, tmp_path: Path) -> None:
        """Double fork, new session, closed output: found by its mark and killed."""
        pid_file = tmp_path / "pid"
        code = DAEMON.replace("if os.fork(): os._exit(0)", "if os.fork(): time.sleep(0.3); os._exit(0)", 1)
        finished = python(code, str(pid_file))
        assert (finished.exit_code, finished.left_behind, finished.survivors) == (0, 1, 0)
        assert not alive(int(pid_file.read_text()))

    def test_a_daemon_is_found_at_the_deadline_too(self, tmp_path: Path) -> None:
        """The time-out ends the program and what it sent away."""
        pid_file = tmp_path / "pid"
        code = DAEMON.replace("if os.fork(): os._exit(0)", "if os.fork(): time.sleep(60)", 1)
        finished = python(code, str(pid_file), timeout_ms=700)
        assert (finished.timed_out, finished.survivors) == (True, 0)
        assert not alive(int(pid_file.read_text()))

    def test_a_daemon_in_the_making_is_found(self, tmp_path: Path) -> None:
        """The program ends while its grandchild is on the way into a new session; none slips through."""
        tag = str(tmp_path / "pid")
        for _ in range(8):
            assert python(DAEMON, tag).survivors == 0
            lines = [command_line(name) for name in os.listdir("/proc") if name.isdigit()]
            assert not [line for line in lines if tag.encode() in line]

    @pytest.mark.long
    def test_a_daemon_between_two_programs_is_found(self, tmp_path: Path) -> None:
        """One that becomes another program again and again has no environment for moments, and is found in each."""
        again = tmp_path / "again"
        again.write_text('#!/bin/sh\nexec "$0"\n')
        again.chmod(0o755)
        code = DAEMON.partition("open(")[0] + f"os.execv({str(again)!r}, ['again'])"
        late = code.replace("if os.fork(): os._exit(0)", "if os.fork(): time.sleep(0.05); os._exit(0)", 1)
        for _ in range(30):
            assert python(late).left_behind == 1
        lines = [command_line(name) for name in os.listdir("/proc") if name.isdigit()]
        assert not [line for line in lines if str(again).encode() in line]

    @pytest.mark.long
    @pytest.mark.parametrize("pause", ["pass", "time.sleep(0.0005)", "time.sleep(0.002)"])
    def test_one_that_forks_and_ends_again_and_again_is_caught(self, tmp_path: Path, pause: str) -> None:
        """No process of it lives long enough to be looked at twice; none lives to say that it came through."""
        code = (
            DAEMON.partition("open(")[0].replace(
                "if os.fork(): os._exit(0)", "if os.fork(): time.sleep(0.03); os._exit(0)", 1
            )
            + f"end = time.monotonic() + 1\nwhile time.monotonic() < end:\n    if os.fork(): os._exit(0)\n    {pause}\n"
            + "open(sys.argv[1], 'w')\n"
        )
        ran = [python(code, str(tmp_path / str(number))) for number in range(4)]
        assert [(finished.left_behind > 0, finished.survivors) for finished in ran] == [(True, 0)] * 4
        time.sleep(1.2)
        assert os.listdir(tmp_path) == []

    def test_a_job_in_its_own_group_is_found(self) -> None:
        """Leaving the process group is not leaving the session."""
        code = "import os, time\npid = os.fork()\nif not pid: os.setpgid(0, 0); time.sleep(60)\n"
        finished = python(code + "time.sleep(0.1); print(pid)")
        assert (finished.exit_code, finished.left_behind, finished.survivors) == (0, 1, 0)
        assert not alive(int(finished.output))

    def test_a_process_whose_first_thread_ended_is_found(self) -> None:
        """The kernel shows it as a zombie although it runs on."""
        number = {"x86_64": 60, "aarch64": 93}.get(platform.machine())
        if number is None:
            pytest.skip("the number of the exit system call is not known here")
        code = f"""
import ctypes, os, threading, time
pid = os.fork()
if not pid:
    threading.Thread(target=time.sleep, args=(60,)).start()
    ctypes.CDLL(None).syscall({number}, 0)
time.sleep(0.3)
print(pid)
"""
        finished = start(PYTHON, "-c", code)
        assert (finished.exit_code, finished.left_behind, finished.survivors) == (0, 1, 0)
        assert not Path(f"/proc/{int(finished.output)}/task").exists() or not alive(int(finished.output))

    def test_an_unseen_holder_of_the_output_is_admitted(self, tmp_path: Path) -> None:
        """A process that left the session and wiped its environment cannot be found; the open pipe gives it away."""
        pid_file = tmp_path / "pid"
        script = f"env -i /usr/bin/setsid /bin/sh -c 'echo $$ > {pid_file}; exec sleep 60' & sleep 0.3"
        finished = start("sh", "-c", script)
        pid = int(pid_file.read_text())
        try:
            assert (finished.exit_code, finished.survivors, finished.succeeded) == (0, 1, False)
            assert alive(pid)
        finally:
            os.kill(pid, signal.SIGKILL)

    def test_a_short_lived_helper_is_not_a_leftover(self) -> None:
        """The tail of a pipeline may end a moment after its head, and is heard to the end."""
        finished = start("sh", "-c", "(sleep 0.01; echo late) & echo early")
        assert (finished.output, finished.left_behind) == (b"early\nlate\n", 0)

    def test_strangers_are_left_alone(self) -> None:
        """A process that is not of this run, with another run's mark, survives the sweep."""
        stranger = os.posix_spawn("/bin/sleep", ["sleep", "60"], {MARK: "0" * 32})
        try:
            start("sh", "-c", "sleep 60 &")
            assert alive(stranger)
        finally:
            os.kill(stranger, signal.SIGKILL)
            os.waitpid(stranger, 0)


class TestNothingStaysWithUs:
    def test_no_zombies_and_no_descriptors(self) -> None:
        """Whatever way runs end, our own process has the same children and descriptors as before."""
        start("true")
        gc.collect()
        before = (children_of_this_process(), len(os.listdir("/proc/self/fd")))
        for _ in range(5):
            start("sh", "-c", "sleep 60 & exit 1")
            start("sleep", "60", timeout_ms=10)
            with pytest.raises(InvalidInput):
                start("/etc/hostname/no")
        assert (children_of_this_process(), len(os.listdir("/proc/self/fd"))) == before

    def test_an_exception_in_the_listener_ends_the_program(self) -> None:
        """Ctrl-C or a failing listener: the exception goes up, and nothing keeps running."""
        before = (children_of_this_process(), len(os.listdir("/proc/self/fd")))
        heard: list[bytes] = []

        def interrupted(chunk: bytes) -> None:
            heard.append(chunk)
            if len(heard) == 2:
                raise KeyboardInterrupt

        command = Command(("sh", "-c", "sleep 60 & echo $!; sleep 0.2; yes"), "/", clean_environment("/"), 60_000)
        with pytest.raises(KeyboardInterrupt):
            run(command, on_output=interrupted)
        assert len(heard) == 2
        assert not alive(int(heard[0]))
        assert (children_of_this_process(), len(os.listdir("/proc/self/fd"))) == before

    def test_it_works_in_a_thread(self) -> None:
        """A program started by a worker thread lives as long as it should, and its end is seen."""
        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(lambda n: start("sh", "-c", f"sleep 0.2; exit {n}"), range(8)))
        assert [(r.exit_code, r.left_behind, r.survivors) for r in results] == [(n, 0, 0) for n in range(8)]

    def test_if_we_are_killed_the_program_dies(self, tmp_path: Path) -> None:
        """SIGKILL gives us no chance to clean up; the kernel does it."""
        pid_file = tmp_path / "pid"
        code = (
            "from holdfast.sandbox.process import *\n"
            f"run(Command(('sh', '-c', 'echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 60'),"
            " '/', clean_environment('/'), 60_000))"
        )
        source = str(Path(__file__).parents[2] / "src")
        parent = os.posix_spawn(PYTHON, [PYTHON, "-c", code], {"PATH": "/usr/bin:/bin", "PYTHONPATH": source})
        try:
            assert eventually(pid_file.exists)
            pid = int(pid_file.read_text())
            assert alive(pid)
        finally:
            os.kill(parent, signal.SIGKILL)
            os.waitpid(parent, 0)
        assert eventually(lambda: not alive(pid), 2.0)


class TestWhatASandboxNeeds:
    """Input, passed descriptors and a watch: what `confined.py` builds upon."""

    def test_input_is_all_there_is_to_read(self) -> None:
        """The program reads what it was given, however much, and then the end."""
        data = os.urandom(3 << 20)
        code = "import sys, hashlib; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())"
        ran = run(Command((PYTHON, "-I", "-S", "-c", code), "/", {}, 10_000, stdin=data))
        assert ran.output.decode().strip() == hashlib.sha256(data).hexdigest()

    def test_only_the_named_descriptors_are_passed(self) -> None:
        """A descriptor that is passed keeps its number; its neighbours are closed."""
        reading, writing = os.pipe()
        code = f"import os; os.write({writing}, b'x'); print(os.path.exists('/proc/self/fd/{reading}'))"
        try:
            ran = run(Command((PYTHON, "-I", "-S", "-c", code), "/", {}, 10_000, pass_fds=(writing,)))
            assert (ran.output, os.read(reading, 9)) == (b"False\n", b"x")
        finally:
            os.close(reading)
            os.close(writing)

    def test_handlers_of_ours_are_not_called_in_a_copy_of_us(self) -> None:
        """What becomes something else without a new program first is ended by a signal as any program is."""

        def become(env: dict[str, str]) -> NoReturn:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(5)

        before = signal.signal(signal.SIGTERM, lambda number, frame: None)
        try:
            ran = run(Command(("/bin/true",), "/", {}, 9000, become=become))
        finally:
            signal.signal(signal.SIGTERM, before)
        assert (ran.exit_code, ran.signal) == (None, signal.SIGTERM)

    def test_a_watch_ends_the_program_with_its_reason(self) -> None:
        """The reason is in the result, which is no success and no time-out, and nobody is left."""
        asked: list[int] = []

        def watch(pid: int, printed: int) -> str:
            asked.append(printed)
            return "enough" if len(asked) == 3 else ""

        ran = run(Command(("/bin/sh", "-c", "echo hello; sleep 60 & sleep 60"), "/", {}, 20_000), watch=watch)
        assert (ran.stopped, ran.timed_out, ran.succeeded, ran.survivors) == ("enough", False, False, 0)
        assert asked[-1] == len("hello\n")
        assert ran.duration_ms < 5000
