"""Parcels: change files with everything in them, to be sent elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import InvalidInput
from holdfast.intake.changefile import parse_change_file, read_change_file
from holdfast.intake.parcel import parcel_of


@pytest.mark.parametrize(
    "text",
    [
        "intent: x\nsteps:\n- write: a\n  content_from: data.bin\n- update: b\n  old: 'o'\n  content_from: data.bin\n",
        '{"intent": "ä \\ud83d\\ude00", "steps": [{"write": "\\udcff", "content": "\\udc80"}, {"create": "d/"}]}',
        "intent: x\nrisk: high\nsteps:\n- chmod: {path: a, mode: '0600'}\nverify: [{run: [make, test], within: 5s}]\n",
    ],
)
def test_a_parcel_spells_the_same_plan(tmp_path: Path, text: str) -> None:
    """Whatever a change file says, its parcel says the same with no file beside it: the digest is equal."""
    (tmp_path / "data.bin").write_bytes(bytes(range(256)) * 5000)
    file = tmp_path / "change"
    file.write_text(text)
    parcel = parcel_of(str(file))
    elsewhere = parse_change_file(parcel, source="parcel", directory="/nonexistent")
    assert elsewhere.digest == read_change_file(str(file)).digest


def test_a_parcel_is_bounded(tmp_path: Path) -> None:
    """What would be refused over there for its size is refused here."""
    with open(tmp_path / "huge", "wb") as file:
        file.truncate(200 << 20)
    (tmp_path / "change").write_text("intent: x\nsteps:\n- write: a\n  content_from: huge\n")
    with pytest.raises(InvalidInput, match="too large to be sent along"):
        parcel_of(str(tmp_path / "change"))
