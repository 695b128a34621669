"""Effects: which actions outside the files a transaction has begun, written before each of them begins.

    <txn>/effects     one JSON line a fact, each synced before what comes next; what there is to do is in the log
      {"v": 1, "actions": 2}
      {"n": 0, "fact": "begun", "ran": true} ─▶ {"n": 0, "fact": "done"} ─▶ {"n": 0, "fact": "taken back"}

An action that could not even begin has only the last of these, and one whose program cannot be started the first and
the last: nothing stands of either.
`ran` says whether the service ran before (null: nobody knows); whoever takes the action back leaves it so.

Invariants
  F1  An action has a durable "begun" before it begins: after a crash everything that may have happened is known.
  F2  "taken back" is written after the compensation; a crash in between runs it once more, never not at all.
  F3  A torn last line announces nothing, for what it announces never began; it is cut off before the next is written.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Literal, NamedTuple, get_args

from holdfast.disk.calls import Calls
from holdfast.errors import Tampering

NAME = "effects"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_LIMIT = 1 << 24
_Name = Literal["begun", "done", "taken back"]
_NAMES: tuple[_Name, ...] = get_args(_Name)


class Open(NamedTuple):
    """An action that was begun and not taken back; `ran`: did the service run before it?"""

    number: int
    ran: bool | None


class Course(NamedTuple):
    """How far an action came. One that could not even begin was reached, and nothing else."""

    is_begun: bool
    is_done: bool
    is_taken_back: bool


class _Fact(NamedTuple):
    """One line of the file after the first."""

    number: int
    name: _Name
    ran: bool | None


class Effects:
    """The file of one transaction; `directory` is its folder, borrowed for each call."""

    def __init__(self, calls: Calls, directory: int) -> None:
        self._calls = calls
        self._directory = directory

    def announce(self, actions: int) -> None:
        self._append({"v": 1, "actions": actions})
        self._calls.fsync(self._directory)

    def begun(self, number: int, ran: bool | None) -> None:
        self._append({"n": number, "fact": "begun", "ran": ran})
        self._calls.point("action-begun")

    def done(self, number: int) -> None:
        self._append({"n": number, "fact": "done"})
        self._calls.point("action-done")

    def never_begun(self, number: int) -> None:
        """It could not be, or nothing came of it: for whoever asks what stands it was taken back."""
        self._append({"n": number, "fact": "taken back"})

    def taken_back(self, number: int) -> None:
        self._append({"n": number, "fact": "taken back"})
        self._calls.point("action-taken-back")

    def standing(self, planned: int) -> list[Open]:
        """The actions that were begun and not taken back, newest first; Tampering when this is no file of ours."""
        lines = self._lines()
        if not lines:
            return []
        if lines[0] != {"v": 1, "actions": planned}:
            raise Tampering("the list of service actions in the journal is not one of ours")
        found: dict[int, Open] = {}
        for fact in (_fact(line, planned) for line in lines[1:]):
            if fact.name == "taken back":
                found.pop(fact.number, None)
            elif fact.name == "begun":
                found[fact.number] = Open(fact.number, fact.ran)
        return sorted(found.values(), reverse=True)

    def done_numbers(self) -> frozenset[int]:
        """The actions that were done, whatever became of them later."""
        facts = (line for line in self._lines()[1:] if isinstance(line, dict))
        return frozenset(fact["n"] for fact in facts if fact.get("fact") == "done")

    def courses(self) -> tuple[Course, ...]:
        """Of every action that was reached, in order; the others never began."""
        facts: dict[int, set[str]] = {}
        for line in self._lines()[1:]:
            if isinstance(line, dict) and isinstance(line.get("n"), int):
                facts.setdefault(line["n"], set()).add(str(line.get("fact")))
        known = [facts.get(number, set()) for number in range(max(facts, default=-1) + 1)]
        return tuple(Course("begun" in each, "done" in each, {"begun", "taken back"} <= each) for each in known)

    def has_facts(self) -> bool:
        """Is anything known, beside how many actions there were to be?"""
        return len(self._lines()) > 1

    def _append(self, fact: Mapping[str, object]) -> None:
        data = json.dumps(fact).encode("ascii") + b"\n"
        fd = self._calls.open(NAME, _OPEN, 0o600, dir_fd=self._directory)
        try:
            whole = self._whole(fd)
            if self._calls.fstat(fd).st_size > len(whole):
                self._calls.truncate(fd, len(whole))  # F3
            if self._calls.pwrite(fd, data, len(whole)) != len(data):
                raise OSError(28, "the journal of service actions was written only in part")
            self._calls.fdatasync(fd)
        finally:
            self._calls.close(fd)

    def _lines(self) -> list[object]:
        try:
            fd = self._calls.open(NAME, _READ, dir_fd=self._directory)
        except FileNotFoundError:
            return []
        try:
            whole = self._whole(fd)
        finally:
            self._calls.close(fd)
        try:
            return [json.loads(line) for line in whole.splitlines()]
        except (ValueError, RecursionError) as error:
            raise Tampering(f"the list of service actions in the journal is damaged: {error}") from error

    def _whole(self, fd: int) -> bytes:
        """Everything up to the last line that is complete."""
        data = self._calls.pread(fd, _LIMIT, 0)
        return data[: data.rfind(b"\n") + 1]


def _fact(line: object, planned: int) -> _Fact:
    if not isinstance(line, dict):
        raise Tampering("the list of service actions in the journal is damaged: a line is no fact")
    number, ran = line.get("n"), line.get("ran")
    name = next((known for known in _NAMES if known == line.get("fact")), None)
    if not isinstance(number, int) or not 0 <= number < planned or name is None:
        raise Tampering("the list of service actions in the journal names one that was not planned")
    return _Fact(number, name, ran if isinstance(ran, bool) else None)
