"""Verification plans in plain words become checks, by rules a person can follow; no model.

    text ─▶ quotes, commands and URLs set aside ─▶ clauses ─▶ each one rule, or not understood, with the reason

Invariants
  H1  A clause is understood whole or not at all: every word in it is known to the rule that takes it.
      So nothing is run that was not asked for, and nothing that was asked for is dropped in silence.
  H2  A clause that says no, or that depends on something (do not, skip, except, if, unless), is never understood.
  H3  The same words always give the same checks.

Words about verification ask for checks of any kind. Words about health ask only for what can be asked afterwards, on
the host, so there a command is a health check as well, and tests are not understood.

English only. What is not understood is for the caller to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from holdfast.checks.clauses import Clause, clauses_of
from holdfast.checks.demands import criteria_in, files_in, is_about_health, level_in, means_everything
from holdfast.checks.levels import LEVELS, Level
from holdfast.checks.phrases import (
    PROGRAMS,
    Modifiers,
    command_in,
    database_in,
    http_in,
    modifiers_of,
    port_in,
    process_in,
    refusal_in,
    service_in,
)
from holdfast.checks.reports import Criteria
from holdfast.model.check import CommandCheck, HealthCheck, HttpCheck, masked_words
from holdfast.model.plan import Plan

# Ordinary words where they stand alone; only backticks make a command of one.
_WITH_ARGUMENTS = frozenset(
    """grep test diff cmp sh bash uv uvx poetry pipenv pdm hatch bun deno just ruby php perl java swift ant cmake ninja
    meson""".split()
)
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+(?:\[[ xX]\]\s+)?")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_WHEN_DONE = re.compile(
    rf"(?i)^\s*(?:{_BULLET.pattern[1:]})?[*_]{{0,3}}"
    r"(?:verif(?:y|ied|ication)|accept(?:ed|ance)?|done|validat(?:e|ion)|check|test)"
    r"(?: (?:when|once|by|with|that|criteria|criterion|tests?|command|running))*"
    r"(?:[*_]{0,3}:[*_]{0,3}|(?<=when)|(?<=once)|(?<=that)|(?<=with)|(?<=by)|(?<=running))\s*"
)


class NotUnderstood(NamedTuple):
    text: str
    why: str


class Understood(NamedTuple):
    """What some words ask for.

    `everything`: whatever is detected. `levels`: these by name. `health` are checks that the words spell out;
    `wants_health` asks for those that the plan has elsewhere.
    """

    levels: tuple[Level, ...] = ()
    everything: bool = False
    files: tuple[str, ...] = ()
    commands: tuple[CommandCheck, ...] = ()
    health: tuple[HealthCheck, ...] = ()
    wants_health: bool = False
    criteria: Criteria = Criteria(needs_results=False)
    not_understood: tuple[NotUnderstood, ...] = ()


def understood(texts: Iterable[str]) -> Understood:
    """All the texts together, as words about verification."""
    return _read(texts, _Reading())


def understood_as_health(texts: Iterable[str]) -> Understood:
    """All the texts together, as words about health: everything that is asked for is in `health`."""
    return _read(texts, _HealthReading())


def acceptance_in(text: str) -> tuple[tuple[str, ...], ...]:
    """The commands in the lines that say when a task is done: "Verify: …", "Done when `…` passes", bullets below
    "Acceptance criteria:". Only what is sure to be a command: of a program that is known, or named by a path."""
    found: dict[tuple[str, ...], None] = {}
    below = fenced = False
    for line in text.splitlines():
        fenced ^= _FENCE.match(line) is not None
        label = None if fenced else _WHEN_DONE.match(line)
        below = label is not None if label is not None else below and _BULLET.match(line) is not None
        said = line[label.end() :] if label is not None else _BULLET.sub("", line, count=1) if below else ""
        found.update((check.argv, None) for check in understood([said]).commands if _is_sure(check.argv))
        below = below and (label is None or not said.strip(" *:"))
    return tuple(found)


def _is_sure(argv: tuple[str, ...]) -> bool:
    return argv[0] in PROGRAMS or "/" in argv[0] or (argv[0] in _WITH_ARGUMENTS and len(argv) > 1)


def health_in_words(plan: Plan) -> tuple[HealthCheck, ...]:
    """The health checks that the plan asks for in words, whether they stand under verification or under health."""
    return (*understood(plan.words).health, *understood_as_health(plan.health_words).health)


def health_of(plan: Plan) -> tuple[HealthCheck, ...]:
    """Every health check that is run after the change."""
    return (*plan.health, *health_in_words(plan))


def _read(texts: Iterable[str], reading: _Reading) -> Understood:
    for text in texts:
        for clause in clauses_of(text):
            reading.take(clause)
    return reading.result()


class _Reading:
    """What was understood so far. The last check is remembered: `and contains "ok"` speaks of it."""

    strange = "no rule knows all of these words"

    def __init__(self) -> None:
        self._levels: set[Level] = set()
        self._whole = Understood()
        self._last: CommandCheck | HealthCheck | None = None

    def take(self, clause: Clause) -> None:
        why = refusal_in(clause)
        if why:
            self._refuse(clause, why)
        elif not any(rule(clause) for rule in self._rules()):
            self._refuse(clause, self.strange)

    def _rules(self) -> tuple[Callable[[Clause], bool], ...]:
        return (self._check, self._level, self._criteria, self._files, self._general, self._modifier)

    def _check(self, clause: Clause) -> bool:
        check = (
            command_in(clause)
            or http_in(clause)
            or database_in(clause)
            or port_in(clause)
            or service_in(clause)
            or process_in(clause)
        )
        if check is None:
            return False
        self._last = check
        self._add(check)
        return True

    def _add(self, check: CommandCheck | HealthCheck) -> None:
        if isinstance(check, CommandCheck):
            self._whole = self._whole._replace(commands=(*self._whole.commands, check))
        else:
            self._whole = self._whole._replace(health=(*self._whole.health, check))

    def _level(self, clause: Clause) -> bool:
        found = level_in(clause)
        self._levels |= found
        return bool(found)

    def _criteria(self, clause: Clause) -> bool:
        found = criteria_in(clause, self._whole.criteria)
        if found is not None:
            self._levels.add("tests")
            self._whole = self._whole._replace(criteria=found)
        return found is not None

    def _files(self, clause: Clause) -> bool:
        found = files_in(clause)
        self._whole = self._whole._replace(files=(*self._whole.files, *found))
        return bool(found)

    def _general(self, clause: Clause) -> bool:
        if is_about_health(clause):
            self._whole = self._whole._replace(wants_health=True)
            return True
        if means_everything(clause):
            self._whole = self._whole._replace(everything=True)
            return True
        return False

    def _modifier(self, clause: Clause) -> bool:
        """`and contains "ok"`, `within 10 seconds`: of the check before."""
        found = modifiers_of(clause)
        if self._last is None or found is None:
            return False
        changed = _modified(self._last, found)
        if changed is None:
            return False
        self._drop_last()
        self._last = changed
        self._add(changed)
        return True

    def _drop_last(self) -> None:
        if isinstance(self._last, CommandCheck):
            self._whole = self._whole._replace(commands=self._whole.commands[:-1])
        else:
            self._whole = self._whole._replace(health=self._whole.health[:-1])

    def _refuse(self, clause: Clause, why: str) -> None:
        item = NotUnderstood(masked_words(clause.text), why)
        self._whole = self._whole._replace(not_understood=(*self._whole.not_understood, item))
        self._last = None

    def result(self) -> Understood:
        return self._whole._replace(levels=tuple(level for level in LEVELS if level in self._levels))


class _HealthReading(_Reading):
    strange = "no rule knows all of these words as something to ask after the change"

    def _rules(self) -> tuple[Callable[[Clause], bool], ...]:
        return (self._check, self._modifier)

    def _add(self, check: CommandCheck | HealthCheck) -> None:
        self._whole = self._whole._replace(health=(*self._whole.health, check))

    def _drop_last(self) -> None:
        self._whole = self._whole._replace(health=self._whole.health[:-1])


def _modified(check: CommandCheck | HealthCheck, found: Modifiers) -> CommandCheck | HealthCheck | None:
    if isinstance(check, HttpCheck):
        check = check._replace(status=found.status or check.status, contains=found.contains or check.contains)
    elif found.status or found.contains:
        return None
    if found.settle_ms and isinstance(check, CommandCheck):
        return None
    within, settle = found.within_ms or check.within_ms, found.settle_ms or check.settle_ms
    return check._replace(within_ms=within, settle_ms=settle)
