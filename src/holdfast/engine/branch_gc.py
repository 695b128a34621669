"""`gc --branches`: which kept work trees of branches can go, and taking them away.

Invariants
  BX1  One with work in it stays: a run that is under way or was interrupted, a task that is worked on, waits for a
       person or is about to land, a simulation that could still land, an execution that was interrupted.
  BX2  All of that, and what git says (RM1, RM2 of `branch_removal`), is asked once more under the locks of the branch,
       which are held until its work tree has another name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from holdfast.engine.durable import Database
from holdfast.engine.durable_running import home_lock
from holdfast.engine.history import waiting_simulations
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.roadmap_rules import UNDER_WAY
from holdfast.errors import HoldfastError
from holdfast.model.path import STATE_DIRECTORY
from holdfast.settlement.runs import task_records
from holdfast.store.runs import Runs
from holdfast.store.state import read_identity
from holdfast.workspace.branch_removal import clear_leftovers, kept_folders, take_away, why_kept
from holdfast.workspace.branches import repository_of
from holdfast.workspace.site import BRANCHES

Opening = Callable[[str], AbstractContextManager[Pipeline]]


class KeptTree(NamedTuple):
    """A work tree; `why` it must stay, or empty."""

    folder: str
    branch: str
    why: str


def kept_trees(pipeline: Pipeline, opening: Opening) -> list[KeptTree]:
    """Every one, as it stands now; nothing is taken away but what a kill left of one that was."""
    repository, state = repository_of(pipeline.site.path, pipeline.site.calls), pipeline.site.state.path
    clear_leftovers(repository, state)
    return [_looked_at(pipeline, folder, opening) for folder in kept_folders(state)]


def clear_tree(pipeline: Pipeline, folder: str, opening: Opening) -> KeptTree:
    """Take it away, if it still can go (BX2)."""
    return _looked_at(pipeline, folder, opening, take=True)


def _looked_at(pipeline: Pipeline, folder: str, opening: Opening, *, take: bool = False) -> KeptTree:
    repository, state = repository_of(pipeline.site.path, pipeline.site.calls), pipeline.site.state.path
    branch, why = why_kept(repository, state, folder)
    if why:
        return KeptTree(folder, branch, why)
    workspace = os.path.join(state, BRANCHES, folder, repository.prefix).rstrip("/")
    if not os.path.lexists(os.path.join(workspace, STATE_DIRECTORY)):  # begun, and nothing was done there
        if take:
            take_away(repository, state, folder)
        return KeptTree(folder, branch, "")
    try:
        with opening(workspace) as there:
            there.recover()
            with home_lock(Database(there.site.state.path), read_identity(there.site.state).id), there.locked():
                branch, why = why_kept(repository, state, folder)
                why = why or _work_in(there)
                if take and not why:
                    take_away(repository, state, folder)
    except HoldfastError as error:
        why = error.message
    return KeptTree(folder, branch, why)


def _work_in(pipeline: Pipeline) -> str:
    """BX1."""
    runs = Runs(pipeline.records)
    for row in runs.runs() if runs.exist() else ():
        if row.state == "RUNNING":
            return f"its run {row.id} was interrupted, and is not settled"
        for record in task_records(runs, row.id).values():
            if record.state in (*UNDER_WAY, "NEEDS_REVIEW") or record.landing or record.part:
                return f"{record.task} of its run {row.id} is under way, or waits for a person"
    waiting = waiting_simulations(pipeline)
    return f"{waiting[0]} was simulated there, and can still land" if waiting else ""
