"""A roadmap comes to its end whatever its agents do and however often its driver is killed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from roadmap.soaking import check, drive, ended, prepare

TEN, HUNDRED = 10, 100


def run(workspace: Path, kills: int, seed: int, seconds: float) -> tuple[int, dict[str, str]]:
    prepare(workspace, Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast", seconds=seconds)
    within_ms = 4_000 + int(2_000 * seconds)
    killed = drive(workspace, parallel=4, landing="roadmap", kills=kills, seed=seed, within_ms=within_ms)
    end = ended(workspace, killed)
    check(end)
    return killed, end.tree


def disturbed(tmp_path: Path, kills: int, seconds: float) -> None:
    _, undisturbed = run(tmp_path / "undisturbed", 0, 1, 0.05)
    killed, tree = run(tmp_path / "disturbed", kills, 7, seconds)
    assert killed == kills
    assert tree == undisturbed


def test_a_run_that_is_killed_ten_times_ends_as_one_that_is_not(tmp_path: Path) -> None:
    """Every task lands exactly once, and the tree is the same as without the kills."""
    disturbed(tmp_path, TEN, 0.5)


@pytest.mark.soak
def test_a_run_that_is_killed_a_hundred_times_ends_as_one_that_is_not(tmp_path: Path) -> None:
    """The same, in earnest."""
    disturbed(tmp_path, HUNDRED, 2.0)
