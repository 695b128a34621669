"""What a task is said to have used: whole answers as the model sold them; those cut off are estimated, and marked."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from delegated import PYTHON, Given, configured, delegations, plan_for, project
from holdfast.store.blobs import Blobs
from holdfast.testing import ScriptedModel
from holdfast.testing.script import Hang, Say, Script
from proxy.answers import event_bytes
from proxy.provider import providing, streamed

# One question is answered; the other, asked on the side, is still open when the program ends, as with a title that
# nobody waits for.
PROGRAM = """\
import json, os, threading, time, urllib.request
url, key = os.environ["HOLDFAST_MODEL_URL"], os.environ["HOLDFAST_MODEL_KEY"]
def ask(words):
    body = {"model": "scripted", "max_tokens": 200, "messages": [{"role": "user", "content": words}]}
    head = {"authorization": "Bearer " + key, "content-type": "application/json"}
    asked = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(), head)
    return json.load(urllib.request.urlopen(asked, timeout=60))["choices"][0]["message"]["content"]
threading.Thread(target=ask, args=("on the side",), daemon=True).start()
open("answer.txt", "w").write(ask("the task itself"))
time.sleep(1.5)
os._exit(0)
"""
# Leaves while an answer is coming, so that what it cost is known only after the program has ended.
LEAVING = """\
import http.client, json, os
url, key = os.environ["HOLDFAST_MODEL_URL"], os.environ["HOLDFAST_MODEL_KEY"]
asking = http.client.HTTPConnection(url.removeprefix("http://"))
body = {"model": "scripted", "max_tokens": 200, "stream": True, "messages": [{"role": "user", "content": "a title"}]}
head = {"authorization": "Bearer " + key, "content-type": "application/json"}
open("answer.txt", "w").write("x")
asking.request("POST", "/v1/chat/completions", json.dumps(body), head)
asking.getresponse().read1(1)
os._exit(0)
"""


def test_a_side_question_that_was_cut_off_is_estimated_and_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole answer is counted to the token; the other one is in the sum too, as an estimate, and says so."""
    program = Path(os.environ["HOME"]) / "side.py"
    program.write_text(PROGRAM)
    scripts = {"on the side": Script.of(Hang(20), Say("A title.")), "the task itself": Script.of(Say("Done."))}
    ground = project(tmp_path / "workspace")
    with ScriptedModel(tasks=scripts) as model:
        monkeypatch.setenv("SIDE_KEY", model.key)
        configured(f"""
[agents.mine]
command = ["{PYTHON}", "{program}"]
network = "proxy"
provider = "local"
[providers.local]
url = "{model.url}"
api = ["openai"]
key_env = "SIDE_KEY"
[checks]
detect = false
""")
        ground.hf.simulate(plan_for("mine", Given(task="Write it down.")))
        (sold,) = (seen.usage for seen in model.seen if seen.usage.requests)
    (entry,) = delegations(ground)
    whole, cut = sorted(_asked(ground, entry["asked"]), key=lambda line: bool(line["estimated"]))
    assert (whole["estimated"], whole["outcome"]) == (False, "answered")
    assert (whole["input_tokens"], whole["output_tokens"]) == (sold.input_tokens, sold.output_tokens)
    assert (cut["estimated"], cut["outcome"]) == (True, "gone")
    assert cut["input_tokens"] > 0
    for field in ("requests", "input_tokens", "output_tokens"):
        assert entry["usage"][field] == whole[field] + cut[field]


def test_an_answer_under_way_when_the_program_ends_is_in_the_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that ends in the middle of an answer is charged for it in the ledger, not only in its transcript."""
    program = Path(os.environ["HOME"]) / "leaving.py"
    program.write_text(LEAVING)
    ground = project(tmp_path / "workspace")
    first = event_bytes({"choices": [{"delta": {"content": "A "}}]})
    hold = threading.Event()
    with providing(lambda _: streamed(first, hold)) as provider:
        configured(f"""
[agents.mine]
command = ["{PYTHON}", "{program}"]
network = "proxy"
provider = "local"
[providers.local]
url = "{provider.url}"
api = ["openai"]
[checks]
detect = false
""")
        ground.hf.simulate(plan_for("mine", Given(task="Write it down.")))
        hold.set()
    (entry,) = delegations(ground)
    (cut,) = _asked(ground, entry["asked"])
    assert (cut["estimated"], cut["outcome"], cut["output_tokens"]) == (True, "gone", 200)
    assert entry["usage"]["output_tokens"] == 200


def _asked(ground: Any, digest: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Blobs(ground.hf.site.state).get(digest).splitlines()]
