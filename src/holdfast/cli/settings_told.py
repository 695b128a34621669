"""What `doctor` says about configuration and policy: what is in force, and which file says so."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from holdfast.cli.reports import Report
from holdfast.cli.words import count, size
from holdfast.engine.configured import File, Judgement, Value
from holdfast.model.path import printable
from holdfast.model.tables import Source

_SHOWN_FAILURES = 5


def policy_report(found: Judgement, sources: Iterable[Source]) -> Report:
    named = " + ".join(["built-in", *(source.layer for source in sources)])
    detail = f"{named}, {count(len(found.policy.rules), 'rule')}, {count(found.tests, 'self-test')}"
    if found.failures:
        told = [failure.sentence for failure in found.failures[:_SHOWN_FAILURES]]
        more = (*told, "Nothing is decided by a policy that fails its own tests.")
        return Report("Policy", f"{detail}, {len(found.failures)} FAIL", False, needed=True, more=more)
    return Report("Policy", f"{detail} pass", True)


def configuration_report(files: Sequence[File], values: Sequence[Value]) -> Report:
    """Every value in force: those that a file states a line each, the defaults a line a table."""
    detail = " · ".join(f"{file.layer} {printable(file.path) if file.present else 'none'}" for file in files)
    stated = [value for value in values if value.layers]
    width = max((len(value.key) for value in stated), default=0)
    told = [f"{value.key:<{width}}  {_text(value)}  ({' + '.join(value.layers)})" for value in stated]
    return Report("Configuration", detail, True, more=(*told, *_defaults(values)))


def _defaults(values: Iterable[Value]) -> list[str]:
    rest = [value for value in values if not value.layers and value.value != ""]
    lines = []
    for table, group in groupby(rest, key=lambda value: value.key.rpartition(".")[0]):
        told = ", ".join(f"{value.key.rpartition('.')[2]} {_text(value)}" for value in group)
        lines.append(f"{table}: {told}  (default)")
    return lines


def _text(value: Value) -> str:
    said = value.value
    if isinstance(said, bool):
        return "yes" if said else "no"
    if isinstance(said, int):
        return _measured(said, value.unit)
    if isinstance(said, list):
        return ", ".join(_word(item) for item in said) or "none"
    if isinstance(said, Mapping):
        return ", ".join(_pairs(said)) or "none"
    return _word(said) if said else "none"


def _pairs(said: Mapping[str, object], above: str = "") -> Iterator[str]:
    """What of a table is set, also of a table in it."""
    for key, item in said.items():
        if isinstance(item, Mapping):
            yield from _pairs(item, f"{above}{key}.")
        elif item not in (None, (), [], ""):
            yield f"{above}{key}={_word(item)}"


def _measured(number: int, unit: str) -> str:
    if unit == "ms":
        return _as_written(number)
    return size(number) if unit == "bytes" else f"{number:,}{unit}"


def _as_written(milliseconds: int) -> str:
    """The largest unit that leaves no rest, as one would write it into the file."""
    for unit, length in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % length == 0:
            return f"{milliseconds // length}{unit}"
    return f"{milliseconds}ms"


def _word(item: object) -> str:
    return printable(shlex.join(map(str, item)) if isinstance(item, (list, tuple)) else str(item))


def configuration_document(files: Sequence[File], values: Sequence[Value]) -> dict[str, object]:
    return {"files": [file._asdict() for file in files], "values": [value._asdict() for value in values]}


def policy_document(found: Judgement) -> dict[str, object]:
    rules: dict[str, int] = {}
    for rule in found.policy.rules:
        rules[rule.layer] = rules.get(rule.layer, 0) + 1
    return {
        "digest": found.policy.digest,
        "rules": rules,
        "self_tests": found.tests,
        "failures": [failure.sentence for failure in found.failures],
    }
