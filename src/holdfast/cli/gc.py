"""holdfast gc: forget old files that undo no longer needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.opening import changing
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count, size
from holdfast.errors import ApprovalNeeded, InvalidInput

if TYPE_CHECKING:
    from holdfast.engine.branch_gc import KeptTree


@verb(name="gc")
@click.option("--keep-days", default=30, type=click.IntRange(min=0), metavar="N", help="Keep N days (30 unless told).")
@click.option("--branches", is_flag=True, help="Take away work trees of branches that landed or were deleted.")
@click.option("--yes", is_flag=True, help="With --branches: give consent to this call.")
def command(face: Face, keep_days: int, branches: bool, yes: bool) -> None:
    """Forget old files past keeping: of executions, of kept plans and simulations.

    The ten newest executions stay, whatever their age, and so does what was approved and still waits to land.
    A simulation that landed, was rejected or denied, or was left by a process that died, goes at any age.
    Nothing is taken from a command that is running.

    With --branches only those work trees go, with the history that Holdfast has of what landed there: their commits
    stay, but nothing of it can be undone any more. The branches stay. One with work in it is never taken away.
    """
    if branches:
        _clear_branches(face, yes=yes)
        return
    if yes:
        raise InvalidInput("--yes is for --branches: nothing else is asked about here", hint="Nothing was changed.")
    with changing(face) as hf:
        done = hf.gc(keep_days=keep_days)
        workspace = hf.id
    face.screen.answer({"kind": "gc", "id": workspace, "status": "done", **done._asdict()})
    kept = count(done.papers, "kept plan or simulation", "kept plans and simulations")
    papers = f" and {kept}" if done.papers else ""
    face.screen.say(
        f"Forgot {count(len(done.forgotten), 'execution')}{papers}, packed {count(done.packed, 'old file')}, "
        f"freed {size(done.bytes)}."
    )


def _clear_branches(face: Face, *, yes: bool) -> None:
    screen = face.screen
    if screen.branch:
        raise InvalidInput("--branches is about all of them", hint="Nothing was changed. Leave --branch out.")
    with changing(face) as hf:
        trees = hf.branch_trees()
        wanted = [tree for tree in trees if not tree.why]
        for tree in trees:
            screen.say(f"  {shown(tree.branch or tree.folder)}: {shown(tree.why) or 'can be taken away'}")
        if wanted:
            _require_yes(screen, len(wanted), yes=yes)
        done = [hf.clear_branch_tree(tree.folder) for tree in wanted]
        workspace = hf.id
    gone = [tree for tree in done if not tree.why]
    for tree in done:
        if tree.why:
            screen.note(f"! {shown(tree.branch)} stays: {shown(tree.why)}")
    kept = [tree for tree in trees if tree.why] + [tree for tree in done if tree.why]
    screen.answer({"kind": "gc", "id": workspace, "status": "done", "gone": [_told(tree) for tree in gone],
                   "kept": [{**_told(tree), "because": tree.why} for tree in kept]})  # fmt: skip
    screen.say(f"Took away {count(len(gone), 'work tree')}, kept {len(kept):,}.")


def _told(tree: KeptTree) -> dict[str, str]:
    return {"branch": tree.branch, "folder": tree.folder}


def _require_yes(screen: Screen, trees: int, *, yes: bool) -> None:
    if yes:
        return
    if not screen.can_ask():
        raise ApprovalNeeded(
            "consent is needed, and there is no terminal to ask on",
            hint="Nothing was changed. Give consent to this call with: holdfast gc --branches --yes",
        )
    if screen.ask(f"Take away {count(trees, 'work tree')} with its history? [y/N]") not in ("y", "yes"):
        raise ApprovalNeeded("You did not say yes.", hint="Nothing was changed.")
