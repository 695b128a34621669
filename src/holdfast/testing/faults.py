"""Faults on purpose: a kernel that fails, kills or forgets at exactly the place you name.

    calls = FaultyCalls()
    hf = holdfast.open(".", calls=calls)
    calls.arm(Fail(7, errno.ENOSPC))          # the seventh system call from here on finds the disk full
    with pytest.raises(holdfast.errors.HoldfastError):
        hf.execute(rehearsal, approved_by="me")

    fault                        what it does
    ──────────────────────────────────────────────────────────────────────────────────────────────────────
    Kill(n)                      SIGKILL to this very process before the n-th call; `when="after"`: after it
    KillAt("flipped")            the same at a named point; `time=2` at the second time it is passed
    Fail(n, errno)               OSError before the effect; `when="after"`: the effect happens, and then the error;
                                 `lasting=True`: from there on every call that changes the disk fails
    ShortWrite(n)                the n-th call, when it writes, takes only half of the bytes
    Drop(names)                  these calls pretend to succeed and do nothing, between two named points
    At("prepared", action)       runs your function at a named point (an attacker, a clock, a photograph)

Invariants
  Y1  Inert unless armed: without a fault every call goes through unchanged and is only counted.
  Y2  Only the calls named in `counted` count; `CHANGES` are those that can change what a disk holds.
  Y3  `trace` says what was counted, in order, so a failing number can be read as a place.
  Y4  Whatever `close` says, the descriptor is gone: so it is on Linux, and an error never comes before that.

The points that Holdfast passes, in the order of a successful change:
for each program `shadow-filled`, `capture`, `captured`;
`staged`, `logged`, `prepared`, `flipped`, `applied`, `commit`, `committed`, `ledger.durable`, `in-ledger`,
`in-tables`, `put-away`;
on the way back: `rolled-back`, `aborted`; with service actions: `action-begun`, `action-done`, `action-taken-back`;
in a checkpoint: `git.VERB` before each git command, `index.held`, `move.announced`, `ref.moved`, `index.installed`.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple, TypeAlias

from holdfast.disk.calls import CALLS, Calls

When = Literal["before", "after"]

ALL = frozenset(name for name in vars(Calls) if not name.startswith("_") and name != "point")
SYNCS = frozenset({"fsync", "fdatasync", "sync_file_system", "start_write_back"})
# `open` creates and truncates; the others that only look or move a descriptor cannot change a disk.
_LOOKS = frozenset("close read pread stat fstat readlink listxattr getxattr lseek names entries open_beneath".split())
CHANGES = ALL - _LOOKS
_WRITES = frozenset({"write", "pwrite"})


class Kill(NamedTuple):
    """End this process with SIGKILL at the n-th counted call."""

    number: int
    when: When = "before"


class KillAt(NamedTuple):
    """End this process with SIGKILL at a named point."""

    point: str
    time: int = 1


class Fail(NamedTuple):
    """Raise OSError at the n-th counted call; with `lasting` every later call of CHANGES fails too: a disk gone bad."""

    number: int
    error: int = errno.EIO
    when: When = "before"
    lasting: bool = False


class ShortWrite(NamedTuple):
    """Let the n-th counted call take half of its bytes, when it is a write."""

    number: int


class Drop(NamedTuple):
    """Pretend to do these calls, from each time `after` is passed (None: at once) until `until` is (None: for ever)."""

    names: frozenset[str]
    after: str | None = None
    until: str | None = None


class At(NamedTuple):
    """Run a function at a named point."""

    point: str
    action: Callable[[], None]
    time: int = 1


Fault: TypeAlias = Kill | KillAt | Fail | ShortWrite | Drop | At


class FaultyCalls(Calls):
    """The kernel, with faults. Give it to `holdfast.open(path, calls=...)`, then `arm` it."""

    def __init__(self, *faults: Fault, counted: Iterable[str] = ALL, real: Calls = CALLS) -> None:
        self.counted = frozenset(counted)
        unknown = self.counted - ALL
        if unknown:
            raise ValueError(f"no such call: {', '.join(sorted(unknown))}")
        self._real = real
        self.arm(*faults)
        for name in ALL:
            setattr(self, name, self._wrapped(name, getattr(real, name)))
        # An instance attribute, because the class has a static method of this name.
        setattr(self, "point", self._pass_point)  # noqa: B010

    def arm(self, *faults: Fault) -> None:
        """Replace all faults, and start counting calls and points anew."""
        self._faults = faults
        self._passed: dict[str, int] = {}
        self._moment: dict[str, int] = {}
        self._failing = 0
        self.trace: list[str] = []

    def disarm(self) -> None:
        self.arm()

    @property
    def count(self) -> int:
        """How many counted calls were made since it was armed."""
        return len(self.trace)

    @property
    def points(self) -> tuple[str, ...]:
        """The named points passed since it was armed, each once, in order."""
        return tuple(self._passed)

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            if self._is_dropped(name):
                return len(args[1]) if name in _WRITES else None
            if name not in self.counted:
                return real(*args, **kwargs)
            self.trace.append(name)
            if name == "close":
                real(*args)  # Y4
            self._strike("before", name)
            result = real(*self._shortened(name, args), **kwargs) if name != "close" else None
            self._strike("after", name)
            return result

        return call

    def _strike(self, when: When, name: str) -> None:
        if self._failing and when == "before" and name in CHANGES:
            raise _os_error(self._failing, name)
        for fault in self._faults:
            match fault:
                case Kill(number, moment) if number == self.count and moment == when:
                    _end()
                case Fail(number, error, moment, lasting) if number == self.count and moment == when:
                    self._failing = error if lasting else 0
                    raise _os_error(error, name)

    def _shortened(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        if name in _WRITES and ShortWrite(self.count) in self._faults and len(args[1]) > 1:
            return (args[0], args[1][: len(args[1]) // 2], *args[2:])
        return args

    def _is_dropped(self, name: str) -> bool:
        return any(isinstance(fault, Drop) and name in fault.names and self._is_open(fault) for fault in self._faults)

    def _is_open(self, window: Drop) -> bool:
        opened = 0 if window.after is None else self._moment.get(window.after, -1)
        closed = -1 if window.until is None else self._moment.get(window.until, -1)
        return opened > closed

    def _pass_point(self, name: str) -> None:
        self._real.point(name)
        self._passed[name] = self._passed.get(name, 0) + 1
        self._moment[name] = sum(self._passed.values())
        for fault in self._faults:
            match fault:
                case KillAt(point, time) if (point, time) == (name, self._passed[name]):
                    _end()
                case At(point, action, time) if (point, time) == (name, self._passed[name]):
                    action()


def _os_error(number: int, name: str) -> OSError:
    return OSError(number, f"{os.strerror(number)} (on purpose, at {name})")


def _end() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
