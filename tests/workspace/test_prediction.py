"""The predicted tree digest is the one that stands when the change has been made."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.errors import Blocked
from holdfast.model.changeset import Change
from holdfast.model.image import Image
from holdfast.model.path import MAX_PATH_BYTES
from holdfast.model.plan import Chmod, Create, Delete, Inline, Move, Plan, Step, Symlink, Write
from holdfast.workspace.block import DIRECTORY, FILE, NEVER, Entry, packed, sealed
from holdfast.workspace.tree import Snapshot

NAMES = ("a", "b", "a.b", "d", "d/x", "d/y", "d/e", "d/e/z", "d.x", "ü", "\udcff")


def _steps() -> st.SearchStrategy[Step]:
    path = st.sampled_from(NAMES)
    return st.one_of(
        st.builds(Write, path, st.binary(max_size=3).map(Inline), st.sampled_from([None, 0o600])),
        st.builds(Create, path, st.booleans()),
        st.builds(Delete, path, st.just(True)),
        st.builds(Move, path, path),
        st.builds(Chmod, path, st.sampled_from([0o700, 0o755])),
        st.builds(Symlink, path, st.sampled_from(["a", "nowhere"])),
    )


@pytest.mark.long
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(plans=st.lists(st.lists(_steps(), min_size=1, max_size=5), min_size=1, max_size=3))
def test_the_predicted_digest_is_the_one_after_the_change(
    plans: list[list[Step]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever a plan does to files, directories, links and modes, its tree digest is known beforehand."""
    root = tmp_path_factory.mktemp("w")
    holdfast.init(str(root))
    with holdfast.open(str(root)) as hf:
        for steps in plans:
            try:
                rehearsal = hf.simulate(Plan("x", tuple(steps)))
            except Blocked:
                continue
            predicted = hf.tree().digest_after(rehearsal.change_set.changes)
            hf.execute(rehearsal, approved_by="me")
            assert hf.tree().digest == predicted


def test_without_changes_the_digest_stays(tmp_path: Path) -> None:
    """A change set without changes predicts the digest that stands already."""
    holdfast.init(str(tmp_path))
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("x")
    with holdfast.open(str(tmp_path)) as hf:
        assert hf.tree().digest_after(()) == hf.tree().digest


def test_the_deepest_path_is_predicted() -> None:
    """However deep a path may be, the digest over it is known, and is that of the same tree sealed from its end."""
    depth = MAX_PATH_BYTES // 2
    file, folder = Image("file", 0o644, 0, 0, 1, "ab" * 32), Image("directory", 0o755, 0, 0)
    paths = ["/".join("d" * level) for level in range(1, depth)]
    changes = [Change(path, None, folder) for path in paths] + [Change(f"{paths[-1]}/f", None, file)]
    row = (0, 0, 0, 0, 0o644, 0, 0)
    block = sealed([b"f"], [Entry(packed(FILE, row, size=1, digest=bytes.fromhex(file.digest)), NEVER)], {})
    for _ in paths:
        row = (0, 0, 0, 0, 0o755, 0, 0)
        block = sealed([b"d"], [Entry(packed(DIRECTORY, row, digest=block.digest), NEVER)], {0: block})
    empty = Snapshot(sealed([], [], {}))
    assert empty.digest_after(changes) == Snapshot(block).digest
    # And once more, where all of it stands already and only the end changes.
    last = Change(f"{paths[-1]}/f", file, file._replace(mode=0o600))
    assert Snapshot(block).digest_after([last]) == empty.digest_after([*changes[:-1], last._replace(pre=None)])
