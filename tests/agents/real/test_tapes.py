"""What a real program asked its model, played again without one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agents.real.hired import MODELS, hired
from holdfast.testing.model_server import ScriptedModel
from holdfast.testing.script import Say, WriteFile

pytestmark = pytest.mark.agents

HELLO = WriteFile("hello.py", 'print("hello")\n')
DONE = Say("I made hello.py.")
# gemini writes the time of the clock into the names of its tool calls, so that it never asks the same question twice.
REPLAYED = sorted(set(MODELS) - {"gemini"})


@pytest.mark.parametrize("name", REPLAYED)
def test_a_program_does_its_task_again_from_a_tape(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same change and the same words, with a provider that is not there."""
    tapes = tmp_path / "tapes"
    with hired(name, tmp_path, ScriptedModel(HELLO, DONE), monkeypatch, more=f'record = "{tapes}"') as house:
        first = house.simulate()
        asked = len(house.model.seen)
        configuration = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast" / "config.toml"
        text = configuration.read_text().replace("record =", "replay =").replace(house.model.url, "http://127.0.0.1:9")
        configuration.write_text(text)
        again = house.simulate()
        assert (house.measured["ending"], len(house.model.seen)) == ("finished", asked)
        assert again.change_set.digest == first.change_set.digest
