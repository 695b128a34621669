"""What agents said stays as long as the ledger names it, and the chain of custody shows who worked."""

from __future__ import annotations

from pathlib import Path

from blake3 import blake3

from guarded import guard, put
from holdfast.engine.replay import replay_all
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


def test_a_decision_names_the_instructions_an_agent_was_given(tmp_path: Path) -> None:
    """The decision on an agent's work has the digest of each instruction file, and replays to the same; a person's
    change was made under none."""
    told = {"AGENTS.md": b"Be kind.\n", "sub/CLAUDE.md": b"Use tabs.\n", "docs/agents.md": b"none\n"}
    ground = guard(tmp_path / "workspace", {"a.txt": b"a\n", **told})
    agent = ScriptedAgent(WriteFile("b.txt", "b\n"))
    plan = Plan("x", (Agent(agent.name, "Create b.txt"),))
    decision = ground.hf.evaluate(ground.hf.simulate(plan, agents={agent.name: agent}))
    assert decision.instructions == tuple(
        (name, blake3(told[name]).hexdigest()) for name in ("AGENTS.md", "sub/CLAUDE.md")
    )
    assert {row.verdict for row in replay_all(ground.hf.site, ground.hf.ledger)} == {"same"}
    own = ground.hf.evaluate(ground.hf.simulate(Plan("y", (put("c.txt", b"c\n"),))))
    assert own.instructions == ()


def test_instructions_behind_a_link_are_named(tmp_path: Path) -> None:
    """A link of such a name counts with the content that it leads to; one that leads nowhere in the tree does not."""
    ground = guard(tmp_path / "workspace", {"docs/told/agents.txt": b"Be kind.\n", "sub/x": b""})
    for name, target in (("CLAUDE.md", "AGENTS.md"), ("AGENTS.md", "docs/told/agents.txt"),
                         ("sub/GEMINI.md", "../docs/told/agents.txt"), ("sub/QWEN.md", "/etc/hostname"),
                         ("docs/AGENTS.md", "../docs/AGENTS.md"), ("docs/CLAUDE.md", "told"),
                         ("sub/CLAUDE.md", "../nowhere/x")):  # fmt: skip
        (ground.path / name).symlink_to(target)
    agent = ScriptedAgent(WriteFile("b.txt", "b\n"))
    plan = Plan("x", (Agent(agent.name, "Create b.txt"),))
    decision = ground.hf.evaluate(ground.hf.simulate(plan, agents={agent.name: agent}))
    told = blake3(b"Be kind.\n").hexdigest()
    assert decision.instructions == (("AGENTS.md", told), ("CLAUDE.md", told), ("sub/GEMINI.md", told))


def test_very_many_instruction_files_are_named_in_few_rows(tmp_path: Path) -> None:
    """The nearest hundred are named; one row stands for the others, and changes when one of them does."""
    files = {f"d{n:03}/AGENTS.md": b"x\n" for n in range(120)}
    ground = guard(tmp_path / "workspace", {"AGENTS.md": b"top\n", **files})
    found = []
    for content in ("b\n", "c\n"):
        agent = ScriptedAgent(WriteFile("b.txt", content))
        plan = Plan("x", (Agent(agent.name, "Create b.txt"),))
        found.append(ground.hf.evaluate(ground.hf.simulate(plan, agents={agent.name: agent})).instructions)
        (ground.path / "d119" / "AGENTS.md").write_bytes(b"y\n")
    first, second = found
    assert len(first) == 101
    assert [row[0] for row in first[:2]] == ["", "AGENTS.md"]
    assert first[1:] == second[1:]
    assert first[0] != second[0]
