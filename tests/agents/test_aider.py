"""aider's edit format: by the name of its model, and by the user. What the program itself does with it: `real/`."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegated import configured
from holdfast.agents.aider import format_for
from holdfast.errors import InvalidInput
from holdfast.settings import load, places_of

FORMATS = {
    "whole": (
        "qwen2.5-coder-1.5b-instruct-q4_k_m", "Qwen2.5-Coder-7B", "llama-3.1-8b", "gpt-oss-20b", "gemma-3-27b-it",
        "deepseek-r1-distill-qwen-1.5b", "phi-3.5b", "mixtral-8x7b", "gpt-5-nano", "devstral:24b", "mistral-small",
    ),
    "diff": (
        "claude-sonnet-4-5", "claude-opus-5", "gpt-5.5", "o4-mini", "openai/o3", "deepseek-chat", "deepseek-v3.2",
        "qwen3-coder-480b-a35b", "kimi-k2", "glm-4.6", "grok-4",
    ),
    "diff-fenced": ("gemini-2.5-pro", "gemini-3-pro-preview"),
    # aider's own list decides, and whole files where it does not know the model.
    "": ("gpt-4o", "llama-3.1-70b", "gpt-oss-120b", "qwen2.5-coder-32b", "unheard-of", "", "gpt-4.1-mini"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "form"), [(model, form) for form, models in FORMATS.items() for model in models])
def test_the_name_of_a_model_decides_the_form_of_its_edits(model: str, form: str) -> None:
    """Small ones write whole files, large ones blocks; for the rest aider's own list is asked."""
    assert format_for(model) == form


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("[agents.codex]\nedit_format = 'whole'\n", "edit_format is for aider alone"),
        ("[agents.aider]\nedit_format = 'prose'\n", "edit_format must be"),
    ],
)
def test_a_form_that_nobody_writes_is_refused(table: str, why: str, tmp_path: Path) -> None:
    """Where the configuration is read, with the key in the sentence."""
    configured(table)
    with pytest.raises(InvalidInput, match=why):
        load(places_of(str(tmp_path)))
    configured("[agents.aider]\nedit_format = 'udiff'\n")
    (own,) = load(places_of(str(tmp_path))).agents
    assert own.edit_format == "udiff"
