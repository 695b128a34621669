"""Libraries driven by a file of ours in a process of its own: what a driver's end comes to, and how one is found."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from agents.benches import AgentBench, bench_at
from holdfast.agents import driven
from holdfast.agents.aider import Aider
from holdfast.agents.deep import Deep
from holdfast.agents.driven import Driver, Installed, drive, installed
from holdfast.agents.program import Missing
from holdfast.errors import InvalidInput
from holdfast.model.agent import Ending, Request, Result, Said, Usage, Used
from holdfast.model.agent_settings import AgentSettings

HERE = Installed(sys.executable, "1", ())
PRELUDE = """
import json, os, sys
def tell(what, **fields): print(json.dumps({"holdfast": what, **fields}), flush=True)
"""


def drove(site: AgentBench, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Result:
    folder = tmp_path / "drivers"
    folder.mkdir()
    (folder / "driver.py").write_text(PRELUDE + source, encoding="utf-8")
    monkeypatch.setattr(driven, "_DRIVERS", str(folder))
    return drive("library", HERE, Driver("driver.py", {"WORD": "w"}, (("notes", "n"),)), {"task": "t"}, site.bench)


def test_a_driver_has_its_orders_and_tells_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders come on standard input, files are in its HOME, and each line of its own is a happening."""
    source = """
orders = json.load(sys.stdin)
home = os.environ["HOME"]
open("made", "w").write(orders["task"] + os.environ["WORD"] + open(home + "/notes").read())
tell("used", call="1", title="edit made", status="begun", paths=["made"])
tell("used", call="1", title="edit made", status="done", paths=["made"])
print("the library says something")
tell("said", text="done")
tell("ended", success=True, words=" All done. ", input_tokens=5, output_tokens=2, tool_calls=1, cost=0.5)
"""
    with bench_at(tmp_path, {}) as site:
        result = drove(site, source, tmp_path, monkeypatch)
        assert (result.ending, result.detail, result.transport) == ("finished", "", "api")
        assert site.seen == [
            Used("1", "edit made", "begun", ("made",)),
            Used("1", "edit made", "done", ("made",)),
            Said("the library says something"),
            Said("done"),
        ]
        claim = result.claim
        assert (claim.words, claim.success, claim.tool_calls) == ("All done.", True, 1)
        assert claim.usage == Usage(0, 5, 2, 500_000)
        assert site.changed() == {"made": "new"}


class Case(NamedTuple):
    source: str
    ending: Ending
    detail: str


CASES = {
    "is done": Case("tell('ended', success=True)", "finished", ""),
    "has a wrong key": Case("tell('ended', error='E', status=401)", "unauthorized", "the model refused the key"),
    "may not use the model": Case("tell('ended', error='E', status=403)", "unauthorized", "the model refused the key"),
    "has a failing model": Case("tell('ended', error='oh', status=500)", "model_error", "its model failed: oh"),
    "says why it stopped": Case("tell('ended', error='e', why='out of turns')", "failed", "out of turns"),
    "does not say why": Case("tell('ended')", "failed", "it did not say why it stopped"),
    "claims success in a word": Case("tell('ended', success='yes')", "failed", "it did not say why it stopped"),
    "ends without a word": Case("print('{}')", "failed", "it ended without a word about its end"),
    "crashes": Case("raise ValueError('oh')", "failed", "it exited with 1"),
    "says it is done and crashes": Case("tell('ended', success=True); sys.exit(3)", "failed", "it exited with 3"),
    "is killed": Case("os.kill(os.getpid(), 9)", "killed", "it was ended by signal 9"),
    "has a model that says it is done": Case(
        "tell('ended', success=True)\ntell('ended', why='no')", "failed", "no"
    ),
    "sends odd shapes": Case(
        "tell('used'); tell('used', status=[1], call=7); tell('said', text={}); tell(7); print('[' * 9999)\n"
        "tell('used', status='done', paths=[1, 'a', None], call='c', title='t'); tell('ended', success=True)",
        "finished",
        "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_driver_that(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own last word decides, and only when it ended by itself with 0."""
    with bench_at(tmp_path, {}) as site:
        result = drove(site, case.source, tmp_path, monkeypatch)
        assert (result.ending, result.detail) == (case.ending, case.detail)


def test_the_last_words_of_a_driver_that_crashed_are_its_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that cannot be loaded says so on standard error."""
    with bench_at(tmp_path, {}) as site:
        result = drove(site, "import no_such_library", tmp_path, monkeypatch)
        assert "No module named 'no_such_library'" in result.claim.error
        assert result.claim.success is False


def test_nothing_in_the_workspace_is_imported_by_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the workspace named like one of Python's is not run."""
    hostile = b"open('/run/holdfast/home/hijacked', 'w')\n"
    with bench_at(tmp_path, {"colorsys.py": hostile, "sitecustomize.py": hostile}) as site:
        result = drove(site, "import colorsys\ntell('ended', success=True)", tmp_path, monkeypatch)
        assert result.ending == "finished"
        assert site.bench.read_home("hijacked") is None


def test_what_a_driver_tells_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines without end, and words without end, are cut."""
    source = "for n in range(30000): print('x')\ntell('ended', success=True, words='w' * 99999)"
    with bench_at(tmp_path, {}) as site:
        result = drove(site, source, tmp_path, monkeypatch)
        assert len(site.seen) == 20_000
        assert len(result.claim.words) == 16_000


# ── how a library is found ──


def environment_at(root: Path, *packages: str) -> Path:
    """Something that looks like a virtual environment; its python."""
    (root / "bin").mkdir(parents=True)
    (root / "pyvenv.cfg").write_text("")
    for package in packages:
        (root / "lib" / "python3.11" / "site-packages" / f"{package}.dist-info").mkdir(parents=True)
    for name in ("python3.11", "aider"):
        (root / "bin" / name).write_text("#!/bin/false\n")
        (root / "bin" / name).chmod(0o755)
    (root / "bin" / "python").symlink_to("python3.11")
    return root / "bin" / "python"


def test_a_library_is_found_in_its_environment(tmp_path: Path) -> None:
    """With its version, and with what has to be shown of the host: the environment, and no more."""
    python = environment_at(tmp_path / "venv", "aider_chat-0.86.2", "aider_chat_extra-9.9")
    assert installed(str(python), "aider-chat") == Installed(str(python), "0.86.2", (str(tmp_path / "venv"),))


@pytest.mark.parametrize("package", ["aider", "chat", "aider-chat"])
def test_another_library_is_not_taken_for_it(package: str, tmp_path: Path) -> None:
    """A name is a whole name."""
    python = environment_at(tmp_path / "venv", "aider_chat_extra-9.9")
    assert isinstance(installed(str(python), package), Missing)


def test_a_python_without_an_environment_is_refused(tmp_path: Path) -> None:
    """Its packages may lie in a home, of which nothing is shown."""
    python = environment_at(tmp_path / "venv", "aider_chat-1.0")
    (tmp_path / "venv" / "pyvenv.cfg").unlink()
    found = installed(str(python), "aider-chat")
    assert isinstance(found, Missing) and "pipx" in found.hint


def test_aider_is_found_through_the_links_of_its_installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pipx and uv link the command into a folder on PATH; the environment is where the link leads."""
    environment_at(tmp_path / "venv", "aider_chat-0.86.2")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "aider").symlink_to("../venv/bin/aider")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    health = Aider(AgentSettings("aider", model="m")).health()
    assert (health.installed, health.usable, health.version) == (True, True, "0.86.2")


@pytest.mark.parametrize("kind", [Aider, Deep])
def test_a_library_that_is_missing_says_how_to_get_it(
    kind: type[Aider] | type[Deep], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be used, with a reason and a hint; to work with it is refused."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(environment_at(tmp_path / "venv")))
    agent = kind(AgentSettings("it", model="m"))
    health = agent.health()
    assert (health.installed, health.usable) == (False, False)
    assert health.why_not and health.hint
    assert agent.validate() == (health.why_not,)
    with bench_at(tmp_path, {}) as site, pytest.raises(InvalidInput):
        agent.work(Request("t"), site.bench)


def test_deep_runs_on_the_python_that_was_linked_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the one that Holdfast runs on; both need the library."""
    linked = environment_at(tmp_path / "venv", "deepagents-0.7.32")
    own = environment_at(tmp_path / "own", "deepagents-0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "deepagents-python").symlink_to(os.path.relpath(linked, tmp_path / "bin"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(own))
    agent = Deep(AgentSettings("deep", model="m"))
    assert agent.health().version == "0.7.32"
    monkeypatch.setenv("PATH", "/usr/bin")
    assert agent.health().version == "0.1"


@pytest.mark.parametrize(
    ("provider", "model", "api"),
    [
        ("", "gpt-5.5", "openai"),
        ("", "claude-sonnet-4-5", "anthropic"),
        ("anthropic", "x", "anthropic"),
        ("mine", "claude-sonnet-4-5", "openai"),
    ],
)
def test_deep_speaks_the_wire_of_its_provider(provider: str, model: str, api: str) -> None:
    """Anthropic's where the provider, or for want of one the model, is theirs."""
    assert Deep(AgentSettings("deep", provider=provider, model=model)).api == api


@pytest.mark.parametrize("kind", [Aider, Deep])
def test_a_library_needs_the_name_of_a_model(kind: type[Aider] | type[Deep]) -> None:
    """And has one transport."""
    assert any("name of a model" in wrong for wrong in kind(AgentSettings("it")).validate())
    assert any("no transport acp" in wrong for wrong in kind(AgentSettings("it", transport="acp")).validate())
