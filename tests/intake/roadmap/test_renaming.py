"""Which tasks go on under another id after a person edited the file."""

from __future__ import annotations

import pytest

from holdfast.intake.roadmap import parse, renamed

BASE = "- [ ] Set up the package\n- [ ] Add the parser for version two\n- [ ] Publish it\n"


def _renamed(old: str, new: str) -> dict[str, str]:
    """Titles instead of ids."""
    before, after = parse(old.encode()), parse(new.encode())
    titles = {task.id: task.title for task in (*before.tasks, *after.tasks)}
    return {titles[a]: titles[b] for a, b in renamed(before, after).items()}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        # A word more, in the same place.
        (
            BASE.replace("Add the parser for version two", "Add the parser for version two files"),
            {"Add the parser for version two": "Add the parser for version two files"},
        ),
        # Only ticked, moved or indented otherwise: the id is the same, nothing is renamed.
        (BASE.replace("[ ]", "[x]"), {}),
        ("\n".join(reversed(BASE.splitlines())), {}),
        # Another task in the same place.
        (BASE.replace("Add the parser for version two", "Remove the old web page"), {}),
        # Alike, but elsewhere.
        ("- [ ] Add the parser for version 2 two\n- [ ] Set up the package\n- [ ] Publish it\n", {}),
        # Gone, or new beside it.
        ("- [ ] Set up the package\n- [ ] Publish it\n", {}),
        (BASE + "- [ ] Add the parser for version three\n", {}),
        # Split in two that are as likely: neither.
        (
            BASE.replace(
                "- [ ] Add the parser for version two",
                "- [ ] Add the parser for version A\n- [ ] Add the parser for version B",
            ),
            {},
        ),
    ],
)
def test_a_task_goes_on_only_where_place_and_words_say_so(new: str, expected: dict[str, str]) -> None:
    """A reworded title in the same place is the same task; in doubt it is not."""
    assert _renamed(BASE, new) == expected


def test_a_task_goes_on_when_a_double_makes_its_id_longer() -> None:
    """A second task of the same title elsewhere gives both fresh ids; neither is taken for the old one."""
    old, new = "## A\n- [ ] Write tests\n", "## A\n- [ ] Write tests\n## B\n- [ ] Write tests\n"
    before, after = parse(old.encode()), parse(new.encode())
    assert before.tasks[0].id not in {task.id for task in after.tasks}
    assert renamed(before, after) == {}


def test_a_task_goes_on_when_its_heading_is_renamed() -> None:
    """Doubles are told apart by headings: when one heading changes, the title that stands once goes on."""
    old = "## A\n- [ ] Write tests\n## B\n- [ ] Write tests\n"
    new = "## A\n- [ ] Write tests\n## C\n- [ ] Write tests\n"
    before, after = parse(old.encode()), parse(new.encode())
    assert before.tasks[0].id == after.tasks[0].id
    assert renamed(before, after) == {before.tasks[1].id: after.tasks[1].id}


def test_written_ids_need_no_renaming() -> None:
    """A task with a written id keeps it whatever its title says."""
    assert renamed(parse(b"- [ ] T001 Do this\n"), parse(b"- [ ] T001 Do something else\n")) == {}
