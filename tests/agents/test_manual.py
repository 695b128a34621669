"""A person as an agent: they work in a copy, and what they made there takes the same road as anybody's work."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.benches import bench_at
from guarded import ME, Ground, contents, guard, tree_of
from holdfast.agents.manual import Manual, instructions
from holdfast.errors import AgentFailed
from holdfast.model.agent import Request
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.configuration import Transport
from holdfast.model.plan import Agent, Plan

TASK = Request("Make hello.py.", files=("README.md",), expected=("hello.py",))
MANUAL = Manual(AgentSettings("manual"))
PLAN = Plan("by hand", (Agent("manual", "Make hello.py.", (), ("hello.py",), attempts=1),))
OTHER = 4321


def at_work(act: Callable[[Path], object], done: bool = True) -> Callable[[str, str], bool]:
    """A person who does this, and says so."""

    def work(instructions: str, directory: str) -> bool:
        act(Path(directory))
        return done

    return work


def make(directory: Path) -> None:
    (directory / "hello.py").write_bytes(b"print('hello')\n")


def test_a_person_is_told_what_to_do_and_where(tmp_path: Path) -> None:
    """The task, the files, and a directory that is not the workspace; what they say is a claim."""
    told: list[tuple[str, str]] = []

    def work(text: str, directory: str) -> bool:
        told.append((text, directory))
        return True

    with bench_at(tmp_path, {"README.md": b"x"}, kind="copy", person=work) as site:
        result = MANUAL.work(TASK, site.bench)
        assert (result.ending, result.transport, result.claim.success) == ("finished", "manual", True)
        text, directory = told[0]
        assert text == instructions(TASK)
        assert Path(directory, "README.md").read_bytes() == b"x"
        assert not os.path.samefile(directory, tmp_path / "workspace")


@pytest.mark.parametrize("kind", ["auto", "copy"])
def test_without_a_person_nothing_is_done(kind: str, tmp_path: Path) -> None:
    """Nobody at the terminal is told as that, and waits for nothing."""
    with bench_at(tmp_path, {}, kind="copy" if kind == "copy" else "auto") as site:
        result = MANUAL.work(TASK, site.bench)
        assert (result.ending, result.claim.success) == ("failed", False)
        assert result.detail


def test_layers_cannot_be_worked_in_by_hand(tmp_path: Path) -> None:
    """They are put together in the sandbox alone: nobody is called to a directory that shows half of it."""
    called: list[str] = []
    with bench_at(tmp_path, {"a": b"a"}, person=lambda text, directory: not called.append(directory)) as site:
        if site.shadow.kind == "copy":
            pytest.skip("this host has no overlays")
        assert MANUAL.work(TASK, site.bench).ending == "failed"
        assert called == []


def test_instructions_cannot_pose_as_ours() -> None:
    """What comes from files and programs has nothing in it that moves the cursor or ends a line."""
    text = instructions(
        Request("do\x1b[2J\nTask: other", files=("a\nb",), expected=("c\x1b",), evidence="1\n\x1b[31m2")
    )
    assert "\x1b" not in text
    assert text.splitlines()[0].startswith("Task: do")
    assert len(text.splitlines()) == 6


def manual(ground: Ground, act: Callable[[Path], object], done: bool = True) -> None:
    simulated = ground.hf.simulate(PLAN, person=at_work(act, done))
    ground.hf.execute(simulated, approved_by=ME)


def test_the_work_of_a_person_lands_and_can_be_undone(tmp_path: Path) -> None:
    """Through all gates, like the work of any agent."""
    ground = guard(tmp_path / "workspace", {"README.md": b"A project.\n"})
    before = ground.tree()

    def work(directory: Path) -> None:
        make(directory)
        (directory / "README.md").write_bytes(b"Another.\n")
        assert tree_of(ground.path) == before

    manual(ground, work)
    assert contents(ground.tree()) == {"README.md": b"Another.\n", "hello.py": b"print('hello')\n"}
    ground.hf.undo(ground.hf.last.id, approved_by=ME)
    assert contents(ground.tree()) == contents(before)


@pytest.mark.parametrize("done", [True, False])
def test_a_person_who_did_nothing_or_gave_up_has_not_done_it(done: bool, tmp_path: Path) -> None:
    """Their word is a claim; half of their work does not land either."""
    ground = guard(tmp_path / "workspace", {})
    with pytest.raises(AgentFailed):
        manual(ground, (lambda directory: None) if done else make, done)
    assert ground.tree() == {}


@pytest.mark.root
def test_what_root_makes_by_hand_belongs_to_root(tmp_path: Path) -> None:
    """Owners in a copy are shifted, and those of new files are not: both land as the person would have left them."""
    ground = guard(tmp_path / "workspace", {"theirs": b"old", "kept": b"k", "folder/": b""})
    for name in ("theirs", "kept", "folder"):
        os.chown(ground / name, OTHER, OTHER)
    os.chmod(ground / "theirs", 0o640)

    def work(directory: Path) -> None:
        make(directory)
        (directory / "folder" / "new").mkdir()
        (directory / "folder" / "new" / "link").symlink_to("../../kept")
        (directory / "folder" / "new" / "script").write_bytes(b"#!/bin/sh\n")
        os.chmod(directory / "folder" / "new" / "script", 0o755)
        with open(directory / "theirs", "r+b") as file:
            file.write(b"new")

    manual(ground, work)
    tree = ground.tree()
    owners = {path: thing.owner for path, thing in tree.items()}
    assert owners == {
        "theirs": (OTHER, OTHER),
        "kept": (OTHER, OTHER),
        "folder": (OTHER, OTHER),
        "folder/new": (0, 0),
        "folder/new/link": (0, 0),
        "folder/new/script": (0, 0),
        "hello.py": (0, 0),
    }
    assert tree["theirs"].content == b"new"
    assert (tree["theirs"].mode, tree["folder/new/script"].mode) == (0o640, 0o755)


@pytest.mark.parametrize("transport", ["acp", "headless", "api"])
def test_a_person_has_no_transport(transport: Transport) -> None:
    """Configuration that says how to start one is a mistake, and is told."""
    told = Manual(AgentSettings("manual", transport=transport))
    assert (told.health().usable, told.validate()) == (False, (f"manual is a person and has no transport {transport}",))
    assert (MANUAL.health().usable, MANUAL.validate()) == (True, ())
