"""What the ledger's tests share: a ledger in a directory, and kernels that fail on purpose."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from holdfast.disk.calls import CALLS, Calls
from holdfast.store.ledger import LEDGER_NAME, Ledger

KEY = bytes(range(32))
WORKSPACE = "w-1234"
AT = 1_700_000_000_000_000_000

# Every call of `Calls` that the ledger may make, and whose loss could matter.
_COUNTED = ("open", "close", "pread", "read", "write", "pwrite", "fstat", "mkdir", "unlink", "fchmod", "fsync",
            "fdatasync", "truncate", "move", "point")  # fmt: skip


class House:
    """A workspace's state directory and, beside it, the user's directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / "state"
        self.path = self.state / LEDGER_NAME
        self.anchor = root / "home" / "anchors" / WORKSPACE
        self.state.mkdir(mode=0o700, parents=True, exist_ok=True)

    def ledger(self, calls: Calls = CALLS) -> Ledger:
        return Ledger(str(self.state), KEY, WORKSPACE, str(self.anchor), calls)

    def filled(self, count: int) -> House:
        ledger = self.ledger()
        for number in range(1, count + 1):
            append(ledger, number)
        return self

    def copy(self, root: Path) -> House:
        shutil.rmtree(root, ignore_errors=True)
        shutil.copytree(self.root, root)
        return House(root)

    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    def rewrite(self, lines: list[bytes]) -> None:
        self.path.write_bytes(b"".join(lines))


def append(ledger: Ledger, number: int) -> None:
    ledger.append("execution", {"execution_id": f"x-{number}", "number": number}, AT + number)


def numbers(ledger: Ledger) -> list[object]:
    return [entry.body["number"] for entry in ledger.entries()]


class Faulty(Calls):
    """The real kernel until the N-th call, which `fault` replaces; `fault` gets the name and the call itself."""

    def __init__(self, nth: int, fault: Callable[[str, Callable[[], object]], object]) -> None:
        self.made: list[str] = []
        for name in _COUNTED:
            setattr(self, name, self._wrapped(name, getattr(Calls, name), nth, fault))

    def _wrapped(
        self, name: str, real: Callable[..., object], nth: int, fault: Callable[[str, Callable[[], object]], object]
    ) -> Callable[..., object]:
        def call(*args: object, **named: object) -> object:
            self.made.append(name)
            if len(self.made) == nth:
                return fault(name, lambda: real(*args, **named))
            return real(*args, **named)

        return call


class TornWrite(Calls):
    """The first write to a ledger (an offset write) reaches the file only in part, and then the process dies."""

    def __init__(self, length: int) -> None:
        def pwrite(fd: int, data: bytes, offset: int) -> int:
            os.pwrite(fd, data[:length], offset)
            os._exit(9)

        self.pwrite = pwrite  # type: ignore[method-assign,assignment]


def in_child(work: Callable[[], object]) -> int:
    """Run in a forked child; its exit status (0: the work was done, 1: it raised, otherwise it was killed)."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
