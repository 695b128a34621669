"""Agents that are programs: over ACP where they speak it, with their headless command line otherwise.

    transport not set   ACP if the program, or an adapter for it that is installed, speaks it; headless if not
    "acp", "headless"   that one, or a reason why not

Both end in the same captured change set; ACP shows more while the work goes on, and asks before it does things.
"""

from __future__ import annotations

import os

from holdfast.agents.command import result_of
from holdfast.agents.program import Found, Missing, Program
from holdfast.agents.prompt import prompt
from holdfast.agents.protocol import Bench, Health, ModelAccess, Start
from holdfast.errors import InvalidInput
from holdfast.model.agent import Api, Capability, Request, Result, Said
from holdfast.model.agent_settings import AgentSettings

_NOWHERE = ModelAccess("http://127.0.0.1:1", "none", "")


class ProgramAgent:
    def __init__(self, program: Program, own: AgentSettings) -> None:
        self.name = program.name
        self.capabilities: frozenset[Capability] = program.capabilities
        self.api: Api | None = program.api
        self._program, self._own = program, own
        self._looked: Found | Missing | None = None

    def validate(self) -> tuple[str, ...]:
        found = self._found()
        if isinstance(found, Missing):
            return (found.why,)
        if self._own.transport == "acp":
            why = self._why_not_acp(found)
            return (why,) if why else ()
        if self._own.transport not in (None, "headless"):
            return (f"{self.name} has no transport {self._own.transport}: it is acp or headless",)
        return ()

    def health(self) -> Health:
        found = self._found()
        if isinstance(found, Missing):
            return Health(False, False, why_not=found.why, hint=found.hint)
        wrong = self.validate()
        over = f"ACP by {found.adapter}" if found.adapter else "ACP"
        over = over if self.transport() == "acp" else ""
        return Health(True, not wrong, found.version, "; ".join(wrong), over=over)

    def transport(self) -> str:
        """The one that would be used."""
        found = self._found()
        if isinstance(found, Missing) or self._own.transport == "headless":
            return "headless"
        return "headless" if self._why_not_acp(found) else "acp"

    def work(self, request: Request, bench: Bench) -> Result:
        found = self._found()
        if isinstance(found, Missing):
            raise InvalidInput(found.why, hint=found.hint)
        if bench.model is None:
            raise InvalidInput(f"{self.name} needs a model, and none can be reached")
        if self.transport() == "acp":
            start = self._program.acp(found, request, bench.model)
            if start is not None:
                from holdfast.agents.acp import converse

                return converse(self.name, start, request, bench)
        return self._headless(self._program.headless(found, request, bench.model, prompt(request)), bench)

    def _headless(self, start: Start, bench: Bench) -> Result:
        def heard(line: bytes) -> None:
            bench.see(Said(line.decode("utf-8", "replace")))

        done = bench.run(start, on_line=heard)
        said = self._program.heard(done.finished.output, done.finished.exit_code)
        result = result_of(self.name, "headless", done, said.claim)
        if result.ending in ("limit", "killed"):
            return result
        if said.unauthorized:
            return result._replace(ending="unauthorized", detail="the model refused the key")
        if said.model_error:
            return result._replace(ending="model_error", detail=said.claim.error or "the model answered with an error")
        return result

    def _why_not_acp(self, found: Found) -> str:
        if self._program.acp(found, Request("x"), _NOWHERE) is None:
            return f"{self.name} has no ACP adapter installed"
        return ""

    def _found(self) -> Found | Missing:
        if self._looked is None:
            self._looked = self._program.find(os.environ.get("PATH", ""))
        return self._looked
