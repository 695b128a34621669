"""The plan: ordered steps with what must hold before, what to check after, and what to do when it fails.

A plan is a value; execution spends it and decides nothing.
Its digest covers every field, contents by SHA-256, so an approval of a digest is an approval of the bytes.

The steps form a closed union. What a `run` or `agent` step does to files is known only when it was tried in a shadow.
"""

from __future__ import annotations

import hashlib
import re
from base64 import b32encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from holdfast.model.canonical import canonical_rows
from holdfast.model.check import CommandCheck as CommandCheck
from holdfast.model.check import HealthCheck as HealthCheck
from holdfast.model.check import HttpCheck as HttpCheck
from holdfast.model.check import VerifyCheck as VerifyCheck
from holdfast.model.check import document as check_document
from holdfast.model.check import masked, masked_words
from holdfast.model.path import printable

Risk = Literal["low", "medium", "high", "critical"]
RISKS: tuple[Risk, ...] = ("low", "medium", "high", "critical")
OnFailure = Literal["rollback", "stop", "continue"]
VerifyMode = Literal["auto", "agent"]
VERIFY_MODES: tuple[VerifyMode, ...] = ("auto", "agent")
Verb = Literal["restart", "reload", "start", "stop"]
_STEPS_AT_ONCE = 512
# Where the words of an order stop being those of whoever asked: see `planning.task_words` and `intake.roadmap.prose`.
_NOT_STATED = re.compile(r"^(?:~~~|It is done |=====ROADMAP-)", re.MULTILINE)


class Inline(NamedTuple):
    """Bytes that came with the plan."""

    data: bytes


class FromFile(NamedTuple):
    """Bytes read from a file beside the change file when the plan is rehearsed; `origin` is the absolute path."""

    origin: str
    size: int
    sha256: str


class Digested(NamedTuple):
    """Bytes known only by their digest: the plan was read back from the records. It can be judged, not rehearsed."""

    sha256: str
    size: int


Content: TypeAlias = Inline | FromFile | Digested


class Write(NamedTuple):
    """Create or replace a file; parents are created. Without `mode`, an existing file keeps its own."""

    path: str
    content: Content
    mode: int | None = None
    action: Literal["write"] = "write"


class Update(NamedTuple):
    """Replace a file whose content is exactly `old`."""

    path: str
    old: bytes | Digested
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


class Run(NamedTuple):
    """A command that runs in the shadow; whatever it does to files there becomes part of the change set."""

    argv: tuple[str, ...]
    within_ms: int = 600_000
    action: Literal["run"] = "run"

    @property
    def path(self) -> str:
        """Its effects are found by capture; the step itself names no path."""
        return ""


class Agent(NamedTuple):
    """A task for an agent, which works in the shadow; whatever it does to files there becomes part of the change set.

    `files` are worth its look, `expected` must be there afterwards. After a failed attempt it is told what was found.
    """

    name: str
    task: str
    files: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    attempts: int = 3
    within_ms: int = 1_200_000
    action: Literal["agent"] = "agent"

    @property
    def stated(self) -> str:
        """What whoever asked says in it. An order holds more: data between marks, and what must hold in the end."""
        return _NOT_STATED.split(self.task, maxsplit=1)[0]

    @property
    def path(self) -> str:
        return ""


class Signal(NamedTuple):
    """Restart, reload, start or stop a service of the host by its name."""

    verb: Verb
    name: str


class Launch(NamedTuple):
    """Start a program that stays."""

    argv: tuple[str, ...]


class Call(NamedTuple):
    """An HTTP request that must be answered with a status from 200 to 299."""

    url: str
    method: str = "POST"
    body: str = ""


Effect: TypeAlias = Signal | Launch | Call


class Service(NamedTuple):
    """An effect outside the files, after they are in place. Without compensation it cannot be taken back."""

    effect: Effect
    compensation: Effect | None = None
    within_ms: int = 30_000
    action: Literal["service"] = "service"

    @property
    def path(self) -> str:
        return ""


FileStep: TypeAlias = Write | Update | Create | Delete | Move | Chmod | Symlink | Read
ProgramStep: TypeAlias = Run | Agent
Step: TypeAlias = FileStep | ProgramStep | Service


@dataclass(frozen=True, slots=True)
class Plan:
    intent: str
    steps: tuple[Step, ...]
    objective: str = ""
    rationale: str = ""
    risk: Risk = "low"
    verify: tuple[VerifyCheck, ...] = ()
    health: tuple[HealthCheck, ...] = ()
    on_failure: OnFailure = "rollback"
    # Checks asked for in plain words; what they mean is settled when the tree is there (see checks.words).
    words: tuple[str, ...] = ()
    # Why no checks are wanted at all; empty when they are.
    unverified_because: str = ""
    # Who chooses the checks: what is detected and configured, or the agent; then configuration and the plan's own
    # checks are run all the same, and the change counts as unverified by tests.
    verify_mode: VerifyMode = "auto"
    # Health checks asked for in plain words.
    health_words: tuple[str, ...] = ()
    # What a person must know before saying yes and no step tells, such as a hunk of a patch that applied elsewhere.
    # Holdfast writes them; no change file can.
    notes: tuple[str, ...] = ()
    # The digest of the patch whose steps these are: whoever applies it did not write it. Empty for all others.
    patch: str = ""
    # Files beside the change file that contents were read from: told to whoever says yes, no part of what is done.
    content_files: tuple[str, ...] = field(default=(), compare=False)
    # Over everything above, contents included; made once, since it reads every byte of them.
    digest: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        whole = {
            **self._head(),
            # With their passwords, which `_head` masks: another password is another plan.
            "verification_plan": [check._asdict() for check in self.verify],
            "verification_in_words": list(self.words),
            "health_checks": [check._asdict() for check in self.health],
            **_if_any("health_in_words", self.health_words),
        }
        digest = hashlib.sha256(canonical_rows(whole))
        for start in range(0, len(self.steps), _STEPS_AT_ONCE):
            digest.update(canonical_rows([row_of(step) for step in self.steps[start : start + _STEPS_AT_ONCE]]))
        object.__setattr__(self, "digest", digest.hexdigest())

    @property
    def id(self) -> str:
        """Short and stable: the same plan has the same id wherever it is written."""
        return "p-" + b32encode(bytes.fromhex(self.digest))[:8].decode("ascii").lower()

    @property
    def agent(self) -> str:
        """The agent that makes part of the change, and so is its author; empty when none does."""
        return next((step.name for step in self.steps if isinstance(step, Agent)), "")

    @property
    def runs_programs(self) -> bool:
        """Is some of the change made by programs, so that only a rehearsal tells what it is?"""
        return any(isinstance(step, (Run, Agent)) for step in self.steps)

    @property
    def is_by_hand(self) -> bool:
        """Did whoever gives it say themselves what becomes of each file?"""
        return not self.runs_programs and not self.patch

    @property
    def affected_paths(self) -> tuple[str, ...]:
        named = {step.path for step in self.steps if not isinstance(step, (Read, Run, Agent, Service))}
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
            "verification_plan": [check_document(check) for check in self.verify],
            "verification_in_words": [masked_words(text) for text in self.words],
            "unverified_because": self.unverified_because,
            "health_checks": [check_document(check) for check in self.health],
            **_if_any("health_in_words", [masked_words(text) for text in self.health_words]),
            **({"verify_mode": self.verify_mode} if self.verify_mode != "auto" else {}),
            **_if_any("notes", self.notes),
            "rollback_plan": "restore every touched path from the journal, then prove it by digest",
            "on_failure": self.on_failure,
            **({"patch": self.patch} if self.patch else {}),
        }


def _if_any(name: str, texts: Sequence[str]) -> dict[str, object]:
    """Named only where there are some: plans of older releases keep their digests."""
    return {name: list(texts)} if texts else {}


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
    if isinstance(value, (FromFile, Digested)):
        return {"sha256": value.sha256, "size": value.size}
    if isinstance(value, bytes):
        return _bytes_row(value)
    if isinstance(value, (Signal, Launch, Call)):
        return value._asdict()
    return value


def _bytes_row(data: bytes) -> dict[str, object]:
    return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}


def worded(effect: Effect) -> str:
    """For a person: `restart nginx`, `launch ./serve`, `POST http://…`; without a token in the address."""
    match effect:
        case Signal():
            return f"{effect.verb} {effect.name}"
        case Launch():
            return f"launch {printable(' '.join(effect.argv))}"
        case Call():
            return f"{effect.method} {printable(masked(effect.url))}"
