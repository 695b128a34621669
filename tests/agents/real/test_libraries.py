"""aider and a deep agent, truly installed: what they edit and create, and what an edit that fails comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from guarded import contents, tree_of
from holdfast.agents.aider import Aider
from holdfast.agents.deep import Deep
from holdfast.agents.protocol import Agent
from holdfast.model.agent import Request
from holdfast.model.agent_settings import AgentSettings, EditFormat
from holdfast.testing.model_server import ScriptedModel
from holdfast.testing.script import EditFile, Loop, Say, Step, WriteFile
from real_bench import PATH, real_bench

pytestmark = pytest.mark.agents

EDIT = EditFile("README.md", "A project.\n", "A small project.\n")
DONE = Say("All done.")


def agent(name: str, model: str, monkeypatch: pytest.MonkeyPatch, edit_format: EditFormat | Literal[""] = "") -> Agent:
    monkeypatch.setenv("PATH", PATH)
    own = AgentSettings(name, model=model, edit_format=edit_format)
    made: Agent = Aider(own) if name == "aider" else Deep(own)
    if not made.health().usable:
        pytest.skip(f"{made.health().why_not}; scripts/agent-programs installs it")
    return made


@pytest.mark.parametrize(
    ("name", "model"), [("aider", "scripted"), ("aider", "gpt-4o"), ("deep", "scripted"), ("deep", "claude-sonnet-4-5")]
)
def test_a_library_edits_what_is_there_and_creates_what_is_not(
    name: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files in folders that do not exist yet included; nothing of its own is left in the workspace."""
    worker = agent(name, model, monkeypatch)
    script = ScriptedModel(EDIT, WriteFile("src/deep/new.py", "x = 1\n"), DONE)
    assert worker.api is not None
    with real_bench(tmp_path, script, worker.api, model) as real:
        request = Request("Edit README.md.", files=("README.md",), expected=("src/deep/new.py",))
        result = worker.work(request, real.bench)
        assert (result.ending, result.detail) == ("finished", ""), result
        assert result.claim.words.endswith("All done.")
        assert "REPLACE" not in result.claim.words
        assert real.changed() == {"README.md", "src", "src/deep", "src/deep/new.py"}
        spent, claimed = real.proxy.usage, result.claim.usage
        assert claimed is not None
        assert (claimed.input_tokens, claimed.output_tokens) == (spent.input_tokens, spent.output_tokens)
        assert real.proxy.refusals == ()


@pytest.mark.parametrize("then", [Say("I give up."), Loop()])
def test_an_edit_of_aiders_that_does_not_fit_is_a_failure(
    then: Step, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its model gives up or goes on for ever: aider itself ends with 0, and tells it in words for a person."""
    worker = agent("aider", "scripted", monkeypatch, "diff")
    wrong = EditFile("README.md", "Something else.\n", "x\n")
    with real_bench(tmp_path, ScriptedModel(wrong, then), "openai", "scripted") as real:
        result = worker.work(Request("Edit README.md.", files=("README.md",)), real.bench)
        assert result.exit_code == 0
        assert (result.claim.success, real.changed()) == (False, set()), result
        assert (result.ending, result.detail) == ("failed", "its model's edits could not be applied")


def test_a_file_that_aider_was_told_to_expect_is_not_created_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that only talks changes nothing: an empty file would pass for the one that was wanted."""
    worker = agent("aider", "scripted", monkeypatch)
    with real_bench(tmp_path, ScriptedModel(Say("I would.")), "openai", "scripted") as real:
        result = worker.work(Request("Create hello.py.", expected=("hello.py",)), real.bench)
        assert result.ending == "finished"  # it did what it does; whether that is good is measured by others
        assert real.changed() == set()
        assert set(contents(tree_of(tmp_path / "workspace"))) == {"README.md"}


@pytest.mark.parametrize(
    ("model", "chosen", "repeats", "asked_for"),
    [
        ("unheard-of", "", 0, "*file listing*"),
        ("qwen2.5-coder-1.5b-instruct", "", 0, "*file listing*"),
        ("gpt-4o", "", 0, "*SEARCH/REPLACE block*"),
        ("claude-sonnet-9", "", 0, "*SEARCH/REPLACE block*"),
        ("unheard-of", "diff", 0, "*SEARCH/REPLACE block*"),
        ("unheard-of", "", 1, "*SEARCH/REPLACE block*"),
        ("gpt-4o", "", 1, "*file listing*"),
        ("gpt-4o", "diff", 1, "*SEARCH/REPLACE block*"),
    ],
)
def test_aider_asks_for_edits_in_the_form_that_fits_its_model(
    model: str,
    chosen: EditFormat | Literal[""],
    repeats: int,
    asked_for: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whole files where the model is small or unknown; what the user says stands above; a repetition changes it."""
    worker = agent("aider", model, monkeypatch, chosen)
    with real_bench(tmp_path, ScriptedModel(EDIT, DONE), "openai", model) as real:
        result = worker.work(Request("Edit README.md.", files=("README.md",), repeats=repeats), real.bench)
        assert (result.ending, real.changed()) == ("finished", {"README.md"})
        assert contents(tree_of(real.shadow.view.base))["README.md"] == b"A project.\n"
        (asked,) = real.model.seen
        assert asked_for.encode() in asked.body


def test_aider_has_a_map_of_the_files_that_are_not_in_its_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its model is shown what stands in them, and no cache of that is left in the workspace."""
    worker = agent("aider", "scripted", monkeypatch)
    with real_bench(tmp_path, ScriptedModel(EDIT, DONE), "openai", "scripted") as real:
        other = Path(real.shadow.view.base) / "billing.py"
        other.write_text("class Invoice:\n    def total_with_tax(self):\n        return 1\n")
        result = worker.work(Request("Edit README.md.", files=("README.md",)), real.bench)
        assert (result.ending, real.changed()) == ("finished", {"README.md"})
        assert b"total_with_tax" in real.model.seen[0].body
