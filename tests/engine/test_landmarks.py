"""Landmarks: what landed is a commit in every repository that it touched, with the tick, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from guarded import ME, Ground, fill, guard, put
from holdfast.engine.landmarks import checkpoint_of, commits_of_return, remarks_on, roadmap_change
from holdfast.engine.orders import Asked, Landed, LandOrder
from holdfast.engine.pipeline import Pipeline
from holdfast.errors import Blocked
from holdfast.model.task import TaskRecord
from holdfast.workspace.githistory import Commit
from laned import FILES, ROADMAP, commits, git, landings, lane_of, proposed, site

NEW = put("new.py", b"N = 1\n")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = site(tmp_path / "workspace")
    yield found
    found.hf.close()


def shown(place: Path, *words: str) -> str:
    return git(place, "show", "--format=%B", "--name-only", "HEAD", *words)


def test_the_commit_says_what_it_is(ground: Ground) -> None:
    """Task, run, execution and the digest of the change set are in its trailers."""
    answer = lane_of(ground).land(proposed(ground, NEW))
    assert isinstance(answer, Landed)
    message = shown(ground.path)
    row = landings(ground)[0]
    for word in (answer.execution, str(row.summary["change_set"]), "u-run", proposed(ground).order.task):
        assert word in message


def test_a_persons_other_edits_keep_the_roadmap_out_of_the_commit(ground: Ground) -> None:
    """The box is ticked in what they wrote; that stays theirs to commit (N2)."""
    order = proposed(ground, NEW)
    (ground / "ROADMAP.md").write_bytes(ROADMAP + b"\nA note of mine.\n")
    assert isinstance(lane_of(ground).land(order), Landed)
    assert (ground / "ROADMAP.md").read_bytes() == ROADMAP.replace(b"[ ] One", b"[x] One") + b"\nA note of mine.\n"
    assert git(ground.path, "show", "--format=", "--name-only", "HEAD").split() == ["new.py"]
    assert git(ground.path, "status", "--porcelain").split() == ["M", "ROADMAP.md"]


def test_a_persons_staged_and_unstaged_work_stays_as_it_is(ground: Ground) -> None:
    """What is in the index stays there, uncommitted."""
    order = proposed(ground, NEW)
    (ground / "staged.txt").write_bytes(b"staged\n")
    git(ground.path, "add", "staged.txt")
    (ground / "b.py").write_bytes(b"B = 'being edited'\n")
    assert isinstance(lane_of(ground).land(order), Landed)
    assert git(ground.path, "show", "--format=", "--name-only", "HEAD").split() == ["ROADMAP.md", "new.py"]
    assert sorted(git(ground.path, "status", "--porcelain").splitlines()) == [" M b.py", "A  staged.txt"]


def test_a_roadmap_that_nobody_committed_is_not_committed(tmp_path: Path) -> None:
    """It is theirs."""
    place = tmp_path / "workspace"
    place.mkdir()
    fill(place, {"a.py": b"A = 1\n"})
    for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "base")):
        git(place, *words)
    fill(place, {"ROADMAP.md": ROADMAP})
    ground = guard(place)
    assert isinstance(lane_of(ground).land(proposed(ground, NEW)), Landed)
    assert git(place, "show", "--format=", "--name-only", "HEAD").split() == ["new.py"]
    ground.hf.close()


def test_without_a_repository_there_is_no_commit_and_no_complaint(tmp_path: Path) -> None:
    """It lands all the same."""
    ground = guard(tmp_path / "workspace", FILES)
    answer = lane_of(ground).land(proposed(ground, NEW))
    assert isinstance(answer, Landed) and (answer.commit, answer.remarks) == ("", ())
    assert b"[x] One" in (ground / "ROADMAP.md").read_bytes()
    ground.hf.close()


def test_where_no_checkpoint_is_wanted_none_is_made(ground: Ground) -> None:
    """`checkpoint = none`."""
    answer = lane_of(ground).land(proposed(ground, NEW)._replace(checkpoint=False))
    assert isinstance(answer, Landed) and answer.commit == "" and commits(ground.path) == []


def test_a_tick_that_a_kill_left_out_goes_with_the_next_commit(ground: Ground) -> None:
    """The boxes of the file are all that differs, whoever set them."""
    assert roadmap_change(ground.hf.site, "ROADMAP.md") is None
    (ground / "ROADMAP.md").write_bytes(ROADMAP.replace(b"[ ] Two", b"[x] Two"))
    change = roadmap_change(ground.hf.site, "ROADMAP.md")
    assert change is not None and change.path == "ROADMAP.md"


# ── an agent that edits the roadmap itself ──

TITLED = ROADMAP.replace(b"# R", b"# Our roadmap")
NOTED = ROADMAP + b"  A note.\n"


@pytest.mark.parametrize("text", [TITLED, ROADMAP + b"\nThe end.\n", NOTED])
def test_an_agents_edit_of_the_roadmap_is_committed_with_the_box(ground: Ground, text: bytes) -> None:
    """Its words and the tick are in the task's commit, and nothing is left to commit (N4)."""
    order = proposed(ground, NEW, put("ROADMAP.md", text))
    answer = lane_of(ground).land(order)
    if isinstance(answer, Asked):  # a note under another task is a person's to allow
        answer = lane_of(ground).land(order._replace(simulation=answer.simulation, cleared_by=ME))
    assert isinstance(answer, Landed) and answer.remarks == () and len(answer.commit.split()) == 1
    ticked = text.replace(b"[ ] One", b"[x] One")
    assert (ground / "ROADMAP.md").read_bytes() == ticked == git(ground.path, "show", "HEAD:ROADMAP.md").encode()
    assert git(ground.path, "status", "--porcelain") == ""


def test_what_a_person_wrote_there_since_is_not_in_that_commit(ground: Ground) -> None:
    """They write into the roadmap after it was ticked: the commit holds what landed and the box, the rest is theirs."""

    def disturbed(pipeline: Pipeline, order: LandOrder, execution: str, tasks: Sequence[str]) -> Sequence[Commit]:
        with (ground / "ROADMAP.md").open("ab") as file:
            file.write(b"\nA note of mine.\n")
        return checkpoint_of(pipeline, order, execution, tasks)

    answer = lane_of(ground, disturbed).land(proposed(ground, NEW, put("ROADMAP.md", TITLED)))
    assert isinstance(answer, Landed) and answer.remarks == ()
    assert git(ground.path, "show", "HEAD:ROADMAP.md").encode() == TITLED.replace(b"[ ] One", b"[x] One")
    assert git(ground.path, "status", "--porcelain").split() == ["M", "ROADMAP.md"]
    assert (ground / "ROADMAP.md").read_bytes().endswith(b"\nA note of mine.\n")


# ── a person's own work in the very files that landed ──

LINES = b"".join(b"line %d\n" % number for number in range(1, 21))
MINE, THEIRS = (b"line 3\n", b"line three, mine\n"), (b"line 15\n", b"line fifteen, the task's\n")


@pytest.fixture
def edited(tmp_path: Path) -> Iterator[Ground]:
    """A committed file of twenty lines, in which a person edited the third and committed nothing."""
    found = site(tmp_path / "workspace", {**FILES, "f.txt": LINES})
    (found / "f.txt").write_bytes(LINES.replace(*MINE))
    yield found
    found.hf.close()


def landed_over(ground: Ground) -> Landed:
    both = LINES.replace(*MINE).replace(*THEIRS)
    answer = lane_of(ground).land(proposed(ground, put("f.txt", both)))
    assert isinstance(answer, Landed)
    return answer


def test_edits_of_a_person_that_go_into_the_commit_are_told(edited: Ground) -> None:
    """They are in it, since the agent worked on top of them; the remark names commit and file (N3)."""
    answer = landed_over(edited)
    assert b"mine" in git(edited.path, "show", "HEAD:f.txt").encode()
    short = answer.commit[:7]
    assert answer.remarks == (f"commit {short} also holds edits of yours that were not committed: f.txt",)


def test_who_was_killed_before_they_told_it_is_made_up_for(edited: Ground) -> None:
    """The commit stands, and nobody heard of it: landing the same order again finds the commit, and tells the same."""
    both = LINES.replace(*MINE).replace(*THEIRS)
    order = proposed(edited, put("f.txt", both))

    def cut_off(pipeline: Pipeline, order: LandOrder, execution: str, tasks: Sequence[str] = ()) -> tuple[Commit, ...]:
        checkpoint_of(pipeline, order, execution)
        raise Blocked("cut off")

    first = lane_of(edited, cut_off).land(order)
    assert isinstance(first, Landed) and first.remarks == ("not committed: cut off",)
    again = lane_of(edited).land(order._replace(turn=2))
    assert isinstance(again, Landed) and commits(edited.path) == ["One"]
    short = again.commit[:7]
    assert again.remarks == (f"commit {short} also holds edits of yours that were not committed: f.txt",)


def test_a_landing_over_what_was_committed_has_nothing_to_tell(edited: Ground) -> None:
    """Once the person committed their edit, it is theirs, and the task's commit holds the task alone."""
    git(edited.path, "commit", "-qam", "mine")
    assert landed_over(edited).remarks == ()


def test_what_is_staged_for_a_landed_file_stays_and_is_told(edited: Ground) -> None:
    """Committed as it is, it would take the landing back: the person hears so."""
    git(edited.path, "add", "f.txt")
    answer = landed_over(edited)
    assert any("something else is staged, and stays so: f.txt" in text for text in answer.remarks)
    assert git(edited.path, "show", ":f.txt").encode() == LINES.replace(*MINE)


def test_what_was_changed_and_committed_again_is_told() -> None:
    """It is in the person's own commit; that of the task does not say that it holds it."""
    commit = Commit("a" * 40, "", "", "refs/heads/main", overtaken=("f.txt",))
    assert list(remarks_on([commit])) == ["changed again and committed since, so not in commit aaaaaaa: f.txt"]


def test_many_files_are_named_by_three_and_a_count() -> None:
    """A remark stays a line."""
    commit = Commit("a" * 40, "", "", "refs/heads/main", carried=("1", "2", "3", "4", "5"))
    assert next(iter(remarks_on([commit]))).endswith("1, 2, 3 and 2 more")


# ── several repositories below one workspace ──

BACK, FRONT = "services/back", "front"


@pytest.fixture
def several(tmp_path: Path) -> Iterator[Ground]:
    """Two repositories and a roadmap that belongs to none."""
    place = tmp_path / "workspace"
    place.mkdir()
    fill(place, {"ROADMAP.md": ROADMAP, f"{BACK}/b.py": b"B = 1\n", f"{FRONT}/f.py": b"F = 1\n"})
    for name in (BACK, FRONT):
        for words in (("init", "-q", "-b", "main"), ("add", "-A"), ("commit", "-qm", "base")):
            git(place / name, *words)
    found = guard(place)
    yield found
    found.hf.close()


BOTH = (put(f"{BACK}/b.py", b"B = 2\n"), put(f"{FRONT}/f.py", b"F = 2\n"))


def test_one_change_set_is_one_approval_one_landing_and_a_commit_in_each(several: Ground) -> None:
    """F60: asked about once, landed once; both commits name the same execution and change set."""
    order = proposed(several, *BOTH)._replace(ask_after=True)
    question = lane_of(several).land(order)
    assert isinstance(question, Asked) and not commits(several.path / BACK)
    yes = order._replace(turn=2, simulation=question.simulation, cleared_by=ME)
    answer = lane_of(several).land(yes)
    assert isinstance(answer, Landed) and answer.files == 2 and len(landings(several)) == 1
    heads = {name: git(several.path / name, "rev-parse", "HEAD").strip() for name in (BACK, FRONT)}
    assert sorted(answer.commit.split()) == sorted(heads.values())
    for name, own in ((BACK, "b.py"), (FRONT, "f.py")):
        assert commits(several.path / name) == ["One"]
        assert answer.execution in shown(several.path / name) and own in shown(several.path / name)
        assert git(several.path / name, "status", "--porcelain") == ""


def test_landing_it_again_makes_no_second_commit_anywhere(several: Ground) -> None:
    """Each repository has its one."""
    order = proposed(several, *BOTH)
    first = lane_of(several).land(order)
    assert lane_of(several).land(order._replace(turn=2)) == first
    assert [commits(several.path / name) for name in (BACK, FRONT)] == [["One"], ["One"]]


def test_one_undo_takes_back_all_of_it(several: Ground) -> None:
    """The files of both at once, and a commit in each that says what it undoes."""
    order = proposed(several, *BOTH)
    answer = lane_of(several).land(order)
    assert isinstance(answer, Landed)
    undo = several.hf.undo(answer.execution, approved_by=ME)
    assert (several / f"{BACK}/b.py").read_bytes() == b"B = 1\n"
    assert (several / f"{FRONT}/f.py").read_bytes() == b"F = 1\n"
    record = TaskRecord(
        "u-run", order.order.task, "COMPLETED", agent="hand", execution=answer.execution, commit=answer.commit
    )
    made = commits_of_return(several.hf.pipeline, [record], undo.id, "ROADMAP.md", again=False)
    assert len(made) == 2
    for name in (BACK, FRONT):
        assert commits(several.path / name) == ["Undo One", "One"]
        assert answer.commit in shown(several.path / name)
        assert git(several.path / name, "status", "--porcelain") == ""


@pytest.mark.long
def test_a_repository_that_cannot_be_committed_to_is_a_remark(several: Ground) -> None:
    """Somebody rebases there: it landed in both, and the commit is made when it is asked for again."""
    order = proposed(several, *BOTH)
    lock = several.path / FRONT / ".git" / "index.lock"
    lock.write_bytes(b"")
    answer = lane_of(several).land(order)
    assert isinstance(answer, Landed) and answer.execution and "not committed" in " ".join(answer.remarks)
    lock.unlink()
    again = lane_of(several).land(order._replace(turn=2))
    assert isinstance(again, Landed) and again.remarks == ()
    assert [commits(several.path / name) for name in (BACK, FRONT)] == [["One"], ["One"]]
