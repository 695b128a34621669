"""Errors at every system call: the process lives on, says what is true, and leaves the old tree or the new one.

Before the effect and after it; once, and lasting, as when a disk has gone bad.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle
from typing import Any

import pytest

from crash.driver import Arena, discard, start, trace_of
from crash.failing import faulty
from crash.scenarios import BY_NAME, SCENARIOS, Scenario
from holdfast.testing import CHANGES, Fail, Fault, ShortWrite

Counted = Callable[[int], None]
Sampled = Callable[[Sequence[Any]], list[Any]]
ERRORS = (errno.EIO, errno.ENOSPC, errno.EINTR, errno.ENOMEM, errno.EDQUOT, errno.EROFS)
_WRITES = ("write", "pwrite")


def verdicts(arena: Arena, scenario: Scenario, faults: Iterable[Fault]) -> Iterator[str]:
    outcome = arena.outcome(scenario)
    for fault in faults:
        begun = start(arena, scenario)
        yield from faulty(begun, outcome, scenario, fault)
        discard(begun.place)


def short_writes(trace: tuple[str, ...]) -> list[Fault]:
    return [ShortWrite(number) for number, name in enumerate(trace, 1) if name in _WRITES]


def lasting(trace: tuple[str, ...], error: int) -> list[Fault]:
    return [Fail(number, error, "before", True) for number, name in enumerate(trace, 1) if name in CHANGES]


@pytest.mark.crash
@pytest.mark.parametrize("name", ["few", pytest.param("types-undo", marks=pytest.mark.long)])
def test_an_error_at_every_change_of_the_disk(name: str, arena: Arena, errors_injected: Counted) -> None:
    """An error after the effect of any call that changes the disk: the old tree or the new one, told truthfully."""
    trace = trace_of(arena, BY_NAME[name])
    kinds = cycle(ERRORS)
    faults = [Fail(number, next(kinds), "after") for number, call in enumerate(trace, 1) if call in CHANGES]
    assert list(verdicts(arena, BY_NAME[name], faults)) == []
    errors_injected(len(faults))


@pytest.mark.crash
@pytest.mark.long
def test_an_error_at_every_call(arena: Arena, errors_injected: Counted) -> None:
    """An error at any call at all, reading and closing ones included, leaves nothing behind that is in the way."""
    trace = trace_of(arena, BY_NAME["one"])
    kinds = cycle(ERRORS)
    faults = [Fail(number, next(kinds)) for number in range(1, len(trace) + 1)]
    assert list(verdicts(arena, BY_NAME["one"], faults)) == []
    errors_injected(len(faults))


@pytest.mark.crash
@pytest.mark.long
def test_a_disk_that_goes_bad_and_stays_bad(arena: Arena, errors_injected: Counted) -> None:
    """When from some call on everything fails, the old tree is back as soon as the disk is, or the new one stays."""
    trace = trace_of(arena, BY_NAME["folders"])
    faults = [*lasting(trace, errno.EROFS), *short_writes(trace)]
    assert list(verdicts(arena, BY_NAME["folders"], faults)) == []
    errors_injected(len(faults))


@pytest.mark.crash_full
@pytest.mark.parametrize("name", [scenario.name for scenario in SCENARIOS])
def test_an_error_anywhere(name: str, arena: Arena, sampled: Sampled, errors_injected: Counted) -> None:
    """An error before any call, after any change, from any change on, a short write: old or new, told truthfully."""
    trace = trace_of(arena, BY_NAME[name])
    kinds = cycle(ERRORS)
    before: list[Fault] = [Fail(number, next(kinds)) for number in range(1, len(trace) + 1)]
    after = [Fail(number, next(kinds), "after") for number, call in enumerate(trace, 1) if call in CHANGES]
    faults = sampled([*before, *after, *lasting(trace, errno.EROFS), *short_writes(trace)])
    assert list(verdicts(arena, BY_NAME[name], faults)) == []
    errors_injected(len(faults))


@pytest.mark.crash_full
@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.__getitem__)
def test_each_kind_of_error(error: int, arena: Arena, errors_injected: Counted) -> None:
    """Each kind of error, before and after each change of the disk."""
    trace = trace_of(arena, BY_NAME["few"])
    numbers = [number for number, call in enumerate(trace, 1) if call in CHANGES]
    faults = [Fail(number, error, when) for when in ("before", "after") for number in numbers]
    assert list(verdicts(arena, BY_NAME["few"], faults)) == []
    errors_injected(len(faults))
