"""The whole document: from the value of a change file to a Plan.

Everything the language does not know is refused; nothing has a default that a person could not read in `Plan`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from holdfast.intake.contents import Contents
from holdfast.intake.fields import (
    argv_of,
    duration_of,
    known_keys,
    list_of,
    mapping_of,
    prose_of,
    required,
    text_of,
    whole_number_of,
    word_of,
)
from holdfast.intake.steps import step_of
from holdfast.intake.values import Fault, Value, quoted
from holdfast.model.plan import RISKS, CommandCheck, HealthCheck, HttpCheck, OnFailure, Plan, Step

MAX_STEPS = 200_000
_ON_FAILURE: tuple[OnFailure, ...] = ("rollback", "stop", "continue")
_TOP = frozenset(("intent", "objective", "rationale", "steps", "risk", "verify", "health", "on_failure"))
_COMMAND = frozenset(("run", "within"))
_HTTP = frozenset(("http", "expect", "contains", "within"))
_Check = TypeVar("_Check", CommandCheck, HealthCheck)


def plan_of(value: Value, directory: str) -> Plan:
    """The plan a document spells, or Fault. Steps are taken out of `value` as they are read."""
    document = mapping_of(value, "a change file")
    known_keys(document, _TOP)
    for key in ("intent", "steps"):
        required(document, key, "a change file")
    intent = prose_of(document["intent"], "intent")
    if not intent.strip():
        raise Fault("intent must say what is wanted", "intent")
    return Plan(
        intent=intent,
        objective=prose_of(document.get("objective", ""), "objective"),
        rationale=prose_of(document.get("rationale", ""), "rationale"),
        risk=word_of(document.get("risk", "low"), "risk", RISKS),
        verify=_checks(document, "verify", _command_check),
        health=_checks(document, "health", _health_check),
        on_failure=word_of(document.get("on_failure", "rollback"), "on_failure", _ON_FAILURE),
        steps=_steps(document["steps"], directory),
    )


def _steps(value: Value, directory: str) -> tuple[Step, ...]:
    items = list_of(value, "steps", "steps")
    if not items:
        raise Fault("steps must name at least one step", "steps")
    if len(items) > MAX_STEPS:
        raise Fault(f"{len(items)} steps are more than {MAX_STEPS}", "steps")
    steps: list[Step] = []
    with Contents(directory) as contents:
        for index, item in enumerate(items):
            try:
                steps.append(step_of(item, contents))
            except Fault as fault:
                raise fault.inside("steps", index) from None
            items[index] = None  # its text is not needed beside its bytes; this halves the peak
    return tuple(steps)


def _checks(document: dict[str, Value], key: str, one: Callable[[dict[str, Value]], _Check]) -> tuple[_Check, ...]:
    if key not in document:
        return ()
    value = document[key]
    if isinstance(value, str):
        raise _plain_words(key, key)
    checks: list[_Check] = []
    for index, item in enumerate(list_of(value, key, key)):
        if isinstance(item, str):
            raise _plain_words(key, key, index)
        try:
            checks.append(one(mapping_of(item, f"a {key} check")))
        except Fault as fault:
            raise fault.inside(key, index) from None
    return tuple(checks)


def _plain_words(key: str, *where: str | int) -> Fault:
    return Fault(f"{key} in plain words is not understood in this release", *where,
                 hint=f'Give a list of checks: {key}: [{{run: ["make", "test"]}}]')  # fmt: skip


def _command_check(check: dict[str, Value]) -> CommandCheck:
    known_keys(check, _COMMAND, "a check")
    argv = argv_of(required(check, "run", "a check"), "run")
    return CommandCheck(argv, duration_of(check["within"], "within")) if "within" in check else CommandCheck(argv)


def _health_check(check: dict[str, Value]) -> HealthCheck:
    if "http" not in check:
        if "run" not in check:
            known_keys(check, _HTTP | _COMMAND, "a health check")
            raise Fault('a health check needs "http" or "run"')
        return _command_check(check)
    if "run" in check:
        raise Fault('a health check is either "http" or "run", not both', "run")
    known_keys(check, _HTTP, "a health check")
    made = HttpCheck(_url(check["http"]))
    if "expect" in check:
        made = made._replace(status=whole_number_of(check["expect"], "expect", 100, 599))
    if "contains" in check:
        made = made._replace(contains=_sought(check["contains"]))
    if "within" in check:
        made = made._replace(within_ms=duration_of(check["within"], "within"))
    return made


def _sought(value: Value) -> str:
    text = text_of(value, "contains")
    if not text:
        raise Fault("contains must not be empty; every answer contains nothing", "contains")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Fault("contains must be text that UTF-8 can spell", "contains") from None
    return text


def _url(value: Value) -> str:
    from urllib.parse import urlsplit

    url = text_of(value, "http")
    # A password must not reach a log by way of an error message.
    shown = quoted(url) if "@" not in url else "the URL"
    # urlsplit drops line breaks and tabs in silence, so they are refused before it looks.
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise Fault(f"http: {shown} contains characters that a URL has not", "http", hint="Percent-encode them.")
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise Fault(f"http: {shown} is not well formed", "http") from None
    if "@" in parts.netloc:
        raise Fault("http: the URL must not carry a name or password", "http")
    if parts.scheme not in ("http", "https") or not host:
        raise Fault(f"http: {shown} must begin with http:// or https:// and name a host", "http")
    return url
