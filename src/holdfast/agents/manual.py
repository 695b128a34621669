"""A person as an agent: told what is to be done, waited for, and captured like anybody else.

They work in a copy of the workspace, with their own editor and their own rights; what they did there takes the same
road as an agent's work: capture, checks, gates. Their word that it is done is a claim.
"""

from __future__ import annotations

import time

from holdfast.agents.protocol import Bench, Health
from holdfast.model.agent import Api, Capability, Claim, Request, Result
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.path import printable


class Manual:
    capabilities: frozenset[Capability] = frozenset(("edit", "shell", "person", "offline"))
    api: Api | None = None

    def __init__(self, own: AgentSettings) -> None:
        self.name = own.name
        self._transport = own.transport

    def validate(self) -> tuple[str, ...]:
        """A person is spoken to at the terminal; a setting that says otherwise means something else."""
        return (f"{self.name} is a person and has no transport {self._transport}",) if self._transport else ()

    def health(self) -> Health:
        wrong = self.validate()
        return Health(True, not wrong, why_not="; ".join(wrong))

    def work(self, request: Request, bench: Bench) -> Result:
        started = time.monotonic()
        done = bench.wait_for_person(instructions(request))
        took_ms = int((time.monotonic() - started) * 1000)
        claim = Claim(words="done" if done else "", success=done)
        if done:
            return Result(self.name, "manual", "finished", claim, duration_ms=took_ms)
        why = "nobody was there to do it, or they gave up"
        return Result(self.name, "manual", "failed", claim, why, duration_ms=took_ms)


def instructions(request: Request) -> str:
    """For a person; what comes from files and programs is escaped, so that it cannot pose as ours."""
    parts = [f"Task: {printable(request.task)}"]
    if request.files:
        parts.append("Worth a look: " + ", ".join(map(printable, request.files)))
    if request.expected:
        parts.append("Must be there afterwards: " + ", ".join(map(printable, request.expected)))
    if request.evidence:
        parts.append("What was found last time:")
        parts += [f"  {printable(line)}" for line in request.evidence.splitlines()]
    return "\n".join(parts)
