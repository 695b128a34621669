"""What holds for every roadmap, not only for those somebody thought of."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.intake.roadmap import parse, renamed, tickable, ticked
from holdfast.intake.roadmap.ids import MAX_ID, is_id
from holdfast.model.task import Roadmap

NAMES = st.sampled_from(["ROADMAP.md", "tasks.json", "TODO.txt"])
# Pieces of which odd files are made: whatever means something to a reader, next to whatever does not.
PIECES = st.sampled_from(
    [b"- [ ] ", b"- [x] ", b"* [X]\t", b"1. [ ] ", b"2. ", b"- ", b"[ ] ", b"\n", b"\r\n", b"\r", b"\t", b"  ", b"    ",
     b"## Phase 1: ", b"# ", b"### Task 2: ", b"```", b"~~~~", b"<!--", b"-->", b"**Files**: ", b"**Goal**: ",
     b"`a/b.py`", b"Depends on ", b"after: ", b"T001 ", b"[P] ", b"1.2 ", b"**Add**",
     b"\xe2\x9c\x85 ", b"\xe2\x9d\x8c", b"\xef\xb8\x8f", b"\xef\xbb\xbf", b"\xff\xfe", b"\x00", b"\xed\xa0\x80",
     b"word ", b"Add the parser",
     b"{#id}", b"## Dependencies\n",
     b"- T001 before T002\n", b"{", b"}", b'"tasks": [', b'"title": "x"', b"]", b",", b":white_check_mark: "]
)  # fmt: skip
ODD = st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=60).map(b"".join))
WORDS = st.text(alphabet="abcdefgh ", min_size=3, max_size=20).map(str.strip).filter(lambda text: len(text) > 2)


def _json_like() -> st.SearchStrategy[bytes]:
    scalars = st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=8), st.sampled_from(["done", "pending"])
    )
    task = st.dictionaries(
        st.sampled_from(["id", "title", "status", "done", "dependencies", "subtasks", "files", "details"]),
        st.one_of(scalars, st.lists(scalars, max_size=3)),
    )
    tasks = st.lists(st.one_of(task, scalars), max_size=6)
    shapes = st.one_of(
        tasks,
        st.fixed_dictionaries({"tasks": tasks}),
        st.dictionaries(st.sampled_from("ab"), st.fixed_dictionaries({"tasks": tasks})),
    )
    return shapes.map(lambda value: json.dumps(value).encode())


@given(data=st.one_of(ODD, _json_like()), name=NAMES)
@example(data=b"[" * 5_000, name="tasks.json")
@example(data=b'{"a":' * 5_000, name="ROADMAP.md")
@example(data=b'["\\ud800"]', name="tasks.json")
@example(data=b'[{"title": "a", "status": "\\u0130"}]', name="tasks.json")
def test_any_bytes_become_a_roadmap_of_sound_nouns(data: bytes, name: str) -> None:
    """Any bytes give a roadmap: safe and unique ids, references and lines that exist, text that can be written."""
    roadmap = parse(data, name)
    ids = [task.id for task in roadmap.tasks]
    assert all(is_id(id) and len(id) <= MAX_ID for id in ids)
    assert len({id.lower() for id in ids}) == len(ids)
    last = data.count(b"\n") + data.count(b"\r") + 1
    for task in roadmap.tasks:
        assert task.title == task.title.strip() != ""
        assert task.id not in task.after and set(task.after) <= set(ids)
        assert 1 <= task.line <= last
    assert all(1 <= remark.line <= last for remark in roadmap.remarks)
    assert bool(roadmap.tasks) or roadmap.remarks
    repr(roadmap).encode("utf-8")
    for task in roadmap.tasks:
        json.dumps(task).encode("utf-8")
        "".join((task.title, task.body, task.section, *task.files)).encode("utf-8")


@given(data=st.one_of(ODD, _json_like()), name=NAMES, choices=st.lists(st.booleans(), min_size=1, max_size=8))
def test_ticking_changes_marks_and_nothing_else(data: bytes, name: str, choices: list[bool]) -> None:
    """The wanted answers are read back, all else is read as before, and a second time changes nothing."""
    before = parse(data, name)
    can = tickable(data, name)
    wanted = {task.id: choices[n % len(choices)] for n, task in enumerate(before.tasks)}
    turned = ticked(data, name, wanted)
    after = parse(turned, name)
    assert [task.id for task in after.tasks] == [task.id for task in before.tasks]
    assert {task.id: task.done for task in after.tasks} == {
        task.id: wanted[task.id] if task.id in can else task.done for task in before.tasks
    }
    assert [task._replace(done=False) for task in after.tasks] == [task._replace(done=False) for task in before.tasks]
    assert ticked(turned, name, wanted) == turned
    assert ticked(data, name, {task.id: task.done for task in before.tasks}) == data


def _file(titles: list[tuple[str, bool]]) -> bytes:
    return "".join(f"- [{'x' if done else ' '}] {title}\n" for title, done in titles).encode()


@given(
    titles=st.lists(st.tuples(WORDS, st.booleans()), max_size=8, unique_by=lambda row: row[0].lower()),
    flips=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_in_a_check_list_only_the_characters_in_the_boxes_change(
    titles: list[tuple[str, bool]], flips: list[bool]
) -> None:
    """Ticking a plain list gives the bytes that a person would have written."""
    wanted = [(title, done ^ flip) for (title, done), flip in zip(titles, flips, strict=False)]
    data = _file(titles)
    ids = [task.id for task in parse(data).tasks]
    done = {id: want for id, (_, want) in zip(ids, wanted, strict=True)}
    assert ticked(data, "ROADMAP.md", done) == _file(wanted)


@given(
    titles=st.lists(WORDS, min_size=1, max_size=8),
    inserted=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), max_size=6),
)
def test_ids_stay_when_other_lines_come_and_go(titles: list[str], inserted: list[tuple[int, int]]) -> None:
    """Prose, blank lines, other tasks and ticks put anywhere between tasks change no id, also not those of doubles."""
    others = ["", "Some words in between.", "- [ ] 9 entirely other things", "- [x] 7 other things, done"]
    lines = [f"- [ ] {title}" for title in titles]
    edited = list(lines)
    for position, kind in inserted:
        edited.insert(min(position, len(edited)), others[kind])
    wanted = [task.id for task in parse("\n".join(lines).encode()).tasks]
    found = [task.id for task in parse("\n".join(edited).encode()).tasks if "other things" not in task.title]
    assert found == wanted


@given(st.lists(WORDS, max_size=8), st.lists(WORDS, max_size=8))
def test_renaming_never_takes_an_id_that_was_there_nor_one_twice(old: list[str], new: list[str]) -> None:
    """Only ids that are gone are mapped, only to ids that are new, and no two to one."""
    before, after = parse(_file([(t, False) for t in old])), parse(_file([(t, False) for t in new]))
    found = renamed(before, after)
    old_ids, new_ids = {task.id for task in before.tasks}, {task.id for task in after.tasks}
    assert set(found) <= old_ids - new_ids
    assert set(found.values()) <= new_ids - old_ids
    assert len(set(found.values())) == len(found)


def test_an_unknown_id_cannot_be_ticked() -> None:
    """An id that is of no task in the file is refused by name."""
    with pytest.raises(InvalidInput, match="no-such-task"):
        ticked(b"- [ ] One\n", "ROADMAP.md", {"no-such-task": True})


@pytest.mark.parametrize(
    "line",
    [b"- [ ] task %d\n", b"- [ ] same\n", b"prose %d\n", b"```%d\n", b"~~~\n- [ ] x\n", b"## Phase %d: x\n- [ ] y\n",
     b"  - [ ] %d\n", b"<!--\n", b"- [ ] a (depends on T%d)\n", b"1. x %d\n", b"### Task %d: a\n", b"\t\t\t\t%d\n",
     b"\r", b"- [ ] T%d depends on Phase 1\n", b"**Files**: a%d.py\n"],
)  # fmt: skip
def test_thirty_thousand_odd_lines_are_read_in_time(line: bytes) -> None:
    """Time grows with the file, not with its square: 30,000 lines of any kind take seconds at most."""
    data = b"".join(line % n if b"%d" in line else line for n in range(30_000))
    start = time.process_time()
    roadmap = parse(data)
    assert time.process_time() - start < 20
    assert isinstance(roadmap, Roadmap)


def test_very_long_lines_and_deep_nesting_are_read_in_time() -> None:
    """A line of fifty thousand characters of one kind, and a list as deep as it is long, cost no more than others."""
    start = time.process_time()
    for piece in (
        b" ",
        b"\t",
        b"`",
        b"*",
        b"[",
        b"(",
        b"x ",
        b"1.",
        b"\xe2\x9c\x85",
        b"- ",
        b"#",
        b"<!--",
        b"a/",
        b"**a**",
    ):
        parse(b"- [ ] " + piece * 50_000 + b"\n" + piece * 50_000 + b"z")
        parse(b"- [ ] a\n  Depends on " + piece * 30_000)
    nested = b"".join(b" " * (2 * n) + b"- [ ] deep\n" for n in range(1_000))
    assert len(parse(nested).tasks[0].subtasks) == 999
    assert time.process_time() - start < 20
