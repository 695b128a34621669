"""Options of `holdfast run` that other tools have under these names: model, verify mode, plan first, interruptions."""

from __future__ import annotations

import json
from typing import Any

import pytest

import holdfast
from delegated import configured
from holdfast.errors import InvalidInput
from holdfast.model.run import RunOptions
from roadmapped import boxes, git, mapped, script, states

# Writes what it was told of its plan and its model where a test can read it: into the file that it makes.
TELLING = """
import os, re, sys
words = open(sys.argv[1]).read()
if "holdfast-plan.md" in words and "Do not do the task below yet" in words:
    open("holdfast-plan.md", "w").write("First the lexer, then the parser.\\n")
    open("stray.py", "w").write("x = 3\\n")
else:
    plan = "lexer" if "First the lexer, then the parser." in words else "no plan"
    model = os.environ["HOLDFAST_MODEL"]
    open("a.py", "w").write(f"plan = {plan!r}\\nmodel = {model!r}\\n")
"""


def _telling(here: Any) -> None:
    script(here).write_text(TELLING)
    configured(
        f'[agents.mine]\ncommand = ["python3", "{script(here)}", "{{task_file}}"]\nnetwork = "none"\nmodel = "small"\n'
    )


def test_a_plan_comes_first(guarded: Any) -> None:
    """--plan-first: the agent writes a plan, is told it when it works, and nothing of the first shadow lands."""
    here = mapped(guarded, "Create a.py")
    _telling(here)
    done = here.fresh("run", "--agent", "mine", "--yes", "--plan-first")
    assert done.status == 0, done.err
    assert "plan = 'lexer'" in (here.directory / "a.py").read_text()
    assert git(here, "show", "--format=", "--name-only").split() == ["ROADMAP.md", "a.py"]
    assert not (here.directory / "stray.py").exists()
    log = here.directory / ".holdfast" / "logs" / "execution"
    said = [json.loads(line) for path in log.iterdir() for line in path.read_text().splitlines()]
    assert any("First the lexer" in str(row.get("happening", {}).get("text")) for row in said)


@pytest.mark.parametrize(("words", "model"), [((), "small"), (("--model", "large"), "large")])
def test_the_model_of_a_run(guarded: Any, words: tuple[str, ...], model: str) -> None:
    """--model stands above the model of the agent's configuration."""
    here = mapped(guarded, "Create a.py")
    _telling(here)
    done = here.fresh("run", "--agent", "mine", "--yes", *words)
    assert done.status == 0, done.err
    assert f"model = {model!r}" in (here.directory / "a.py").read_text()


def test_verification_left_to_the_agent(guarded: Any) -> None:
    """--verify-mode agent: the project's tests are not run, and the task waits for a person, who is told why."""
    here = mapped(guarded, "Create a.py")
    (here.directory / "Makefile").write_text("test:\n\tfalse\n")
    git(here, "commit", "-qam", "tests that fail")
    done = here.fresh("run", "--agent", "mine", "--verify-mode", "agent")
    assert done.status == 3, done.err
    assert (states(here), boxes(here)) == (["NEEDS_REVIEW"], ".")
    assert "verification was left to the agent" in done.out + done.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--verify-mode", "skip"), "--skip-verification REASON"),
        (("--verify-mode", "auto", "--skip-verification", "docs"), "skips nothing"),
        (("--interrupt-before", "sleep"), "'sleep' is not one of"),
        (("--max-tasks", "0"), "0 is not in the range"),
    ],
)
def test_options_that_contradict_each_other(guarded: Any, words: tuple[str, ...], message: str) -> None:
    """Exit 2, with what to say instead, and nothing is begun."""
    here = mapped(guarded, "Create a.py")
    done = here.fresh("run", "--agent", "mine", *words)
    assert done.status == 2
    assert message in done.err


def test_after_the_last_landing_nothing_is_interrupted(guarded: Any) -> None:
    """--interrupt-after land, and nothing is left: the run is done, and nobody is told to resume it."""
    here = mapped(guarded, "Create a.py")
    done = here.fresh("run", "--agent", "mine", "--yes", "--interrupt-after", "land")
    assert done.status == 0 and "Done: 1 of 1 task done." in done.out and "resume" not in done.out, done
    assert here("tasks", "--json").document["status"] == "FINISHED"


def test_a_run_interrupted_after_each_landing(guarded: Any) -> None:
    """--interrupt-after land: the run stops when a task has landed, and resume takes it to the next one."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    first = here.fresh("run", "--agent", "mine", "--yes", "--interrupt-after", "land")
    assert boxes(here) == "x."
    assert "interrupted after" in first.out + first.err
    assert "holdfast resume" in first.out + first.err
    assert here.fresh("resume", "--yes").status == 0
    assert boxes(here) == "xx"
    assert here.fresh("tasks", "--json").document["status"] == "FINISHED"


@pytest.mark.parametrize(
    ("words", "because"),
    [(("--interrupt-before", "work"), "before"), (("--interrupt-after", "work"), "before it lands"),
     (("--interrupt-before", "land"), "before it lands")],
)  # fmt: skip
def test_a_run_interrupted_for_a_person(guarded: Any, words: tuple[str, ...], because: str) -> None:
    """--interrupt-before work asks before an agent begins; after work, and before land, asks with its work to see."""
    here = mapped(guarded, "Create a.py")
    done = here.fresh("run", "--agent", "mine", "--yes", *words)
    assert done.status == 3, done.err
    assert (states(here), boxes(here)) == (["NEEDS_REVIEW"], ".")
    assert because in done.out + done.err


@pytest.mark.parametrize(
    "options",
    [
        RunOptions(verify_mode="skip"),
        RunOptions(verify_mode="agent", unverified_because="docs"),
        RunOptions(verify_mode="never"),  # type: ignore[arg-type]
        RunOptions(parallel=0),
        RunOptions(attempts=0),
        RunOptions(ask=("sometimes",)),  # type: ignore[arg-type]
    ],
    ids=str,
)
def test_a_program_asks_for_what_no_run_can_do(guarded: Any, options: RunOptions) -> None:
    """From Python as from the command line: refused before a run is begun, and never a run without an end."""
    here = mapped(guarded, "Create a.py")
    with holdfast.open(str(here.directory)) as hf:
        for ask in (hf.runs.start, hf.runs.preview):
            with pytest.raises(InvalidInput):
                ask("ROADMAP.md", options._replace(agent="mine"))
    assert here.fresh("tasks", "--json").document["status"] == "PENDING"
