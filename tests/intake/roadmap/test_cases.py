"""Every file in `cases/` has a twin that says what is read from it; a new case is two new files.

A twin lists the format, the remarks (line and a part of the text) and all tasks in order; `after` is written as titles.
Of each task the fields that the twin names are compared, title and done always. `unmarked` are those without a mark.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.intake.roadmap import parse, tickable, ticked
from holdfast.intake.roadmap.ids import is_id
from holdfast.model.task import FORMATS, Roadmap, Task

CASES = Path(__file__).parent / "cases"
FILES = {path.name: path for path in sorted(CASES.iterdir()) if ".expected." not in path.name}


def _expected(name: str) -> dict[str, object]:
    twin: dict[str, object] = json.loads((CASES / f"{name}.expected.json").read_text())
    return twin


def _roadmap(name: str) -> Roadmap:
    return parse(FILES[name].read_bytes(), name)


def _plain(value: object) -> object:
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def _fields(task: Task, roadmap: Roadmap) -> dict[str, object]:
    titles = {other.id: other.title for other in roadmap.tasks}
    phases = {phase.id: phase.title for phase in roadmap.phases}
    words = {key: _plain(value) for key, value in task._asdict().items()}
    return {**words, "after": [titles[id] for id in task.after], "phase": phases.get(task.phase, "")}


@pytest.mark.parametrize("heading", ["Test plan", "Testing", "Manual test checklist", "QA checklist", "Verification"])
def test_boxes_about_tests_alone_are_asked_about(heading: str) -> None:
    """They may be what a person ticks while trying something out; beside a task elsewhere they are marked tasks."""
    alone = f"# Add a cache\n\nWhat and why.\n\n## {heading}\n\n- [ ] Start the server\n- [ ] Reload the page\n"
    assert parse(alone.encode(), "PLAN.md").confidence == "guessed"
    beside = f"{alone}\n## Work\n\n- [ ] Write the cache\n"
    assert parse(beside.encode(), "PLAN.md").confidence == "marked"
    named = alone.replace(heading, "Test the parser")
    assert parse(named.encode(), "PLAN.md").confidence == "marked"


def test_what_is_to_do_below_what_is_done_is_told() -> None:
    """In org, with its line; below a heading that is open, or where all is done, nothing is said."""
    text = "* DONE Parser\n** TODO Numbers\n** DONE Words\n* TODO Printer\n** TODO Colours\n"
    found = parse(text.encode(), "plan.org")
    assert [task.title for task in found.tasks] == ["Parser", "Printer"]
    (remark,) = found.remarks
    assert remark.line == 2 and "below a task that is done" in remark.text


@pytest.mark.parametrize("name", FILES)
def test_a_roadmap_has_exactly_these_tasks(name: str) -> None:
    """A roadmap is read as the format, with the tasks and the phases that its twin lists, and no others."""
    expected, roadmap = _expected(name), _roadmap(name)
    assert roadmap.format == expected["format"]
    wanted = expected["tasks"]
    assert isinstance(wanted, list)
    found = [_fields(task, roadmap) for task in roadmap.tasks]
    assert [(task["title"], task["done"]) for task in found] == [(task["title"], task["done"]) for task in wanted]
    for task, want in zip(found, wanted, strict=True):
        assert {key: task[key] for key in want} == want
    if "title" in expected:
        assert roadmap.title == expected["title"]
    if "phases" in expected:
        titles = {phase.id: phase.title for phase in roadmap.phases}
        phases = [{**phase._asdict(), "after": [titles[id] for id in phase.after]} for phase in roadmap.phases]
        wanted_phases = expected["phases"]
        assert isinstance(wanted_phases, list)
        assert len(phases) == len(wanted_phases)
        for phase, want in zip(phases, wanted_phases, strict=True):
            assert {key: phase[key] for key in want} == want


@pytest.mark.parametrize("name", FILES)
def test_what_is_odd_is_told_with_its_line(name: str) -> None:
    """The remarks of a roadmap are those that its twin lists: the line, and a part of what is said."""
    wanted = _expected(name).get("remarks", [])
    assert isinstance(wanted, list)
    remarks = _roadmap(name).remarks
    assert [remark.line for remark in remarks] == [line for line, _ in wanted]
    for remark, (_, part) in zip(remarks, wanted, strict=True):
        assert part in remark.text


@pytest.mark.parametrize("name", FILES)
def test_ids_are_file_names_and_all_different(name: str) -> None:
    """Each id is a safe file name of at most 48 characters, and no two are equal in any case of letters."""
    roadmap = _roadmap(name)
    for ids in ([task.id for task in roadmap.tasks], [phase.id for phase in roadmap.phases]):
        assert all(is_id(id) and len(id) <= 48 and "/" not in id for id in ids)
        assert len({id.lower() for id in ids}) == len(ids)


@pytest.mark.parametrize("name", FILES)
def test_every_mark_can_be_turned_and_nothing_else_changes(name: str) -> None:
    """Each tickable task can be turned by itself: its answer changes, all others and all other bytes do not."""
    data = FILES[name].read_bytes()
    before = parse(data, name)
    can = tickable(data, name)
    assert can == {task.id for task in before.tasks if task.id not in _unmarked(name, before)}
    for task in before.tasks:
        turned = ticked(data, name, {task.id: not task.done})
        assert (turned != data) == (task.id in can)
        after = parse(turned, name)
        assert [other.id for other in after.tasks] == [other.id for other in before.tasks]
        wanted = {other.id: other.done for other in before.tasks}
        wanted[task.id] ^= task.id in can
        assert {other.id: other.done for other in after.tasks} == wanted
        assert ticked(turned, name, {task.id: not task.done}) == turned
        assert _differing(data, turned) <= 64


def _unmarked(name: str, roadmap: Roadmap) -> set[str]:
    """The tasks that the twin calls impossible to tick, by title."""
    wanted = _expected(name).get("unmarked", [])
    assert isinstance(wanted, list)
    return {task.id for task in roadmap.tasks if task.title in wanted}


def _differing(a: bytes, b: bytes) -> int:
    """The length of what is left of the longer text without the common beginning and end."""
    start = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    return max(len(a), len(b)) - start - end


def test_every_case_has_a_twin_and_every_twin_a_case() -> None:
    """No expectation is left without its file, each format is there, and there are at least sixty cases."""
    twins = {path.name.removesuffix(".expected.json") for path in CASES.glob("*.expected.json")}
    assert twins == set(FILES)
    assert len(FILES) >= 60
    assert {_expected(name)["format"] for name in FILES} == set(FORMATS)
