"""Fixtures for pytest. Ask for them: `pytest_plugins = ["holdfast.testing.plugin"]` in your conftest.py.

No entry point loads them by itself: it would be loaded by every test run in an environment that has Holdfast, also by
those that run in a sandbox which does not show where Holdfast comes from.

def test_it(scripted_model, scripted_agent, hostile_agents): ...

scripted_model    a function: steps in, a model that listens until the test ends
scripted_agent    a function: acts in, an agent
hostile_agents    every hostile program as an agent
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

# What is not used is not imported.
if TYPE_CHECKING:
    from holdfast.testing.agents import ScriptedAgent
    from holdfast.testing.hostile import HostileAgent
    from holdfast.testing.model_server import ScriptedModel


@pytest.fixture
def scripted_model() -> Iterator[Callable[..., ScriptedModel]]:
    """Takes what ScriptedModel takes; the model listens already, and is gone after the test."""
    from holdfast.testing.model_server import ScriptedModel

    with ExitStack() as stack:
        yield lambda *parts, **options: stack.enter_context(ScriptedModel(*parts, **options))


@pytest.fixture
def scripted_agent() -> Callable[..., ScriptedAgent]:
    """Takes what ScriptedAgent takes."""
    from holdfast.testing.agents import ScriptedAgent

    return ScriptedAgent


@pytest.fixture(scope="session")
def hostile_agents() -> tuple[HostileAgent, ...]:
    """One for each program, named after it."""
    from holdfast.testing.hostile import HOSTILE, HostileAgent

    return tuple(HostileAgent(program, name=program.name) for program in HOSTILE)
