"""What agents said stays as long as the ledger names it, and the chain of custody shows who worked."""

from __future__ import annotations

from pathlib import Path

from guarded import guard
from holdfast.engine.tracing import trace
from holdfast.model.plan import Agent, Plan
from holdfast.store.blobs import Blobs
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import WriteFile


def test_gc_keeps_what_agents_said(tmp_path: Path) -> None:
    """Collecting garbage leaves every transcript that an entry of the ledger names."""
    ground = guard(tmp_path / "workspace", {"a.txt": b"a\n"})
    agent = ScriptedAgent(WriteFile("b.txt", "b\n"))
    ground.hf.simulate(Plan("x", (Agent(agent.name, "Create b.txt"),)), agents={agent.name: agent})
    (body,) = [entry.body for entry in ground.hf.ledger.entries() if entry.kind == "delegation"]
    (attempt,) = body["attempts"]  # type: ignore[misc]
    ground.hf.gc(keep_days=0)
    assert Blobs(ground.hf.site.state).get(str(attempt["transcript"])) != b""  # type: ignore[index,call-overload]


def test_a_trace_from_an_execution_shows_the_agent(tmp_path: Path) -> None:
    """The road of a change that an agent made begins with its work, from whichever end one looks."""
    ground = guard(tmp_path / "workspace", {"a.txt": b"a\n"})
    agent = ScriptedAgent(WriteFile("b.txt", "b\n"))
    plan = Plan("x", (Agent(agent.name, "Create b.txt"),))
    simulated = ground.hf.simulate(plan, agents={agent.name: agent})
    done = ground.hf.execute(simulated, approved_by="me")
    for id in (plan.id, simulated.report.id, done.id):
        kinds = [link.kind for link in trace(ground.hf.ledger, id)]
        assert (kinds[0], kinds[-1]) == ("delegation", "execution")
