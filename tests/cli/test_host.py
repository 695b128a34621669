"""init, doctor and demo."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest


def test_init_makes_a_private_state_directory_and_is_idempotent(program: Any) -> None:
    """The first init says ready, the second known; both name the same workspace."""
    first = program("init", "--json").document
    again = program("init", "--json").document
    assert (first["status"], again["status"]) == ("ready", "known")
    assert first["id"] == again["id"]
    assert stat.S_IMODE((program.directory / ".holdfast").stat().st_mode) == 0o700
    assert program("status").status == 0


def test_doctor_tries_everything_out(guarded: Any) -> None:
    """Each promise was tried on this file system, and nothing of the trial is left behind."""
    before = sorted(os.listdir(guarded.directory / ".holdfast"))
    told = guarded("doctor", "--json").document
    assert told["status"] == "usable"
    assert {"exchange", "no-replace", "openat2", "syncfs", "lock"} <= {k for k, holds in told["holds"].items() if holds}
    assert told["file_system"] not in ("", "unknown")
    assert sorted(os.listdir(guarded.directory / ".holdfast")) == before
    text = guarded("doctor").out
    for words in ("Atomic", "Key", "Anchor", "Shadows    not in this release", "Usable here."):
        assert words in text


def test_doctor_works_outside_a_workspace(program: Any) -> None:
    """It tells what would hold in this directory, and leaves nothing in it."""
    done = program("doctor")
    assert done.status == 0
    assert "holdfast init" in done.out
    assert list(program.directory.iterdir()) == []


def test_doctor_finds_a_key_that_others_can_read(guarded: Any, home: Path) -> None:
    """A ledger key open to others is trouble: exit 2, and the line says so."""
    (key,) = home.rglob("ledger.key")
    key.chmod(0o644)
    done = guarded("doctor")
    assert done.status == 2
    assert "open to other users" in done.out
    assert "Not usable here" in done.out


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
    done = program("demo", "--json")
    assert done.status == 0, done
    assert len(done.document["acts"]) >= 12
    assert all(act["kept"] for act in done.document["acts"])
    assert list(program.directory.iterdir()) == []
    assert list(home.iterdir()) == []
