"""A folder with nothing but tests: its work is verified by them, and nothing that an agent leaves leads pytest away."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from guarded import Ground, fill
from holdfast.engine.roadmap_runs import Crew
from holdfast.model.run import RunOptions
from holdfast.model.task import TaskRecord
from holdfast.testing import ScriptedAgent
from holdfast.testing.agents import Act
from holdfast.testing.script import EditFile, WriteFile

FILES = {
    "calc.py": b"def add(a, b):\n    return a + b\n",
    "test_calc.py": b"from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "deep/test_more.py": b"def test_old():\n    assert False\n",
}
NOTES = WriteFile("notes.py", "x = 1\n")


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


def driven(place: Ground, *acts: Act) -> TaskRecord:
    (place / "ROADMAP.md").write_text("# R\n\n- [ ] Add notes.py\n")
    crew = Crew({"hand": ScriptedAgent(*acts)}, lambda event: None)
    run = place.hf.runs.start("ROADMAP.md", RunOptions(agent="hand", attempts=1, mends=1), crew, yes=True)
    (record,) = place.hf.runs.standing(run.id).records.values()
    return record


def test_work_is_verified_by_the_tests_that_are_found(place: Ground) -> None:
    """It lands, verified; what failed before is known by name, and what breaks now does not land."""
    record = driven(place, NOTES)
    assert (record.state, record.unverified) == ("COMPLETED", ""), record
    receipts = place.hf.show(record.execution)[1]["receipts"]  # type: ignore[index]
    (tests,) = [row for row in receipts if row["kind"] == "tests"]
    assert tests["detail"].startswith("python3 -m pytest -q test_calc.py deep/test_more.py exited with 1")
    assert "1 test failed before this change too: deep.test_more.test_old" in tests["detail"]
    record = driven(place, WriteFile("more.py", "x = 1\n"), EditFile("calc.py", "a + b", "a * b"))
    assert record.state == "FAILED" and "new: test_calc.test_add" in record.tried[-1].evidence


def test_links_lead_pytest_nowhere(place: Ground) -> None:
    """Neither a folder that is a link, nor a link to its own folder, nor a test file that is a link is looked at."""
    outside = place.path.parent / "outside"
    outside.mkdir()
    (outside / "test_outside.py").write_text("raise SystemExit('led astray')\n")
    for link, leads_to in (("loop", "."), ("away", outside), ("test_link.py", outside / "test_outside.py")):
        (place / link).symlink_to(leads_to)
    checking = place.hf.pipeline.simulator.checking
    (tried,) = [one for one in checking.trial() if one.level == "tests"]
    assert tried.ready and "python3 -m pytest -q test_calc.py deep/test_more.py collects 2 tests" in tried.detail


def test_a_fix_finds_them_too(place: Ground) -> None:
    """`holdfast fix` repairs a failing test of such a folder."""
    broken = place.hf.broken()
    assert broken is not None and broken.failure.tests == ("deep/test_more.py::test_old",)


def test_a_test_that_vanishes_is_missed(place: Ground) -> None:
    """Also where the change makes a project of the folder, which looks for its tests itself."""
    settings = "[tool.pytest.ini_options]\ntestpaths = ['other']\n"
    act = WriteFile("other/test_own.py", "def test_own():\n    pass\n")
    record = driven(place, NOTES, act, WriteFile("pyproject.toml", settings))
    assert record.state != "COMPLETED", record
    assert "no longer run: test_calc.test_add" in record.tried[-1].evidence
