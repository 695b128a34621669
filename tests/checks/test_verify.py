"""Verification runs every command, in isolation from the user, and says what happened."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.checks.attempt import duration
from holdfast.checks.verify import verify
from holdfast.model.execution import Receipt
from holdfast.model.plan import CommandCheck

Verify = Callable[..., tuple[Receipt, ...]]
SECRET = "HOLDFAST_TEST_TOKEN"


@pytest.fixture
def check(tmp_path: Path, save_log: Callable[[bytes], str]) -> Verify:
    def run(*commands: tuple[str, ...], within_ms: int = 10_000) -> tuple[Receipt, ...]:
        checks = [CommandCheck(argv, within_ms) for argv in commands]
        return verify(checks, directory=str(tmp_path), tree_digest="tree-1", save_log=save_log)

    return run


def test_every_command_is_run_and_receipted(check: Verify, logs: dict[str, bytes]) -> None:
    """A failure does not hide what comes after it; receipts come in the order of the checks."""
    receipts = check(("sh", "-c", "echo one; exit 3"), ("no-such-program",), ("sh", "-c", "echo three"))
    assert [(r.passed, r.exit_code, r.kind, r.tree_digest) for r in receipts] == [
        (False, 3, "run", "tree-1"),
        (False, None, "run", "tree-1"),
        (True, 0, "run", "tree-1"),
    ]
    assert [logs[r.log_digest] for r in receipts] == [b"one\n", b"no-such-program: not found on PATH", b"three\n"]
    assert receipts[2].command == ("sh", "-c", "echo three")


def test_no_checks_give_no_receipts(check: Verify) -> None:
    """Nothing asked, nothing proven."""
    assert check() == ()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 1", "exited with 1 ("),
        ("kill -SEGV $$", "was killed by SIGSEGV ("),
        ("sleep 60", "did not end within 300 ms and was killed ("),
        ("sleep 60 & exit 2", "; 1 process left behind and killed"),
    ],
)
def test_the_detail_says_how_it_ended(check: Verify, script: str, words: str) -> None:
    """A person reads the reason without opening the log."""
    (receipt,) = check(("sh", "-c", script), within_ms=300)
    assert not receipt.passed
    assert receipt.detail.startswith("sh -c ")
    assert words in receipt.detail


def test_a_command_that_cannot_start_fails_with_the_reason(check: Verify) -> None:
    """Not an exception: the other checks still run."""
    (receipt,) = check(("no such program",))
    assert receipt.detail.startswith("'no such program' could not be run: no such program: not found on PATH")


def test_processes_left_behind_are_a_warning(check: Verify) -> None:
    """The check passed; what it forgot is killed and mentioned."""
    (receipt,) = check(("sh", "-c", "sleep 60 & exit 0"))
    assert receipt.passed
    assert "1 process left behind and killed" in receipt.detail


def test_a_process_that_escaped_fails_the_check(check: Verify, tmp_path: Path) -> None:
    """Something of the check still runs and may change what was checked: that is no proof."""
    (receipt,) = check(("sh", "-c", "env -i /usr/bin/setsid /bin/sleep 0.6 & sleep 0.2"))
    assert (receipt.passed, receipt.exit_code) == (False, 0)
    assert "1 process left behind that could not be killed" in receipt.detail


def test_it_runs_in_the_directory_with_a_private_home(check: Verify, tmp_path: Path, logs: dict[str, bytes]) -> None:
    """Nothing of the user is visible; what it puts into HOME and TMPDIR is gone afterwards."""
    os.environ[SECRET] = "ghp_secret"
    try:
        script = 'pwd; echo "$HOME"; echo "$TMPDIR"; touch "$HOME/a" "$TMPDIR/b"; ls -A "$HOME" "$TMPDIR" | wc -l; env'
        (receipt,) = check(("sh", "-c", script))
    finally:
        del os.environ[SECRET]
    output = logs[receipt.log_digest]
    directory, home, tmpdir = output.decode().splitlines()[:3]
    assert directory == str(tmp_path)
    assert home != os.environ.get("HOME")
    assert home.startswith(tempfile.gettempdir())
    assert not Path(home).parent.exists()
    assert not Path(tmpdir).exists()
    assert b"ghp_secret" not in output
    assert receipt.passed


def test_read_only_directories_in_home_are_removed(check: Verify, tmp_path: Path, logs: dict[str, bytes]) -> None:
    """Package caches are made read-only; a symlink in them does not lead us to the user's files."""
    kept = tmp_path / "kept"
    kept.mkdir(mode=0o500)
    script = f'cd "$HOME"; mkdir -p cache/x; touch cache/x/f; ln -s {kept} cache/link; chmod -R a-w .; pwd'
    (receipt,) = check(("sh", "-c", script))
    assert receipt.passed
    assert not Path(logs[receipt.log_digest].decode().strip()).parent.exists()
    assert "could not be removed" not in receipt.detail
    assert kept.stat().st_mode & 0o777 == 0o500


def test_control_characters_in_a_command_are_shown_escaped(check: Verify) -> None:
    """The detail cannot move the cursor of the person who reads it."""
    (receipt,) = check(("echo", "\x1b[2J\u202e"))
    assert "\x1b" not in receipt.detail
    assert "\u202e" not in receipt.detail


def test_a_hanging_check_is_bounded(check: Verify) -> None:
    """The time limit of one check does not eat into the next."""
    began = time.monotonic()
    receipts = check(("sleep", "60"), ("true",), within_ms=200)
    assert [r.passed for r in receipts] == [False, True]
    assert time.monotonic() - began < 30


def test_progress_is_told_before_each_command(tmp_path: Path, save_log: Callable[[bytes], str]) -> None:
    """A person sees which of how many is running."""
    told: list[tuple[int, int, str]] = []
    checks = [CommandCheck(("true",)), CommandCheck(("echo", "a b"))]
    verify(checks, directory=str(tmp_path), tree_digest="t", save_log=save_log, progress=lambda *row: told.append(row))
    assert told == [(0, 2, "true"), (1, 2, "echo 'a b'")]


@pytest.mark.parametrize(
    ("milliseconds", "words"), [(0, "0 ms"), (350, "350 ms"), (1000, "1 s"), (1400, "1.4 s"), (10_049, "10 s")]
)
def test_durations_have_units(milliseconds: int, words: str) -> None:
    """Short times in milliseconds, long ones in seconds."""
    assert duration(milliseconds) == words
