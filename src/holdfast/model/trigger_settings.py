"""What configuration says about triggers; read from decoded tables.

Only the user's and the managed layer may say any of it: a repository must never start runs by itself.

A cron expression has the five fields of crontab(5): `*`, numbers, names of months and days, ranges, steps, lists.
What is beyond that (seconds, L, #, @daily) is refused: readers disagree about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.errors import InvalidPath
from holdfast.model.path import checked_path
from holdfast.model.tables import Table
from holdfast.model.trigger import KINDS, Kind

SETTLE_MS = 5_000
# It becomes a file name and a part of an address.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LONGEST_SETTLE_MS = 3_600_000
_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC".split()
_DAYS = "SUN MON TUE WED THU FRI SAT".split()


class _Field(NamedTuple):
    word: str
    least: int
    most: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        """Its value, or ValueError."""
        if text.upper() in self.names:
            return self.names.index(text.upper()) + self.least
        if not re.fullmatch(r"[0-9]{1,2}", text) or not self.least <= int(text) <= self.most:
            raise ValueError(text)
        return int(text)


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, tuple(_MONTHS)),
    _Field("day of week", 0, 7, tuple(_DAYS)),
)


class TriggerSettings(NamedTuple):
    """Exactly one of cron, changed, webhook and queue is stated: its kind."""

    name: str
    kind: Kind
    cron: str = ""
    timezone: str = "UTC"
    # Patterns from the top of the workspace.
    changed: tuple[str, ...] = ()
    # Files must have been left alone for so long.
    settle_ms: int = SETTLE_MS
    # A directory of the workspace.
    queue: str = ""
    # Empty is the roadmap, or the agent, that a run would take by itself.
    roadmap: str = ""
    agent: str = ""


def triggers_in(table: Table) -> Iterator[TriggerSettings]:
    for name in table.keys:
        if not _NAME.fullmatch(name):
            table.refuse(name, "is no name of a trigger: letters, digits, - and _, at most 64 of them")
        trigger = table.table(name) or Table({}, table.file, f"{table.name}.{name}")
        yield _trigger(name, trigger)
        trigger.close()


def _trigger(name: str, table: Table) -> TriggerSettings:
    kind = _kind(table)
    cron = _cron(table)
    webhook = table.flag("webhook")
    if webhook is False:
        table.refuse("webhook", "must be true; without a webhook leave it out")
    _only(table, "timezone", kind, ("cron",))
    _only(table, "settle", kind, ("changed", "queue"))
    _only(table, "roadmap", kind, ("cron", "changed", "webhook"))
    return TriggerSettings(
        name=name,
        kind=kind,
        cron=cron,
        timezone=table.text("timezone") or "UTC",
        changed=tuple(_patterns(table)),
        settle_ms=_settle(table),
        queue=_path(table, "queue"),
        roadmap=_path(table, "roadmap"),
        agent=table.text("agent") or "",
    )


def _kind(table: Table) -> Kind:
    stated = [kind for kind in KINDS if kind in table]
    if len(stated) != 1:
        table.refuse(stated[1] if stated else "cron", f"must be stated alone: exactly one of {', '.join(KINDS)}")
    return stated[0]


def _only(table: Table, key: str, kind: Kind, kinds: tuple[Kind, ...]) -> None:
    if key in table and kind not in kinds:
        table.refuse(key, f"says nothing beside {kind}")


def _settle(table: Table) -> int:
    stated = table.duration_ms("settle")
    if stated is not None and stated > _LONGEST_SETTLE_MS:
        table.refuse("settle", "must be an hour at most")
    return SETTLE_MS if stated is None else stated


def _path(table: Table, key: str) -> str:
    stated = table.text(key)
    if stated is None:
        return ""
    try:
        return checked_path(stated)
    except InvalidPath as error:
        table.refuse(key, f"must be a path in the workspace: {error.message}")


def _patterns(table: Table) -> Iterator[str]:
    """Each begins with a name that is spelled out, unless it stays in the top directory: no tree is watched whole."""
    patterns = table.texts("changed")
    if patterns == ():
        table.refuse("changed", "must name at least one file")
    for pattern in patterns or ():
        names = pattern.rstrip("/").split("/")
        try:
            checked_path("/".join(name.replace("*", "x").replace("?", "x") for name in names))
        except InvalidPath as error:
            table.refuse("changed", f"must be patterns for files of the workspace: {error.message}")
        if names[0] == "**" or (len(names) > 1 and set("*?") & set(names[0])):
            table.refuse(
                "changed",
                f"would watch the whole workspace: {pattern!r}",
                hint='Begin with a directory, as in "plans/**".',
            )
        if any("**" in name and name != "**" for name in names):
            table.refuse("changed", f"has ** inside a name: {pattern!r}")
        yield "/".join(names)


def _cron(table: Table) -> str:
    """The expression with single blanks, each field understood."""
    stated = table.text("cron")
    if stated is None:
        return ""
    parts = stated.split()
    if len(parts) != len(_FIELDS):
        table.refuse("cron", f'must have five fields, as in "0 2 * * *", not {len(parts)}')
    for field, part in zip(_FIELDS, parts, strict=True):
        try:
            for item in part.split(","):
                _check_item(field, item)
        except ValueError:
            table.refuse("cron", f"has a {field.word} that is none: {part!r}")
    return " ".join(parts)


def _check_item(field: _Field, item: str) -> None:
    span, slash, step = item.partition("/")
    if slash and (not re.fullmatch(r"[0-9]{1,2}", step) or int(step) == 0):
        raise ValueError(item)
    if span == "*":
        return
    first, dash, last = span.partition("-")
    if field.number(first) > (field.number(last) if dash else field.most):
        raise ValueError(item)
