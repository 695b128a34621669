"""The real programs, each in the real sandbox, through the real proxy, against a model that follows a script.

`scripts/agent-programs` installs them; a program that is not there is skipped, and says so.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.agents.claude import Claude
from holdfast.agents.codex import Codex
from holdfast.agents.gemini import Gemini
from holdfast.agents.goose import Goose
from holdfast.agents.opencode import Opencode
from holdfast.agents.program import Found, Heard, Missing, Program
from holdfast.agents.prompt import prompt
from holdfast.agents.qwen import Qwen
from holdfast.model.agent import Request
from holdfast.sandbox.confined import Confined
from holdfast.testing.model_server import ScriptedModel
from holdfast.testing.script import EditFile, Error, Loop, Say, Script, Shell, WriteFile
from real_bench import PATH, RealBench, real_bench

pytestmark = pytest.mark.agents

HELLO = WriteFile("hello.py", 'print("hello")\n')
DONE = Say("I made hello.py.")


class Case(NamedTuple):
    program: Program
    model: str


# Programs look at the name to decide which tools they offer; codex also edits through the shell for names it does
# not know, so it is here twice.
CASES = {
    "claude": Case(Claude(), "claude-sonnet-4-5"),
    "codex": Case(Codex(), "gpt-5.5"),
    "codex-shell": Case(Codex(), "scripted"),
    "opencode": Case(Opencode(), "scripted"),
    "gemini": Case(Gemini(), "gemini-2.5-flash"),
    "qwen": Case(Qwen(), "scripted"),
    "goose": Case(Goose(), "scripted"),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    case: Case = CASES[request.param]
    if isinstance(found := case.program.find(PATH), Missing):
        pytest.skip(f"{found.why}; scripts/agent-programs installs it")
    return case


def worked(real: RealBench, case: Case, request: Request) -> tuple[Confined, Heard]:
    """One headless run: how it ended, and what was heard."""
    found = case.program.find(PATH)
    assert isinstance(found, Found)
    done = real.bench.run(case.program.headless(found, request, real.access, prompt(request)))
    return done, case.program.heard(done.finished.output, done.finished.exit_code)


def test_a_program_makes_the_file_it_was_asked_for(case: Case, tmp_path: Path) -> None:
    """It runs in the sandbox, reaches its model through the proxy, changes the shadow, and says so."""
    model = ScriptedModel(HELLO, DONE)
    with real_bench(tmp_path, model, case.program.api, case.model) as real:
        done, heard = worked(real, case, Request("Create hello.py that prints hello."))
        assert (done.finished.exit_code, done.limit) == (0, ""), done.finished.output.decode(errors="replace")
        assert real.changed() == {"hello.py"}
        assert heard.claim.success is True
        assert heard.claim.words == DONE.text
        assert heard.claim.tool_calls == 1
        assert heard.claim.session
        assert not heard.unauthorized
        assert not heard.model_error
        assert real.proxy.refusals == ()
        counted = (real.proxy.usage.input_tokens, real.proxy.usage.output_tokens)
        assert counted == (model.usage.input_tokens, model.usage.output_tokens)


def test_what_a_program_edits_and_runs_is_captured(case: Case, tmp_path: Path) -> None:
    """A file changed by its edit tool and one made by its shell are both in the shadow."""
    model = ScriptedModel(
        Shell("cat README.md"), EditFile("README.md", "A project.", "A small project."), Shell("echo 1 > made"), DONE
    )
    with real_bench(tmp_path, model, case.program.api, case.model) as real:
        done, heard = worked(real, case, Request("Edit README.md."))
        assert real.changed() == {"README.md", "made"}, done.finished.output.decode(errors="replace")
        assert heard.claim.tool_calls >= 3  # some insist on reading a file before they edit it


def test_a_program_that_only_talks_changes_nothing(case: Case, tmp_path: Path) -> None:
    """It claims success all the same: the claim is not evidence."""
    with real_bench(tmp_path, ScriptedModel(Say("I would.")), case.program.api, case.model) as real:
        done, heard = worked(real, case, Request("Create hello.py."))
        assert done.finished.exit_code == 0
        assert real.changed() == set()
        assert heard.claim.words == "I would."
        assert heard.claim.success is True


@pytest.mark.parametrize("status", [400, 401])
def test_a_refusing_model_is_heard_as_what_it_is(case: Case, status: int, tmp_path: Path) -> None:
    """A wrong key and another error of the model are told apart, whatever the exit code says."""
    with real_bench(tmp_path, ScriptedModel(Error(status)), case.program.api, case.model) as real:
        done, heard = worked(real, case, Request("Create hello.py."))
        assert done.limit == ""
        assert (heard.unauthorized, heard.model_error) == (status == 401, status == 400), done.finished.output
        assert heard.claim.success is False
        assert heard.claim.error
        assert real.changed() == set()


def test_a_second_attempt_goes_on_with_the_session_of_the_first(case: Case, tmp_path: Path) -> None:
    """The model sees the whole conversation again, and its script goes on where it was."""
    model = ScriptedModel(Say("Not yet."), HELLO, DONE)
    with real_bench(tmp_path, model, case.program.api, case.model) as real:
        first = Request("Create hello.py.")
        _, heard = worked(real, case, first)
        assert real.changed() == set()
        done, heard = worked(real, case, first._replace(session=heard.claim.session, evidence="hello.py is missing"))
        assert real.changed() == {"hello.py"}, done.finished.output.decode(errors="replace")
        assert heard.claim.words == DONE.text


def test_an_endless_loop_is_ended_by_the_budget(case: Case, tmp_path: Path) -> None:
    """A run stops when the proxy has let through as many requests as it may, and everything of it is gone."""
    model = ScriptedModel(Shell("date >> loop"), Loop())
    with real_bench(tmp_path, model, case.program.api, case.model, requests=4) as real:
        done, _ = worked(real, case, Request("Do it for ever."))
        assert real.proxy.exhausted
        assert real.proxy.usage.requests <= 4
        assert done.finished.survivors == 0


def test_a_program_gets_no_key_but_the_throw_away_one(case: Case, tmp_path: Path) -> None:
    """What a program can find out about itself from inside holds the throw-away key and no other."""
    looks = 'env > seen; cat /proc/[0-9]*/environ >> seen; grep -rh . "$HOME" >> seen; true'
    model = ScriptedModel(Shell(looks), DONE)
    with real_bench(tmp_path, model, case.program.api, case.model) as real:
        worked(real, case, Request("Look around."))
        assert real.changed() == {"seen"}
        upper = real.shadow.view.layers[-1].upper if real.shadow.view.layers else real.shadow.view.base
        seen = Path(upper, "seen").read_bytes()
        assert model.key.encode() not in seen
        assert all(seen.key == model.key for seen in model.seen)
        assert b"HOME=/run/holdfast/home" in seen


def test_a_prompt_that_begins_like_an_option_is_a_prompt(case: Case, tmp_path: Path) -> None:
    """It reaches the model word for word, and the model makes the file."""
    model = ScriptedModel(tasks={"--help": Script.of(HELLO, DONE)})
    with real_bench(tmp_path, model, case.program.api, case.model) as real:
        found = case.program.find(PATH)
        assert isinstance(found, Found)
        start = case.program.headless(found, Request("x"), real.access, "--help me with hello.py\n--version")
        done = real.bench.run(start)
        assert real.changed() == {"hello.py"}, done.finished.output.decode(errors="replace")
