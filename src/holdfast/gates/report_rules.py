"""Rules about the plan and its rehearsal: do they belong together, did it work, can it be taken back, who watches it?

A report can be edited or can lie; where the plan itself shows a fact (a service, a missing compensation),
the plan is believed and the report can only make it worse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.gates.case import Case, FactRule, Said, asking, denying
from holdfast.gates.evidence import VERIFYING_KINDS
from holdfast.gates.policy import VERDICT_OF, Answer
from holdfast.model.changeset import ChangeSet, change_set
from holdfast.model.check import CommandCheck, SuiteCheck, subject
from holdfast.model.path import printable
from holdfast.model.plan import Agent, Plan, Risk, Run, Service, Step, step_id, worded
from holdfast.model.simulation import PLAN_RISK, STEP_RISKS, SimulatedStep, StepRisk, has_way_back
from holdfast.model.words import counted

_SHOWN = 3
# Its name: a run asks a person where this rule does, whatever was said yes to in advance.
UNMET = "Asks where the change lacks what its task names"
# What Holdfast looks at with its own eyes: the files it names are judged there, and judge nothing.
_LOOKED_AT = frozenset({"files", "syntax", "imports"})


def _belongs_together(case: Case) -> Iterator[Said]:
    plan, changes, report = case.evidence.plan, case.evidence.change_set, case.evidence.simulation
    if report.plan_digest != plan.digest or report.plan_id != plan.id:
        yield denying("the report is about another plan")
    if report.change_set != changes.digest or report.base != changes.base:
        yield denying("the report is about another change set")
    if not _is_sealed(changes):
        yield denying("the change set is not what its digest says")
    if report.status == "SUCCESS" and [step.step_id for step in report.steps] != [
        step_id(index) for index in range(len(plan.steps))
    ]:
        yield denying("the report leaves out steps of the plan, or has others")


def _is_sealed(changes: ChangeSet) -> bool:
    try:
        return change_set(changes.changes, changes.reads)[2:] == changes[2:]
    except ValueError:  # two changes for one path, or one that changes nothing
        return False


def _succeeded(case: Case) -> Iterator[Said]:
    report = case.evidence.simulation
    if report.status != "SUCCESS":
        steps = [step for step in report.steps if step.precondition != "met"]
        detail = f"; {steps[0].step_id}: {printable(steps[0].detail)}" if steps else ""
        yield denying(f"the rehearsal ended as {report.status}{detail}")


def _dangers(case: Case) -> Iterator[Said]:
    if dangers := case.evidence.simulation.dangers:
        yield denying(_listed(dangers))


def _failed_checks(case: Case) -> Iterator[Said]:
    failed = [receipt for receipt in case.evidence.receipts if not receipt.passed]
    if failed:
        yield denying(_listed([receipt.detail or receipt.kind for receipt in failed]))


def _isolation(case: Case) -> Iterator[Said]:
    ran = any(step.receipt is not None for step in case.evidence.simulation.steps) or case.evidence.by_agent
    # "network: none, own namespace" is enforced where a policy asks for it by name: "network".
    enforced = {name for words in case.evidence.simulation.enforced for name in (words, words.partition(":")[0])}
    missing = [word for word in case.policy.sandbox if word not in enforced]
    if ran and missing:
        yield denying(f"programs ran without enforced isolation of: {', '.join(missing)}")


def _way_back(case: Case) -> Iterator[Said]:
    steps = case.evidence.simulation.steps
    services = {
        step_id(index): step for index, step in enumerate(case.evidence.plan.steps) if isinstance(step, Service)
    }
    final = [id for id, step in services.items() if not has_way_back(step)]
    lost = [step.step_id for step in steps if _is_lost(step) and step.step_id not in final]
    if lost or final:
        yield asking("high", f"cannot be taken back: {_listed([*lost, *(_final(id, services[id]) for id in final)])}")
    gone = {*lost, *final}
    if partly := [step.step_id for step in steps if step.step_id not in gone and _is_partial(step)]:
        yield asking("medium", f"can be taken back only in part: {_listed(partly)}")


def _final(id: str, step: Service) -> str:
    """With what it declares as its undo, for a person to judge: here it counts for nothing."""
    if step.compensation is None:
        return id
    return f"{id} (its undo is {worded(step.compensation)}, which proves nothing)"


def _is_lost(step: SimulatedStep) -> bool:
    back = step.rollback
    return back.capability == "NONE" or not back.exists or not back.feasible


def _is_partial(step: SimulatedStep) -> bool:
    return step.rollback.capability != "FULL" or not step.rollback.coherent


def _unrehearsed(case: Case) -> Iterator[Said]:
    planned = [step for step in case.evidence.plan.steps if isinstance(step, Service)]
    named = case.evidence.simulation.unrehearsed
    if planned or named:
        said = named or [f"{counted(len(planned), 'service action')} that the report does not name"]
        undone = [worded(step.compensation) for step in planned if step.compensation is not None]
        back = f"; its undo: {_listed(undone)}" if undone else ""
        yield asking("medium", f"happens for the first time on the host itself: {_listed(said)}{back}")


def _suspicious(case: Case) -> Iterator[Said]:
    if suspicious := case.evidence.simulation.suspicious:
        yield asking("high", f"discarded, but it was tried: {_listed(suspicious)}")


def _own_checks(case: Case) -> Iterator[Said]:
    commands = [receipt.command for receipt in case.evidence.receipts if receipt.kind not in _LOOKED_AT]
    checks = (*case.evidence.plan.verify, *case.evidence.health)
    commands += [check.argv for check in checks if isinstance(check, (CommandCheck, SuiteCheck))]
    # A report of test results that comes with the change was not written by the tests.
    commands += [(check.junit, check.coverage) for check in checks if isinstance(check, SuiteCheck)]
    named = {path for command in commands for path in _paths_named(command, case.evidence.root)}
    if paths := [deed.change.path for deed in case.deeds if deed.change.path in named]:
        yield asking("medium", "the change is checked by what it changes itself", paths)


def _paths_named(command: tuple[str, ...], root: str) -> Iterator[str]:
    """Every workspace path an argument could mean: `./a`, `--config=a`, `a::test`, `-m a.b`."""
    for word in command:
        for piece in (word, word.partition("=")[2], word.partition("::")[0]):
            below = piece.removeprefix(f"{root.rstrip('/')}/") if root else piece
            yield "/".join([name for name in below.split("/") if name not in ("", ".")])
    for option, module in zip(command, command[1:], strict=False):
        if option == "-m":
            place = module.replace(".", "/")
            yield from (f"{place}.py", f"{place}/__main__.py", f"{place}/__init__.py")


def _base_tests(case: Case) -> Iterator[Said]:
    """A change is judged by the tests of the base. Where it touches them, a yes for everything may not be enough:

    the base's fail or could not be run, though nobody asked for these tests to be changed; some are gone or skipped.
    """
    found = case.evidence.base_tests
    if found is None:
        return
    touched = (*found.changed, *found.added)
    if found.missing:
        yield asking("high", f"tests of the base are gone: {_listed(found.missing)}", found.changed)
    if found.skipped:
        yield asking("high", f"tests of the base are skipped now: {_listed(found.skipped)}", found.changed)
    risk: Risk = "medium" if _asked_for(case.evidence.plan, touched) else "high"
    ran = any(receipt.kind in VERIFYING_KINDS for receipt in case.evidence.receipts)
    if found.outcome == "failed":
        failed = [receipt.detail for receipt in found.receipts if not receipt.passed]
        yield asking(risk, _listed(failed), touched)
    elif found.outcome == "not run" and found.changed and ran:
        why = f": {found.why_not_run}" if found.why_not_run else ""
        yield asking(risk, f"the base's tests were not run over the new code{why}", found.changed)
    elif found.changed:
        passed = found.outcome == "passed"
        detail = "the base's tests pass over the new code" if passed else "no test was run"
        yield asking("medium", f"tests of the base, or their settings, change; {detail}", found.changed)


def _unmet(case: Case) -> Iterator[Said]:
    if unmet := case.evidence.unmet:
        yield asking("medium", _listed(unmet))


def _asked_for(plan: Plan, paths: tuple[str, ...]) -> bool:
    """Does whoever asked for the change name each of these files, or a directory it is in?"""
    words = "\n".join((plan.intent, *(text for step in plan.steps for text in _stated(step))))
    return all(any(_is_named(name, words) for name in _names_of(path)) for path in paths)


def _stated(step: Step) -> Iterator[str]:
    """What a person says in a step."""
    if isinstance(step, Agent):
        yield step.stated
    elif isinstance(step, Run):
        yield from step.argv


def _names_of(path: str) -> Iterator[str]:
    parts = path.split("/")
    for start in range(len(parts)):
        yield "/".join(parts[start:])
    for end in range(1, len(parts)):
        yield "/".join(parts[:end]) + "/"


def _is_named(name: str, words: str) -> bool:
    if name not in words:
        return False
    if name.isalpha() and name.islower():
        return f"`{name}`" in words  # "make the test pass" names no file called `test`
    end = r"(?![\w-])" if name.endswith("/") else r"(?![\w/-]|\.\w)"
    return re.search(rf"(?<![\w./-]){re.escape(name)}{end}", words) is not None


def _health_commands(case: Case) -> Iterator[Said]:
    """They must see the real host, so no sandbox holds them: a person has to want exactly these."""
    commands = [subject(check) for check in case.evidence.health if check.kind == "run"]
    if commands:
        yield asking("medium", f"runs outside the sandbox, with your rights: {'; '.join(commands[:3])}")


def _verification(case: Case) -> Iterator[Said]:
    answer = case.policy.scalars.without_verification
    if _does_something(case) and not case.evidence.is_verified(by_its_plan=answer == "ask"):
        yield from _answered(case, "without_verification", answer, _why_unverified(case))


def _why_unverified(case: Case) -> str:
    evidence = case.evidence
    if evidence.doubt:
        return f"unverified: {evidence.doubt}"
    if evidence.proofs():
        own = any(receipt.origin == "plan" for receipt in evidence.proofs())
        whom = "the plan" if own else "the project"
        return f"unverified by tests: only checks that {whom} itself chose have passed"
    if evidence.plan.unverified_because:
        return f"unverified by tests: its plan skips them ({evidence.plan.unverified_because})"
    if evidence.plan.verify_mode == "agent":
        return "unverified by tests: verification was left to the agent"
    ran = evidence.outdated or "no test ran on exactly this tree"
    return ran if evidence.receipts else "unverified by tests"


def _health(case: Case) -> Iterator[Said]:
    if _does_something(case) and not case.evidence.health:
        detail = "no health check says whether it works afterwards"
        yield from _answered(case, "without_health", case.policy.scalars.without_health, detail)


def _answered(case: Case, scalar: str, answer: Answer, detail: str) -> Iterator[Said]:
    """Missing care is no property of the change: it asks, and leaves the risk as it is."""
    if answer != "allow":
        yield Said(VERDICT_OF[answer], "low", detail, layer=case.policy.layer_of(scalar))


def _does_something(case: Case) -> bool:
    return bool(case.deeds) or any(isinstance(step, Service) for step in case.evidence.plan.steps)


def _rehearsed_risk(case: Case) -> Iterator[Said]:
    excused = case.excused
    steps = [step for step in case.evidence.simulation.steps if not _is_excused(step, excused)]
    highest: StepRisk = max((step.risk for step in steps), key=STEP_RISKS.index, default="SAFE")
    if highest != "SAFE":
        which = [step.step_id for step in steps if step.risk == highest]
        yield asking(PLAN_RISK[highest], f"{highest}: {_listed(which)}")


def _is_excused(step: SimulatedStep, excused: frozenset[str]) -> bool:
    """That a file is deleted is said by a rule about paths, which may be silenced; here it would be said again."""
    said_by_paths = step.operation == "delete" and step.risk == "CAUTIOUS"
    return said_by_paths and bool(step.affected) and excused.issuperset(step.affected)


def _proposed_risk(case: Case) -> Iterator[Said]:
    """Upwards only: `low` says nothing at all."""
    proposed: Risk = case.evidence.plan.risk
    if proposed != "low":
        yield asking(proposed, f"its author calls it {proposed}")


def _every_change(case: Case) -> Iterator[Said]:
    if case.policy.scalars.low_risk == "ask" and _does_something(case):
        yield asking("low", "policy asks also where the risk is low", layer=case.policy.layer_of("low_risk"))


def _listed(words: tuple[str, ...] | list[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return "; ".join(printable(word) for word in words[:_SHOWN]) + more


REPORT_RULES: tuple[FactRule, ...] = (
    FactRule("Refuses a report about something else", _belongs_together),
    FactRule("Refuses a rehearsal that did not succeed", _succeeded),
    FactRule("Refuses what the rehearsal found dangerous", _dangers),
    FactRule("Refuses a change whose checks failed", _failed_checks),
    FactRule("Refuses programs that ran with less isolation than required", _isolation),
    FactRule("Asks about what cannot be taken back", _way_back),
    FactRule("Asks about effects that cannot be rehearsed", _unrehearsed),
    FactRule("Asks before a health command runs on the host", _health_commands),
    FactRule("Asks about suspicious acts in the shadow", _suspicious),
    FactRule("Asks when a change edits its own checks", _own_checks),
    FactRule("Asks when a change edits the tests that judge it", _base_tests),
    FactRule(UNMET, _unmet),
    FactRule("Believes the rehearsal about risk", _rehearsed_risk),
    FactRule("Believes the author about risk, upwards only", _proposed_risk),
    FactRule("Asks where nothing was verified", _verification),
    FactRule("Asks where nothing watches the health", _health),
    FactRule("Asks for every change", _every_change),
)
