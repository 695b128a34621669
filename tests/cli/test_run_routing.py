"""holdfast run: who gets a task by a person's decision, and an agent's own tick, which proves nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delegated import configured
from roadmapped import boxes, git, mapped, script


def routed(here: Any, text: str) -> None:
    """Two agents who could both do it; the file says who shall."""
    agent = script(here)
    command = json.dumps(["python3", str(agent), "{task_file}"])
    configured("".join(f'[agents.{name}]\ncommand = {command}\nnetwork = "none"\n' for name in ("aa", "zz")))
    (here.directory / "routing_decisions.json").write_text(text)
    for words in (["add", "-A"], ["commit", "-qm", "who does what"]):
        git(here, *words)


def test_a_persons_decisions_about_agents_are_followed(guarded: Any) -> None:
    """`routing_decisions.json` stands above the score, for the tasks it names; the others go to the best."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    routed(here, json.dumps({"version": 1, "decisions": [{"task": "1.2", "agent": "zz", "reason": "knows it"}]}))
    done = here.fresh("run", "--yes", "--json")
    assert done.status == 0, done.err
    lines = (here.directory / ".holdfast/ledger.jsonl").read_text().splitlines()
    bodies = [entry["body"] for entry in map(json.loads, lines) if entry["kind"] == "delegation"]
    assert [body["agent"] for body in bodies] == ["aa", "zz"]


@pytest.mark.parametrize(
    "text", ["{", '{"decisions": [{"task": "1.1", "agent": "nobody"}]}', '{"decisions": [{"tasks": "1.1"}]}']
)
def test_decisions_that_cannot_be_followed_are_asked_about(guarded: Any, text: str) -> None:
    """A file that cannot be read, or names nobody, never becomes a missing decision: the task waits for a person."""
    here = mapped(guarded, "Create a.py")
    routed(here, text)
    done = here.fresh("run", "--yes")
    assert done.status == 3
    assert "routing_decisions.json" in done.err or "the routing decision for 1.1 names nobody" in done.err
    assert boxes(here) == "."


def test_an_agent_that_only_ticks_its_box_did_nothing(guarded: Any) -> None:
    """What it was asked to make is not there: the task is not done, and the box is open."""
    here = mapped(guarded, "Create a.py")
    script(here).write_text(
        "text = open('ROADMAP.md').read()\n"
        "open('ROADMAP.md', 'w').write(text.replace('[ ]', '[x]'))\n"
        "print('All done, every test passes.')\n"
    )
    done = here.fresh("run", "--agent", "mine", "--yes", "--json")
    assert done.status != 0
    assert boxes(here) == "."
    (task,) = done.document["tasks"]
    assert task["status"] != "COMPLETED"


# Two attempts fail at once, and before the third its agent is left alone for half a minute: nobody else is asked.
WHILE = ("--attempts", "3", "--budget-time", "15s")


def crew(here: Any, *lacking: str) -> None:
    """`aa` fails whatever it is asked, `zz` does its work; `lacking` are configured, and cannot be used."""
    broken = script(here).with_name("broken.py")
    broken.write_text("import sys\nsys.exit('out of order')\n")
    rows = {"aa": ["python3", str(broken)], "zz": ["python3", str(script(here)), "{task_file}"]}
    rows |= {name: ["/nowhere/at-all"] for name in lacking}
    configured(
        "".join(f'[agents.{name}]\ncommand = {json.dumps(rows[name])}\nnetwork = "none"\n' for name in sorted(rows))
    )


def asked(here: Any) -> list[str]:
    """Who worked, one after the other."""
    lines = (here.directory / ".holdfast/ledger.jsonl").read_text().splitlines()
    return [entry["body"]["agent"] for entry in map(json.loads, lines) if entry["kind"] == "delegation"]


def test_nobody_takes_the_place_of_the_agent_that_a_person_named(guarded: Any) -> None:
    """However often it fails: task and code are for that agent's eyes, and no other's."""
    here = mapped(guarded, "Create a.py")
    crew(here)
    done = here.fresh("run", "--agent", "aa", "--yes", *WHILE)
    assert done.status == 10
    assert asked(here) == ["aa", "aa"], done.err
    assert boxes(here) == "." and not (here.directory / "a.py").exists()


def test_another_agent_takes_over_where_nobody_named_one_and_only_one_that_can(guarded: Any) -> None:
    """`auto`: after failures of the first, the best of those that can be used; an attempt is not spent on others."""
    here = mapped(guarded, "Create a.py")
    crew(here, "bb", "mm")
    done = here.fresh("run", "--attempts", "3", "--yes")
    assert done.status == 0, done.err
    assert set(asked(here)) == {"aa", "zz"} and asked(here)[-1] == "zz"
    (task,) = here("tasks", "--json").document["tasks"]
    assert {each["agent"] for each in task["tried"]} == {"aa"} and task["agent"] == "zz"


def test_a_persons_decision_about_a_task_has_no_substitute(guarded: Any) -> None:
    """Where the file names who shall do it, nobody else is taken when that one fails."""
    here = mapped(guarded, "Create a.py")
    crew(here)
    text = json.dumps({"version": 1, "decisions": [{"task": "1.1", "agent": "aa"}]})
    (here.directory / "routing_decisions.json").write_text(text)
    done = here.fresh("run", "--yes", *WHILE)
    assert done.status == 10
    assert asked(here) == ["aa", "aa"], done.err


def test_an_agent_that_never_passes_is_told_to_a_person(guarded: Any) -> None:
    """It says each time that it is done, and never is: over the attempts of a run that is escalated as it is for one
    task, in a line and in the log."""
    here = mapped(guarded, "Create a.py")
    script(here).write_text("open('b.py', 'a').write('x = 1\\n')\nprint('All done.')\n")
    done = here.fresh("run", "--agent", "mine", "--yes", "--attempts", "2")
    assert done.status == 11
    (line,) = [line for line in done.err.splitlines() if "passed never" in line]
    assert line.startswith("! 1.1 Create a.py: mine finished create-a") and "4 times" in line
    assert '"acceptance_failed"' in (here.directory / ".holdfast/logs/resilience.jsonl").read_text()
