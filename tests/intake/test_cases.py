"""Every file in `cases/` has a twin that says what becomes of it; a new case is two new files.

A twin with `message` is of a file that must be refused: `line`, and parts of the message and the hint.
Any other twin holds fields of the plan; bytes are written as Latin-1 text.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from holdfast.errors import InvalidChangeFile
from holdfast.intake.changefile import read_change_file
from holdfast.model.plan import Inline, Plan

CASES = Path(__file__).parent / "cases"
FILES = {path.name: path for path in sorted(CASES.iterdir()) if path.is_file() and ".expected." not in path.name}
EXPECTED = {name: json.loads((CASES / f"{path.stem}.expected.json").read_text()) for name, path in FILES.items()}
REFUSED = [name for name, expected in EXPECTED.items() if "message" in expected]
ACCEPTED = [name for name in EXPECTED if name not in REFUSED]


def _plain(value: object) -> object:
    if isinstance(value, Inline):
        return value.data.decode("latin-1")
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _fields(plan: Plan) -> dict[str, object]:
    rows = {
        name: [{key: _plain(value) for key, value in row._asdict().items()} for row in getattr(plan, name)]
        for name in ("steps", "verify", "health")
    }
    words = {name: getattr(plan, name) for name in ("intent", "objective", "rationale", "risk", "on_failure")}
    return {
        **rows,
        **words,
        "words": list(plan.words),
        "health_words": list(plan.health_words),
        "unverified_because": plan.unverified_because,
    }


@pytest.mark.parametrize("name", ACCEPTED)
def test_a_correct_change_file_becomes_exactly_this_plan(name: str) -> None:
    """A correct change file becomes a plan with the fields its twin lists."""
    fields = _fields(read_change_file(str(FILES[name])))
    assert {key: fields[key] for key in EXPECTED[name]} == EXPECTED[name]


@pytest.mark.parametrize("name", REFUSED)
def test_a_wrong_change_file_is_refused_at_its_line(name: str) -> None:
    """A wrong change file is refused with exit status 2, its name, the line at fault and a sentence."""
    expected = EXPECTED[name]
    with pytest.raises(InvalidChangeFile) as caught:
        read_change_file(str(FILES[name]))
    error = caught.value
    assert (error.line, error.exit_status, error.changed) == (expected["line"], 2, False)
    assert error.message.startswith(f"{FILES[name]}:{error.line}: ")
    assert expected["message"] in error.message
    assert expected.get("hint", "") in error.hint


def test_every_case_has_a_twin_and_every_twin_a_case() -> None:
    """No expectation is left without its change file, and there are cases of both kinds."""
    twins = {path.name.removesuffix(".expected.json") for path in CASES.glob("*.expected.json")}
    assert twins == {path.stem for path in FILES.values()}
    assert len(FILES) == len(twins)
    assert len(REFUSED) > 60
    assert len(ACCEPTED) > 10
