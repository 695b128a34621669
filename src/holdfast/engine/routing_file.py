"""routing_decisions.json: a person's decisions about who gets which task, accepted as an input.

    {"version": 1, "decisions": [{"task": "1.2", "agent": "codex", "reason": "knows the parser"},
                                 {"task": "docs-*", "agent": "claude"}]}

`task` is an id, or a pattern with `*` and `?`; an exact id stands above a pattern, and among patterns the first wins.
A tool that writes the file in pieces marks the finished one: `"ROUTING_COMPLETE": true`, or the same word in `flags`.

Invariants
  F1  Unknown fields, wrong types and the same task twice are refused: a typing error never becomes a missing decision.
  F2  A file that says its routing is not complete is refused: half of the decisions would send tasks to other agents.
  F3  What is decided about a task that the roadmap does not have is told before a run begins, for the same reason.
  F4  Reading decides nothing; whether the named agent is there is for the router to say.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from holdfast.errors import InvalidInput
from holdfast.intake.jsontext import load
from holdfast.intake.values import Fault
from holdfast.model.path import printable
from holdfast.model.tables import Table
from holdfast.workspace.site import Site

FILE = "routing_decisions.json"
VERSION = 1
COMPLETE = "ROUTING_COMPLETE"
MOST_DECISIONS = 10_000
MOST_BYTES = 4 << 20
_LONGEST = 200
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class RoutingDecision(NamedTuple):
    task: str
    agent: str
    reason: str = ""

    @property
    def is_pattern(self) -> bool:
        return "*" in self.task or "?" in self.task


def decisions_in(data: bytes, file: str = FILE) -> tuple[RoutingDecision, ...]:
    """The decisions of a file's bytes, or InvalidInput that says where."""
    if len(data) > MOST_BYTES:
        raise InvalidInput(f"{printable(file)} is larger than {MOST_BYTES >> 20} MiB")
    try:
        value = load(data.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{printable(file)} is not UTF-8 text") from error
    except Fault as error:
        where = f"{printable(file)}:{error.line}" if error.line else printable(file)
        raise InvalidInput(f"{where}: {error.message}", hint=error.hint) from error
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{printable(file)}: must be an object with decisions")
    return _decisions(Table(value, file))


def _decisions(top: Table) -> tuple[RoutingDecision, ...]:
    version = top.integer("version")
    if version not in (None, VERSION):
        top.refuse("version", f"is {version}; this Holdfast reads {VERSION}")
    complete = top.flag(COMPLETE)
    flags = top.texts("flags")
    if complete is False or (flags is not None and COMPLETE not in flags and not complete):
        hint = f"wait for the tool that writes it, or set {COMPLETE} to true"
        top.refuse(COMPLETE, "is not set: the routing is not complete", hint=hint)
    if "decisions" not in top:
        top.refuse("decisions", "is missing")
    tables = top.tables("decisions")
    top.close()
    if len(tables) > MOST_DECISIONS:
        top.refuse("decisions", f"are more than {MOST_DECISIONS}")
    found = tuple(_decision(table) for table in tables)
    seen: set[str] = set()
    for table, decision in zip(tables, found, strict=True):
        if decision.task in seen:
            table.refuse("task", f"{decision.task!r} was decided before in this file")
        seen.add(decision.task)
    return found


def _decision(table: Table) -> RoutingDecision:
    decision = RoutingDecision(_word(table, "task"), _word(table, "agent"), table.text("reason") or "")
    table.close()
    return decision


def _word(table: Table, key: str) -> str:
    text = table.text(key)
    if not text or len(text) > _LONGEST:
        table.refuse(key, "is missing" if text is None else f"must be a text of 1 to {_LONGEST} characters")
    return text


def read_decisions(site: Site) -> tuple[RoutingDecision, ...]:
    """Those of the workspace's own file; none where there is none."""
    site.workspace.forget()
    try:
        fd = site.calls.open_beneath(FILE, _READ, site.workspace.fd)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InvalidInput(f"{FILE} cannot be read: {error.strerror}") from error
    try:
        return decisions_in(site.calls.pread(fd, MOST_BYTES + 1, 0))
    finally:
        site.calls.close(fd)


def decision_for(task: str, decisions: Sequence[RoutingDecision]) -> RoutingDecision | None:
    """The decision about this task; an exact id stands above every pattern."""
    exact = next((each for each in decisions if each.task == task), None)
    if exact is not None:
        return exact
    return next((each for each in decisions if each.is_pattern and _fits(each.task, task)), None)


def undecidable(decisions: Sequence[RoutingDecision], tasks: Collection[str]) -> tuple[str, ...]:
    """What exact decisions name and is none of these ids and numbers. A pattern may fit nothing."""
    return tuple(each.task for each in decisions if not each.is_pattern and each.task not in tasks)


def _fits(pattern: str, task: str) -> bool:
    """`*` is any text, `?` any one character. One place to come back to is enough, so no pattern is slow."""
    at, place, star, kept = 0, 0, -1, 0
    while place < len(task):
        if at < len(pattern) and pattern[at] == "*":
            star, kept, at = at, place, at + 1
        elif at < len(pattern) and pattern[at] in ("?", task[place]):
            at, place = at + 1, place + 1
        elif star >= 0:
            kept += 1
            at, place = star + 1, kept
        else:
            return False
    return not pattern[at:].strip("*")
