"""Libraries as agents: a driver of ours runs one in a process of its own, inside, with the Python it is installed for.

    orders, as JSON on standard input ──▶ driver ──▶ a line of JSON for each thing that happens, and one at its end

    {"holdfast": "said", "text"}   {"holdfast": "used", "call", "title", "status", "paths"}
    {"holdfast": "ended", "success", "words", "error", "status", "input_tokens", "output_tokens", "tool_calls", "why"}

Invariants
  D1  A driver's source is a file here and is written into the agent's HOME for each run; nothing here imports it.
  D2  What a driver prints is a claim like any other: the library, and the model behind it, print on the same line.
      The last word about the end counts, and only of a driver that ended by itself with 0.
"""

from __future__ import annotations

import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, NamedTuple

from holdfast.agents.command import installation, result_of
from holdfast.agents.events import ERROR_KEPT, Event, events, kept, plain_lines
from holdfast.agents.program import Missing
from holdfast.agents.protocol import Bench, Health, ModelAccess, Start
from holdfast.errors import InvalidInput
from holdfast.model.agent import Api, Capability, Claim, Request, Result, Said, Usage, Used
from holdfast.model.agent_settings import AgentSettings

_STATUSES: dict[str, Literal["begun", "done", "failed"]] = {"begun": "begun", "done": "done", "failed": "failed"}
_MOST_SEEN = 20_000
_MOST_TITLE = 300
_MOST_PATH = 4096
_LAST_LINES = 5
_DRIVERS = os.path.dirname(os.path.abspath(__file__))


class Installed(NamedTuple):
    """A library: the Python it is installed for, its version, and what of the host must be shown for it to run."""

    python: str
    version: str
    readable: tuple[str, ...]


def installed(python: str, package: str) -> Installed | Missing:
    """The library of this name in the environment of this Python; read from the disk, nothing is started."""
    prefix = os.path.dirname(os.path.dirname(python))
    if not os.path.exists(f"{prefix}/pyvenv.cfg"):
        return Missing(f"{package} is not in a virtual environment of its own", "Install it with pipx or uv tool.")
    version = _version(prefix, package)
    if not version:
        return Missing(f"{package} is not installed for {python}", f"Install it there: pip install {package}")
    return Installed(python, version, installation(python))


class Driver(NamedTuple):
    """A driver by the name of its file, its environment, and what it finds in its HOME."""

    file: str
    env: Mapping[str, str]
    files: tuple[tuple[str, str], ...] = ()


def drive(name: str, library: Installed, driver: Driver, orders: object, bench: Bench) -> Result:
    """Run a driver of ours with these orders; a Result whatever becomes of it."""
    with open(os.path.join(_DRIVERS, driver.file), encoding="utf-8") as file:
        source = file.read()
    # -I: nothing of the workspace is imported because of its name, and no setting of the environment is followed.
    argv = (library.python, "-I", "-B", f"{bench.home}/{driver.file}")
    heard = _Heard(bench)
    start = Start(argv, driver.env, (*driver.files, (driver.file, source)), library.readable)
    done = bench.run(start, stdin=json.dumps(orders).encode(), on_line=heard.line)
    result = result_of(name, "api", done, heard.claim())
    if result.ending == "finished":
        return heard.concluded(result)
    if result.ending == "failed":
        last = kept("\n".join(plain_lines(done.finished.output)[-_LAST_LINES:]), ERROR_KEPT)
        result = result._replace(claim=result.claim._replace(success=False, error=result.claim.error or last))
    return result


class _Heard:
    """What comes line by line; the end of it is the driver's last word."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._seen = 0
        self._ended = Event(None)

    def line(self, raw: bytes) -> None:
        event = next(events(raw), Event(None))
        match event.text("holdfast"):
            case "said":
                self._say(event.text("text"))
            case "used":
                self._use(event)
            case "ended":
                self._ended = event
            case _:
                self._say(raw.decode("utf-8", "replace"))

    def claim(self) -> Claim:
        ended = self._ended
        spent = Usage(0, ended.number("input_tokens"), ended.number("output_tokens"), ended.money("cost"))
        return Claim(
            words=kept(ended.text("words").strip()),
            success=ended.true("success") if ended.text("holdfast") else None,
            error=kept(ended.text("error"), ERROR_KEPT),
            stopped_because=kept(ended.text("why"), 80),
            usage=spent if spent.input_tokens or spent.output_tokens else None,
            tool_calls=ended.number("tool_calls"),
        )

    def concluded(self, result: Result) -> Result:
        """The exit code says nothing: what the driver says of its end does."""
        status, error = self._ended.number("status"), result.claim.error
        if not self._ended.text("holdfast"):
            return result._replace(ending="failed", detail="it ended without a word about its end")
        if result.claim.success:
            return result
        if status in (401, 403):
            return result._replace(ending="unauthorized", detail="the model refused the key")
        if status:
            return result._replace(ending="model_error", detail=f"its model failed: {kept(error, _MOST_TITLE)}")
        why = result.claim.stopped_because or kept(error, _MOST_TITLE) or "it did not say why it stopped"
        return result._replace(ending="failed", detail=why)

    def _say(self, text: str) -> None:
        if text.strip() and self._counts():
            self._bench.see(Said(kept(text)))

    def _use(self, event: Event) -> None:
        status = _STATUSES.get(event.text("status"))
        if status is None or not self._counts():
            return
        paths = tuple(kept(path, _MOST_PATH) for path in event.texts("paths"))
        title = kept(event.text("title"), _MOST_TITLE)
        self._bench.see(Used(kept(event.text("call"), 128), title, status, paths))

    def _counts(self) -> bool:
        self._seen += 1
        return self._seen <= _MOST_SEEN


def _version(prefix: str, package: str) -> str:
    """From the name of what pip leaves beside a package."""
    wanted = re.compile(rf"{package.replace('-', '_')}-(\d[\w.+!]*)\.dist-info", re.IGNORECASE)
    for library in ("lib", "lib64"):
        for python in _names(f"{prefix}/{library}"):
            for name in _names(f"{prefix}/{library}/{python}/site-packages"):
                if found := wanted.fullmatch(name):
                    return found.group(1)
    return ""


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(os.fspath(folder)))
    except OSError:
        return []


class Library(ABC):
    """What all agents that are libraries have in common; each says where it is found, and what its driver is told."""

    capabilities: frozenset[Capability] = frozenset(("edit", "usage"))
    api: Api | None = "openai"

    def __init__(self, own: AgentSettings) -> None:
        self.name = own.name
        self._own = own

    def validate(self) -> tuple[str, ...]:
        found = self._found()
        wrong = [found.why] if isinstance(found, Missing) else []
        if self._own.transport not in (None, "api"):
            wrong.append(f"{self.name} has no transport {self._own.transport}: it is api")
        if not self._own.model:
            wrong.append(f"{self.name} needs the name of a model: set model under [agents.{self.name}]")
        return tuple(wrong)

    def health(self) -> Health:
        found = self._found()
        if isinstance(found, Missing):
            return Health(False, False, why_not=found.why, hint=found.hint)
        return Health(True, not (wrong := self.validate()), found.version, "; ".join(wrong))

    def work(self, request: Request, bench: Bench) -> Result:
        found = self._found()
        if isinstance(found, Missing):
            raise InvalidInput(found.why, hint=found.hint)
        if bench.model is None:
            raise InvalidInput(f"{self.name} needs a model, and none can be reached")
        driver, orders = self._orders(request, bench.model)
        return drive(self.name, found, driver, orders, bench)

    @abstractmethod
    def _found(self) -> Installed | Missing: ...

    @abstractmethod
    def _orders(self, request: Request, model: ModelAccess) -> tuple[Driver, Mapping[str, object]]: ...
