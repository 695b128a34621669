"""A baseline forgives; it never makes proof of what proves nothing, and it knows only what it saw."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from guarded import Ground, fill, put
from holdfast.checks.baseline import Ran, compared
from holdfast.checks.junit import Case, Results, State
from holdfast.engine.checking import Verified, why_unverified
from holdfast.model.execution import Receipt
from holdfast.model.plan import Plan

TAKEN = "verify: the tests as they were before the change"
IMPORTS = b"import sys\nsys.path.insert(0, '.')\nfrom lib import f\n\n\n"
FILES = {
    "pyproject.toml": b"[tool.pytest.ini_options]\n",
    "lib.py": b"def f():\n    return 1\n",
    "tests/test_a.py": IMPORTS + b"def test_red():\n    assert False\n",
    "tests/test_b.py": IMPORTS + b"def test_f():\n    assert f() == 1\n",
}


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Ground]]:
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    opened: list[Ground] = []

    def make(files: dict[str, bytes], at_baseline: Callable[[Path], None] = lambda path: None) -> Ground:
        path = tmp_path / "workspace"
        path.mkdir()
        fill(path, {**FILES, **files})
        holdfast.init(str(path))
        found = Ground.__new__(Ground)
        found.path = path
        found.hf = holdfast.open(
            str(path), progress=lambda text, done, total: at_baseline(path) if text == TAKEN else None
        )
        opened.append(found)
        return found

    yield make
    for each in opened:
        each.hf.close()


def written(ground: Ground, name: str, text: str) -> Verified:
    return ground.hf.verify(ground.hf.simulate(Plan("a test", (put(name, text.encode()),), words=("Run tests",))))


def test_a_run_in_which_no_test_passes_proves_nothing(made: Callable[..., Ground]) -> None:
    """Every test is red before and after: nothing new fails, and the work is unverified."""
    verified = written(made({"tests/test_b.py": b"def test_f():\n    assert False\n"}), "notes.py", "x = 1\n")
    assert verified.doubt == "no test passed, before this change or after it"
    assert not verified.proofs and all(receipt.passed for receipt in verified.receipts)


def test_tests_that_could_not_be_collected_and_fail_now_prove_nothing(made: Callable[..., Ground]) -> None:
    """A change that lets tests be collected again, and is not about that, is not verified by tests that fail."""
    ground = made({"tests/test_a.py": b"import missing\n\n\ndef test_red():\n    assert False\n"})
    verified = written(ground, "missing.py", "x = 1\n")
    assert verified.doubt == "the tests could not be collected before this change, and 1 test fails now"
    assert not verified.proofs


@pytest.mark.parametrize("options", ["-x", "--maxfail=1"])
def test_stopping_at_the_first_failure_hides_no_other(made: Callable[..., Ground], options: str) -> None:
    """A project that stops at the first failure has all of its tests run: a new failure behind an old one is seen."""
    ground = made({"pyproject.toml": f'[tool.pytest.ini_options]\naddopts = "{options}"\n'.encode()})
    verified = written(ground, "lib.py", "def f():\n    return 2\n")
    (receipt,) = [each for each in verified.receipts if each.kind == "tests"]
    assert not receipt.passed and "new: tests.test_b.test_f" in receipt.detail


def results(*states: State, name: str = "works") -> Results:
    return Results(tuple(Case(name, "test", state) for state in states))


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        (("failed", "passed"), ("failed", "failed"), ("test.works",)),
        (("failed", "failed"), ("failed", "passed"), ()),
        (("failed",), ("failed", "failed"), ("test.works",)),
    ],
)
def test_of_several_tests_of_one_name_as_many_may_fail(
    before: tuple[State, ...], after: tuple[State, ...], new: tuple[str, ...]
) -> None:
    """Runners that name no file give two tests one name: one more that fails is a new failure."""
    ran = Ran(0, "", ("node", "--test"), results(*before), True)
    assert compared(results(*after), ran, "").new == new


def test_what_a_broken_run_saw_pass_is_not_forgiven() -> None:
    """A run of the base that was interrupted still knows the tests that passed before that."""
    ran = Ran(0, "", ("pytest",), results("passed"), True, collected=False)
    assert compared(results("failed"), ran, "").new == ("test.works",)


def test_a_command_that_took_the_place_of_another_proves_nothing(made: Callable[..., Ground]) -> None:
    """A change that has other tests run than those of the base is not verified by them."""
    ground = made({})
    for name in FILES:
        (ground.path / name).unlink()
    fill(ground.path, {"src/foo/test_lib.py": b"def test_old():\n    assert True\n"})
    ground.hf.pipeline.simulator.checking.take_baseline()
    own = b"import unittest\n\n\nclass T(unittest.TestCase):\n    def test_own(self):\n        pass\n"
    steps = (
        put("tox.ini", b"[flake8]\nmax-line-length = 120\n"),
        put("tests/test_own.py", own),
        put("tests/__init__.py", b""),
    )
    verified = ground.hf.verify(ground.hf.simulate(Plan("a test", steps, words=("Run tests",))))
    assert "ran before this change are not run now" in verified.doubt
    assert not verified.proofs


def test_a_baseline_of_a_workspace_that_moved_is_not_kept(made: Callable[..., Ground]) -> None:
    """Somebody saves a broken file while the baseline is taken: what failed then is not known of the tree before."""

    def edit(path: Path) -> None:
        (path / "lib.py").write_text("def f():\n    return 3\n")

    ground = made({"tests/test_a.py": b"def test_fine():\n    assert True\n"}, edit)
    before = (ground.path / "lib.py").read_text()
    first = written(ground, "lib.py", "def f():\n    return 2\n")
    (ground.path / "lib.py").write_text(before)
    second = written(ground, "lib.py", "def f():\n    return 2\n\n")
    for verified in (first, second):
        assert any(not receipt.passed for receipt in verified.receipts if receipt.kind == "tests")


@pytest.mark.parametrize(("kind", "why"), [("lint", "no check ran"), ("syntax", "no check ran"), ("tests", "")])
def test_a_record_of_syntax_or_style_alone_is_unverified(kind: str, why: str) -> None:
    """What landed is told by its record as it was when it landed: that it parses is no word that it works."""
    receipt = Receipt(("a",), kind, True, 0, 1, "", "tree", "a passed", origin="detected")
    assert why_unverified([receipt]) == why
