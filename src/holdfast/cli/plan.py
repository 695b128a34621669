"""holdfast plan: a change file or words become a plan that is kept under its id."""

from __future__ import annotations

import click

from holdfast.cli.asked import is_words, worded_class
from holdfast.cli.opening import changing
from holdfast.cli.patch_asked import Asked
from holdfast.cli.screen import shown
from holdfast.cli.verbs import Face, verb
from holdfast.cli.words import count
from holdfast.model.path import printable
from holdfast.model.plan import Plan, described


@verb(name="plan")
@click.argument("file")
@click.option("--reverse", is_flag=True, help="FILE is a patch: take back what it does.")
def command(face: Face, file: str, reverse: bool) -> int | None:
    """Read FILE (a change file or a patch; - is standard input), or words in quotes, into a plan; nothing changes."""
    screen = face.screen
    with changing(face) as hf:
        if not is_words(file):
            plan: Plan | None = Asked(hf, screen, reverse=reverse).plan(file)
            about: dict[str, object] = {}
        else:
            Asked(hf, screen, reverse=reverse).require_none()
            found = hf.understand(file)
            plan, about = found.plan, {"understood": found.document()}
            screen.say(f"Understood as: {worded_class(found)} ({found.classified.confidence} %)")
            if plan is None:
                screen.answer({"kind": "plan", "id": "", "status": "NO_STEPS", **about})
                screen.say(f"No steps follow from these words. Missing: {'; '.join(map(shown, found.missing))}")
                return 2
        assert plan is not None
        hf.keep_plan(plan)
    steps = [described(step) for step in plan.steps]
    screen.answer({"kind": "plan", "id": plan.id, "status": "PLANNED", **plan.document(), "steps": steps, **about})
    screen.say(f"{plan.id}  {count(len(plan.steps), 'step')}  risk {plan.risk} (proposed)  {shown(plan.intent)}")
    for path in plan.affected_paths[:20]:
        screen.say(f"  {printable(path)}")
    screen.say(f"Simulate it with: holdfast simulate {plan.id}")
    return None
