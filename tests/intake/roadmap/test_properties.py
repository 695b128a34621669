"""What holds for every roadmap, not only for those somebody thought of."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.intake.roadmap import parse, renamed, tickable, ticked
from holdfast.intake.roadmap.ids import MAX_ID, is_id
from holdfast.model.task import Roadmap

NAMES = st.sampled_from(["ROADMAP.md", "tasks.json", "TODO.txt", "TODO.md", "todo.org", "plan.rst"])
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
# Whole lines, so that usual files come up as well, with headings, code and references that fit together.
LINES = st.sampled_from(
    [b"- [ ] Add the parser", b"- [x] Add the lexer", b"* [X] Tell about it", b"+ [ ] Ship it.", b"1. [ ] Count",
     b"2. Number", b"- [ ] Task 4 of the list", b"- [ ] Task 4: worded", b"- [ ] T001 Set up", b"- [ ] **Bold** words",
     b"- [ ] Ends:", b"- [ ] Same", b"- [ ] Same", b"- [/] Half", b"- [-] Dropped", b"- [?] Unknown", b"- [ ]",
     b"- [ ] ", b"-\t[ ] Tab", b"- [ ] See `docs/a.md`", b"- [ ] Add it (depends on Add the lexer)", b"- bullet",
     b"- [ ] Dep**end**s on Ship it", b"  - [ ] with a test", b"  - [x] \xe2\x9c\x85 done twice", b"    - [ ] deep",
     b"\t- [ ] tab", b" - [ ] one blank", b"# Roadmap", b"## Phase 1: Base", b"## Phase 2: More", b"### 1.1 Area",
     b"# T014 heading", b"### Task 2: do it", b"## [ ] open heading", b"## Legend", b"## Dependencies",
     b"- T001 before T014", b"**Goal**: all works", b"Files: a.py", b"  **Files**: `own.py`", b"- **Files**: `q.py`",
     b"  Priority: low", b"**Prerequisites**: Phase 1", b"  Depends on **Add the parser**", b"  after: Same",
     b"  depends on T001, then after: more", b"  Blocked by Phase 1", b"```", b"  ```", b"````python", b"~~~",
     b"<!-- comment", b"-->", b"", b"", b"  ", b"Prose at the margin.", b"  Prose.", b"\xe2\x9c\x85 Signed",
     b"- \xe2\x9d\x8c listed sign", b"- [ ] nul \x00", b"- [ ] bad \xff", b"- [ ] \xc3\x9cber",
     b"- [x] Ends it -->", b"## 2. Next", b"### 1.2 *Bold* area", b"## 3 Last #",
     b"| # | Task | Status |", b"|---|---|---|", b"| 1 | Mast | \xe2\x9c\x85 Done |",
     b"| 2 | Boom \\| gaff | wip (40%) |", b"| 3 | Keel | |", b"|a|", b"| Phase | Progress |", b"|:-:|:-:|",
     b"| 1 | 100% |", b"* TODO Row :tag:", b"** DONE Sail", b"*** WAIT [#A] Swim", b"#+TODO: A WAIT | B",
     b"#+begin_src", b"#+end_src", b"Title", b"=====", b"-----", b"~~~~~", b".. todo:: Rest", b".. note::",
     b"#. Eleven", b"### 2.1 Deck \xe2\x9c\x85", b"### 2.2 Hull \xe2\x9d\x8c", b"## Success criteria",
     b"<details>", b"</details>", b" * star"]
)  # fmt: skip
FILES = st.tuples(st.lists(LINES, max_size=40), st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])).map(
    lambda parts: parts[1].join(parts[0])
)
Written = bytes | Callable[[re.Match[bytes]], bytes]
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


@given(data=st.one_of(ODD, FILES, _json_like()), name=NAMES)
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


@given(data=st.one_of(ODD, FILES, _json_like()), name=NAMES, choices=st.lists(st.booleans(), min_size=1, max_size=8))
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


def _with_bodies(roadmap: Roadmap, pattern: re.Pattern[bytes], written: Written) -> Roadmap:
    """A roadmap whose bodies are spelled like the file after a substitution in it."""
    bodies = [pattern.sub(written, task.body.encode("utf-8")).decode("utf-8") for task in roadmap.tasks]
    tasks = tuple(task._replace(body=body) for task, body in zip(roadmap.tasks, bodies, strict=True))
    return roadmap._replace(tasks=tasks)


_USUAL = re.compile(rb"((?:\A|(?<=[\r\n]))[-*+]) (?=\[[ xX]\] [^ \t\r\n])")
_BELOW = re.compile(rb"((?:\A|(?<=[\r\n]))[ \t]+[-*+] )\[ \](?=[ \t])")


@given(data=st.one_of(FILES, ODD))
@example(data=b"# T014 heading\n## Phase 1: Base\n- [ ] Add the parser\n")
@example(data=b"# T014 heading\n**Files**: a.py\n## Legend\n- [x] Add the lexer\n## More\n- [x] Add the lexer\n")
@example(
    data=b"- [ ] Task 4: worded\n- [ ] Task 4 of it\n- [ ] Step 2.1 - more\n- [ ] Ends:\n- [x] Ends \xe2\x9c\x85\n"
)
@example(
    data=b"- [ ] **Bold** it\n- [ ] See [it](a.md)\n- [ ] Named {#name}\n- [ ] ~~Not~~ it\n- [ ] Says <!-- id: it -->\n"
)
@example(data=b"- [ ] Sask 4: worded\n- [x] ttep 2\n- [ ] Stake 4. out\n")
def test_the_usual_line_is_read_like_any_other(data: bytes) -> None:
    """A box at the margin is read in a short way; with one more blank in it, it is not, and means the same."""
    other = _USUAL.sub(rb"\1  ", data)
    assert parse(other) == _with_bodies(parse(data), _USUAL, rb"\1  ")
    assert tickable(other) == tickable(data)


@given(data=st.one_of(FILES, ODD))
@example(data=b"- [ ] Add the parser\n  - [ ] with a test\n    - [ ] deep\n")
@example(data=b"2. Number\n  - [ ] with a test\n    - [ ] deep\n")
def test_a_usual_box_below_a_task_is_read_like_any_other(data: bytes) -> None:
    """An empty box below a task is read in a short way; with a sign of somebody's own in it, it is not."""
    assert parse(_BELOW.sub(rb"\1[.]", data)) == _with_bodies(parse(data), _BELOW, rb"\1[.]")


_FENCE = re.compile(rb"((?:\A|(?<=[\r\n]))[ \t]*)(```+)(?=[^`\r\n]*(?:[\r\n]|\Z))")
_NUMBERED = re.compile(rb"((?:\A|(?<=[\r\n]))##+ \d[^\r\n]*[A-Za-z0-9])(?=[\r\n]|\Z)")


def _tildes(found: re.Match[bytes]) -> bytes:
    return found[1] + b"~" * len(found[2])


@given(data=FILES.map(lambda data: data.replace(b"~~~", b"Prose")))
@example(data=b"- [ ] Add the parser\n```\n- [ ] Add the lexer\n  ```\n- [ ] Ship it.\n")
@example(data=b"````python\n```\n- [ ] Same\n````\n- [ ] Same\n```\n")
@example(data=b"- [ ] Same\n  ```\n  depends on T001, then after: more\n  ```\n  after: Same\n")
def test_usual_code_is_read_like_any_other(data: bytes) -> None:
    """Code between lines of three backquotes is read in a short way; between tildes it is not, and means the same."""
    other = _FENCE.sub(_tildes, data)
    assert parse(other) == _with_bodies(parse(data), _FENCE, _tildes)
    assert tickable(other) == tickable(data)


@given(data=FILES)
@example(data=b"## Phase 1: Base\n### 1.1 Area\n- [ ] Same\n## 2. Next\n- [ ] Same\n")
@example(data=b"## Phase 1: Base\n### 1.1 Area\n- [ ] nul \x00\n- [ ] Add the parser\n## 2) Next\n**Files**: a.py\n")
@example(
    data=b"# T014 heading\n## 1.1 Area\n- [ ] Same\n  Prose.\n### 1234567 Far\n- [ ] Same\n## 3:\tTab\n- [ ] Same\n"
)
def test_a_numbered_section_is_read_like_any_other(data: bytes) -> None:
    """The heading of a numbered section is read in a short way; with a closing sign it is not, and means the same."""
    other = _NUMBERED.sub(rb"\1 #", data)
    assert parse(other) == _with_bodies(parse(data), _NUMBERED, rb"\1 #")


def test_a_comment_that_ends_in_the_line_of_a_task_hides_this_line_and_no_more() -> None:
    """What begins behind the line in which a comment ends is read, and has its own line; nothing in it is."""
    roadmap = parse(
        b"- [ ] One\n<!-- not\n- [ ] Two\n# Gone\n- [ ] Three --> and all else\n  words\n- [ ] Four\n  - [x] part\n"
    )
    assert [(task.title, task.line) for task in roadmap.tasks] == [("One", 1), ("Four", 7)]
    assert [(part.text, part.line) for part in roadmap.tasks[1].subtasks] == [("part", 8)]
    assert roadmap.title == ""


@pytest.mark.parametrize("fence", [b"```", b"````", b"~~~"])
def test_a_line_in_code_is_no_task_however_it_looks(fence: bytes) -> None:
    """Code hides the lines in it and no others, at the margin as well, and the tasks below keep their own lines."""
    inside = b"- [ ] Two\n- [x] Three\n  - [ ] Four\n"
    data = b"- [ ] One\n" + fence + b"\n" + inside + fence + b"\n- [ ] Five\n  - [x] part\n"
    roadmap = parse(data)
    assert [(task.title, task.line) for task in roadmap.tasks] == [("One", 1), ("Five", 7)]
    assert inside.decode() in roadmap.tasks[0].body
    assert [(part.text, part.line) for part in roadmap.tasks[1].subtasks] == [("part", 8)]
    five = roadmap.tasks[1].id
    assert ticked(data, "ROADMAP.md", {five: True}) == data.replace(b"- [ ] Five", b"- [x] Five")


@pytest.mark.parametrize("other", [b"", b"  - [ ] **bold** words\n", b"  - [ ] \xc3\xbcber\n", b"  - [ ] nul \x00\n"])
def test_subtasks_are_read_alike_beside_any_others(other: bytes) -> None:
    """A plain subtask has the same title whether or not others in the file have signs in theirs."""
    found = parse(b"- [ ] One\n  - [ ]  plain words \n- [ ] Two\n" + other)
    assert [part.text for part in found.tasks[0].subtasks] == ["plain words"]
    decorated = parse(b"- [ ] One\n  - [ ] **plain** [words](a.md)\n- [ ] Two\n" + other)
    assert decorated.tasks[0].subtasks == found.tasks[0].subtasks


@pytest.mark.parametrize("other", ["Über {}", "Over---{} `!` it"])
def test_many_tasks_are_read_as_each_of_them_alone(other: str) -> None:
    """Tasks are read many at once: an id, a body and what a task waits for are those that it has in a small file."""
    kinds = ("Add case {} to `it`", other, "Say a great deal more about case {} than fits into an id of a task",
             "Two  blanks {}", "{}", "Ends {}.", "See *{}*")  # fmt: skip
    titles = [kinds[number % len(kinds)].format(number) for number in range(1_300)]
    parts = [
        f"- [ ] {title}\n  Depends on **{titles[number - 700]}**\n" + "\n  More.\n" * (number % 3)
        for number, title in enumerate(titles)
    ]
    tasks = parse("".join(parts).encode()).tasks
    assert len(tasks) == len(titles)
    for number, task in enumerate(tasks):
        alone = parse((parts[number] + parts[number - 700]).encode()).tasks
        assert (task.id, task.title, task.body) == (alone[0].id, alone[0].title, alone[0].body)
        assert task.after == (tasks[number - 700].id,) == alone[0].after


def test_a_file_with_odd_characters_has_its_tasks_on_the_same_lines() -> None:
    """A task and its subtasks have their own lines, whatever else stands in the file, and whether or not it is text."""
    part = "# Part\n\n- [ ] Add case {0}\n  More{1}.\n\n  - [ ] one\n  - [x] two\n\nAside.\n1. [ ] Count {0}\n"
    files = {sign: "".join(part.format(number, sign) for number in range(700)) for sign in ("", "\0", "ü", "\udcff")}
    lines = {
        sign: [(task.line, [step.line for step in task.subtasks]) for task in parse(_bytes(words)).tasks]
        for sign, words in files.items()
    }
    assert lines[""] == [row for n in range(0, 7_000, 10) for row in ((n + 3, [n + 6, n + 7]), (n + 10, []))]
    assert lines[""] == lines["\0"] == lines["ü"] == lines["\udcff"]


def _bytes(words: str) -> bytes:
    return words.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("seldom", [1, 40])
def test_what_blocks_a_task_is_found_in_a_large_file(seldom: int) -> None:
    """A rare word is found behind few letters of its own kind, and behind many."""
    filler = "  The case is read from the file, and told.\n" * 400 + "  Work.\n" * seldom
    found = parse(f"- [ ] Add the parser\n{filler}- [ ] Add the lexer\n{filler}  Blocked by Add the parser\n".encode())
    assert [task.after for task in found.tasks] == [(), (found.tasks[0].id,)]


@pytest.mark.parametrize(("blanks", "tasks"), [(b"", 2), (b" ", 1), (b"  ", 1), (b"\t", 1)])
def test_a_box_is_a_subtask_from_one_blank_on(blanks: bytes, tasks: int) -> None:
    """A box that is indented by one blank, by more or by a tabulator is a subtask of the one above."""
    for other in (b"- [ ] with a test", b"- [.] with a test", b"* [x] \xe2\x9c\x85 with a test"):
        found = parse(b"- [ ] Add the parser\n" + blanks + other + b"\n").tasks
        assert (len(found), len(found[0].subtasks)) == (tasks, 2 - tasks)


def test_boxes_below_a_heading_with_a_number_stay_in_their_own_phase() -> None:
    """A heading that looked like a task, and is none because boxes follow, takes no box out of its phase or section."""
    roadmap = parse(
        b"# T014 heading\n## Phase 1: Base\n### 1.1 Area\n- [ ] Add the parser\n## More\n- [ ] Add the lexer\n"
    )
    assert [(task.phase, task.section) for task in roadmap.tasks] == [(roadmap.phases[0].id, "1.1 Area"), ("", "More")]


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


@pytest.mark.parametrize(
    "title", ["Draw " + "-+" * 200 + " the line", "Café " + "-+" * 200 + " corner", "\u212a" + " -" * 200 + " corner"]
)
def test_an_id_is_the_same_beside_a_title_in_another_script(title: str) -> None:
    """Many titles are read at once; what the others are written in changes no id."""
    alone = parse(f"- [ ] {title}\n".encode()).tasks[0].id
    for other in ("Plain words", "Größe", "計画"):
        assert parse(f"- [ ] {other}\n- [ ] {title}\n".encode()).tasks[1].id == alone


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
     b"\r", b"- [ ] T%d depends on Phase 1\n", b"**Files**: a%d.py\n", b"  depends on %d\n",
     b"# T01 a\n## b\n- [ ] c\n", b"`~~%d\n",
     b"```\n- [ ] Add it\n```\n", b"```\n- [ ] Add it\n", b"## Legend\n- [ ] Add it\n", b"<!--\n- [ ] Add it -->\n",
     b"# [ ] Add it\n- [ ] Part of it\n",
     b"- [ ] Dep**end**s on %d\n", b"| a%d | b |\n", b"| Task | Status |\n|---|---|\n| a | done |\n", b"* TODO a\n",
     b"* TODO a\n#+begin_src\n", b"- %d\n", b"### %d. a\n", b"> - [ ] a\n",
     b"- [ ] a\n\n\n", b"- [ ] a\n  ```\n  depends on a\n  ```\n"],
)  # fmt: skip
def test_ten_thousand_odd_lines_are_read_in_time(line: bytes) -> None:
    """Time grows with the file, not with its square: 10,000 lines of any kind take seconds at most."""
    data = b"".join(line % n if b"%d" in line else line for n in range(10_000))
    start = time.process_time()
    roadmap = parse(data)
    assert time.process_time() - start < 6
    assert isinstance(roadmap, Roadmap)


def test_very_long_lines_and_deep_nesting_are_read_in_time() -> None:
    """A line of fifty thousand characters of one kind, and a list as deep as it is long, cost no more than others."""
    start = time.process_time()
    for piece in (
        b"epend",
        b"depends on a, ",
        b"-`",
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
