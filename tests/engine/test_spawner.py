"""The process spawner and the pattern executor: what the Python API offers under the names of other tools."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guarded import ME, Ground, contents, guard
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.model.agent import AdapterResult, Request
from holdfast.testing import ScriptedAgent
from holdfast.testing.agents import Exit
from holdfast.testing.script import Say, WriteFile

SHELL = "/bin/sh"


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    made = guard(tmp_path / "workspace", {"a.txt": b"old\n", "sub/b.txt": b"b\n"})
    yield made
    made.hf.close()


def test_a_spawned_program_works_in_a_shadow(ground: Ground) -> None:
    """It gets its arguments, environment and directory; what it changed is named, and the workspace is untouched."""
    before = ground.tree()
    script = 'echo "$1 $COLOUR $(pwd)"; echo new > b.txt; echo more > c.txt'
    result = ground.hf.spawner.spawn(SHELL, ["-c", script, "sh", "one; two"], {"COLOUR": "blue"}, "sub")
    assert result.success
    assert result.output == f"one; two blue {ground.path}/sub\n"
    assert result.artifacts == ("sub/b.txt", "sub/c.txt")
    assert result.error == ""
    assert result.duration_ms >= 0
    assert ground.tree() == before


def test_a_spawned_program_inherits_nothing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret of the caller's environment is not in that of the program."""
    monkeypatch.setenv("API_TOKEN", "harmless")
    result = ground.hf.spawner.spawn("/usr/bin/env")
    names = {line.partition("=")[0] for line in result.output.splitlines()}
    assert "PATH" in names
    assert "API_TOKEN" not in names


@pytest.mark.parametrize(
    ("command", "arguments", "timeout", "error"),
    [
        (SHELL, ("-c", "echo oh; exit 3"), 60.0, "exited with 3\noh"),
        (SHELL, ("-c", "kill -9 $$"), 60.0, "signal 9"),
        ("/bin/sleep", ("60",), 0.3, "sleep"),
        ("/no/such/program", (), 60.0, "cannot be started"),
    ],
)
def test_a_program_that_fails_is_a_result(
    ground: Ground, command: str, arguments: tuple[str, ...], timeout: float, error: str
) -> None:
    """A bad exit code, a signal, a time-out and a program that is not there are told in `error`, and raise nothing."""
    result = ground.hf.spawner.spawn(command, arguments, timeout=timeout)
    assert not result.success
    assert error in result.error


@pytest.mark.parametrize(("cwd", "timeout"), [("../elsewhere", 1.0), ("/etc", 1.0), (".", 0.0)])
def test_a_call_that_makes_no_sense_is_refused(ground: Ground, cwd: str, timeout: float) -> None:
    """A directory outside of the workspace and a time-out of nothing are refused before anything starts."""
    with pytest.raises(InvalidInput):
        ground.hf.spawner.spawn("/bin/true", cwd=cwd, timeout=timeout)


@pytest.mark.parametrize(
    "given",
    [
        {"arguments": "-l"},
        {"arguments": ["-n", 1]},
        {"environment": {"A=B": "c"}},
        {"environment": {"A": 1}},
        {"timeout": "3"},
        {"timeout": float("inf")},
        {"command": ""},
        {"cwd": "link"},
        {"cwd": "link/below"},
    ],
    ids=str,
)
def test_what_is_no_word_for_a_program_is_refused(ground: Ground, given: dict[str, Any]) -> None:
    """A text in place of a list would become one argument for each letter; links lead out of the workspace."""
    os.symlink("/usr", os.path.join(ground.path, "link"))
    with pytest.raises(InvalidInput):
        ground.hf.spawner.spawn(**{"command": "/bin/true", **given})


def test_a_shadow_leaves_nothing_behind(ground: Ground) -> None:
    """What an agent made for its caller to look at is not kept as a simulation that could land."""
    agent = ScriptedAgent(WriteFile("a.txt", "new\n"), name="mock")
    assert ground.hf.spawner.spawn_adapter("mock", Request("Change a.txt"), agents={"mock": agent}).success
    kept = Path(ground.path) / ".holdfast" / "simulations"
    assert not kept.exists() or list(kept.iterdir()) == []


def test_an_adapter_is_measured(ground: Ground) -> None:
    """The result of an agent holds what it said and what it really changed; nothing of it lands."""
    before = ground.tree()
    agent = ScriptedAgent(WriteFile("a.txt", "new\n"), Say("I changed everything."), name="mock")
    result = ground.hf.spawner.spawn_adapter("mock", Request("Change a.txt"), agents={"mock": agent})
    assert result._replace(duration_ms=0) == AdapterResult(True, "I changed everything.", "", 0, ("a.txt",))
    assert ground.tree() == before


@pytest.mark.parametrize("acts", [(Say("All done."),), (WriteFile("x", "x"), Exit(3))])
def test_an_adapter_that_only_claims_has_no_success(ground: Ground, acts: tuple[Say | WriteFile | Exit, ...]) -> None:
    """An agent that changed nothing, and one that failed, has no success, whatever it says; the reason is told."""
    agent = ScriptedAgent(*acts, name="mock", claims=True)
    result = ground.hf.spawner.spawn_adapter("mock", Request("Change a.txt"), agents={"mock": agent})
    assert not result.success
    assert "mock did not do the task" in result.error


def test_a_pattern_executor(ground: Ground) -> None:
    """A pattern has a schema, says what is wrong with inputs as a list, and makes a plan that lands as any other."""
    executor = ground.hf.pattern("module_creation_python_package")
    assert executor.json_schema["type"] == "object"
    assert executor.validate_inputs(executor.pattern.example) == []
    wrong = executor.validate_inputs({"name": 7, "nonsense": True})
    assert len(wrong) >= 2
    assert any("nonsense" in sentence for sentence in wrong)
    every = executor.validate_inputs({"nonsense": True, "rubbish": 1})
    assert [sentence.split(" is ")[0] for sentence in every] == ["name", "summary", "nonsense", "rubbish"]
    assert executor.validate_inputs([]) == ["the inputs must be a table, not a list"]  # type: ignore[arg-type]
    with pytest.raises(HoldfastError):
        executor.execute({"name": 7})
    plan = executor.execute(executor.pattern.example)
    ground.hf.execute(ground.hf.simulate(plan), approved_by=ME)
    assert len(contents(ground.tree())) > 2
