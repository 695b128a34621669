"""Which files a task's words ask for: the sentences are data, a new one is a new entry."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.path import checked_path
from holdfast.planning.expected import expected_files, mentioned_files

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "expected.toml").read_text())["case"]


@pytest.mark.parametrize("case", CASES, ids=[case["task"] for case in CASES])
def test_a_sentence_asks_for_these_files(case: dict[str, Any]) -> None:
    """What is to be made is expected, in its order; what is only mentioned is not; in doubt there is nothing."""
    assert list(expected_files(case["task"])) == case["made"]
    if "mentioned" in case:
        assert list(mentioned_files(case["task"])) == case["mentioned"]


def test_there_are_many_cases() -> None:
    """A file that lost its cases must not pass as well tested."""
    assert len(CASES) >= 40


@given(st.text(max_size=300))
def test_any_words_give_paths_of_the_workspace_or_nothing(task: str) -> None:
    """Whatever is said, every file that comes of it is a plain path below the workspace."""
    for path in (*expected_files(task), *mentioned_files(task)):
        assert checked_path(path) == path


@pytest.mark.parametrize("piece", ["create a ", "a/", "create a.b ", "x.", "create new file ", "a.py, "])
def test_long_words_take_no_longer_than_they_are(piece: str) -> None:
    """No sentence makes the search explode."""
    task = piece * (64_000 // len(piece))
    began = time.process_time()
    expected_files(task)
    mentioned_files(task)
    assert time.process_time() - began < 2.0


def test_a_list_without_end_is_cut() -> None:
    """Fifty files are enough to ask for in words."""
    assert len(expected_files("Create " + ", ".join(f"f{number}.py" for number in range(99)))) == 50
