"""Holdfast killed while an agent works for it: nothing changed, nobody left at work, nothing left lying about."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from delegated import Given, configured, delegations, plan_for, project
from guarded import ME, Ground, in_child
from holdfast.model.agent import Happening, Said

Counted = Callable[[int], None]
pytestmark = pytest.mark.crash

# owner, name of what is called there, and whether the kill comes after it. "said": while the agent's program is alive.
MOMENTS: dict[str, tuple[str, str, bool]] = {
    "before the agent starts": ("holdfast.agents.bench:SandboxBench", "run", False),
    "the agent has ended": ("holdfast.agents.bench:SandboxBench", "run", True),
    "before the capture": ("holdfast.engine.measuring:Measuring", "measure", False),
    "after the capture": ("holdfast.workspace.shadow:Shadow", "capture", True),
    "the work was measured": ("holdfast.engine.measuring:Measuring", "measure", True),
    "the breaker was told": ("holdfast.engine.breaker:Breakers", "report", True),
    "before the talk is kept": ("holdfast.store.transcripts:Transcript", "keep", False),
    "the talk was kept": ("holdfast.store.transcripts:Transcript", "keep", True),
    "before the ledger": ("holdfast.store.ledger:Ledger", "append", False),
    "after the ledger": ("holdfast.store.ledger:Ledger", "append", True),
    "before the simulation is kept": ("holdfast.engine.simulator", "save_simulation", False),
}
WORKS = "working, and done"


@pytest.fixture
def token() -> str:
    """By which the agent's processes are known on the host."""
    return f"hf-crash-{os.urandom(6).hex()}"


@pytest.fixture
def ground(tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch) -> Ground:
    monkeypatch.setenv("LOCAL_MODEL_KEY", "not-a-key")
    ground = project(tmp_path / "workspace", {"notes.txt": b"nothing yet\n"})
    text = f": {token}; echo new > notes.txt; echo {WORKS}; $SLOW"
    quick, slow = (json.dumps(["/bin/sh", "-c", text.replace("$SLOW", end)]) for end in ("true", "sleep 300; true"))
    common = 'network = "proxy"\nprovider = "local"\n'
    provider = '[providers.local]\nurl = "http://127.0.0.1:9"\napi = ["openai"]\nkey_env = "LOCAL_MODEL_KEY"\n'
    configured(f"[agents.quick]\ncommand = {quick}\n{common}[agents.slow]\ncommand = {slow}\n{common}{provider}")
    return ground


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def dying(owner: str, name: str, after: bool) -> None:
    """In a child only: the next call of this is the last thing that happens."""
    holder = resolve_name(owner)
    plain = getattr(holder, name)

    def call(*words: Any, **options: Any) -> Any:
        if not after:
            die()
        plain(*words, **options)
        die()

    setattr(holder, name, call)


def alive(token: str) -> Iterator[int]:
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if token.encode() in words:
            yield int(name)


def judge(ground: Ground, before: dict[str, Any], token: str) -> None:
    """What must hold after the kill, and after the next verb."""
    assert ground.tree() == before
    deadline = time.monotonic() + 2
    while list(alive(token)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(alive(token)) == []
    transcripts = ground.state / "transcripts"
    places = [Path(tempfile.gettempdir()) / f"holdfast-{path.stem}" for path in transcripts.glob("*.jsonl")]
    after = ground.reopened()
    after.hf.recover()
    assert after.tree() == before
    assert os.listdir(after.state / "shadows") == []
    assert not transcripts.exists() or os.listdir(transcripts) == []
    assert [place for place in places if place.exists()] == []
    assert after.hf.audit().ok
    assert after.journal() == []
    simulated = after.hf.simulate(plan_for("quick", Given(task="Note it.")))
    after.hf.execute(simulated, approved_by=ME, consent=simulated.plan.id)
    assert (after / "notes.txt").read_text() == "new\n"


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_around_an_agent_s_work_leaves_nothing(
    moment: str, ground: Ground, token: str, kill_points: Counted
) -> None:
    """The workspace is as before to the byte, the ledger is whole, and the next verb sweeps what was left."""
    before = ground.tree()

    def act() -> None:
        own = Ground(ground.path)
        dying(*MOMENTS[moment])
        own.hf.simulate(plan_for("quick", Given(task="Note it.")))

    assert in_child(act) == -signal.SIGKILL
    judge(ground, before, token)
    kill_points(1)


def test_a_kill_while_the_agent_works_ends_the_agent(ground: Ground, token: str, kill_points: Counted) -> None:
    """Its program would go on for minutes; two seconds later it is gone, with everything that it had."""
    before = ground.tree()

    def watcher(happening: Happening) -> None:
        if isinstance(happening, Said) and happening.text == WORKS:
            assert list(alive(token)), "the agent should be at work now"
            die()

    def act() -> None:
        Ground(ground.path).hf.simulate(plan_for("slow", Given(task="Note it.")), watcher=watcher)

    assert in_child(act) == -signal.SIGKILL
    assert list((ground.state / "transcripts").glob("*.jsonl"))
    judge(ground, before, token)
    kill_points(1)


def test_a_sweep_leaves_work_that_is_under_way_alone(ground: Ground, token: str) -> None:
    """Another verb at the same time sees shadow, socket and transcript, and knows that they are in use."""
    looked: list[tuple[int, int]] = []

    def watcher(happening: Happening) -> None:
        if isinstance(happening, Said) and happening.text == WORKS:
            other = Ground(ground.path)
            other.hf.recover()
            found = os.listdir(ground.state / "shadows"), os.listdir(ground.state / "transcripts")
            looked.append((len(found[0]), len(found[1])))
            other.hf.close()

    simulated = ground.hf.simulate(plan_for("quick", Given(task="Note it.")), watcher=watcher)
    assert tuple(simulated.change_set.paths) == ("notes.txt",)
    assert looked == [(1, 1)]
    assert delegations(ground)[0]["asked"] != ""
