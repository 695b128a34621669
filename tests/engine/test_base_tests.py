"""Tests that judge a change are the base's: who edits, removes or skips them is judged by them all the same."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from delegated import APP, FILES, FIXED, TEST, Given, give
from guarded import ME, Ground, guard, put, swap
from holdfast.engine.checking import Verified
from holdfast.engine.orders import Asked, Landed
from holdfast.engine.patching import Sent
from holdfast.engine.replay import replay_all
from holdfast.engine.simulator import Simulated
from holdfast.errors import ApprovalNeeded
from holdfast.model.decision import Decision
from holdfast.model.execution import BaseTests
from holdfast.model.plan import Plan, Run
from holdfast.testing import ScriptedAgent
from holdfast.testing.agents import Act, Delete
from holdfast.testing.script import EditFile, WriteFile
from laned import lane_of, order_of, proposed, site

RULE = "Asks when a change edits the tests that judge it"
GOOD = {**FILES, "app.py": FIXED}
BREAKS = EditFile("app.py", "42", "43")
TOUCHES = EditFile("app.py", "return 42", "return 40 + 2")
ADDED = TEST + b"\n    def test_more(self):\n        self.assertTrue(answer())\n"
NODE = {
    "package.json": b'{"name": "n", "version": "1.0.0"}\n',
    "calc.js": b"exports.add = (a, b) => a + b;\n",
    "test/calc.test.js": b"""\
const test = require('node:test');
const assert = require('node:assert');
const { add } = require('../calc.js');
test('adds', () => assert.equal(add(1, 2), 3));
test('adds zero', () => assert.equal(add(1, 0), 1));
""",
}


class Judged(NamedTuple):
    simulated: Simulated
    verified: Verified
    decision: Decision

    @property
    def base(self) -> BaseTests:
        assert self.verified.base_tests is not None
        return self.verified.base_tests

    @property
    def said(self) -> list[tuple[str, str]]:
        """Risk and words of the rule about tests."""
        return [(reason.risk, reason.detail) for reason in self.decision.reasons if reason.rule == RULE]


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """A project whose test passes."""
    found = guard(tmp_path / "workspace", GOOD)
    yield found
    found.hf.close()


def judged(ground: Ground, simulated: Simulated) -> Judged:
    verified = ground.hf.verify(simulated)
    return Judged(simulated, verified, ground.hf.evaluate(simulated, verified))


def agent(ground: Ground, *acts: Act, task: str = "Make answer() simpler.") -> Judged:
    return judged(ground, give(ground, ScriptedAgent(*acts), Given(task=task)))


def test_an_agent_that_empties_the_tests_and_breaks_the_code_is_not_let_through(ground: Ground) -> None:
    """The base's test fails over the new code and is named as gone; a plain yes does not count, and nothing changes."""
    before = ground.tree()
    found = agent(ground, BREAKS, WriteFile("tests/test_app.py", ""))
    assert all(receipt.passed for receipt in found.verified.receipts)
    assert (found.base.outcome, found.base.missing) == ("failed", ("test_answer",))
    assert {risk for risk, _ in found.said} == {"high"} and found.decision.typed_consent
    with pytest.raises(ApprovalNeeded):
        ground.hf.execute(found.simulated, approved_by=ME, verified=found.verified, decision=found.decision)
    assert ground.tree() == before


@pytest.mark.parametrize(
    ("acts", "said"),
    [
        pytest.param((Delete("tests/test_app.py"),), "gone: test_answer", id="one test removed"),
        pytest.param((Delete("tests"),), "gone: test_answer", id="all tests removed"),
        pytest.param((EditFile("tests/test_app.py", "42", "43"),), "base's tests over the new code", id="bent"),
        pytest.param((EditFile("tests/test_app.py", "    def", "    @unittest.skip\n    def"),), "skipped now",
                     id="skipped"),
        pytest.param((WriteFile("tests/app.py", "def answer():\n    return 42\n"),
                      EditFile("tests/test_app.py", "from app", "from tests.app")), "base's tests over the new code",
                     id="another module tested"),
    ],
)  # fmt: skip
def test_tests_that_were_weakened_without_a_word_need_a_person(
    ground: Ground, acts: tuple[Act, ...], said: str
) -> None:
    """With broken code, each way to get the tests out of the way needs consent that is typed out."""
    found = agent(ground, BREAKS, *acts)
    assert found.decision.typed_consent
    assert any(risk == "high" and said in detail for risk, detail in found.said), found.said


@pytest.mark.parametrize(
    "act",
    [
        pytest.param(WriteFile("tests/test_app.py", ADDED.decode()), id="a test in the same file"),
        pytest.param(WriteFile("tests/test_more.py", TEST.decode().replace("test_answer", "test_again")), id="a file"),
        pytest.param(WriteFile("tests/README.md", "How to run them.\n"), id="words about tests"),
    ],
)
def test_tests_that_are_only_added_ask_nothing(ground: Ground, act: Act) -> None:
    """The base's tests pass over the new code, and all of them are still there: no question is asked about tests."""
    found = agent(ground, TOUCHES, act)
    assert not found.said and not found.decision.typed_consent
    if found.verified.base_tests is not None:
        assert (found.base.outcome, found.base.changed, len(found.base.added)) == ("passed", (), 1)


def test_a_change_without_tests_runs_none_of_the_bases(ground: Ground) -> None:
    """Where no test is touched, nothing is run twice and nothing is recorded."""
    found = agent(ground, TOUCHES)
    assert found.verified.base_tests is None and not found.said


def test_tests_that_the_task_names_are_asked_about_and_a_yes_counts(ground: Ground) -> None:
    """The base's test fails, since the task wants another answer and names the test: medium, and --yes is enough."""
    task = "answer() must return 43; change tests/test_app.py with it."
    found = agent(ground, BREAKS, EditFile("tests/test_app.py", "42", "43"), task=task)
    assert found.base.outcome == "failed"
    assert [risk for risk, _ in found.said] == ["medium"] and not found.decision.typed_consent
    ground.hf.execute(found.simulated, approved_by=ME, verified=found.verified, decision=found.decision)
    assert b"43" in (ground / "app.py").read_bytes()


def test_a_test_that_is_gone_needs_a_person_even_where_the_task_names_its_file(ground: Ground) -> None:
    """ "Make tests/test_app.py pass" is no leave to empty it."""
    found = agent(ground, BREAKS, WriteFile("tests/test_app.py", ""), task="Make tests/test_app.py pass.")
    assert found.decision.typed_consent


def test_evidence_and_commands_in_an_order_name_no_test(ground: Ground) -> None:
    """What a log or an acceptance command mentions was not asked for by a person."""
    task = "Better.\n\nIt is done when this command succeeds: `pytest tests/test_app.py`\n\n~~~\ntests/test_app.py\n~~~"
    found = agent(ground, BREAKS, EditFile("tests/test_app.py", "42", "43"), task=task)
    assert found.decision.typed_consent


def test_settings_of_tests_are_asked_about(ground: Ground) -> None:
    """A new conftest.py can change every test: the base's tests are run without it, and a person is asked."""
    found = agent(ground, TOUCHES, WriteFile("tests/conftest.py", "collect_ignore = []\n"))
    assert found.base.changed == ("tests/conftest.py",) and found.base.outcome == "passed"
    assert [risk for risk, _ in found.said] == ["medium"]


def test_what_tests_are_run_by_is_the_bases_too(tmp_path: Path) -> None:
    """A recipe that the one for tests leads to, or a module that stands in for the runner's, is no way around them."""
    making = {"Makefile": b"test: unit\nunit:\n\tpython3 -m unittest discover -s tests -t .\n"}
    emptied = EditFile("Makefile", "python3", "true python3")
    fake = WriteFile("unittest.py", "print('Ran 1 test')\n")
    made = {name: data for name, data in GOOD.items() if name != "setup.cfg"}
    for name, files, act in (("recipe", {**made, **making}, emptied), ("module", GOOD, fake)):
        ground = guard(tmp_path / name, files)
        found = agent(ground, BREAKS, act)
        assert all(receipt.passed for receipt in found.verified.receipts)
        assert found.base.outcome == "failed" and found.decision.typed_consent, name
        ground.hf.close()


def test_what_the_bases_tests_say_proves_nothing_about_the_tree_that_lands(ground: Ground) -> None:
    """Its receipts name the tests and the tree they ran over, which is another one, and are none of the change's."""
    found = agent(ground, TOUCHES, WriteFile("tests/test_app.py", ADDED.decode()))
    (receipt,) = found.base.receipts
    assert receipt.kind == "base tests" and "the base's tests over the new code" in receipt.detail
    assert receipt.tree_digest == found.base.tree != found.verified.lands_as
    assert receipt not in found.verified.receipts


def test_a_kept_simulation_holds_it_and_a_replay_agrees(ground: Ground) -> None:
    """Another command finds the same evidence, decides the same, and an audit gets the same decision from it."""
    found = agent(ground, BREAKS, WriteFile("tests/test_app.py", ""))
    kept = ground.hf.keep(found.simulated, found.verified)
    simulated, verified = ground.hf.kept(kept.report.id)
    assert verified.base_tests == found.base
    assert ground.hf.evaluate(simulated, verified).typed_consent
    assert {replay.verdict for replay in replay_all(ground.hf.site, ground.hf.ledger)} == {"same"}


def test_single_tests_are_compared_where_a_report_names_them(tmp_path: Path) -> None:
    """Settings that leave a test out are no edit of it: the reports of both runs tell that it is gone."""
    ground = guard(tmp_path / "workspace", NODE)
    lines = ("const t = require('node:test');", "module.exports = (n, f) => t(n, {skip: n === 'adds'}, f);", "")
    found = agent(
        ground,
        EditFile("calc.js", "a + b", "a - -b"),
        WriteFile("test/helper.js", "\n".join(lines)),
        EditFile("test/calc.test.js", "require('node:test')", "require('./helper.js')"),
    )
    assert found.base.outcome == "passed" and found.base.skipped == ("adds",)
    assert found.decision.typed_consent
    ground.hf.close()


def test_tests_inside_sources_are_compared_by_name(tmp_path: Path) -> None:
    """A Rust test that is gone from a source file is named, also where nothing can be run."""
    tests = "".join(f"    #[test]\n    fn {name}() {{}}\n" for name in ("is_one", "is_small"))
    source = f"pub fn one() -> u8 {{ 1 }}\n\n#[cfg(test)]\nmod tests {{\n{tests}}}\n"
    ground = guard(tmp_path / "workspace", {"src/lib.rs": source.encode()})
    found = agent(ground, EditFile("src/lib.rs", "    #[test]\n    fn is_one() {}\n", ""))
    assert found.base.missing == ("is_one",) and found.decision.typed_consent
    ground.hf.close()


def test_examples_count_where_they_are_run(tmp_path: Path) -> None:
    """A doctest that is gone is named where the project runs doctests, and is only text elsewhere."""
    source = 'def one():\n    """\n    >>> one()\n    1\n    """\n    return 1\n'
    edit = EditFile("one.py", "    >>> one()\n    1\n", "")
    runs = guard(
        tmp_path / "runs", {"one.py": source.encode(), "pytest.ini": b"[pytest]\naddopts = --doctest-modules\n"}
    )
    assert agent(runs, edit).base.missing == ("doctest of one",)
    not_run = guard(tmp_path / "not", {"one.py": source.encode()})
    assert agent(not_run, edit).verified.base_tests is None
    runs.hf.close()
    not_run.hf.close()


def test_a_command_of_a_plan_is_held_to_the_same(ground: Ground) -> None:
    """A `run` step that breaks the code and bends the tests with it needs typed consent too."""
    plan = Plan("tidy", (Run(("/bin/sh", "-c", "find . -name '*.py' | xargs sed -i s/42/43/")),), words=("Run tests",))
    found = judged(ground, ground.hf.simulate(plan))
    assert found.base.outcome == "failed" and found.decision.typed_consent


def test_a_patch_is_held_to_the_same(ground: Ground, tmp_path: Path) -> None:
    """Whoever applies a patch did not write it: one that bends the tests needs typed consent."""
    copy = tmp_path / "copy"
    for name, data in {"app.py": FIXED.replace(b"42", b"43"), "tests/test_app.py": TEST.replace(b"42", b"43")}.items():
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        (copy / name).write_bytes(data)
    words = ["diff", "-u", "-r", "--unidirectional-new-file", ground.hf.site.path, str(copy), "-x", ".holdfast"]
    text = subprocess.run(words, capture_output=True, check=False).stdout
    text = text.replace(ground.hf.site.path.encode(), b"a").replace(str(copy).encode(), b"b")
    text = b"\n".join(line for line in text.split(b"\n") if not line.startswith((b"Only in", b"diff ")))
    plan = ground.hf.patches.planned(Sent(text, "bent.patch")).plan
    assert plan is not None and plan.patch
    found = judged(ground, ground.hf.simulate(plan))
    assert found.base.outcome == "failed" and found.decision.typed_consent


def test_what_a_person_writes_by_hand_is_theirs(ground: Ground) -> None:
    """A change file that names the file and brings its content is asked nothing about tests."""
    plan = Plan("new answer", (swap("app.py", FIXED, APP), put("tests/test_app.py", b"")), words=("Run tests",))
    found = judged(ground, ground.hf.simulate(plan))
    assert found.verified.base_tests is None and not found.said


def test_in_a_run_the_task_waits_for_a_person(tmp_path: Path) -> None:
    """Though the run was given --yes: the work is kept, the question names the tests, and nothing lands before."""
    ground = site(tmp_path / "workspace", {**GOOD, "ROADMAP.md": b"# R\n\n- [ ] One\n"})
    bad = (put("app.py", FIXED.replace(b"42", b"43")), put("tests/test_app.py", b""))
    order = proposed(ground, *bad, order=order_of(ground, accept=()))
    asked = lane_of(ground).land(order)
    assert isinstance(asked, Asked) and "test_answer" in asked.because
    assert (ground / "app.py").read_bytes() == FIXED
    simulated, verified = ground.hf.kept(asked.simulation)
    ground.hf.approve(ground.hf.evaluate(simulated, verified), by=ME)
    seen = order._replace(turn=2, simulation=asked.simulation, cleared_by=ME)
    assert isinstance(lane_of(ground).land(seen), Landed)
    ground.hf.close()
