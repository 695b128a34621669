"""A run never calls done what its words can be held against: thirty tasks, done rightly and done badly."""

from __future__ import annotations

import ast
import json
from collections import Counter
from typing import Any

import pytest

from holdfast.planning.unmet import Side, unmet
from roadmap.named_tasks import SEEN, TASKS, UNSEEN, shop, ticked, wrong


def _found(task: dict[str, Any], files: dict[str, str]) -> list[str]:
    base: dict[str, str] = task["base"]
    sides = {path: Side(base.get(path), text or None, path in base, bool(text)) for path, text in files.items()}
    told = list(unmet(task["title"], sides, base.__contains__))
    for path, text in files.items():
        try:
            ast.parse(text if path.endswith(".py") else "")
        except SyntaxError:
            told.append(f"{path} does not compile")
    return told


@pytest.mark.parametrize("task", TASKS, ids=[task["title"] for task in TASKS])
def test_right_work_lacks_nothing_and_wrong_work_does(task: dict[str, Any]) -> None:
    """Looked up without a run: nothing is said of the right edit, something of each wrong one that can be seen."""
    assert _found(task, task["right"]) == []
    assert bool(_found(task, wrong(task))) is not task.get("unseen", False)


def test_the_thirty_tasks_are_what_they_should_be() -> None:
    """Most name what can be looked up, and every weakness is among these."""
    assert len(TASKS) == 30 and len(SEEN) >= 20
    weak = Counter(task["weakness"] for task in TASKS if not task.get("unseen"))
    assert weak.keys() == {"symbol", "stray", "root", "prose", "truncated", "repeats"}


def _run(here: Any, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """The status, and the tasks of the document; thirty of them take minutes."""
    with (here.directory.parent / "run.json").open("w+b") as out:
        status = here.start("run", "--agent", "mine", "--json", *words, stdout=out).wait(1_500)
        out.seek(0)
        return status, json.load(out)["tasks"]


@pytest.mark.long
def test_an_agent_that_does_thirty_tasks_rightly_lands_thirty_without_a_question(guarded: Any) -> None:
    """Nothing is asked beyond what `--yes` answers, or sent back: new tests, modules, package files are plausible."""
    here = shop(guarded, right=True)
    status, tasks = _run(here, "--yes")
    assert ticked(here) == [task["title"] for task in TASKS], tasks
    entries = map(json.loads, (here.directory / ".holdfast/ledger.jsonl").read_text().splitlines())
    worked = [len(entry["body"]["attempts"]) for entry in entries if entry["kind"] == "delegation"]
    assert status == 0 and worked == [1] * len(TASKS)


@pytest.mark.long
def test_an_agent_that_does_them_badly_has_none_ticked_that_names_what_can_be_looked_up(guarded: Any) -> None:
    """Whatever its weakness, and with `--yes`. What is ticked although wrong are the tasks whose words name nothing."""
    here = shop(guarded, right=False)
    status, tasks = _run(here, "--attempts", "1", "--yes")
    assert ticked(here) == UNSEEN, tasks
    assert status != 0
