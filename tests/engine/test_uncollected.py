"""Repairs of suites that cannot be collected: a right mend is accepted, leaving the broken file out is none."""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import holdfast
from guarded import Ground, fill
from holdfast.engine.fixing import Fix
from holdfast.errors import AgentFailed, VerificationFailed
from holdfast.testing import ScriptedAgent
from holdfast.testing.agents import Act, Delete
from holdfast.testing.script import WriteFile

DATA: dict[str, Any] = tomllib.loads((Path(__file__).parent / "uncollected.toml").read_text())


@pytest.fixture(autouse=True)
def tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")


def place(path: Path, base: str) -> Ground:
    path.mkdir()
    files = {**DATA["base"]["common"], **DATA["base"][base]}
    fill(path, {name: text.encode() for name, text in files.items()})
    holdfast.init(str(path))
    return Ground(path)


@pytest.mark.parametrize("case", DATA["case"], ids=[case["name"] for case in DATA["case"]])
def test_what_comes_of_a_repair(tmp_path: Path, case: dict[str, Any]) -> None:
    """As the case says: mended, with a person asked where nothing is known of the tests, or refused with the reason."""
    ground = place(tmp_path / "workspace", case["base"])
    broken = ground.hf.broken()
    assert broken is not None and broken.uncollected
    acts: list[Act] = [Delete(path) for path in case.get("delete", ())]
    acts += [WriteFile(path, text) for path, text in case.get("write", {}).items()]
    agent = ScriptedAgent(*acts)

    def fixed() -> Fix:
        return ground.hf.fix(broken, agent=agent.name, attempts=1, within_ms=60_000, agents={agent.name: agent})

    if case["come"] == "refused":
        with pytest.raises((AgentFailed, VerificationFailed)) as refused:
            fixed()
        assert case.get("why", "") in str(refused.value)
    else:
        found = fixed()
        assert found.record.good
        asked = "conftest.py could not be loaded before, so nothing is known of the tests there were"
        assert found.verified.doubt == (asked if case["come"] == "asked" else "")
        assert ground.hf.evaluate(found.simulated, found.verified).verdict == "NEED_APPROVAL"
    ground.hf.close()
