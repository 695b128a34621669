"""The scripted model, asked in raw HTTP on each wire, with and without streaming."""

from __future__ import annotations

import gzip
import json
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from guarded import at_most
from holdfast.model.agent import APIS, Usage
from holdfast.testing.model_server import ScriptedModel
from holdfast.testing.script import EditFile, Error, Hang, Loop, Say, Script, Shell, Stop, When, WriteFile
from testing.wire_clients import CLIENTS, Chat, Client, Gemini, Heard, Messages, Responses, post

WIRES = pytest.mark.parametrize("api", APIS)
STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
HELLO = WriteFile("hello.py", "print('hello')\n" * 20)
RUN = Shell("python3 hello.py")


@pytest.fixture(autouse=True)
def _bounded() -> Iterator[None]:
    with at_most(60):
        yield


def work(client: Client) -> list[Heard]:
    """Ask until the model only speaks, giving "ok" for every tool."""
    heard = [client.ask()]
    while heard[-1].tool:
        client.outcome("ok")
        heard.append(client.ask())
    return heard


@WIRES
@STREAMED
def test_a_script_is_followed_to_its_end(api: str, streamed: bool) -> None:
    """Work becomes calls of the tools on offer, words become words, and the conversation moves on by itself."""
    with ScriptedModel(HELLO, RUN, Say("I did it, all of it.")) as model:
        client = CLIENTS[api](model, streamed=streamed)
        client.user("please")
        heard = work(client)
    assert [(one.tool, one.arguments) for one in heard] == [
        ("write_file", {"file_path": "hello.py", "content": HELLO.content}),
        ("run_shell_command", {"command": "python3 hello.py"}),
        ("", ""),
    ]
    assert heard[-1].text == "I did it, all of it."
    assert [(seen.kind, seen.number, seen.api) for seen in model.seen] == [("step", n, api) for n in range(3)]


@WIRES
@STREAMED
def test_a_resumed_session_goes_on(api: str, streamed: bool) -> None:
    """After words that ended a turn, the next turn of the same conversation gets the steps that follow."""
    with ScriptedModel(HELLO, Say("Half of it."), RUN, Stop("The rest.")) as model:
        client = CLIENTS[api](model, streamed=streamed)
        client.user("begin")
        first = work(client)
        client.user("go on")
        second = work(client)
    assert [one.tool or one.text for one in (*first, *second)] == [
        "write_file",
        "Half of it.",
        "run_shell_command",
        "The rest.",
    ]


@WIRES
@STREAMED
def test_a_retry_is_answered_the_same(api: str, streamed: bool) -> None:
    """The same history gives the same bytes, however often it is sent, and whatever was asked in between."""
    with ScriptedModel(HELLO, Say("Done.")) as model:
        client, other = (CLIENTS[api](model, streamed=streamed) for _ in range(2))
        client.user("please")
        place, body, headers = client.place(), client.body(), client.headers()
        first = post(client.url, place, body, headers).raw
        other.user("something else")
        work(other)
        again = post(client.url, place, body, headers).raw
    assert first == again
    assert len(first) > 100


@WIRES
@STREAMED
def test_usage_is_what_was_reported(api: str, streamed: bool) -> None:
    """The model counts for each key exactly what it told that key's clients."""
    with ScriptedModel(HELLO, Say("Done."), keys=("one", "two")) as model:
        for key, times in (("one", 1), ("two", 2)):
            for _ in range(times):
                client = CLIENTS[api](model, streamed=streamed, key=key)
                client.user("please")
                heard = work(client)
        told = Usage(2, sum(one.taken for one in heard), sum(one.given for one in heard))
        assert model.usage_by_key == {"one": told, "two": told.plus(told)}
        assert model.usage == told.plus(told).plus(told)
    assert all(one.taken > 0 and one.given > 0 for one in heard)


@WIRES
@STREAMED
@pytest.mark.parametrize("status", [400, 403, 404, 429, 500, 503])
def test_errors_come_in_the_form_of_the_wire(api: str, streamed: bool, status: int) -> None:
    """A step that is an error fails every retry, in the provider's own form, and costs nothing."""
    with ScriptedModel(Error(status, "no more today", retry_after=7)) as model:
        client = CLIENTS[api](model, streamed=streamed)
        client.user("please")
        told = [client.ask() for _ in range(3)]
        assert model.usage == Usage()
    for heard in told:
        assert heard.status == status
        assert heard.headers["retry-after"] == "7"
        assert heard.error["error"]["message"] == "no more today"
        assert error_kind(api, heard.error) == KINDS[status][COLUMN[api]]


COLUMN = {"openai": 0, "responses": 0, "anthropic": 1, "gemini": 2}
KINDS = {
    400: ("invalid_request_error", "invalid_request_error", "INVALID_ARGUMENT"),
    401: ("invalid_api_key", "authentication_error", "UNAUTHENTICATED"),
    403: ("permission_error", "permission_error", "PERMISSION_DENIED"),
    404: ("not_found_error", "not_found_error", "NOT_FOUND"),
    429: ("rate_limit_exceeded", "rate_limit_error", "RESOURCE_EXHAUSTED"),
    500: ("server_error", "api_error", "INTERNAL"),
    503: ("server_error", "api_error", "UNAVAILABLE"),
}


def error_kind(api: str, document: Mapping[str, Any]) -> str:
    if api == "anthropic":
        assert document["type"] == "error"
    return str(document["error"]["status" if api == "gemini" else "type"])


@WIRES
def test_an_error_that_passes(api: str) -> None:
    """An error with a number of times strikes so often, for each conversation, and then the script goes on."""
    with ScriptedModel(HELLO, Error(429, times=2), Say("Done.")) as model:
        for number in range(2):
            client = CLIENTS[api](model)
            client.user(f"please, for the time {number}")
            client.ask()
            client.outcome("ok")
            assert [client.ask().status for _ in range(2)] == [429, 429]
            assert client.ask().text == "Done."


@WIRES
@STREAMED
@pytest.mark.parametrize("key", ["", "wrong", "scripted-key-and-more"])
def test_a_wrong_key_is_refused(api: str, streamed: bool, key: str) -> None:
    """Without a key it knows, the model says nothing but 401, in the form of the wire."""
    with ScriptedModel(Say("secret words")) as model:
        client = CLIENTS[api](model, streamed=streamed, key=key)
        client.user("please")
        heard = client.ask()
    assert heard.status == 401
    assert error_kind(api, heard.error) in KINDS[401]
    assert b"secret words" not in heard.raw
    assert [(seen.key, seen.kind) for seen in model.seen] == [(key, "refused")]


@WIRES
def test_nobody_is_authorized(api: str) -> None:
    """A model that is told so refuses the right key as well."""
    with ScriptedModel(Say("Hello."), unauthorized=True) as model:
        client = CLIENTS[api](model)
        client.user("please")
        assert client.ask().status == 401


def test_a_key_in_the_address() -> None:
    """Gemini's clients may put the key into the query."""
    with ScriptedModel(Say("Hello.")) as model:
        body = {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]}
        place = f"/v1beta/models/m:generateContent?key={model.key}"
        assert post(model.url, place, body, {}).status == 200


@WIRES
def test_a_loop_goes_on_for_ever(api: str) -> None:
    """The answer before Loop comes again and again, each time as a call of its own."""
    with ScriptedModel(Say("First."), RUN, Loop()) as model:
        client = CLIENTS[api](model)
        client.user("please")
        assert client.ask().text == "First."
        client.user("go on")
        heard = []
        for _ in range(12):
            heard.append(client.ask())
            client.outcome("ok")
    assert {one.tool for one in heard} == {"run_shell_command"}
    assert len({one.raw for one in heard}) == 12


@WIRES
def test_a_script_that_is_over_stops(api: str) -> None:
    """Past its last step a script only says that it is over."""
    with ScriptedModel() as model:
        client = CLIENTS[api](model)
        client.user("please")
        assert (client.ask().text, client.ask().text) == ("The script is over.", "The script is over.")


def test_silence_takes_its_time_and_ends_with_the_server() -> None:
    """Hang delays the answer that follows it; a server that closes does not wait for it."""
    with ScriptedModel(Hang(0.3), Say("At last."), Hang(3600), Say("Never.")) as model:
        client = Chat(model)
        client.user("please")
        begun = time.monotonic()
        assert client.ask().text == "At last."
        assert time.monotonic() - begun >= 0.3
        client.user("go on")
        waiting = threading.Thread(target=_swallowed, args=(client,))
        waiting.start()
        while len(model.seen) < 1:
            time.sleep(0.01)
        time.sleep(0.1)
    waiting.join(5)
    assert not waiting.is_alive()


def _swallowed(client: Client) -> None:
    try:
        client.ask()
    except (OSError, ValueError):
        pass  # the server went away, or sent its answer on the way out


def test_nothing_is_left_when_it_closes() -> None:
    """Threads and connections are gone, also those of clients that keep theirs open."""
    import http.client
    from urllib.parse import urlsplit

    before = threading.active_count()
    with ScriptedModel(Say("Hello.")) as model:
        kept = [http.client.HTTPConnection(urlsplit(model.url).netloc, timeout=5) for _ in range(5)]
        for connection in kept:
            connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {model.key}"})
            assert connection.getresponse().read()
    assert threading.active_count() == before
    for connection in kept:
        connection.close()


# ── which script ──


@WIRES
def test_tasks_have_scripts_of_their_own(api: str) -> None:
    """The marker in the first message that has one decides, and `task-7` is not in `task-71`."""
    tasks = {"task-7": Script.of(Say("seven")), "task-71": Script.of(Say("seventy-one"))}
    expected = {
        "do task-7.": "seven",
        "task-71: after task-7": "seventy-one",
        "task-712": "any",
        "nothing": "any",
        "my-task-7": "any",
    }
    with ScriptedModel(Say("any"), tasks=tasks) as model:
        for text, answer in expected.items():
            client = CLIENTS[api](model)
            client.user(text)
            assert client.ask().text == answer


@WIRES
def test_a_second_attempt_can_differ(api: str) -> None:
    """Evidence in the newest message chooses other steps, in a new conversation and in a resumed one."""
    script = (HELLO, Say("Tried."), When("AssertionError", (RUN, Say("Repaired."))), When("missing", (Say("Found."),)))
    with ScriptedModel(*script) as model:
        fresh = CLIENTS[api](model)
        fresh.user("again: AssertionError in hello.py")
        assert [one.tool or one.text for one in work(fresh)] == ["run_shell_command", "Repaired."]
        resumed = CLIENTS[api](model)
        resumed.user("do it")
        assert [one.tool or one.text for one in work(resumed)] == ["write_file", "Tried."]
        resumed.user("there was an AssertionError, missing too")
        assert [one.tool or one.text for one in work(resumed)] == ["run_shell_command", "Repaired."]
        resumed.user("hello.py is missing")
        assert [one.tool or one.text for one in work(resumed)] == ["Found."]


def test_two_conversations_at_once() -> None:
    """Many conversations at once, on all wires, do not disturb each other."""
    with ScriptedModel(HELLO, RUN, RUN, Say("Done.")) as model:
        told: list[list[str]] = []

        def converse(number: int) -> None:
            client = CLIENTS[APIS[number % 4]](model, streamed=number % 2 == 0)
            client.user(f"conversation {number}")
            told.append([one.tool or one.text for one in work(client)])

        threads = [threading.Thread(target=converse, args=(number,)) for number in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert told == [["write_file", "run_shell_command", "run_shell_command", "Done."]] * 16


# ── the odd requests of real programs ──


@WIRES
@STREAMED
@pytest.mark.parametrize(
    ("system", "text"),
    [
        ("You are a title generator. You output ONLY a thread title.", "make it work"),
        ("", "Based on the conversation, write a concise description of this session"),
        ("Analyze if this message indicates a new conversation topic", "make it work"),
    ],
)
def test_side_requests_are_no_steps(api: str, streamed: bool, system: str, text: str) -> None:
    """Requests for titles and topics, which offer no tools, get a few words and leave the script where it is."""
    with ScriptedModel(HELLO, Say("Done.")) as model:
        client = CLIENTS[api](model, streamed=streamed, tools={})
        client.system = system
        client.user(text)
        assert client.ask().text == "Scripted work"
    assert [seen.kind for seen in model.seen] == ["aside"]


def test_a_quota_check_is_no_step() -> None:
    """A request for one token is answered with words, whatever it says."""
    with ScriptedModel(HELLO) as model:
        client = Messages(model, tools={})
        client.more = {"max_tokens": 1}
        client.user("quota")
        assert client.ask().text == "Scripted work"


@pytest.mark.parametrize("api", ["openai", "responses", "anthropic", "gemini"])
def test_a_form_is_filled_in(api: str) -> None:
    """A request for JSON of a certain shape gets the smallest that has it; a script that says JSON is not overruled."""
    schema = {
        "type": "object",
        "properties": {"reasoning": {"type": "string"}, "next_speaker": {"type": "string", "enum": ["user", "model"]}},
        "required": ["reasoning", "next_speaker"],
    }
    wanted = {
        "openai": {"response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": schema}}},
        "responses": {"text": {"format": {"type": "json_schema", "name": "f", "schema": schema}}},
        "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        "gemini": {"generationConfig": {"responseMimeType": "application/json", "responseJsonSchema": schema}},
    }
    told = []
    for step in (Say("Hello."), Say('{"reasoning": "mine", "next_speaker": "model"}')):
        with ScriptedModel(step) as model:
            client = CLIENTS[api](model, tools={})
            client.more = wanted[api]
            client.user("who speaks?")
            told.append(json.loads(client.ask().text))
    assert told == [
        {"reasoning": "Scripted work", "next_speaker": "user"},
        {"reasoning": "mine", "next_speaker": "model"},
    ]


def test_a_forced_tool_is_called() -> None:
    """One tool that must be called, and that no step can use, is called with the least it takes."""
    schema = {"type": "object", "properties": {"done": {"type": "boolean"}}, "required": ["done"]}
    with ScriptedModel(Say("Hello.")) as model:
        client = Chat(model, tools={"respond_in_schema": schema})
        client.more = {"tool_choice": "required"}
        client.user("done?")
        heard = client.ask()
    assert (heard.tool, heard.arguments, model.seen[0].kind) == ("respond_in_schema", {"done": False}, "aside")


@pytest.mark.parametrize(
    "refusal",
    [
        "<tool_use_error>File has not been read yet. Read it first before writing to it.</tool_use_error>",
        "You must read file /w/app.py before overwriting it. Use the Read tool first",
    ],
)
def test_what_was_not_read_is_read_first(refusal: str) -> None:
    """A program that lets nobody edit what he has not read gets a Read, and then the edit again; neither is a step."""
    path = {"file_path": {"type": "string"}}
    edit = {"old_string": {"type": "string"}, "new_string": {"type": "string"}, **path}
    tools = {
        "Read": {"type": "object", "properties": path, "required": ["file_path"]},
        "Edit": {"type": "object", "properties": edit, "required": list(edit)},
    }
    with ScriptedModel(EditFile("app.py", "41", "42"), Say("Done.")) as model:
        client = Messages(model, tools=tools)
        client.system = " - Primary working directory: /w/here\n"
        client.user("please")
        told = []
        for outcome in (refusal, "1: return 41", "edited"):
            told.append(client.ask())
            client.outcome(outcome)
        told.append(client.ask())
    assert [one.tool or one.text for one in told] == ["Edit", "Read", "Edit", "Done."]
    assert told[1].arguments == {"file_path": "/w/here/app.py"}
    assert told[0].arguments == {"file_path": "/w/here/app.py", "old_string": "41", "new_string": "42"}


def test_a_program_that_never_lets_it_edit_does_not_go_round_for_ever() -> None:
    """After a few refusals the model gives up on a step and takes the next."""
    path = {"path": {"type": "string"}, "content": {"type": "string"}}
    tools = {name: {"type": "object", "properties": path, "required": list(path)} for name in ("read", "write")}
    with ScriptedModel(WriteFile("a", "b"), Say("Done.")) as model:
        client = Chat(model, tools=tools)
        client.user("please")
        told = []
        while not told or told[-1].tool:
            told.append(client.ask())
            client.outcome("it has not been read yet")
            assert len(told) < 10
    assert told[-1].text == "Done."


def test_a_program_without_tools_gets_blocks() -> None:
    """aider's form: all the work up to the next words in one answer, and few-shot examples are not counted."""
    with ScriptedModel(WriteFile("new.py", "a = 1\n"), EditFile("old.py", "b = 1\n", "b = 2\n"), Say("There."),
                       Say("More.")) as model:  # fmt: skip
        client = Chat(model, tools={})
        client.system = "Every edit must be a *SEARCH/REPLACE block*."
        client.history = [{"role": "user", "content": "an example"}, {"role": "assistant", "content": "Ok."}]
        client.user("please change the title of the page")
        first = client.ask()
        client.user("go on")
        second = client.ask()
    assert first.text == (
        "new.py\n```\n<<<<<<< SEARCH\n=======\na = 1\n>>>>>>> REPLACE\n```\n\n"
        "old.py\n```\n<<<<<<< SEARCH\nb = 1\n=======\nb = 2\n>>>>>>> REPLACE\n```\n\nThere."
    )
    assert second.text == "More."


def test_a_program_that_asks_for_whole_files_gets_them() -> None:
    """An edit is made in the file as the program has shown it; until then its model asks to see it."""
    steps = (EditFile("old.py", "b = 1\n", "b = 2\n"), WriteFile("new.py", "a = 1\n"), Say("There."), Say("More."))
    with ScriptedModel(*steps) as model:
        client = Chat(model, tools={})
        client.system = "You MUST use this *file listing* format."
        client.user("please")
        asked = client.ask()
        client.user("old.py\n```\na = 0\nb = 1\n```\n")
        shown = client.ask()
        client.user("go on")
        last = client.ask()
    assert asked.text.startswith("Please show me `old.py` first.")
    assert shown.text == "old.py\n```\na = 0\nb = 2\n```\n\nnew.py\n```\na = 1\n```\n\nThere."
    assert last.text == "More."


@STREAMED
def test_a_free_form_patch(streamed: bool) -> None:
    """codex's apply_patch takes text, not JSON: whole files and whole lines, and a shell for the rest."""
    tools: dict[str, Any] = {
        "apply_patch": None,
        "exec_command": {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]},
    }
    steps = (
        WriteFile("d/new.py", "a\nb\n"),
        EditFile("old.py", "c\n", "d\n"),
        EditFile("old.py", "x", "y"),
        Say("Done."),
    )
    with ScriptedModel(*steps) as model:
        client = Responses(model, streamed=streamed, tools=tools)
        client.user("please")
        told = work(client)
    assert [one.tool for one in told] == ["apply_patch", "apply_patch", "exec_command", ""]
    assert told[0].arguments == "*** Begin Patch\n*** Add File: d/new.py\n+a\n+b\n*** End Patch\n"
    assert told[1].arguments == "*** Begin Patch\n*** Update File: old.py\n@@\n-c\n+d\n*** End Patch\n"
    assert isinstance(told[2].arguments, dict) and told[2].arguments["cmd"].startswith("python3 -c ")


def test_an_unknown_earlier_response_is_refused() -> None:
    """Nothing is remembered between requests, so a client that relies on it is told."""
    with ScriptedModel(Say("Hello.")) as model:
        client = Responses(model)
        client.more = {"previous_response_id": "resp_1"}
        client.user("please")
        assert client.ask().status == 400


def test_a_stream_of_gemini_without_events() -> None:
    """Without alt=sse a stream is one JSON array."""
    with ScriptedModel(Say("Hello, and good day.")) as model:
        client = Gemini(model)
        client.user("please")
        answer = post(model.url, "/v1beta/models/m:streamGenerateContent", client.body(), client.headers())
    texts = [piece["candidates"][0]["content"]["parts"][0]["text"] for piece in json.loads(answer.raw)]
    assert len(texts) > 1
    assert "".join(texts) == "Hello, and good day."


def test_tokens_can_be_counted_before() -> None:
    """Both wires that can count beforehand say what the request will cost, and it costs nothing to ask."""
    with ScriptedModel(Say("Hello.")) as model:
        claude, gemini = Messages(model), Gemini(model)
        for client in (claude, gemini):
            client.user("please, " * 50)
        one = post(model.url, "/v1/messages/count_tokens", claude.body(), claude.headers())
        other = post(model.url, "/v1beta/models/m:countTokens", gemini.body(), gemini.headers())
        assert model.usage == Usage()
        assert json.loads(one.raw)["input_tokens"] == claude.ask().taken
        assert json.loads(other.raw)["totalTokens"] == gemini.ask().taken


def test_the_list_of_models() -> None:
    """Every wire's clients find the models they look for; without a key there is no list."""
    with ScriptedModel(models=("a", "b")) as model:
        headers = {"Authorization": f"Bearer {model.key}"}
        told = json.loads(post(model.url, "/v1/models", None, headers, "GET").raw)
        one = json.loads(post(model.url, "/v1/models/a", None, headers, "GET").raw)
        refused = post(model.url, "/v1/models", None, {}, "GET").status
        knock = post(model.url, "/", None, {}, "HEAD").status
    assert [row["id"] for row in told["data"]] == ["a", "b"]
    assert (one["id"], refused, knock) == ("a", 401, 200)


@pytest.mark.parametrize(
    ("place", "body", "status"),
    [
        ("/v1/embeddings", b"{}", 404),
        ("/v1/chat/completions/../../x", b"{}", 404),
        ("/v1/chat/completions", b"not json", 400),
        ("/v1/chat/completions", b"[]", 400),
        ("/chat/completions", b'{"messages": [{"role": "user", "content": "hi"}]}', 200),
    ],
)
def test_places_and_bodies(place: str, body: bytes, status: int) -> None:
    """What is not a wire is not there, what is not a request is refused, and a missing version does not matter."""
    with ScriptedModel(Say("Hello.")) as model:
        assert post(model.url, place, body, {"Authorization": f"Bearer {model.key}"}).status == status


def test_bodies_as_clients_send_them() -> None:
    """Chunked and compressed bodies are read; an encoding that is not known is refused and not guessed."""
    body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
    with ScriptedModel(Say("Hello.")) as model:
        headers = {"Authorization": f"Bearer {model.key}"}
        place = "/v1/chat/completions"
        packed = {**headers, "Content-Encoding": "gzip"}
        assert post(model.url, place, gzip.compress(body), packed).status == 200
        assert post(model.url, place, body, {**headers, "Content-Encoding": "zstd"}).status == 415
        chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
        assert post(model.url, place, chunked, {**headers, "Transfer-Encoding": "chunked"}).status == 200
        assert [seen.body for seen in model.seen] == [body, body]


def test_requests_are_remembered_as_they_came() -> None:
    """Path, headers, key and body are there to be looked at; the body also as a document."""
    with ScriptedModel(Say("Hello.")) as model:
        client = Messages(model)
        client.user("remember me")
        client.ask()
    (seen,) = model.seen
    assert (seen.method, seen.path, seen.key, seen.status) == ("POST", "/v1/messages", model.key, 200)
    assert seen.headers["x-api-key"] == model.key
    assert seen.document["messages"] == [{"role": "user", "content": "remember me"}]


def test_a_mistake_of_the_model_is_not_hidden() -> None:
    """A request that breaks the server itself gets a 500, and the block that made the server raises."""
    told = []

    def break_it() -> None:
        with ScriptedModel(Say("Hello.")) as model:
            headers = {"Authorization": f"Bearer {model.key}"}
            told.append(post(model.url, "/v1/responses", b'{"input": [1]}', headers).status)

    with pytest.raises(AttributeError):
        break_it()
    assert told == [500]
