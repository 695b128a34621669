"""How risky a plan is, by its steps and paths: an ordered list of rules whose names are sentences.

The author proposes a risk; a rule can raise it, none can lower it.
The write gate judges again, on what really changes and by policy; this is what the plan says of itself before that.

| raised to | by                                                                                           |
|-----------|----------------------------------------------------------------------------------------------|
| medium    | a delete; many files; configuration, tests or dependencies; a run step; an executable bit;      |
|           | a service with a way back; code or services without checks; an investigation that changes files |
| high      | deletes of whole directories or of many paths; very many files; start-up, CI, policy, key and   |
|           | agent files; write permission for everybody; links out of the workspace; an effect without a    |
|           | way back; words that were not meant for a planner                                             |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from holdfast.model.plan import RISKS, Chmod, Create, Delete, Plan, Read, Risk, Service, Symlink, Update, Write
from holdfast.planning.classify import Classified
from holdfast.planning.filekinds import FileKind, kind_of_file

MANY_FILES = 100
VERY_MANY_FILES = 1000
MANY_DELETES = 20
_SHOWN = 20
_WRITABLE_BY_ALL = 0o002
_EXECUTABLE = 0o111
_HIGH_KINDS: tuple[FileKind, ...] = ("start-up", "key", "CI", "policy", "agent settings")
_MEDIUM_KINDS: tuple[FileKind, ...] = ("dependencies", "configuration", "test")


class Raised(NamedTuple):
    """One rule that had something to say; `paths` shows the first few."""

    rule: str
    risk: Risk
    detail: str
    paths: tuple[str, ...] = ()


Rule: TypeAlias = Callable[[Plan, Classified], Iterator[Raised]]


def risk_of(plan: Plan, classified: Classified) -> tuple[Risk, tuple[Raised, ...]]:
    """The risk to propose, and every reason for it."""
    reasons = tuple(raised for rule in RULES for raised in rule(plan, classified))
    return highest(plan.risk, *(raised.risk for raised in reasons)), reasons


def highest(*risks: Risk) -> Risk:
    return max(risks, key=RISKS.index)


def leaves_the_workspace(path: str, target: str) -> bool:
    """Whether the text of a link at `path` points outside, as far as spelling tells."""
    if target.startswith("/"):
        return True
    depth = path.count("/")
    for name in target.split("/"):
        depth += -1 if name == ".." else 0 if name in ("", ".") else 1
        if depth < 0:
            return True
    return False


# ── the rules ──


def raises_deletes(plan: Plan, _: Classified) -> Iterator[Raised]:
    deleted = [step for step in plan.steps if isinstance(step, Delete)]
    whole = tuple(step.path for step in deleted if step.recursive)
    if whole:
        yield _raised(raises_deletes, "high", "a directory and all in it is deleted", whole)
    if len(deleted) >= MANY_DELETES:
        yield _raised(raises_deletes, "high", f"{len(deleted)} paths are deleted")
    elif len(deleted) > len(whole):
        single = tuple(step.path for step in deleted if not step.recursive)
        yield _raised(raises_deletes, "medium", "something is deleted", single)


def raises_changes_of_many_files(plan: Plan, _: Classified) -> Iterator[Raised]:
    number = len(plan.affected_paths)
    if number > MANY_FILES:
        risk: Risk = "high" if number > VERY_MANY_FILES else "medium"
        yield _raised(raises_changes_of_many_files, risk, f"{number} paths change")


def raises_files_that_decide_what_runs(plan: Plan, _: Classified) -> Iterator[Raised]:
    for kinds, risk in ((_HIGH_KINDS, "high"), (_MEDIUM_KINDS, "medium")):
        for kind in kinds:
            paths = tuple(path for path in plan.affected_paths if kind_of_file(path) == kind)
            if paths:
                detail = f"{kind} files change"
                yield _raised(raises_files_that_decide_what_runs, "high" if risk == "high" else "medium", detail, paths)


def raises_permissions(plan: Plan, _: Classified) -> Iterator[Raised]:
    modes = [
        (s.path, s.mode) for s in plan.steps if isinstance(s, (Write, Update, Create, Chmod)) and s.mode is not None
    ]
    open_to_all = tuple(path for path, mode in modes if mode & _WRITABLE_BY_ALL)
    if open_to_all:
        yield _raised(raises_permissions, "high", "everybody may write", open_to_all)
    directories = {step.path for step in plan.steps if isinstance(step, Create) and step.directory}
    runnable = tuple(path for path, mode in modes if mode & _EXECUTABLE and path not in directories)
    if runnable:
        yield _raised(raises_permissions, "medium", "a file may be run as a program", runnable)


def raises_links_out_of_the_workspace(plan: Plan, _: Classified) -> Iterator[Raised]:
    links = [step for step in plan.steps if isinstance(step, Symlink)]
    outside = tuple(step.path for step in links if leaves_the_workspace(step.path, step.target))
    if outside:
        yield _raised(raises_links_out_of_the_workspace, "high", "a link points out of the workspace", outside)


def raises_commands(plan: Plan, _: Classified) -> Iterator[Raised]:
    if plan.runs_programs:
        yield _raised(raises_commands, "medium", "what a program changes is known only after it was rehearsed")


def raises_effects_outside_the_files(plan: Plan, _: Classified) -> Iterator[Raised]:
    effects = [step for step in plan.steps if isinstance(step, Service)]
    final = [step for step in effects if step.compensation is None]
    if final:
        yield _raised(raises_effects_outside_the_files, "high", "an effect on the host has no way back")
    elif effects:
        yield _raised(raises_effects_outside_the_files, "medium", "something outside the files is touched")
    if effects and plan.on_failure != "rollback":
        yield _raised(
            raises_effects_outside_the_files, "high", f"when an effect fails, the plan says: {plan.on_failure}"
        )


def raises_changes_that_nothing_checks(plan: Plan, _: Classified) -> Iterator[Raised]:
    code = tuple(path for path in plan.affected_paths if kind_of_file(path) == "code")
    if code and not plan.verify and not plan.words:
        yield _raised(raises_changes_that_nothing_checks, "medium", "code changes and no check is named", code)
    if any(isinstance(step, Service) for step in plan.steps) and not plan.health and not plan.health_words:
        yield _raised(raises_changes_that_nothing_checks, "medium", "a service is touched and no health check is named")


def raises_investigations_that_change_something(plan: Plan, classified: Classified) -> Iterator[Raised]:
    if classified.kind == "investigate" and any(not isinstance(step, Read) for step in plan.steps):
        yield _raised(raises_investigations_that_change_something, "medium", "the words ask to look, the steps change")


def raises_words_that_were_not_meant_for_a_planner(plan: Plan, classified: Classified) -> Iterator[Raised]:
    for sentence in classified.suspicions:
        yield _raised(raises_words_that_were_not_meant_for_a_planner, "high", sentence)


RULES: tuple[Rule, ...] = (
    raises_deletes,
    raises_changes_of_many_files,
    raises_files_that_decide_what_runs,
    raises_permissions,
    raises_links_out_of_the_workspace,
    raises_commands,
    raises_effects_outside_the_files,
    raises_changes_that_nothing_checks,
    raises_investigations_that_change_something,
    raises_words_that_were_not_meant_for_a_planner,
)


def _raised(rule: Rule, risk: Risk, detail: str, paths: tuple[str, ...] = ()) -> Raised:
    return Raised(rule.__name__.replace("_", " ").capitalize(), risk, detail, paths[:_SHOWN])
