"""holdfast run: the budget of a run stops the run. It is no failure of the task that it cut, and no attempt at it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from delegated import configured
from holdfast.testing import ScriptedModel
from holdfast.testing.script import Say
from roadmapped import boxes, mapped, script

# Asks its model as often as its task says, and only then does what it was asked for.
ASKING = """\
import json, os, re, sys, urllib.error, urllib.request
words = open(sys.argv[1]).read()
name, times = re.search(r"Create (\\w+)\\.py asking (\\d+)", words).groups()
for number in range(int(times)):
    body = {"model": "scripted", "max_tokens": 50, "messages": [{"role": "user", "content": "x" * 400}]}
    head = {"authorization": "Bearer " + os.environ["HOLDFAST_MODEL_KEY"], "content-type": "application/json"}
    place = os.environ["HOLDFAST_MODEL_URL"] + "/v1/chat/completions"
    try:
        urllib.request.urlopen(urllib.request.Request(place, json.dumps(body).encode(), head), timeout=30).read()
    except urllib.error.HTTPError as error:
        sys.exit(f"the model said {error.code}")
open(name + ".py", "w").write("x = 1\\n")
"""
PRICES = '[providers.local.prices]\n"scripted" = { input = 1000.0, output = 1000.0 }\n'


@pytest.fixture
def here(guarded: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Four tasks, of which each asks a model twice."""
    found = mapped(guarded, *(f"Create {name}.py asking 2" for name in "abcd"))
    script(found).write_text(ASKING)
    with ScriptedModel(Say("so be it")) as model:
        monkeypatch.setenv("LOCAL_MODEL_KEY", model.key)
        found.model = model
        agent(found)
        yield found


def agent(here: Any, more: str = "", prices: str = PRICES) -> None:
    configured(
        f'[agents.mine]\ncommand = ["python3", "{script(here)}", "{{task_file}}"]\nnetwork = "proxy"\n'
        f'provider = "local"\n{more}\n[providers.local]\nurl = "{here.model.url}"\napi = ["openai"]\n'
        f'key_env = "LOCAL_MODEL_KEY"\n{prices}'
    )


def rows(here: Any) -> list[tuple[str, int]]:
    return [(task["status"], task["attempts"]) for task in here("tasks", "--json").document["tasks"]]


def delegations(here: Any) -> int:
    lines = (here.directory / ".holdfast/ledger.jsonl").read_text().splitlines()
    return sum(json.loads(line)["kind"] == "delegation" for line in lines)


@pytest.mark.parametrize(
    ("option", "little", "much"),
    [("--budget-tokens", "700", "100000"), ("--budget-usd", "0.7", "100"), ("--max-turns", "3", "100")],
)
def test_the_budget_of_a_run_stops_it_and_more_sets_it_going(here: Any, option: str, little: str, much: str) -> None:
    """The task that it cut is still to do, without an attempt used; no other is begun; exit 10 says how to go on."""
    done = here.fresh("run", "--agent", "mine", "--yes", option, little)
    assert done.status == 10, done.err
    assert f"Go on with: holdfast resume {option}" in done.out
    landed = boxes(here).count("x")
    assert boxes(here) == "x" * landed + "." * (4 - landed) and 0 < landed < 4
    assert rows(here) == [("COMPLETED", 1)] * landed + [("PENDING", 0)] * (4 - landed)
    assert delegations(here) == landed + 1

    again = here.fresh("resume", "--yes", option, much)
    assert again.status == 0, again.err
    assert rows(here) == [("COMPLETED", 1)] * 4


def test_a_budget_that_is_still_too_small_stops_the_run_again(here: Any) -> None:
    """As often as it is asked for: no attempt is used up by that."""
    assert here.fresh("run", "--agent", "mine", "--yes", "--max-turns", "1").status == 10
    assert here.fresh("resume", "--yes", "--max-turns", "1").status == 10
    assert here.fresh("resume", "--yes", "--max-turns", "2").status == 10
    assert rows(here) == [("PENDING", 0)] * 4


def test_those_who_work_when_the_budget_stops_the_run_finish_their_share(here: Any) -> None:
    """One asks for more than its share, another one does with its own, and lands; nobody else begins."""
    roadmap = here.directory / "ROADMAP.md"
    roadmap.write_text(roadmap.read_text().replace("a.py asking 2", "a.py asking 30"))
    done = here.fresh("run", "--agent", "mine", "--yes", "--parallel", "2", "--max-turns", "20")
    assert done.status == 10, done.err
    assert "the requests of the run did not suffice" in done.out and "shared by 2 at once" in done.out
    assert rows(here)[:2] == [("PENDING", 0), ("COMPLETED", 1)]
    assert here.fresh("resume", "--yes", "--max-turns", "1000").status == 0
    assert rows(here) == [("COMPLETED", 1)] * 4


def test_an_agents_own_limit_stops_no_run(here: Any) -> None:
    """It is smaller than what the run leaves: that attempt came to nothing, and the others go on."""
    agent(here, "limits = { turns = 2 }")
    roadmap = here.directory / "ROADMAP.md"
    roadmap.write_text(roadmap.read_text().replace("a.py asking 2", "a.py asking 3"))
    done = here.fresh("run", "--agent", "mine", "--yes", "--max-turns", "100")
    assert done.status == 3, done.err
    assert rows(here) == [("NEEDS_REVIEW", 1)] + [("COMPLETED", 1)] * 3


def test_a_model_without_a_price_stops_a_run_with_a_budget_of_money(here: Any) -> None:
    """No task is blamed for it: with a price it goes on."""
    agent(here, prices=PRICES.replace("scripted", "another"))
    done = here.fresh("run", "--agent", "mine", "--yes", "--budget-usd", "100")
    assert done.status == 10, done.err
    assert "no price is known for" in done.out
    assert rows(here) == [("PENDING", 0)] * 4
    assert delegations(here) == 1
    agent(here)
    assert here.fresh("resume", "--yes").status == 0


def test_a_budget_of_money_is_refused_where_nothing_has_a_price(here: Any) -> None:
    """Before anything begins, and before it goes on: no task is begun that could not spend anything."""
    agent(here, prices="")
    done = here.fresh("run", "--agent", "mine", "--yes", "--budget-usd", "100")
    assert (done.status, delegations(here)) == (2, 0), done.err
    assert "states no price for any model" in done.err
    assert here.fresh("run", "--agent", "mine", "--yes", "--max-turns", "3").status == 10
    begun = delegations(here)
    assert here.fresh("resume", "--yes", "--budget-usd", "100").status == 2
    assert delegations(here) == begun
    done = here.fresh("run", "--yes", "--budget-usd", "100")
    assert (done.status, delegations(here)) == (3, begun), done.err
