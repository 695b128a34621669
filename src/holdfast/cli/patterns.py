"""holdfast patterns: list recipes, show one, or make a plan of one. A plan from a pattern is gated like any other."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from holdfast.cli.opening import changing, reading
from holdfast.cli.screen import Screen, shown
from holdfast.cli.verbs import Face, verb
from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.engine.patterns import Listed
    from holdfast.model.canonical import Json
    from holdfast.planning.patterns.pattern import Pattern


@verb(name="patterns")
@click.argument("id", required=False)
@click.option("--input", "words", multiple=True, metavar="NAME=VALUE", help="An input; may be given several times.")
@click.option("--inputs", "file", type=click.Path(), metavar="FILE", help="All inputs, as a JSON object.")
@click.option("--plan", "wanted", is_flag=True, help="Make a plan of it, to be simulated and executed.")
def command(face: Face, id: str | None, words: tuple[str, ...], file: str | None, wanted: bool) -> None:
    """List the patterns; show the inputs of one; with --plan make a plan of it."""
    if id is None:
        with reading(face) as hf:
            from holdfast.engine.patterns import list_patterns

            _tell_all(face.screen, list_patterns(hf.site))
    elif not wanted:
        if words or file:
            raise InvalidInput("inputs are for making a plan", hint="Add: --plan")
        with reading(face) as hf:
            from holdfast.engine.patterns import find_pattern

            _tell_one(face.screen, find_pattern(hf.site, id))
    else:
        _plan(face, id, words, file)


def _plan(face: Face, id: str, words: tuple[str, ...], file: str | None) -> None:
    from holdfast.engine.patterns import find_pattern, plan_from_pattern

    with changing(face) as hf:
        pattern = find_pattern(hf.site, id)
        plan = plan_from_pattern(hf.site, id, _inputs(pattern, words, file))
        hf.keep_plan(plan)
        face.screen.answer({"kind": "plan", "id": plan.id, "status": "PLANNED", **plan.document()})
        face.screen.say(f"{shown(plan.intent)}  plan {plan.id}")
        for path in plan.affected_paths:
            face.screen.say(f"  {shown(path)}")
        face.screen.say(f"Try it with: holdfast simulate {plan.id}")


def _inputs(pattern: Pattern, words: tuple[str, ...], file: str | None) -> dict[str, Json]:
    from holdfast.engine.pattern_inputs import MOST_BYTES, inputs_from_json, inputs_from_words

    if file is None:
        return dict(inputs_from_words(pattern, list(words)))
    if words:
        raise InvalidInput("give the inputs one by one, or in a file; not both")
    try:
        with open(file, "rb") as opened:
            data = opened.read(MOST_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{shown(file)} cannot be read: {error.strerror}") from error
    return dict(inputs_from_json(data, file))


def _tell_all(screen: Screen, listed: Listed) -> None:
    refused = [each._asdict() for each in listed.refused]
    screen.answer({"kind": "list", "items": [each.document() for each in listed.patterns], "refused": refused})
    width = max(len(each.id) for each in listed.patterns)
    for each in listed.patterns:
        whose = "" if each.origin == "built-in" else f"  ({each.origin})"
        screen.say(f"{shown(each.id):<{width}}  {shown(each.title)}{whose}")
    for wrong in listed.refused:
        screen.say(f"✗ {shown(wrong.file)}: {shown(wrong.why)}")


def _tell_one(screen: Screen, pattern: Pattern) -> None:
    screen.answer({"kind": "pattern", **pattern.document()})
    screen.say(f"{shown(pattern.id)}: {shown(pattern.title)}")
    screen.say(shown(pattern.description))
    for title, value in (("Inputs, as JSON schema:", pattern.schema), ("For example:", dict(pattern.example))):
        screen.say(f"\n{title}")
        screen.say(json.dumps(value, indent=2, ensure_ascii=True))
