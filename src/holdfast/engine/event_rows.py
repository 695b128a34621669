"""What a run tells, as JSON and back: for logs, for streams, for whoever reads them later.

    RunEvent ──fields_of_event──▶ {"run": …, "task": …, …} ──a line of a log, with its kind──▶ event_from ──▶ RunEvent

Invariants
  V1  Whole events survive the road there and back unchanged; a log may have cut or masked their texts on the way.
  V2  A row that is no event of ours (another kind, a field missing, unknown or of the wrong type) is None, never a
      guess: a log can be edited by anybody who can write there.
  V3  What was added to an event later is missing in older logs, which stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from holdfast.model.agent import Happening, Usage, fields_of
from holdfast.model.canonical import Json
from holdfast.model.run import AgentSeen, RunEvent

_EVENTS: dict[str, type[Any]] = {kind._field_defaults["event"]: kind for kind in get_args(RunEvent)}
_HAPPENINGS: dict[str, type[Any]] = {kind._field_defaults["kind"]: kind for kind in get_args(Happening)}
_HINTS: dict[type[Any], dict[str, Any]] = {
    kind: get_type_hints(kind) for kind in (*_EVENTS.values(), *_HAPPENINGS.values(), Usage)
}
_ADDED: dict[str, dict[str, Json]] = {
    "TASK_FAILED": {"not_before_ns": 0},
    "HEARTBEAT": {"waiting": 0},
    "TASK_STATE": {"part": 0},
    "TASK_COMPLETED": {"unverified": ""},
}  # V3
# What every line of a log has besides the event (see store.line_log).
_OF_THE_LINE = ("version", "at_ns", "kind")


def fields_of_event(event: RunEvent) -> dict[str, Json]:
    """Everything but its name, as plain values."""
    fields: dict[str, object] = dict(event._asdict())
    del fields["event"]
    if isinstance(event, AgentSeen):
        fields["happening"] = fields_of(event.happening)
    return {name: _plain(value) for name, value in fields.items()}


def event_from(row: Mapping[str, Json]) -> RunEvent | None:
    """V2."""
    kind = row.get("kind")
    if not isinstance(kind, str) or kind not in _EVENTS:
        return None
    fields = {name: value for name, value in row.items() if name not in _OF_THE_LINE}
    try:
        made: RunEvent = _made(_EVENTS[kind], {**_ADDED.get(kind, {}), **fields, "event": kind})
    except ValueError:
        return None
    return made


def task_of(event: RunEvent) -> str:
    """The task it is about; empty for what is about the whole run."""
    return getattr(event, "task", "")


def _plain(value: object) -> Json:
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    assert value is None or isinstance(value, (bool, int, str)), value
    return value


def _made(kind: type[Any], fields: Json) -> Any:
    hints = _HINTS[kind]
    if not isinstance(fields, dict) or fields.keys() != hints.keys():
        raise ValueError(f"these are not the fields of {kind.__name__}")
    return kind(**{name: _value(hint, fields[name]) for name, hint in hints.items()})


def _value(hint: Any, found: Json) -> object:
    if hint is Usage:
        return _made(Usage, found)
    if hint == Happening:
        named = found.get("kind") if isinstance(found, dict) else None
        if isinstance(named, str) and named in _HAPPENINGS:
            return _made(_HAPPENINGS[named], found)
    elif get_origin(hint) is Literal:
        if isinstance(found, str) and found in get_args(hint):
            return found
    elif get_origin(hint) is tuple:
        if isinstance(found, list) and all(isinstance(item, str) for item in found):
            return tuple(found)
    elif isinstance(found, hint) and not isinstance(found, bool):
        return found
    raise ValueError(f"{found!r} is no {hint}")
