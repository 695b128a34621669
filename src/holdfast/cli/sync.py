"""holdfast sync: bring the boxes of a roadmap in line with what landed and stands."""

from __future__ import annotations

import click

from holdfast.cli.screen import shown
from holdfast.cli.verbs import Face, verb
from holdfast.wiring import open as open_workspace

_PATIENCE_S = 30.0


@verb(name="sync")
@click.argument("run", default="")
def command(face: Face, run: str) -> None:
    """Tick what RUN (or the newest one) landed and what stands, and untick what was undone; nothing else changes."""
    with open_workspace(wait=max(face.options.wait, _PATIENCE_S)) as hf:
        found = hf.runs.find(run)
        changed = hf.runs.sync(found.id)
    face.screen.answer({"kind": "run", "id": found.id, "status": found.state, "roadmap": found.roadmap,
                        "changed": changed})  # fmt: skip
    roadmap = shown(found.roadmap)
    face.screen.say(f"{roadmap} is ticked as things stand." if changed else f"{roadmap} was in line already.")
