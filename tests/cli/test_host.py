"""init and demo, and hosts where nothing can be kept."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest


def test_init_makes_a_private_state_directory_and_is_idempotent(program: Any) -> None:
    """The first init says ready, the second known; both name the same workspace."""
    first = program.fresh("init", "--json").document
    again = program("init", "--json").document
    assert (first["status"], again["status"]) == ("ready", "known")
    assert first["id"] == again["id"]
    assert stat.S_IMODE((program.directory / ".holdfast").stat().st_mode) == 0o700
    assert program("status").status == 0


def test_an_unusable_file_system_is_refused(program: Any) -> None:
    """Where nothing can be written or exchanged, doctor says so and init refuses, with nothing made."""
    there = type(program)(Path("/proc"))
    assert there("doctor", "--json").document["status"] == "unusable"
    done = there("init", "--json")
    assert done.status == 2
    assert done.document["error"]["code"] == "unsupported"


@pytest.mark.serial
def test_the_demo_keeps_its_promises(program: Any, home: Path) -> None:
    """The demo ends with 0 after every outcome was checked, and touches neither the directory nor the user's home."""
    done = program.fresh("demo", "--json")
    assert done.status == 0, done
    assert len(done.document["acts"]) >= 12
    assert all(act["kept"] for act in done.document["acts"])
    assert list(program.directory.iterdir()) == []
    assert list(home.iterdir()) == []
