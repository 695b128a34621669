"""The user's settings for one workspace: where they hold, and what cannot get hold of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.settings import load, places_of
from holdfast.store.own_settings import settings_of, whose
from holdfast.workspace.mirror import Mirror

Configure = Callable[[str], Path]


@pytest.fixture
def configure(home: Path) -> Configure:
    """Write the user's own configuration, as the user would: private."""

    def written(text: str) -> Path:
        folder = home / "xdg_config_home" / "holdfast"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "config.toml").write_text(text)
        (folder / "config.toml").chmod(0o600)
        return folder / "config.toml"

    return written


def _id(guarded: Any) -> str:
    return str(guarded("status", "--json").document["id"])


def _hint_of(error: pytest.ExceptionInfo[holdfast.HoldfastError]) -> str:
    return error.value.hint


def test_a_section_loosens_for_its_tree_what_a_project_may_not(guarded: Any, configure: Configure) -> None:
    """The user wants to be asked about every change, and for one tree does not: there it lands unasked, although its
    own file could not say so; and the decision made again from what was kept is the same."""
    (guarded.directory / "holdfast.toml").write_text("[policy]\nlow_risk = 'allow'\n")
    change = {"intent": "Change", "steps": [{"write": "new.txt", "content": "new\n"}]}
    general = "[policy]\nlow_risk = 'ask'\nwithout_health = 'ask'\nwithout_verification = 'ask'\n"
    configure(general)
    assert guarded("apply", "-", "--json", stdin=json.dumps(change)).status == 3
    own = "low_risk = 'allow'\nwithout_health = 'allow'\nwithout_verification = 'allow'\n"
    configure(f'{general}[workspaces."{_id(guarded)}".policy]\n{own}')
    ran = guarded("apply", "-", "--json", stdin=json.dumps(change))
    assert (ran.status, (guarded.directory / "new.txt").read_text()) == (0, "new\n")
    configure("")
    assert "same" in guarded("audit", "replay").out


def test_doctor_names_the_section_that_decides(guarded: Any, configure: Configure) -> None:
    """Each value is told with its layer; the layer "workspace" with the file and the section it stands in."""
    id = _id(guarded)
    file = configure(f"[run]\nparallel = 2\n[limits]\nmemory = '1GB'\n[workspaces.{id}.run]\nparallel = 8\n")
    told = guarded("doctor", "--json").document["configuration"]
    values = {row["key"]: (row["value"], row["layers"]) for row in told["values"]}
    assert values["run.parallel"] == (8, ["workspace"])
    assert values["limits.memory"] == (1_000_000_000, ["user"])
    assert {"layer": "workspace", "path": f'{file} [workspaces."{id}"]', "present": True} in told["files"]
    text = guarded("doctor").out
    assert f'[workspaces."{id}"]' in text and "(workspace)" in text


def test_doctor_tells_every_value_that_decides_what_lands(guarded: Any, configure: Configure) -> None:
    """What loosens runs for the user is told with its layer, and what is not said with its default."""
    configure("[run]\nunverified = 'land'\noutage = '5m'\n[environment]\nbuild = ['make', 'deps']\n")
    told = guarded("doctor", "--json").document["configuration"]
    values = {row["key"]: (row["value"], row["layers"]) for row in told["values"]}
    assert values["run.unverified"] == ("land", ["user"])
    assert values["run.outage"] == (300_000, ["user"])
    assert values["run.guessed"] == ("ask", [])
    assert values["environment.build"] == (["make", "deps"], ["user"])
    assert values["environment.build_network"] == ("none", [])
    assert values["prompt"][0]["failing"] is True
    assert "run.unverified" in guarded("doctor").out


def test_an_id_that_is_nowhere_is_an_error_everywhere(guarded: Any, configure: Configure) -> None:
    """A section for an id that no workspace of this user has is a typing error, and nothing runs on it."""
    configure("[workspaces.w-nosuch.run]\nparallel = 8\n")
    ran = guarded("simulate", "-", stdin=json.dumps({"intent": "Change", "steps": [{"write": "d", "content": "d\n"}]}))
    assert ran.status == 2
    assert "[workspaces] w-nosuch is no workspace of yours" in ran.err and "holdfast status" in ran.err


def test_a_moved_workspace_keeps_its_section(guarded: Any, configure: Configure, tmp_path: Path) -> None:
    """The section follows the ledger, not the path."""
    configure(f"[workspaces.{_id(guarded)}.run]\nparallel = 8\n")
    moved = tmp_path / "elsewhere"
    guarded.directory.rename(moved)
    assert settings_of(str(moved)).run.parallel == 8


def test_a_mirror_has_the_settings_of_its_workspace(guarded: Any, configure: Configure) -> None:
    """What a run keeps below `.holdfast` is no workspace of the user's, and has the settings of the one around it."""
    configure(f"[workspaces.{_id(guarded)}.run]\nparallel = 8\n")
    with Mirror.at(str(guarded.directory / ".holdfast" / "mirrors" / "1")) as mirror:
        assert settings_of(mirror.path).run.parallel == 8


def test_an_archive_cannot_claim_a_section(guarded: Any, configure: Configure, tmp_path: Path) -> None:
    """A tree that brings along a `.holdfast` with the id of a workspace gets none of its settings: refused, with what
    to do, whether its ledger is missing, invented, or that of another workspace."""
    configure(f"[workspaces.{_id(guarded)}.policy]\nlow_risk = 'allow'\n")
    stranger = tmp_path / "stranger"
    (stranger / ".holdfast").mkdir(parents=True, mode=0o700)
    shutil.copy(guarded.directory / ".holdfast" / "format", stranger / ".holdfast" / "format")
    with pytest.raises(holdfast.errors.Tampering, match="does not prove it: the ledger is gone") as refused:
        settings_of(str(stranger))
    assert "move it away" in _hint_of(refused) and "holdfast init" in _hint_of(refused)
    ledger = stranger / ".holdfast" / "ledger.jsonl"
    ledger.write_bytes(b"{}\n" * 10_000)
    with pytest.raises(holdfast.errors.Tampering, match="does not prove it"):
        settings_of(str(stranger))
    other = tmp_path / "other"
    other.mkdir()
    holdfast.init(str(other))
    ledger.write_bytes((other / ".holdfast" / "ledger.jsonl").read_bytes())
    with pytest.raises(holdfast.errors.Tampering, match="does not prove it"):
        settings_of(str(stranger))
    assert settings_of(str(other)).policy == ()


def test_an_old_copy_of_a_workspace_loses_the_section(guarded: Any, configure: Configure, tmp_path: Path) -> None:
    """A copy made with all attributes is the workspace until one of the two goes on; then only that one is."""
    configure(f"[workspaces.{_id(guarded)}.run]\nparallel = 8\n")
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-a", str(guarded.directory), str(copy)], check=True)
    assert settings_of(str(copy)).run.parallel == 8
    change = {"intent": "Change", "steps": [{"write": "new.txt", "content": "new\n"}]}
    assert guarded.apply(change).status == 0
    assert settings_of(str(guarded.directory)).run.parallel == 8
    with pytest.raises(holdfast.errors.Tampering, match="does not prove it: the ledger is broken"):
        settings_of(str(copy))


def test_without_a_section_nobody_looks_at_the_ledger(guarded: Any, configure: Configure, tmp_path: Path) -> None:
    """A broken ledger stops no settings that do not depend on it."""
    other = tmp_path / "other"
    other.mkdir()
    configure(f"[run]\nparallel = 3\n[workspaces.{holdfast.init(str(other))}.run]\nparallel = 8\n")
    (guarded.directory / ".holdfast" / "ledger.jsonl").write_bytes(b"")
    assert settings_of(str(guarded.directory)).run.parallel == 3
    assert load(places_of(str(tmp_path)), whose(str(tmp_path))).run.parallel == 3
