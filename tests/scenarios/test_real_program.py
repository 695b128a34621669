"""Every scenario with a real agent program, whose model follows a script and decides by what it is told.

The model mends only what the evidence in its prompt names; where that does not reach it, it errs in the same way again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.testing.conversation import text_of
from holdfast.testing.model_server import ScriptedModel
from real_bench import PATH, PROGRAMS
from scenarios.endings import after_the_undo, at_the_end
from scenarios.playing import NAMES, Stage, scenario

pytestmark = pytest.mark.agents

# The lightest of those that edit with tools.
PROGRAM = "goose"
_KEY_ENV = "SCENARIO_MODEL_KEY"


@pytest.mark.parametrize("name", NAMES)
def test_a_scenario_is_played_by_a_real_program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same endings as with a scripted agent, with all that stands between Holdfast and a model."""
    if not (PROGRAMS / PROGRAM).exists():
        pytest.skip(f"{PROGRAM} is not there; scripts/agent-programs installs it")
    played = scenario(name)
    with ScriptedModel(tasks=played.scripts()) as model:
        monkeypatch.setenv("PATH", PATH)
        monkeypatch.setenv(_KEY_ENV, model.key)
        _configure(model.url)
        stage = Stage(played, tmp_path / "workspace")
        run = stage.play(PROGRAM)
        at_the_end(stage, run, list(_given(model)))
    after_the_undo(stage)


def _given(model: ScriptedModel) -> Iterator[str]:
    """What the user says to the model at the beginning of each conversation: the task, with its evidence."""
    for seen in model.seen:
        if seen.kind == "step" and seen.number == 0:
            yield "\n".join(text_of(row["content"]) for row in seen.document["messages"] if row["role"] == "user")


def _configure(url: str) -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast"
    folder.mkdir(parents=True, mode=0o700)
    provider = f'[providers.scripted]\nurl = "{url}"\napi = ["openai"]\nkey_env = "{_KEY_ENV}"\n'
    agent = f'[agents.{PROGRAM}]\nprovider = "scripted"\ntransport = "headless"\nmodel = "scripted"\n'
    (folder / "config.toml").write_text(provider + agent, encoding="utf-8")
