"""Where agents work: over a tree that stood, apart from each other, and without what is hidden."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from guarded import ME, USER, Ground, as_user, contents, guard, put, tree_of
from holdfast.engine.grounds import FOLDER, DistantGrounds, Grounds
from holdfast.engine.orders import Order
from holdfast.engine.proposal import propose
from holdfast.engine.rebasing import Rebased, rebased
from holdfast.errors import HoldfastError, Tampering, UnknownId
from holdfast.model.plan import Plan
from holdfast.store.large_blobs import LargeBlobs
from holdfast.wiring.opening import pipeline_at
from holdfast.workspace.manifest import manifest_of, packed_manifest, stocked

FILES = {
    "a.txt": b"a\n",
    ".env": b"KEY=value\n",
    "secrets/key.pem": b"secret\n",
    "holdfast.toml": b'[workspace]\nhidden = ["secrets/**"]\n',
}
ORDER = Order("u-1", "one", 1, 1, "hand", "One", "do it", mirrored=True)


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", FILES)
    yield found
    found.hf.close()


def files_of(path: str) -> dict[str, bytes]:
    return {name: data for name, data in contents(tree_of(Path(path))).items() if not name.startswith(".git/")}


def test_one_at_a_time_works_over_the_workspace_itself(ground: Ground) -> None:
    """Nothing is copied."""
    with Grounds(str(ground.path), pipeline_at)(ORDER._replace(mirrored=False)) as place:
        assert place.pipeline.site.path == str(ground.path) and place.stock is None
    assert not (ground.state / FOLDER).exists()


def test_each_who_works_at_once_has_a_mirror_of_their_own(ground: Ground) -> None:
    """As many as work at once, and no more: one that is free is taken again."""
    grounds = Grounds(str(ground.path), pipeline_at)
    with ExitStack() as stack:
        places = [stack.enter_context(grounds(ORDER)) for _ in range(3)]
        paths = {place.pipeline.site.path for place in places}
        assert len(paths) == 3 and all(files_of(path)["a.txt"] == b"a\n" for path in paths)
    with grounds(ORDER) as place:
        assert place.pipeline.site.path in paths
    assert len(list((ground.state / FOLDER).iterdir())) <= 4


def test_what_is_hidden_is_not_in_a_mirror(ground: Ground) -> None:
    """Neither by the project's word nor by the rules that always hold."""
    with Grounds(str(ground.path), pipeline_at)(ORDER) as place:
        found = files_of(place.pipeline.site.path)
    assert "secrets/key.pem" not in found and found["a.txt"] == b"a\n"
    assert b"secret\n" not in found.values()


@pytest.mark.root
def test_a_group_that_cannot_be_kept_is_no_obstacle(public: Path) -> None:
    """An ordinary user mirrors a file of somebody else's group under their own, and the proposal knows whose it was."""
    shared = public / "workspace" / "shared.txt"
    shared.write_bytes(b"s\n")
    os.chown(shared, USER, 54321)

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"a.txt": b"a\n"})
        with Grounds(str(workspace), pipeline_at)(ORDER) as place:
            assert place.owner == (USER, os.getegid())
            assert files_of(place.pipeline.site.path) == {"a.txt": b"a\n", "shared.txt": b"s\n"}
            made = place.pipeline.simulator.simulate(Plan("new", (put("new.txt", b"n\n"),)))
            proposal = propose(place.pipeline.site, made, owner=place.owner)
            stock = LargeBlobs(ground.hf.site.state)
            for digest in proposal.contents:
                stock.take(digest, LargeBlobs(place.pipeline.site.state).pieces(digest))
        outcome = rebased(ground.hf.pipeline, proposal)
        assert isinstance(outcome, Rebased)
        ground.hf.execute(outcome.simulated, approved_by=ME)
        assert (workspace / "new.txt").read_bytes() == b"n\n" and os.stat(workspace / "shared.txt").st_gid == 54321
        ground.hf.close()

    as_user(public, act)


def test_a_mirror_follows_what_landed(ground: Ground) -> None:
    """It is brought to what stands now, whatever an earlier one left in it."""
    grounds = Grounds(str(ground.path), pipeline_at)
    with grounds(ORDER) as place:
        (Path(place.pipeline.site.path) / "left.txt").write_bytes(b"left behind\n")
    ground.apply(put("a.txt", b"landed\n"))
    with grounds(ORDER) as place:
        found = files_of(place.pipeline.site.path)
    assert found["a.txt"] == b"landed\n" and "left.txt" not in found


def test_a_mirror_is_never_made_in_the_middle_of_a_landing(ground: Ground) -> None:
    """Whoever lands holds the lock, and the mirror waits for it (Q1)."""
    grounds, made = Grounds(str(ground.path), pipeline_at), threading.Event()

    def work() -> None:
        with grounds(ORDER):
            made.set()

    with ground.hf.pipeline.locked():
        thread = threading.Thread(target=work)
        thread.start()
        assert not made.wait(1.5)
    thread.join(30)
    assert made.is_set()


def test_on_another_machine_the_base_is_what_the_order_names(ground: Ground, tmp_path: Path) -> None:
    """From the shared stock alone, with no clone; and without what is hidden there."""
    stock = LargeBlobs(guard(tmp_path / "stock").hf.site.state)
    hidden = ground.hf.pipeline.governance.settings().hidden
    manifest = stocked(ground.hf.site, manifest_of(ground.hf.site, hidden=hidden, ignored=False), stock)
    base = stock.put(packed_manifest(manifest))
    grounds = DistantGrounds(str(tmp_path / "mirrors"), "", stock, pipeline_at)
    (tmp_path / "mirrors").mkdir()
    with grounds(ORDER._replace(base=base)) as place:
        found = files_of(place.pipeline.site.path)
        assert found["a.txt"] == b"a\n" and b"secret\n" not in found.values()
        assert place.home is None and place.stock is stock


def test_on_another_machine_the_base_is_seen_where_the_clone_stands(ground: Ground, tmp_path: Path) -> None:
    """With the packages that are installed in the clone, and nothing else of it; the base stays the base (Q4)."""
    stock = LargeBlobs(guard(tmp_path / "stock").hf.site.state)
    (ground.path / "node_modules").mkdir()
    (ground.path / "node_modules" / "of_the_base").touch()
    manifest = stocked(ground.hf.site, manifest_of(ground.hf.site), stock)
    base = stock.put(packed_manifest(manifest))
    clone = tmp_path / "clone"
    for name in (".venv/bin/python", "node_modules/of_the_clone", "web/node_modules/none", "a.txt", "other.txt"):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        (clone / name).write_text("of the clone\n")
    grounds = DistantGrounds(str(tmp_path / "mirrors"), str(clone), stock, pipeline_at)
    for installed in ("of the clone\n", "installed anew\n"):
        (clone / ".venv/bin/python").write_text(installed)
        with grounds(ORDER._replace(base=base)) as place:
            found = files_of(place.pipeline.site.path)
            assert place.pipeline.site.seen_at == str(clone)
        assert found[".venv/bin/python"] == installed.encode() and found["a.txt"] == b"a\n"
        assert "node_modules/of_the_base" in found
        assert not {"node_modules/of_the_clone", "web/node_modules/none", "other.txt"} & found.keys()


@pytest.mark.parametrize("what", ["nothing", "another thing", "no digest"])
def test_a_base_that_is_not_there_is_refused(ground: Ground, tmp_path: Path, what: str) -> None:
    """Before anything is made of it."""
    stock = LargeBlobs(ground.hf.site.state)
    base = {"nothing": "ab" * 32, "another thing": stock.put(b'{"version": 1}'), "no digest": ""}[what]
    (tmp_path / "mirrors").mkdir()
    with (
        pytest.raises((UnknownId, Tampering, HoldfastError)),
        DistantGrounds(str(tmp_path / "mirrors"), "", stock, pipeline_at)(ORDER._replace(base=base)),
    ):
        pytest.fail("there is no such base")
