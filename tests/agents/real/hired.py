"""A workspace whose configuration hires one real program, with a scripted model for its provider, and eyes that look
into the sandbox from outside while it works.

    with hired("goose", tmp_path, ScriptedModel(HELLO, DONE)) as house:
        simulated = house.simulate()
        assert house.measured["ending"] == "finished"
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast.agents.protocol import Watcher
from holdfast.engine.simulator import Simulated
from holdfast.model.agent import Happening
from holdfast.model.canonical import Json
from holdfast.model.plan import Agent, Plan
from holdfast.store.blobs import Blobs
from holdfast.testing.model_server import ScriptedModel
from holdfast.wiring import Holdfast
from real_bench import PROGRAMS

MINUTES_MS = 180_000
# Programs look at the name of a model to decide which tools they offer.
MODELS = {
    "claude": "claude-sonnet-4-5",
    "codex": "gpt-5.5",
    "opencode": "scripted",
    "gemini": "gemini-2.5-flash",
    "qwen": "scripted",
    "goose": "scripted",
    "aider": "scripted",
    "deep": "scripted",
}
TRANSPORTS = {"aider": "api", "deep": "api"}
COMMANDS = {"deep": "deepagents-python"}
_KEY_ENV = "HIRED_MODEL_KEY"


def new_key() -> str:
    """One that stands nowhere by chance."""
    return f"real-{secrets.token_hex(20)}"


class House(NamedTuple):
    hf: Holdfast
    model: ScriptedModel
    name: str
    workspace: Path

    def simulate(
        self, watcher: Watcher | None = None, *, within_ms: int = MINUTES_MS, expected: tuple[str, ...] = ("hello.py",)
    ) -> Simulated:
        step = Agent(self.name, "Create hello.py that prints hello.", (), expected, attempts=1, within_ms=within_ms)
        return self.hf.simulate(Plan("hello", (step,)), watcher=watcher)

    @property
    def attempt(self) -> dict[str, Json]:
        """The last attempt as the ledger has it: `claimed` beside `measured`."""
        last = [entry for entry in self.hf.ledger.entries() if entry.kind == "delegation"][-1]
        attempts = last.body["attempts"]
        assert isinstance(attempts, list)
        attempt = attempts[-1]
        assert isinstance(attempt, dict)
        return attempt

    @property
    def measured(self) -> dict[str, Json]:
        measured = self.attempt["measured"]
        assert isinstance(measured, dict)
        return measured

    def asked(self) -> list[dict[str, Any]]:
        """What the proxy wrote down of each question that had to be paid for, in the last task."""
        last = [entry for entry in self.hf.ledger.entries() if entry.kind == "delegation"][-1]
        lines = map(json.loads, Blobs(self.hf.site.state).get(str(last.body["asked"])).splitlines())
        return [line for line in lines if line["requests"]]

    def require_counted_as_sold(self) -> list[dict[str, Any]]:
        """Every whole answer is counted with the very tokens that the model sold it for, and is in the sum.

        A program that ends takes its side questions with it (a title, who speaks next). Such an answer was sold and
        never arrived, so nobody told the proxy what it cost: it is estimated, and marked so. Those are returned.
        """
        lines, counted = self.asked(), self.measured["usage"]
        assert isinstance(counted, dict)
        for field in ("requests", "input_tokens", "output_tokens"):
            assert sum(line[field] for line in lines) == counted[field]
        whole = Counter(_tokens(line) for line in lines if not line["estimated"])
        cut = [line for line in lines if line["estimated"]]
        sold = Counter(seen.usage[1:3] for seen in self.model.seen if seen.usage.requests)
        steps = Counter(seen.usage[1:3] for seen in self.model.seen if seen.usage.requests and seen.kind == "step")
        assert whole <= sold
        left = [line for line in cut if line["outcome"] == "gone"]
        assert (steps - whole).total() <= len(left), "an answer that somebody waited for was not counted as sold"
        assert sold.total() - whole.total() <= len(cut)
        assert all(line["outcome"] != "answered" for line in cut), cut
        return cut


def _tokens(line: dict[str, Any]) -> tuple[int, int]:
    return line["input_tokens"], line["output_tokens"]


@contextmanager
def hired(
    name: str,
    tmp_path: Path,
    model: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
    limits: str = "",
    more: str = "",
    transport: str = "",
) -> Iterator[House]:
    """Over ACP where the program speaks it, if nothing else is said. Skips a program that is not installed.

    `limits` are those of its table, `more` are further lines of it.
    """
    if not (PROGRAMS / COMMANDS.get(name, name)).exists():
        pytest.skip(f"{name} is not there; scripts/agent-programs installs it")
    monkeypatch.setenv("PATH", f"{PROGRAMS}:/usr/local/bin:/usr/bin:/bin")
    monkeypatch.setenv(_KEY_ENV, model.key)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "README.md").write_bytes(b"A project.\n")
    with model:
        _configure(f"""
[providers.scripted]
url = "{model.url}"
api = ["openai", "responses", "anthropic", "gemini"]
key_env = "{_KEY_ENV}"
[agents.{name}]
provider = "scripted"
transport = "{transport or TRANSPORTS.get(name, "acp")}"
model = "{MODELS[name]}"
limits = {{ {limits} }}
{more}
""")
        holdfast.init(str(workspace))
        hf = holdfast.open(str(workspace))
        try:
            yield House(hf, model, name, workspace)
        finally:
            hf.close()


def _configure(text: str) -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "holdfast"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "config.toml").write_text(text, encoding="utf-8")


class Once:
    """A watcher that does something at the first request that was paid for: the program is at work then."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self.happened: list[Happening] = []
        self.acted = False

    def __call__(self, happening: Happening) -> None:
        self.happened.append(happening)
        if happening.kind == "spent" and happening.usage.requests and not self.acted:
            self.acted = True
            self._act()


# ── the processes of a sandbox, seen from outside ──


class Process(NamedTuple):
    pid: int
    parent: int
    inner: int
    command: bytes


def inside() -> list[Process]:
    """Every process below us that is in a pid namespace of its own."""
    every = {process.pid: process for name in os.listdir("/proc") if name.isdigit() and (process := _process(name))}
    return [process for process in every.values() if process.inner and _is_ours(process, every)]


def the_program() -> Process:
    """The program itself: what the first process inside has started, but for our forwarder."""
    found = inside()
    first = next(process for process in found if process.inner == 1)
    children = [process for process in found if process.parent == first.pid and b"forward.py" not in process.command]
    assert children, found
    return children[0]


def memory_of(pid: int, most: int) -> Iterator[bytes]:
    """The private memory of a process, piece by piece; what goes away meanwhile is passed over."""
    with (
        open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as maps,
        open(f"/proc/{pid}/mem", "rb", 0) as mem,
    ):
        for line in maps:
            span, rights = line.split()[:2]
            start, end = (int(word, 16) for word in span.split("-"))
            if not rights.startswith("rw") or not rights.endswith("p"):
                continue
            while start < end and most > 0:
                size = min(end - start, 1 << 24, most)
                try:
                    piece = os.pread(mem.fileno(), size, start)
                except OSError:
                    break  # unmapped since, or memory of a device
                if not piece:
                    break
                yield piece
                # Overlapping, so that nothing hides on the seam.
                most -= len(piece)
                start += len(piece) if start + len(piece) >= end else len(piece) - 128


def _process(name: str) -> Process | None:
    try:
        numbers = _status(name, "NSpid").split()
        parent = int(_status(name, "PPid"))
        command = Path(f"/proc/{name}/cmdline").read_bytes()
    except OSError:
        return None  # it has ended
    inner = int(numbers[-1]) if len(numbers) > len(_status("self", "NSpid").split()) else 0
    return Process(int(name), parent, inner, command)


def _status(name: str, field: str) -> str:
    return Path(f"/proc/{name}/status").read_text(errors="replace").partition(f"\n{field}:")[2].partition("\n")[0]


def _is_ours(process: Process, every: dict[int, Process]) -> bool:
    while process.parent in every:
        if process.parent == os.getpid():
            return True
        process = every[process.parent]
    return False
