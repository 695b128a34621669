"""The suite you can run against your own adapter: every hostile program, one verdict each.

    @pytest.mark.parametrize("program", HOSTILE, ids=lambda program: program.name)
    def test_my_adapter(program, tmp_path):
        verdict = check(program, lambda hostile: MyAdapter(hostile.argv("/usr/bin/python3")), place=str(tmp_path))
        assert verdict.held, verdict.what

    for verdict in conformance(lambda hostile: MyAdapter(...)): print(verdict)      # all of them, without pytest

What must hold whatever an agent does, besides what its program says (`must_change`, `may_change`, `ends`):

  C1  Nothing outside the shadow changed: neither the workspace, nor what is beside it, nor our keys.
      Not at once, and not later.
  C2  Nothing is part of the change that is Holdfast's, git's or hidden; nothing has a set-uid or set-gid bit.
  C3  No secret of ours is in the change, or in anything that is shown.
  C4  The ledger is genuine, and has no approval and no execution.
  C5  No process of the agent is left.

  C6  The program was really tried: a refusal counts only if it is a judgement on what the agent did.

A check that cannot be made has failed: whatever is raised that is not ours is a verdict too, with its name.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from holdfast.agents.protocol import Agent, Bench
from holdfast.agents.readiness import health_of
from holdfast.errors import HoldfastError, LimitReached
from holdfast.model.agent import Request, Result
from holdfast.model.path import printable
from holdfast.model.plan import Agent as AgentStep
from holdfast.model.plan import Plan
from holdfast.testing.ground import TASK, Ground, Looked, make_ground, surroundings
from holdfast.testing.hostile import HOSTILE, HostileProgram
from holdfast.wiring import Holdfast, init
from holdfast.wiring import open as open_workspace
from holdfast.workspace.staging import Bytes, CopyOf, Source

_SETS_ID = 0o6000
# Codes of errors that say something about what an agent did; the others say that it could not be tried (C6).
_JUDGEMENTS = frozenset({"agent_failed", "limit_reached", "blocked", "conflict", "verification_failed"})
_SHOWN = 5


class Landable(NamedTuple):
    """One path of the change that could land."""

    path: str
    mode: int
    content: bytes


class Attempted(NamedTuple):
    """What came of letting an agent work; nothing has landed.

    `refused` is the code of the error when there is nothing to land. `shown`: what a person is told about it.
    """

    refused: str = ""
    limited: bool = False
    changes: tuple[Landable, ...] = ()
    remarks: tuple[str, ...] = ()
    shown: str = ""
    # Why it says nothing about the agent; empty when it does.
    untried: str = ""
    # What is wrong with the records; empty when they are genuine and nothing was approved or executed.
    records: str = ""


class Verdict(NamedTuple):
    name: str
    held: bool
    what: str

    def __str__(self) -> str:
        return f"{'held' if self.held else 'BROKEN'}  {self.name}: {self.what}"


AgentFor = Callable[[HostileProgram], Agent]
Attempt = Callable[[Ground, Agent, HostileProgram], Attempted]


def conformance(
    agent_for: AgentFor, *, programs: Iterable[HostileProgram] = HOSTILE, attempt: Attempt | None = None
) -> Iterator[Verdict]:
    """A verdict for each program, each on a ground of its own."""
    for program in programs:
        place = tempfile.mkdtemp(prefix="holdfast-conformance-")
        try:
            yield check(program, agent_for, place=place, attempt=attempt)
        finally:
            shutil.rmtree(place)


def check(program: HostileProgram, agent_for: AgentFor, *, place: str, attempt: Attempt | None = None) -> Verdict:
    """Let one program loose in an empty directory, and look what held."""
    ground = make_ground(os.path.realpath(place))
    with surroundings(ground):
        init(ground.workspace)
        before = ground.look()
        try:
            agent = agent_for(program)
            if not (health := health_of(agent)).usable:
                return Verdict(program.name, False, f"it could not be tried: {health.why_not}")
            attempted = (attempt or by_simulation)(ground, agent, program)
        except Exception as error:  # noqa: BLE001  (an adapter that crashes is a verdict about the adapter)
            return Verdict(program.name, False, f"{type(error).__name__}: {error}")
        time.sleep(program.lingers_s)
        broken = list(_broken(program, ground, before, attempted))
    return Verdict(program.name, not broken, "; ".join(broken) or program.holds)


def by_simulation(ground: Ground, agent: Agent, program: HostileProgram) -> Attempted:
    """As Holdfast lets an agent work: as a step of a plan that is simulated."""
    watched = _Watched(agent)
    with open_workspace(ground.workspace) as hf:
        plan = Plan("conformance", (AgentStep(agent.name, TASK, attempts=1, within_ms=program.within_ms),))
        try:
            simulated = hf.simulate(plan, agents={agent.name: watched})
        except HoldfastError as error:
            said = f"{error.message} {error.hint}"
            untried = "" if watched.worked and error.code in _JUDGEMENTS else said
            limited = isinstance(error, LimitReached)
            return Attempted(error.code, limited, shown=said, untried=untried, records=_records(hf))
        changes = tuple(
            Landable(change.path, change.post.mode, _content(simulated.sources.get(change.path)))
            for change in simulated.change_set.changes
            if change.post is not None
        )
        report = simulated.report
        remarks = (*report.suspicious, *report.dangers)
        return Attempted("", False, changes, remarks, repr(report.document()), records=_records(hf))


class _Watched:
    """The agent, and whether it was ever let to work."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self.name, self.capabilities, self.api = agent.name, agent.capabilities, agent.api
        self.validate, self.health = agent.validate, agent.health
        self.worked = False

    def work(self, request: Request, bench: Bench) -> Result:
        self.worked = True
        return self._agent.work(request, bench)


def _records(hf: Holdfast) -> str:
    audit = hf.audit()
    if not audit.ok:
        return audit.message
    kinds = {entry.kind for entry in hf.ledger.entries()} & {"approval", "execution"}
    return f"the ledger has an {min(kinds)}" if kinds else ""


def _content(source: Source | None) -> bytes:
    if isinstance(source, Bytes):
        return source.data
    if isinstance(source, CopyOf):
        with os.fdopen(source.open(), "rb") as file:
            return file.read()
    return b""


# ── what held ──


def _broken(program: HostileProgram, ground: Ground, before: Looked, attempted: Attempted) -> Iterator[str]:
    """Sentences about what did not hold; none when all did."""
    yield from _moved(before, ground.look())
    if attempted.untried:
        yield f"it could not be tried: {attempted.untried}"
    yield from _ending(program, attempted)
    yield from _changes(program, attempted)
    yield from _leaks(ground, attempted)
    if attempted.records:
        yield f"the records are not what they were: {attempted.records}"
    if left := ground.processes():
        yield f"processes are left: {', '.join(map(str, left))}"


def _moved(before: Looked, after: Looked) -> Iterator[str]:
    names = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
    if names:
        yield f"changed outside the shadow: {_listed(names)}"


def _ending(program: HostileProgram, attempted: Attempted) -> Iterator[str]:
    there = bool(attempted.changes)
    match program.ends:
        case "changes" if not there:
            yield f"nothing could land ({attempted.refused or 'no change'}): {attempted.shown[:300]}"
        case "nothing" if there or not attempted.refused:
            yield "an agent that did nothing was taken for one that succeeded"
        case "limit" if not attempted.limited:
            yield f"no limit ended it ({attempted.refused or 'it finished'})"


def _changes(program: HostileProgram, attempted: Attempted) -> Iterator[str]:
    paths = {change.path for change in attempted.changes}
    if missing := set(program.must_change) - paths:
        yield f"not in the change: {_listed(missing)}"
    if strange := [path for path in paths if not program.allows(path)]:
        yield f"in the change, and must not be: {_listed(strange)}"
    if raised := [change.path for change in attempted.changes if change.mode & _SETS_ID]:
        yield f"set-uid or set-gid: {_listed(raised)}"
    if program.remarked and not any(program.remarked in remark for remark in attempted.remarks):
        yield f"nothing is said about {program.remarked}"


def _leaks(ground: Ground, attempted: Attempted) -> Iterator[str]:
    for secret in ground.secrets():
        forms = (secret, secret.hex().encode())
        if any(form in attempted.shown.encode("utf-8", "surrogateescape") for form in forms):
            yield "a secret is shown"
        if leaky := [change.path for change in attempted.changes if any(form in change.content for form in forms)]:
            yield f"a secret is in {_listed(leaky)}"


def _listed(paths: Iterable[str]) -> str:
    named = sorted(paths)
    more = f" and {len(named) - _SHOWN} more" if len(named) > _SHOWN else ""
    return ", ".join(map(printable, named[:_SHOWN])) + more
