"""holdfast run: drive a roadmap to done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

import click

from holdfast.cli.run_asked import AskedOfRun, options_of, run_options
from holdfast.cli.run_told import label
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.engine.run_preview import Preview, Turn
    from holdfast.model.task import Task


@verb(name="run")
@click.argument("roadmap", default="")
@run_options
@click.option("--yes", is_flag=True, help="Give this user's approval to this run, where policy lets one person.")
@click.option("--dry-run", is_flag=True, help="Show tasks, order, groups and agents; change nothing.")
@click.option("--normalise", default="", metavar="AGENT", help="Have AGENT find the tasks, where the roadmap is prose.")
@click.option("--take-guessed", is_flag=True, help="What is listed without boxes or states: these are the tasks.")
@click.option("--database", default="", metavar="URL", help="PostgreSQL, where workers on other machines help.")
def command(
    face: Face,
    roadmap: str,
    yes: bool,
    dry_run: bool,
    normalise: str,
    take_guessed: bool,
    database: str,
    **asked: Unpack[AskedOfRun],
) -> int | None:
    """Drive ROADMAP to done: an agent works on each task in a shadow, and good work lands, one piece at a time.

    Without ROADMAP the first of the usual names is taken. Everything that lands was checked again on what stands then,
    judged by policy, committed to git and ticked. Ctrl-C once stops in order, twice now; holdfast resume goes on.
    """
    if dry_run:
        from holdfast.cli.opening import reading

        with reading(face) as hf:
            options = options_of(asked, hf.pipeline.governance.settings().run)
            _tell_preview(face.screen, hf.runs.preview(roadmap, options))
        return None
    from holdfast.cli.run_driving import drive, driving

    with driving(face) as hf:
        options = options_of(asked, hf.pipeline.governance.settings().run)
        if normalise:
            found = hf.runs.normalise(roadmap, normalise)
            face.screen.note(f"{shown(normalise)} found {count(len(found.tasks), 'task')} in it.")
        taken = take_guessed or (face.screen.can_ask() and _are_tasks(face.screen, *hf.runs.guessed(roadmap, options)))
        return drive(
            face,
            hf,
            lambda crew: hf.runs.start(roadmap, options, crew, yes=yes, database=database, take_guessed=taken),
        )


def _are_tasks(screen: Screen, path: str, guessed: Sequence[Task]) -> bool:
    """Whether a person says so. They see all of them; another answer than yes is refused where the run is begun."""
    if not guessed:
        return False
    screen.say(f"{shown(path)} has no boxes or states that say so. Taken for tasks:")
    for task in guessed:
        screen.say(f"  {task.line:>4}  {label(task)}")
    return screen.ask(f"Are these the {count(len(guessed), 'task')} to work on? [y/N]") in ("y", "yes")


def _tell_preview(screen: Screen, preview: Preview) -> None:
    screen.answer(_document(preview))
    tasks = preview.roadmap.tasks
    to_do = sum(not task.done for task in tasks) - sum(not task.done for task, _ in preview.held)
    screen.say(
        screen.style(f"{shown(preview.path)} · {count(len(tasks), 'task')}, {to_do:,} to do", "bold")
        + f" · read as {preview.roadmap.format}"
        + (", guessed: a run asks first" if preview.roadmap.confidence == "guessed" else "")
    )
    for turn in preview.turns:
        _tell_turn(screen, turn)
    for task, because in preview.stuck:
        screen.say(f"  ✗  {label(task)}  cannot start: {shown(because)}")
    for task, because in preview.held:
        screen.say(f"  -  {label(task)}  held: {shown(because)}")
    if preview.left:
        screen.say(f"  {count(len(preview.left), 'task')} would be left for later: {_some(preview)}")
    for remark in preview.remarks:
        screen.say(f"  ! {shown(remark)}")
    screen.say("Nothing was changed, and no agent was asked. Tasks with the same number could be worked on at once.")


def _tell_turn(screen: Screen, turn: Turn) -> None:
    screen.say(f"  {turn.wave:>2}  {label(turn.task)}  {screen.style(shown(turn.agent), 'dim')}")
    for task in turn.together:
        screen.say(f"      + {label(task)}")
    if turn.together:
        screen.say(screen.style(f"      together by {shown(turn.because)}", "dim"))


def _some(preview: Preview) -> str:
    names = ", ".join(task.number or label(task) for task in preview.left[:5])
    return names + (" …" if len(preview.left) > 5 else "")


def _document(preview: Preview) -> dict[str, object]:
    return {
        "kind": "run",
        "id": "",
        "status": "PREVIEW",
        "roadmap": preview.path,
        "format": preview.roadmap.format,
        "confidence": preview.roadmap.confidence,
        "turns": [
            {
                "task": turn.task.id,
                "number": turn.task.number,
                "title": turn.task.title,
                "wave": turn.wave,
                "agent": turn.agent,
                "together": [task.id for task in turn.together],
                "because": turn.because,
            }
            for turn in preview.turns
        ],
        "stuck": [{"task": task.id, "because": because} for task, because in preview.stuck],
        "left": [task.id for task in preview.left],
        "held": [{"task": task.id, "because": because} for task, because in preview.held],
        "remarks": list(preview.remarks),
    }
