"""What programs and agents did is found on every file system, also where a descriptor keeps showing old names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from delegated import ONCE, give
from file_systems import KINDS, Kind, mounted, why_not
from guarded import ME, Ground, contents, guard, put
from holdfast.engine.checking import ShadowKind
from holdfast.errors import Unsupported
from holdfast.model.plan import Run
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import EditFile, WriteFile

pytestmark = pytest.mark.root
FILES = {"a": b"old\n", "b": b"b\n", "gone": b"gone\n", "d/a": b"d\n", "d/e/a": b"e\n", "stays/a": b"s\n"}
SCRIPT = "echo new > a; rm gone; mkdir -p n/m; echo made > n/m/made; echo more > d/more; mv d/e/a d/e/b; cat planned"
SHADOWS: tuple[ShadowKind, ...] = ("overlay", "copy")


@pytest.fixture(params=KINDS)
def ground(request: pytest.FixtureRequest) -> Iterator[Ground]:
    kind: Kind = request.param
    if reason := why_not(kind):
        pytest.skip(reason)
    with mounted(kind) as place:
        ground = guard(place / "workspace", FILES)
        yield ground
        ground.hf.close()


@pytest.mark.parametrize("shadow", SHADOWS)
def test_what_a_program_did_lands(ground: Ground, shadow: ShadowKind) -> None:
    """A program makes, edits, moves and removes files, also in directories that were open before: all of it lands."""
    plan = ground.plan(put("planned", b"by the plan\n"), Run(("/bin/sh", "-e", "-c", SCRIPT)))
    try:
        simulated = ground.hf.simulate(plan, shadow=shadow)
    except Unsupported as error:
        pytest.skip(str(error))
    ground.hf.execute(simulated, approved_by=ME, consent=plan.id)
    assert contents(ground.tree()) == {
        "a": b"new\n",
        "b": b"b\n",
        "d/a": b"d\n",
        "d/e/b": b"e\n",
        "d/more": b"more\n",
        "n/m/made": b"made\n",
        "planned": b"by the plan\n",
        "stays/a": b"s\n",
    }


@pytest.mark.parametrize("shadow", SHADOWS)
def test_what_an_agent_did_lands(ground: Ground, shadow: ShadowKind) -> None:
    """The same for an agent, after a step of the plan itself."""
    agent = ScriptedAgent(EditFile("a", "old", "new"), WriteFile("d/e/made", "made\n"))
    try:
        simulated = give(ground, agent, ONCE, before=(put("planned", b"by the plan\n"),), shadow=shadow)
    except Unsupported as error:
        pytest.skip(str(error))
    ground.hf.execute(simulated, approved_by=ME, consent=simulated.plan.id)
    assert contents(ground.tree()) == {**FILES, "a": b"new\n", "d/e/made": b"made\n", "planned": b"by the plan\n"}
