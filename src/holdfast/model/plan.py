"""The plan: ordered steps with what must hold before, what to check after, and what to do when it fails.

A plan is a value; execution spends it and decides nothing.
Its digest covers every field, contents by SHA-256, so an approval of a digest is an approval of the bytes.

The steps form a closed union.
`run`, `service` and `agent` are words of the language that this release refuses (see SHORTCOMINGS.md).
"""

from __future__ import annotations

import hashlib
from base64 import b32encode
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from holdfast.model.canonical import canonical_rows

Risk = Literal["low", "medium", "high", "critical"]
RISKS: tuple[Risk, ...] = ("low", "medium", "high", "critical")
OnFailure = Literal["rollback", "stop", "continue"]
_STEPS_AT_ONCE = 512


class Inline(NamedTuple):
    """Bytes that came with the plan."""

    data: bytes


class FromFile(NamedTuple):
    """Bytes read from a file beside the change file when the plan is rehearsed; `origin` is the absolute path."""

    origin: str
    size: int
    sha256: str


Content: TypeAlias = Inline | FromFile


class Write(NamedTuple):
    """Create or replace a file; parents are created. Without `mode`, an existing file keeps its own."""

    path: str
    content: Content
    mode: int | None = None
    action: Literal["write"] = "write"


class Update(NamedTuple):
    """Replace a file whose content is exactly `old`."""

    path: str
    old: bytes
    content: Content
    mode: int | None = None
    action: Literal["update"] = "update"


class Create(NamedTuple):
    """An empty file or a directory that must not exist yet."""

    path: str
    directory: bool
    mode: int | None = None
    action: Literal["create"] = "create"


class Delete(NamedTuple):
    """A file, a symlink or, with `recursive`, a directory and all in it."""

    path: str
    recursive: bool = False
    action: Literal["delete"] = "delete"


class Move(NamedTuple):
    path: str
    to: str
    action: Literal["move"] = "move"


class Chmod(NamedTuple):
    path: str
    mode: int
    action: Literal["chmod"] = "chmod"


class Symlink(NamedTuple):
    """A symbolic link; an existing link is replaced, anything else refuses."""

    path: str
    target: str
    action: Literal["symlink"] = "symlink"


class Read(NamedTuple):
    """The path must exist and be readable; its digest becomes part of the base."""

    path: str
    action: Literal["read"] = "read"


Step: TypeAlias = Write | Update | Create | Delete | Move | Chmod | Symlink | Read


class CommandCheck(NamedTuple):
    """A command that must exit 0 within a time."""

    argv: tuple[str, ...]
    within_ms: int = 600_000
    kind: Literal["run"] = "run"


class HttpCheck(NamedTuple):
    """A GET that must answer with a status, and optionally contain a text, within a time."""

    url: str
    status: int = 200
    contains: str = ""
    within_ms: int = 10_000
    kind: Literal["http"] = "http"


HealthCheck: TypeAlias = CommandCheck | HttpCheck


@dataclass(frozen=True, slots=True)
class Plan:
    intent: str
    steps: tuple[Step, ...]
    objective: str = ""
    rationale: str = ""
    risk: Risk = "low"
    verify: tuple[CommandCheck, ...] = ()
    health: tuple[HealthCheck, ...] = ()
    on_failure: OnFailure = "rollback"
    # Over everything above, contents included; made once, since it reads every byte of them.
    digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        digest = hashlib.sha256(canonical_rows(self._head()))
        for start in range(0, len(self.steps), _STEPS_AT_ONCE):
            digest.update(canonical_rows([row_of(step) for step in self.steps[start : start + _STEPS_AT_ONCE]]))
        object.__setattr__(self, "digest", digest.hexdigest())

    @property
    def id(self) -> str:
        """Short and stable: the same plan has the same id wherever it is written."""
        return "p-" + b32encode(bytes.fromhex(self.digest))[:8].decode("ascii").lower()

    @property
    def affected_paths(self) -> tuple[str, ...]:
        named = {step.path for step in self.steps if not isinstance(step, Read)}
        named.update(step.to for step in self.steps if isinstance(step, Move))
        return tuple(sorted(named))

    def document(self) -> dict[str, object]:
        """The plan as JSON shows it, without its steps; `described` has each of those."""
        return {**self._head(), "digest": self.digest, "affected_paths": list(self.affected_paths)}

    def _head(self) -> dict[str, object]:
        """Everything but the steps."""
        return {
            "version": 1,
            "intent": self.intent,
            "objective": self.objective,
            "rationale": self.rationale,
            "risk_proposed": self.risk,
            "verification_plan": [check._asdict() for check in self.verify],
            "health_checks": [check._asdict() for check in self.health],
            "rollback_plan": "restore every touched path from the journal, then prove it by digest",
            "on_failure": self.on_failure,
        }


def step_id(index: int) -> str:
    """Steps are numbered from 1, as a person counts."""
    return f"step-{index + 1}"


def row_of(step: Step) -> list[object]:
    """A step as a compact row for the digest."""
    return [_digestible(value) for value in step]


def described(step: Step) -> dict[str, object]:
    """A step as an object for people and JSON: contents by digest and size, never by value (they may hold secrets)."""
    return {name: _digestible(value) for name, value in step._asdict().items()}


def _digestible(value: object) -> object:
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, Inline):
        return _bytes_row(value.data)
    if isinstance(value, FromFile):
        return {"sha256": value.sha256, "size": value.size}
    if isinstance(value, bytes):
        return _bytes_row(value)
    return value


def _bytes_row(data: bytes) -> dict[str, object]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
