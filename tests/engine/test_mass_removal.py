"""A change that removes a large share of the tree is high risk, whoever made it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import ME, Ground, guard
from holdfast.engine.replay import replay_all
from holdfast.engine.simulator import Simulated
from holdfast.model.decision import Decision
from holdfast.model.plan import Delete, Move, Run, Step

RULE = "Asks about the removal of a large share of the tree"
FILES = {f"src/page-{n:02}.html": b"%d\n" % n for n in range(30)} | {f"doc/{n}.md": b"# %d\n" % n for n in range(10)}


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    ground = guard(tmp_path / "guarded", FILES)
    yield ground
    ground.hf.close()


def judged(ground: Ground, *steps: Step) -> tuple[Simulated, Decision]:
    simulated = ground.hf.simulate(ground.plan(*steps))
    return simulated, ground.hf.evaluate(simulated)


@pytest.mark.parametrize("step", [Delete("src", recursive=True), Run(("/bin/rm", "-r", "src"))], ids=["file", "run"])
def test_removing_most_files_is_high_risk(ground: Ground, step: Step) -> None:
    """30 of 40 files: the reason names both numbers, consent is typed, and the decision replays to the same."""
    _, decision = judged(ground, step)
    reason = next(reason for reason in decision.reasons if reason.rule == RULE)
    assert (decision.risk_effective, decision.typed_consent) == ("high", True)
    assert reason.detail == "removes 30 of 40 files; 30 paths, 20 shown"
    assert [item.verdict for item in replay_all(ground.hf.site, ground.hf.ledger)] == ["same"]


@pytest.mark.parametrize(
    "step", [Move("src", "site"), Run(("/bin/mv", "src", "site")), Run(("/bin/rm", "-r", "doc"))]
)  # fmt: skip
def test_moves_and_small_removals_are_not(ground: Ground, step: Step) -> None:
    """Moved files still exist, whoever moved them; ten of forty files are an ordinary deletion."""
    _, decision = judged(ground, step)
    assert RULE not in [reason.rule for reason in decision.reasons]


def test_installed_dependencies_do_not_dilute_the_share(ground: Ground) -> None:
    """Files that tools installed are not counted: with 200 of them, the 30 are still 30 of 40."""
    for n in range(200):
        path = ground / f"node_modules/p{n}/index.js"
        path.parent.mkdir(parents=True)
        path.write_text("")
    _, decision = judged(ground, Delete("src", recursive=True))
    assert RULE in [reason.rule for reason in decision.reasons]


@pytest.mark.parametrize("step", [Delete("src", recursive=True), Run(("/bin/rm", "-r", "src"))], ids=["file", "run"])
def test_what_git_ignores_does_not_dilute_the_share(ground: Ground, step: Step) -> None:
    """Beside 400 built files that the repository ignores, the 30 are still 30 of 41, on the way back too."""
    subprocess.run(["git", "init", "-q", str(ground.path)], check=True)
    (ground / ".gitignore").write_text("build/\n*.o\n")
    (ground / "build").mkdir()
    for n in range(200):
        (ground / f"build/{n}").write_text("built")
        (ground / f"doc/{n}.o").write_text("built")
    simulated, decision = judged(ground, step)
    reason = next(reason for reason in decision.reasons if reason.rule == RULE)
    assert reason.detail == "removes 30 of 41 files; 30 paths, 20 shown"
    done = ground.hf.execute(simulated, approved_by=ME, consent=simulated.plan.id)
    undone = ground.hf.undo(done.id, approved_by=ME)
    assert ground.hf.preview_undo(undone.id).removal == (30, 41)


def test_ignored_files_count_where_they_go(ground: Ground) -> None:
    """A change that removes the ignored files themselves is measured against them too."""
    subprocess.run(["git", "init", "-q", str(ground.path)], check=True)
    (ground / ".gitignore").write_text("build/\n")
    (ground / "build").mkdir()
    for n in range(100):
        (ground / f"build/{n}").write_text("built")
    _, decision = judged(ground, Delete("build", recursive=True))
    reason = next(reason for reason in decision.reasons if reason.rule == RULE)
    assert reason.detail == "removes 100 of 141 files; 100 paths, 20 shown"
