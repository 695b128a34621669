"""An agent that follows a script: a small program that really runs in the bench, as any other agent's does.

    ScriptedAgent(WriteFile("app.py", "print(2)\\n"), Say("All tests pass."))            # works, and claims something
    ScriptedAgent(Exit(3), later={2: (EditFile("app.py", "1", "2"),)})                   # fails once, then does it
    ScriptedAgent(Hang(3600))                                                            # until a limit ends it

Which attempt it is comes from the session that its last answer named, so one object can work at many tasks at once.

Invariant: its program writes only what is below the working directory as the sandbox shows it; nothing is done here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias

from holdfast.agents.command import result_of
from holdfast.agents.protocol import Bench, Health, Start
from holdfast.model.agent import Api, Capability, Claim, Request, Result, Said, Used
from holdfast.sandbox.shown import interpreter
from holdfast.testing.script import EditFile, Hang, Say, Shell, WriteFile

_WORDS_AT_MOST = 1 << 16


class Delete(NamedTuple):
    """A file, or a directory with all in it."""

    path: str


class Exit(NamedTuple):
    code: int


Act: TypeAlias = Say | WriteFile | EditFile | Shell | Hang | Delete | Exit
_VERBS: dict[type[Act], str] = {
    Say: "say",
    WriteFile: "write",
    EditFile: "edit",
    Shell: "shell",
    Hang: "hang",
    Delete: "delete",
    Exit: "exit",
}

PROGRAM = """\
import json, os, shutil, subprocess, sys, time

def tell(**row):
    print(json.dumps(row), flush=True)

def write(path, content):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)

def edit(path, old, new):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if text.count(old) != 1:
        raise ValueError(f"the text to replace is there {text.count(old)} times")
    write(path, text.replace(old, new))

def delete(path):
    shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.remove(path)

def shell(command):
    argv = ["/bin/sh", "-c", command] if isinstance(command, str) else command
    subprocess.run(argv, stdin=subprocess.DEVNULL, check=True)

for number, (verb, *rest) in enumerate(json.load(sys.stdin)):
    if verb == "say":
        tell(said=rest[0])
    elif verb == "hang":
        time.sleep(rest[0])
    elif verb == "exit":
        sys.exit(rest[0])
    else:
        paths = rest[:1] if verb != "shell" else []
        tell(used=str(number), title=verb, status="begun", paths=paths)
        try:
            {"write": write, "edit": edit, "delete": delete, "shell": shell}[verb](*rest)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            tell(used=str(number), title=verb, status="failed", paths=paths)
            sys.exit(f"{verb}: {error}")
        tell(used=str(number), title=verb, status="done", paths=paths)
"""


class ScriptedAgent:
    """`later`: other acts from that attempt on. `claims`: what it says of its success, true or not."""

    capabilities: frozenset[Capability] = frozenset({"edit", "shell", "resume", "offline"})
    api: Api | None = None

    def __init__(
        self,
        *acts: Act,
        name: str = "scripted",
        later: Mapping[int, tuple[Act, ...]] | None = None,
        claims: bool | None = True,
    ) -> None:
        self.name = name
        self._acts = {1: acts, **(later or {})}
        self._claims = claims

    def validate(self) -> tuple[str, ...]:
        wrong = [number for number in self._acts if number < 1]
        return tuple(f"{self.name}: there is no attempt {number}" for number in wrong)

    def health(self) -> Health:
        return Health(installed=True, usable=True, version="1")

    def work(self, request: Request, bench: Bench) -> Result:
        attempt = int(request.session.removeprefix("attempt-") or 0) + 1
        acts = self._acts[max(number for number in self._acts if number <= attempt)]
        orders = json.dumps([[_VERBS[type(act)], *act] for act in acts]).encode()
        heard = _Heard(bench)
        done = bench.run(python(bench, PROGRAM), stdin=orders, on_line=heard.line)
        return result_of(self.name, "command", done, heard.claim(self._claims, f"attempt-{attempt}"))


class _Heard:
    """What the program tells while it works, passed on as it comes."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._words: list[str] = []
        self._calls = 0

    def line(self, raw: bytes) -> None:
        try:
            row = json.loads(raw)
        except ValueError:
            return  # what a command printed
        match row:
            case {"said": str(text)}:
                self._words.append(text)
                self._bench.see(Said(text))
            case {
                "used": str(call),
                "title": str(title),
                "status": "begun" | "done" | "failed" as status,
                "paths": paths,
            }:
                self._calls += status == "begun"
                named: Literal["begun", "done", "failed"] = status
                self._bench.see(Used(call, title, named, tuple(map(str, paths))))

    def claim(self, success: bool | None, session: str) -> Claim:
        words = "\n".join(self._words)[:_WORDS_AT_MOST]
        return Claim(words, success, session=session, tool_calls=self._calls)


def python(bench: Bench, source: str, *args: str) -> Start:
    """How a Python program of ours is started in a bench: by an interpreter that the view cannot replace."""
    return Start((interpreter(bench.path).inside, "-I", "-S", "-B", "-c", source, *args), {"PATH": "/usr/bin:/bin"})
