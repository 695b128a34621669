"""The files of a run: every event reads back, nothing leaks, a full disk stops nothing and hides nothing."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.disk.confined import Root
from holdfast.engine.event_rows import event_from
from holdfast.engine.pulse import FILE, SILENT_NS, Pulse, read_pulse, write_pulse
from holdfast.engine.run_log import LONGEST_TASK_LOG, RunLog, executor_log, task_log, this_process
from holdfast.model.agent import Asked, Began, Said, Spent, Usage, Used
from holdfast.model.run import (
    EVENTS,
    AgentSeen,
    ChecksTried,
    DatabaseBack,
    DatabaseGone,
    Heartbeat,
    RunEvent,
    RunFinished,
    RunRecord,
    RunStarted,
    TaskCompleted,
    TaskFailed,
    TaskMoved,
    TaskStarted,
)
from holdfast.model.task import Roadmap, Task, TaskRecord
from holdfast.sandbox.daemon import identity_of
from holdfast.store.exports import RESULTS
from holdfast.store.line_log import LineLog
from holdfast.testing import Fail, FaultyCalls

SECOND = 10**9
USAGE = Usage(3, 100, 50, 1200)
OF_TASK: list[RunEvent] = [
    TaskStarted("u-1", "t-1", 1, "claude"),
    TaskMoved("u-1", "t-1", "VALIDATING", "it is good"),
    AgentSeen("u-1", "t-1", Began("claude", 1)),
    AgentSeen("u-1", "t-1", Said("I will")),
    AgentSeen("u-1", "t-1", Used("c1", "edit", "done", ("a.py",))),
    AgentSeen("u-1", "t-1", Asked("rm", "denied")),
    AgentSeen("u-1", "t-1", Spent(USAGE)),
    TaskFailed("u-1", "t-1", 1, "test", "1 failed", "retry"),
    TaskCompleted("u-1", "t-1", "e-1", "abc", 2, 3),
]
ALL: list[RunEvent] = [
    RunStarted("u-1", "ROADMAP.md", 3, 2),
    ChecksTried("u-1", ("pytest collects 3 tests in 1.2 s",)),
    *OF_TASK,
    Heartbeat("u-1", 1, 1, USAGE, 5000),
    DatabaseGone("u-1", 1, 2, "the engine's database does not answer"),
    DatabaseBack("u-1", 5),
    RunFinished("u-1", "FINISHED", 3, 0, 0, 0, USAGE),
]
HOSTILE = json.loads((Path(__file__).parents[1] / "store" / "hostile_names.json").read_text())


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Root]:
    place = tmp_path / "state"
    place.mkdir()
    with Root(str(place)) as root:
        yield root


class Told:
    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str) -> None:
        self.texts.append(text)


def events_in(log: LineLog) -> list[RunEvent | None]:
    return [event_from(row) for row in log.rows()]


def test_every_event_is_logged_and_reads_back(state: Root) -> None:
    """The executor's log has all events but what agents do, the task's log has everything of the task, in order."""
    told = Told()
    log = RunLog(state, told)
    for event in ALL:
        log(event)
    assert {event.event for event in ALL} == set(EVENTS)
    assert events_in(executor_log(state)) == [event for event in ALL if event.event != "AGENT"]
    assert events_in(task_log(state, "t-1")) == OF_TASK
    assert (told.texts, log.lost) == ([], 0)


def test_a_line_says_when_and_what(state: Root, tmp_path: Path) -> None:
    """A line is one flat JSON object with version, time, kind and the fields of the event."""
    RunLog(state, Told(), lambda: 42)(OF_TASK[0])
    text = (tmp_path / "state/logs/executor.jsonl").read_text()
    assert json.loads(text) == {
        "version": 1, "at_ns": 42, "kind": "TASK_STARTED", "run": "u-1", "task": "t-1", "attempt": 1, "agent": "claude",
    }  # fmt: skip


SECRETS = [
    "ghp_" + "a1B2" * 9,
    "sk-ant-" + "x9Y8" * 10,
    "AKIA" + "ABCD" * 4,
    "https://me:hunter2@example.invalid/?token=hunter2",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_secrets_are_masked_wherever_they_stand(secret: str, state: Root, tmp_path: Path) -> None:
    """Tokens and passwords in reasons, titles, paths and what an agent says are in no file, near the cut neither."""
    log = RunLog(state, Told())
    task, long = Task("t-1", f"Use {secret}"), "word " * 395
    log(TaskFailed("u-1", "t-1", 1, "test", f"it says {secret} there", "retry"))
    log(RunFinished("u-1", "STOPPED", 0, 0, 0, 1, USAGE, because=secret))
    for text in (secret, f"{long}{secret} {long}", f"{long}{long}{secret}"):
        log(AgentSeen("u-1", "t-1", Said(text)))
        log(AgentSeen("u-1", "t-1", Used("c1", text, "begun", (text,))))
        log(AgentSeen("u-1", "t-1", Asked(text, "denied")))
        log(AgentSeen("u-1", "t-1", Began("claude", 2, text)))
    record = TaskRecord("u-1", "t-1", "FAILED", because=f"no: {secret}")
    log.settled(RunRecord("u-1", "R.md", because=secret), Roadmap("roadmap", "", (), (task,)), {"t-1": record})
    files = [path for path in (tmp_path / "state").rglob("*") if path.is_file()]
    assert len(files) == 5
    telling = secret.partition("://")[2][3:10] or secret[7:]
    assert [path.name for path in files if telling in path.read_text()] == []
    assert "word word" in (tmp_path / "state/logs/execution/t-1.jsonl").read_text()


@pytest.mark.parametrize("name", [name for name in HOSTILE if name], ids=ascii)
def test_a_hostile_task_stays_in_its_folder(name: str, state: Root, tmp_path: Path) -> None:
    """Whatever a task is called, its log is one plain file in logs/execution/, and tells the task's true name."""
    told = Told()
    log = RunLog(state, told)
    log(TaskMoved("u-1", name, "PENDING"))
    log(AgentSeen("u-1", name, Said("hello")))
    assert told.texts == []
    (made,) = (tmp_path / "state/logs/execution").iterdir()
    assert made.is_file() and made.name.isascii() and made.name.isprintable() and made.name.endswith(".jsonl")
    assert sorted(os.listdir(tmp_path / "state/logs")) == ["execution", "executor.jsonl"]
    assert os.listdir(tmp_path) == ["state"]
    assert len(events_in(task_log(state, name))) == 2


def test_a_chatty_agent_does_not_fill_the_disk(state: Root, tmp_path: Path) -> None:
    """The log of a task is put aside when it is long, and the newest lines are there."""
    place = tmp_path / "state/logs/execution"
    place.mkdir(parents=True)
    (place / "t-1.jsonl").write_bytes(b"x" * LONGEST_TASK_LOG + b"\n")
    log = RunLog(state, Told())
    for n in range(3):
        log(AgentSeen("u-1", "t-1", Said("x" * 100_000 + f" {n}")))
    assert (place / "t-1.jsonl.1").stat().st_size == LONGEST_TASK_LOG + 1
    assert (place / "t-1.jsonl").stat().st_size < 20_000
    assert len(events_in(task_log(state, "t-1"))) == 3


# ── a full disk ──


def test_a_full_disk_stops_nothing_and_hides_nothing(state: Root) -> None:
    """While nothing can be written, one warning; afterwards the log itself says how many lines are missing."""
    calls, told = FaultyCalls(counted={"write"}), Told()
    with Root(state.path, calls) as full:
        log = RunLog(full, told)
        log(ALL[0])
        calls.arm(Fail(1, errno.ENOSPC, lasting=True))
        for event in OF_TASK:
            log(event)
        log(Heartbeat("u-1", 1, 0, USAGE, 10))
        assert len(told.texts) == 1
        assert "No space left" in told.texts[0]
        lost = log.lost
        calls.disarm()
        log(Heartbeat("u-1", 1, 1, USAGE, 20))
        log(OF_TASK[-1])
        log(ALL[-1])
    of_executor, of_task = list(executor_log(state).rows()), list(task_log(state, "t-1").rows())
    assert [row["lines"] if row["kind"] == "LOST" else 0 for row in of_executor] == [0, 5, 0, 0, 0]
    assert [row["lines"] if row["kind"] == "LOST" else 0 for row in of_task] == [9, 0]
    assert lost == log.lost == 14
    assert told.texts[1:] == ["14 lines are missing in .holdfast/logs, because they could not be written"]
    pulse = read_pulse(state)
    assert pulse is not None and pulse.lost == 14


@pytest.mark.parametrize("number", range(1, 40))
def test_whatever_call_fails_the_run_goes_on(number: int, state: Root) -> None:
    """No error of any system call reaches the driver, and one that cost a line or a file was told."""
    calls, told = FaultyCalls(), Told()
    with Root(state.path, calls) as faulty:
        log = RunLog(faulty, told)
        calls.arm(Fail(number))
        log(ALL[0])
        log(TaskMoved("u-1", "t-1", "IN_PROGRESS"))
        hit = calls.count >= number
        calls.disarm()
    if hit:
        assert len(told.texts) == 1
    else:
        assert told.texts == [] and len(events_in(executor_log(state))) == 2


def test_an_end_that_could_not_be_written_is_told(state: Root, tmp_path: Path) -> None:
    """When the results do not say how the run ended, the person hears it at the end."""
    (tmp_path / "state" / RESULTS).mkdir()
    told = Told()
    log = RunLog(state, told)
    log.settled(RunRecord("u-1", "R.md", state="FINISHED"), Roadmap("roadmap", "", (), ()), {})
    log(ALL[-1])
    assert len(told.texts) == 2
    assert "does not say how the run ended" in told.texts[1]


# ── exports ──


def test_exports_follow_with_the_next_heartbeat(state: Root, tmp_path: Path) -> None:
    """What was put off because the files were just written stands in them when the heart has beaten."""
    log, records = RunLog(state, Told()), {"t": TaskRecord("u-1", "t", "IN_PROGRESS", 1)}
    run, roadmap = RunRecord("u-1", "R.md"), Roadmap("roadmap", "", (), (Task("t", "T"),))
    log.settled(run, roadmap, records)
    records["t"] = records["t"]._replace(state="VALIDATING")
    log.settled(run, roadmap, records)

    def told() -> Any:
        return json.loads((tmp_path / "state" / RESULTS).read_text())["tasks"][0]["state"]

    assert told() == "IN_PROGRESS"
    log._exports._due = 0.0  # a second later
    log(Heartbeat("u-1", 1, 0, USAGE, 5))
    assert told() == "VALIDATING"


# ── the heartbeat ──


def test_the_heartbeat_tells_of_a_living_run(state: Root) -> None:
    """From the start to the end another process can see who drives the run, since when, and how far it is."""
    now = SECOND
    log = RunLog(state, Told(), lambda: now)
    assert read_pulse(state) is None
    log(ALL[0])
    started = read_pulse(state)
    assert started == Pulse("u-1", "RUNNING", this_process(), SECOND, SECOND)
    assert started.life(now) == "alive"
    now = 6 * SECOND
    log(Heartbeat("u-1", 2, 1, USAGE, 5000))
    beating = read_pulse(state)
    assert beating == Pulse("u-1", "RUNNING", this_process(), SECOND, now, 2, 1, USAGE, 5000)
    assert beating.life(now + SILENT_NS) == "alive"
    assert [beating.worked_at(now + gone) for gone in (-SECOND, 0, 2 * SECOND)] == [5000, 5000, 7000]
    assert beating.life(now - 3600 * SECOND) == "alive"
    assert beating.life(now + SILENT_NS + 1) == "silent"
    log(RunFinished("u-1", "FINISHED", 3, 0, 0, 0, USAGE, landed=3, worked_ms=9000))
    ended = read_pulse(state)
    assert ended is not None
    assert (ended.state, ended.running, ended.life(now + 10**15)) == ("FINISHED", 0, "ended")
    assert (ended.landed, ended.worked_ms) == (3, 9000)


def test_a_heartbeat_without_a_price_reads_back(state: Root) -> None:
    """Usage with an unknown price stays unknown."""
    pulse = Pulse("u-1", "RUNNING", this_process(), 1, 2, usage=Usage(1, 2, 3, None))
    write_pulse(state, pulse)
    assert read_pulse(state) == pulse


def test_a_killed_run_is_gone(state: Root) -> None:
    """After SIGKILL the heartbeat says RUNNING, and its process is known to be gone, also when its pid is reused."""
    sleeper = subprocess.Popen(["sleep", "60"])
    process = identity_of(sleeper.pid)
    assert process is not None
    write_pulse(state, Pulse("u-1", "RUNNING", process, 1, 2))
    alive = read_pulse(state)
    assert alive is not None and alive.life(3) == "alive"
    sleeper.send_signal(signal.SIGKILL)
    sleeper.wait()
    assert alive.life(3) == "gone"
    reused = alive._replace(process=this_process()._replace(started=1))
    assert reused.life(3) == "gone"


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"version": 2}', '{"version": 1, "state": "RUNNING"}', "[" * 50_000]
    + [
        '{"version":1,"run":"u","state":"RUNNING","pid":1,"started":1,"boot":"b","since_ns":1,"at_ns":1,' + rest
        for rest in (
            '"usage":7}',
            '"usage":{"requests":1}}',
            '"usage":{"micro_usd":"1"}}',
            '"usage":{"micro_usd":1},"lost":"1"}',
            '"usage":{"micro_usd":1},"more":1}',
        )
    ],
)
def test_a_damaged_heartbeat_is_none(text: str, state: Root, tmp_path: Path) -> None:
    """What is no heartbeat of ours is none, and never an error or a guess."""
    (tmp_path / "state/logs").mkdir()
    (tmp_path / "state" / FILE).write_text(text)
    assert read_pulse(state) is None


# ── others at the same time, and kills ──


def test_events_of_several_threads_are_all_there(state: Root) -> None:
    """Agents that work at the same time, each seen from its own thread, lose no line, and times only grow."""
    ticks = iter(range(10**9))

    def clock() -> int:
        now = next(ticks)
        time.sleep(0.0005)  # others would overtake here
        return now

    log = RunLog(state, Told(), clock)

    def work(task: str) -> None:
        for n in range(20):
            log(AgentSeen("u-1", task, Said(str(n))))
            log(TaskMoved("u-1", task, "PENDING", str(n)))

    threads = [threading.Thread(target=work, args=(f"t-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(events_in(executor_log(state))) == 80
    assert [len(events_in(task_log(state, f"t-{n}"))) for n in range(4)] == [40] * 4
    times = [int(str(row["at_ns"])) for row in executor_log(state).rows()]
    assert times == sorted(times)


WRITER = """
import sys
from holdfast.disk.confined import Root
from holdfast.engine.run_log import RunLog
from holdfast.model.agent import Said, Usage
from holdfast.model.run import AgentSeen, Heartbeat, RunRecord, RunStarted
from holdfast.model.task import Roadmap, Task, TaskRecord
log, n = RunLog(Root(sys.argv[1]), print), 0
roadmap = Roadmap("roadmap", "", (), tuple(Task(f"t-{n}", "x" * 150) for n in range(200)))
log(RunStarted("u-1", "R.md", 200, 200))
while True:
    n += 1
    log(AgentSeen("u-1", "t-1", Said(f"{n} " + "x" * (n % 900))))
    log(Heartbeat("u-1", 1, n, Usage(), n))
    log._exports._due = 0.0
    log.settled(RunRecord("u-1", "R.md"), roadmap, {"t-1": TaskRecord("u-1", "t-1", "IN_PROGRESS", n)})
    if n == 2:
        print("ready", flush=True)
"""


def test_kill_while_writing_leaves_everything_readable(state: Root, tmp_path: Path) -> None:
    """Runs killed at random moments leave whole lines, heartbeats and results, and the next one goes on from there."""
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, state.path], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            writer.wait(0.15)
        writer.send_signal(signal.SIGKILL)
        assert writer.communicate()[0] == ""
        pulse = read_pulse(state)
        assert pulse is not None and pulse.life(pulse.at_ns) == "gone" and pulse.process.pid == writer.pid
        results = json.loads((tmp_path / "state" / RESULTS).read_text())
        assert results["totals"]["tasks"] == 200 and results["tasks"][1]["attempts"] > 0
    assert None not in events_in(executor_log(state))
    said = events_in(task_log(state, "t-1"))
    assert None not in said and len(said) >= 10
    names = {path.name for path in (tmp_path / "state").rglob("*")}
    assert names - {".heartbeat.json.new", f".{RESULTS}.new", ".R.md.json.new"} == {
        "logs", "execution", "t-1.jsonl", "executor.jsonl", "heartbeat.json", RESULTS, "roadmaps", "R.md.json",
    }  # fmt: skip
