"""The smallest bench there can be: a real shadow, the real sandbox, and no model.

with working(site, limits) as (bench, shadow):
    agent.work(Request("..."), bench)
    shadow.capture()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TypeVar

import pytest

from holdfast.agents.protocol import Agent, ModelAccess, Start
from holdfast.errors import SandboxUnavailable
from holdfast.model.agent import Happening, Request, Usage
from holdfast.sandbox.confined import Confined, run_confined
from holdfast.sandbox.process import Command
from holdfast.sandbox.profile import Limits, Profile
from holdfast.sandbox.shown import HOME
from holdfast.sandbox.view import View
from holdfast.testing.conformance import Attempted, Landable, _content
from holdfast.testing.ground import TASK, Ground
from holdfast.testing.hostile import HostileProgram
from holdfast.workspace.shadow import Shadow, open_shadow
from holdfast.workspace.site import Site

T = TypeVar("T")
LIMITS = Limits(time_ms=60_000, output_bytes=4 << 20, memory_bytes=1 << 30, processes=50, disk_bytes=256 << 20)


class SmallBench:
    """A Bench without a model; what it is told to show is in `seen`."""

    home = HOME
    model: ModelAccess | None = None

    def __init__(self, view: View, limits: Limits = LIMITS) -> None:
        self.path = view.path
        self.seen: list[Happening] = []
        self._view, self._limits = view, limits

    def run(self, start: Start, *, stdin: bytes = b"", on_line: Callable[[bytes], None] | None = None) -> Confined:
        rest = b""

        def lines(data: bytes) -> None:
            nonlocal rest
            *whole, rest = (rest + data).split(b"\n")
            for line in whole:
                if on_line is not None:
                    on_line(line)

        command = Command(
            start.argv, self.path, start.env, self._limits.time_ms, self._limits.output_bytes, stdin=stdin
        )
        try:
            return run_confined(
                command, self._view, Profile(readable=start.readable, limits=self._limits), on_output=lines
            )
        except SandboxUnavailable as error:
            pytest.skip(f"no sandbox here: {error}")

    def converse(self, start: Start, talk: Callable[[int, int], T]) -> NoReturn:
        raise AssertionError("no agent of ours converses")

    def read_home(self, path: str, most: int = 1 << 20) -> bytes | None:
        raise AssertionError("no agent of ours leaves anything in its home")

    def see(self, happening: Happening) -> None:
        self.seen.append(happening)

    def spent(self) -> Usage:
        return Usage()


@contextmanager
def working(site: Site, limits: Limits = LIMITS, hidden: tuple[str, ...] = ()) -> Iterator[tuple[SmallBench, Shadow]]:
    with open_shadow(site, hidden=hidden) as shadow:
        yield SmallBench(shadow.view, limits), shadow


def by_capture(ground: Ground, agent: Agent, program: HostileProgram) -> Attempted:
    """For `conformance`: one attempt, captured, and nothing more."""
    limits = LIMITS._replace(time_ms=program.within_ms)
    with Site(ground.workspace) as site, working(site, limits, (".env",)) as (bench, shadow):
        result = agent.work(Request(TASK), bench)
        captured = shadow.capture()
        changes = tuple(
            Landable(change.path, change.post.mode, _content(captured.sources.get(change.path)))
            for change in captured.change_set.changes
            if change.post is not None
        )
        remarks = tuple(map(str, (*captured.suspicious, *captured.refused)))
        if result.limit or not changes:
            refused = "limit_reached" if result.limit else "agent_failed"
            return Attempted(refused, bool(result.limit), remarks=remarks, shown=result.claim.words)
        return Attempted("", False, changes, remarks, result.claim.words)
