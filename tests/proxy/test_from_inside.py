"""The whole way: a program in the sandbox, the forwarder on its loopback, the proxy, a scripted model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.model.agent import APIS, Usage
from holdfast.proxy.budget import Spending
from holdfast.proxy.server import ModelProxy
from holdfast.proxy.upstream import Price, Secret, Upstream
from holdfast.testing.model_server import ScriptedModel
from holdfast.testing.script import Say
from proxy.answers import CASES, Case
from proxy.asking import KEY, TOKEN, asking, private_place, proxied
from proxy.provider import Reply, Seen, providing
from sandbox.cell import PLAIN, Cell, said

PORT = 4000
# Asks as a program inside would: plain HTTP to its own loopback.
ASK = f"""
import http.client, json, sys
for path, body in json.loads(sys.argv[1]):
    c = http.client.HTTPConnection("127.0.0.1", {PORT}, timeout=15)
    c.request("POST", path, json.dumps(body), {{"authorization": "Bearer " + sys.argv[2]}})
    r = c.getresponse()
    print(r.status, r.read().decode().replace("\\n", " "))
"""


@pytest.fixture
def cell(public: Path) -> Cell:
    return Cell(public / "cell", root=os.geteuid() == 0)


def test_a_program_inside_reaches_its_model_and_nothing_more(cell: Cell) -> None:
    """Through the forwarder each wire answers; a wrong token and another endpoint do not, and the key stays out."""
    questions = [case.asking(stream=True) for case in CASES] + [("/v1/files", {})]

    def answer(seen: Seen) -> Reply:
        plain = seen.path.partition("?")[0]
        fitting = [case for case in CASES if plain == case.asking(stream=True)[0].partition("?")[0]]
        return fitting[0].reply(stream=True)

    with providing(answer) as provider, proxied(provider.url) as (proxy, client):
        profile = PLAIN._replace(network="proxy", proxy_socket=client._path, forward_port=PORT)
        lines = said(cell.python(ASK, json.dumps(questions), TOKEN, profile=profile)).splitlines()
        assert [line.split(" ")[0] for line in lines] == ["200"] * 4 + ["403"]
        assert [seen.header(case.key_header) for case, seen in zip(CASES, provider.seen, strict=True)] == [
            f"Bearer {KEY}", f"Bearer {KEY}", KEY, KEY,
        ]  # fmt: skip
        assert proxy.usage.requests == 4
        refused = said(cell.python(ASK, json.dumps(questions[:1]), "wrong-token-0123456789", profile=profile))
        assert refused.startswith("401 ")
        assert KEY not in "".join(lines) + refused


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.api)
@pytest.mark.parametrize("stream", [False, True])
def test_the_count_is_the_models_own(case: Case, stream: bool) -> None:
    """What the scripted model says it was paid for is what the proxy counts, on every wire."""
    lines: list[Mapping[str, object]] = []
    with ScriptedModel(Say("Done.")) as model, private_place() as path:
        upstream = Upstream(model.url, APIS, Secret(model.key), (Price("", 1_000_000, 1_000_000),))
        with (
            ModelProxy(path, upstream, TOKEN, Spending(tokens=10**6), transcript=lines.append) as proxy,
            asking(path) as client,
        ):
            where, body = case.asking(stream=stream)
            assert client.ask(where, body).status == 200
            counted = proxy.usage
            assert not proxy.estimated
        assert counted._replace(micro_usd=0) == model.usage._replace(micro_usd=0) != Usage()
    assert "Done." in str(lines[0]["response"])
