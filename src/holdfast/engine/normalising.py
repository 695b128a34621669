"""Prose becomes tasks: an agent writes them down in a shadow, they are read strictly, and kept by what was asked.

    roadmap of prose ─prompt─▶ agent in a sandboxed shadow ─▶ one file ─from_answer─▶ Roadmap ─▶ roadmaps/prose/<key>

Any agent can do it: its model, its budget and its proxy are those of every other task, and nothing of it lands.

Invariants
  N1  The answer is refused unless it is exactly what the schema says (see `intake.roadmap.prose`).
  N2  The same text is asked about once: the answer is kept under the digest of text and schema. What is kept is read
      as strictly as what comes.
  N3  The file of prose is never ticked: where its tasks stand is in the side file only.
"""

from __future__ import annotations

from collections.abc import Mapping

from blake3 import blake3

from holdfast.agents.protocol import Agent, Watcher
from holdfast.engine.hiring import hire
from holdfast.engine.pipeline import Pipeline
from holdfast.engine.simulator import Simulated
from holdfast.errors import AgentFailed
from holdfast.intake.roadmap.prose import MAX_ANSWER, VERSION, from_answer, prompt
from holdfast.model.plan import Agent as AgentStep
from holdfast.model.plan import Plan
from holdfast.model.task import Roadmap
from holdfast.store.exports import read_file, replace_file
from holdfast.workspace.site import Site
from holdfast.workspace.staging import Bytes, CopyOf, source_pieces

FOLDER = "roadmaps/prose"
FILE = "holdfast-tasks.json"
_ASK = (
    f"Write your answer, which is one JSON document and nothing else, into the file {FILE}. Change no other file.\n\n"
)
_ATTEMPTS = 3
_WITHIN_MS = 600_000


def kept_roadmap(site: Site, source: bytes) -> Roadmap | None:
    """What an agent made of this text before; None where none was asked (N2)."""
    found = read_file(site.state, _path(source), MAX_ANSWER)
    return None if found is None else from_answer(found.decode("utf-8", "replace"), source)


def normalised(
    pipeline: Pipeline, source: bytes, agent: str, agents: Mapping[str, Agent], watcher: Watcher | None = None
) -> Roadmap:
    """The tasks in this text, asked for once."""
    kept = kept_roadmap(pipeline.site, source)
    if kept is not None:
        return kept
    step = AgentStep(agent, _ASK + prompt(source), (), (FILE,), _ATTEMPTS, _WITHIN_MS)
    plan = Plan("Read a roadmap of prose", (step,), unverified_because="nothing of it lands")
    simulated = pipeline.simulator.simulate(plan, "auto", hire(pipeline, agents, watcher))
    answer = written_file(pipeline.site, simulated, FILE, MAX_ANSWER)
    roadmap = from_answer(answer.decode("utf-8", "replace"), source)
    replace_file(pipeline.site.state, _path(source), answer)
    return roadmap


def written_file(site: Site, simulated: Simulated, path: str, most: int) -> bytes:
    """What an agent wrote into a file of its shadow: a little more than `most` bytes at the most."""
    source = simulated.sources.get(path)
    if not isinstance(source, (Bytes, CopyOf)):
        raise AgentFailed(f"{simulated.plan.agent} wrote no {path}", hint="Nothing was changed.")
    found = b""
    for piece in source_pieces(site.calls, source):
        found += piece
        if len(found) > most:
            break  # the caller decides what becomes of one that is too long
    return found


def _path(source: bytes) -> str:
    return f"{FOLDER}/{blake3(f'prose {VERSION} '.encode() + source).hexdigest()}.json"
