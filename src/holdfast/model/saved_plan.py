"""A plan read back from its document: the same value with the same digest, or ValueError.

The document names contents by SHA-256 and size. The digest covers exactly that,
so a plan whose bytes are no longer at hand (`Digested`) can still be shown and judged; it cannot be rehearsed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar, get_args

from holdfast.model.plan import (
    Content,
    Digested,
    Effect,
    HealthCheck,
    Inline,
    Plan,
    Step,
    Update,
    VerifyCheck,
)

# From SHA-256 and size to the bytes, wherever they are kept; what is small and compared is given as it is.
Finder: TypeAlias = Callable[[str, int], Content]
_Made = TypeVar("_Made", covariant=True)


class _Kind(Protocol[_Made]):
    """One of the named tuples of a closed union."""

    __name__: str
    _fields: tuple[str, ...]

    def __call__(self, **fields: Any) -> _Made: ...


_STEPS: dict[str, _Kind[Step]] = {kind._field_defaults["action"]: kind for kind in get_args(Step)}
_VERIFY: dict[str, _Kind[VerifyCheck]] = {kind._field_defaults["kind"]: kind for kind in get_args(VerifyCheck)}
_HEALTH: dict[str, _Kind[HealthCheck]] = {kind._field_defaults["kind"]: kind for kind in get_args(HealthCheck)}
_EFFECTS: tuple[_Kind[Effect], ...] = get_args(Effect)


def digested(sha256: str, size: int) -> Content:
    """The finder for whoever has no bytes."""
    return Digested(sha256, size)


def plan_from(document: Mapping[str, Any], find: Finder = digested) -> Plan:
    """The plan whose document this is."""
    try:
        plan = Plan(
            intent=document["intent"],
            objective=document["objective"],
            rationale=document["rationale"],
            risk=document["risk_proposed"],
            verify=tuple(map(verify_from, document["verification_plan"])),
            health=tuple(map(health_from, document["health_checks"])),
            on_failure=document["on_failure"],
            words=tuple(document["verification_in_words"]),
            unverified_because=document["unverified_because"],
            verify_mode=document.get("verify_mode", "auto"),
            health_words=tuple(document.get("health_in_words", ())),
            notes=tuple(document.get("notes", ())),
            patch=document.get("patch", ""),
            steps=tuple(step_from(row, find) for row in document["steps"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"this is not the document of a plan: {flaw(error)}") from error
    if plan.digest != document.get("digest"):
        raise ValueError("the document of the plan was changed: its digest is another one")
    return plan


def flaw(error: Exception) -> str:
    """What is wrong with a document, for a person: which field is missing, as far as that can be told."""
    missing = error.args[0] if isinstance(error, KeyError) and error.args else ""
    if isinstance(missing, str) and missing.isidentifier():
        return f"{missing} is missing"
    return "a field is missing, unknown or of another type"


def verify_from(row: Mapping[str, Any]) -> VerifyCheck:
    """One check of the verification plan from its description."""
    return _record(_VERIFY[row["kind"]], row)


def health_from(row: Mapping[str, Any]) -> HealthCheck:
    """One health check from its description."""
    return _record(_HEALTH[row["kind"]], row)


def step_from(row: Mapping[str, Any], find: Finder = digested) -> Step:
    """One step from its description."""
    step = _record(_STEPS[row["action"]], {name: _value(name, value, find) for name, value in row.items()})
    if isinstance(step, Update) and not isinstance(step.old, (bytes, Digested)):
        raise TypeError("the old content of an update is bytes")
    return step


def _value(name: str, value: Any, find: Finder) -> Any:
    if name == "content":
        return find(value["sha256"], value["size"])
    if name == "old":
        found = find(value["sha256"], value["size"])
        return found.data if isinstance(found, Inline) else Digested(value["sha256"], value["size"])
    if name in ("effect", "compensation") and value is not None:
        return _effect(value)
    return value


def _effect(row: Mapping[str, Any]) -> Effect:
    for kind in _EFFECTS:
        if set(row) == set(kind._fields):
            return _record(kind, row)
    raise KeyError(f"no effect has the fields {sorted(row)}")


def _record(kind: _Kind[_Made], row: Mapping[str, Any]) -> _Made:
    """Exactly the fields of the kind; JSON's lists are our tuples."""
    if set(row) != set(kind._fields):
        raise KeyError(f"{kind.__name__} has the fields {', '.join(kind._fields)}")
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()})
