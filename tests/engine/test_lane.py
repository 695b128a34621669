"""The lane: what is good lands once, on the workspace as it is now; a person sees what they say yes to."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from delegated import configured
from guarded import ME, Ground, in_child, put
from holdfast.engine.landmarks import checkpoint_of
from holdfast.engine.orders import Asked, Landed, LandOrder, Unlanded, plan_of
from holdfast.engine.pipeline import Pipeline
from holdfast.errors import Blocked, InvalidInput
from holdfast.model.plan import Delete, Inline, Update
from holdfast.testing import FaultyCalls, KillAt
from holdfast.workspace.githistory import Commit
from laned import (
    FALSE,
    FILES,
    ROADMAP,
    TRUE,
    commits,
    git,
    landings,
    lane_of,
    order_of,
    proposed,
    raising,
    site,
    task_id,
)

NEW = put("new.py", b"N = 1\n")


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = site(tmp_path / "workspace")
    yield found
    found.hf.close()


def stands(ground: Ground) -> None:
    """One landing, one commit that holds the tick, and the box is ticked."""
    assert len(landings(ground)) == 1
    assert (ground / "new.py").read_bytes() == b"N = 1\n"
    assert (ground / "ROADMAP.md").read_bytes() == ROADMAP.replace(b"[ ] One", b"[x] One")
    assert commits(ground.path) == ["One"]
    assert git(ground.path, "show", "--format=", "--name-only", "HEAD").split() == ["ROADMAP.md", "new.py"]
    assert git(ground.path, "status", "--porcelain") == ""


# ── once ──


def test_work_lands_is_ticked_and_committed(ground: Ground) -> None:
    """The answer names the execution, the commit and how many files it changed."""
    answer = lane_of(ground).land(proposed(ground, NEW))
    assert isinstance(answer, Landed) and (answer.files, answer.remarks) == (1, ())
    assert answer.execution == landings(ground)[0].id
    assert answer.commit == git(ground.path, "rev-parse", "HEAD").strip()
    stands(ground)


@pytest.mark.parametrize("yes", [False, True])
def test_a_landing_that_policy_allows_names_only_who_said_yes(ground: Ground, yes: bool) -> None:
    """Starting a run approves nothing of what it brings; `--yes` does, under the name this user answers under."""
    loose = '[policy]\nwithout_verification = "allow"\nwithout_health = "allow"\nlow_risk = "allow"\n'
    configured(f'[me]\nname = "ann"\n{loose}')
    answer = lane_of(ground).land(proposed(ground, NEW)._replace(yes=yes))
    assert isinstance(answer, Landed)
    assert landings(ground)[0].summary["approved_by"] == ("ann" if yes else "")


def test_landing_the_same_order_again_is_the_same_landing(ground: Ground) -> None:
    """In another turn, after a restart, as often as one likes: the same answer, and nothing is done twice."""
    order = proposed(ground, NEW)
    first = lane_of(ground).land(order)
    again = ground.reopened()
    assert lane_of(again).land(order._replace(turn=2)) == first
    stands(again)
    again.hf.close()


POINTS = ("staged", "logged", "prepared", "flipped", "applied", "commit", "committed", "ledger.durable", "in-ledger",
          "in-tables", "put-away")  # fmt: skip


@pytest.mark.crash
@pytest.mark.parametrize("time", [1, pytest.param(2, marks=pytest.mark.long)], ids=["of the landing", "of the tick"])
@pytest.mark.parametrize("point", POINTS)
def test_a_landing_that_is_killed_anywhere_lands_once(ground: Ground, point: str, time: int) -> None:
    """Killed at every named point of both transactions; begun again, it stands once, ticked and committed."""
    order = proposed(ground, NEW)
    ground.hf.close()
    # The ledger has papers of the decision before it has the execution.
    times = {"ledger.durable": (2, 3)}.get(point, (1, 2))

    def land() -> None:
        calls = FaultyCalls()
        there = Ground(ground.path, calls)
        calls.arm(KillAt(point, times[time - 1]))
        lane_of(there).land(order)

    assert in_child(land) == -signal.SIGKILL
    again = Ground(ground.path)
    assert isinstance(lane_of(again).land(order._replace(turn=2)), Landed)
    stands(again)
    again.hf.close()


@pytest.mark.crash
@pytest.mark.parametrize("after", [False, True], ids=["before the commit", "after the commit"])
def test_a_landing_that_is_killed_around_its_commit_has_one_commit(ground: Ground, after: bool) -> None:
    """Between tick and commit, and between commit and answer."""
    order = proposed(ground, NEW)
    ground.hf.close()

    def commit(pipeline: Pipeline, order: LandOrder, execution: str, tasks: Sequence[str] = ()) -> tuple[Commit, ...]:
        made = checkpoint_of(pipeline, order, execution) if after else ()
        os.kill(os.getpid(), signal.SIGKILL)
        return made

    assert in_child(lambda: lane_of(Ground(ground.path), commit).land(order)) == -signal.SIGKILL
    again = Ground(ground.path)
    answer = lane_of(again).land(order._replace(turn=2))
    assert isinstance(answer, Landed) and answer.commit == git(ground.path, "rev-parse", "HEAD").strip()
    stands(again)
    again.hf.close()


def test_what_was_taken_back_is_not_landed_again(ground: Ground) -> None:
    """Killed after it landed, undone by a person, begun again: a person says what becomes of it (L1). If they bring it
    back, it is the same landing as ever."""
    order = proposed(ground, NEW)
    first = lane_of(ground).land(order)
    assert isinstance(first, Landed)
    undo = ground.hf.undo(first.execution, approved_by=ME)
    answer = lane_of(ground).land(order._replace(turn=2))
    assert isinstance(answer, Unlanded) and answer.final and answer.taken_back
    assert answer.because == f"{first.execution} had landed it, and was taken back"
    assert not (ground / "new.py").exists() and (ground / "ROADMAP.md").read_bytes() == ROADMAP
    ground.hf.undo(undo.id, approved_by=ME)
    assert lane_of(ground).land(order._replace(turn=3)) == first


@pytest.mark.parametrize(
    "error", [Blocked("the index is locked"), OSError(28, "No space left on device"), ValueError("a mistake of ours")]
)
def test_a_commit_that_cannot_be_made_is_a_remark(ground: Ground, error: Exception) -> None:
    """It landed, whatever fails after that (L3); the next turn makes the commit."""
    order = proposed(ground, NEW)
    answer = lane_of(ground, raising(error)).land(order)
    assert isinstance(answer, Landed) and answer.execution and not answer.commit
    assert answer.remarks == (f"not committed: {error}",)
    assert isinstance(lane_of(ground).land(order._replace(turn=2)), Landed)
    stands(ground)


def test_a_tick_that_cannot_be_made_is_a_remark(ground: Ground) -> None:
    """The roadmap is gone: it landed all the same."""
    order = proposed(ground, NEW)
    (ground / "ROADMAP.md").unlink()
    answer = lane_of(ground).land(order)
    assert isinstance(answer, Landed) and answer.execution
    assert "not ticked" in answer.remarks[0]


# ── what does not land ──


def refused(ground: Ground, answer: object) -> Unlanded:
    assert isinstance(answer, Unlanded), answer
    assert not landings(ground) and not commits(ground.path)
    assert (ground / "ROADMAP.md").read_bytes() == ROADMAP
    return answer


def test_work_that_fails_its_check_does_not_land(ground: Ground) -> None:
    """The check runs here, on the tree that would stand, whatever was measured elsewhere."""
    order = proposed(ground, NEW, order=order_of(ground, accept=(FALSE,)))
    assert not refused(ground, lane_of(ground).land(order)).final


def test_work_that_does_not_fit_goes_back_with_the_evidence(ground: Ground) -> None:
    """Somebody changed the same line: a conflict, told with both sides."""
    order = proposed(ground, put("a.py", b"A = 2\n"))
    (ground / "a.py").write_bytes(b"A = 3\n")
    answer = refused(ground, lane_of(ground).land(order))
    assert answer.category == "conflict" and "A = 3" in answer.evidence and "A = 2" in answer.evidence
    assert (ground / "a.py").read_bytes() == b"A = 3\n"


def test_a_file_that_was_asked_for_and_is_not_there_is_missed_here(ground: Ground) -> None:
    """Nobody is believed that it is there."""
    asked = order_of(ground)._replace(expected=("wanted.py", "a.py"))
    answer = refused(ground, lane_of(ground).land(proposed(ground, NEW, order=asked)))
    assert (answer.category, answer.because) == ("missing file", "not there: wanted.py")


def test_a_file_that_was_asked_for_and_is_removed_is_missed(ground: Ground) -> None:
    """What stands now and would be gone is not there."""
    asked = order_of(ground)._replace(expected=("b.py",))
    answer = refused(ground, lane_of(ground).land(proposed(ground, Delete("b.py"), order=asked)))
    assert answer.category == "missing file"


def test_what_policy_denies_is_final(ground: Ground) -> None:
    """An agent that must not change a path: nothing is tried around that."""
    configured('[agents.hand]\ncommand = ["/bin/true"]\nmust_not_change = ["a.py"]\n')
    there = ground.reopened()
    answer = refused(there, lane_of(there).land(proposed(there, put("a.py", b"A = 2\n"))))
    assert answer.final and (ground / "a.py").read_bytes() == b"A = 1\n"


def test_a_proposal_that_was_tampered_with_lands_nothing(ground: Ground) -> None:
    """One byte in the stock: a person must look, and the workspace is as it was."""
    order = proposed(ground, NEW)
    name = order.proposal
    path = ground.state / "objects" / name[:2] / name[2:]
    data = path.read_bytes()
    path.write_bytes(data.replace(b"new.py", b"bad.py"))
    answer = refused(ground, lane_of(ground).land(order))
    assert answer.final and "does not hold what its name says" in answer.because
    assert not (ground / "bad.py").exists()


def test_bytes_that_were_tampered_with_land_nothing(ground: Ground) -> None:
    """The content of a new file is hashed when it lands, too."""
    order = proposed(ground, NEW)
    for path in (ground.state / "objects").glob("*/*"):
        if path.read_bytes() == b"N = 1\n":
            path.write_bytes(b"N = 6\n")
    assert refused(ground, lane_of(ground).land(order)).final
    assert not (ground / "new.py").exists()


def test_a_proposal_for_another_order_lands_nothing(ground: Ground) -> None:
    """An answer to an older attempt has another plan: it cannot be landed as this one."""
    order = proposed(ground, NEW)
    newer = order._replace(order=order.order._replace(attempt=2, token=2))
    assert refused(ground, lane_of(ground).land(newer)).final


# ── what stands already ──


def test_what_somebody_did_already_is_ticked_and_not_landed(ground: Ground) -> None:
    """The checks say that it is done; there is no execution, no commit of ours, and nothing to undo."""
    order = proposed(ground, put("a.py", b"A = 2\n"))
    (ground / "a.py").write_bytes(b"A = 2\n")
    answer = lane_of(ground).land(order)
    assert isinstance(answer, Landed) and (answer.execution, answer.commit) == ("", "")
    assert b"[x] One" in (ground / "ROADMAP.md").read_bytes()
    assert not landings(ground) and not commits(ground.path)


def test_what_somebody_did_already_is_not_done_where_its_check_fails(ground: Ground) -> None:
    """Standing so is no evidence."""
    order = proposed(ground, put("a.py", b"A = 2\n"), order=order_of(ground, accept=(FALSE,)))
    (ground / "a.py").write_bytes(b"A = 2\n")
    refused(ground, lane_of(ground).land(order))


def test_what_somebody_did_already_is_not_done_where_no_check_says_so(ground: Ground) -> None:
    """A worker that proposes what stands has shown nothing: without a check, a person must look (T3)."""
    order = proposed(ground, put("a.py", b"A = 2\n"), order=order_of(ground, accept=()))
    (ground / "a.py").write_bytes(b"A = 2\n")
    assert refused(ground, lane_of(ground).land(order)).final


# ── people ──


def asked_by(ground: Ground, answer: object) -> Asked:
    assert isinstance(answer, Asked), answer
    assert not landings(ground) and (ground / "ROADMAP.md").read_bytes() == ROADMAP
    return answer


def test_who_asked_to_look_first_is_asked_and_lands_what_they_saw(ground: Ground) -> None:
    """The simulation is kept; with a yes to it, that one lands."""
    order = proposed(ground, NEW)._replace(ask_after=True)
    question = asked_by(ground, lane_of(ground).land(order))
    assert not question.signed and ground.hf.kept(question.simulation)[0].change_set.changes[0].path == "new.py"
    yes = order._replace(turn=2, simulation=question.simulation, cleared_by=ME)
    assert isinstance(lane_of(ground).land(yes), Landed)
    stands(ground)


def test_a_yes_to_something_else_is_no_yes_to_the_landing(ground: Ground) -> None:
    """Who let a task start has not seen what came of it."""
    order = proposed(ground, NEW)._replace(ask_after=True, cleared_by=ME)
    asked_by(ground, lane_of(ground).land(order))


def test_only_what_deletes_is_asked_about(ground: Ground) -> None:
    """With ask = destructive, a new file lands; a deletion asks."""
    order = proposed(ground, Delete("b.py"))._replace(ask_destructive=True)
    assert asked_by(ground, lane_of(ground).land(order)).because == "it deletes files"
    new = proposed(ground, NEW, order=order_of(ground, "Two"))._replace(ask_destructive=True)
    assert isinstance(lane_of(ground).land(new), Landed)


def test_a_yes_to_what_fits_no_more_asks_again(ground: Ground) -> None:
    """Somebody changed the file meanwhile: laid over that it is another change, and another question (L4)."""
    lines = [b"# line %d\n" % n for n in range(9)]
    (ground / "a.py").write_bytes(b"".join(lines))
    order = proposed(ground, put("a.py", b"".join((*lines[:8], b"# mine\n"))))._replace(ask_after=True)
    question = asked_by(ground, lane_of(ground).land(order))
    (ground / "a.py").write_bytes(b"".join((b"# theirs\n", *lines[1:])))
    yes = order._replace(turn=2, simulation=question.simulation, cleared_by=ME)
    second = asked_by(ground, lane_of(ground).land(yes))
    assert second.simulation != question.simulation
    again = order._replace(turn=3, simulation=second.simulation, cleared_by=ME)
    assert isinstance(lane_of(ground).land(again), Landed)
    assert (ground / "a.py").read_bytes() == b"".join((b"# theirs\n", *lines[1:8], b"# mine\n"))


def test_what_policy_asks_needs_a_signed_yes_to_this_very_simulation(ground: Ground) -> None:
    """Nothing verifies it, so a person must approve; a word is not enough, an approval is."""
    order = proposed(ground, NEW, order=order_of(ground, accept=()))._replace(yes=False)
    question = asked_by(ground, lane_of(ground).land(order))
    assert question.signed
    word = order._replace(turn=2, simulation=question.simulation, cleared_by=ME)
    assert asked_by(ground, lane_of(ground).land(word)).simulation == question.simulation
    simulated, verified = ground.hf.kept(question.simulation)
    ground.hf.approve(ground.hf.evaluate(simulated, verified), by=ME)
    assert isinstance(lane_of(ground).land(word._replace(turn=3)), Landed)
    stands(ground)


def test_yes_to_everything_is_given_where_one_person_may_give_it(ground: Ground) -> None:
    """`--yes` of the run approves what policy asks one person for."""
    order = proposed(ground, NEW)
    assert isinstance(lane_of(ground).land(order._replace(yes=False)), Asked)
    assert isinstance(lane_of(ground).land(order), Landed)
    stands(ground)


# ── what no check says works (L8) ──


def unverified(ground: Ground) -> LandOrder:
    return proposed(ground, NEW, order=order_of(ground, accept=()))


def test_yes_to_everything_does_not_cover_what_nothing_verified(ground: Ground) -> None:
    """Without a check that could run a person is asked, told why; their approval lands it, and the commit says so."""
    order = unverified(ground)
    question = asked_by(ground, lane_of(ground).land(order))
    assert (question.because, question.unverified) == ("unverified: no tests were found", "no tests were found")
    simulated, verified = ground.hf.kept(question.simulation)
    ground.hf.approve(ground.hf.evaluate(simulated, verified), by=ME)
    seen = order._replace(turn=2, simulation=question.simulation, unverified=question.unverified)
    asked_by(ground, lane_of(ground).land(seen))  # an approval that no person has been heard with is none
    answer = lane_of(ground).land(seen._replace(turn=3, cleared_by=ME))
    assert isinstance(answer, Landed) and answer.unverified == "no tests were found"
    assert "\nHoldfast-Unverified: no tests were found\n" in git(ground.path, "log", "-1", "--format=%B")
    stands(ground)


def test_the_users_configuration_lets_what_nothing_verified_land(ground: Ground) -> None:
    """It lands as policy lets it, marked; landing it again after a kill marks it, too; a project cannot say that."""
    order = unverified(ground)
    configured('[run]\nunverified = "land"\n')
    answer = lane_of(ground).land(order)
    assert isinstance(answer, Landed) and answer.unverified == "no tests were found"
    again = lane_of(ground).land(order._replace(turn=2))
    assert isinstance(again, Landed) and again.unverified
    (ground / "holdfast.toml").write_text('[run]\nunverified = "land"\n')
    with pytest.raises(InvalidInput, match="not for a project to say"):
        ground.reopened().hf.pipeline.governance.settings()


def test_what_a_person_wanted_unchecked_lands_by_their_yes_and_is_marked(ground: Ground) -> None:
    """They said why when they started the run."""
    asked = order_of(ground, accept=())._replace(unverified_because="a draft")
    answer = lane_of(ground).land(proposed(ground, NEW, order=asked))
    assert isinstance(answer, Landed) and answer.unverified == "skipped: a draft"
    assert "Holdfast-Unverified: skipped: a draft\n" in git(ground.path, "log", "-1", "--format=%B")


def test_what_only_the_project_chose_verifies_nothing(ground: Ground) -> None:
    """A command of its own file passes, and a person is asked all the same; what a check passed on carries no mark."""
    (ground / "holdfast.toml").write_text('[checks]\nrun = [["true"]]\n')
    there = ground.reopened()
    question = asked_by(there, lane_of(there).land(unverified(there)))
    assert "only commands that the project itself names" in question.because
    good = lane_of(there).land(proposed(there, NEW))
    assert isinstance(good, Landed) and not good.unverified
    assert "Unverified" not in git(there.path, "log", "-1", "--format=%B")


def test_a_simulation_of_another_plan_is_never_landed_for_this_order(ground: Ground) -> None:
    """Whoever named it: it could not be told later that this order landed."""
    other = proposed(ground, put("other.py", b"O = 1\n"), order=order_of(ground, "Two"))._replace(ask_after=True)
    question = asked_by(ground, lane_of(ground).land(other))
    order = proposed(ground, NEW)._replace(simulation=question.simulation, cleared_by=ME)
    assert refused(ground, lane_of(ground).land(order)).final
    assert not (ground / "other.py").exists()


# ── the roadmap is for people ──


@pytest.mark.parametrize(
    "after",
    [
        ROADMAP.replace(b"[ ] Two", b"[x] Two"),
        ROADMAP.replace(b"- [ ] Two\n", b""),
        ROADMAP + b"- [ ] Three: do as I say\n",
        ROADMAP.replace(b"Two", b"Too"),
        ROADMAP.replace(b"[ ] Two", b"[>] Two"),
    ],
    ids=["ticks another task", "removes one", "adds one", "rewords one", "holds one back"],
)
def test_work_that_changes_other_tasks_of_the_roadmap_is_asked_about(ground: Ground, after: bytes) -> None:
    """An agent could otherwise call everything done, or give the run work without end."""
    order = proposed(ground, Update("ROADMAP.md", ROADMAP, Inline(after)))
    assert asked_by(ground, lane_of(ground).land(order)).because == "it changes other tasks of the roadmap"


def test_work_may_tick_its_own_box_and_write_around_the_tasks(ground: Ground) -> None:
    """That is what the landing does anyway."""
    after = ROADMAP.replace(b"[ ] One", b"[x] One") + b"\nOne was easy.\n"
    order = proposed(ground, Update("ROADMAP.md", ROADMAP, Inline(after)))
    assert isinstance(lane_of(ground).land(order), Landed)
    assert (ground / "ROADMAP.md").read_bytes() == after


@pytest.mark.parametrize("after", [b"# Plan\n\nWe want a module.\n\n", b"# Plan\n\n- [ ] A module\n"])
def test_work_that_changes_a_roadmap_of_prose_is_asked_about(ground: Ground, after: bytes) -> None:
    """Its tasks are known by its bytes: with one more empty line it would have none, and the run would be done."""
    prose = b"# Plan\n\nWe want a module.\n"
    ground.apply(put("PLAN.md", prose))
    order = proposed(ground, Update("PLAN.md", prose, Inline(after)))._replace(roadmap="PLAN.md")
    answer = lane_of(ground).land(order)
    assert isinstance(answer, Asked) and answer.because == "it changes other tasks of the roadmap"
    assert (ground / "PLAN.md").read_bytes() == prose


# ── the book finds it ──


def test_the_plan_of_an_order_is_the_same_everywhere(ground: Ground) -> None:
    """What landed is found by its plan's digest, so that must not depend on where or when it is made."""
    order = order_of(ground)
    assert plan_of(order).digest == plan_of(order._replace()).digest
    others = [order._replace(attempt=2), order._replace(token=2), order._replace(run="u-2"), order._replace(task="t")]
    assert len({plan_of(each).digest for each in (order, *others)}) == 5
    assert task_id(ground, "One") == order.task and set(FILES) == {"ROADMAP.md", "a.py", "b.py"}


# ── groups (L7) ──

GROUP = b"# R\n\n- [ ] Write one.py\n- [ ] Write two.py\n- [ ] Speak of tigers\n"


def group_of(ground: Ground, *titles: str) -> LandOrder:
    """An order for all of them; what came of it is only one.py."""
    ids = [task_id(ground, title) for title in titles]
    order = order_of(ground, titles[0], accept=(TRUE,))._replace(together=tuple(ids[1:]))
    return proposed(ground, put("one.py", b"ONE = 1\n"), order=order)._replace(tick=tuple(ids))


def test_tasks_of_a_group_that_were_ignored_stay_open(tmp_path: Path) -> None:
    """Only the task whose file changed is done and ticked; the others are named, and are still to do."""
    ground = site(tmp_path / "workspace", {"ROADMAP.md": GROUP})
    titles = ("Write one.py", "Write two.py", "Speak of tigers")
    answer = lane_of(ground).land(group_of(ground, *titles))
    assert isinstance(answer, Landed)
    assert (answer.together, answer.open) == ((), tuple(task_id(ground, title) for title in titles[1:]))
    assert (ground / "ROADMAP.md").read_bytes().count(b"[x]") == 1
    assert any("stays open" in remark for remark in answer.remarks)
    ground.hf.close()


def test_the_first_task_of_a_group_is_no_exception(tmp_path: Path) -> None:
    """Work that is about another task of the group completes that one, and leaves the first open."""
    ground = site(tmp_path / "workspace", {"ROADMAP.md": GROUP})
    answer = lane_of(ground).land(group_of(ground, "Write two.py", "Write one.py"))
    assert isinstance(answer, Landed)
    assert (answer.together, answer.open) == ((task_id(ground, "Write one.py"),), (task_id(ground, "Write two.py"),))
    ground.hf.close()


def test_a_task_of_a_group_that_lacks_a_file_stays_open(tmp_path: Path) -> None:
    """Another one's work lands beside it, whichever of them comes first; half of what a task asks for is not it."""
    titles = ("Write one.py and gone.py", "Write one.py", "Speak of tigers")
    rows = "".join(f"- [ ] {title}\n" for title in titles)
    ground = site(tmp_path / "workspace", {"ROADMAP.md": f"# R\n\n{rows}".encode()})
    answer = lane_of(ground).land(group_of(ground, *titles))
    assert isinstance(answer, Landed)
    ids = tuple(task_id(ground, title) for title in titles)
    # Nothing is shown for any of them, so it is the first that lacks nothing.
    assert (answer.together, answer.open) == (ids[1:2], (ids[0], ids[2]))
    ground.hf.close()


def test_a_group_of_which_nothing_was_done_does_not_land(tmp_path: Path) -> None:
    """Where each of its tasks lacks a file, the files are named, and nothing is changed."""
    ground = site(tmp_path / "workspace", {"ROADMAP.md": b"# R\n\n- [ ] Write two.py\n- [ ] Write three.py\n"})
    answer = lane_of(ground).land(group_of(ground, "Write two.py", "Write three.py"))
    assert isinstance(answer, Unlanded) and answer.category == "missing file", answer
    assert "two.py, three.py" in answer.because and not landings(ground)
    ground.hf.close()


def test_the_commit_of_a_group_names_every_task_that_it_completed(tmp_path: Path) -> None:
    """Its title is the first of them, each has a line and stands in the trailer; what stays open is not in it."""
    ground = site(tmp_path / "workspace", {"ROADMAP.md": GROUP})
    titles = ("Write one.py", "Write two.py", "Speak of tigers")
    ids = [task_id(ground, title) for title in titles]
    order = order_of(ground, titles[0], accept=(TRUE,))._replace(together=tuple(ids[1:]))
    steps = (put("one.py", b"ONE = 1\n"), put("two.py", b"TWO = 2\n"))
    assert isinstance(lane_of(ground).land(proposed(ground, *steps, order=order)._replace(tick=tuple(ids))), Landed)
    message = git(ground.path, "log", "-1", "--format=%B")
    assert message.startswith("Write one.py and 1 more\n\n- Write one.py\n- Write two.py\n")
    assert f"Holdfast-Task: {ids[0]} {ids[1]}\n" in message
    assert "tigers" not in message
    ground.hf.close()
