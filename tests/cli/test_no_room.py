"""A full disk in words: what is behind an error decides, not where it was met."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.cli.no_room import as_disk_full
from holdfast.errors import Blocked, Conflict, DiskFull, HoldfastError

CHANGE = "intent: Number the release\nsteps:\n  - write: VERSION\n    content: '2'\n"


def _full(number: int = errno.ENOSPC, *name: object) -> OSError:
    return OSError(number, os.strerror(number), *name)


def _because(error: HoldfastError, cause: BaseException) -> HoldfastError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("name", [(), ("/w/.holdfast/engine",), (b"engine",), (7,)])
def test_no_room_and_no_quota_are_a_full_disk(number: int, name: tuple[object, ...]) -> None:
    """Whatever the kernel named, it is told with what helps; what was changed by then is nobody's claim."""
    told = as_disk_full(_full(number, *name))
    assert told is not None
    assert told.exit_status == 5
    assert os.strerror(number) in told.message
    assert ("engine" in told.message) == (name not in ((), (7,)))
    assert "Make room" in told.hint
    assert "nothing was changed" not in told.hint.lower()


FULL = """
import errno, os, sys
from holdfast.cli import main
from holdfast.store.dossier import Dossiers
from holdfast.wiring import Holdfast

def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
Dossiers._write_file = full
if sys.argv[1] == "landing":
    # Something lands, and only then is there no room.
    plan = Holdfast.keep_plan
    def landing(hf, wanted):
        hf.execute(hf.simulate(wanted), approved_by="me")
        plan(hf, wanted)
    Holdfast.keep_plan = landing
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("verb", ["plan", "simulate"])
def test_where_nothing_landed_that_is_said(guarded: Any, write: Callable[[str], str], verb: str) -> None:
    """No execution was begun, which the records show: the refusal says that nothing was changed, once."""
    told = guarded.python(FULL, "", verb, write(CHANGE))
    assert told.status == 5
    assert "there is no room to write" in told.err
    assert "Nothing in the workspace was changed. Make room on the disk, then do it again." in told.err
    assert told.err.count("othing") == 1
    assert "settled by the next verb" not in told.err
    assert not (guarded.directory / "VERSION").exists()


def test_where_something_landed_nothing_is_claimed(guarded: Any, write: Callable[[str], str]) -> None:
    """When an execution was recorded since the verb began, it does not say that nothing was changed."""
    told = guarded.python(FULL, "landing", "plan", write(CHANGE))
    assert told.status == 5
    assert "there is no room to write" in told.err
    assert "othing" not in told.err
    assert "settled by the next verb" in told.err
    assert (guarded.directory / "VERSION").read_text() == "2"


def test_a_refusal_for_want_of_room_says_what_helps() -> None:
    """Blocked by a full disk is told as that, with its own words and whether anything was changed."""
    told = as_disk_full(_because(Blocked("it cannot be recorded", hint="Nothing was changed.", changed=True), _full()))
    assert told is not None
    assert (told.code, told.message, told.changed) == ("disk_full", "it cannot be recorded", True)
    assert told.hint == "Nothing was changed. Make room on the disk, then do it again."


def test_what_is_told_already_stays() -> None:
    """A full disk that has its own hint keeps it."""
    error = DiskFull("no", hint="Elsewhere.")
    assert as_disk_full(error) is error


@pytest.mark.parametrize(
    "error",
    [
        PermissionError(errno.EACCES, "Permission denied"),
        Blocked("a gate"),
        _because(Blocked("a gate"), PermissionError(errno.EACCES, "no")),
        _because(Conflict("it moved"), _full()),
        _because(HoldfastError("applied, but not recorded", changed=True), _full()),
    ],
)
def test_what_says_more_or_something_else_is_left_alone(error: OSError | HoldfastError) -> None:
    """Another error, or one whose own kind says more than that there was no room, is told as it is."""
    assert as_disk_full(error) is None
