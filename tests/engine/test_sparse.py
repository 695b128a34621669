"""Files with holes: they take no more room in anything that Holdfast keeps, and count with their whole length."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from guarded import ME, guard, put
from holdfast.disk.calls import CALLS
from holdfast.disk.holes import copy_pieces
from holdfast.errors import HoldfastError
from holdfast.model.plan import Run
from holdfast.store.large_blobs import LargeBlobs
from holdfast.workspace.observe import content_digest
from holdfast.workspace.scratch import scratch_copy

_LENGTH = 256 << 20
_MAKE = Run(("sh", "-c", "truncate -s 256M holes && printf end | dd of=holes bs=1 seek=200000000 conv=notrunc"))
_LITTLE = 8 << 20  # what folders, reports and the database take, and much less than the holes


def _taken(directory: Path) -> int:
    """Bytes on the disk."""
    return sum(os.lstat(path).st_blocks * 512 for path in directory.rglob("*"))


@pytest.mark.parametrize("shadow", ["auto", "copy"])
def test_holes_of_a_program_stay_holes(tmp_path: Path, shadow: str) -> None:
    """In the kept simulation, where it lands, in what undo and redo need, and after gc."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    simulated = ground.hf.simulate(ground.plan(_MAKE), shadow=shadow)  # type: ignore[arg-type]
    assert _taken(ground.state) < _LITTLE
    done = ground.hf.execute(simulated, approved_by=ME, consent=simulated.plan.id)
    assert (ground / "holes").stat().st_size == _LENGTH
    assert _taken(ground.path) < _LITTLE
    ground.hf.undo(done.id, approved_by=ME)
    del simulated
    assert ground.hf.gc(keep_days=0).bytes > 0
    assert os.listdir(ground.state / "simulations") == []
    assert _taken(ground.path) < _LITTLE


def test_holes_of_a_plan_s_own_file_stay_holes(tmp_path: Path) -> None:
    """A plan that brings a file with holes is kept without filling them."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    source = tmp_path / "source"
    with open(source, "wb") as file:
        file.truncate(_LENGTH)
    ground.hf.keep_plan(ground.hf.plan(_change(tmp_path, source)))
    assert _taken(ground.state) < _LITTLE


def _change(tmp_path: Path, source: Path) -> str:
    change = tmp_path / "change.yaml"
    change.write_text(f"intent: Bring it\nsteps:\n  - write: big\n    content_from: {source.name}\n")
    return str(change)


def test_holes_stay_holes_in_the_store(tmp_path: Path) -> None:
    """A blob of any size is taken in and given out without its holes."""
    ground = guard(tmp_path / "workspace")
    source = tmp_path / "source"
    with open(source, "wb") as file:
        file.truncate(_LENGTH)
        file.seek(100_000_000)
        file.write(b"data")
    store = LargeBlobs(ground.hf.site.state)
    with open(source, "rb", buffering=0) as file:
        digest = content_digest(CALLS, file.fileno())
        file.seek(0)
        store.take(digest, iter(lambda: file.read(1 << 20), b""))
    assert _taken(ground.state) < _LITTLE
    with open(tmp_path / "copy", "wb", buffering=0) as writing:
        reading = store.open(digest)
        copy_pieces(CALLS, reading, writing.fileno())
        os.close(reading)
    assert (tmp_path / "copy").stat().st_blocks * 512 < _LITTLE
    with open(tmp_path / "copy", "rb", buffering=0) as file:
        assert content_digest(CALLS, file.fileno()) == digest


def test_holes_stay_holes_in_a_scratch_copy(tmp_path: Path) -> None:
    """The copy that checks run in without a sandbox has them too."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    with open(ground / "holes", "wb") as file:
        file.truncate(_LENGTH)
    simulated = ground.hf.simulate(ground.plan(put("a", b"new")))
    with scratch_copy(ground.hf.site, simulated.change_set, simulated.sources) as directory:
        assert os.stat(os.path.join(directory, "holes")).st_size == _LENGTH
        assert _taken(Path(directory)) < _LITTLE


@pytest.mark.parametrize("shadow", ["auto", "copy"])
@pytest.mark.parametrize("code", ["truncate -s 400M holes", "truncate -s 400M holes; sleep 1"], ids=["quick", "slow"])
def test_holes_count_for_the_limit_of_the_disk(tmp_path: Path, home: Path, shadow: str, code: str) -> None:
    """A program that makes a file longer than the limit is stopped, or refused when it ends, and nothing is kept."""
    config = home / "xdg_config_home" / "holdfast"
    config.mkdir(parents=True, exist_ok=True, mode=0o700)
    (config / "config.toml").write_text('[limits]\ndisk = "100MB"\n')
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    with pytest.raises(HoldfastError, match="put more than 100 MB on the disk"):
        ground.hf.simulate(ground.plan(Run(("sh", "-c", code))), shadow=shadow)  # type: ignore[arg-type]
    assert _taken(ground.state) < _LITTLE
    assert not (ground / "holes").exists()


def test_policy_counts_bytes_before_anything_is_kept(tmp_path: Path, home: Path) -> None:
    """More new bytes than policy admits are denied in the simulation: its report is recorded, its bytes are not."""
    config = home / "xdg_config_home" / "holdfast"
    config.mkdir(parents=True, exist_ok=True, mode=0o700)
    (config / "config.toml").write_text('[policy.limits]\nbytes = "1MB"\n')
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    make = Run(("dd", "if=/dev/urandom", "of=big", "bs=1M", "count=16"))
    with pytest.raises(HoldfastError, match="16,777,216 bytes of new content, 1,000,000 are allowed") as caught:
        ground.hf.simulate(ground.plan(make))
    assert (caught.value.code, caught.value.exit_status, caught.value.changed) == ("denied", 4, False)
    assert _taken(ground.state) < _LITTLE
    (paper,) = ground.hf.records.papers("simulations")
    assert paper.document["status"] == "BLOCKED"
