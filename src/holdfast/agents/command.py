"""Any program at all as an agent: `[agents.NAME] command = ["python3", "/opt/mine/agent.py", "{task_file}"]`.

Its working directory is the shadow. The task is in the file named by {task_file}, and in $HOLDFAST_TASK.
With network = "proxy" its model is at $HOLDFAST_MODEL_URL, with the throw-away key in $HOLDFAST_MODEL_KEY.
The model that the configuration or `--model` names is in $HOLDFAST_MODEL.
What it prints is kept; the last lines are what it claims. With transport = "acp" it is spoken to over ACP instead, and
claims what it says there.

Files that the command names by absolute path are shown to it one by one, never their folder; its first word is looked
for on the user's PATH, and the installation it belongs to is shown: a virtual environment, or the prefix of an
interpreter, told by its `lib`. A program in a `bin` without one is shown alone, and so is one whose prefix holds more
than programs: a home, what stands above one, or `.local`, where other programs keep their secrets.
"""

from __future__ import annotations

import os

from holdfast.agents.installed import which
from holdfast.agents.prompt import prompt
from holdfast.agents.protocol import Bench, Health, Start
from holdfast.disk.homes import config_home, state_home
from holdfast.errors import InvalidInput
from holdfast.model.agent import Api, Capability, Claim, Ending, Request, Result, Said
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.path import printable
from holdfast.sandbox.confined import Confined
from holdfast.sandbox.shown import within

_TASK_FILE = "task.md"
_MOST_WORDS = 2_000
_MOST_LINKS = 16
# Shown in every sandbox.
_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/sbin")


class CommandAgent:
    """The user's own program. `api` is None: what it does with a model, if it has one, is its own business.

    Without a network it works offline; that is what it has unless the configuration says otherwise.
    """

    capabilities: frozenset[Capability] = frozenset(("edit", "shell"))
    api: Api | None = None

    def __init__(self, own: AgentSettings) -> None:
        self.name = own.name
        if own.network in (None, "none"):
            self.capabilities = frozenset((*self.capabilities, "offline"))
        if own.transport == "acp":
            self.capabilities = frozenset((*self.capabilities, "permission"))
        self._own = own

    def validate(self) -> tuple[str, ...]:
        if not self._own.command:
            return (f"[agents.{self.name}] has no command",)
        return () if self._place() else (f"there is no {printable(self._own.command[0])} on PATH",)

    def health(self) -> Health:
        if not self._own.command:
            return Health(False, False, why_not="it has no command", hint=f"Set command under [agents.{self.name}].")
        wrong = self.validate()
        return Health(not wrong, not wrong, why_not="; ".join(wrong), hint="Correct its command." if wrong else "")

    def work(self, request: Request, bench: Bench) -> Result:
        if self._own.transport == "acp":
            from holdfast.agents.acp import converse

            return converse(self.name, self._start(request, bench), request, bench)

        def heard(line: bytes) -> None:
            bench.see(Said(line.decode("utf-8", "replace")))

        done = bench.run(self._start(request, bench), on_line=heard)
        return result_of(self.name, "command", done, claim_in(done.finished.output))

    def _start(self, request: Request, bench: Bench) -> Start:
        place, text = self._place(), prompt(request)
        if not place:
            raise InvalidInput(f"there is no {printable(self._own.command[0])} on PATH")
        task_file = f"{bench.home}/{_TASK_FILE}"
        words = [word.replace("{task_file}", task_file) for word in self._own.command[1:]]
        named = tuple(word for word in words if word.startswith("/") and os.path.isfile(word))
        env = {"HOLDFAST_TASK": text}
        if request.model:
            env["HOLDFAST_MODEL"] = request.model
        if bench.model is not None:
            env |= {"HOLDFAST_MODEL_URL": bench.model.url, "HOLDFAST_MODEL_KEY": bench.model.key}
        return Start((place, *words), env, ((_TASK_FILE, text),), (*installation(place), *named))

    def _place(self) -> str:
        """Where it is. A version manager's shim stands for a program elsewhere, and would not find it inside."""
        first = self._own.command[0]
        if first.startswith("/"):
            return first if os.access(first, os.X_OK) else ""
        folders = os.environ.get("PATH", "").split(":")
        return which(first, ":".join(folder for folder in folders if os.path.basename(folder.rstrip("/")) != "shims"))


def installation(place: str) -> tuple[str, ...]:
    """What has to be shown of the host for a program to run: itself, what its links lead to, their installations."""
    shown: dict[str, None] = {}
    for _ in range(_MOST_LINKS):
        place = os.path.normpath(place)
        shown[_prefix_of(place) or place] = None
        if not os.path.islink(place):
            break
        place = os.path.join(os.path.dirname(place), os.readlink(place))
    return tuple(path for path in shown if not any(within(path, system) for system in _SYSTEM))


def _prefix_of(place: str) -> str:
    """The folder of its installation; empty where that cannot be told from a folder of the user's own things."""
    folder = os.path.dirname(place)
    prefix = os.path.dirname(folder)
    if os.path.basename(folder) != "bin" or _holds_more(prefix):
        return ""
    return prefix if any(os.path.exists(f"{prefix}/{name}") for name in ("pyvenv.cfg", "lib")) else ""


def _holds_more(prefix: str) -> bool:
    home = os.path.expanduser("~")
    private = (home, os.path.realpath(home), f"{home}/.local/share", config_home(), state_home())
    real = os.path.realpath(prefix)
    # The root of all files is above every home.
    return any(within(path, prefix) or within(path, real) for path in private)


def claim_in(output: bytes) -> Claim:
    """The end of what it printed."""
    return Claim(words=output[-_MOST_WORDS:].decode("utf-8", "replace").strip())


def result_of(name: str, transport: str, done: Confined, claim: Claim) -> Result:
    """How it ended, as the sandbox saw it; a success is only that it ended by itself with 0."""
    finished = done.finished
    ending: Ending
    if done.limit:
        ending, detail = "limit", f"it reached its limit: {done.limit}"
    elif finished.signal is not None:
        ending, detail = "killed", f"it was ended by signal {finished.signal}"
    elif finished.exit_code != 0:
        ending, detail = "failed", f"it exited with {finished.exit_code}"
    else:
        ending, detail = "finished", ""
    return Result(
        agent=name,
        transport=transport,
        ending=ending,
        claim=claim,
        detail=detail,
        limit=done.limit,
        exit_code=finished.exit_code,
        signal=finished.signal,
        duration_ms=finished.duration_ms,
        enforced=done.enforced,
        left_behind=finished.left_behind,
    )
