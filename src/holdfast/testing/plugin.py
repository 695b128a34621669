"""Fixtures for pytest. Ask for them: `pytest_plugins = ["holdfast.testing.plugin"]` in your conftest.py.

No entry point loads them by itself: it would be loaded by every test run in an environment that has Holdfast, also by
those that run in a sandbox which does not show where Holdfast comes from.

def test_it(scripted_model, scripted_agent, hostile_agents): ...

scripted_model    a function: steps in, a model that listens until the test ends
scripted_agent    a function: acts in, an agent; `mock_adapter` is another name for it
temp_repo         the path of a new git repository with one commit, guarded by Holdfast, with keys and state of its own
hostile_agents    every hostile program as an agent
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
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


@pytest.fixture
def mock_adapter(scripted_agent: Callable[..., ScriptedAgent]) -> Callable[..., ScriptedAgent]:
    """The scripted agent, under the name that other tools use."""
    return scripted_agent


@pytest.fixture
def temp_repo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A git repository with a README and one commit; `holdfast.open(temp_repo)` works at once.

    HOME and the XDG directories lead into `tmp_path`, so neither the user's git settings nor keys are used.
    """
    import subprocess

    from holdfast.wiring import init

    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        folder = tmp_path / "home" / name.lower()
        folder.mkdir(parents=True)
        monkeypatch.setenv(name, str(folder))
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "README.md").write_text("# A repository for a test\n")
    identity = ("-c", "user.name=Test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    for words in (("init", "-q", "-b", "main"), ("add", "README.md"), (*identity, "commit", "-q", "-m", "Begin")):
        subprocess.run(("git", *words), cwd=repo, check=True)
    init(str(repo))
    return repo


@pytest.fixture(scope="session")
def hostile_agents() -> tuple[HostileAgent, ...]:
    """One for each program, named after it."""
    from holdfast.testing.hostile import HOSTILE, HostileAgent

    return tuple(HostileAgent(program, name=program.name) for program in HOSTILE)
