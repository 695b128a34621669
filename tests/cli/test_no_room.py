"""A full disk in words: what is behind an error decides, not where it was met."""

from __future__ import annotations

import errno
import os

import pytest

from holdfast.cli.no_room import as_disk_full
from holdfast.errors import Blocked, Conflict, DiskFull, HoldfastError


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
