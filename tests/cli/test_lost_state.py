"""A state that is gone while its anchor is there: said loudly, and never replaced without consent."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.errors import InvalidInput, StateLost
from holdfast.store.state import create_state

_CHANGE = {"intent": "Change", "steps": [{"write": "old.txt", "content": "new\n"}]}


def _git(directory: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(directory), *words], check=True, capture_output=True)


@pytest.fixture
def cleaned(guarded: Any) -> tuple[Any, str]:
    """A repository with a change in its history, after `git clean -fdx`; and the id that the workspace had."""
    directory = guarded.directory
    _git(directory, "init", "-q")
    _git(directory, "add", "-A")
    _git(directory, "commit", "-qm", "all")
    id = str(guarded("status", "--json").document["id"])
    assert guarded.apply(_CHANGE).status == 0
    _git(directory, "clean", "-fdxq")
    assert not (directory / ".holdfast").exists()
    return guarded, id


@pytest.mark.crash
@pytest.mark.parametrize("words", [["init"], ["status"], ["log"], ["undo", "e-aaaa"], ["apply", "-"], ["recover"]])
def test_every_verb_tells_that_the_state_is_gone(cleaned: tuple[Any, str], words: list[str]) -> None:
    """After `git clean -fdx` each verb, init too, ends with 12, names the workspace and makes nothing."""
    program, id = cleaned
    ran = program(*words, "--json", stdin=json.dumps(_CHANGE))
    assert ran.status == 12
    error = json.loads(ran.out)["error"]
    assert error["code"] == "state_lost" and error["changed"] is False
    assert id in error["message"] and "is gone" in error["message"]
    assert not (program.directory / ".holdfast").exists()


def test_the_way_on_can_be_pasted_and_is_recorded(cleaned: tuple[Any, str]) -> None:
    """The hint's own command starts a new history, whose ledger names the one that was given up."""
    program, id = cleaned
    hint = program("init").err
    found = re.search(r"holdfast (-C \S+ init --forget \S+)", hint)
    assert found is not None
    assert program.fresh(*found[1].split()).status == 0
    with holdfast.open(str(program.directory)) as hf:
        first = next(iter(hf.ledger.entries()))
        assert hf.id != id
        assert first.body == {"workspace": hf.id, "given_up": [id]}
    assert program("init").status == 0
    assert program.apply(_CHANGE | {"steps": [{"write": "x", "content": ""}]}).status == 0


def test_a_backup_put_back_goes_on_as_before(guarded: Any, tmp_path: Path) -> None:
    """The state is restored from a backup of that moment: undo works, and nothing is said any more."""
    done = guarded.apply(_CHANGE).document["id"]
    shutil.copytree(guarded.directory / ".holdfast", tmp_path / "backup")
    shutil.rmtree(guarded.directory / ".holdfast")
    assert guarded("log").status == 12
    (tmp_path / "backup").rename(guarded.directory / ".holdfast")
    assert guarded("undo", done, "--yes").status == 0
    assert (guarded.directory / "old.txt").read_text() == "old\n"


def test_an_emptied_state_is_gone_too(guarded: Any) -> None:
    """`.holdfast` stands, but what was in it does not: init does not fill it with a new history."""
    for path in (guarded.directory / ".holdfast").iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert guarded("init").status == 12
    assert guarded("status").status == 12
    assert list((guarded.directory / ".holdfast").iterdir()) == []


def test_a_missing_format_file_can_be_put_back_by_pasting_the_hint(guarded: Any) -> None:
    """Where the ledger still stands nothing is given up: the hint restores the one file that is gone."""
    done = guarded.apply(_CHANGE).document["id"]
    (guarded.directory / ".holdfast" / "format").unlink()
    ran = guarded("init")
    assert ran.status == 12
    subprocess.run(["sh", "-c", ran.err.partition("Put it back with: ")[2]], check=True)
    assert guarded("undo", done, "--yes").status == 0


def test_a_workspace_around_it_does_not_take_its_place(guarded: Any) -> None:
    """Inside another workspace, a verb where the inner state is gone never works on the outer one."""
    inner = guarded.directory / "inner"
    inner.mkdir()
    holdfast.init(str(inner))
    shutil.rmtree(inner / ".holdfast")
    assert guarded("-C", "inner", "status").status == 12
    assert guarded("status").status == 0


def test_a_moved_workspace_is_not_missed_where_it_was(workspace: Path) -> None:
    """A workspace that was moved and opened since then leaves its old place free for another one."""
    holdfast.init(str(workspace))
    moved = workspace.rename(workspace.parent / "moved")
    holdfast.open(str(moved)).close()
    workspace.mkdir()
    assert holdfast.init(str(workspace)) != holdfast.init(str(moved))


def test_a_workspace_of_an_older_version_is_missed_once_it_was_opened(workspace: Path, home: Path) -> None:
    """Opening a workspace records its place, where whoever made it had not done so."""
    holdfast.init(str(workspace))
    shutil.rmtree(home / "xdg_state_home" / "holdfast" / "places")
    holdfast.open(str(workspace)).close()
    shutil.rmtree(workspace / ".holdfast")
    with pytest.raises(StateLost):
        holdfast.init(str(workspace))


def test_only_what_is_lost_can_be_given_up(workspace: Path) -> None:
    """`forget` with any other id is refused, and makes nothing."""
    with pytest.raises(InvalidInput, match="not a workspace that is missing here"):
        holdfast.init(str(workspace), forget="w-aaaa")
    assert not (workspace / ".holdfast").exists()


def test_doctor_tells_that_the_state_is_gone(cleaned: tuple[Any, str]) -> None:
    """The doctor still looks at the host, and names the missing state."""
    program, id = cleaned
    ran = program("doctor")
    assert ran.status != 0
    assert id in ran.out and "is gone" in ran.out


@pytest.mark.crash
def test_an_init_that_was_killed_while_it_gave_a_history_up_is_asked_again(cleaned: tuple[Any, str]) -> None:
    """The new state was made and its ledger was not begun: the same command completes it."""
    program, id = cleaned
    create_state(str(program.directory))
    program("log")
    assert program("init").status == 12
    assert program("init", "--forget", id).status == 0
    with holdfast.open(str(program.directory)) as hf:
        assert next(iter(hf.ledger.entries())).body["given_up"] == [id]
