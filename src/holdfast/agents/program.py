"""Agents that are programs with a command line: what each of their files has to say.

A file of an agent holds one Program: how it is found, started in both transports, and how its output is read.
`programs.py` makes an Agent of it.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from holdfast.agents.protocol import ModelAccess, Start
from holdfast.model.agent import Api, Capability, Claim, Request


class Found(NamedTuple):
    """An installed program: how to call it, its version, and what of the host must be shown for it to run."""

    argv: tuple[str, ...]
    version: str
    readable: tuple[str, ...]
    # What speaks ACP for it, where that is another program: its name and version.
    adapter: str = ""


class Missing(NamedTuple):
    """Why it cannot be used here, and what to do about it."""

    why: str
    hint: str


class Heard(NamedTuple):
    """What the output of a headless run says; why a model did not answer only where the program tells."""

    claim: Claim
    unauthorized: bool = False
    model_error: bool = False


class Program(Protocol):
    """One agent program. Everything here is pure but `find`."""

    name: str
    capabilities: frozenset[Capability]
    api: Api

    def find(self, path: str) -> Found | Missing:
        """Look on this PATH (the user's), follow links, ask nothing of the network; starts at most `--version`."""
        ...

    def acp(self, found: Found, request: Request, model: ModelAccess) -> Start | None:
        """How it is started as an ACP agent; None where it does not speak ACP, or its adapter is not installed."""
        ...

    def headless(self, found: Found, request: Request, model: ModelAccess, prompt: str) -> Start: ...

    def heard(self, output: bytes, exit_code: int | None) -> Heard: ...
