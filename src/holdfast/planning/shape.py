"""The safety fields of a plan, filled in by rules: rollback, verification, health and risk.

    Plan (a draft), Classified ─▶ Shaped: what takes it back, which checks should be there and are, the risk

A check that should be there and is not is a gap: the plan stays a plan, and the gate asks a person about it.
No command is invented: which program runs the tests of this project is found out by `checks`, on the tree; where it
finds any, a plan made of words asks for them. What shows that a service works is said by the user or by systemd.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from holdfast.model.check import CommandCheck, HealthCheck, ServiceCheck, VerifyCheck
from holdfast.model.path import printable
from holdfast.model.plan import Call, Effect, Launch, Plan, Read, Risk, Service, Signal
from holdfast.planning.classify import Classified
from holdfast.planning.filekinds import FileKind, kind_of_file
from holdfast.planning.lexicon import Class
from holdfast.planning.risk import Raised, highest, risk_of

Verification = Literal["files", "syntax", "imports", "types", "tests", "lint", "acceptance"]
VERIFICATIONS: tuple[Verification, ...] = ("files", "syntax", "imports", "types", "tests", "lint", "acceptance")

_OF_FILES: dict[FileKind, tuple[Verification, ...]] = {
    "code": ("syntax", "lint", "tests"),
    "test": ("syntax", "tests"),
    "configuration": ("syntax",),
    "dependencies": ("syntax", "imports", "tests"),
    "CI": ("syntax",),
    "start-up": ("syntax",),
}
_OF_CLASSES: dict[Class, tuple[Verification, ...]] = {
    "fix_bug": ("tests",),
    "add_feature": ("tests",),
    "refactor": ("tests",),
    "optimise": ("tests", "acceptance"),
    "configure": ("syntax",),
}
# Nothing is known of an intent without steps but its class; what nobody understood is not called harmless.
_WITHOUT_STEPS: dict[Class, Risk] = {"update_docs": "low", "investigate": "low", "unknown": "high"}
_PROGRAMS: tuple[tuple[frozenset[str], Verification], ...] = (
    (frozenset("pytest unittest tox nox jest vitest mocha rspec phpunit ctest test check".split()), "tests"),
    (frozenset("ruff flake8 pylint eslint clippy golangci-lint rubocop shellcheck lint vet".split()), "lint"),
    (frozenset("mypy pyright tsc types".split()), "types"),
    (frozenset("py_compile compileall nginx visudo jq yamllint syntax".split()), "syntax"),
    (frozenset("import imports".split()), "imports"),
)


class Wanted(NamedTuple):
    """A check that should be there, why, and whether the plan names it."""

    kind: str
    why: str
    present: bool


@dataclass(frozen=True, slots=True)
class Shaped:
    """The plan with its risk raised, and everything that was found about it."""

    plan: Plan
    risk: Risk
    reasons: tuple[Raised, ...]
    rollback: tuple[str, ...]
    verification: tuple[Wanted, ...]
    health: tuple[Wanted, ...]

    @property
    def gaps(self) -> tuple[str, ...]:
        """What should be there and is not, as sentences."""
        wanted = [f"verification: {item.kind} ({item.why})" for item in self.verification if not item.present]
        return (*wanted, *(f"health: {item.kind} ({item.why})" for item in self.health if not item.present))

    def document(self) -> dict[str, object]:
        return {
            "risk": self.risk,
            "reasons": [reason._asdict() for reason in self.reasons],
            "rollback_plan": list(self.rollback),
            "verification": [item._asdict() for item in self.verification],
            "health": [item._asdict() for item in self.health],
            "gaps": list(self.gaps),
        }


def shape(plan: Plan, classified: Classified, detected: frozenset[str] = frozenset()) -> Shaped:
    """Fill in what a careful author would have; the same plan always gets the same fields.

    `detected` are the kinds of checks that the plan's words ask for without naming them, and the project has.
    """
    risk, reasons = risk_of(plan, classified)
    if not plan.steps:
        floor = _WITHOUT_STEPS.get(classified.kind, "medium")
        reasons = (*reasons, Raised("Judges an intent without steps by its class", floor, f"class {classified.kind}"))
        risk = highest(risk, floor)
    return Shaped(
        plan=plan if plan.risk == risk else replace(plan, risk=risk),
        risk=risk,
        reasons=reasons,
        rollback=tuple(_rollback(plan)),
        verification=_verification(plan, classified.kind, detected),
        health=_health(plan),
    )


def with_health(plan: Plan, known: Mapping[str, str], *, has_units: bool) -> Plan:
    """The plan with health checks for the services it leaves running, where it names no health check of its own.

    `known`: the words of the user for each service that they describe, empty where they say none. Every other service
    is a unit of systemd, if this host `has_units`.
    """
    if plan.health or plan.health_words:
        return plan
    last: dict[str, Signal] = {}
    for step in plan.steps:
        if isinstance(step, Service) and isinstance(step.effect, Signal):
            last[step.effect.name] = step.effect
    running = [name for name, signal in last.items() if signal.verb != "stop"]
    words = tuple(known[name] for name in running if known.get(name))
    units = tuple(ServiceCheck(name) for name in running if has_units and name not in known)
    return replace(plan, health=units, health_words=words) if units or words else plan


def _rollback(plan: Plan) -> list[str]:
    words = []
    if plan.affected_paths or plan.runs_programs:
        words.append("restore every touched path from the journal, then prove it by digest")
    elif plan.steps and all(isinstance(step, Read) for step in plan.steps):
        words.append("nothing is changed, so nothing is taken back")
    for step in plan.steps:
        if isinstance(step, Service):
            done = _effect_words(step.effect)
            back = _effect_words(step.compensation) if step.compensation is not None else ""
            words.append(f"{done}: then {back}, with the old files" if back else f"{done}: cannot be taken back")
    return words


def _effect_words(effect: Effect) -> str:
    if isinstance(effect, Signal):
        return f"{effect.verb} {printable(effect.name)}"
    if isinstance(effect, Launch):
        return f"start {printable(effect.argv[0])}"
    return f"{effect.method} {printable(effect.url)}"


def _verification(plan: Plan, kind: Class, detected: frozenset[str]) -> tuple[Wanted, ...]:
    why: dict[Verification, str] = {}
    if plan.affected_paths:
        why["files"] = "the files that should be there are looked for"
    for path in plan.affected_paths:
        file_kind = kind_of_file(path)
        for check in _OF_FILES.get(file_kind, ()):
            why.setdefault(check, f"{file_kind} files change")
    for check in _OF_CLASSES.get(kind, ()):
        why.setdefault(check, f"the class is {kind}")
    if plan.runs_programs:
        why.setdefault("acceptance", "a program makes part of the change")
    named = _named(plan) | detected
    # The engine itself looks for the files, whatever the plan says.
    return tuple(
        Wanted(check, why[check], check in named or check == "files") for check in VERIFICATIONS if check in why
    )


def _named(plan: Plan) -> set[str]:
    """The kinds of checks that a plan names: by the program that is run, or by plain words."""
    found: set[str] = set()
    for check in plan.verify:
        found |= _kinds_of(check)
    for words in plan.words:
        lowered = set(words.lower().split())
        found |= {kind for names, kind in _PROGRAMS if names & lowered or {kind} & lowered}
    return found


def _kinds_of(check: VerifyCheck) -> set[str]:
    if check.kind == "tests":
        return {"tests"}
    words = {word.rpartition("/")[2] for word in check.argv}
    # A command of no known kind is somebody's own criterion.
    return {kind for names, kind in _PROGRAMS if names & words} or {"acceptance"}


def _health(plan: Plan) -> tuple[Wanted, ...]:
    """Whatever is touched outside the files should be asked how it is."""
    wanted: dict[str, str] = {}
    for step in plan.steps:
        if not isinstance(step, Service):
            continue
        if isinstance(step.effect, Signal) and step.effect.verb != "stop":
            wanted.setdefault("service", f"{_effect_words(step.effect)} must end with a service that answers")
        elif isinstance(step.effect, Launch):
            wanted.setdefault("process", f"{printable(step.effect.argv[0])} must stay")
        elif isinstance(step.effect, Call):
            wanted.setdefault("command", "what the call was for must have happened")
    return tuple(Wanted(kind, why, _answers(kind, plan.health)) for kind, why in wanted.items())


def _answers(kind: str, checks: tuple[HealthCheck, ...]) -> bool:
    """Asking a service over the network says more than asking its manager, so any check but a foreign one will do."""
    if kind == "command":
        return any(isinstance(check, CommandCheck) or check.kind in ("http", "database") for check in checks)
    return bool(checks)
