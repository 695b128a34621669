"""Conversations: a program and we talk over pipes, under all limits, and nothing is left of it afterwards."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from guarded import in_child
from holdfast.errors import InvalidInput, SandboxUnavailable
from holdfast.sandbox.confined import Confined, run_confined
from holdfast.sandbox.conversation import LEAVING_S, OVER, converse_confined
from holdfast.sandbox.output import Lines
from holdfast.sandbox.process import Command
from holdfast.sandbox.profile import Profile
from holdfast.sandbox.watch import descendants
from sandbox.cell import PLAIN, QUICK, Cell, mounts, said

T = TypeVar("T")
ENV = {"PATH": "/usr/bin:/bin"}
# Answers every line with itself, doubled.
PARROT = "while read line; do echo $line$line; done"


def shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


def converse(
    cell: Cell,
    argv: tuple[str, ...],
    talk: Callable[[int, int], T],
    profile: Profile = PLAIN,
    stop: Callable[[], str] | None = None,
    timeout_ms: int = 20_000,
) -> tuple[T, Confined]:
    command = Command(argv, cell.view.path, ENV, timeout_ms)
    return cell.act(lambda: converse_confined(command, cell.view, profile, talk, stop=stop))


def everything(reading: int) -> bytes:
    heard = b""
    while piece := os.read(reading, 1 << 16):
        heard += piece
    return heard


def test_a_question_and_its_answer_go_back_and_forth(cell: Cell) -> None:
    """What is written is its standard input, what it prints is read at once; it ends when there is no more."""

    def talk(reading: int, writing: int) -> list[bytes]:
        heard = []
        for word in (b"a\n", b"b\n", b"c\n"):
            os.write(writing, word)
            heard.append(os.read(reading, 99))
        return heard

    heard, ran = converse(cell, shell(PARROT), talk)
    assert heard == [b"aa\n", b"bb\n", b"cc\n"]
    assert ran.succeeded and ran.limit == ""
    assert any("pid namespace" in word for word in ran.enforced)


def test_standard_error_is_the_output(cell: Cell) -> None:
    """What it says to people is kept apart from the conversation."""
    heard, ran = converse(cell, shell("echo talk; echo aside >&2; exit 3"), lambda reading, _: everything(reading))
    assert (heard, said(ran), ran.finished.exit_code) == (b"talk\n", "aside\n", 3)


def test_much_goes_both_ways(cell: Cell) -> None:
    """Megabytes, written while as much is read."""
    data = os.urandom(3 << 20)

    def talk(reading: int, writing: int) -> bytes:
        def write() -> None:
            with os.fdopen(writing, "wb") as file:
                file.write(data)

        writer = threading.Thread(target=write)
        writer.start()
        heard = everything(reading)
        writer.join()
        return heard

    profile = PLAIN._replace(limits=QUICK._replace(output_bytes=10 << 20))
    heard, ran = converse(cell, ("cat",), talk, profile)
    assert heard == data and ran.succeeded


def test_the_end_of_the_program_is_the_end_of_what_is_read(cell: Cell) -> None:
    """Whoever reads is at the end when the program is gone, and whoever writes is told so."""

    def talk(reading: int, writing: int) -> str:
        assert everything(reading) == b"bye\n"
        end = time.monotonic() + 5
        while time.monotonic() < end:
            try:
                os.write(writing, b"anyone?\n")
            except BrokenPipeError:
                return "broken"
        return "still there"

    told, ran = converse(cell, shell("echo bye"), talk)
    assert (told, ran.finished.exit_code) == ("broken", 0)


def test_a_closed_output_is_seen_while_the_program_runs(cell: Cell) -> None:
    """No helper keeps an end open: the end of its words and of its attention are seen when they happen."""

    def talk(reading: int, writing: int) -> tuple[bytes, float]:
        heard = os.read(reading, 9)
        began = time.monotonic()
        return heard + everything(reading), time.monotonic() - began

    (heard, took), ran = converse(cell, shell("echo x; exec >&-; exec sleep 1.8"), talk)
    assert heard == b"x\n" and took < 1.5
    assert ran.finished.exit_code == 0


def test_a_program_that_stays_is_ended_after_a_moment(cell: Cell) -> None:
    """When `talk` is done the input is at its end; who does not go in two seconds is killed, which is no limit."""
    began = time.monotonic()
    value, ran = converse(cell, shell("trap '' TERM; while :; do sleep 1; done"), lambda *_: "done")
    took = time.monotonic() - began
    assert (value, ran.limit, ran.finished.stopped) == ("done", "", OVER)
    assert not ran.succeeded and ran.finished.survivors == 0
    assert LEAVING_S <= took < LEAVING_S + 3


def test_a_program_may_finish_what_it_does(cell: Cell) -> None:
    """After the end of its input it has a moment to say more than a pipe holds, and to leave with its own status."""
    tail = "cat >/dev/null; head -c 500000 /dev/zero; echo x > finished; exit 4"
    value, ran = converse(cell, shell(tail), lambda *_: 7)
    assert (value, ran.finished.exit_code, ran.finished.stopped) == (7, 4, "")
    assert (cell.upper / "finished").exists()


def test_an_exception_ends_the_program_and_is_raised(cell: Cell) -> None:
    """Whatever goes wrong in `talk`, the program does not outlive it."""
    began = time.monotonic()

    def talk(reading: int, writing: int) -> None:
        os.read(reading, 1)
        raise InvalidInput("the agent speaks in riddles")

    with pytest.raises(InvalidInput, match="riddles"):
        converse(cell, shell("echo x; sleep 60; touch survived"), talk)
    assert time.monotonic() - began < 10
    assert not (cell.upper / "survived").exists()


def test_what_cannot_be_started_is_named_before_what_talk_says(cell: Cell) -> None:
    """No such program, or no sandbox: that is the error, though `talk` failed because of it."""

    def talk(reading: int, writing: int) -> None:
        assert everything(reading) == b""
        raise InvalidInput("nobody answers")

    with pytest.raises(InvalidInput, match="cannot be started"):
        converse(cell, ("no-such-program",), talk)
    with pytest.raises(SandboxUnavailable):
        converse(cell, ("true",), talk, PLAIN._replace(network="proxy", proxy_socket="/nonexistent"))
    command = Command(("true",), cell.view.path, ENV, 9000, stdin=b"x")
    with pytest.raises(InvalidInput, match="no other input"):
        converse_confined(command, cell.view, PLAIN, talk)


GREEDY = "import os, time\nb = bytearray()\nwhile True: b += b'x' * (2 << 20); time.sleep(0.01)"
LIMITS = {
    "time": (shell("sleep 60"), QUICK._replace(time_ms=500)),
    "output": (("yes",), QUICK._replace(output_bytes=2 << 20)),
    "processes": (shell("for i in 1 2 3 4 5 6 7 8 9; do sleep 60 & done; wait"), QUICK._replace(processes=5)),
    "disk": (shell("while :; do head -c 1000000 /dev/zero >> f; done"), QUICK._replace(disk_bytes=10 << 20)),
    "memory": (("python3", "-c", GREEDY), QUICK._replace(memory_bytes=100 << 20)),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_every_limit_holds_in_a_conversation(cell: Cell, limit: str) -> None:
    """The limit ends the program, has its name, and the reader sees the end."""
    argv, limits = LIMITS[limit]

    def talk(reading: int, writing: int) -> str:
        while os.read(reading, 1 << 16):
            pass
        return "end"

    value, ran = converse(cell, argv, talk, Profile(limits=limits))
    assert (value, ran.limit) == ("end", limit)
    assert ran.finished.survivors == 0 and not ran.succeeded


def test_a_caller_can_stop_a_conversation(cell: Cell) -> None:
    """A word from outside ends the program at once, and is the limit."""
    began = time.monotonic()
    spent = iter(["", "", "budget"])
    value, ran = converse(cell, ("sleep", "60"), lambda reading, _: everything(reading), stop=lambda: next(spent))
    assert (value, ran.limit, ran.finished.stopped) == (b"", "budget", "budget")
    assert time.monotonic() - began < 5


def test_a_caller_can_stop_a_run(cell: Cell) -> None:
    """So it does where nobody talks; without a word nothing is stopped."""
    command = Command(shell("echo begun; sleep 60"), cell.view.path, ENV, 20_000)

    def act() -> Confined:
        heard: list[bytes] = []
        return run_confined(command, cell.view, PLAIN, on_output=heard.append, stop=lambda: "budget" if heard else "")

    ran = cell.act(act)
    assert (ran.limit, said(ran), ran.succeeded) == ("budget", "begun\n", False)
    assert ran.finished.duration_ms < 5000
    command = command._replace(argv=("sleep", "0.3"))
    assert cell.act(lambda: run_confined(command, cell.view, PLAIN, stop=lambda: "")).succeeded


def test_a_stop_that_fails_ends_the_program(cell: Cell) -> None:
    """An error in what is asked is raised, and nothing keeps running."""

    def fail() -> str:
        raise InvalidInput("no ledger to ask")

    with pytest.raises(InvalidInput, match="no ledger"):
        converse(cell, shell("sleep 2; touch survived"), lambda reading, _: everything(reading), stop=fail)
    time.sleep(2.2)
    assert not (cell.upper / "survived").exists()


@pytest.mark.root
def test_an_interrupt_ends_both(public: Path) -> None:
    """Ctrl-C in the middle of a conversation: the program is gone, `talk` sees the end, the interrupt is raised."""
    cell = Cell(public / "cell", root=True)
    heard: list[bytes] = []

    def talk(reading: int, writing: int) -> None:
        os.read(reading, 1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        heard.append(everything(reading))

    with pytest.raises(KeyboardInterrupt):
        converse(cell, shell("echo; sleep 60"), talk)
    assert heard == [b""]
    assert not [thread for thread in threading.enumerate() if "holdfast" in thread.name]


def test_a_conversation_dies_with_us(cell: Cell) -> None:
    """When we are killed in the middle, the program is killed by the kernel, whichever thread was talking."""
    reading, writing = os.pipe()

    def act() -> None:
        def talk(heard: int, _: int) -> None:
            os.read(heard, 1)
            os.write(writing, b" ".join(b"%d" % pid for pid in all_below(os.getpid(), 3)))
            os.kill(os.getpid(), signal.SIGKILL)

        converse_confined(Command(shell("echo x; sleep 60"), cell.view.path, ENV, 90_000), cell.view, PLAIN, talk)

    assert in_child(act, uid=os.lstat(cell.place).st_uid) != 0
    pids = os.read(reading, 999).split()
    os.close(reading)
    os.close(writing)
    assert len(pids) >= 3
    end = time.monotonic() + 5
    while (left := [pid for pid in pids if alive(int(pid))]) and time.monotonic() < end:
        time.sleep(0.01)
    assert left == []


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_talk_may_close_what_it_was_given(cell: Cell) -> None:
    """Descriptors that `talk` closed, and whose numbers somebody else has by now, are left alone."""

    def talk(reading: int, writing: int) -> tuple[bytes, list[int]]:
        with os.fdopen(reading, "rb") as heard, os.fdopen(writing, "wb", 0) as said_to:
            said_to.write(b"x\n")
            said_to.close()
            words = heard.read()
        return words, [os.open("/dev/null", os.O_RDONLY) for _ in range(2)]

    def act() -> tuple[bytes, int]:
        (words, strangers), _ = converse_confined(Command(("cat",), cell.view.path, ENV, 9000), cell.view, PLAIN, talk)
        for fd in strangers:
            os.close(fd)  # OSError if it was closed for us
        return words, len(strangers)

    assert cell.act(act) == (b"x\n", 2)


def one_of_each(cell: Cell, number: int) -> None:
    """All ways in which a conversation ends, one after another."""

    def quick(reading: int, writing: int) -> bytes:
        os.write(writing, b"a\n")
        return os.read(reading, 9)

    def fails(reading: int, writing: int) -> None:
        raise InvalidInput("x")

    command = Command(shell(PARROT), cell.view.path, ENV, 9000)
    way = number % 5
    if way == 0:
        assert converse_confined(command, cell.view, PLAIN, quick)[0] == b"aa\n"
    elif way == 1:
        with pytest.raises(InvalidInput):
            converse_confined(command, cell.view, PLAIN, fails)
    elif way == 2:
        with pytest.raises(InvalidInput):
            converse_confined(command._replace(argv=("no-such",)), cell.view, PLAIN, quick)
    elif way == 3:
        ran = converse_confined(command, cell.view, PLAIN, lambda r, _: everything(r), stop=lambda: "budget")
        assert ran[1].limit == "budget"
    else:
        short = command._replace(argv=("true",))
        assert converse_confined(short, cell.view, PLAIN, lambda r, _: everything(r))[0] == b""


@pytest.mark.serial
@pytest.mark.long
def test_fifty_conversations_leave_nothing(cell: Cell) -> None:
    """However each of them ended: no descriptor, thread, process or mount more than before."""

    def state() -> tuple[object, ...]:
        gc.collect()
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        return mounts(cell.place), sorted(os.listdir("/proc/self/fd")), threading.active_count(), children

    def act() -> tuple[object, object]:
        one_of_each(cell, 0)
        before = state()
        for number in range(50):
            one_of_each(cell, number)
        return before, state()

    before, after = cell.act(act)
    assert after == before


def test_conversations_at_the_same_time_do_not_mix(cell: Cell) -> None:
    """Several threads, each with its own program: everyone hears his own, and sees its end."""

    def talk_of(number: int) -> Callable[[int, int], bytes]:
        def talk(reading: int, writing: int) -> bytes:
            os.write(writing, b"%d\n" % number)
            return os.read(reading, 99)

        return talk

    view = cell.view._replace(layers=())  # read alone by these programs

    def act() -> list[bytes]:
        heard: list[bytes] = [b""] * 6

        def one(number: int) -> None:
            heard[number] = converse_confined(
                Command(shell(PARROT), view.path, ENV, 20_000), view, PLAIN, talk_of(number)
            )[0]

        threads = [threading.Thread(target=one, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return heard

    assert cell.act(act) == [b"%d%d\n" % (number, number) for number in range(6)]


def all_below(pid: int, count: int, but: frozenset[int] = frozenset()) -> list[int]:
    """Everything that came from a process since those were there, once there are so many of them."""
    end = time.monotonic() + 5
    while len(family := [each for each in descendants(pid, 0) if each not in but]) < count and time.monotonic() < end:
        time.sleep(0.01)
    return family


@pytest.mark.root
def test_nothing_of_our_environment_reaches_any_process_of_a_run(
    cell: Cell, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the program nor a helper in front of it carries a variable of ours, whoever looks from outside."""
    secret = "sk-of-the-person-at-the-terminal"
    monkeypatch.setenv("HOLDFAST_TEST_API_KEY", secret)
    told, telling = os.pipe()
    seen: dict[int, bytes] = {}
    others = frozenset(descendants(os.getpid(), 0))  # a server that other tests share

    def look() -> None:  # as whoever runs the tests: root may look at everybody
        for pid in map(int, os.read(told, 999).split()):
            seen[pid] = Path(f"/proc/{pid}/environ").read_bytes()

    def talk(reading: int, writing: int) -> None:
        os.read(reading, 1)
        # bubblewrap, the first process inside, the shell and what it runs
        os.write(telling, b" ".join(b"%d" % pid for pid in all_below(os.getpid(), 4, others)))
        everything(reading)

    looking = threading.Thread(target=look)
    looking.start()
    _, ran = converse(cell, shell("echo x; sleep 1; true"), talk)
    looking.join()
    os.close(told)
    os.close(telling)
    assert ran.succeeded
    assert len(seen) == 4
    names = {entry.partition(b"=")[0] for text in seen.values() for entry in text.split(b"\0") if entry}
    known = b"PATH HOME TMPDIR PWD OLDPWD SHLVL _ HOLDFAST_RUN LC_ALL"  # the last: the helpers', which says C
    assert names <= set(known.split())
    assert not any(secret.encode() in text for text in seen.values())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_output_comes_line_by_line(size: int) -> None:
    """However it is cut into pieces, the lines are the same; the last one needs no end."""
    text = b"one\n\ntwo\r\n" + b"x" * 25 + b"\nlast"
    heard: list[bytes] = []
    lines = Lines(heard.append, most=10)
    for start in range(0, len(text), size):
        lines(text[start : start + size])
    lines.end()
    lines.end()
    assert heard == [b"one", b"", b"two\r", b"x" * 10, b"x" * 10, b"x" * 5, b"last"]
