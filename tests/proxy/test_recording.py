"""Transcripts and tapes: everything is written down, secrets are not, and a tape gives back what it heard."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.disk.confined import Root
from holdfast.errors import InvalidInput
from holdfast.model.agent import Usage
from holdfast.proxy.budget import Spending
from holdfast.proxy.record import TEXT_LIMIT
from holdfast.proxy.tape import Tape
from holdfast.store.blobs import Blobs
from holdfast.store.listening import Listening
from holdfast.store.sockets import clear_place, socket_place
from holdfast.store.transcripts import Lines, Transcript, sweep_transcripts
from proxy.answers import ANTHROPIC, CASES, OPENAI, Case, event_bytes
from proxy.asking import KEY, TOKEN, asking, proxied
from proxy.provider import Break, Reply, providing, streamed

EACH = pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])


def mask(text: str) -> str:
    return re.sub(r"hush-\w+", "[hushed]", text)


@EACH
@pytest.mark.parametrize("stream", [False, True])
def test_each_request_is_a_line(case: Case, stream: bool) -> None:
    """A line says when, what, which model, how it ended, what it cost, and what was said on both sides."""
    lines: list[Mapping[str, object]] = []
    with (
        providing(lambda _: case.reply(stream=stream)) as provider,
        proxied(provider.url, transcript=lines.append) as (proxy, client),
    ):
        client.ask(*case.asking(stream=stream))
        client.ask("/v1/files", {})
        usage = proxy.usage
    first, second = lines
    assert {name: first[name] for name in ("kind", "version", "api", "model", "status", "outcome", "estimated")} == {
        "kind": "model", "version": 1, "api": case.api, "model": "m-1", "status": 200, "outcome": "answered",
        "estimated": False,
    }  # fmt: skip
    assert Usage(*(first[name] for name in Usage._fields)) == usage  # type: ignore[arg-type]
    assert "hello" in str(first["request"]) and first["response"] == "Hello there"
    assert (second["status"], second["outcome"], second["path"]) == (403, "endpoint", "/v1/files")


def test_secrets_are_masked_even_in_pieces_and_escapes() -> None:
    """A secret that a stream cuts in two, or that JSON spells with escapes, is masked like any other."""
    lines: list[Mapping[str, object]] = []
    deltas = ["it is hu", "sh-one", "two, yes"]
    events = [{"type": "content_block_delta", "delta": {"text": delta}} for delta in deltas]
    body = json.dumps({**ANTHROPIC.body, "system": "say hush-three"}).replace("hush", "\\u0068ush")
    with (
        providing(lambda _: streamed(*map(event_bytes, events))) as provider,
        proxied(provider.url, transcript=lines.append, mask=mask) as (_, client),
    ):
        assert b"sh-one" in client.ask(ANTHROPIC.path, body.encode()).body
    assert lines[0]["response"] == "it is [hushed], yes"
    assert "[hushed]" in str(lines[0]["request"]) and "hush-" not in str(lines)


def test_long_texts_are_cut_and_say_so() -> None:
    """The beginning and the end of a long text are kept."""
    lines: list[Mapping[str, object]] = []
    long = {**OPENAI.body, "messages": [{"role": "user", "content": "begin " + "x" * 400_000 + " end"}]}
    with (
        providing(lambda _: OPENAI.reply(stream=False)) as provider,
        proxied(provider.url, transcript=lines.append) as (_, client),
    ):
        client.ask(OPENAI.path, long)
        client.ask(OPENAI.path, {**OPENAI.body, "messages": ["y" * (5 << 20)]})
    text = str(lines[0]["request"])
    assert len(text) < TEXT_LIMIT + 100 and "begin" in text and " end" in text and "characters left out" in text
    assert "not kept" in str(lines[1]["request"])


def test_the_key_is_nowhere() -> None:
    """No transcript, tape, error, refusal or rendering holds the true key, even when the provider repeats it."""
    lines: list[Mapping[str, object]] = []
    taped: list[Mapping[str, object]] = []
    half = len(KEY) // 2
    replies = [
        Reply((f'{{"error": {{"message": "bad {KEY}"}}}}'.encode(),), 401),
        Reply((f'{{"choices": [{{"message": {{"content": "your key is {KEY}"}}}}]}}'.encode(),)),
        streamed(f'data: {{"x": "{KEY[:half]}'.encode(), f'{KEY[half:]}"}}\n\n'.encode()),
        Reply((b"{}",), headers=(("Content-Type", "application/json"), ("x-request-id", KEY))),
        Reply((b"",), 302, (("Location", f"http://127.0.0.1/{KEY}"),)),
    ]
    told: list[str] = []
    with providing(lambda _: replies.pop(0)) as provider:
        options = {"transcript": lines.append, "tape": Tape.recording(taped.append)}
        with proxied(provider.url, **options) as (proxy, client):
            for _ in range(5):
                told.append(repr(client.ask(OPENAI.path, OPENAI.body)))
            client.ask(f"/v1/{KEY}", {})
            client.ask(f"/v1/models?key={KEY}", authorization="none")
            client.ask(OPENAI.path, b"not JSON " + KEY.encode())
            shown = repr((proxy, proxy.failures, proxy._house.upstream))
    assert len(lines) == 8 and len(taped) == 5
    for text in (json.dumps(lines), json.dumps(taped), shown, told[0], told[3], told[4]):
        assert KEY not in text and TOKEN not in text


def test_a_sink_that_fails_stops_everything() -> None:
    """When requests cannot be recorded no more are sent, and leaving the proxy raises the reason."""

    def full(_: Mapping[str, object]) -> None:
        raise OSError(28, "No space left on device")

    with providing(lambda _: OPENAI.reply(stream=False)) as provider:
        statuses: list[int] = []

        def two_requests() -> None:
            with proxied(provider.url, transcript=full) as (_, client):
                statuses.extend(client.ask(OPENAI.path, OPENAI.body).status for _ in range(2))

        with pytest.raises(OSError, match="No space left"):
            two_requests()
        assert statuses == [200, 503]
        assert len(provider.seen) == 1


def test_a_watcher_that_fails_is_heard() -> None:
    """An error in `on_spent` is raised at the end, and the answer still came."""

    def wrong(_: Usage) -> None:
        raise RuntimeError("wrong")

    with (
        providing(lambda _: OPENAI.reply(stream=False)) as provider,
        pytest.raises(RuntimeError, match="wrong"),
        proxied(provider.url, on_spent=wrong) as (_, client),
    ):
        assert client.ask(OPENAI.path, OPENAI.body).status == 200


# ── tapes ──


def recorded(case: Case, stream: bool, path: Path) -> bytes:
    with (
        providing(lambda _: case.reply(stream=stream)) as provider,
        Lines(str(path)) as lines,
        proxied(provider.url, tape=Tape.recording(lines.write)) as (_, client),
    ):
        return client.ask(*case.asking(stream=stream)).body


NOBODY = "http://127.0.0.1:9"


@EACH
@pytest.mark.parametrize("stream", [False, True])
def test_a_tape_gives_back_what_it_heard(case: Case, stream: bool, tmp_path: Path) -> None:
    """Replayed, the same question gets the same bytes in the same pieces and is counted alike; nobody is asked."""
    heard = recorded(case, stream, tmp_path / "tape")
    lines = (tmp_path / "tape").read_text().splitlines()
    assert "".join(json.loads(lines[1])["chunks"]).encode() == heard
    with proxied(NOBODY, tape=Tape.replaying(lines)) as (proxy, client):
        for number in (1, 2):
            answer = client.ask(*case.asking(stream=stream))
            assert (answer.status, answer.body) == (200, heard)
            assert proxy.usage[:3] == (number, case.tokens.input * number, case.tokens.output * number)


def test_what_differs_from_run_to_run_does_not_matter(tmp_path: Path) -> None:
    """Order of names, session ids and accounts are no part of a question; everything else is."""
    recorded(ANTHROPIC, False, tmp_path / "tape")
    path, body = ANTHROPIC.asking(stream=False)
    with proxied(NOBODY, tape=Tape.replaying((tmp_path / "tape").read_text().splitlines())) as (proxy, client):
        same = {"metadata": {"user_id": "another"}, **dict(reversed(body.items()))}
        assert client.ask(path, same).status == 200
        answer = client.ask(path, {**body, "temperature": 0.5})
        assert answer.status == 409 and "not on tape" in answer.words
        assert client.ask("/v1/messages/count_tokens", body).status == 409
        assert proxy.failures == {"tape": 2}


def test_how_long_a_command_took_does_not_matter(tmp_path: Path) -> None:
    """Codex writes seconds and a random name above each output; the output itself is part of the question."""
    path, body = ANTHROPIC.asking(stream=False)

    def asking(output: str, seconds: str, chunk: str) -> dict[str, Any]:
        text = f"Chunk ID: {chunk}\nWall time: {seconds} seconds\nOutput:\n{output}"
        return {**body, "messages": [*body["messages"], {"role": "user", "content": text}]}

    with (
        providing(lambda _: ANTHROPIC.reply(stream=False)) as provider,
        Lines(str(tmp_path / "tape")) as lines,
        proxied(provider.url, tape=Tape.recording(lines.write)) as (_, client),
    ):
        assert client.ask(path, asking("4 passed", "0", "f4a6f5")).status == 200
    with proxied(NOBODY, tape=Tape.replaying((tmp_path / "tape").read_text().splitlines())) as (_, client):
        assert client.ask(path, asking("4 passed", "0.1234", "0b3c21")).status == 200
        assert client.ask(path, asking("5 passed", "0", "f4a6f5")).status == 409


def test_a_question_asked_twice_has_two_answers() -> None:
    """An error and then success are replayed in that order; the last answer is repeated."""
    taped: list[Mapping[str, object]] = []
    replies = [Reply((b'{"error": {}}',), 500), OPENAI.reply(stream=False)]
    with (
        providing(lambda _: replies.pop(0)) as provider,
        proxied(provider.url, tape=Tape.recording(taped.append)) as (_, client),
    ):
        assert [client.ask(OPENAI.path, OPENAI.body).status for _ in range(2)] == [500, 200]
    with proxied(NOBODY, tape=Tape.replaying(map(json.dumps, taped))) as (proxy, client):
        assert [client.ask(OPENAI.path, OPENAI.body).status for _ in range(3)] == [500, 200, 200]
        assert proxy.failures == {"model_error": 1}


def test_an_answer_that_broke_off_is_not_on_the_tape() -> None:
    """Half an answer is no answer to replay."""
    taped: list[Mapping[str, object]] = []
    with (
        providing(lambda _: streamed(OPENAI.pieces()[0], Break())) as provider,
        proxied(provider.url, tape=Tape.recording(taped.append)) as (_, client),
        pytest.raises(Exception, match=r"IncompleteRead|reset"),
    ):
        client.ask(*OPENAI.asking(stream=True))
    assert taped == [{"tape": "holdfast/1"}]


def test_an_answer_with_a_secret_is_left_off_the_tape_even_in_pieces() -> None:
    """Neither whole nor cut in two by the stream; its question is then refused, and the others are answered."""
    taped: list[Mapping[str, object]] = []
    split = [{"type": "content_block_delta", "delta": {"text": text}} for text in ("it is hu", "sh-onetwo")]
    whole = [{"type": "content_block_delta", "delta": {"text": "it is hush-three"}}]
    plain = [{"type": "content_block_delta", "delta": {"text": "it is quiet"}}]
    replies = [streamed(*map(event_bytes, events)) for events in (split, whole, plain)]
    asked = [{**ANTHROPIC.body, "temperature": number / 10} for number in range(3)]
    with (
        providing(lambda _: replies.pop(0)) as provider,
        proxied(provider.url, tape=Tape.recording(taped.append), mask=mask) as (_, client),
    ):
        assert [client.ask(ANTHROPIC.path, body).status for body in asked] == [200, 200, 200]
    assert "sh-onetwo" not in str(taped) and "hush" not in str(taped) and "quiet" in str(taped)
    with proxied(NOBODY, tape=Tape.replaying(map(json.dumps, taped))) as (_, client):
        answers = [client.ask(ANTHROPIC.path, body) for body in asked]
    assert [answer.status for answer in answers] == [409, 409, 200]
    assert "looks like a secret" in answers[0].words


def test_tapes_one_after_the_other_are_a_tape() -> None:
    """As in a folder; one that grew too large says so at its end, and is good for what it holds."""
    full = '{"kind": "left_out", "lines": 3}'
    tape = Tape.replaying([FIRST, GOOD, full, FIRST, GOOD.replace('"x"', '"y"')])
    assert [tape.answer("d").chunks for _ in range(3)] == [(b"x",), (b"y",), (b"y",)]
    with pytest.raises(InvalidInput):
        Tape.replaying([FIRST, GOOD, FIRST.replace("1", "2")])


def test_bytes_that_are_no_text_survive_a_tape() -> None:
    """A piece that ends inside a character comes back as it was."""
    taped: list[Mapping[str, object]] = []
    pieces = ('data: {"x": "ä'.encode()[:-1], b"\xa4" + b'"}\n\n')
    with (
        providing(lambda _: streamed(*pieces)) as provider,
        proxied(provider.url, tape=Tape.recording(taped.append)) as (_, client),
    ):
        client.ask(OPENAI.path, OPENAI.body)
    with proxied(NOBODY, tape=Tape.replaying(map(json.dumps, taped))) as (_, client):
        assert client.ask(OPENAI.path, OPENAI.body).body == b"".join(pieces)


GOOD = '{"request": "d", "path": "/", "status": 200, "headers": [], "chunks": ["x"]}'
FIRST = '{"tape": "holdfast/1"}'


@pytest.mark.parametrize(
    "lines",
    [
        [], ["junk"], ['{"tape": "holdfast/2"}'], [GOOD], [FIRST, "{}"], [FIRST, "[1"],
        [FIRST, GOOD.replace("200", '"200"')],
        [FIRST, GOOD.replace("200", "101")], [FIRST, GOOD.replace('["x"]', '[{"base64": "?"}]')],
        [FIRST, GOOD.replace('"headers": []', '"headers": [["a"]]')], [FIRST, GOOD.replace('["x"]', "[1]")],
    ],
)  # fmt: skip
def test_what_is_no_tape_is_refused(lines: list[str]) -> None:
    """A tape of another version, a damaged line, an empty file: refused with the number of the line."""
    assert not Tape.replaying([FIRST, GOOD])._write
    with pytest.raises(InvalidInput):
        Tape.replaying(lines)


# ── the files ──


def test_a_transcript_becomes_a_blob(tmp_path: Path) -> None:
    """Lines are in a private file while they are written, and a blob by their digest afterwards."""
    (tmp_path / "objects").mkdir()
    with Root(str(tmp_path)) as state, providing(lambda _: OPENAI.reply(stream=True)) as provider:
        transcript = Transcript(state, "task-1")
        with proxied(provider.url, Spending(), transcript=transcript.write) as (_, client):
            for _ in range(3):
                client.ask(*OPENAI.asking(stream=True))
        file = tmp_path / "transcripts" / "task-1.jsonl"
        assert file.stat().st_mode & 0o777 == 0o600
        digest = transcript.keep(Blobs(state))
        assert not file.exists()
        kept = Blobs(state).get(digest).splitlines()
        assert [json.loads(line)["response"] for line in kept] == ["Hello there"] * 3
        with pytest.raises(ValueError, match="closed"):
            transcript.write({})


def test_a_file_of_lines_is_new_and_bounded(tmp_path: Path) -> None:
    """What exists is not written over; beyond its limit a file only counts what it leaves out."""
    path = tmp_path / "lines"
    with Lines(str(path), limit=500) as lines:
        for number in range(20):
            lines.write({"number": number, "text": "x" * 40})
        with pytest.raises(InvalidInput):
            Lines(str(path))
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert found[-1] == {"kind": "left_out", "lines": 20 - (len(found) - 1)} and 1 < len(found) < 20
    assert path.stat().st_size <= 500
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InvalidInput):
        Lines(str(tmp_path / "link"))
    assert not (tmp_path / "elsewhere").exists()


def test_lines_of_many_threads_do_not_mix(tmp_path: Path) -> None:
    """Eight clients at once leave whole lines."""
    with (
        providing(lambda _: OPENAI.reply(stream=True)) as provider,
        Lines(str(tmp_path / "lines")) as lines,
        proxied(provider.url, transcript=lines.write) as (_, client),
    ):

        def work() -> None:
            with asking(client._path) as mine:
                for _ in range(5):
                    mine.ask(*OPENAI.asking(stream=True))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [line["outcome"] for line in found] == ["answered"] * 40


def test_a_transcript_whose_writer_died_is_swept_with_its_socket(tmp_path: Path) -> None:
    """After a crash nothing is left in the state or in the temporary directory; one under way is not touched."""
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state/objects").mkdir()
    with Root(str(tmp_path / "state")) as state:
        live = Transcript(state, "m-live")
        live.write({"kind": "x"})
        child = os.fork()
        if child == 0:
            try:
                with Root(str(tmp_path / "state")) as own, socket_place(f"m-{os.getpid()}") as path:
                    Transcript(own, f"m-{os.getpid()}").write({"kind": "y"})
                    Listening(path)
                    os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        left = Path(tempfile.gettempdir()) / f"holdfast-m-{child}"
        assert [each.name for each in left.iterdir()] == ["model.sock"]
        assert sweep_transcripts(state) == 1
        assert not left.exists()
        assert os.listdir(tmp_path / "state/transcripts") == ["m-live.jsonl"]
        assert sweep_transcripts(state) == 0
        assert Blobs(state).get(live.keep(Blobs(state))) == b'{"kind":"x"}\n'
        assert os.listdir(tmp_path / "state/transcripts") == []


def test_a_sweep_before_the_first_transcript_finds_nothing(tmp_path: Path) -> None:
    """There may be no folder yet."""
    with Root(str(tmp_path)) as state:
        assert sweep_transcripts(state) == 0


def test_a_link_in_the_place_of_a_socket_is_left_alone(tmp_path: Path) -> None:
    """Somebody who guesses the name in the temporary directory gains nothing."""
    name = f"m-{os.urandom(6).hex()}"
    link = Path(tempfile.gettempdir()) / f"holdfast-{name}"
    (tmp_path / "model.sock").write_text("not ours")
    link.symlink_to(tmp_path)
    try:
        clear_place(name)
        assert (tmp_path / "model.sock").read_text() == "not ours"
        with pytest.raises(InvalidInput), socket_place(name):
            pass
    finally:
        link.unlink()
