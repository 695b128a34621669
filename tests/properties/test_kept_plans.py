"""Generated plans go the long way: simulated, kept, and executed by id, by somebody who has nothing but the id.

Each plan is simulated on an overlay and on a copy, and executed from both, one after the other, with undo after each.
So what is on the disk between two commands is all that an execution needs, and it comes to what was predicted.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings

import holdfast
from engine.papers import command
from engine.plans import START, mixed_plans, world_of
from guarded import ME, OLD_NS, Ground, fill, guard
from holdfast.engine.checking import ShadowKind
from holdfast.model.plan import Step
from holdfast.wiring import Holdfast
from properties.dictionary_model import World

pytestmark = pytest.mark.long

PLANS = 200
# Every so many-th execution is by the real command, in a process of its own; the others by a Holdfast just opened.
COMMANDED = 16
KINDS: tuple[ShadowKind, ...] = ("overlay", "copy")


@contextmanager
def fresh() -> Iterator[Ground]:
    """A workspace that stands as START says, old enough that nothing has to wait for the clock."""
    place = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    try:
        workspace = place / "workspace"
        fill(workspace, {path: node.content for path, node in START.items() if node.kind == "file"})
        for path, node in START.items():
            if node.kind == "symlink":
                os.symlink(node.content, workspace / path)
            else:
                (workspace / path).chmod(node.mode)
            os.utime(workspace / path, ns=(OLD_NS, OLD_NS), follow_symlinks=False)
        ground = guard(workspace)
        yield ground
        ground.hf.close()
    finally:
        shutil.rmtree(place)


class Keeping:
    """What was predicted for plans when they were kept, and how it was measured when they were executed by id."""

    def __init__(self) -> None:
        self.ways: Counter[str] = Counter()

    def plan(self, steps: tuple[Step, ...], predicted: World) -> None:
        with fresh() as ground:
            first, tree = ground.hf.tree().digest, ground.tree()
            kept = {kind: self._kept(ground, steps, kind) for kind in KINDS}
            digests = {digest for _, digest in kept.values()}
            ground.hf.close()
            for kind, (id, digest) in kept.items():
                with self._executed(ground, id) as hf:
                    assert {hf.tree().digest} == digests == {digest}
                    assert world_of(ground.tree()) == predicted
                    hf.undo(hf.log(limit=1)[0].id, approved_by=ME)
                    assert hf.tree().digest == first
                assert ground.tree() == tree
                self.ways[kind] += 1

    def _kept(self, ground: Ground, steps: tuple[Step, ...], kind: ShadowKind) -> tuple[str, str]:
        """Simulated, verified, kept, decided on and approved: its id, and the digest that it predicts."""
        hf = ground.hf
        found = hf.simulate(ground.plan(*steps), shadow=kind)
        verified = hf.verify(found)
        report = hf.keep(found, verified).report
        assert report.shadow == kind
        hf.approve(hf.evaluate(hf.kept(report.id)[0], verified), by=ME)
        return report.id, report.predicted_tree

    @contextmanager
    def _executed(self, ground: Ground, id: str) -> Iterator[Holdfast]:
        """By the id and nothing else."""
        commanded = self.ways.total() % COMMANDED == 0
        if commanded:
            told = command(ground, "execute", id)
            assert told.status == 0, told.message
            self.ways["command"] += 1
        with holdfast.open(str(ground.path)) as hf:
            if not commanded:
                simulated, verified = hf.kept(id)
                assert hf.execute(simulated, verified=verified).status == "COMPLETED"
            yield hf


def test_kept_plans_land_as_simulated_and_can_be_undone() -> None:
    """Two hundred plans with commands, from both kinds of shadow: the predicted digest, and the first after undo."""
    keeping = Keeping()

    # No shrinking: a plan costs half a second here, and is short as it is.
    @settings(max_examples=PLANS, phases=(Phase.explicit, Phase.reuse, Phase.generate))
    @given(mixed_plans())
    def attempt(made: tuple[tuple[Step, ...], World]) -> None:
        keeping.plan(*made)

    attempt()
    assert min(keeping.ways["overlay"], keeping.ways["copy"]) >= PLANS
    assert keeping.ways["command"] >= 2 * PLANS // (2 * COMMANDED)
