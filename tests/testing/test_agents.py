"""The scripted agent, in a real shadow and the real sandbox; and the fixtures that users get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast.testing
from holdfast.model.agent import Request, Said, Used
from holdfast.testing.agents import Delete, Exit, ScriptedAgent
from holdfast.testing.script import EditFile, Hang, Say, Shell, WriteFile
from holdfast.workspace.site import Site
from shaded import changes, shaded
from testing.small_bench import LIMITS, working

pytest_plugins = ("pytester",)
FILES = {"app.py": b"def answer():\n    return 41\n", "old.txt": b"old\n", "tests/test_app.py": b"assert False\n"}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with shaded(tmp_path / "workspace", FILES) as found:
        yield found


def test_it_does_what_its_script_says(site: Site) -> None:
    """Writing, editing, deleting and commands happen in the shadow, are captured, and the workspace is untouched."""
    agent = ScriptedAgent(
        WriteFile("new/deep.txt", "new\n"),
        EditFile("app.py", "41", "42"),
        Delete("old.txt"),
        Delete("tests"),
        Shell("echo ran > ran.txt; echo not ours"),
        Shell(("/bin/touch", "with space")),
        Say("I did it."),
    )
    with working(site) as (bench, shadow):
        result = agent.work(Request("do it"), bench)
        assert changes(shadow.capture()) == {
            "app.py": "edited",
            "new": "new",
            "new/deep.txt": "new",
            "old.txt": "gone",
            "ran.txt": "new",
            "tests": "gone",
            "tests/test_app.py": "gone",
            "with space": "new",
        }
    assert (Path(site.path) / "app.py").read_bytes() == FILES["app.py"]
    assert (result.ending, result.exit_code, result.claim.words) == ("finished", 0, "I did it.")
    assert result.claim.tool_calls == 6
    assert any("pid namespace" in word for word in result.enforced)


def test_who_watches_sees_it(site: Site) -> None:
    """Words and work are told as they happen; work that fails is told as failed, and ends the program."""
    agent = ScriptedAgent(Say("I begin."), WriteFile("a", ""), EditFile("app.py", "nowhere", "x"), Say("never said"))
    with working(site) as (bench, _):
        result = agent.work(Request("do it"), bench)
        assert bench.seen == [
            Said("I begin."),
            Used("1", "write", "begun", ("a",)),
            Used("1", "write", "done", ("a",)),
            Used("2", "edit", "begun", ("app.py",)),
            Used("2", "edit", "failed", ("app.py",)),
        ]
    assert (result.ending, result.exit_code) == ("failed", 1)


def test_it_can_lie(site: Site) -> None:
    """A claim is whatever the script wants it to be, beside what was measured."""
    agent = ScriptedAgent(Say("All tests pass."), Exit(3), claims=True)
    with working(site) as (bench, shadow):
        result = agent.work(Request("do it"), bench)
        assert changes(shadow.capture()) == {}
    assert (result.claim.success, result.claim.words) == (True, "All tests pass.")
    assert (result.ending, result.exit_code, result.detail) == ("failed", 3, "it exited with 3")


def test_later_attempts_can_differ(site: Site) -> None:
    """An attempt is known by the session of the one before; from the named attempt on, other acts are done."""
    agent = ScriptedAgent(Exit(1), later={3: (Say("third"),)})
    told, session = [], ""
    with working(site) as (bench, _):
        for _ in range(4):
            result = agent.work(Request("do it", session=session), bench)
            session = result.claim.session
            told.append((result.exit_code, result.claim.words))
    assert told == [(1, ""), (1, ""), (0, "third"), (0, "third")]


def test_it_can_hang(site: Site) -> None:
    """A script that hangs is ended by the time limit, and the limit is named."""
    with working(site, LIMITS._replace(time_ms=500)) as (bench, _):
        result = ScriptedAgent(Hang(3600)).work(Request("do it"), bench)
    assert (result.ending, result.limit, result.exit_code) == ("limit", "time", None)


def test_a_script_for_no_attempt_is_invalid() -> None:
    """Attempts are counted from one."""
    assert ScriptedAgent(later={0: ()}).validate() == ("scripted: there is no attempt 0",)
    assert ScriptedAgent().validate() == ()
    assert ScriptedAgent().health().usable


def test_every_public_name_is_there() -> None:
    """What the package says it has, it has; what it has not, it says."""
    assert all(getattr(holdfast.testing, name) is not None for name in holdfast.testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        getattr(holdfast.testing, "Nothing")  # noqa: B009


def test_the_fixtures(pytester: pytest.Pytester) -> None:
    """A project with the plugin gets a model that listens, agents, the hostile ones, and a repository to work in."""
    pytester.makepyfile(
        """
        import json, urllib.request
        from holdfast.testing.script import Say

        def test_model(scripted_model):
            model = scripted_model(Say("Hello."), keys=("k",))
            asked = urllib.request.Request(f"{model.url}/v1/models", headers={"x-api-key": "k"})
            with urllib.request.urlopen(asked) as answer:
                assert json.load(answer)["data"][0]["id"] == "scripted"

        def test_agents(scripted_agent, hostile_agents):
            assert scripted_agent(Say("x"), name="me").name == "me"
            assert {agent.name for agent in hostile_agents} >= {"idle", "daemon", "policy"}

        def test_names_of_other_tools(mock_adapter, temp_repo):
            import holdfast
            from holdfast.model.agent import Request
            from holdfast.testing.script import WriteFile
            agent = mock_adapter(WriteFile("a.txt", "new"), Say("Done."), name="mock")
            with holdfast.open(str(temp_repo)) as hf:
                result = hf.spawner.spawn_adapter("mock", Request("Write a.txt"), agents={"mock": agent})
            assert (result.success, result.artifacts) == (True, ("a.txt",))
            assert (temp_repo / ".git").is_dir() and not (temp_repo / "a.txt").exists()
        """
    )
    pytester.runpytest_subprocess("-p", "holdfast.testing.plugin", "-p", "no:cacheprovider").assert_outcomes(passed=3)
