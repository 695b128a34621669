"""Three versions of a roadmap become one: boxes apart from lines."""

from __future__ import annotations

import json

import pytest

from holdfast.intake.roadmap.merging import merged
from holdfast.intake.roadmap.ticking import boxes, ticked

TEXT = b"# R\n\n- [ ] One\n- [ ] Two\n- [ ] Three"
NAME = "ROADMAP.md"


def set_in(text: bytes, titles: str) -> bytes:
    ids = dict(zip(("One", "Two", "Three"), boxes(text, NAME), strict=True))
    return ticked(text, NAME, {ids[title]: True for title in titles.split()})


@pytest.mark.parametrize(
    ("base", "mine", "theirs", "wanted"),
    [
        ("", "One", "Two", "One Two"),
        ("", "One Two", "One", "One Two"),
        ("One", "One Two", "", "Two"),
        ("One", "", "One Two Three", "Two Three"),
    ],
)
def test_each_box_is_merged_by_itself(base: str, mine: str, theirs: str, wanted: str) -> None:
    """The side that changed it decides, also where boxes stand in adjoining lines; the other order gives the same."""
    texts = set_in(TEXT, base), set_in(TEXT, mine), set_in(TEXT, theirs)
    assert merged(*texts, NAME) == merged(texts[0], texts[2], texts[1], NAME) == set_in(TEXT, wanted)


def test_a_box_is_not_in_the_way_of_the_lines_around_it() -> None:
    """A note below the very line that was ticked, and more at its end."""
    theirs = TEXT.replace(b"- [ ] Two", b"- [ ] Two\n  A note.") + b"\n\nThe end.\n"
    assert merged(TEXT, set_in(TEXT, "Two Three"), theirs, NAME) == set_in(theirs, "Two Three")


def test_lines_that_both_changed_are_still_no_merge() -> None:
    """Boxes apart or not: two titles for one line are a person's to choose from."""
    assert merged(TEXT, TEXT.replace(b"# R", b"# S"), TEXT.replace(b"# R", b"# T"), NAME) is None


def test_a_task_file_is_merged_in_the_same_way() -> None:
    """There a box is a state in JSON."""
    name = "task_queue.json"
    text = json.dumps([{"id": id, "title": id, "status": "pending"} for id in ("a", "b")], indent=1).encode()
    theirs = text.replace(b'"title": "b"', b'"title": "b, reworded"')
    done = ticked(text, name, dict.fromkeys(boxes(text, name), True))
    assert merged(text, done, theirs, name) == ticked(theirs, name, dict.fromkeys(boxes(text, name), True))
