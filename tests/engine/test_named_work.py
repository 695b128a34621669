"""What a task names is looked up in what an agent did: told to the agent, and in the end asked of a person."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from delegated import FIXED, Given, delegations, give, project
from driven_run import Sitting
from guarded import ME, Ground, put
from holdfast.agents.protocol import Bench
from holdfast.engine.orders import Asked, Landed, Order, Unworked, order_from, packed
from holdfast.engine.replay import replay_all
from holdfast.engine.simulator import Simulated
from holdfast.engine.taskbook import begin_run
from holdfast.gates.report_rules import UNMET
from holdfast.model.agent import Request, Result
from holdfast.model.run import RunRecord
from holdfast.testing import HandEngine, ScriptedAgent
from holdfast.testing.script import WriteFile
from laned import landings, lane_of, order_of, proposed, site

RIGHT, ELSEWHERE = WriteFile("app.py", FIXED.decode()), WriteFile("lib.py", FIXED.decode())
TASK = "Correct the number in app.py"
LACKS = "the task names app.py, and the change leaves it as it is"
# Without a test that fails while the named file is as it was.
FILES = {"app.py": b"def answer():\n    return 41\n", "lib.py": b"x = 1\n"}


class Noting(ScriptedAgent):
    """Keeps what it was asked."""

    def work(self, request: Request, bench: Bench) -> Result:
        self.evidence = [*getattr(self, "evidence", []), request.evidence]
        return super().work(request, bench)


def reasons(ground: Ground, simulated: Simulated) -> list[str]:
    return [reason.detail for reason in ground.hf.evaluate(simulated).reasons if reason.rule == UNMET]


def test_an_agent_that_leaves_the_named_file_alone_is_told_and_does_it(tmp_path: Path) -> None:
    """The second round knows what was lacking; the ledger has it beside the first; nobody is asked about it."""
    ground = project(tmp_path / "workspace", FILES)
    agent = Noting(WriteFile("lib.py", "x = 2\n"), later={2: (RIGHT,)})
    simulated = give(ground, agent, Given(task=TASK, attempts=2))
    assert agent.evidence == ["", f"The change is not what the task asks for yet:\n- {LACKS}"]
    assert [row["measured"].get("unmet") for row in delegations(ground)[0]["attempts"]] == [[LACKS], None]
    assert reasons(ground, simulated) == []


def test_what_still_lacks_in_the_end_is_asked_of_a_person(tmp_path: Path) -> None:
    """The work is kept, and says what it lacks; the decision can be made again from the ledger alone."""
    ground = project(tmp_path / "workspace", FILES)
    simulated = give(ground, ScriptedAgent(WriteFile("lib.py", "x = 2\n")), Given(task=TASK, attempts=2))
    decision = ground.hf.evaluate(simulated)
    assert decision.verdict == "NEED_APPROVAL" and reasons(ground, simulated) == [LACKS]
    assert {each.verdict for each in replay_all(ground.hf.site, ground.hf.ledger)} == {"same"}
    ground.hf.close()


def test_marks_of_an_edit_are_asked_about(tmp_path: Path) -> None:
    """A comment in the place of code is no complete work, although every check passes."""
    ground = project(tmp_path / "workspace", FILES)
    short = WriteFile("app.py", "def answer():\n    return 42\n\n# ... rest of the code unchanged ...\n")
    (told,) = reasons(ground, give(ground, ScriptedAgent(short), Given(task=TASK)))
    assert told.startswith("app.py holds a comment in the place of code, in line 4")


def test_a_task_is_not_ticked_while_the_change_lacks_what_it_names(tmp_path: Path) -> None:
    """`--yes` was given before anybody saw it: a person is asked, and once they said yes it lands and is ticked."""
    ground = site(tmp_path / "workspace")
    order = proposed(ground, put("b.py", b"B = 2\n"), order=order_of(ground)._replace(words="Set A to 2 in a.py"))
    question = lane_of(ground).land(order)
    assert isinstance(question, Asked) and "the task names a.py" in question.because
    assert not landings(ground) and b"[x]" not in (ground / "ROADMAP.md").read_bytes()
    kept, verified = ground.hf.kept(question.simulation)
    ground.hf.approve(ground.hf.evaluate(kept, verified))
    answer = lane_of(ground).land(order._replace(turn=2, simulation=question.simulation))
    assert isinstance(answer, Landed)
    assert b"- [x] One" in (ground / "ROADMAP.md").read_bytes()


def test_right_work_is_landed_without_a_question(tmp_path: Path) -> None:
    """The same task, done where it says."""
    ground = site(tmp_path / "workspace")
    order = proposed(ground, put("a.py", b"A = 2\n"), order=order_of(ground)._replace(words="Set A to 2 in a.py"))
    assert isinstance(lane_of(ground).land(order), Landed)


def test_another_task_with_the_same_change_is_looked_up_anew(tmp_path: Path) -> None:
    """The same bytes may be what one task names, and not what another does."""
    ground = project(tmp_path / "workspace", FILES)
    simulated = give(ground, ScriptedAgent(RIGHT), Given(task=TASK))
    assert reasons(ground, simulated) == []
    (step,) = simulated.plan.steps
    other = replace(simulated.plan, steps=(step._replace(task="Set x to 2 in lib.py"),))  # type: ignore[call-arg]
    found = ground.hf.evaluate(simulated._replace(plan=other))
    assert any(reason.rule == UNMET for reason in found.reasons)


def test_what_a_task_says_of_being_done_is_run_as_a_check(tmp_path: Path) -> None:
    """Commands of its acceptance lines go with the order, each once; prose does not, and nothing for a shell."""
    ground = site(tmp_path / "workspace")
    text = (
        "# R\n\n- [ ] One\n  Verify: `python3 -m compileall a.py`\n  - [ ] Done when `make check` passes\n"
        "  - [ ] Verify: run `python3 -m compileall a.py`\n  - [ ] Done when `a | b` passes and the docs say so\n"
    )
    sitting = Sitting(ground, text, run=begin_run(ground.hf.pipeline, RunRecord("", "ROADMAP.md", by=ME)))
    seen: list[Order] = []

    def work(engine: HandEngine, id: str) -> None:
        seen.append(order_from(engine.argument(id)))  # type: ignore[arg-type]
        engine.end(id, packed(Unworked("unknown", "no", "no", final=True)))

    sitting.drive({"One": [work]})
    assert seen[0].accept == (("python3", "-m", "compileall", "a.py"), ("make", "check"))
