"""The fakes we ship: users test with them, and so do we.

    faults         a kernel that fails, kills or forgets at exactly the place you name
    script         what a scripted model or agent is to do, step by step
    model_server   a model that follows a script and speaks the wires of real ones
    agents         an agent that follows a script
    schedule       an agent that goes wrong on schedule, for whole runs
    hostile        agents that cheat, and what must hold all the same
    engine         a durable engine that runs nothing: the test says how everything ends
    conformance    all of those against your own adapter, one verdict each
    plugin         the pytest fixtures

Each is loaded when it is asked for: who wants a full disk does not pay for a web server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.testing.agents import ScriptedAgent
    from holdfast.testing.engine import HandEngine
    from holdfast.testing.faults import (
        ALL,
        CHANGES,
        SYNCS,
        At,
        Drop,
        Fail,
        Fault,
        FaultyCalls,
        Kill,
        KillAt,
        ShortWrite,
        When,
    )
    from holdfast.testing.hostile import HOSTILE, HostileAgent, HostileProgram
    from holdfast.testing.model_server import ScriptedModel
    from holdfast.testing.schedule import ScheduledAgent

__all__ = [
    "ALL",
    "CHANGES",
    "HOSTILE",
    "SYNCS",
    "At",
    "Drop",
    "Fail",
    "Fault",
    "FaultyCalls",
    "HandEngine",
    "HostileAgent",
    "HostileProgram",
    "Kill",
    "KillAt",
    "ScheduledAgent",
    "ScriptedAgent",
    "ScriptedModel",
    "ShortWrite",
    "When",
]


def __getattr__(name: str) -> object:
    from types import ModuleType

    room: ModuleType
    if name == "ScriptedAgent":
        from holdfast.testing import agents as room
    elif name in ("HOSTILE", "HostileAgent", "HostileProgram"):
        from holdfast.testing import hostile as room
    elif name == "HandEngine":
        from holdfast.testing import engine as room
    elif name == "ScriptedModel":
        from holdfast.testing import model_server as room
    elif name == "ScheduledAgent":
        from holdfast.testing import schedule as room
    elif name in __all__:
        from holdfast.testing import faults as room
    else:
        raise AttributeError(f"module 'holdfast.testing' has no attribute {name!r}")
    return getattr(room, name)
