"""Work on an order: whatever an agent does is an answer, measured, with the right name for what went wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from delegated import FILES, FIXED, configured
from guarded import Ground, guard
from holdfast.engine.grounds import Grounds
from holdfast.engine.measuring import MOST_EVIDENCE
from holdfast.engine.orders import Answer, Order, Unworked, Worked, plan_of
from holdfast.engine.proposal import read_proposal
from holdfast.engine.work import Workbench
from holdfast.errors import Interrupted, Locked
from holdfast.model.fix import Category
from holdfast.store.adapters import Adapters
from holdfast.store.large_blobs import LargeBlobs
from holdfast.testing import ScriptedAgent
from holdfast.testing.agents import Act, Exit
from holdfast.testing.script import EditFile, Hang, Say, Shell, WriteFile
from holdfast.wiring.opening import pipeline_at

ORDER = Order("u-1", "one", 1, 1, "scripted", "One", "Make answer() return 42.", mends=1, within_ms=60_000)
GOOD = (EditFile("app.py", "41", "42"),)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", FILES)
    yield found
    found.hf.close()


def done(ground: Ground, *acts: Act, order: Order = ORDER, agents: Mapping[str, ScriptedAgent] | None = None) -> Answer:
    known = {"scripted": ScriptedAgent(*acts)} if agents is None else agents
    bench = Workbench(Grounds(str(ground.path), pipeline_at), known, lambda order: lambda happening: None)
    return bench.work(order)


@pytest.mark.parametrize("mirrored", [False, True], ids=["over the workspace", "over a mirror"])
def test_good_work_is_a_proposal_in_the_stock_of_the_workspace(ground: Ground, mirrored: bool) -> None:
    """The workspace stands as before; the proposal is for the plan that was given out, and all its bytes are here."""
    before = ground.tree()
    order = ORDER._replace(mirrored=mirrored)
    answer = done(ground, *GOOD, order=order)
    assert isinstance(answer, Worked) and answer.files == 1
    stock = LargeBlobs(ground.hf.site.state)
    proposal = read_proposal(stock, answer.proposal, plan_of(order))
    assert [change.path for change in proposal.change_set.changes] == ["app.py"]
    assert all(stock.has(digest) for digest in (*proposal.contents, *proposal.papers))
    assert FIXED in [b"".join(stock.pieces(digest)) for digest in proposal.contents]
    assert ground.tree() == before


@pytest.mark.parametrize("mirrored", [False, True], ids=["over the workspace", "over a mirror"])
def test_what_an_agent_claimed_is_in_the_ledger_here(ground: Ground, mirrored: bool) -> None:
    """Good or not, over a mirror too, once for each piece of work (Q2)."""
    done(ground, *GOOD, Say("All done."), order=ORDER._replace(mirrored=mirrored))
    done(ground, Say("Done!"), order=ORDER._replace(mirrored=mirrored, attempt=2))
    told = [entry.body for entry in ground.hf.ledger.entries() if entry.kind == "delegation"]
    assert [body["good"] for body in told] == [True, False]


ENDINGS: dict[str, tuple[Category, bool, tuple[Act, ...], Order]] = {
    "it fails": ("agent error", False, (Exit(3),), ORDER),
    "it lies": ("unknown", False, (Say("Done! All tests pass."),), ORDER),
    "it leaves a syntax error": ("syntax", False, (WriteFile("app.py", "def answer(:\n"),), ORDER),
    "its test fails": ("test", False, (EditFile("app.py", "41", "43"),), ORDER),
    "an import is broken": ("import", False, (WriteFile("app.py", "from tests import answer\n"),), ORDER),
    "a package is missing": ("missing dependency", False, (WriteFile("app.py", "import nowhere\n"),), ORDER),
    "a file is missing": ("missing file", False, GOOD, ORDER._replace(expected=("docs/answer.md",))),
    "it made the file elsewhere": (
        "wrong path", False, (*GOOD, WriteFile("answer.md", "42\n")), ORDER._replace(expected=("docs/answer.md",)),
    ),
    "it hangs": ("time-out", False, (Hang(600),), ORDER._replace(within_ms=1_500)),
    "its own check fails": ("unknown", False, GOOD, ORDER._replace(accept=(("/usr/bin/false",),))),
    "nobody knows the agent": ("unknown", True, (), ORDER._replace(agent="nobody")),
}  # fmt: skip


@pytest.mark.parametrize("ending", ENDINGS.values(), ids=ENDINGS.keys())
def test_every_ending_is_an_answer_of_the_right_category(
    ground: Ground, ending: tuple[Category, bool, tuple[Act, ...], Order]
) -> None:
    """Nothing is raised, the workspace is untouched, and the evidence says what was measured."""
    category, final, acts, order = ending
    before = ground.tree()
    answer = done(ground, *acts, order=order)
    assert isinstance(answer, Unworked)
    assert (answer.category, answer.final) == (category, final), answer
    assert answer.because and answer.evidence and ground.tree() == before


def test_who_prints_without_end_was_not_late(ground: Ground) -> None:
    """A limit of its own kind, told with what was too much: the next attempt hears of that, and not of the clock."""
    configured("[agents.scripted]\nlimits = { output = '1MB' }\n")
    answer = done(ground, Shell("yes flood | head -c 8000000"))
    assert isinstance(answer, Unworked) and (answer.category, answer.final) == ("limit", False)
    assert "it wrote more than 1 MB of output" in answer.because
    assert "it wrote more than 1 MB of output" in answer.evidence


def test_the_evidence_is_bounded_and_masked(ground: Ground) -> None:
    """It goes to the next agent, and into a ledger that cannot forget."""
    secret = "ghp_" + "a1B2" * 9
    body = f'        self.fail("{secret}" + "x" * 99999)\n'
    test = f"import unittest\nclass T(unittest.TestCase):\n    def test_t(self):\n{body}"
    order = ORDER._replace(words=f"{ORDER.words} Let all tests pass.")
    answer = done(ground, *GOOD, WriteFile("tests/test_more.py", test), order=order)
    assert isinstance(answer, Unworked) and secret not in json.dumps(answer)
    assert len(answer.evidence) <= MOST_EVIDENCE


def test_an_agent_that_is_left_alone_was_not_tried(ground: Ground) -> None:
    """Its breaker is open: the answer says for how long, and that nothing was done."""
    first = done(ground, Exit(1), order=ORDER._replace(mends=9))
    assert isinstance(first, Unworked) and first.pause_ms == 0
    second = done(ground, *GOOD, order=ORDER._replace(token=2))
    assert isinstance(second, Unworked) and "is not asked at the moment" in second.because
    assert 20_000 < second.pause_ms <= 30_000 and second.category == "agent error"


@pytest.mark.parametrize("mirrored", [(True, False), (False, True), (True, True)], ids=str)
def test_an_agent_that_is_ill_at_one_place_is_left_alone_at_all(ground: Ground, mirrored: tuple[bool, bool]) -> None:
    """Mirrors come and go, and several are worked over at once: who fails is known to the workspace, with its past."""
    held, first = ORDER._replace(mirrored=True, attempt=7), ORDER._replace(mends=9, mirrored=mirrored[0])
    assert isinstance(done(ground, Exit(1), order=first), Unworked)
    with Grounds(str(ground.path), pipeline_at)(held):  # the mirror that was worked over is taken: the next is another
        second = done(ground, *GOOD, order=ORDER._replace(token=2, mirrored=mirrored[1]))
    assert isinstance(second, Unworked) and "is not asked at the moment" in second.because
    (row,) = Adapters(ground.hf.records).all()
    assert (row.name, row.state, row.attempts) == ("scripted", "OPEN", 3)


def test_an_order_can_be_worked_on_twice(ground: Ground) -> None:
    """A worker that was lost and one that took over bring the same change (V1)."""
    first, second = done(ground, *GOOD), done(ground, *GOOD)
    assert isinstance(first, Worked) and isinstance(second, Worked)
    stock = LargeBlobs(ground.hf.site.state)
    sets = {read_proposal(stock, answer.proposal, plan_of(ORDER)).change_set.digest for answer in (first, second)}
    assert len(sets) == 1 and not list((ground.state / "simulations").iterdir())


def test_what_is_ours_is_raised(ground: Ground) -> None:
    """Somebody wants the process to end, or holds the workspace: no verdict on the work (V2)."""

    def asked(error: Exception) -> None:
        def place(order: Order) -> None:
            raise error

        bench = Workbench(place, {}, lambda order: lambda happening: None)  # type: ignore[arg-type,return-value]
        with pytest.raises(type(error)):
            bench.work(ORDER)

    asked(Interrupted("Ctrl-C"))
    asked(Locked("somebody works here"))
    asked(OSError(28, "No space left on device"))


def test_what_a_program_leaves_beside_its_work_does_not_come_along(ground: Ground) -> None:
    """Only what was captured is proposed; processes end with the agent."""
    answer = done(ground, *GOOD, Shell("(sleep 300 &) ; echo left > /tmp/left-behind"))
    assert isinstance(answer, Worked) and answer.files == 1
