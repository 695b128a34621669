"""The gates only think: no room of ours that does I/O is within their reach."""

from __future__ import annotations

from pathlib import Path

import pytest

from architecture import pure_rooms_do_nothing_but_think
from source_tree import read_package


@pytest.mark.parametrize("target", ["settings", "disk.calls", "store.blobs", "workspace.tree", "sandbox.process"])
def test_a_gate_that_reaches_a_room_with_hands_is_found(target: str, tmp_path: Path) -> None:
    """A gate that imports a room which reads or writes is a breach, though that room stands below it."""
    (tmp_path / "holdfast" / "gates").mkdir(parents=True)
    (tmp_path / "holdfast" / "gates" / "a.py").write_text(f"import holdfast.{target}\n", encoding="utf-8")
    breaches = list(pure_rooms_do_nothing_but_think(read_package(tmp_path / "holdfast")))
    assert [breach.what for breach in breaches] == [
        f"imports holdfast.{target}; {target.partition('.')[0]} is not pure"
    ]


@pytest.mark.parametrize("target", ["errors", "model.plan", "gates.policy"])
def test_a_gate_may_use_nouns_and_other_gates(target: str, tmp_path: Path) -> None:
    """Errors, nouns and the gates themselves are within reach."""
    (tmp_path / "holdfast" / "gates").mkdir(parents=True)
    (tmp_path / "holdfast" / "gates" / "a.py").write_text(f"import holdfast.{target}\n", encoding="utf-8")
    assert list(pure_rooms_do_nothing_but_think(read_package(tmp_path / "holdfast"))) == []
