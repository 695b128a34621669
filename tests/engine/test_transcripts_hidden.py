"""What other runs asked their models and did is in nobody's reach: kept, or being written at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from delegated import FILES, FIXED, Given, delegations, give
from guarded import Ground, guard
from holdfast.engine.checking import ShadowKind
from holdfast.store.blobs import Blobs
from holdfast.store.transcripts import Transcript
from holdfast.testing import ScriptedAgent
from holdfast.testing.agents import Act
from holdfast.testing.script import Say, Shell, WriteFile

MARK = "zanzibar"
# In two pieces, so that whoever looks does not find its own words.
LOOKING = """
wanted=zanzi; wanted="${wanted}bar"
echo "$wanted" >seen.txt
{ find .holdfast -mindepth 1
  for place in . "$HOME" /tmp /dev/shm; do grep -rl "$wanted" "$place"; done
  find /proc/[0-9]*/fd -lname '*.jsonl'; ls /proc/[0-9]*/cwd/.holdfast/transcripts/*
} 2>/dev/null | sort >found.txt
true
"""


@contextmanager
def other_run(ground: Ground) -> Iterator[Path]:
    """A transcript that another run is writing."""
    state = ground.hf.site.state
    path = ground.state / "transcripts" / "other.jsonl"
    with Transcript(state, "other") as other:
        other.write({"text": MARK})
        yield path


def work(ground: Ground, *acts: Act, shadow: ShadowKind) -> None:
    simulated = give(ground, ScriptedAgent(*acts), Given(task="Look around."), shadow=shadow)
    ground.hf.execute(simulated, approved_by="me")


@pytest.mark.parametrize("shadow", ["overlay", "copy"])
def test_an_agent_finds_no_transcript_of_another_run(tmp_path: Path, shadow: ShadowKind) -> None:
    """Neither among what is kept nor among what is written now; its own files it does find, and so would we outside."""
    ground = guard(tmp_path / "workspace", {**FILES, "app.py": FIXED})
    work(ground, Say(MARK), WriteFile("notes.txt", "done\n"), shadow=shadow)
    (first,) = delegations(ground)
    assert MARK.encode() in Blobs(ground.hf.site.state).get(str(first["attempts"][-1]["transcript"]))
    with other_run(ground) as path:
        work(ground, Shell(LOOKING), shadow=shadow)
        assert MARK in path.read_text(encoding="utf-8"), "the other run goes on"
    found = (ground / "found.txt").read_text().split()
    assert found and all(line.endswith("/seen.txt") for line in found), found
    ground.hf.close()
