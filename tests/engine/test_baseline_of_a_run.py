"""A run knows how the tests stood before it: old failures stop nothing, new ones and missing tests do."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

import holdfast
from delegated import configured
from guarded import Ground, fill, put
from holdfast.engine.roadmap_runs import Crew
from holdfast.model.plan import Plan
from holdfast.model.run import ChecksTried, RunEvent, RunOptions
from holdfast.model.task import TaskRecord
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import EditFile, Work, WriteFile

CALC = b"def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return a + b\n"
TESTS = (
    b"import sys\nsys.path.insert(0, '.')\nimport pytest\nfrom calc import add, sub\n\n\n"
    b"@pytest.mark.parametrize('n', [1, 2, 3])\ndef test_add(n):\n    assert add(n, 2) == n + 2\n\n\n"
    b"def test_sub():\n    assert sub(3, 2) == 1\n\n\n"
    b"def test_old():\n    assert sub(2, 2) == 0\n"
)
FILES = {"pyproject.toml": b"[tool.pytest.ini_options]\n", "calc.py": CALC, "tests/test_calc.py": TESTS}
NOTES = WriteFile("notes.py", "x = 1\n")
RIGHT, WRONG = "def add(a, b):\n    return a + b", "def add(a, b):\n    return a * b"


class Place(Ground):
    def __init__(self, path: Path, files: dict[str, bytes]) -> None:
        path.mkdir()
        fill(path, files)
        holdfast.init(str(path))
        super().__init__(path)
        self.heard: list[RunEvent] = []
        self.told: list[str] = []
        self.hf.close()
        self.progress: Callable[[str, int, int], None] = lambda text, done, total: None
        self.hf = holdfast.open(str(path), progress=self._heard)

    def _heard(self, text: str, done: int, total: int) -> None:
        self.told.append(text)
        self.progress(text, done, total)

    def drive(
        self, title: str, *acts: Work, yes: bool = True, later: dict[int, tuple[Work, ...]] | None = None
    ) -> TaskRecord:
        """A run over one task."""
        (self / "ROADMAP.md").write_text(f"# R\n\n- [ ] {title}\n")
        agent = ScriptedAgent(*acts, later=later or {})
        options = RunOptions(agent="hand", attempts=1, mends=2 if later else 1)
        self.heard.clear()
        run = self.hf.runs.start("ROADMAP.md", options, Crew({"hand": agent}, self.heard.append), yes=yes)
        (record,) = self.hf.runs.standing(run.id).records.values()
        return record

    @property
    def checks(self) -> tuple[str, ...]:
        return next((event.checks for event in self.heard if isinstance(event, ChecksTried)), ())


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")


@pytest.fixture
def place(tmp_path: Path, tools: None) -> Iterator[Place]:
    found = Place(tmp_path / "workspace", FILES)
    yield found
    found.hf.close()


def test_unrelated_work_lands_beside_two_failing_tests(place: Place) -> None:
    """The run says which tests fail before it begins; the work lands, verified, and a third failure does not."""
    record = place.drive("Add notes.py", NOTES)
    assert (record.state, record.unverified) == ("COMPLETED", ""), record
    assert (
        "before anything is done: 3 passed, 2 failed: tests.test_calc.test_sub, tests.test_calc.test_old"
        in place.checks
    )
    record = place.drive("Add more.py", WriteFile("more.py", "x = 1\n"), EditFile("calc.py", RIGHT, WRONG))
    assert record.state == "FAILED", record
    assert "new: tests.test_calc.test_add[1]" in record.tried[-1].evidence
    assert (place / "calc.py").read_bytes() == CALC


def test_what_a_task_was_to_mend_passes(place: Place) -> None:
    """A task about a failing test is not done by unrelated work; by mending it, it is."""
    assert place.drive("Make test_sub pass", NOTES).state == "FAILED"
    old = "def sub(a, b):\n    return a + b"
    record = place.drive("Make test_sub pass", EditFile("calc.py", old, old.replace("a + b", "a - b")))
    assert record.state == "COMPLETED", record


@pytest.mark.parametrize(
    ("act", "gone"),
    [
        (WriteFile("conftest.py", "collect_ignore = ['tests/test_calc.py']\n"), "no tests"),
        (
            WriteFile("tests/conftest.py", "def pytest_collection_modifyitems(items):\n    items[:] = items[1:]\n"),
            "gone",
        ),
    ],
)
def test_tests_that_vanish_are_named_and_not_good(tmp_path: Path, tools: None, act: Work, gone: str) -> None:
    """A change that leaves nothing failing, and some tests not run any more, does not land."""
    passing = CALC.replace(b"sub(a, b):\n    return a + b", b"sub(a, b):\n    return a - b")
    place = Place(tmp_path / "workspace", {**FILES, "calc.py": passing})
    record = place.drive("Add notes.py", NOTES, act)
    assert record.state != "COMPLETED", record
    if gone == "gone":
        assert "no longer run: tests.test_calc.test_add (2 of 3 cases)" in record.tried[-1].evidence
    place.hf.close()


def test_the_last_landing_is_the_next_baseline(place: Place) -> None:
    """What was tested where something landed is not tested again, although its box was ticked since."""
    place.drive("Add notes.py", NOTES)
    taken = place.told.count("verify: the tests as they were before the change")
    roadmap = (place / "ROADMAP.md").read_bytes()
    assert b"[x]" in roadmap and taken <= 1
    checking = place.hf.pipeline.simulator.checking
    place.told.clear()
    assert checking.take_baseline() and not place.told


def test_a_suite_that_is_made_collectable_is_good(tmp_path: Path, tools: None) -> None:
    """Where the task was to mend just that, collecting is the check: what fails then never ran before, and is named."""
    broken = b"import calc_of_old\n" + TESTS
    place = Place(tmp_path / "workspace", {**FILES, "tests/test_calc.py": broken})
    record = place.drive("Mend the import error", NOTES)
    assert record.state != "COMPLETED", record
    record = place.drive("Mend the import error: create calc_of_old.py", WriteFile("calc_of_old.py", "OLD = 1\n"))
    assert record.state == "COMPLETED", record
    receipts = place.hf.show(record.execution)[1]["receipts"]  # type: ignore[index]
    assert any("2 tests failed that could not be collected before" in row["detail"] for row in receipts)
    place.hf.close()


def test_tests_without_a_report_that_fail_before_are_told(tmp_path: Path, tools: None) -> None:
    """They name none that could be forgiven: the run says so as it begins, and the work waits for a person."""
    place = Place(tmp_path / "workspace", {"Makefile": b"test:\n\tfalse\n"})
    assert place.drive("Add notes.py", NOTES).state == "NEEDS_REVIEW"
    assert (
        "before anything is done: the tests of make test fail, and name none: while they do, they verify nothing"
        in place.checks
    )
    place.hf.close()


def test_a_command_without_a_report_that_turns_red_fails_the_work(tmp_path: Path, tools: None) -> None:
    """Green before and red after is a failure, as ever."""
    place = Place(tmp_path / "workspace", {"Makefile": b"test:\n\ttest ! -e notes.py\n"})
    assert place.drive("Add notes.py", NOTES).state == "FAILED"
    place.hf.close()


@contextmanager
def alternating(pipe: Path) -> Iterator[list[bool]]:
    """Whoever reads a byte of this pipe gets 0, the next one 1, and so on; what they got so far is given."""
    os.mkfifo(pipe)
    told: list[bool] = []
    over = Event()

    def tell() -> None:
        while True:
            fd = os.open(pipe, os.O_WRONLY)  # until somebody reads
            if not over.is_set():
                told.append(bool(told) and not told[-1])
                os.write(fd, b"1" if told[-1] else b"0")
                waiting = select.poll()
                waiting.register(fd, 0)
                waiting.poll()  # until they are gone, or the next byte would be theirs too
            os.close(fd)
            if over.is_set():
                return

    teller = Thread(target=tell)
    teller.start()
    try:
        yield told
    finally:
        over.set()
        os.close(os.open(pipe, os.O_RDONLY))
        teller.join()


FLAKY = """
import os

def test_flaky():
    if os.path.exists("notes.py"):
        with open({pipe!r}, "rb", 0) as pipe:
            assert pipe.read(1) == b"1"
"""


def test_unrelated_work_lands_beside_a_flaky_test_and_says_so(place: Place, tmp_path: Path) -> None:
    """A test of the base that passes before the work, and every other time over it: run again, it passes, so the work
    lands, verified; the line of the task, `tasks` and `show TASK` name it, and not the failures that are old."""
    outside = tmp_path / "outside"
    outside.mkdir()
    configured(f'[environment]\nreadable = ["{outside}"]\n')
    (place / "tests/test_flaky.py").write_text(FLAKY.format(pipe=str(outside / "pipe")))
    with alternating(outside / "pipe") as told:
        record = place.drive("Add notes.py", NOTES)
    assert (record.state, record.unverified, told) == ("COMPLETED", "", [False, True]), record
    words = "flaky, failed once and passed when everything was run again: tests.test_flaky.test_flaky"
    assert record.because == words
    for look in (("show", record.task), ("tasks",)):
        command = [sys.executable, "-m", "holdfast", "-C", str(place.path), *look]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert words in done.stdout, done


def test_a_flaky_test_fails_nobodys_work(place: Place, tmp_path: Path) -> None:
    """It passed before, fails once after, and passes when everything is run again: told, and not held against it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    configured(f'[environment]\nreadable = ["{outside}"]\n')
    ready = outside / "ready"
    ready.touch()
    flaky = f"import os\n\n\ndef test_flaky():\n    assert os.path.exists('{ready}')\n"
    (place / "tests/test_flaky.py").write_text(flaky)
    runs: list[str] = []

    def heard(text: str, done: int, total: int) -> None:
        """The second run of the tests, the first over the work, does not find the file; every other one does."""
        if text == "verify: python3 -m pytest -q":
            runs.append(text)
            ready.unlink() if len(runs) == 2 else ready.touch()

    place.progress = heard
    assert place.hf.pipeline.simulator.checking.take_baseline()
    plan = Plan("a test", (put("notes.py", b"x = 1\n"),), words=("Run tests",))
    verified = place.hf.verify(place.hf.simulate(plan))
    (tests,) = [receipt for receipt in verified.receipts if receipt.kind == "tests"]
    assert tests.passed and "flaky, failed once and passed when everything was run again" in tests.detail
    assert len(runs) == 3
