"""What another machine lacks of the environment is told before an agent works there, or built by its user's command."""

from __future__ import annotations

from pathlib import Path

import pytest

from delegated import configured
from engine.test_building import BUILD, FILES
from engine.test_grounds import ORDER, pipeline_at
from guarded import Ground, fill, guard
from holdfast.engine.grounds import DistantGrounds
from holdfast.engine.orders import Order
from holdfast.engine.work import Unfit, Workbench
from holdfast.store.large_blobs import LargeBlobs
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import WriteFile
from holdfast.workspace.manifest import manifest_of, packed_manifest, stocked


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return guard(tmp_path / "workspace", {**FILES, "requirements.txt": b"beta\n"})


@pytest.fixture
def order(ground: Ground) -> Order:
    manifest = stocked(ground.hf.site, manifest_of(ground.hf.site), LargeBlobs(ground.hf.site.state))
    base = LargeBlobs(ground.hf.site.state).put(packed_manifest(manifest))
    return ORDER._replace(base=base, agent="scripted", words="Create notes.py", expected=("notes.py",), tested=True)


def elsewhere(ground: Ground, tmp_path: Path, requirements: bytes) -> Workbench:
    """A machine whose clone has these requirements."""
    clone = tmp_path / "clone"
    clone.mkdir()
    fill(clone, {**FILES, "requirements.txt": requirements})
    grounds = DistantGrounds(str(tmp_path / "mirrors"), str(clone), LargeBlobs(ground.hf.site.state), pipeline_at)
    agent = ScriptedAgent(WriteFile("notes.py", "x = 1\n"))
    return Workbench(grounds, {"scripted": agent}, lambda order: lambda happening: None, elsewhere=True)


def test_what_is_installed_for_other_dependencies_is_told(ground: Ground, order: Order, tmp_path: Path) -> None:
    """The order goes back with the file that differs, and what to do there; no agent was asked."""
    with pytest.raises(Unfit) as caught:
        elsewhere(ground, tmp_path, b"alpha\n").work(order)
    assert "what is installed in its clone is for another requirements.txt" in caught.value.message
    assert "[environment] build" in caught.value.hint


def test_a_clone_that_fits_is_worked_over(ground: Ground, order: Order, tmp_path: Path) -> None:
    """The same dependencies, whatever else differs in their file."""
    assert elsewhere(ground, tmp_path, b"# ours\nbeta\n").work(order).kind == "worked"


def test_the_command_of_that_machine_builds_it(ground: Ground, order: Order, tmp_path: Path) -> None:
    """Then the work is done, and checked with what the command installs."""
    script = tmp_path / "build.py"
    script.write_text(BUILD)
    configured(f'[environment]\nbuild = ["python3", "{script}"]\nreadable = ["{script}"]\n')
    assert elsewhere(ground, tmp_path, b"alpha\n").work(order).kind == "worked"


def test_tests_that_cannot_run_there_are_told(ground: Ground, order: Order, tmp_path: Path) -> None:
    """Where the run began they can: that machine lacks the tool, and says which."""
    (ground.path / "package.json").write_text('{"scripts": {"test": "x"}, "devDependencies": {"absent": "1"}}')
    bench = elsewhere(ground, tmp_path, b"beta\n")
    (tmp_path / "clone" / "package.json").write_text((ground.path / "package.json").read_text())
    manifest = stocked(ground.hf.site, manifest_of(ground.hf.site), LargeBlobs(ground.hf.site.state))
    order = order._replace(base=LargeBlobs(ground.hf.site.state).put(packed_manifest(manifest)))
    with pytest.raises(Unfit) as caught:
        bench.work(order)
    assert "its environment cannot run the tests: " in caught.value.message
    assert "node_modules" in caught.value.message
    assert bench.work(order._replace(tested=False)).kind == "worked"
