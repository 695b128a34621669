"""ACP: one client for every agent that speaks the Agent Client Protocol (version 1).

    initialize ──▶ session/new, or session/load ──▶ session/prompt ──▶ updates, permission requests … ──▶ its result

We offer neither files nor terminals: the agent works with its own tools, inside the sandbox, which is the border.
Requests of its model are counted, and ended, by the proxy: this side does not see them.

Invariants
  C1  Whatever the program says or does there is a Result. Why it ended is told by what happened first: a limit, its
      own end in the middle of its turn, or what it answered. How it left after its turn says nothing: it was told to.
  C2  Only `end_turn` is an end that counts as finished. An answer that we do not know is none.
  C3  What is passed on, kept and remembered is bounded, whatever is sent.

Written here rather than taken from the protocol's own package: that is slow to import and refuses messages of agents
newer than itself; six messages are all we need of it (docs/adr/0009). The tests use it as the other side.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from holdfast.agents.command import result_of
from holdfast.agents.events import ERROR_KEPT, WORDS_KEPT, Event, api_status, kept, plain_lines, session_name
from holdfast.agents.jsonrpc import Fields, Garbage, Hangup, Peer, Refused
from holdfast.agents.permission import answer
from holdfast.agents.prompt import prompt
from holdfast.agents.protocol import Bench, Start
from holdfast.model.agent import Asked, Claim, Ending, Happening, Request, Result, Said, Usage, Used
from holdfast.sandbox.confined import Confined

_VERSION = 1
_AUTH_NEEDED = -32000
_DONE, _OUT_OF_TURNS = "end_turn", "max_turn_requests"
# Why a turn ended other than by being done.
_STOPS = {
    "max_tokens": "its model ran out of tokens",
    "refusal": "its model refused",
    "cancelled": "it cancelled its own turn",
}
_NOT_ALLOWED = ("unauthorized", "authentication", "api key", "api_key", "invalid key", "permission_error")
_OF_THE_MODEL = ("model", "overloaded", "high demand", "rate limit", "quota", "invalid_request")
_BARE_STATUS = re.compile(r"(?:^|: )([45]\d\d)\b")

_MOST_TITLE = 300
_MOST_NAME = 80
_MOST_PATH = 4096
_MOST_PATHS = 20
_MOST_CALLS = 10_000
_MOST_SEEN = 20_000
_MOST_SAID = 1 << 16
_LINE_SAID = 2_000
_LAST_LINES = 5

_Status = Literal["begun", "done", "failed"]
_STATUSES: dict[str, _Status] = {"completed": "done", "failed": "failed"}


def converse(name: str, start: Start, request: Request, bench: Bench) -> Result:
    """One task over ACP; a Result whatever the program does (C1)."""
    talk = _Talk(prompt(request), session_name(request.session), bench, start.session)
    _, done = bench.converse(start, talk.run)
    return talk.result(name, done)


class _Talk:
    """One conversation, and how it ended."""

    def __init__(self, text: str, session: str, bench: Bench, more: Mapping[str, object]) -> None:
        self._text, self._wanted, self._bench, self._more = text, session, bench, more
        self._told = _Told(bench)
        self._claim = Claim()
        self._ending: Ending = "finished"
        self._detail = self._limit = ""
        self._left_early = False

    def run(self, reading: int, writing: int) -> None:
        peer = Peer(reading, writing, self._serve, self._told.notice)
        try:
            session = self._session(peer)
            block = {"type": "text", "text": self._text}
            self._stopped(peer.call("session/prompt", {"sessionId": session, "prompt": [block]}))
        except Refused as error:
            self._refused(error)
        except Hangup:
            self._left_early = True
        except Garbage as error:
            self._failed("failed", f"it does not speak ACP: {error}")
        self._told.line_ends()

    def result(self, name: str, done: Confined) -> Result:
        told = self._told
        claim = self._claim._replace(words=told.words, tool_calls=told.calls, usage=self._claim.usage or told.usage)
        seen = result_of(name, "acp", done, claim)
        if seen.ending == "limit":
            return seen
        if self._left_early:
            ending: Ending = "killed" if seen.ending == "killed" else "failed"
            why = f"{seen.detail or 'it exited with 0'} in the middle of its turn"
            last = kept("\n".join(plain_lines(done.finished.output)[-_LAST_LINES:]), ERROR_KEPT)
            return seen._replace(ending=ending, detail=why, claim=claim._replace(success=False, error=last))
        return seen._replace(ending=self._ending, detail=self._detail, limit=self._limit)

    # ── the conversation ──

    def _session(self, peer: Peer) -> str:
        offered = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        hello = peer.call("initialize", {"protocolVersion": _VERSION, "clientCapabilities": offered})
        if hello.number("protocolVersion") != _VERSION:
            raise Garbage(f"it has no version {_VERSION} of it")
        self._told.introduced(hello.text("agentInfo", "name"), hello.text("agentInfo", "version"))
        place: Mapping[str, object] = {"cwd": self._bench.path, "mcpServers": [], **self._more}
        session = self._loaded(peer, place, hello) or self._opened(peer, place, hello)
        if not session:
            raise Garbage("it opened no session")
        self._claim = self._claim._replace(session=session_name(session))
        return session

    def _loaded(self, peer: Peer, place: Fields, hello: Event) -> str:
        """The session of the attempt before; empty when it is forgotten, or of another program: a new one does too."""
        if not self._wanted or not hello.true("agentCapabilities", "loadSession"):
            return ""
        # It is told again from its beginning, and all of that was heard before.
        self._told.listening = False
        try:
            peer.call("session/load", {**place, "sessionId": self._wanted})
        except Refused:
            return ""
        finally:
            self._told.listening = True
        return self._wanted

    def _opened(self, peer: Peer, place: Fields, hello: Event) -> str:
        try:
            return peer.call("session/new", place).text("sessionId")
        except Refused as error:
            ways = [way.text("id") for way in hello.each("authMethods")]
            keyed = next((way for way in ways if "key" in way.lower()), "")
            if error.code != _AUTH_NEEDED or not keyed:
                raise
        peer.call("authenticate", {"methodId": keyed})
        return peer.call("session/new", place).text("sessionId")

    def _serve(self, method: str, params: Fields) -> Fields | None:
        if method != "session/request_permission":
            return None
        given = answer(Event(params), (self._bench.path, self._bench.home))
        self._told.asked(Asked(given.title, "allowed" if given.allowed else "denied"))
        if not given.option:
            return {"outcome": {"outcome": "cancelled"}}
        return {"outcome": {"outcome": "selected", "optionId": given.option}}

    # ── its end ──

    def _stopped(self, last: Event) -> None:
        reason = kept(last.text("stopReason"), 80)
        usage = _usage(last.at("usage")) or _usage(last.at("_meta", "quota", "token_count"))
        self._claim = self._claim._replace(success=reason == _DONE, stopped_because=reason, usage=usage)
        if reason == _OUT_OF_TURNS:
            self._limit = "turns"
            self._failed("limit", f"it reached its limit: {self._limit}")
        elif reason != _DONE:
            self._failed("failed", _STOPS.get(reason, "it did not say why it stopped"))

    def _refused(self, error: Refused) -> None:
        said, status = error.message.lower(), _status(error.message)
        if error.code == _AUTH_NEEDED or status in (401, 403) or any(word in said for word in _NOT_ALLOWED):
            self._failed("unauthorized", "the model refused the key", error.message)
        elif status or any(word in said for word in _OF_THE_MODEL):
            self._failed("model_error", f"its model failed: {kept(error.message, _MOST_TITLE)}", error.message)
        else:
            self._failed("failed", f"it answered with an error: {kept(error.message, _MOST_TITLE)}", error.message)

    def _failed(self, ending: Ending, detail: str, said: str = "") -> None:
        self._ending, self._detail = ending, detail
        self._claim = self._claim._replace(success=False, error=kept(said, ERROR_KEPT))


class _Call(NamedTuple):
    """A tool call as it was last told."""

    title: str
    status: _Status
    paths: tuple[str, ...]


class _Told:
    """What the agent tells while it works, passed on in pieces a person can read (C3)."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._seen = 0
        self._line = ""
        self._words = ""
        self._worked_since = False
        self._calls: dict[str, _Call] = {}
        self.listening = True
        self.usage: Usage | None = None

    @property
    def words(self) -> str:
        """What it said last: after its last tool call that it said anything after."""
        return kept(self._words.strip())

    @property
    def calls(self) -> int:
        return len(self._calls)

    def notice(self, method: str, params: Fields) -> None:
        if method != "session/update" or not self.listening:
            return
        update = Event(params).at("update")
        match update.text("sessionUpdate"):
            case "agent_message_chunk":
                self._said(kept(update.text("content", "text"), _MOST_SAID))
            case "tool_call" | "tool_call_update":
                self._used(update)
            case "usage_update":
                self.usage = _usage(update) or self.usage

    def introduced(self, name: str, version: str) -> None:
        """Who says to be at the other end: it stands in the transcript, beside what was installed."""
        if name:
            self._see(Said(f"{kept(name, _MOST_NAME)} {kept(version, _MOST_NAME)}".strip() + " speaks ACP"))

    def asked(self, asked: Asked) -> None:
        self.line_ends()
        self._see(asked)

    def line_ends(self) -> None:
        if self._line.strip():
            self._see(Said(self._line))
        self._line = ""

    def _said(self, text: str) -> None:
        if self._worked_since and text.strip():
            self._words, self._worked_since = "", False
        if len(self._words) <= WORDS_KEPT:
            self._words += text
        # It comes letter by letter from some.
        *lines, rest = text.split("\n")
        for line in lines:
            self._line += line
            self.line_ends()
        self._line += rest
        if len(self._line) > _LINE_SAID:
            self.line_ends()

    def _used(self, update: Event) -> None:
        name = kept(update.text("toolCallId"), 128)
        known = self._calls.get(name)
        if known is None and len(self._calls) >= _MOST_CALLS:
            return
        told = self._call(update, known)
        self._calls[name] = told
        if known is None or (known.status == "begun" != told.status):
            self._worked_since = True
            self.line_ends()
            self._see(Used(name, *told))

    def _call(self, update: Event, known: _Call | None) -> _Call:
        before = known or _Call("", "begun", ())
        places = (kept(place.text("path"), _MOST_PATH) for place in update.each("locations")[:_MOST_PATHS])
        return _Call(
            kept(update.text("title"), _MOST_TITLE) or before.title,
            _STATUSES.get(update.text("status"), before.status),
            tuple(filter(None, places)) or before.paths,
        )

    def _see(self, happening: Happening) -> None:
        self._seen += 1
        if self._seen < _MOST_SEEN:
            self._bench.see(happening)
        elif self._seen == _MOST_SEEN:
            self._bench.see(Said("… and more than is kept"))


def _status(message: str) -> int:
    """The HTTP status in an error; the proxy knows better, where there is one."""
    bare = _BARE_STATUS.search(message)
    return api_status(message) or (int(bare.group(1)) if bare else 0)


def _usage(event: Event) -> Usage | None:
    """Agents count in two spellings, or not at all."""
    given = event.number("inputTokens") or event.number("input_tokens")
    made = event.number("outputTokens") or event.number("output_tokens")
    return Usage(0, given, made, None) if given or made else None
