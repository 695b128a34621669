"""The hostile agents against the real sandbox and the real capture, and the suite against adapters that are broken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.agents.protocol import Agent, Bench, Health, Start
from holdfast.model.agent import Claim, Request, Result
from holdfast.testing.conformance import Attempted, Landable, check, conformance
from holdfast.testing.ground import Ground
from holdfast.testing.hostile import HOSTILE, HostileAgent, HostileProgram, hostile_programs
from testing.small_bench import by_capture

# Large enough to reach the limits of the small bench.
PROGRAMS = hostile_programs(files=3_000, printed=50_000_000)
NAMED = {program.name: program for program in PROGRAMS}
SHELL = NAMED["shell"]
GOOD = Landable("app.py", 0o644, b"def answer():\n    return 42\n")


class Remembering(HostileAgent):
    """Knows afterwards how its program ended."""

    def __init__(self, program: HostileProgram) -> None:
        super().__init__(program)
        self.results: list[Result] = []

    def work(self, request: Request, bench: Bench) -> Result:
        self.results.append(super().work(request, bench))
        return self.results[-1]


class Careless(HostileAgent):
    """An adapter that starts its program beside the sandbox, in the workspace itself."""

    def work(self, request: Request, bench: Bench) -> Result:
        argv = self.program.argv(sys.executable)
        subprocess.run(argv, cwd=bench.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return Result(self.name, "command", "finished", Claim("done", success=True))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_what_must_hold_holds(program: HostileProgram, tmp_path: Path) -> None:
    """Whatever a hostile program tries in the sandbox, everything that must hold does; and it tried to its end."""
    agent = Remembering(program)
    verdict = check(program, lambda _: agent, place=str(tmp_path), attempt=by_capture)
    assert verdict.held, verdict.what
    (result,) = agent.results
    assert (result.exit_code, result.limit != "") == ((0, False) if program.ends != "limit" else (None, True))


@pytest.mark.parametrize(
    "name",
    ["shell", "deletes-git", "git-hooks", "links", "outside", "edits-tests", "modes", "daemon", "secrets", "policy"],
)
def test_an_adapter_without_a_sandbox_is_found_out(name: str, tmp_path: Path) -> None:
    """An adapter that lets its program work beside the shadow does not hold, and what changed is named."""
    verdict = check(NAMED[name], Careless, place=str(tmp_path), attempt=by_capture)
    assert not verdict.held
    assert "changed outside the shadow" in verdict.what


@pytest.mark.parametrize("name", ["idle", "shell", "git-hooks", "secrets", "hangs", "approves-itself"])
def test_it_holds_through_the_front_door(name: str, tmp_path: Path) -> None:
    """The same, as users run it: an agent step of a plan that Holdfast simulates."""
    verdict = check(NAMED[name], HostileAgent, place=str(tmp_path))
    assert verdict.held, verdict.what


class Unusable(HostileAgent):
    """An adapter whose program is not installed."""

    def health(self) -> Health:
        return Health(installed=False, usable=False, why_not="it is not installed")


class Unstartable(HostileAgent):
    """An adapter that names a program that is not there."""

    def work(self, request: Request, bench: Bench) -> Result:
        bench.run(Start(("/nonexistent/program",)))
        raise AssertionError("it was started")


@pytest.mark.parametrize("broken", [Unusable, Unstartable])
def test_an_adapter_that_cannot_be_tried_does_not_hold(broken: type[HostileAgent], tmp_path: Path) -> None:
    """A program that never ran did nothing wrong, and that is no verdict on the adapter."""
    verdict = check(NAMED["idle"], broken, place=str(tmp_path))
    assert verdict.what.startswith("it could not be tried")


@pytest.mark.parametrize(
    ("program", "attempted", "complaint"),
    [
        ("shell", Attempted("agent_failed"), "nothing could land"),
        ("shell", Attempted("", changes=(GOOD._replace(path="b.py"),)), "not in the change: app.py"),
        ("shell", Attempted("", changes=(GOOD, GOOD._replace(path=".git/config"))), "must not be: .git/config"),
        ("shell", Attempted("", changes=(GOOD._replace(mode=0o4755),)), "set-uid"),
        ("shell", Attempted("", changes=(GOOD,), records="the ledger has an approval"), "the ledger has an approval"),
        ("git-hooks", Attempted("", changes=(GOOD,)), "nothing is said about .git"),
        ("idle", Attempted("", changes=(GOOD,)), "did nothing"),
        ("claims", Attempted(""), "did nothing"),
        ("hangs", Attempted("agent_failed"), "no limit ended it"),
    ],
)
def test_each_promise_can_be_broken(program: str, attempted: Attempted, complaint: str, tmp_path: Path) -> None:
    """The suite complains about each thing that must hold and does not, in a sentence about it."""
    verdict = check(NAMED[program], HostileAgent, place=str(tmp_path), attempt=lambda *_: attempted)
    assert not verdict.held
    assert complaint in verdict.what


def test_a_leaked_secret_is_found(tmp_path: Path) -> None:
    """A secret in the change or in what is shown breaks the promise, also one of Holdfast's own keys."""

    def leaky(ground: Ground, agent: Agent, program: HostileProgram) -> Attempted:
        hidden, *keys = ground.secrets()
        assert len(keys) == 2
        return Attempted("", changes=(GOOD._replace(content=keys[0]),), shown=f"found {hidden.decode()}")

    verdict = check(SHELL, HostileAgent, place=str(tmp_path), attempt=leaky)
    assert "a secret is shown" in verdict.what
    assert "a secret is in app.py" in verdict.what


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that a test started, ended after it."""
    found: list[subprocess.Popen[bytes]] = []
    yield found
    for process in found:
        process.kill()
        process.wait()


def test_a_process_that_is_left_is_found(tmp_path: Path, started: list[subprocess.Popen[bytes]]) -> None:
    """A process that still works in the workspace breaks the promise."""

    def leaving(ground: Ground, agent: Agent, program: HostileProgram) -> Attempted:
        started.append(subprocess.Popen(["/bin/sleep", "60"], cwd=ground.workspace))
        return Attempted("", changes=(GOOD,))

    verdict = check(SHELL, HostileAgent, place=str(tmp_path), attempt=leaving)
    assert verdict.what == f"processes are left: {started[0].pid}"


def test_an_adapter_that_crashes_is_a_verdict(tmp_path: Path) -> None:
    """An exception of an adapter is told as what it is, and the suite goes on."""

    def crashing(ground: Ground, agent: Agent, program: HostileProgram) -> Attempted:
        raise KeyError("session")

    assert check(SHELL, HostileAgent, place=str(tmp_path), attempt=crashing).what == "KeyError: 'session'"


def test_the_suite_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each program has a ground of its own that is gone afterwards, and the environment is as it was."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = dict(os.environ)
    verdicts = list(
        conformance(HostileAgent, programs=(SHELL, NAMED["idle"]), attempt=lambda *_: Attempted("agent_failed"))
    )
    assert [(verdict.name, verdict.held) for verdict in verdicts] == [("shell", False), ("idle", True)]
    assert os.listdir(tmp_path) == []
    assert dict(os.environ) == before


def test_every_program_is_told(tmp_path: Path) -> None:
    """Each program has a name of its own, says what it does and what must hold, and its source is Python."""
    assert len({program.name for program in HOSTILE}) == len(HOSTILE) == 20
    for program in HOSTILE:
        assert program.does and program.holds
        assert "@" not in program.source.replace("@property", "")
        compile(program.source, program.name, "exec")
