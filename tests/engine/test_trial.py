"""Before anything is done: which checks there are and whether they can run, told in bounded time, with none run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from guarded import Ground, fill
from holdfast.checks.levels import Tried
from holdfast.engine.roadmap_runs import Crew
from holdfast.errors import VerificationFailed
from holdfast.model.run import ChecksTried, RunEvent, RunOptions
from holdfast.store.runs import Runs
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import WriteFile

TESTS = b"def test_one():\n    assert False\n\n\ndef test_two():\n    open('ran', 'w')\n"
BROKEN = b"import nothing_of_that_name\n\n\ndef test_three():\n    pass\n"
FILES = {"pyproject.toml": b"[tool.pytest.ini_options]\n", "tests/test_it.py": TESTS}
SLOW = b"import time\ntime.sleep(60)\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    path = tmp_path / "workspace"
    path.mkdir()
    fill(path, FILES)
    holdfast.init(str(path))
    found = Ground(path)
    yield found
    found.hf.close()


def tried(place: Ground, within_ms: int = 30_000) -> list[Tried]:
    return [one for one in place.hf.pipeline.simulator.checking.trial(within_ms=within_ms) if one.level == "tests"]


def started(place: Ground, *titles: str) -> list[RunEvent]:
    heard: list[RunEvent] = []
    (place / "ROADMAP.md").write_text("# R\n\n" + "".join(f"- [ ] {title}\n" for title in titles))
    agents = {"hand": ScriptedAgent(WriteFile("notes.py", "x = 1\n"))}
    place.hf.runs.start("ROADMAP.md", RunOptions(agent="hand", attempts=1, mends=1), Crew(agents, heard.append))
    return heard


def test_tests_are_collected_and_not_run(place: Ground) -> None:
    """It says how many there are and how long that took; one of them would fail, and nothing was run to find out."""
    (one,) = tried(place)
    assert one.ready and not one.uncollectable
    assert "python3 -m pytest -q collects 2 tests in " in one.detail
    assert not (place / "ran").exists()


def test_a_suite_that_cannot_be_collected_is_told_with_file_and_reason(place: Ground) -> None:
    """The first reason, and the file that is to blame."""
    (place / "tests/test_bad.py").write_bytes(BROKEN)
    (one,) = tried(place)
    assert one.uncollectable and not one.ready and one.files == ("tests/test_bad.py",)
    assert "cannot collect its tests: tests/test_bad.py: ModuleNotFoundError: No module named" in one.detail


def test_a_quiet_configuration_is_counted_too(place: Ground) -> None:
    """Where the project makes its runner say less, the numbers of its files are added up."""
    (place / "pyproject.toml").write_text('[tool.pytest.ini_options]\naddopts = "-q"\n')
    (place / "tests/test_more.py").write_bytes(TESTS)
    (one,) = tried(place)
    assert "collects 4 tests in " in one.detail


def test_a_trial_ends_in_time(place: Ground) -> None:
    """What still collects when the time is over is told as that, and stops nothing."""
    (place / "conftest.py").write_bytes(SLOW)
    (one,) = tried(place, within_ms=1_500)
    assert one.ready and "was still collecting after " in one.detail


def test_a_tool_that_is_missing_is_named(place: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an interpreter that has no pytest the trial says so."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (place / "pyproject.toml").write_text("[tool.pytest.ini_options]\n[tool.mypy]\n")
    told = {one.level: one for one in place.hf.pipeline.simulator.checking.trial()}
    assert not told["types"].ready and "cannot run here: mypy is not installed" in told["types"].detail


def test_the_interpreter_that_lacks_it_is_named(place: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the environment that was found instead, and why that one is not used."""
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    (place / ".venv/bin").mkdir(parents=True)
    (place / ".venv/pyvenv.cfg").write_text("home = /gone/bin\n")
    (place / ".venv/bin/python").symlink_to("/gone/bin/python3.12")
    (place / "pyproject.toml").write_text("[tool.pytest.ini_options]\n[tool.mypy]\n")
    told = {one.level: one for one in place.hf.pipeline.simulator.checking.trial()}["types"].detail
    assert "mypy is not installed in Python" in told and "python3 on PATH" in told
    assert f".venv ({place.path}/.venv) is not shown: its interpreter is gone" in told


def test_a_run_begins_with_the_checks_that_it_will_have(place: Ground) -> None:
    """An event with a sentence for each, before any agent."""
    heard = started(place, "Create notes.py")
    kinds = [event.event for event in heard]
    assert kinds.index("CHECKS") < kinds.index("TASK_STARTED")
    (found,) = [event for event in heard if isinstance(event, ChecksTried)]
    assert "collects 2 tests in " in found.checks[0]


def test_a_suite_that_cannot_be_collected_stops_a_run_before_it_begins(place: Ground) -> None:
    """Exit 6 with the reason and what to do; no run is written down and no agent is asked."""
    (place / "tests/test_bad.py").write_bytes(BROKEN)
    with pytest.raises(VerificationFailed, match="cannot collect its tests") as caught:
        started(place, "Create notes.py", "Mend the tests")
    assert caught.value.exit_status == 6 and "holdfast fix" in caught.value.hint
    assert not Runs(place.hf.records).exist() or not list(Runs(place.hf.records).runs())


@pytest.mark.parametrize("title", ["Make tests/test_bad.py importable", "Mend the import error", "Fix broken tests"])
def test_a_run_begins_whose_first_task_is_to_mend_that(place: Ground, title: str) -> None:
    """Named by its file, by what is wrong, or as failing tests."""
    (place / "tests/test_bad.py").write_bytes(BROKEN)
    assert any(event.event == "TASK_STARTED" for event in started(place, title))
