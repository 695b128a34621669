"""The `verify` and `health` of a change file: what must be checked, each check of one kind, or plain words.

    verify: "run the tests; lint"             words
    verify: {skip: "only a comment changed"}  nothing, for a reason that is kept
    verify: [{run: [...]}, {tests: [...], junit: r.xml, minimum_coverage: "80%"}, "lint"]
    health: [{http: ...}, {tcp: ...}, {database: ...}, {service: ...}, {process: ...}, {run: ...}, "the site answers"]

Words are kept as they stand; what they mean depends on the project and is settled by the checks themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Generic, NamedTuple, TypeVar

from holdfast.intake.addresses import PASSWORD_HINT, database_url_of, endpoint_of
from holdfast.intake.fields import (
    argv_of,
    duration_of,
    known_keys,
    list_of,
    mapping_of,
    path_of,
    percentage_of,
    prose_of,
    required,
    text_of,
    whole_number_of,
)
from holdfast.intake.urls import url_of
from holdfast.intake.values import Fault, Value, quoted
from holdfast.model.check import (
    CommandCheck,
    DatabaseCheck,
    HealthCheck,
    HttpCheck,
    ProcessCheck,
    ServiceCheck,
    SuiteCheck,
    TcpCheck,
    VerifyCheck,
    masked_words,
)

MAX_FAILURES = 1_000_000
_TIMES = ("within", "settle", "every")
_TEST_KEYS = frozenset(
    ("tests", "junit", "coverage", "minimum_coverage", "maximum_failures", "required_tests", "within")
)
_RUN_KEYS = frozenset(("run", "within"))
# systemd's own alphabet; a leading dash would be an option.
_UNIT = re.compile(r"[A-Za-z0-9_@:.\\][A-Za-z0-9_@:.\\-]{0,254}")
_Check = TypeVar("_Check", VerifyCheck, HealthCheck)
_Timed = TypeVar("_Timed", CommandCheck, HttpCheck, TcpCheck, DatabaseCheck, ServiceCheck, ProcessCheck)


class Asked(NamedTuple, Generic[_Check]):
    checks: tuple[_Check, ...] = ()
    words: tuple[str, ...] = ()
    skipped: str = ""


def verification_of(document: Mapping[str, Value]) -> Asked[VerifyCheck]:
    value = document.get("verify", [])
    if isinstance(value, dict):
        try:
            known_keys(value, frozenset(("skip",)), "verify")
            reason = prose_of(required(value, "skip", "verify"), "skip")
        except Fault as fault:
            raise fault.inside("verify") from None
        if not reason.strip():
            raise Fault("skip must give the reason", "verify", "skip")
        return Asked(skipped=reason)
    return _asked(value, "verify", _verify_check)


def health_of(document: Mapping[str, Value]) -> Asked[HealthCheck]:
    return _asked(document.get("health", []), "health", _health_check)


def _asked(value: Value, key: str, one: Callable[[dict[str, Value]], _Check]) -> Asked[_Check]:
    if isinstance(value, str):
        return Asked(words=(_words(value, key, key),))
    checks: list[_Check] = []
    words: list[str] = []
    for index, item in enumerate(list_of(value, key, key)):
        if isinstance(item, str):
            words.append(_words(item, key, key, index))
            continue
        try:
            checks.append(one(mapping_of(item, f"a {key} check")))
        except Fault as fault:
            raise fault.inside(key, index) from None
    return Asked(tuple(checks), tuple(words))


def _words(value: str, key: str, *where: str | int) -> str:
    try:
        text = prose_of(value, key)
    except Fault as fault:
        raise Fault(fault.message, *where) from None
    if masked_words(text) != text:
        raise Fault(f"{key}: a URL must not carry a password", *where, hint=PASSWORD_HINT)
    if not text.strip():
        raise Fault(f"{key} says nothing", *where, hint=f'Give a list of checks: {key}: [{{run: ["make", "test"]}}]')
    return text


def _verify_check(check: dict[str, Value]) -> VerifyCheck:
    if "tests" in check:
        if "run" in check:
            raise Fault('a check is either "run" or "tests", not both', "tests")
        return _suite_check(check)
    known_keys(check, _RUN_KEYS if "run" in check else _RUN_KEYS | _TEST_KEYS, "a check")
    if "run" not in check:
        raise Fault('a check needs "run" or "tests"')
    return _timed(CommandCheck(argv_of(check["run"], "run")), check)


def _suite_check(check: dict[str, Value]) -> SuiteCheck:
    known_keys(check, _TEST_KEYS, "a tests check")
    made = SuiteCheck(argv_of(check["tests"], "tests"))
    if "junit" in check:
        made = made._replace(junit=path_of(check["junit"], "junit"))
    if "coverage" in check:
        made = made._replace(coverage=path_of(check["coverage"], "coverage"))
    if "minimum_coverage" in check:
        made = made._replace(minimum_coverage=percentage_of(check["minimum_coverage"], "minimum_coverage"))
    if "maximum_failures" in check:
        value = whole_number_of(check["maximum_failures"], "maximum_failures", 0, MAX_FAILURES)
        made = made._replace(maximum_failures=value)
    if "required_tests" in check:
        made = made._replace(required=argv_of(check["required_tests"], "required_tests"))
    if "within" in check:
        made = made._replace(within_ms=duration_of(check["within"], "within"))
    if made.minimum_coverage is not None and not made.coverage:
        raise Fault('minimum_coverage needs "coverage", the file to read it from', "minimum_coverage")
    for key, asked in (("maximum_failures", made.maximum_failures > 0), ("required_tests", bool(made.required))):
        if asked and not made.junit:
            raise Fault(f'{key} needs "junit", the file to read the results from', key)
    return made


def _health_check(check: dict[str, Value]) -> HealthCheck:
    kinds = [key for key in check if key in _HEALTH]
    if not kinds:
        known_keys(check, frozenset(_HEALTH).union(*(kind.keys for kind in _HEALTH.values())), "a health check")
        raise Fault(f"a health check needs {_either(list(_HEALTH))}")
    if len(kinds) > 1:
        raise Fault(f"a health check is either {_either(kinds[:2])}, not both", kinds[1])
    kind = _HEALTH[kinds[0]]
    known_keys(check, kind.keys | {kinds[0], *_TIMES}, "a health check")
    return kind.make(check)


def _http(check: dict[str, Value]) -> HttpCheck:
    made = HttpCheck(url_of(check["http"], "http"))
    if "expect" in check:
        made = made._replace(status=whole_number_of(check["expect"], "expect", 100, 599))
    if "contains" in check:
        made = made._replace(contains=_sought(check["contains"]))
    return _timed(made, check)


def _tcp(check: dict[str, Value]) -> TcpCheck:
    return _timed(TcpCheck(*endpoint_of(check["tcp"], "tcp")), check)


def _database(check: dict[str, Value]) -> DatabaseCheck:
    made = DatabaseCheck(database_url_of(check["database"], "database"))
    if "password_file" in check:
        made = made._replace(password_file=_file_text(check["password_file"], "password_file"))
    return _timed(made, check)


def _service(check: dict[str, Value]) -> ServiceCheck:
    unit = text_of(check["service"], "service")
    if not _UNIT.fullmatch(unit):
        raise Fault(f"service: {quoted(unit)} is not the name of a systemd unit", "service")
    return _timed(ServiceCheck(unit), check)


def _process(check: dict[str, Value]) -> ProcessCheck:
    value = check["process"]
    if isinstance(value, dict):
        try:
            known_keys(value, frozenset(("name", "pid_file")), "process")
            name = _file_text(value["name"], "name") if "name" in value else ""
            pid_file = _file_text(value["pid_file"], "pid_file") if "pid_file" in value else ""
            if not (name or pid_file):
                raise Fault('process needs "name" or "pid_file"')
        except Fault as fault:
            raise fault.inside("process") from None
    else:
        name, pid_file = _file_text(value, "process"), ""
    if "/" in name:
        raise Fault(f"process: {quoted(name)} is not a command's name", "process",
                    hint="For a file with the number in it: process: {pid_file: run/app.pid}")  # fmt: skip
    return _timed(ProcessCheck(name, pid_file), check)


def _run(check: dict[str, Value]) -> CommandCheck:
    return _timed(CommandCheck(argv_of(check["run"], "run")), check)


class _Kind(NamedTuple):
    make: Callable[[dict[str, Value]], HealthCheck]
    keys: frozenset[str] = frozenset()


_HEALTH = {
    "http": _Kind(_http, frozenset(("expect", "contains"))),
    "run": _Kind(_run),
    "tcp": _Kind(_tcp),
    "database": _Kind(_database, frozenset(("password_file",))),
    "service": _Kind(_service),
    "process": _Kind(_process),
}


def _timed(made: _Timed, check: Mapping[str, Value]) -> _Timed:
    given = {key: duration_of(check[key], key) for key in _TIMES if key in check}
    return made._replace(
        within_ms=given.get("within", made.within_ms),
        settle_ms=given.get("settle", made.settle_ms),
        every_ms=given.get("every", made.every_ms),
    )


def _file_text(value: Value, key: str) -> str:
    text = text_of(value, key)
    if not text or "\0" in text:
        raise Fault(f"{key} must not {'be empty' if not text else 'contain a NUL byte'}", key)
    return text


def _sought(value: Value) -> str:
    text = text_of(value, "contains")
    if not text:
        raise Fault("contains must not be empty; every answer contains nothing", "contains")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise Fault("contains must be text that UTF-8 can spell", "contains") from None
    return text


def _either(words: list[str]) -> str:
    *first, last = (quoted(word) for word in words)
    return f"{', '.join(first)} or {last}"
