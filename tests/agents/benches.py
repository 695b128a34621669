"""A bench over a real shadow in the real sandbox, without a model, and small programs that speak ACP by hand.

with bench_at(tmp_path, {"a.txt": b"a"}) as site:
    result = converse("agent", site.speaking("begin(); say('hi'); stop()"), Request("do it"), site.bench)
    assert site.changed() == {}
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import pytest

from holdfast.agents.bench import SandboxBench
from holdfast.agents.protocol import Person, Start
from holdfast.errors import SandboxUnavailable
from holdfast.model.agent import Happening
from holdfast.sandbox.confined import bubblewrap
from holdfast.sandbox.profile import Limits, Profile
from holdfast.testing.agents import python
from holdfast.workspace.capture import Captured
from holdfast.workspace.shadow import Shadow, open_shadow
from shaded import changes, shaded

MINUTE_MS = 60_000
# What each program below begins with: JSON-RPC in a dozen lines, with nothing of ours or of anybody's in it.
SPEAKING = """
import json, os, sys, time

def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)

def raw(data):
    while data:
        data = data[os.write(1, data):]

def send(**message):
    raw((json.dumps({"jsonrpc": "2.0", **message}) + "\\n").encode())

def answer(result):
    asked = read()
    send(id=asked["id"], result=result)
    return asked

def refuse(code, message, data=None):
    send(id=read()["id"], error={"code": code, "message": message, "data": data})

def ask(method, **params):
    send(id=77, method=method, params=params)
    return read()

def update(kind, **fields):
    send(method="session/update", params={"sessionId": "s-1", "update": {"sessionUpdate": kind, **fields}})

def say(text):
    update("agent_message_chunk", content={"type": "text", "text": text})

def hello(**capabilities):
    return answer({"protocolVersion": 1, "agentCapabilities": capabilities})

def begin():
    global prompt
    hello()
    answer({"sessionId": "s-1"})
    prompt = read()

def stop(reason="end_turn", **more):
    send(id=prompt["id"], result={"stopReason": reason, **more})
"""


class AgentBench(NamedTuple):
    bench: SandboxBench
    shadow: Shadow
    seen: list[Happening]

    def speaking(self, source: str) -> Start:
        """A program that has the words above, and says this."""
        return python(self.bench, f"{SPEAKING}\n{source}")

    def captured(self) -> Captured:
        return self.shadow.capture()

    def changed(self) -> dict[str, str]:
        return changes(self.captured())


@contextmanager
def bench_at(
    tmp_path: Path,
    files: Mapping[str, bytes],
    *,
    within_ms: int = MINUTE_MS,
    output_bytes: int = 50_000_000,
    kind: Literal["auto", "copy"] = "auto",
    person: Person | None = None,
) -> Iterator[AgentBench]:
    """Skips where this host has no sandbox at all."""
    seen: list[Happening] = []
    try:
        bubblewrap()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox here: {error}")
    with shaded(tmp_path / "workspace", files) as site, open_shadow(site, kind) as shadow:
        profile = Profile(limits=Limits(time_ms=within_ms, output_bytes=output_bytes))
        bench = SandboxBench(
            shadow.view, shadow.new_home(), profile, within_ms=within_ms, watcher=seen.append, person=person
        )
        yield AgentBench(bench, shadow, seen)


def our_python(source: str, *, readable: tuple[str, ...] = ()) -> Start:
    """A program for the Python of these tests, with the packages that are installed for it."""
    return Start((sys.executable, "-c", source), readable=readable)
