"""holdfast run: a provider that dies in mid-run pauses it, which is no attempt; one that stays away stops it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delegated import configured
from holdfast.testing import ScriptedModel
from holdfast.testing.script import Error, Say, Script
from roadmapped import boxes, mapped, script

# Asks its model twice about its task and then does it; it gives up on any error.
ASKING = """\
import json, os, re, sys, urllib.error, urllib.request
words = open(sys.argv[1]).read()
name = re.search(r"Create (\\w+)\\.py", words).group(1)
said = [{"role": "user", "content": f"Create {name}.py"}]
for number in range(2):
    body = {"model": "scripted", "max_tokens": 500, "messages": said}
    head = {"authorization": "Bearer " + os.environ["HOLDFAST_MODEL_KEY"], "content-type": "application/json"}
    place = os.environ["HOLDFAST_MODEL_URL"] + "/v1/chat/completions"
    try:
        asked = urllib.request.Request(place, json.dumps(body).encode(), head)
        answer = json.load(urllib.request.urlopen(asked, timeout=30))
    except urllib.error.HTTPError as error:
        sys.exit(f"the model said {error.code}")
    said += [answer["choices"][0]["message"], {"role": "user", "content": "and then?"}]
open(name + ".py", "w").write("x = 1\\n")
"""
WELL = Script.of(Say("I look."), Say("I write."))


@pytest.fixture
def here(guarded: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    found = mapped(guarded, *(f"Create {name}.py" for name in "abc"))
    script(found).write_text(ASKING)
    monkeypatch.setenv("LOCAL_MODEL_KEY", "key")
    # Real pauses are seconds; the commands below are forks of this process.
    monkeypatch.setattr("holdfast.engine.outage.FIRST_MS", 20)
    return found


def agent(here: Any, url: str, more: str = "") -> None:
    configured(
        f'[agents.mine]\ncommand = ["python3", "{script(here)}", "{{task_file}}"]\nnetwork = "proxy"\n'
        f'provider = "local"\n[providers.local]\nurl = "{url}"\napi = ["openai"]\nkey_env = "LOCAL_MODEL_KEY"\n{more}'
    )


def rows(here: Any) -> list[tuple[str, int]]:
    return [(task["status"], task["attempts"]) for task in here("tasks", "--json").document["tasks"]]


@pytest.mark.parametrize(
    "trouble",
    [
        Error(503, times=6),
        pytest.param(Error(429, times=6, retry_after=0), marks=pytest.mark.long),
        pytest.param(Error(500, times=6), marks=pytest.mark.long),
    ],
    ids=lambda each: str(each[0]),
)
def test_a_provider_that_dies_in_mid_run_costs_nobody_an_attempt(here: Any, trouble: Error) -> None:
    """It dies when the second task asks, for longer than all its attempts would have lasted."""
    with ScriptedModel(*WELL.steps, tasks={"b.py": Script.of(trouble, Say("I write."))}, keys=("key",)) as model:
        agent(here, model.url)
        done = here("run", "--agent", "mine", "--yes")
    assert done.status == 0, done.err
    assert boxes(here) == "xxx"
    assert rows(here) == [("COMPLETED", 1)] * 3
    assert done.err.count(f"the provider local cannot be used (it answers {trouble.status}); asked again in") == 6
    assert "the provider local answers again" in done.err
    lines = (here.directory / ".holdfast/ledger.jsonl").read_text().splitlines()
    worked = [entry["body"] for entry in map(json.loads, lines) if entry["kind"] == "delegation"]
    assert [len(each["attempts"]) for each in worked] == [1, 1, 1]


def test_a_provider_that_stays_away_stops_the_run_and_it_goes_on_later(here: Any) -> None:
    """After the deadline: said in words, no attempt used up, and resume goes on once it is there."""
    with ScriptedModel(*WELL.steps, keys=("key",)) as model:
        url = model.url
    agent(here, url, '[run]\noutage = "1s"\n')
    done = here("run", "--agent", "mine", "--yes")
    assert done.status == 11, done.err
    assert "Stopped: the provider local cannot be used (the model cannot be reached: Connection refused)" in done.out
    assert "No attempt was used up by it." in done.out
    assert rows(here) == [("PENDING", 0)] * 3
    with ScriptedModel(*WELL.steps, keys=("key",)) as model:
        agent(here, model.url)
        again = here("resume", "--yes")
    assert again.status == 0, again.err
    assert rows(here) == [("COMPLETED", 1)] * 3


@pytest.mark.long
def test_a_question_that_is_wrong_is_not_waited_for(here: Any) -> None:
    """400 is an answer, and a failure like others."""
    with ScriptedModel(Error(400), keys=("key",)) as model:
        agent(here, model.url)
        done = here("run", "--agent", "mine", "--yes", "--max-tasks", "1")
    assert done.status != 0
    assert "cannot be used" not in done.err
    assert rows(here)[0][1] > 0
