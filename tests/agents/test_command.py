"""Any program as an agent: how it is found, what it is shown and told, and what is made of its end."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delegated import PYTHON, Given, configured, delegations, plan_for, project
from guarded import Ground
from holdfast.agents.command import CommandAgent, installation
from holdfast.agents.registry import agent_named, every_agent
from holdfast.engine.candidates import candidate_of
from holdfast.engine.needs import needs_of
from holdfast.engine.router import choose
from holdfast.errors import AgentFailed, Blocked, HoldfastError, InvalidInput
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.configuration import Settings
from holdfast.store.adapters import Adapter

HELLO = Given(task="Say hello.")


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return project(tmp_path / "workspace", {"notes.txt": b"nothing yet\n"})


def program(place: Path, text: str) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)
    return place


def done(ground: Ground, command: list[str], given: Given = HELLO, more: str = "") -> dict[str, str]:
    """Let it work; what it left, by path."""
    # A list of texts is written in TOML as it is in JSON.
    configured(f"[agents.mine]\ncommand = {json.dumps(command)}\n{more}")
    simulated = ground.hf.simulate(plan_for("mine", given))
    execution = ground.hf.execute(simulated, approved_by="tester", consent=simulated.plan.id)
    assert execution.status == "COMPLETED"
    return {path: (ground / path).read_text() for path in simulated.change_set.paths}


# ── found and shown ──


@pytest.mark.parametrize("place", ["/bin/sh", "/usr/bin/sh", "/usr/bin/python3", "/usr/local/bin/x", "/sbin/x"])
def test_what_every_sandbox_shows_is_not_shown_again(place: str) -> None:
    """Above all not the root of the file system, where /bin has lib beside it."""
    assert installation(place) == ()


def test_a_virtual_environment_and_its_interpreter_are_shown(tmp_path: Path) -> None:
    """Link after link: the environment, and the installation that it leads to."""
    program(tmp_path / "base/bin/python3.11", "")
    (tmp_path / "base/lib").mkdir()
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/pyvenv.cfg").write_text("")
    (tmp_path / "venv/bin/python").symlink_to("../../base/bin/python3.11")
    assert installation(str(tmp_path / "venv/bin/python")) == (str(tmp_path / "venv"), str(tmp_path / "base"))


def test_a_program_alone_is_shown_alone(tmp_path: Path) -> None:
    """Not its folder, and not the folder above."""
    place = program(tmp_path / "bin/agent", "")
    assert installation(str(place)) == (str(place),)
    other = program(tmp_path / "tools/agent", "")
    assert installation(str(other)) == (str(other),)


def test_a_name_that_only_begins_like_the_system_s_is_shown() -> None:
    """/usrlocal is not /usr."""
    assert installation("/binaries/agent") == ("/binaries/agent",)


@pytest.mark.parametrize("prefix", ["", ".local"])
def test_a_home_is_never_shown_for_a_program_in_it(prefix: str, home: Path) -> None:
    """Also where it has a `lib` beside its `bin`, as homes and `.local` often do."""
    (home / ".local/share").mkdir(parents=True)
    (home / prefix / "lib").mkdir(parents=True)
    place = program(home / prefix / "bin/agent", "")
    assert installation(str(place)) == (str(place),)


def test_links_in_a_circle_end(tmp_path: Path) -> None:
    """A program that leads to itself is nobody's program, and nothing waits for it."""
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert set(installation(str(tmp_path / "a"))) == {str(tmp_path / "a"), str(tmp_path / "b")}


@pytest.mark.parametrize("command", [(), ("no-such-program-here",), ("/nonexistent/agent",)])
def test_a_command_that_is_not_there_is_told(command: tuple[str, ...]) -> None:
    """Not usable, with the reason; nothing was started."""
    agent = CommandAgent(AgentSettings("mine", command=command))
    assert agent.validate()
    health = agent.health()
    assert (health.installed, health.usable) == (False, False)
    assert health.why_not and health.hint


def test_a_shim_is_not_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version manager's stand-in would not find what it stands for inside."""
    program(tmp_path / "shims/agent", "#!/bin/sh\n")
    real = program(tmp_path / "real/agent", "#!/bin/sh\n")
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:relative:{tmp_path}/real")
    assert CommandAgent(AgentSettings("mine", command=("agent",)))._place() == str(real)


def test_a_program_of_the_shell_works(ground: Ground) -> None:
    """/bin/sh by its absolute path, which once would have shown the whole host."""
    assert done(ground, ["/bin/sh", "-c", "echo hello > hello.txt"]) == {"hello.txt": "hello\n"}


def test_an_interpreter_of_ours_works(ground: Ground) -> None:
    """A virtual environment outside the system's folders runs as it does outside."""
    text = "import sys; open('where.txt', 'w').write(sys.prefix)"
    assert done(ground, [sys.executable, "-c", text]) == {"where.txt": sys.prefix}


def test_only_the_named_file_is_shown(ground: Ground, tmp_path: Path) -> None:
    """The script is there; what lies beside it is not, nor is the home of the user."""
    script = program(
        tmp_path / "mine/agent.py",
        "import os, sys\n"
        "beside = os.path.join(os.path.dirname(sys.argv[0]), 'key')\n"
        f"seen = [os.path.exists(path) for path in (sys.argv[0], beside, {str(Path.home())!r} + '/secret')]\n"
        "open('seen.txt', 'w').write(str(seen))\n",
    )
    (tmp_path / "mine/key").write_text("x")
    (Path.home() / "secret").write_text("x")
    assert done(ground, [PYTHON, str(script)]) == {"seen.txt": "[True, False, False]"}


def test_more_is_shown_when_the_user_says_so(ground: Ground, tmp_path: Path) -> None:
    """`readable` adds a folder, read-only."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data/table.csv").write_text("1,2\n")
    text = f"cp {tmp_path}/data/table.csv . && ! touch {tmp_path}/data/new"
    assert done(ground, ["/bin/sh", "-c", text], more=f"readable = ['{tmp_path}/data']\n") == {"table.csv": "1,2\n"}


# ── told ──


def test_the_task_is_in_a_file_and_in_the_environment(ground: Ground) -> None:
    """Word for word, with what the shell would take apart left whole."""
    task = 'Say "$HOME" and `ls`; then\nnothing — more.'
    text = 'cat "$1" > file.txt; printf %s "$HOLDFAST_TASK" > variable.txt'
    found = done(ground, ["/bin/sh", "-c", text, "sh", "{task_file}"], Given(task=task))
    assert task in found["file.txt"]
    assert found["file.txt"] == found["variable.txt"]


def test_the_environment_is_made_from_nothing(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the user's comes in, whatever its name."""
    monkeypatch.setenv("SOME_API_KEY", "not-for-agents")
    monkeypatch.setenv("LD_PRELOAD", "")
    found = done(ground, ["/bin/sh", "-c", "env > env.txt"])["env.txt"]
    names = {line.partition("=")[0] for line in found.splitlines() if "=" in line}
    assert "not-for-agents" not in found
    assert names & set(os.environ) <= {
        "PATH",
        "HOME",
        "LANG",
        "TERM",
        "NO_COLOR",
        "TMPDIR",
        "PWD",
        "SHLVL",
        "_",
        "OLDPWD",
    }
    assert {"HOLDFAST_TASK", "HOME", "PATH"} <= names


def test_what_it_prints_is_its_claim(ground: Ground) -> None:
    """The end of it, bounded; standard error too."""
    text = "echo first; yes middle | head -c 100000; echo done >&2; echo x > x.txt"
    done(ground, ["/bin/sh", "-c", text])
    (attempt,) = delegations(ground)[0]["attempts"]
    assert attempt["claimed"]["words"].endswith("done")
    assert "first" not in attempt["claimed"]["words"]
    assert len(attempt["claimed"]["words"]) <= 2000


@pytest.mark.parametrize(
    ("text", "ending", "detail"),
    [
        ("echo x > x.txt; exit 3", "failed", "it exited with 3"),
        ("echo x > x.txt; kill -15 $$", "killed", "it was ended by signal 15"),
    ],
)
def test_how_it_ended_is_measured(ground: Ground, text: str, ending: str, detail: str) -> None:
    """Work of a program that did not end well is not taken, however good it looks."""
    with pytest.raises(HoldfastError, match=detail):
        done(ground, ["/bin/sh", "-c", text])
    assert delegations(ground)[0]["attempts"][0]["measured"]["ending"] == ending


def test_a_program_that_cannot_run_inside_is_told(ground: Ground, tmp_path: Path) -> None:
    """A script whose interpreter is not there: exit 2, and nothing is counted against the agent."""
    script = program(tmp_path / "agent", "#!/nonexistent/interpreter\n")
    with pytest.raises(InvalidInput, match="cannot be started"):
        done(ground, [str(script)])
    assert delegations(ground) == []


@pytest.mark.parametrize(("network", "works"), [(None, True), ("none", True), ("proxy", False), ("full", False)])
def test_what_has_no_network_works_offline(network: Any, works: bool) -> None:
    """A task that must be done offline can be given to it, and to nobody who is given a network."""
    agent = CommandAgent(AgentSettings("mine", command=("sh",), network=network))
    candidate = candidate_of("mine", agent.capabilities, agent.health(), Adapter("mine"), 0)
    needs = needs_of("Create a.txt, offline")
    if works:
        assert choose("t", needs, [candidate]).agent == "mine"
    else:
        with pytest.raises(Blocked, match="cannot work without a network"):
            choose("t", needs, [candidate])


# ── over ACP ──

# Asks before it writes, reaches no model, and says what it did. Anything but ACP on its standard input ends it.
SPEAKS = """
import json, os, sys

def read():
    return json.loads(sys.stdin.readline())

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def update(kind, **fields):
    send(method="session/update", params={"sessionId": "s-1", "update": {"sessionUpdate": kind, **fields}})

asked = read()
assert asked["method"] == "initialize", asked
send(id=asked["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
asked = read()
assert asked["method"] == "session/new", asked
send(id=asked["id"], result={"sessionId": "s-1"})
asked = read()
assert asked["method"] == "session/prompt", asked
path = os.path.join(os.getcwd(), "hello.txt")
kinds = {"go": "allow_once", "no": "reject_once"}
options = [{"optionId": name, "name": name, "kind": kind} for name, kind in kinds.items()]
call = {"toolCallId": "c-1", "title": "Write hello.txt", "locations": [{"path": path}]}
update("tool_call", **call, status="pending")
send(id=77, method="session/request_permission", params={"sessionId": "s-1", "toolCall": call, "options": options})
assert read()["result"]["outcome"]["optionId"] == "go"
with open(path, "w") as file:
    file.write("yes\\n" if "Say hello." in asked["params"]["prompt"][0]["text"] else "no\\n")
update("tool_call_update", toolCallId="c-1", status="completed")
update("agent_message_chunk", content={"type": "text", "text": "I said hello."})
send(id=asked["id"], result={"stopReason": "end_turn"})
"""


def test_a_command_that_speaks_acp_is_spoken_to_over_it(ground: Ground, tmp_path: Path) -> None:
    """It is greeted, asked and answered like any ACP agent, in the sandbox, and recorded so."""
    speaks = program(tmp_path / "speaks.py", SPEAKS)
    assert done(ground, [PYTHON, str(speaks)], more='transport = "acp"') == {"hello.txt": "yes\n"}
    (entry,) = delegations(ground)
    (attempt,) = entry["attempts"]
    assert attempt["transport"] == "acp"
    assert (attempt["claimed"]["words"], attempt["claimed"]["success"]) == ("I said hello.", True)


def test_a_command_that_does_not_speak_acp_fails_with_that_reason(ground: Ground) -> None:
    """Nobody falls back to another way of starting it than the one that was asked for."""
    with pytest.raises(AgentFailed, match="it does not speak ACP"):
        done(
            ground,
            ["/bin/sh", "-c", "echo hello > hello.txt; yes usage | head -n 2000; exec sleep 60"],
            more='transport = "acp"',
        )
    assert delegations(ground)[0]["attempts"][0]["transport"] == "acp"


def test_a_table_without_a_command_is_an_agent_that_cannot_be_used() -> None:
    """It is listed with what it lacks, and hides nobody else; a name without a table is not among those known."""
    settings = replace(Settings(), agents=(AgentSettings("mine"), AgentSettings("other", command=("/bin/sh",))))
    health = {agent.name: agent.health() for agent in every_agent(settings)}
    assert health["other"].usable
    assert (health["mine"].usable, health["mine"].why_not) == (False, "it has no command")
    assert "[agents.mine]" in health["mine"].hint
    with pytest.raises(InvalidInput, match="there is no agent nobody") as caught:
        agent_named("nobody", settings)
    known = caught.value.hint.partition("Known: ")[2].partition(".")[0].split(", ")
    assert "other" in known and "manual" in known and not {"mine", "nobody"} & set(known)
