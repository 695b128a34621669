"""What an agent can reach: its model through the proxy, and nothing else, whatever it tries."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast.model.plan import Agent, Plan
from holdfast.testing.model_server import ScriptedModel
from holdfast.testing.script import Say

PROGRAM = r"""
import http.client, json, os, socket, sys, urllib.request

def tried(act):
    try:
        return act()
    except Exception as error:
        return type(error).__name__

def model():
    url, key = os.environ["HOLDFAST_MODEL_URL"], os.environ["HOLDFAST_MODEL_KEY"]
    body = json.dumps({"model": "scripted", "messages": [{"role": "user", "content": "hi"}]}).encode()
    headers = {"authorization": "Bearer " + key, "content-type": "application/json"}
    request = urllib.request.Request(url + "/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]

def through(method, target):
    proxy = http.client.HTTPConnection(os.environ["HOLDFAST_MODEL_URL"].removeprefix("http://"), timeout=20)
    key = os.environ["HOLDFAST_MODEL_KEY"]
    proxy.request(method, target, headers={"host": "example.com", "authorization": "Bearer " + key})
    return proxy.getresponse().status

host, port = sys.argv[1].removeprefix("http://").split(":")
found = {
    "model": tried(model),
    "the model's own port": tried(lambda: str(socket.create_connection((host, int(port)), 3))),
    "an address": tried(lambda: str(socket.create_connection(("192.0.2.1", 80), 3))),
    "a name": tried(lambda: str(socket.getaddrinfo("example.com", 80))),
    "udp": tried(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53))),
    "a tunnel": tried(lambda: through("CONNECT", "example.com:443")),
    "another host through the proxy": tried(lambda: through("GET", "http://example.com/")),
    "another path": tried(lambda: through("POST", "/v1/files")),
    "environment": dict(os.environ),
}
json.dump(found, open("found.json", "w"))
"""


def test_an_agent_reaches_its_model_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of the user's, with network = "proxy": no other way leads out, and no key but a throw-away is seen."""
    workspace, program, key = tmp_path / "workspace", tmp_path / "agent.py", "real-0123456789abcdef"
    workspace.mkdir()
    program.write_text(PROGRAM, encoding="utf-8")
    monkeypatch.setenv("REACH_KEY", key)
    with ScriptedModel(Say("hello"), keys=(key,)) as model:
        folder = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast"
        folder.mkdir(parents=True, mode=0o700)
        (folder / "config.toml").write_text(
            f"""
[providers.scripted]
url = "{model.url}"
api = ["openai"]
key_env = "REACH_KEY"
[agents.reach]
provider = "scripted"
network = "proxy"
command = ["{os.path.realpath(sys.executable)}", "-I", "{program}", "{model.url}"]
""",
            encoding="utf-8",
        )
        holdfast.init(str(workspace))
        with holdfast.open(str(workspace)) as hf:
            simulated = hf.simulate(Plan("reach", (Agent("reach", "Look around.", attempts=1),)))
            hf.execute(simulated, approved_by="tester")
        found = json.loads((workspace / "found.json").read_text())
        asked = [seen.path for seen in model.seen]
    assert found["model"] == "hello"
    assert found["the model's own port"] == "ConnectionRefusedError"
    assert found["an address"] == "OSError"
    assert found["a name"] == "gaierror"
    assert found["udp"] == "OSError"
    assert found["a tunnel"] == 403
    assert found["another host through the proxy"] >= 400
    assert found["another path"] >= 400
    assert key not in json.dumps(found)
    assert found["environment"]["HOLDFAST_MODEL_KEY"] != key
    assert asked == ["/v1/chat/completions"]
