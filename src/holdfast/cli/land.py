"""holdfast land: bring a branch in through the gates.

    merge, in git's object store ─▶ one change, simulated, checked, judged, approved ─▶ it lands ─▶ a merge commit

Killed anywhere in between, the same call does what is left.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from holdfast.cli.apply import carry_out, tell_plan
from holdfast.cli.opening import changing, reading
from holdfast.cli.screen import shown
from holdfast.cli.simulate import attaching_report
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count
from holdfast.engine.difference import PlannedDifference
from holdfast.errors import ApprovalNeeded, HoldfastError, InvalidInput

if TYPE_CHECKING:
    from holdfast.engine.branch_landing import BranchLanding
    from holdfast.wiring import Holdfast


@verb(name="land")
@click.argument("name", metavar="BRANCH")
@click.option("--yes", is_flag=True, help="Give this user's approval to this call, where policy lets one person.")
@click.option("--preview", is_flag=True, help="Show what would happen, and stop.")
@click.option("--pr", is_flag=True, help="Land nothing: write the text of a pull request, and print the commands.")
def command(face: Face, name: str, yes: bool, preview: bool, pr: bool) -> None:
    """Merge BRANCH into what is checked out: all of it as one change through the gates, and a merge commit.

    Conflicts are told, and nothing is changed. Edits of yours that are not committed are never merged over.
    """
    if face.screen.branch:
        raise InvalidInput(
            "a branch is landed in the workspace itself", hint="Nothing was changed. Leave --branch out."
        )
    if pr:
        _pull_request(face, name)
        return
    with changing(face) as hf:
        from holdfast.engine.branch_landing import landing_of

        landing = landing_of(hf.pipeline, name)
        if landing is None:
            face.screen.answer({"kind": "landing", "branch": name, "status": "UNCHANGED", "commit": ""})
            face.screen.say(f"{shown(name)} is in what is checked out already; nothing to do.")
            return
        try:
            _landed(face, hf, landing, yes=yes, preview=preview)
        finally:
            landing.clear_away()


def _pull_request(face: Face, name: str) -> None:
    """What a person has to push themselves; nothing is sent from here."""
    from holdfast.engine.branch_landing import written_review

    with reading(face) as hf:
        if name in hf.branches():
            with hf.branch(name) as branch:
                review = written_review(hf.pipeline, branch.pipeline, name)
        else:
            review = written_review(hf.pipeline, None, name)
    create = shlex.join(("gh", "pr", "create", "--base", review.base, "--head", name, "--title", review.title))
    ways = [shlex.join(("git", "push", review.remote, name)), f"{create} --body-file {shlex.quote(review.file)}"]
    face.screen.answer({"kind": "pull_request", "branch": name, "base": review.base, "title": review.title,
                        "body": review.body, "file": review.file, "commands": ways})  # fmt: skip
    for line in review.body.splitlines():
        face.screen.say(shown(line))
    face.screen.say()
    face.screen.say("Nothing was pushed. To open it:")
    for way in ways:
        face.screen.say(f"  {shown(way)}")


def _landed(face: Face, hf: Holdfast, landing: BranchLanding, *, yes: bool, preview: bool) -> None:
    from holdfast.engine.branch_landing import merge, require_committed

    screen, name = face.screen, landing.brought.name
    with attaching_report(screen):
        simulated = hf.simulate(landing.plan)
    require_committed(landing, simulated)
    difference = PlannedDifference(hf.site, simulated.change_set.changes, simulated.sources, landing.plan.notes)
    tell_plan(screen, landing.plan, simulated, difference)
    screen.say(f"Merges {count(len(landing.brought.titles), 'commit')} of {shown(name)}.")
    if preview:
        screen.answer({"kind": "landing", "branch": name, "status": "REHEARSED", "commit": ""})
        screen.say("Preview only: nothing was changed, and no check was run.")
        return
    if simulated.change_set:
        try:
            carry_out(screen, hf, simulated, difference, yes=yes)
        except ApprovalNeeded as error:
            error.hint += f"\nOnce it is carried out, this makes the merge commit: holdfast land {shlex.quote(name)}"
            raise
    execution = hf.last.id if hf.last is not None else ""
    try:
        commit = merge(hf.pipeline, landing, execution)
    except HoldfastError as error:
        error.changed = error.changed or bool(execution)
        raise
    screen.event("merged", branch=name, commit=commit, execution=execution)
    if not simulated.change_set:
        screen.answer({"kind": "landing", "branch": name, "status": "MERGED", "commit": commit})
    screen.say(f"Merged as {commit[:7]}.")
