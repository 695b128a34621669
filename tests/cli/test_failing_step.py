"""A `run` step that fails: why, in the program's own last words."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

Write = Callable[[str], str]


def failing(script: str) -> str:
    return json.dumps({"intent": "Fail", "steps": [{"run": ["sh", "-c", script]}]})


def test_a_failing_step_shows_its_last_words(guarded: Any, write: Write) -> None:
    """Below the sentence, whose command is quoted as a shell needs it; in the one document too."""
    file = write(failing("echo fine; echo oops >&2; exit 3"))
    told = guarded("apply", file, "--yes")
    assert told.status == 5
    assert "step-1 (run): sh -c 'echo fine; echo oops >&2; exit 3' exited with 3\n  | fine\n  | oops\n" in told.err
    assert "Nothing was changed." in told.err
    message = guarded("simulate", file, "--json").document["error"]["message"]
    assert message.endswith("exited with 3\n  | fine\n  | oops")


def test_a_step_that_failed_silently_shows_no_words(guarded: Any, write: Write) -> None:
    """One that printed nothing, or only empty lines, is the sentence alone."""
    message = guarded("simulate", write(failing("echo; exit 3")), "--json").document["error"]["message"]
    assert message == "step-1 (run): sh -c 'echo; exit 3' exited with 3"


def test_the_last_words_of_a_step_are_short_harmless_and_masked(guarded: Any, write: Write) -> None:
    """The end of long output, in few lines and bytes; nothing that moves a cursor, nothing with a secret's shape."""
    key = "ghp_" + "a1B2" * 9
    script = f"seq 1 100; printf '\\033[31mred\\033[0m \\007 {key[:9]}''{key[9:]}\\n'; exit 3"
    told = guarded("apply", write(failing(script)), "--yes").err
    words = [line for line in told.splitlines() if line.startswith("  | ")]
    assert words[:3] == ["  | …", "  | 87", "  | 88"]
    assert len(words) == 16 and "red" in words[-1]
    assert "\x1b" not in told and "\x07" not in told
    assert key not in "".join(words) and "masked" in words[-1]
    long = guarded("apply", write(failing("head -c 9000 /dev/zero | tr '\\0' 'x' | fold -w 400; exit 3")), "--yes").err
    assert 1000 < len("".join(line for line in long.splitlines() if line.startswith("  | "))) < 2100
