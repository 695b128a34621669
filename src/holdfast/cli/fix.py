"""holdfast fix: the first check that fails is given to an agent, and its repair takes the ordinary road."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from holdfast.cli.agent_asked import AskedOfAgent, agent_options, in_turn, task_of
from holdfast.cli.apply import carry_out, tell_plan
from holdfast.cli.opening import changing, reading
from holdfast.cli.patch_asked import following
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.cli.watching import Watching, person_at, spent
from holdfast.cli.words import count, duration
from holdfast.engine.difference import PlannedDifference
from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.cli.agent_asked import TaskAsked
    from holdfast.engine.checking import ShadowKind
    from holdfast.engine.fixing import Broken, Fix, Passing
    from holdfast.wiring import Holdfast


@verb(name="fix")
@click.option("--yes", is_flag=True, help="Give this user's approval to this call, where policy lets one person.")
@click.option("--past", is_flag=True, help="Tell what repairs came to so far, and stop.")
@click.option("--shadow", type=click.Choice(["auto", "overlay", "copy"]), default="auto", help="Kind of shadow.")
@agent_options
def command(face: Face, yes: bool, past: bool, shadow: ShadowKind, **asked: Unpack[AskedOfAgent]) -> None:
    """Run every check of the workspace; give the first that fails to an agent, and apply its repair.

    The repair counts only if the check passes with the tests as they were; then it is judged like every change.
    """
    task = task_of(asked)
    if past:
        with reading(face) as hf:
            _tell_past(face.screen, hf)
        return
    if task is None or task.expected:
        what = "a repair needs an agent" if task is None else "a repair is measured by the check, not by --expect"
        raise InvalidInput(what, hint="Say which: holdfast fix --agent NAME (see: holdfast agents)")
    from holdfast.engine.fixing import Passing, find_broken

    with changing(face) as hf:
        broken = find_broken(hf.pipeline)
        if isinstance(broken, Passing):
            _tell_passing(face.screen, broken)
            return
        face.screen.event("broken", detail=broken.receipt.detail, category=broken.failure.category)
        face.screen.say(f"Broken: {shown(broken.receipt.detail)} ({broken.failure.category})")
        found = _repaired(face.screen, hf, broken, task, shadow)
        with following(hf, face.screen, found.patch):
            difference = PlannedDifference(hf.site, found.simulated.change_set.changes, found.simulated.sources)
            tell_plan(face.screen, found.simulated.plan, found.simulated, difference)
            _tell_record(face.screen, found)
            carry_out(face.screen, hf, found.simulated, difference, yes=yes)


def _repaired(screen: Screen, hf: Holdfast, broken: Broken, task: TaskAsked, shadow: ShadowKind) -> Fix:
    def asked_of(name: str) -> Fix:
        return hf.fix(
            broken,
            agent=name,
            attempts=task.attempts,
            within_ms=task.within_ms,
            shadow=shadow,
            watcher=Watching(screen),
            person=person_at(screen),
        )

    return in_turn(screen, hf, broken.receipt.detail, task.agent, asked_of)


def _tell_passing(screen: Screen, found: Passing) -> None:
    screen.answer({"kind": "fix", "id": "", "status": "NOTHING_BROKEN", "not_run": list(found.not_run)})
    if not found.not_run:
        screen.say("Every check passes; there is nothing to repair.")
        return
    screen.say("Every check that could run passes. Not run:")
    for line in found.not_run:
        screen.say(f"  ! {shown(line)}")


def _tell_past(screen: Screen, hf: Holdfast) -> None:
    from holdfast.engine.fixing import past_fixes
    from holdfast.model.fix import totals

    found = totals(past_fixes(hf.ledger, hf.patches))
    items = [
        {"category": category, **total._asdict(), "usage": total.usage._asdict()} for category, total in found.items()
    ]
    screen.answer({"kind": "list", "items": items})
    for category, total in found.items():
        tests = f"{total.with_regression_test} with a regression test"
        counted = f"{count(total.attempts, 'attempt')}, {total.fixed} good, {total.rolled_back} rolled back, {tests}"
        screen.say(f"{category}: {counted}; {spent(total.usage)}, {duration(total.duration_ms)}")
    if not found:
        screen.say("Nothing was repaired here yet.")


def _tell_record(screen: Screen, found: Fix) -> None:
    record = found.record
    screen.event("fix", patch=found.patch, **record.document())
    if record.regression_test:
        fails = {
            "yes": "fails without the fix",
            "no": "passes without the fix",
            "unknown": "not seen to fail without it",
        }
        screen.say(f"Regression test: {shown(record.regression_test)} ({fails[record.fails_without_fix]})")
    else:
        screen.say(f"No regression test: {shown(record.why_no_test)}")
    screen.say(f"Patch {found.patch}; see it with: holdfast patches show {found.patch}")
