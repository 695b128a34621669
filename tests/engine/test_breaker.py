"""The breaker: one table of moves, one probe at a time over all processes, and state that a kill does not lose."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.agents.protocol import Health
from holdfast.disk.confined import Root
from holdfast.engine.breaker import (
    TRANSITIONS,
    TUNING,
    Breakers,
    Event,
    Granted,
    Ticket,
    Tuning,
    Waits,
    _moved,
    is_ready,
    pause_ns,
    verdict_of,
)
from holdfast.engine.escalation import (
    AcceptanceFailed,
    AdapterCrashed,
    BreakerOpened,
    Escalation,
    TimedOut,
    acceptance_escalation,
    sentence_of,
)
from holdfast.engine.past import Outcome, outcome_of
from holdfast.engine.safe_mode import NoneUsable, Unconfined, safe_mode
from holdfast.errors import HoldfastError, Tampering
from holdfast.model.agent import Attempt, Claim, Delegation, Ending, Result, Usage
from holdfast.store.adapters import BREAKER_STATES, Adapter, Adapters
from holdfast.store.database import Records
from holdfast.store.resilience import FILE, FOLDER, LONGEST, ResilienceLog

BAD = Outcome("t", "failed", False, detail="exit 1")
GOOD = Outcome("t", "finished", True)
SECOND = 10**9


class Clock:
    def __init__(self) -> None:
        self.now = 1_000 * SECOND

    def __call__(self) -> int:
        return self.now


class Bank:
    """Breakers over a real database in a directory of their own."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.clock = Clock()
        self.open()

    def open(self) -> None:
        self.records = Records(str(self.place))
        self.root = Root(str(self.place))
        self.adapters = Adapters(self.records)
        self.breakers = Breakers(self.adapters, ResilienceLog(self.root), self.clock)

    def close(self) -> None:
        self.records.close()
        self.root.close()

    def granted(self, name: str = "a") -> Ticket:
        admission = self.breakers.admit(name)
        assert isinstance(admission, Granted), admission
        return admission.ticket

    def waits(self, name: str = "a") -> Waits:
        admission = self.breakers.admit(name)
        assert isinstance(admission, Waits), admission
        return admission

    def opened(self, name: str = "a") -> None:
        for _ in range(TUNING.threshold):
            self.breakers.report(self.granted(name), BAD)
        assert self.adapters.get(name).state == "OPEN"

    def lines(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.place / FOLDER / FILE).read_text().splitlines()]


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    made = Bank(tmp_path)
    yield made
    made.close()


# ── the table ──


def test_the_table_says_every_move_and_no_other() -> None:
    """Each state and event has the one successor of the table, or cannot meet at all."""
    for state in BREAKER_STATES:
        for event in get_args(Event):
            row = Adapter("a", state=state, opened_ns=1, unwell_ns=1)
            if (state, event) in TRANSITIONS:
                assert _moved(row, event, 5)[0].state == TRANSITIONS[state, event]
            else:
                with pytest.raises(AssertionError):
                    _moved(row, event, 5)
    assert len(TRANSITIONS) == 10


@pytest.mark.parametrize(
    ("ending", "limit", "verdict"),
    [
        ("finished", "", "success"),
        ("failed", "", "failure"),
        ("unauthorized", "", "last_failure"),
        ("model_error", "", "failure"),
        ("killed", "", "failure"),
        ("limit", "time", "failure"),
        ("limit", "memory", "nothing"),
        ("limit", "usd", "nothing"),
    ],
)
def test_what_an_ending_says_about_the_adapter(ending: Ending, limit: str, verdict: Event) -> None:
    """Failures of the adapter count; bad work and limits of the task do not; running out of time does."""
    assert verdict_of(Outcome("t", ending, False, limit)) == verdict


# ── one process ──


def test_three_failures_in_a_row_open_it(bank: Bank) -> None:
    """Two failures do not, a success between them starts the count anew, the third in a row does."""
    for outcome in (BAD, BAD, GOOD, BAD, BAD):
        bank.breakers.report(bank.granted(), outcome)
    assert bank.adapters.get("a").state == "CLOSED"
    assert bank.breakers.report(bank.granted(), BAD) == (BreakerOpened("a", 3, 1, "exit 1"),)
    waits = bank.waits()
    assert waits.until_ns == bank.clock.now + 30 * SECOND
    assert "a failed 3 times in a row" in waits.why


def test_what_failed_once_did_not_fail_in_a_row() -> None:
    """A breaker that was tried again, or was told that nobody is let in, opens after one failure."""
    assert sentence_of(BreakerOpened("a", 1, 2, "exit 1")) == "a failed once and is left alone for a while"
    assert sentence_of(BreakerOpened("a", 3, 1, "exit 1")) == "a failed 3 times in a row and is left alone for a while"


def test_bad_work_that_finished_opens_nothing(bank: Bank) -> None:
    """An agent whose work never passes is the router's business: its breaker stays closed."""
    for _ in range(20):
        bank.breakers.report(bank.granted(), Outcome("t", "finished", False))
    row = bank.adapters.get("a")
    assert (row.state, row.attempts, row.successes) == ("CLOSED", 20, 0)


def test_a_wrong_key_opens_it_at_once(bank: Bank) -> None:
    """Unauthorized is never tried again with the same key."""
    bank.breakers.report(bank.granted(), Outcome("t", "unauthorized", False))
    assert bank.adapters.get("a").state == "OPEN"


def test_breakers_of_two_agents_know_nothing_of_each_other(bank: Bank) -> None:
    """One agent's failures leave the other alone."""
    bank.opened("a")
    bank.granted("b")
    assert [row.name for row in bank.adapters.all()] == ["a", "b"]


def test_after_the_pause_one_attempt_is_let_through(bank: Bank) -> None:
    """Before the pause is over nobody; then one; then nobody until that one has ended; a success closes."""
    bank.opened()
    bank.clock.now += 30 * SECOND - 1
    bank.waits()
    bank.clock.now += 1
    probe = bank.granted()
    assert probe.probe
    assert bank.waits().until_ns == 0
    bank.clock.now += 10**6 * SECOND
    assert bank.waits().until_ns == 0, "a probe is not judged by its age"
    bank.breakers.report(probe, GOOD)
    assert bank.adapters.get("a")[:7] == ("a", "CLOSED", 0, 0, 0, 0, "")
    assert bank.granted().probe == ""


def test_pauses_double_up_to_a_bound(bank: Bank) -> None:
    """Each failed probe doubles the pause: 30 s, 1 min, … and never more than 15 min."""
    bank.opened()
    pauses = []
    for _ in range(8):
        until = bank.waits().until_ns
        pauses.append((until - bank.clock.now) // SECOND)
        bank.clock.now = until
        bank.breakers.report(bank.granted(), BAD)
    assert pauses == [30, 60, 120, 240, 480, 900, 900, 900]
    assert pause_ns(10**9, TUNING) == 900 * SECOND


def test_an_attempt_that_ends_late_moves_nothing(bank: Bank) -> None:
    """Attempts that began before the breaker opened end after it: they count, and the state stays."""
    early, also_early = bank.granted(), bank.granted()
    bank.opened()
    assert bank.breakers.report(early, GOOD) == ()
    assert bank.adapters.get("a").state == "OPEN"
    bank.clock.now += 30 * SECOND
    probe = bank.granted()
    bank.breakers.report(also_early, BAD)
    assert bank.adapters.get("a").state == "HALF_OPEN"
    bank.breakers.report(probe, GOOD)
    assert bank.adapters.get("a").attempts == 6


def test_a_probe_given_back_says_nothing(bank: Bank) -> None:
    """An interrupted probe is no evidence: not counted, and the next one may begin at once."""
    bank.opened()
    bank.clock.now += 30 * SECOND
    bank.breakers.give_back(bank.granted())
    row = bank.adapters.get("a")
    assert (row.state, row.openings, row.attempts) == ("OPEN", 1, 3)
    assert bank.granted().probe


def test_a_probe_that_hit_a_limit_says_nothing_and_is_counted(bank: Bank) -> None:
    """A probe on too large a task neither closes nor re-opens, and nobody is called for it."""
    bank.opened()
    bank.clock.now += 30 * SECOND
    assert bank.breakers.report(bank.granted(), Outcome("t", "limit", False, "usd")) == ()
    row = bank.adapters.get("a")
    assert (row.state, row.openings, row.attempts) == ("OPEN", 1, 4)


def test_a_clock_set_back_costs_one_pause(bank: Bank) -> None:
    """A breaker that opened in what is now the future is tried after one pause, not after years."""
    bank.opened()
    bank.clock.now -= 500 * SECOND
    assert bank.waits().until_ns == bank.clock.now + 30 * SECOND
    bank.clock.now += 30 * SECOND
    assert bank.granted().probe


def test_what_is_reported_is_in_the_row(bank: Bank) -> None:
    """Attempts, successes, money and time add up; a run without a price adds none."""
    usage = Usage(requests=2, micro_usd=150)
    result = Result("a", "acp", "finished", Claim(), duration_ms=70, usage=usage)
    bank.breakers.report(bank.granted(), outcome_of("t", result, good=True))
    bank.breakers.report(bank.granted(), outcome_of("t", result._replace(usage=Usage()), good=False))
    row = bank.adapters.get("a")
    assert (row.attempts, row.successes, row.micro_usd, row.priced, row.duration_ms) == (2, 1, 150, 1, 140)


# ── the log and the escalations ──


def test_every_move_and_escalation_is_a_line(bank: Bank) -> None:
    """The log tells opening, trying and closing in order, each line with version, time and kind."""
    bank.opened()
    bank.clock.now += 30 * SECOND
    bank.breakers.report(bank.granted(), GOOD)
    lines = bank.lines()
    told = [(line["kind"], line.get("from"), line.get("event"), line.get("to")) for line in lines]
    assert told == [
        ("breaker", "CLOSED", "last_failure", "OPEN"),
        ("breaker_opened", None, None, None),
        ("breaker", "OPEN", "cooled", "HALF_OPEN"),
        ("breaker", "HALF_OPEN", "probe_success", "CLOSED"),
    ]
    assert all(line["version"] == 1 and isinstance(line["at_ns"], int) for line in lines)
    assert (bank.place / FOLDER / FILE).stat().st_mode & 0o777 == 0o600


def test_a_line_is_bounded_and_shows_no_password(bank: Bank) -> None:
    """What an agent made us say is cut, URLs in it are masked, and half characters do not break the line."""
    detail = "https://me:hunter2@example.invalid/ \udc80\ud800\n" + "x" * 10_000
    bank.breakers.report(bank.granted(), Outcome("t", "unauthorized", False, detail=detail))
    text = (bank.place / FOLDER / FILE).read_text()
    assert "hunter2" not in text
    assert len(text) < 2000
    assert len(bank.lines()) == 2


def test_a_long_log_is_put_aside(tmp_path: Path) -> None:
    """The log does not grow for ever: at its limit it is renamed, and a fresh one begins."""
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / FILE).write_bytes(b"x" * (LONGEST + 1))
    with Root(str(tmp_path)) as root:
        ResilienceLog(root).append(1, "breaker", {})
    assert (tmp_path / FOLDER / f"{FILE}.1").stat().st_size == LONGEST + 1
    assert json.loads((tmp_path / FOLDER / FILE).read_text())["kind"] == "breaker"


def test_the_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    """A planted link in place of the log is refused, and what it points to stays as it was."""
    outside = tmp_path / "outside"
    outside.write_text("mine")
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / FILE).symlink_to(outside)
    with Root(str(tmp_path)) as root, pytest.raises(OSError):
        ResilienceLog(root).append(1, "breaker", {})
    assert outside.read_text() == "mine"


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        (GOOD, ()),
        (BAD, ()),
        (Outcome("t", "limit", False, "time", duration_ms=9000), (TimedOut("a", "t", 9000),)),
        (Outcome("t", "limit", False, "memory"), ()),
        (Outcome("t", "killed", False, detail="signal 11", crashed=True), (AdapterCrashed("a", "t", "signal 11"),)),
        (Outcome("t", "unauthorized", False, detail="401"), (BreakerOpened("a", 1, 1, "401"),)),
    ],
)
def test_what_is_escalated(bank: Bank, outcome: Outcome, expected: tuple[Escalation, ...]) -> None:
    """A time-out, a crash and an opening are told; everything is also a line in the log and a sentence."""
    found = bank.breakers.report(bank.granted(), outcome)
    assert found == expected
    if expected:
        assert [line["kind"] for line in bank.lines()][-len(expected) :] == [item.kind for item in expected]
    assert all(sentence_of(item).startswith("a ") for item in found)


def test_a_program_that_died_by_a_signal_has_crashed() -> None:
    """A crash is what we saw of the process, not what the agent says."""
    died = Result("a", "acp", "failed", Claim(success=True), signal=signal.SIGSEGV)
    assert outcome_of("t", died, good=False).crashed
    assert not outcome_of("t", died._replace(signal=None, exit_code=1), good=False).crashed
    assert outcome_of("t", died._replace(ending="killed", signal=None), good=False).crashed


def _delegation(*endings: str) -> Delegation:
    """f: finished and failed its checks, g: finished and good, x: did not finish."""
    attempts = tuple(
        Attempt(
            number + 1,
            Result("a", "acp", "failed" if ending == "x" else "finished", Claim()),
            ("f",),
            evidence="" if ending == "g" else "tests failed",
        )
        for number, ending in enumerate(endings)
    )
    return Delegation("a", "t", attempts)


@pytest.mark.parametrize(("endings", "times"), [("", 0), ("ff", 0), ("fff", 3), ("xffff", 4), ("fffx", 0), ("ffg", 0)])
def test_acceptance_that_fails_again_and_again_is_escalated(endings: str, times: int) -> None:
    """From the third finished attempt in a row that did not pass, a person is told."""
    expected = AcceptanceFailed("a", "t", times) if times else None
    assert acceptance_escalation(_delegation(*endings)) == expected


# ── safe mode ──

OK, GONE = Health(True, True), Health(False, False, why_not="not installed")


def _open_row(name: str, opened: int, unwell: int, openings: int = 1) -> Adapter:
    return Adapter(name, "OPEN", 3, openings, opened, unwell)


def test_no_reason_no_safe_mode() -> None:
    """With one usable agent and a sandbox, work may begin, whatever becomes of the others."""
    rows = [_open_row("b", 100 * SECOND, 100 * SECOND)]
    assert safe_mode({"a": OK, "b": OK, "c": GONE}, rows, 101 * SECOND) is None


def test_no_usable_agent_is_safe_mode() -> None:
    """Not installed or left alone: when that is all of them, nothing is started, and each reason is told."""
    rows = [_open_row("b", 100 * SECOND, 100 * SECOND)]
    found = safe_mode({"b": OK, "c": GONE}, rows, 101 * SECOND)
    assert found is not None
    assert found.reasons == (NoneUsable((("b", "its breaker is open"), ("c", "not installed"))),)
    assert found.sentences == ("no agent can be used (b: its breaker is open; c: not installed)",)


def test_no_agents_at_all_is_safe_mode() -> None:
    """Nobody is not everybody healthy."""
    found = safe_mode({}, [], 0)
    assert found is not None
    assert found.sentences == ("there is no agent",)


def test_no_sandbox_is_safe_mode() -> None:
    """Where programs cannot be confined nothing is started, however healthy the agents are."""
    found = safe_mode({"a": OK}, [], 0, unconfined_because="no user namespaces")
    assert found is not None
    assert found.reasons == (Unconfined("no user namespaces"),)


def test_the_way_out_of_safe_mode_is_told() -> None:
    """For each reason: who may be tried again at once, and where to look for the rest."""
    found = safe_mode({"b": OK, "c": GONE}, [_open_row("b", 100, 100)], 101, unconfined_because="no user namespaces")
    assert found is not None
    confine, agents = found.ways_out
    assert "holdfast doctor" in confine
    assert "Install or configure" in agents and "holdfast agents --again b" in agents


def test_rows_of_agents_that_are_gone_are_history() -> None:
    """A breaker of somebody who is no longer configured keeps nobody from working."""
    assert safe_mode({"a": OK}, [_open_row("b", 100, 100)], 101) is None


def test_one_agent_that_is_ill_for_long_is_no_safe_mode() -> None:
    """The others may work, however long it lasts."""
    row = _open_row("b", 10**15, 1, openings=6)
    assert safe_mode({"a": OK, "b": OK}, [row], 10**15 + 1) is None


def test_safe_mode_ends_by_itself_for_the_only_agent(bank: Bank) -> None:
    """When the only agent's pause is over, safe mode is too, and the probe that closes the breaker can be made."""
    bank.opened()
    assert safe_mode({"a": OK}, bank.adapters.all(), bank.clock.now) is not None
    bank.clock.now += 30 * SECOND
    assert safe_mode({"a": OK}, bank.adapters.all(), bank.clock.now) is None
    bank.breakers.report(bank.granted(), GOOD)


# ── a person vouches ──


def test_a_person_ends_a_pause_and_the_next_attempt_is_the_probe(bank: Bank) -> None:
    """It is let through at once and alone; when it fails the pause is longer, when it succeeds all is well."""
    bank.opened()
    assert isinstance(bank.breakers.admit("a"), Waits)
    assert bank.breakers.vouch("a") is True
    assert safe_mode({"a": OK}, bank.adapters.all(), bank.clock.now) is None
    ticket = bank.granted()
    assert ticket.probe
    bank.breakers.report(ticket, BAD)
    row = bank.adapters.get("a")
    assert (row.state, row.openings) == ("OPEN", 2)
    assert bank.breakers.vouch("a") is True
    bank.breakers.report(bank.granted(), GOOD)
    assert bank.adapters.get("a").state == "CLOSED"


def test_there_is_nothing_to_vouch_for_where_no_pause_is_running(bank: Bank) -> None:
    """Closed, over by itself, being tried: nothing moves, and the row stays as it was."""
    assert bank.breakers.vouch("a") is False
    bank.opened()
    bank.clock.now += 30 * SECOND
    before = bank.adapters.get("a")
    assert bank.breakers.vouch("a") is False
    assert bank.adapters.get("a") == before
    bank.granted()
    assert bank.breakers.vouch("a") is False
    assert bank.adapters.get("a").state == "HALF_OPEN"


# ── other processes, and kills ──

PROGRAM = """
import sys, time
from holdfast.disk.confined import Root
from holdfast.engine.breaker import Breakers, Granted
from holdfast.store.adapters import Adapters
from holdfast.store.database import Records
from holdfast.store.resilience import ResilienceLog
place, now = sys.argv[1], int(sys.argv[2])
records = Records(place)
breakers = Breakers(Adapters(records), ResilienceLog(Root(place)), lambda: now)
print("ready", flush=True)
sys.stdin.readline()
print(breakers.admit("a").kind, flush=True)
sys.stdin.readline()
"""


def _other(bank: Bank) -> subprocess.Popen[str]:
    started = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(bank.place), str(bank.clock.now)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert _line(started) == "ready"
    return started


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_of_several_processes_at_once_one_gets_the_probe(bank: Bank) -> None:
    """Four processes ask at the same moment: one is let through, three wait."""
    bank.opened()
    bank.clock.now += 30 * SECOND
    others = [_other(bank) for _ in range(4)]
    try:
        for other in others:
            _go(other)
        assert sorted(_line(other) for other in others) == ["granted", "waits", "waits", "waits"]
        assert isinstance(bank.breakers.admit("a"), Waits)
    finally:
        for other in others:
            _kill(other)


def test_a_killed_probe_is_lost_and_not_waited_for(bank: Bank) -> None:
    """While the probing process lives, others wait; once it was killed, the breaker opens again for a longer pause."""
    bank.opened()
    bank.clock.now += 30 * SECOND
    other = _other(bank)
    try:
        _go(other)
        assert _line(other) == "granted"
        assert bank.waits().until_ns == 0
        assert not is_ready(bank.adapters.get("a"), bank.clock.now)
    finally:
        _kill(other)
    assert is_ready(bank.adapters.get("a"), bank.clock.now)
    assert bank.waits().until_ns == bank.clock.now + 60 * SECOND
    assert bank.adapters.get("a").state == "OPEN"
    assert bank.lines()[-1]["event"] == "probe_lost"


def test_what_was_reported_survives_a_kill(tmp_path: Path) -> None:
    """A process that reports and is killed without closing anything has left a row that others read."""
    program = PROGRAM.partition("print(")[0] + (
        "from holdfast.engine.past import Outcome\nimport os, signal\n"
        "for _ in range(3):\n"
        "    breakers.report(breakers.admit('a').ticket, Outcome('t', 'failed', False, duration_ms=7))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path), "5"], check=False)
    assert done.returncode == -signal.SIGKILL
    records = Records(str(tmp_path))
    row = Adapters(records).get("a")
    records.close()
    assert (row.state, row.failures, row.attempts, row.duration_ms, row.opened_ns) == ("OPEN", 3, 3, 21, 5)


def test_a_change_that_raises_leaves_the_row(bank: Bank) -> None:
    """A change is whole or not at all, and the table is usable afterwards."""
    bank.breakers.report(bank.granted(), BAD)
    before = bank.adapters.get("a")

    def fail(row: Adapter) -> tuple[Adapter, None]:
        raise HoldfastError("no")

    with pytest.raises(HoldfastError):
        bank.adapters.change("a", fail)
    assert bank.adapters.get("a") == before
    bank.granted()


@pytest.mark.parametrize(
    "damage",
    ["state='SHUT'", "failures=-1", "attempts='many'", "successes=5", "probe=x'07'", "recent_attempts=-0.5"],
)
def test_a_row_that_cannot_be_true_is_tampering(bank: Bank, damage: str) -> None:
    """A damaged row never reads as a closed breaker: exit status 12, and what to do."""
    bank.breakers.report(bank.granted(), BAD)
    with sqlite3.connect(bank.place / "holdfast.db") as db:
        db.execute(f"UPDATE adapters SET {damage}")
    db.close()
    for ask in (lambda: bank.breakers.admit("a"), bank.adapters.all, lambda: bank.adapters.get("a")):
        with pytest.raises(Tampering) as caught:
            ask()
        assert caught.value.exit_status == 12


def test_a_look_makes_no_table(tmp_path: Path) -> None:
    """Reading works on a database that nobody may write, and finds nothing where nothing is."""
    Records(str(tmp_path)).close()
    records = Records(str(tmp_path), read_only=True)
    adapters = Adapters(records)
    assert adapters.all() == ()
    assert adapters.get("a") == Adapter("a")
    records.close()


def test_a_probe_that_names_nobody_is_lost(bank: Bank) -> None:
    """Whatever stands in the row for a probe, it cannot keep the breaker half open for ever."""
    bank.opened()
    for probe in ("", "nonsense", "[1,2]", json.dumps(["x", os.getpid(), 1, "other boot"])):
        bank.adapters.change("a", lambda row, probe=probe: (row._replace(state="HALF_OPEN", probe=probe), None))
        assert "left alone" in bank.waits().why
        assert bank.adapters.get("a").state == "OPEN"


# ── any order of events ──


class AnyOrder(RuleBasedStateMachine):
    """Random attempts by two owners with a restart in between, against a model of what may be under way."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="holdfast-breaker-")
        self.bank = Bank(Path(self.folder.name))
        self.tickets: list[Ticket] = []
        self.attempts = 0

    @initialize()
    def begin(self) -> None:
        self.bank.breakers = Breakers(
            self.bank.adapters, ResilienceLog(self.bank.root), self.bank.clock, Tuning(3, 1_000, 8_000)
        )

    @property
    def row(self) -> Adapter:
        return self.bank.adapters.get("a")

    def probes(self) -> list[Ticket]:
        return [ticket for ticket in self.tickets if ticket.probe and ticket.probe == self.row.probe]

    @rule()
    def ask(self) -> None:
        before = self.row
        ready = is_ready(before, self.bank.clock.now, Tuning(3, 1_000, 8_000))
        admission = self.bank.breakers.admit("a")
        if isinstance(admission, Granted):
            assert before.state != "HALF_OPEN"
            assert bool(admission.ticket.probe) == (before.state == "OPEN")
            self.tickets.append(admission.ticket)
        else:
            assert before.state != "CLOSED"
            assert admission.until_ns <= self.bank.clock.now + 8 * SECOND
        assert ready or isinstance(admission, Waits)

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), ending=st.sampled_from(get_args(Ending)), limit=st.sampled_from(["time", "usd"]))
    def end(self, data: st.DataObject, ending: Ending, limit: str) -> None:
        ticket = self.tickets.pop(data.draw(st.integers(0, len(self.tickets) - 1)))
        before = self.row
        outcome = Outcome("t", ending, ending == "finished", limit if ending == "limit" else "")
        escalations = self.bank.breakers.report(ticket, outcome)
        self.attempts += 1
        opened = any(isinstance(item, BreakerOpened) for item in escalations)
        if before.state == "CLOSED":
            assert opened == (self.row.state == "OPEN")
            if verdict_of(outcome) == "success":
                assert (self.row.state, self.row.failures) == ("CLOSED", 0)
        elif ticket.probe != before.probe or before.state == "OPEN":
            assert self.row[:7] == before[:7]
        else:
            assert self.row.state == ("CLOSED" if ending == "finished" else "OPEN")

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        ticket = self.tickets.pop(data.draw(st.integers(0, len(self.tickets) - 1)))
        before = self.row
        self.bank.breakers.give_back(ticket)
        assert self.row.attempts == before.attempts
        assert self.row.failures == before.failures

    @rule(seconds=st.integers(-20, 20))
    def time_passes(self, seconds: int) -> None:
        self.bank.clock.now += seconds * SECOND

    @rule()
    def start_again(self) -> None:
        self.bank.close()
        self.bank.open()
        self.begin()

    @invariant()
    def at_most_one_probe_is_under_way(self) -> None:
        assert len(self.probes()) <= 1
        assert (self.row.state == "HALF_OPEN") == bool(self.row.probe)
        assert (self.row.state == "HALF_OPEN") == bool(self.probes())

    @invariant()
    def the_row_adds_up(self) -> None:
        row = self.row
        assert row.attempts == self.attempts
        assert 0 <= row.recent_successes <= row.recent_attempts <= row.attempts
        assert (row.state == "CLOSED") == (row.openings == 0 and row.opened_ns == 0 and row.unwell_ns == 0)
        assert row.state != "CLOSED" or row.failures < 3

    def teardown(self) -> None:
        self.bank.close()
        self.folder.cleanup()


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=40, stateful_step_count=30)
