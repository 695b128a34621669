"""What each program's file says: how it is started, what is heard in its output, and how it is found."""

from __future__ import annotations

import json
import os
import re
import shutil
import tomllib
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.agents.claude import Claude
from holdfast.agents.codex import Codex
from holdfast.agents.gemini import Gemini
from holdfast.agents.goose import Goose
from holdfast.agents.installed import Wanted, find
from holdfast.agents.opencode import Opencode
from holdfast.agents.program import Found, Heard, Missing, Program
from holdfast.agents.protocol import ModelAccess, Start
from holdfast.agents.qwen import Qwen
from holdfast.model.agent import Request
from holdfast.sandbox.shown import HOME

OUTPUTS = Path(__file__).parent / "outputs"
PROGRAMS: dict[str, Program] = {
    program.name: program for program in (Claude(), Codex(), Opencode(), Gemini(), Qwen(), Goose())
}
NODE = "/opt/node/bin/node"
PACKAGES = "/opt/agent/node_modules"
FOUND = Found((NODE, f"{PACKAGES}/agent/cli.js"), "1.0", (PACKAGES, NODE))
ADAPTERS = (
    "/opt/acp/node_modules/@agentclientprotocol/claude-agent-acp/dist/index.js",
    "/opt/acp/node_modules/@zed-industries/codex-acp/bin/codex-acp.js",
)
WITH_ADAPTERS = FOUND._replace(readable=(*FOUND.readable, *ADAPTERS))
MODEL = ModelAccess("http://127.0.0.1:8377", "throw-away-key", "model-7")
PROMPT = "Task:\nsay 'hello'; $(echo no)\n"
REQUEST = Request("say hello")

program = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


def starts(program: Program, request: Request = REQUEST) -> list[Start]:
    """Both ways to start it."""
    conversing = program.acp(WITH_ADAPTERS, request, MODEL)
    assert conversing is not None
    return [conversing, program.headless(WITH_ADAPTERS, request, MODEL, PROMPT)]


# ── what is heard ──

RECORDED = sorted(OUTPUTS.glob("*/*.jsonl"))


def heard(path: Path) -> Heard:
    endings = json.loads((path.parent / "endings.json").read_text(encoding="utf-8"))
    return PROGRAMS[path.parent.name].heard(path.read_bytes(), endings[path.stem])


def recorded(case: str) -> pytest.MarkDecorator:
    paths = [path for path in RECORDED if path.stem == case]
    return pytest.mark.parametrize("path", paths, ids=[path.parent.name for path in paths])


@program
def test_every_program_was_recorded(program: Program) -> None:
    """There is an output of each case; codex has no limit of turns, and opencode's binds nobody."""
    cases = {path.stem for path in RECORDED if path.parent.name == program.name}
    assert cases | {"turns"} == {"success", "talk", "400", "401", "500", "turns"}
    assert "turns" in cases or program.name in ("codex", "opencode")


@recorded("success")
def test_a_success_is_heard_with_words_session_and_usage(path: Path) -> None:
    """The last words, the session to resume, one tool call, and tokens."""
    said = heard(path)
    assert said.claim.success is True
    assert said.claim.words == "I made hello.py."
    assert said.claim.error == ""
    assert re.fullmatch(r"[A-Za-z0-9_-]{10,}", said.claim.session)
    assert said.claim.tool_calls == 1
    assert said.claim.usage is not None
    assert said.claim.usage.input_tokens > 1000
    assert 20 <= said.claim.usage.output_tokens <= 40
    assert not said.unauthorized
    assert not said.model_error


@recorded("talk")
def test_talk_is_heard_as_a_success_without_tool_calls(path: Path) -> None:
    """All of them claim success when the model only talked; that nothing was done is seen elsewhere."""
    said = heard(path)
    assert (said.claim.success, said.claim.words, said.claim.tool_calls) == (True, "I would create hello.py.", 0)


@recorded("401")
def test_a_refused_key_is_heard(path: Path) -> None:
    """`unauthorized`, and not an error of the model's."""
    said = heard(path)
    assert (said.unauthorized, said.model_error, said.claim.success) == (True, False, False)
    assert said.claim.error


@pytest.mark.parametrize(
    "path",
    [path for path in RECORDED if path.stem in ("400", "500")],
    ids=[f"{path.parent.name}-{path.stem}" for path in RECORDED if path.stem in ("400", "500")],
)
def test_an_error_of_the_model_is_heard_whatever_the_exit_code(path: Path) -> None:
    """Also of goose, which apologises and exits with 0."""
    said = heard(path)
    assert (said.unauthorized, said.model_error, said.claim.success) == (False, True, False)
    assert said.claim.error


@recorded("turns")
def test_a_limit_of_turns_is_no_error_of_the_model(path: Path) -> None:
    """The model answered well each time; the program says that it did not finish."""
    said = heard(path)
    assert not said.model_error
    assert not said.unauthorized
    assert said.claim.tool_calls >= 3
    assert said.claim.success is False
    assert said.claim.error


@program
def test_a_program_that_fails_before_it_speaks_leaves_its_last_words(program: Program) -> None:
    """What is not JSON is the error then, without colours."""
    said = program.heard(b"\x1b[31mfatal:\x1b[0m no such model\n", 3)
    assert (said.claim.success, said.claim.error) == (False, "fatal: no such model")


TYPES = (
    "system assistant user result thread.started item.completed turn.completed turn.failed error text tool_use "
    "step_finish init message complete"
).split()
FIELDS = "message content item part error data usage tokens stats session_id sessionID thread_id text id type".split()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(TYPES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=5),
    max_leaves=12,
)
LINES = st.builds(
    lambda kind, rest: json.dumps({**rest, "type": kind}).encode(),
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6),
)


@program
@given(lines=st.lists(LINES | st.binary(max_size=60), max_size=8))
@settings(max_examples=60, deadline=None)
def test_nothing_that_is_printed_makes_hearing_fail(program: Program, lines: list[bytes]) -> None:
    """Whatever the types, what comes out is bounded, encodable, and names no session that could be an option."""
    claim = program.heard(b"\n".join(lines), 0).claim
    assert len(claim.words) <= 16_000
    assert len(claim.error) <= 2_000
    (claim.words + claim.error + claim.stopped_because).encode("utf-8")
    assert not claim.session.startswith("-")


@program
def test_lines_that_would_break_a_reader_are_passed_over(program: Program) -> None:
    """Nesting without end, numbers without end, half of a surrogate pair."""
    deep = b'{"type":' + b"[" * 100_000
    long = b'{"type":"result","usage":{"input_tokens":' + b"9" * 10_000 + b"}}"
    half = b'{"type":"result","result":"\\ud800","message":{"content":"\\ud800"},"part":{"text":"\\ud800"}}'
    program.heard(b"\n".join((deep, long, half)), 0).claim.words.encode("utf-8")


# ── how it is started ──


@program
def test_the_prompt_is_one_argument_that_cannot_be_an_option(program: Program) -> None:
    """It follows `--`, or is joined to the name of its option; nothing of it is interpreted."""
    argv = program.headless(FOUND, REQUEST, MODEL, "--version")
    joined = [word for word in argv.argv if re.fullmatch(r"--(prompt|text)=--version", word)]
    assert argv.argv[-2:] == ("--", "--version") or joined == [argv.argv[-1]]


@program
def test_a_start_holds_no_key_but_the_throw_away_one_and_not_on_the_command_line(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Command lines are seen by every process; our own environment is not copied."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "true-key")
    monkeypatch.setenv("OPENAI_API_KEY", "true-key")
    monkeypatch.setenv("GEMINI_API_KEY", "true-key")
    for start in starts(program):
        everything = json.dumps([start.argv, dict(start.env), start.files])
        assert "true-key" not in everything
        assert everything.count(MODEL.key) == 1
        assert not any(MODEL.key in word for word in start.argv)


@program
def test_a_start_names_no_place_of_the_host_but_the_installation(program: Program) -> None:
    """Paths in arguments, environment and files are the system's, in its HOME inside, or among what is shown."""
    for start in starts(program):
        texts = (*start.argv, *start.env.values(), *(text for _, text in start.files))
        named = {path for text in texts for path in re.findall(r"(?<![:/\w.-])/(?:[\w.@-]+/?)+", text)}
        own = {path for path in named if not path.startswith(("/usr/", "/bin", f"{HOME}/"))}
        shown = (*WITH_ADAPTERS.readable, os.path.dirname(NODE))
        assert all(path.startswith(shown) for path in own), own
        assert set(start.readable) <= set(WITH_ADAPTERS.readable)


@program
def test_a_program_is_pointed_at_the_proxy_and_its_model(program: Program) -> None:
    """Both starts name the address inside, and the model that was asked for, or else the provider's."""
    for request, name in ((REQUEST, "model-7"), (REQUEST._replace(model="model-8"), "model-8")):
        for start in starts(program, request):
            everything = json.dumps([start.argv, dict(start.env), start.files])
            assert MODEL.url in everything
            assert name in everything


@program
def test_a_session_is_resumed_by_its_name(program: Program) -> None:
    """The name of the attempt before stands on the command line."""
    start = program.headless(FOUND, REQUEST._replace(session="ses-12"), MODEL, PROMPT)
    assert any("ses-12" in word for word in start.argv)
    assert not any("resume" in word or "session=" in word for word in program.headless(FOUND, *_plain()).argv)


def _plain() -> tuple[Request, ModelAccess, str]:
    return REQUEST, MODEL, PROMPT


@program
@pytest.mark.parametrize("session", ["--dangerous", "../../etc", "a b", "x\ny", "", "-"])
def test_what_is_no_name_of_a_session_is_not_resumed(program: Program, session: str) -> None:
    """Sessions are named by the agent's own output, which is hostile."""
    assert program.headless(FOUND, REQUEST._replace(session=session), *_plain()[1:]) == program.headless(
        FOUND, *_plain()
    )


@program
@pytest.mark.parametrize("name", ['a"b', "a\nb", "ä\x7f😀", "vendor/model:1", "--yes"])
def test_settings_stay_well_formed_whatever_the_model_is_called(program: Program, name: str) -> None:
    """A name is data in JSON and TOML alike, and no option of its own."""
    for start in starts(program, REQUEST._replace(model=name)):
        assert name not in start.argv
        for path, text in start.files:
            parsed = tomllib.loads(text) if path.endswith(".toml") else json.loads(text)
            assert parsed.get("model_provider", "holdfast") == "holdfast"
            assert not path.startswith("/")
            assert ".." not in path


@program
def test_turns_are_limited_where_the_program_can(program: Program) -> None:
    """codex cannot; the budget ends it."""
    limited = program.headless(FOUND, REQUEST._replace(turns=17), MODEL, PROMPT)
    assert ("17" in json.dumps([limited.argv, limited.files])) is (program.name != "codex")


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_without_its_adapter_a_program_does_not_speak_acp(name: str) -> None:
    """Claude Code and codex need a second package for it."""
    assert PROGRAMS[name].acp(FOUND, REQUEST, MODEL) is None


# ── how it is found ──


class Installed(NamedTuple):
    path: str
    prefix: Path


def install(root: Path, command: str, package: str, script: bytes, version: str = "1.2.3") -> Installed:
    """As npm does: a package in node_modules, and links that lead to it."""
    home = root / "lib" / "node_modules" / package
    (home / "dist").mkdir(parents=True)
    (home / "package.json").write_text(json.dumps({"name": package, "version": version}))
    target = home / "dist" / "cli.js"
    target.write_bytes(script)
    target.chmod(0o755)
    (root / "bin").mkdir(exist_ok=True)
    (root / "bin" / command).symlink_to(os.path.relpath(target, root / "bin"))
    return Installed(str(root / "bin"), root / "lib" / "node_modules")


def put_node(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy("/bin/true", folder / "node")
    return str(folder / "node")


@program
def test_a_program_that_is_not_there_is_missing_with_a_hint(program: Program, tmp_path: Path) -> None:
    """It says which package has it."""
    found = program.find(str(tmp_path))
    assert isinstance(found, Missing)
    assert program.name in found.why
    assert "npm install" in found.hint


@program
def test_a_script_of_node_is_found_through_its_links_with_its_node(program: Program, tmp_path: Path) -> None:
    """It is called by its true path, and its node_modules and node are shown, nothing above them."""
    there = install(tmp_path, program.name, "@vendor/agent", b"#!/usr/bin/env node\n")
    node = put_node(tmp_path / "node-22" / "bin")
    found = program.find(f"{there.path}:{Path(node).parent}:/usr/bin")
    script = str(there.prefix / "@vendor/agent/dist/cli.js")
    assert found == Found((node, script), "1.2.3", (str(there.prefix), node))


@program
def test_a_binary_alone_is_found_and_asked_for_its_version(program: Program, tmp_path: Path) -> None:
    """Only the file itself is shown, not the folder it lies in."""
    shutil.copy("/bin/true", tmp_path / program.name)
    (tmp_path / "secret").write_text("no")
    found = program.find(str(tmp_path))
    assert isinstance(found, Found)
    assert found.argv == found.readable == (str(tmp_path / program.name),)
    assert re.match(r"\d+\.\d+", found.version)


def test_a_program_that_does_not_say_its_version_is_found_all_the_same(tmp_path: Path) -> None:
    """The version is empty then."""
    (tmp_path / "opencode").write_bytes(b"neither a program nor a script")
    (tmp_path / "opencode").chmod(0o755)
    found = PROGRAMS["opencode"].find(str(tmp_path))
    assert isinstance(found, Found)
    assert found.version == ""


def test_relative_entries_of_path_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever stands in the current directory is not the user's program."""
    shutil.copy("/bin/true", tmp_path / "goose")
    monkeypatch.chdir(tmp_path)
    assert isinstance(PROGRAMS["goose"].find(".::bin"), Missing)


def test_a_file_that_may_not_be_run_and_a_directory_are_passed_over(tmp_path: Path) -> None:
    """The next entry of PATH has it."""
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
    (tmp_path / "one" / "goose").write_text("not to be run")
    (tmp_path / "two" / "goose").mkdir()
    shutil.copy("/bin/true", tmp_path / "three" / "goose")
    found = PROGRAMS["goose"].find(":".join(str(tmp_path / folder) for folder in ("one", "two", "three")))
    assert isinstance(found, Found)
    assert found.argv == (str(tmp_path / "three" / "goose"),)


@pytest.mark.parametrize("first", [b"#!/bin/sh\n", b"#!/usr/bin/env bash\n", b"#!\n"])
def test_a_stand_in_of_a_version_manager_is_refused_with_a_reason(first: bytes, tmp_path: Path) -> None:
    """What it would start is not known, and could not be shown."""
    there = install(tmp_path, "claude", "shim", first)
    found = PROGRAMS["claude"].find(there.path)
    assert isinstance(found, Missing)
    assert "script for" in found.why


def test_a_script_of_node_without_node_is_missing(tmp_path: Path) -> None:
    """It says what is needed."""
    there = install(tmp_path, "qwen", "qwen", b"#!/usr/bin/env node\n")
    found = PROGRAMS["qwen"].find(there.path)
    assert isinstance(found, Missing)
    assert "node" in found.why


@pytest.mark.parametrize(
    ("name", "adapter", "package", "entry"),
    [
        ("claude", "claude-agent-acp", "@agentclientprotocol/claude-agent-acp", "dist/index.js"),
        ("codex", "codex-acp", "@zed-industries/codex-acp", "bin/codex-acp.js"),
    ],
)
def test_an_adapter_beside_its_program_is_found_and_shown(
    name: str, adapter: str, package: str, entry: str, tmp_path: Path
) -> None:
    """A binary needs no node, its adapter does: the ACP start runs node, and everything it names is shown."""
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / name)
    node = put_node(tmp_path / "bin")
    there = install(tmp_path, adapter, package, b"#!/usr/bin/env node\n")
    script = there.prefix / package / entry
    script.parent.mkdir(exist_ok=True)
    (there.prefix / package / "dist" / "cli.js").rename(script)
    (tmp_path / "bin" / adapter).unlink()
    (tmp_path / "bin" / adapter).symlink_to(script)
    found = PROGRAMS[name].find(there.path)
    assert isinstance(found, Found)
    assert found.adapter == f"{adapter} 1.2.3"
    start = PROGRAMS[name].acp(found, REQUEST, MODEL)
    assert start is not None
    assert start.argv == (node, str(script))
    assert set(start.readable) == {str(tmp_path / "bin" / name), str(there.prefix), node, str(script)}


def test_a_program_of_a_virtual_environment_is_found_with_its_python(tmp_path: Path) -> None:
    """The environment and the Python beneath it are shown; the version is read, not asked for."""
    venv, base = tmp_path / "venv", tmp_path / "python-3.12"
    (venv / "bin").mkdir(parents=True)
    (venv / "lib" / "python3.12" / "site-packages" / "an_agent-0.9.1.dist-info").mkdir(parents=True)
    (venv / "pyvenv.cfg").touch()
    (base / "bin").mkdir(parents=True)
    shutil.copy("/bin/false", base / "bin" / "python3.12")
    (venv / "bin" / "python").symlink_to(base / "bin" / "python3.12")
    (venv / "bin" / "agent").write_text(f"#!{venv}/bin/python\nimport agent\n")
    (venv / "bin" / "agent").chmod(0o755)
    found = find(Wanted("agent", "an-agent", "pipx install"), str(venv / "bin"))
    assert found == Found((f"{venv}/bin/python", f"{venv}/bin/agent"), "0.9.1", (str(venv), str(base)))


@pytest.mark.parametrize(
    ("name", "variable"), [("gemini", "GEMINI_CLI_SYSTEM_SETTINGS_PATH"), ("qwen", "QWEN_CODE_SYSTEM_SETTINGS_PATH")]
)
def test_settings_of_ours_stand_above_those_of_the_project(name: str, variable: str) -> None:
    """The file that we write into HOME is named as the system's, and lets nothing of the project's run."""
    for start in starts(PROGRAMS[name]):
        ((path, text),) = start.files
        assert start.env[variable] == f"{HOME}/{path}"
        settings = json.loads(text)
        assert settings.get("disableAllHooks") or settings["hooksConfig"] == {"enabled": False}
        assert settings["mcp"] == {"allowed": ["none"]}


def test_claude_reads_no_settings_of_the_project() -> None:
    """Told on the command line, and over ACP with the session."""
    acp, headless = PROGRAMS["claude"].acp(WITH_ADAPTERS, REQUEST, MODEL), PROGRAMS["claude"].headless
    assert acp is not None
    options = {"settingSources": ["user"], "strictMcpConfig": True}
    assert acp.session == {"_meta": {"claudeCode": {"options": options}}}
    argv = headless(WITH_ADAPTERS, REQUEST, MODEL, "x").argv
    assert "--strict-mcp-config" in argv and argv[argv.index("--setting-sources") + 1] == "user"


def test_opencode_goes_on_after_what_is_denied() -> None:
    """Its turn would end with the first denied call; its model is told instead."""
    start = PROGRAMS["opencode"].acp(FOUND, REQUEST, MODEL)
    assert start is not None
    (settings,) = (json.loads(text) for path, text in start.files if path.endswith("opencode.json"))
    assert settings["experimental"] == {"continue_loop_on_deny": True}
