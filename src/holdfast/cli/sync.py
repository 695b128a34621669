"""holdfast sync: bring the boxes of a roadmap, its tasks and their commits in line with what landed and stands."""

from __future__ import annotations

import click

from holdfast.cli.opening import opened
from holdfast.cli.screen import shown
from holdfast.cli.verbs import Face, verb

_PATIENCE_S = 30.0


@verb(name="sync")
@click.argument("run", default="")
def command(face: Face, run: str) -> None:
    """Tick what RUN (or the newest one) landed and what stands, untick what was undone, and make the commits that could
    not be made then, or say why not."""
    with opened(face, wait=max(face.options.wait, _PATIENCE_S)) as hf:
        found = hf.runs.find(run)
        synced = hf.runs.sync(found.id)
    face.screen.answer({"kind": "run", "id": found.id, "status": found.state, "roadmap": found.roadmap,
                        "changed": synced.changed, "ticked": synced.ticked, "returned": list(synced.returned),
                        "gone": list(synced.gone),
                        "commits": [{"task": task, "commit": commit} for task, commit in synced.commits],
                        "remarks": list(synced.remarks)})  # fmt: skip
    roadmap = shown(found.roadmap)
    face.screen.say(f"{roadmap} is ticked as things stand." if synced.ticked else f"{roadmap} was in line already.")
    if synced.returned:
        face.screen.say(f"Done again: {', '.join(map(shown, synced.returned))}.")
    if synced.gone:
        face.screen.say(f"To do again: {', '.join(map(shown, synced.gone))}.")
    for task, commit in synced.commits:
        face.screen.say(f"Committed {shown(task)} as {commit[:7]}.")
    for remark in synced.remarks:
        face.screen.note(f"! {shown(remark)}")
