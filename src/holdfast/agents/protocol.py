"""The one protocol every agent follows, and the bench it works on.

    agent.validate()      what is wrong with its configuration, in sentences; nothing is started
    agent.health()        is it there, which version, can it be used, and why not
    agent.capabilities    what it can do
    agent.work(request, bench)   do it, in the sandbox that the bench is; returns whatever happens to the program

Invariants
  A1  An agent starts programs only through its bench: sandboxed, in the shadow, with the bench's environment.
  A2  `work` returns a Result for everything a program can do, crashes included. It raises only for what is ours:
      SandboxUnavailable, InvalidInput (the program cannot be started), LimitReached, Interrupted. Anything else that
      it raises, or returns, is told and recorded as a failure of the agent.
  A3  An agent sees no real key. All it gets to reach a model is `bench.model`: an address inside, a throw-away key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from holdfast.model.agent import Api, Capability, Happening, Request, Result, Usage
from holdfast.sandbox.confined import Confined

Watcher = Callable[[Happening], None]
# Given what is to be done and the directory to do it in: True when the person says that it is done.
Person = Callable[[str, str], bool]
T = TypeVar("T")


class Health(NamedTuple):
    """`usable` is false with a reason and what to do about it."""

    installed: bool
    usable: bool
    version: str = ""
    why_not: str = ""
    hint: str = ""
    # How it would be talked to, where that is over ACP, and by which other program, with its version.
    over: str = ""


class ModelAccess(NamedTuple):
    """How a program inside reaches its model: `url` is our proxy on the sandbox's own loopback, `key` a throw-away."""

    url: str
    key: str
    model: str


class Start(NamedTuple):
    """How a program is started: everything it needs and nothing more.

    `files` are written below its own HOME before it starts (path relative to HOME, text).
    `readable` are absolute paths of the host it must see: its installation.
    `session`: over ACP, what else it is told when a session is opened or loaded.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    files: tuple[tuple[str, str], ...] = ()
    readable: tuple[str, ...] = ()
    session: Mapping[str, object] = {}


class Bench(Protocol):
    """Where an agent works: a sandboxed shadow with a HOME of its own that lives as long as the task.

    `path` is the shadow inside the sandbox, and the working directory. `home` is HOME inside.
    """

    path: str
    home: str
    model: ModelAccess | None

    def run(self, start: Start, *, stdin: bytes = b"", on_line: Callable[[bytes], None] | None = None) -> Confined:
        """To the end or to a limit; standard output and error together, a line at a time to `on_line`."""
        ...

    def converse(self, start: Start, talk: Callable[[int, int], T]) -> tuple[T, Confined]:
        """Run it with `talk(reading, writing)` at the other end of its standard output and input.

        `talk` runs in this thread's stead while the program lives; when it returns, the program is ended (input
        closed, a moment to go, then killed). When the program ends first, `reading` is at its end.
        Standard error is in `Confined.finished.output`.
        """
        ...

    def read_home(self, path: str, most: int = 1 << 20) -> bytes | None:
        """A file the program left below its HOME, links not followed; None when there is none."""
        ...

    def wait_for_person(self, instructions: str) -> bool:
        """Tell a person where to work and what to do, and wait; False when they give up, or nobody is there."""
        ...

    def see(self, happening: Happening) -> None:
        """Tell whoever watches, and the transcript."""
        ...

    def spent(self) -> Usage:
        """What the proxy has counted for this task so far."""
        ...


class Agent(Protocol):
    name: str
    capabilities: frozenset[Capability]
    # The wire it asks its model on; None needs no model of ours.
    api: Api | None

    def validate(self) -> tuple[str, ...]: ...

    def health(self) -> Health: ...

    def work(self, request: Request, bench: Bench) -> Result: ...
