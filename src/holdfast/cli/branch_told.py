"""`--branch NAME`: the workspace of that branch, and what a person must know of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from holdfast.cli.screen import shown
from holdfast.cli.words import count
from holdfast.errors import HoldfastError, InvalidInput

if TYPE_CHECKING:
    from holdfast.cli.verbs import Face
    from holdfast.engine.pipeline import Progress
    from holdfast.wiring import Holdfast

# The workspace itself, where the configuration names a branch; no branch can be called so.
HERE = "."
_ABOUT_RUNS = ("run", "resume", "retry", "tasks", "review", "sync", "reset", "stop")
# What only looks begins nothing.
_BEGIN = ("run", "apply")
_LOOKS = ("dry_run", "preview")
_SHOWN = 3


def is_about_runs() -> bool:
    return _verb() in _ABOUT_RUNS


def _verb() -> str:
    context = click.get_current_context(silent=True)
    return context.info_name or "" if context is not None else ""


def branch_asked(face: Face, home: Holdfast) -> str:
    """The branch of this call: what was said, or what the user's configuration has for runs."""
    if face.options.branch:
        return face.options.branch
    from holdfast.store.own_settings import settings_of  # and no pipeline: what only looks starts without it

    name = settings_of(home.path).run.branch
    begins = _verb() in _BEGIN
    return name if name and (begins or name in home.branches()) else ""


def opened_branch(face: Face, home: Holdfast, name: str, wait: float, progress: Progress | None) -> Holdfast:
    """The workspace of the branch; `run` and `apply` begin it, and tell what stays out of it."""
    context = click.get_current_context()
    face.screen.branch = name
    wanted = context.info_name in _BEGIN
    begins = wanted and not any(context.params.get(name) for name in _LOOKS)
    try:
        hf = home.branch(name, begin=begins, wait=wait, progress=progress)
    except InvalidInput as error:
        if wanted and not begins:
            error.hint += " A preview begins none."
        raise
    if begins:
        _tell(face, home, hf, name)
    return hf


def _tell(face: Face, home: Holdfast, hf: Holdfast, branch: str) -> None:
    from holdfast.workspace.branches import repository_of, uncommitted

    repository = repository_of(home.path)
    tip = repository_of(hf.path).head().commit
    face.screen.event("branch", branch=branch, commit=tip, work_tree=hf.path)
    face.screen.note(
        f"On branch {shown(branch)} at {tip[:12]}; what is checked out in {shown(home.path)} stays as it is."
    )
    try:
        left_out = uncommitted(repository)
    except HoldfastError as error:
        face.screen.note(f"! what is not committed there stays out, and cannot be told: {shown(error.message)}")
        return
    if left_out:
        more = f" and {len(left_out) - _SHOWN:,} more" if len(left_out) > _SHOWN else ""
        names = ", ".join(map(shown, left_out[:_SHOWN]))
        face.screen.note(f"! {count(len(left_out), 'path')} not committed there: left out ({names}{more})")
