"""The ACP client against programs that really run in the sandbox: a well-behaved one made with the protocol's own
package, and others that speak it by hand, badly, or not at all."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from agents.benches import AgentBench, bench_at, our_python
from holdfast.agents.acp import converse
from holdfast.errors import InvalidInput
from holdfast.model.agent import Asked, Ending, Request, Result, Said, Usage, Used

pytest.importorskip("acp", reason="the package agent-client-protocol is the other side of these tests")

TASK = Request("Make hello.py.")
FILES = {"README.md": b"A project.\n"}

# An agent as its authors would write it. It asks before it writes, and says what it did letter by letter.
WELL_BEHAVED = """
import asyncio, os
from acp import (Agent, InitializeResponse, LoadSessionResponse, NewSessionResponse, PromptResponse, run_agent,
                 start_edit_tool_call, update_agent_message_text, update_agent_thought_text,
                 update_tool_call)
from acp.schema import AgentCapabilities, PermissionOption, ToolCallLocation, ToolCallUpdate, Usage

class Writer(Agent):
    def on_connect(self, client):
        self.client = client

    async def initialize(self, protocol_version, client_capabilities=None, client_info=None, **rest):
        assert not client_capabilities.fs.write_text_file and not client_capabilities.terminal
        return InitializeResponse(protocol_version=1, agent_capabilities=AgentCapabilities(load_session=True))

    async def new_session(self, cwd, mcp_servers=None, **rest):
        assert cwd == os.getcwd()
        return NewSessionResponse(session_id="s-1")

    async def load_session(self, cwd, session_id, mcp_servers=None, **rest):
        await self.tell(session_id, update_agent_message_text("An old word."))
        await self.tell(session_id, start_edit_tool_call("old", "Old work", "old.py", "x"))
        return LoadSessionResponse()

    async def tell(self, session, update):
        await self.client.session_update(session_id=session, update=update)

    async def prompt(self, session_id, prompt, **rest):
        path = os.path.join(os.getcwd(), "hello.py")
        await self.tell(session_id, update_agent_thought_text("I think."))
        await self.tell(session_id, update_agent_message_text("I will write."))
        await self.tell(session_id, start_edit_tool_call("c-1", "Write hello.py", path, "print(1)"))
        kinds = ("allow_always", "allow_once", "reject_once")
        options = [PermissionOption(option_id=kind, name=kind, kind=kind) for kind in kinds]
        call = ToolCallUpdate(tool_call_id="c-1", title="Write hello.py", locations=[ToolCallLocation(path=path)])
        said = await self.client.request_permission(session_id=session_id, tool_call=call, options=options)
        assert said.outcome.option_id == "allow_once"
        open(path, "w").write("print(1)\\n" if "Make hello.py." in prompt[0].text else "")
        await self.tell(session_id, update_tool_call("c-1", status="completed"))
        for letter in "Made it.\\nDone in " + session_id:
            await self.tell(session_id, update_agent_message_text(letter))
        return PromptResponse(stop_reason="end_turn", usage=Usage(input_tokens=7, output_tokens=3, total_tokens=10))

asyncio.run(run_agent(Writer()))
"""


def worked(site: AgentBench, source: str, request: Request = TASK) -> Result:
    return converse("agent", site.speaking(source), request, site.bench)


@pytest.mark.parametrize("session", ["", "s-0"])
def test_an_agent_made_with_the_protocols_own_package_does_its_work(tmp_path: Path, session: str) -> None:
    """It is greeted, asked, allowed and heard; a loaded session's past is not told again."""
    with bench_at(tmp_path, FILES) as site:
        result = converse("agent", our_python(WELL_BEHAVED), TASK._replace(session=session), site.bench)
        assert (result.ending, result.detail, result.transport) == ("finished", "", "acp"), result
        assert site.changed() == {"hello.py": "new"}
        path = f"{site.bench.path}/hello.py"
        name = session or "s-1"
        assert site.seen == [
            Said("I will write."),
            Used("c-1", "Write hello.py", "begun", (path,)),
            Asked("Write hello.py", "allowed"),
            Used("c-1", "Write hello.py", "done", (path,)),
            Said("Made it."),
            Said(f"Done in {name}"),
        ]
        claim = result.claim
        assert (claim.words, claim.success, claim.session) == (f"Made it.\nDone in {name}", True, name)
        assert (claim.stopped_because, claim.tool_calls, claim.usage) == ("end_turn", 1, Usage(0, 7, 3, None))


class Case(NamedTuple):
    """What a program says by hand, and what has to come of it."""

    source: str
    ending: Ending
    detail: str


BEGINNINGS = {
    "dies before it is greeted": Case("sys.exit(3)", "failed", "it exited with 3 in the middle of its turn"),
    "leaves without a word": Case("read(); sys.exit(0)", "failed", "it exited with 0 in the middle of its turn"),
    "is killed in the middle": Case(
        "begin(); say('so'); os.kill(os.getpid(), 9)", "killed", "it was ended by signal 9 in the middle of its turn"
    ),
    "ends right after its answer": Case("begin(); stop(); os._exit(4)", "finished", ""),
    "is killed after its answer": Case("begin(); stop(); os.kill(os.getpid(), 9)", "finished", ""),
    "stays after its answer": Case("begin(); stop(); time.sleep(600)", "finished", ""),
    "speaks another version": Case(
        "answer({'protocolVersion': 2})", "failed", "it does not speak ACP: it has no version 1 of it"
    ),
    "answers with a word": Case("answer('hello')", "failed", "it does not speak ACP: it has no version 1 of it"),
    "opens no session": Case("hello(); answer({})", "failed", "it does not speak ACP: it opened no session"),
    "opens a session of a wrong kind": Case(
        "hello(); answer({'sessionId': ['s']})", "failed", "it does not speak ACP: it opened no session"
    ),
    "answers nothing": Case(
        "send(id=read()['id']); time.sleep(600)",
        "failed",
        "it does not speak ACP: it answers with neither a result nor an error",
    ),
    "does not speak it at all": Case(
        "raw(b'usage: agent [options]\\n' * 2000); time.sleep(600)",
        "failed",
        "it does not speak ACP: it sends what is no message",
    ),
}
STOPS = {
    "is done": Case("begin(); stop()", "finished", ""),
    "is out of tokens": Case("begin(); stop('max_tokens')", "failed", "its model ran out of tokens"),
    "is out of turns": Case("begin(); stop('max_turn_requests')", "limit", "it reached its limit: turns"),
    "refuses": Case("begin(); stop('refusal')", "failed", "its model refused"),
    "cancels": Case("begin(); stop('cancelled')", "failed", "it cancelled its own turn"),
    "does not say": Case("begin(); stop(None)", "failed", "it did not say why it stopped"),
    "says something new": Case("begin(); stop('bored')", "failed", "it did not say why it stopped"),
}
REFUSALS = {
    "wants a login": Case("hello(); refuse(-32000, 'Log in')", "unauthorized", "the model refused the key"),
    "has a wrong key": Case(
        "begin(); send(id=prompt['id'], error={'code': -32603, 'message': 'Internal error: 401 no'})",
        "unauthorized",
        "the model refused the key",
    ),
    "has no model": Case(
        "begin(); send(id=prompt['id'], error={'code': -32603, 'message': 'API Error: 500 oh'})",
        "model_error",
        "its model failed: API Error: 500 oh",
    ),
    "fails": Case(
        "begin(); send(id=prompt['id'], error={'code': 1, 'message': 'oh'})",
        "failed",
        "it answered with an error: oh",
    ),
}
CASES = {**BEGINNINGS, **STOPS, **REFUSALS}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_an_agent_that(case: Case, tmp_path: Path) -> None:
    """Whatever a program says or does, there is a result, and it says what happened first."""
    with bench_at(tmp_path, {}) as site:
        started = time.monotonic()
        result = worked(site, case.source)
        assert (result.ending, result.detail) == (case.ending, case.detail)
        assert result.claim.success is (case.ending == "finished")
        assert result.limit == ("turns" if case.ending == "limit" else "")
        assert time.monotonic() - started < 20


def test_an_agent_that_never_answers_is_ended_by_its_time(tmp_path: Path) -> None:
    """And what it is said to have reached is that limit."""
    with bench_at(tmp_path, {}, within_ms=2_000) as site:
        result = worked(site, "begin(); say('thinking'); time.sleep(600)")
        assert (result.ending, result.limit) == ("limit", "time")
        assert result.claim.words == "thinking"
        assert site.seen == [Said("thinking")]


def test_an_agent_that_never_reads_is_ended_by_its_time(tmp_path: Path) -> None:
    """Our own words to it fill the pipe; that holds nobody up for longer."""
    flood = "hello(); time.sleep(0.2)\nwhile True: send(id=1, method='x/' + 'y' * 200, params={})"
    with bench_at(tmp_path, {}, within_ms=3_000) as site:
        assert worked(site, flood).limit in ("time", "output")


def test_an_agent_that_says_too_much_is_ended(tmp_path: Path) -> None:
    """Its messages count as its output."""
    with bench_at(tmp_path, {}, output_bytes=1 << 20) as site:
        result = worked(site, "begin()\nwhile True: say('x' * 1000)")
        assert (result.ending, result.limit) == ("limit", "output")
        assert len(result.claim.words) <= 16_000


def test_who_speaks_says_its_name_and_version(tmp_path: Path) -> None:
    """It stands in what is told and kept; without one, and of any length, nothing breaks."""
    for info, told in (
        ('{"name": "robot-acp", "version": "1.2"}', ["robot-acp 1.2 speaks ACP"]),
        ('{"name": "x" * 500}', [f"{'x' * 79}… speaks ACP"]),
        ("7", []),
    ):
        with bench_at(tmp_path / str(len(info)), {"a.txt": b"a"}) as site:
            first = f"answer({{'protocolVersion': 1, 'agentCapabilities': {{}}, 'agentInfo': {info}}})"
            rest = "answer({'sessionId': 's-1'}); prompt = read(); stop()"
            result = converse("agent", site.speaking(f"{first}; {rest}"), Request("do it"), site.bench)
            assert result.ending == "finished", result
            assert [one.text for one in site.seen if isinstance(one, Said) and "speaks ACP" in one.text] == told


def test_what_was_not_offered_is_refused_and_does_no_harm(tmp_path: Path) -> None:
    """Files, terminals and methods nobody knows get the error of the protocol, and the turn goes on."""
    source = """
begin()
for method in ("fs/write_text_file", "fs/read_text_file", "terminal/create", "craft/queue", "session/update", ""):
    refused = ask(method, path="/etc/passwd", content="x", sessionId="s-1")
    assert refused["error"]["code"] == -32601, refused
say("all refused")
stop()
"""
    with bench_at(tmp_path, {}) as site:
        result = worked(site, source)
        assert (result.ending, result.claim.words) == ("finished", "all refused"), result
        assert site.changed() == {}


HOSTILE_MESSAGES = [
    "{'method': 'session/update'}",
    "{'method': 'session/update', 'params': []}",
    "{'method': 'session/update', 'params': {'update': 7}}",
    "{'method': 'session/update', 'params': {'update': {'sessionUpdate': ['tool_call']}}}",
    "{'method': 'session/update', 'params': {'update': {'sessionUpdate': 'agent_message_chunk', 'content': [1]}}}",
    "{'method': 'session/update', 'params': {'update': {'sessionUpdate': 'tool_call', 'toolCallId': {}, 'title': 7}}}",
    "{'method': 'session/update', 'params': {'update': {'sessionUpdate': 'tool_call', 'locations': [1, {'path': 2}]}}}",
    "{'method': 'session/update', 'params': {'update': {'sessionUpdate': 'usage_update', 'inputTokens': 1e400}}}",
    "{'method': 'session/update', 'params': {'update': {'sessionUpdate': 'usage_update', 'inputTokens': -5}}}",
    "{'method': 'session/request_permission', 'id': 1}",
    "{'method': 'session/request_permission', 'id': 'x', 'params': {'options': {'a': 1}, 'toolCall': 'all'}}",
    "{'id': 3, 'method': 7}",
    "{'id': None, 'result': {}}",
]


@pytest.mark.parametrize("message", HOSTILE_MESSAGES)
def test_a_message_of_the_wrong_shape_breaks_nothing(message: str, tmp_path: Path) -> None:
    """It is passed over, and the turn goes on."""
    with bench_at(tmp_path, {}) as site:
        result = worked(site, f"begin()\nsend(**{message})\nsay('still here')\nstop()")
        assert (result.ending, result.claim.words) == ("finished", "still here"), result


@pytest.mark.long
@pytest.mark.parametrize("depth", [64, 900, 985, 1_000, 100_000])
@pytest.mark.parametrize(
    "around",
    [
        b'{"jsonrpc":"2.0","method":"session/update","params":%s}',
        b'{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call","title":%s}}}',
        b'{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"toolCall":%s,"options":%s}}',
        b'{"jsonrpc":"2.0","id":99,"result":%s}',
    ],
    ids=["params", "title", "permission", "answer"],
)
def test_a_message_of_any_depth_breaks_nothing(around: bytes, depth: int, tmp_path: Path) -> None:
    """Whether it can be parsed or not; the turn goes on."""
    source = f"""
begin()
deep = b'[' * {depth} + b']' * {depth}
raw({around!r}.replace(b'%s', deep) + b'\\n')
say('still here')
stop()
"""
    with bench_at(tmp_path, {}, output_bytes=64 << 20) as site:
        result = worked(site, source)
        assert (result.ending, result.claim.words) == ("finished", "still here"), result


@pytest.mark.parametrize("number", ["True", "3.0", "'3'", "-1", "10**400", "None", "[3]", "{'a': 3}"])
def test_an_answer_under_another_number_is_none(number: str, tmp_path: Path) -> None:
    """Only the number that was given with the question makes an answer ours: the turn ends with the true one."""
    source = f"""
begin()
send(id={number}, result={{'stopReason': 'refusal'}})
say('still here')
stop()
"""
    with bench_at(tmp_path, {}) as site:
        result = worked(site, source)
        assert (result.ending, result.claim.words) == ("finished", "still here"), result


def test_permissions_without_end_are_ended_by_the_time(tmp_path: Path) -> None:
    """Each is answered, what a watcher is told of them is bounded, and the agent has no longer for it than for work."""
    source = """
begin()
path = '/etc/passwd'
while True:
    given = ask("session/request_permission", sessionId="s-1",
        toolCall={"toolCallId": "c", "title": "x" * 1000, "locations": [{"path": path}]},
        options=[{"optionId": "a", "kind": "allow_always"}, {"optionId": "r", "kind": "reject_once"}])
    assert given["result"]["outcome"].get("optionId") != "a", given
"""
    with bench_at(tmp_path, {}, within_ms=3_000) as site:
        result = worked(site, source)
        assert (result.ending, result.limit in ("time", "output")) == ("limit", True), result
        assert 0 < len(site.seen) <= 20_000
        assert all(len(str(one)) < 1_000 for one in site.seen)


@pytest.mark.long
@pytest.mark.parametrize("path", ["/etc/shadow", "../../etc/shadow", "/proc/1/environ", "~/.ssh/id", "{cwd}/../x", ""])
@pytest.mark.parametrize("method", ["fs/read_text_file", "fs/write_text_file", "terminal/create", "terminal/output"])
def test_no_file_or_terminal_is_served_for_an_agent(method: str, path: str, tmp_path: Path) -> None:
    """Whatever it names, inside or outside: nothing of that was offered, and the error tells nothing of it."""
    source = f"""
begin()
given = ask({method!r}, sessionId="s-1", path={path!r}.replace("{{cwd}}", os.getcwd()), content="x", command="id")
assert given["error"] == {{"code": -32601, "message": "not offered by this client"}}, given
say("refused")
stop()
"""
    with bench_at(tmp_path, {}) as site:
        result = worked(site, source)
        assert (result.ending, result.claim.words, site.changed()) == ("finished", "refused", {}), result


def test_words_that_are_no_text_are_shown_as_such(tmp_path: Path) -> None:
    """Half a surrogate, in words, a title, a path or a session's name, can be written down afterwards."""
    source = r"""
begin()
raw(b'{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"\\ud800","title":"\\udc80","locations":[{"path":"\\ud800/x"}]}}}\n')
raw(b'{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\\ud800b"}}}}\n')
stop()
"""
    with bench_at(tmp_path, {}) as site:
        result = worked(site, source)
        assert result.ending == "finished", result
        for told in (result.claim.words, *map(str, site.seen)):
            told.encode("utf-8")
        assert "b" in result.claim.words


def test_what_reaches_outside_is_denied_and_told(tmp_path: Path) -> None:
    """The agent gets the option that rejects, the watcher a line that says so."""
    source = """
begin()
options = [{"optionId": "y", "kind": "allow_once"}, {"optionId": "n", "kind": "reject_once"}]
outside = ask("session/request_permission", toolCall={"title": "Look", "locations": [{"path": "/etc/shadow"}]},
              options=options)
silent = ask("session/request_permission", toolCall={"title": "Do"}, options=[])
say(json.dumps([outside["result"]["outcome"], silent["result"]["outcome"]]))
stop()
"""
    with bench_at(tmp_path, {}) as site:
        result = worked(site, source)
        assert result.claim.words == '[{"outcome": "selected", "optionId": "n"}, {"outcome": "cancelled"}]'
        assert site.seen[:2] == [Asked("Look", "denied"), Asked("Do", "denied")]


def test_tool_calls_are_told_when_they_begin_and_when_they_end(tmp_path: Path) -> None:
    """Once each, with the title and the paths that were last told; what comes after the end changes nothing."""
    source = """
begin()
update("tool_call", toolCallId="a", title="Look", status="pending", locations=[{"path": "x"}])
update("tool_call_update", toolCallId="a", status="in_progress", title="Look at x")
update("tool_call_update", toolCallId="a", status="failed")
update("tool_call_update", toolCallId="a", status="completed")
update("tool_call_update", toolCallId="b", status="completed", title="At once")
stop()
"""
    with bench_at(tmp_path, {}) as site:
        assert worked(site, source).claim.tool_calls == 2
        assert site.seen == [
            Used("a", "Look", "begun", ("x",)),
            Used("a", "Look at x", "failed", ("x",)),
            Used("b", "At once", "done"),
        ]


def test_what_is_said_comes_in_lines_and_its_last_words_count(tmp_path: Path) -> None:
    """Pieces are joined up to a line's end or a tool call; the claim is what came after the last work."""
    source = """
begin()
for piece in ("Look", "ing.\\n\\nI s", "ee"): say(piece)
update("tool_call", toolCallId="a", title="Read")
say("\\n"); say("Do"); say("ne \\ud800.")
stop(usage={"inputTokens": 4, "outputTokens": 2})
"""
    with bench_at(tmp_path, {}) as site:
        result = worked(site, source)
        assert site.seen == [Said("Looking."), Said("I see"), Used("a", "Read", "begun"), Said("Done ?.")]
        assert (result.claim.words, result.claim.usage) == ("Done ?.", Usage(0, 4, 2, None))


def test_what_is_passed_on_is_bounded(tmp_path: Path) -> None:
    """A million small lines, and tool calls without end, are cut off, and the watcher is told so once."""
    source = """
begin()
for number in range(12000): update("tool_call", toolCallId=str(number), title="t")
for number in range(20): say("a\\n" * 30000)
stop()
"""
    with bench_at(tmp_path, {}) as site:
        result = worked(site, source)
        assert result.ending == "finished"
        assert result.claim.tool_calls == 10_000
        assert len(site.seen) == 20_000
        assert site.seen[-1] == Said("… and more than is kept")
        assert len(result.claim.words) <= 16_000


def test_a_session_that_is_forgotten_is_begun_anew(tmp_path: Path) -> None:
    """Also where a hostile name for one came back to us."""
    source = """
hello(loadSession=True)
refuse(-32602, "no such session")
answer({"sessionId": "s-2"})
prompt = read()
say(prompt["params"]["sessionId"])
stop()
"""
    with bench_at(tmp_path, {}) as site:
        result = worked(site, source, TASK._replace(session="s-1"))
        assert (result.claim.words, result.claim.session) == ("s-2", "s-2")
        assert worked(site, "begin(); stop()", TASK._replace(session="--help")).ending == "finished"


def test_an_agent_that_asks_for_its_key_is_told_to_take_it(tmp_path: Path) -> None:
    """Where it offers to use one, that way is chosen, and the session opened again."""
    source = """
answer({"protocolVersion": 1, "authMethods": [{"id": "browser-login"}, {"id": "use-api-key"}]})
refuse(-32000, "Authentication required")
assert answer({})["params"] == {"methodId": "use-api-key"}
answer({"sessionId": "s-1"})
prompt = read()
stop()
"""
    with bench_at(tmp_path, {}) as site:
        assert worked(site, source).ending == "finished"


def test_the_last_words_of_a_program_that_died_are_kept(tmp_path: Path) -> None:
    """What it wrote to standard error is its error."""
    with bench_at(tmp_path, {}) as site:
        result = worked(site, "begin(); sys.exit('no such model: x')")
        assert (result.ending, result.claim.error) == ("failed", "no such model: x")


def test_a_task_that_cannot_be_told_starts_nothing(tmp_path: Path) -> None:
    """It is refused before there is a program."""
    with bench_at(tmp_path, {}) as site:
        with pytest.raises(InvalidInput):
            worked(site, "open('started', 'w')", Request(" "))
        assert site.changed() == {}


@pytest.mark.parametrize(("session", "method"), [("", "session/new"), ("s-0", "session/load")])
def test_what_a_program_wants_to_know_of_a_session_is_told(tmp_path: Path, session: str, method: str) -> None:
    """Beside the directory, and never in its place: such as where Claude Code may read settings from."""
    source = """
hello(loadSession=True)
asked = answer({"sessionId": "s-1"})
prompt = read()
say(json.dumps(asked))
stop()
"""
    with bench_at(tmp_path, FILES) as site:
        start = site.speaking(source)._replace(session={"_meta": {"options": ["user"]}})
        told = json.loads(converse("agent", start, TASK._replace(session=session), site.bench).claim.words)
        assert told["method"] == method
        assert told["params"]["_meta"] == {"options": ["user"]}
        assert (told["params"]["cwd"], told["params"]["mcpServers"]) == (site.bench.path, [])
