"""A pattern: what it asks for, what it looks at, what it produces; and how that becomes a plan.

    inputs (validated) ─▶ reads: which files it must see ─▶ Facts ─▶ build: Draft ─▶ plan_of: Plan

Invariants
  P1  The same inputs over the same facts give the same plan, byte for byte.
  P2  Every path of a plan was checked, whoever wrote the pattern.
  P3  Nothing that exists is overwritten: a file is created (and must not be there), or updated from exactly the bytes
      that were looked at.
  P4  A pattern yields a plan and nothing else. Simulation, gates and checks judge it like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from holdfast.errors import Blocked, InvalidInput
from holdfast.model.canonical import Json
from holdfast.model.path import checked_path, printable
from holdfast.model.plan import Create, Inline, Plan, Read, Step, Update, VerifyCheck

Inputs: TypeAlias = Mapping[str, Json]
Schema: TypeAlias = "dict[str, Json]"
# Whose it is: ours, the user's own, or one that came with the repository and is therefore untrusted.
Origin = Literal["built-in", "user", "project"]


class Facts(NamedTuple):
    """The tree, as far as the pattern asked: every file that is not ignored, and the bytes of those it must see."""

    files: frozenset[str] = frozenset()
    contents: Mapping[str, bytes] = {}

    def text(self, path: str) -> str:
        """A file as text; empty where there is none, odd bytes replaced."""
        return self.contents.get(path, b"").decode("utf-8", "replace")


class Produced(NamedTuple):
    """A file as it should be afterwards. With `refreshes`, one that is there already is brought up to date."""

    path: str
    content: str
    mode: int | None = None
    refreshes: bool = False


class Draft(NamedTuple):
    """What a pattern makes of its inputs. `words` are checks in plain words."""

    intent: str
    files: tuple[Produced, ...]
    verify: tuple[VerifyCheck, ...] = ()
    words: tuple[str, ...] = ()


def reads_nothing(inputs: Inputs, files: frozenset[str]) -> tuple[str, ...]:
    return ()


class Pattern(NamedTuple):
    """`schema` is JSON schema, draft 2020-12; `example` satisfies it, and is tried in the tests."""

    id: str
    title: str
    description: str
    schema: Schema
    example: Inputs
    build: Callable[[Inputs, Facts], Draft]
    reads: Callable[[Inputs, frozenset[str]], tuple[str, ...]] = reads_nothing
    origin: Origin = "built-in"

    def document(self) -> dict[str, Json]:
        """As JSON shows it."""
        return {
            "id": self.id,
            "title": self.title,
            "description": self.description,
            "origin": self.origin,
            "inputs": self.schema,
            "example": dict(self.example),
        }


def plan_of(pattern: Pattern, inputs: Inputs, facts: Facts) -> Plan:
    """The plan; InvalidInput where the inputs contradict each other, Blocked where the tree is in the way."""
    draft = pattern.build(inputs, facts)
    whose = "" if pattern.origin == "built-in" else f" ({pattern.origin})"
    steps = tuple(step for produced in _checked(pattern, draft.files) for step in _steps(pattern, produced, facts))
    changes = any(not isinstance(step, Read) for step in steps)
    return Plan(
        intent=draft.intent,
        steps=steps,
        rationale=f"made by the pattern {pattern.id}{whose} from its inputs; no model was asked",
        # Where all is up to date there is nothing that a check could be about.
        verify=draft.verify if changes else (),
        words=draft.words if changes else (),
    )


def _checked(pattern: Pattern, files: tuple[Produced, ...]) -> Iterator[Produced]:
    """Each file with its path checked (P2); one path is produced once."""
    seen: set[str] = set()
    for produced in files:
        if produced.path.endswith("/"):
            raise InvalidInput(f"{pattern.id}: {printable(produced.path)} names a directory, not a file")
        path = checked_path(produced.path)
        if path in seen:
            raise InvalidInput(f"{pattern.id}: {printable(path)} would be produced twice")
        seen.add(path)
        yield produced._replace(path=path)


def _steps(pattern: Pattern, produced: Produced, facts: Facts) -> Iterator[Step]:
    data = _bytes(pattern, produced)
    if produced.path not in facts.files:
        yield Create(produced.path, directory=False, mode=produced.mode)  # P3: refuses what came in between
        if data:
            yield Update(produced.path, b"", Inline(data))
    elif not produced.refreshes:
        raise Blocked(
            f"{pattern.id}: {printable(produced.path)} exists already, and a pattern overwrites nothing",
            hint="Choose another name, or move that file away first.",
        )
    elif produced.path not in facts.contents:
        raise Blocked(f"{pattern.id}: {printable(produced.path)} is too large to be brought up to date")
    elif facts.contents[produced.path] == data:
        yield Read(produced.path)  # up to date: a plan that only looks
    else:
        yield Update(produced.path, facts.contents[produced.path], Inline(data))


def _bytes(pattern: Pattern, produced: Produced) -> bytes:
    try:
        return produced.content.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput(f"{pattern.id}: {printable(produced.path)} would hold half a character") from None
