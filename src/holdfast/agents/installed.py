"""Finding an installed program: on the user's PATH, through its links, with everything it needs to run elsewhere.

Invariants
  F1  Relative and empty entries of PATH are skipped: they name whatever stands in the current directory.
  F2  What is shown of the host is the installation: the program's file, the `node_modules` or virtual environment it
      stands in, and the interpreter that runs it. Never a home directory, never a folder of settings.
  F3  Nothing is asked of the network. A version is read from the package; only where there is none the program
      is asked for `--version`, with an empty environment and a HOME that cannot be written.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from holdfast.agents.events import Event
from holdfast.agents.program import Found, Missing
from holdfast.errors import HoldfastError
from holdfast.model.path import printable
from holdfast.sandbox.process import Command, run

_NODE_MODULES = "/node_modules/"
_SYSTEM = ("/usr/", "/bin/", "/lib/", "/lib64/", "/sbin/")
_PATH_INSIDE = "/usr/local/bin:/usr/bin:/bin"
_VERSION = re.compile(r"\d+(?:\.\d+)+(?:[-+.][0-9A-Za-z.-]+)?")
_VERSION_MS = 20_000
_MANIFEST_BYTES = 1 << 20
# Cannot be a directory, so nothing can be written below it, not even by root.
_NO_HOME = "/dev/null"


class Wanted(NamedTuple):
    """A program by its command, and what to tell somebody who does not have it."""

    command: str
    package: str
    how: Literal["npm install --global", "pipx install"] = "npm install --global"


class Runner(NamedTuple):
    """What stands before a script, and what must be shown for that."""

    argv: tuple[str, ...]
    readable: tuple[str, ...]


class Adapter(NamedTuple):
    """A second program, beside the first, that speaks ACP for it; `entry` is how its file's path ends."""

    wanted: Wanted
    entry: str


def find(wanted: Wanted, path: str, adapter: Adapter | None = None) -> Found | Missing:
    """The program on this PATH. A missing adapter is no reason to miss the program."""
    found = _find(wanted, path)
    if isinstance(found, Missing) or adapter is None:
        return found
    beside = _find(adapter.wanted, path)
    if isinstance(beside, Missing):
        return found
    # In this order `adapted` finds node and script again.
    return found._replace(
        readable=_once((*found.readable, *beside.readable, *beside.argv)),
        adapter=f"{adapter.wanted.command} {beside.version}".strip(),
    )


def adapted(found: Found, adapter: Adapter) -> tuple[str, ...]:
    """The adapter's own command line, from what `find` put down; empty when it is not installed."""
    script = next((path for path in found.readable if path.endswith(adapter.entry)), "")
    if not script:
        return ()
    node = next((path for path in found.readable if os.path.basename(path) == "node"), "")
    return (node, script) if node else ()


def environment(found: Found, extra: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a program inside, but for HOME and TMPDIR, which the sandbox knows."""
    own = [os.path.dirname(path) for path in (*found.argv[:1], *found.readable) if os.path.basename(path) == "node"]
    folders = _once((*own[:1], *_PATH_INSIDE.split(":")))
    return {"PATH": ":".join(folders), "LANG": "C.UTF-8", "TERM": "dumb", "NO_COLOR": "1", **extra}


def _find(wanted: Wanted, path: str) -> Found | Missing:
    place = which(wanted.command, path)
    if not place:
        return Missing(f"there is no {wanted.command} on PATH", f"Install it: {wanted.how} {wanted.package}")
    real = os.path.realpath(place)
    runner = _runner(real, path)
    if isinstance(runner, Missing):
        return runner
    argv = (*runner.argv, real)
    return Found(argv, _version(wanted, real, argv), _shown(real, runner))


def which(command: str, path: str) -> str:
    """Like `command -v`, for absolute entries only (F1); empty when there is none."""
    for folder in path.split(":"):
        place = os.path.join(folder, command)
        if folder.startswith("/") and os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    return ""


def _runner(real: str, path: str) -> Runner | Missing:
    """Nothing for a binary; node or the Python of a virtual environment for a script of theirs."""
    with open(real, "rb") as file:
        first = file.readline(256)
    if not first.startswith(b"#!"):
        return Runner((), ())
    words = first[2:].decode("utf-8", "replace").split()
    if "node" in (os.path.basename(word) for word in words):
        node = which("node", path)
        if not node:
            return Missing(f"{printable(real)} needs node, and there is none on PATH", "Install Node.js 22 or newer.")
        return Runner((os.path.realpath(node),), (os.path.realpath(node),))
    python = words[0] if words else ""
    if os.path.basename(python).startswith("python") and os.path.isfile(f"{_above(python)}/pyvenv.cfg"):
        # Called by its name in the environment, which is how it knows of it.
        return Runner((python,), (_above(python), _above(os.path.realpath(python))))
    return Missing(
        f"{printable(real)} is a script for {printable(python) or 'nothing'}, not the program itself",
        "Put the folder of the program before that of the version manager on PATH.",
    )


def _above(program: str) -> str:
    """The prefix of a program in `bin`."""
    return os.path.dirname(os.path.dirname(program))


def _shown(real: str, runner: Runner) -> tuple[str, ...]:
    head, modules, _ = real.partition(_NODE_MODULES)
    installation = f"{head}{_NODE_MODULES.rstrip('/')}" if modules else real
    shown = _once(path for path in (installation, *runner.readable) if not f"{path}/".startswith(_SYSTEM))
    # What lies in something that is shown needs no mention.
    return tuple(path for path in shown if not path.startswith(tuple(f"{other}/" for other in shown)))


def _version(wanted: Wanted, real: str, argv: tuple[str, ...]) -> str:
    """Of the nearest package; asked of the program where it is in none; empty when it does not say."""
    if _NODE_MODULES in real:
        folder = os.path.dirname(real)
        while os.path.basename(folder) != "node_modules":
            version = _manifest_version(os.path.join(folder, "package.json"))
            if version:
                return version
            folder = os.path.dirname(folder)
    return _wheel_version(wanted.package, argv[0]) or _asked(argv)


def _wheel_version(package: str, python: str) -> str:
    """From the name of the folder in which pip keeps what it knows about a package."""
    name = re.sub(r"[-_.]+", "_", package)
    kept = glob.glob(f"{glob.escape(_above(python))}/lib/python*/site-packages/{glob.escape(name)}-*.dist-info")
    return os.path.basename(kept[0])[len(name) + 1 : -len(".dist-info")] if len(kept) == 1 else ""


def _manifest_version(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return Event(json.loads(file.read(_MANIFEST_BYTES))).text("version")[:80]
    except (OSError, ValueError):
        return ""


def _asked(argv: tuple[str, ...]) -> str:
    env = {"PATH": _PATH_INSIDE, "HOME": _NO_HOME, "LANG": "C.UTF-8"}
    try:
        finished = run(Command((*argv, "--version"), "/", env, _VERSION_MS, output_limit=1 << 16))
    except HoldfastError:
        return ""
    said = _VERSION.search(finished.output.decode("utf-8", "replace")) if finished.exit_code == 0 else None
    return said.group() if said else ""


def _once(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))
