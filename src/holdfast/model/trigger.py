"""Triggers as nouns: what happened outside, and what it fires.

    DUE ──begin──▶ BEGUN ──start came back──▶ STARTED
     │               ├─────start refused────▶ FAILED, or DUE again: a file of a queue waits for the run under way
     │               └─────killed, found later, told──▶ MISSED
     └──its trigger is gone, its file is gone, told───▶ MISSED

Invariants
  G1  A firing has one id, made from what fired it (the moment, the delivery, the file): same cause, same firing.
  G2  Only DUE may begin. BEGUN means that a run may have been started; nothing leads from there to another start
      but the word of whoever was to start it that nothing was started.
"""

from __future__ import annotations

import hashlib
from typing import Literal, NamedTuple

Kind = Literal["cron", "changed", "webhook", "queue"]
KINDS: tuple[Kind, ...] = ("cron", "changed", "webhook", "queue")
FiringState = Literal["DUE", "BEGUN", "STARTED", "FAILED", "MISSED"]
FIRING_STATES: tuple[FiringState, ...] = ("DUE", "BEGUN", "STARTED", "FAILED", "MISSED")
_ID_LENGTH = 20


class Happened(NamedTuple):
    """Something from outside that may fire a trigger. Nothing in it is trusted; `body` is data and never a command.

    `key` makes it this happening and no other: a delivery id, the identity of a file. `what` is for people.
    """

    trigger: str
    kind: Kind
    key: str
    what: str = ""
    body: bytes = b""


class Firing(NamedTuple):
    """One start of a run that a trigger asks for.

    `since_ns` is before `moment_ns` where several moments passed unattended and became this one firing.
    """

    id: str
    trigger: str
    kind: Kind
    moment_ns: int
    since_ns: int
    what: str = ""
    body: bytes = b""
    # From the configuration as it is now; for a queue the file that was taken.
    roadmap: str = ""
    agent: str = ""

    @property
    def late(self) -> bool:
        return self.since_ns != self.moment_ns


class Mark(NamedTuple):
    """How far a trigger was looked after: the last moment, or what its files looked like.

    `rule` is what the trigger watched then; a mark of another rule says nothing about this one.
    """

    trigger: str
    rule: str
    moment_ns: int = 0
    like: str = ""


Tale = Literal["started", "failed", "missed", "refused", "left"]


class Told(NamedTuple):
    """What a person should hear about a trigger."""

    tale: Tale
    trigger: str
    words: str
    firing: str = ""


def firing_id(trigger: str, kind: Kind, key: str) -> str:
    """The same cause gives the same id (G1)."""
    said = "\0".join((trigger, kind, key)).encode("utf-8", "surrogateescape")
    return f"f-{hashlib.sha256(said).hexdigest()[:_ID_LENGTH]}"
