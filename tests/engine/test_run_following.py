"""What follows for tasks when what they landed goes or comes back, and what `sync` makes up for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from delegated import configured
from guarded import ME, Ground, put
from holdfast.engine.landmarks import checkpoint_of
from holdfast.engine.lane import Checkpoint
from holdfast.engine.orders import Landed
from holdfast.engine.orders import packed as packed_order
from holdfast.engine.roadmap_runs import RoadmapRuns
from holdfast.engine.run_following import Synced
from holdfast.engine.stop_wish import StopWish
from holdfast.engine.taskbook import TaskBook, begin_run
from holdfast.errors import Blocked, InvalidInput, Locked
from holdfast.model.run import RunOptions, RunRecord
from holdfast.model.task import TaskRecord
from holdfast.settlement.runs import task_record
from holdfast.store.large_blobs import LargeBlobs
from holdfast.store.runs import Runs
from laned import FILES, commits, git, lane_of, order_of, proposed, raising, site, task_id

REFUSED = raising(Blocked("somebody rebases"))


class Landing(NamedTuple):
    """A run with one task that landed."""

    ground: Ground
    run: RunRecord
    record: TaskRecord

    @property
    def runs(self) -> RoadmapRuns:
        return self.ground.hf.runs

    @property
    def now(self) -> TaskRecord:
        return task_record(Runs(self.ground.hf.records), self.run.id, self.record.task)

    @property
    def ticked(self) -> bool:
        return b"[x] One" in (self.ground / "ROADMAP.md").read_bytes()

    def undo(self, execution: str) -> str:
        """The move alone, as it stands where somebody is killed before the tasks follow."""
        hf = self.ground.hf
        return hf.go_back(hf.preview_undo(execution), approved_by=ME).id


def landed(
    ground: Ground,
    commit: Checkpoint = checkpoint_of,
    options: RunOptions = RunOptions(),  # noqa: B008  (a frozen value)
    *,
    title: str = "One",
    path: str = "new.py",
    group: tuple[tuple[str, str], ...] = (),
    written: bool = True,
) -> Landing:
    """As the driver does it: asked for, worked on, landed by the lane, and written down, unless it is killed before.

    `group` has the titles and paths of other tasks that the same order asks for.
    """
    pipeline = ground.hf.pipeline
    run = begin_run(pipeline, RunRecord("", "ROADMAP.md", options, by=ME))
    book = TaskBook(pipeline, run, lambda event: None)
    others = tuple(task_id(ground, other) for other, _ in group)
    asked = order_of(ground, title)._replace(run=run.id, together=others)
    kept = LargeBlobs(pipeline.site.state).put(json.dumps(packed_order(asked), sort_keys=True).encode())
    begun = TaskRecord(run.id, asked.task, "IN_PROGRESS", attempt=1, token=1, agent="hand", order=kept)
    book.move(begun)
    steps = (put(each, b"N = 1\n") for each in (path, *(other for _, other in group)))
    order = proposed(ground, *steps, order=asked)._replace(tick=(asked.task, *others))
    book.move(begun._replace(state="VALIDATING", proposal=order.proposal, turn=1, landing=True))
    answer = lane_of(ground, commit).land(order)
    assert isinstance(answer, Landed) and answer.together == others, answer
    if not written:
        return Landing(ground, book.run, book.of(asked.task)._replace(execution=answer.execution))
    because = "; ".join(answer.remarks)
    done = book.of(asked.task)._replace(
        execution=answer.execution, commit=answer.commit, because=because, landing=False
    )
    book.move(done._replace(state="COMPLETED"))
    for other in others:
        for state in ("IN_PROGRESS", "VALIDATING"):
            book.move(book.of(other)._replace(state=state))  # type: ignore[arg-type]
        book.move(book.of(other)._replace(state="COMPLETED", execution=answer.execution, commit=answer.commit))
    book.move_run("FINISHED")
    return Landing(ground, book.run, book.of(asked.task))


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = site(tmp_path / "workspace")
    yield found
    found.hf.close()


# ── answers ──


def test_what_is_not_asked_is_not_answered(ground: Ground) -> None:
    """A task that waits for nobody takes no answer, also from whoever was shown it just as it stands."""
    found = landed(ground)
    for shown in (None, found.now):
        with pytest.raises(InvalidInput, match="does not wait for anybody"):
            found.runs.answer(found.record.task, yes=True, shown=shown)
    assert not [entry for entry in ground.hf.pipeline.ledger.entries() if entry.kind == "answer"]


def test_who_stops_a_run_is_named_as_elsewhere(ground: Ground) -> None:
    """By the name that their approvals are counted by, and not by their login."""
    configured('[me]\nname = "walker"\n')
    found = landed(ground)
    found.runs.stop()
    assert StopWish(ground.hf.site.state).asked(found.run.id) == "walker asked for it"


# ── commits that could not be made ──


def test_sync_makes_the_commit_that_could_not_be_made(ground: Ground) -> None:
    """With the words and trailers it would have had; the record names it, and a second sync finds nothing to do."""
    found = landed(ground, REFUSED)
    assert (found.record.commit, "somebody rebases" in found.record.because) == ("", True)
    synced = found.runs.sync()
    assert [task for task, _ in synced.commits] == [found.record.task] and synced.remarks == ()
    assert commits(ground.path) == ["One"] and git(ground.path, "status", "--porcelain") == ""
    head = git(ground.path, "rev-parse", "HEAD").strip()
    assert (found.now.commit, found.now.state, found.now.because) == (head, "COMPLETED", "")
    assert found.record.execution in git(ground.path, "log", "-1", "--format=%B")
    again = found.runs.sync()
    assert (again.changed, again.remarks, len(commits(ground.path))) == (False, (), 1)


def test_sync_makes_the_commit_of_a_group_as_it_would_have_been(ground: Ground) -> None:
    """Its title counts the tasks, each has a line and stands in the trailer, and the records of all of them name it."""
    found = landed(ground, REFUSED, path="one.py", group=(("Two", "two.py"),))
    one, two = found.record.task, task_id(ground, "Two")
    assert [task for task, _ in found.runs.sync().commits] == [one]
    message = git(ground.path, "log", "-1", "--format=%B")
    assert message.startswith("One and 1 more\n\n- One\n- Two\n")
    assert f"Holdfast-Task: {one} {two}\n" in message
    head = git(ground.path, "rev-parse", "HEAD").strip()
    records = Runs(ground.hf.records)
    assert [task_record(records, found.run.id, task).commit for task in (one, two)] == [head, head]
    assert commits(ground.path) == ["One and 1 more"] and git(ground.path, "status", "--porcelain") == ""


@pytest.mark.long
def test_sync_says_why_a_commit_still_cannot_be_made(ground: Ground) -> None:
    """And makes it when it can be."""
    found = landed(ground, REFUSED)
    lock = ground / ".git/index.lock"
    lock.write_bytes(b"")
    synced = found.runs.sync()
    assert not synced.commits and len(synced.remarks) == 1
    assert found.record.task in synced.remarks[0] and "index.lock" in synced.remarks[0]
    lock.unlink()
    assert len(found.runs.sync().commits) == 1


def test_what_a_person_committed_meanwhile_is_not_committed_again(ground: Ground) -> None:
    """That is the reason which is told."""
    found = landed(ground, REFUSED)
    git(ground.path, "add", "-A")
    git(ground.path, "commit", "-qm", "mine")
    synced = found.runs.sync()
    assert not synced.commits and "committed already" in synced.remarks[0] and commits(ground.path) == ["mine"]


def test_where_no_checkpoint_is_wanted_sync_makes_none(ground: Ground) -> None:
    """Nor does it complain."""
    found = landed(ground, lambda pipeline, order, execution: (), RunOptions(checkpoint="none"))
    assert found.runs.sync() == Synced(False) and commits(ground.path) == []


def test_without_a_repository_sync_has_nothing_to_say(tmp_path: Path) -> None:
    """No commit, no complaint."""
    from guarded import guard

    plain = guard(tmp_path / "workspace", FILES)
    assert landed(plain).runs.sync() == Synced(False)
    plain.hf.close()


@pytest.mark.long
def test_the_commit_of_an_undo_is_made_later_too(ground: Ground) -> None:
    """It says what it takes back."""
    found = landed(ground)
    lock = ground / ".git/index.lock"
    lock.write_bytes(b"")
    followed = found.runs.followed(found.undo(found.record.execution))
    assert not followed.commits and "not committed" in followed.remarks[0]
    lock.unlink()
    assert len(found.runs.sync().commits) == 1
    assert commits(ground.path) == ["Undo One", "One"] and git(ground.path, "status", "--porcelain") == ""
    assert not found.runs.sync().changed


def test_while_a_run_goes_on_sync_only_ticks(ground: Ground) -> None:
    """The book has one writer; that commits have to wait is told."""
    found = landed(ground, REFUSED)
    with found.runs._alone():
        synced = found.runs.sync()
    assert not synced.commits and "a run is under way" in synced.remarks[0]


# ── there and back ──


def test_undo_and_restore_from_python_are_followed_by_the_task(ground: Ground) -> None:
    """As from the command line: files, box and record; and back again. While a run goes on, neither can be had."""
    before = time.time_ns()
    found = landed(ground)
    hf = ground.hf
    with found.runs._alone(), pytest.raises(Locked):
        hf.undo(found.record.execution, approved_by="me")
    assert found.ticked and found.now.state == "COMPLETED"
    undo = hf.undo(found.record.execution, approved_by="me")
    assert (found.ticked, found.now.state) == (False, "PENDING")
    hf.undo(undo.id, approved_by="me")
    assert (found.ticked, found.now.state) == (True, "COMPLETED")
    hf.restore(before, approved_by="me")
    assert (found.ticked, found.now.state) == (False, "PENDING")


def test_an_undo_of_an_undo_brings_the_task_back(ground: Ground) -> None:
    """COMPLETED with its execution, ticked, and a commit that says so; a further undo takes all of it back again."""
    found = landed(ground)
    undo = found.undo(found.record.execution)
    assert found.runs.followed(undo).tasks == (found.record.task,)
    assert (found.now.state, found.ticked) == ("PENDING", False)
    redo = found.undo(undo)
    followed = found.runs.followed(redo)
    assert (followed.tasks, followed.returned, followed.remarks) == ((), (found.record.task,), ())
    assert (found.now.state, found.now.execution, found.ticked) == ("COMPLETED", found.record.execution, True)
    assert commits(ground.path) == ["Redo One", "Undo One", "One"] and git(ground.path, "status", "--porcelain") == ""
    assert found.now.commit == git(ground.path, "rev-parse", "HEAD").strip()
    assert found.runs.followed(found.undo(redo)).tasks == (found.record.task,)
    assert (found.now.state, found.ticked, (ground / "new.py").exists()) == ("PENDING", False, False)
    assert commits(ground.path)[0] == "Undo One"


def test_followed_twice_is_followed_once(ground: Ground) -> None:
    """Whoever was killed after the undo asks again."""
    found = landed(ground)
    undo = found.undo(found.record.execution)
    assert found.runs.followed(undo).tasks and found.runs.followed(undo) == ((), (), "", ())
    redo = found.undo(undo)
    assert found.runs.followed(redo).returned and found.runs.followed(redo) == ((), (), "", ())
    assert len(commits(ground.path)) == 3


@pytest.mark.parametrize("state", ["FAILED", "SKIPPED", "NEEDS_REVIEW"])
def test_it_comes_back_from_whatever_became_of_it_meanwhile(ground: Ground, state: str) -> None:
    """A second attempt failed, was skipped, or waits: what stands is done all the same."""
    found = landed(ground)
    undo = found.undo(found.record.execution)
    found.runs.followed(undo)
    book = TaskBook(ground.hf.pipeline, found.runs.find(), lambda event: None)
    book.move(found.now._replace(state=state))  # type: ignore[arg-type]
    found.runs.followed(found.undo(undo))
    assert found.now.state == "COMPLETED" and found.ticked


def test_a_task_that_is_begun_again_is_settled_first(ground: Ground) -> None:
    """Otherwise its work would land on what came back."""
    found = landed(ground)
    undo = found.undo(found.record.execution)
    found.runs.followed(undo)
    book = TaskBook(ground.hf.pipeline, found.runs.find(), lambda event: None)
    book.move(found.now._replace(state="IN_PROGRESS", attempt=2, token=2))
    way = ground.hf.preview_undo(undo)
    with pytest.raises(Blocked, match="begun again"):
        found.runs.require_undoable(way.job.undoes, way.job.revives)


def test_only_what_tasks_landed_is_kept_from_changing_below_a_run(ground: Ground) -> None:
    """Locked for the execution of a task and for its undo; another execution is nobody's business."""
    found = landed(ground)
    other = ground.apply(put("c.txt", b"c\n")).id
    with found.runs._alone():
        with pytest.raises(Locked):
            found.runs.require_undoable([found.record.execution])
        assert not found.runs.require_undoable([other])
    assert found.runs.require_undoable([found.record.execution])


def test_sync_notices_what_came_back_behind_its_back(ground: Ground) -> None:
    """An undo of the undo from Python, which nobody followed: the task is done, and not done a second time."""
    found = landed(ground)
    undo = found.undo(found.record.execution)
    found.runs.followed(undo)
    found.undo(undo)
    assert found.now.state == "PENDING"
    synced = found.runs.sync()
    assert synced.returned == (found.record.task,) and synced.ticked
    assert (found.now.state, found.ticked) == ("COMPLETED", True)


def test_sync_notices_what_is_gone_behind_its_back(ground: Ground) -> None:
    """An undo from Python, which nobody followed: box, task and commit follow now, and the run can be resumed."""
    found = landed(ground)
    found.undo(found.record.execution)
    assert found.now.state == "COMPLETED"
    synced = found.runs.sync()
    assert synced.gone == (found.record.task,) and synced.ticked and len(synced.commits) == 1
    assert (found.now.state, found.ticked, found.runs.find().state) == ("PENDING", False, "STOPPED")
    assert commits(ground.path) == ["Undo One", "One"] and git(ground.path, "status", "--porcelain") == ""
    assert found.runs.sync() == Synced(False)


def test_a_task_whose_box_could_not_be_set_waits_for_sync(ground: Ground) -> None:
    """The roadmap is away for a moment: that is told, and `sync` does the rest when it is back (F6)."""
    found = landed(ground)
    undo, roadmap = found.undo(found.record.execution), ground / "ROADMAP.md"
    roadmap.rename(ground / "away.md")
    followed = found.runs.followed(undo)
    assert followed.tasks == () and "the box stays as it is" in followed.remarks[0]
    (ground / "away.md").rename(roadmap)
    assert found.runs.sync().gone == (found.record.task,)
    assert (found.now.state, found.ticked) == ("PENDING", False)


def test_a_box_that_a_person_ticked_stays_ticked(ground: Ground) -> None:
    """Undone, then done by hand and ticked by hand: `sync` has nothing to say about it, and a new tick stays too."""
    found = landed(ground)
    found.runs.followed(found.undo(found.record.execution))
    roadmap = ground / "ROADMAP.md"
    (ground / "new.py").write_bytes(b"by hand\n")
    roadmap.write_bytes(roadmap.read_bytes().replace(b"[ ] One", b"[x] One"))
    git(ground.path, "add", "-A")
    git(ground.path, "commit", "-qm", "by hand")
    assert found.runs.sync() == Synced(False)
    assert found.ticked and commits(ground.path)[0] == "by hand"
    with found.runs._alone():
        assert not found.runs.sync().ticked and found.ticked


# ── what nobody wrote down ──


@pytest.mark.parametrize("state", ["VALIDATING", "NEEDS_REVIEW"])
def test_what_landed_and_is_in_no_book_is_not_undone(ground: Ground, state: str) -> None:
    """The run was killed between the two: Blocked, with what to do first. While it goes on, Locked (F4)."""
    found = landed(ground, written=False)
    book = TaskBook(ground.hf.pipeline, found.run, lambda event: None)
    book.move(book.of(found.record.task)._replace(state=state))  # type: ignore[arg-type]
    with pytest.raises(Blocked, match="cut off") as refused:
        found.runs.require_undoable([found.record.execution])
    assert f"holdfast resume {found.run.id}" in refused.value.hint
    assert ("holdfast review" in refused.value.hint) == (state == "NEEDS_REVIEW")
    with found.runs._alone(), pytest.raises(Locked):
        found.runs.require_undoable([found.record.execution])
    book.move(book.of(found.record.task)._replace(state="COMPLETED", execution=found.record.execution, landing=False))
    assert found.runs.require_undoable([found.record.execution])


def test_another_landing_that_was_cut_off_is_in_nobodys_way(ground: Ground) -> None:
    """What is undone is none of its business."""
    first = landed(ground)
    landed(ground, title="Two", path="two.py", written=False)
    assert first.runs.require_undoable([first.record.execution])


# ── many at once ──


def test_a_restore_is_followed_by_the_tasks_of_all_runs(ground: Ground) -> None:
    """Boxes, one commit that names what it takes back, every task to do again; its undo brings all of it back."""
    start = ground.apply(put("c.txt", b"c\n"))
    at_ns = ground.hf.show(start.id)[0].at_ns
    first, second = landed(ground), landed(ground, title="Two", path="two.py")
    way = ground.hf.preview_restore(at_ns)
    assert first.runs.require_undoable(way.job.undoes, way.job.revives)
    done = ground.hf.go_back(way, approved_by=ME)
    assert first.runs.unfollowed() == (done.id,)
    followed = first.runs.followed(done.id)
    assert set(followed.tasks) == {first.record.task, second.record.task} and followed.remarks == ()
    assert (first.now.state, second.now.state) == ("PENDING", "PENDING")
    assert (ground / "ROADMAP.md").read_bytes() == FILES["ROADMAP.md"] and not (ground / "two.py").exists()
    assert commits(ground.path) == ["Restore to an earlier moment", "Two", "One"]
    told = git(ground.path, "log", "-1", "--format=%B")
    assert first.record.commit in told and second.record.commit in told
    assert git(ground.path, "status", "--porcelain").split() == ["??", "c.txt"]
    assert first.runs.unfollowed() == ()
    back = first.runs.followed(first.undo(done.id))
    assert set(back.returned) == {first.record.task, second.record.task}
    assert (first.now.state, second.now.state, first.ticked) == ("COMPLETED", "COMPLETED", True)


# ── parts ──


def in_the_middle(ground: Ground, state: str) -> Landing:
    """A task of two parts, the first of which landed."""
    found = landed(ground)
    book = TaskBook(ground.hf.pipeline, found.run, lambda event: None)
    book.move(found.record._replace(state="PENDING", part=1, parts=2))
    if state != "PENDING":
        book.move(book.of(found.record.task)._replace(state=state))  # type: ignore[arg-type]
    return found


def in_two_parts(ground: Ground) -> tuple[Landing, str, str]:
    """A task that landed in two parts, and is done; with their executions."""
    found = in_the_middle(ground, "PENDING")
    first, second = found.record.execution, ground.apply(put("second.py", b"S = 2\n")).id
    book = TaskBook(ground.hf.pipeline, found.run, lambda event: None)
    for state in ("IN_PROGRESS", "VALIDATING"):
        book.move(book.of(found.record.task)._replace(state=state))  # type: ignore[arg-type]
    book.move(book.of(found.record.task)._replace(state="COMPLETED", execution=second))
    return found, first, second


def test_an_early_part_is_not_taken_back_from_under_a_later_one(ground: Ground) -> None:
    """The task would count as done without it: Blocked, and the hint says which goes first; all at once may go (N1)."""
    found, first, second = in_two_parts(ground)
    with pytest.raises(Blocked, match="landed in parts") as refused:
        found.runs.require_undoable([first])
    assert f"holdfast undo {second}" in refused.value.hint
    assert found.runs.require_undoable([first, second]) and found.runs.require_undoable([second])
    assert found.runs.followed(found.undo(second)).tasks == (found.record.task,)
    assert not found.runs.require_undoable([first])
    found.undo(first)
    assert found.now.state == "PENDING" and not (ground / "new.py").exists()


def test_no_run_begins_between_the_look_and_the_end_of_an_undo(ground: Ground) -> None:
    """As long as the undo goes on, nobody else is alone with the tasks; they follow without giving the lock away."""
    found = landed(ground)
    with found.runs.taking_back([found.record.execution]) as follow:
        assert follow is not None
        with pytest.raises(Locked), found.runs._alone():
            pass
        assert follow(found.undo(found.record.execution)).tasks == (found.record.task,)
    with found.runs._alone():
        assert found.now.state == "PENDING"


def test_a_part_that_stands_completes_nothing(ground: Ground) -> None:
    """Neither when the run stopped in between, nor when the task is asked for again from its beginning (F5)."""
    found = in_the_middle(ground, "FAILED")
    assert found.runs.sync().returned == () and found.now.state == "FAILED"
    found.runs.again([found.record.task])
    assert (found.now.state, found.now.part, found.now.execution) == ("PENDING", 0, "")
    assert found.runs.sync().returned == () and found.now.state == "PENDING"


def test_without_its_first_part_a_task_begins_anew(ground: Ground) -> None:
    """Undone between two parts, it is not gone on with; while the next one is under way, the undo is refused (F4)."""
    found = in_the_middle(ground, "IN_PROGRESS")
    with pytest.raises(Blocked, match="not settled"):
        found.runs.require_undoable([found.record.execution])
    book = TaskBook(ground.hf.pipeline, found.run, lambda event: None)
    book.move(found.now._replace(state="PENDING"))
    assert found.runs.require_undoable([found.record.execution])
    undo = found.undo(found.record.execution)
    assert found.runs.followed(undo).tasks == (found.record.task,)
    assert (found.now.state, found.now.part, found.now.parts) == ("PENDING", 0, 0)
    found.undo(undo)
    assert found.runs.sync().returned == () and found.now.state == "PENDING"
