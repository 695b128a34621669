"""Effects outside the files: what a `service` step asks for, and how it is taken back.

| key                            | value                         | taken back by, unless `undo` says otherwise |
|--------------------------------|-------------------------------|---------------------------------------------|
| restart, reload, start, stop   | name of a service             | the same, the same, stop, start             |
| launch                         | a command as a list of words  | ending what was launched                    |
| call                           | URL; method, body beside it   | nothing: it cannot be taken back            |
"""

from __future__ import annotations

import re

from holdfast.intake.fields import argv_of, duration_of, known_keys, mapping_of, text_of, word_of
from holdfast.intake.urls import url_of
from holdfast.intake.values import Fault, Value, quoted
from holdfast.model.plan import Call, Effect, Launch, Service, Signal, Verb

_VERBS: tuple[Verb, ...] = ("restart", "reload", "start", "stop")
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_KINDS = frozenset((*_VERBS, "launch", "call"))
_OF_A_CALL = frozenset(("call", "method", "body"))
# What systemd accepts as a unit name, and no option: it reaches a command line.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9:_.@\\-]{0,254}")


def service_of(step: dict[str, Value]) -> Service:
    """A service step as read; its keys are known to be `service`, `undo` and `within`."""
    try:
        effect = _effect(mapping_of(step["service"], "service"))
    except Fault as fault:
        raise fault.inside("service") from None
    undo: Effect | None = None
    if "undo" in step:
        try:
            undo = _effect(mapping_of(step["undo"], "undo"))
        except Fault as fault:
            raise fault.inside("undo") from None
    made = Service(effect, undo if undo is not None else _opposite(effect))
    return made._replace(within_ms=duration_of(step["within"], "within")) if "within" in step else made


def _effect(fields: dict[str, Value]) -> Effect:
    kinds = [key for key in fields if key in _KINDS]
    if len(kinds) != 1:
        known_keys(fields, _KINDS | _OF_A_CALL, "a service step")
        raise Fault("a service step does exactly one thing", hint="One of: " + ", ".join(sorted(_KINDS)))
    kind = kinds[0]
    known_keys(fields, _OF_A_CALL if kind == "call" else frozenset((kind,)), kind)
    if kind == "launch":
        return Launch(argv_of(fields["launch"], "launch"))
    if kind == "call":
        return _call(fields)
    return Signal(word_of(kind, kind, _VERBS), _service_name(fields[kind], kind))


def _call(fields: dict[str, Value]) -> Call:
    url = url_of(fields["call"], "call")
    method = word_of(fields.get("method", "POST"), "method", _METHODS)
    return Call(url, method, text_of(fields.get("body", ""), "body"))


def _service_name(value: Value, key: str) -> str:
    name = text_of(value, key)
    if not _NAME.fullmatch(name):
        raise Fault(f"{key}: {quoted(name)} is not the name of a service", key)
    return name


def _opposite(effect: Effect) -> Effect | None:
    """What takes an effect back when nothing is declared; a launched program is ended by whoever launched it."""
    if not isinstance(effect, Signal):
        return None
    if effect.verb == "start":
        return Signal("stop", effect.name)
    if effect.verb == "stop":
        return Signal("start", effect.name)
    return effect
