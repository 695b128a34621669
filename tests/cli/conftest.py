"""The program as a user starts it: real processes, real files and pipes, real terminals.

    program("log")          a process that begins where the interpreter has started and our modules are loaded
    program.fresh("log")    the whole way from `python -m holdfast`; also whenever the environment is part of the test

Starting Python takes ten times longer than most verbs; each verb has a test that does it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import holdfast
from holdfast.__main__ import main
from people import People

PACKAGE = str(Path(holdfast.__file__).parent.parent)


class Ran(NamedTuple):
    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one document on standard output; fails when there is anything else."""
        found = json.loads(self.out)
        assert isinstance(found, dict)
        assert found["schema"] == "holdfast/1"
        return found


def environment(more: Mapping[str, str] = {}) -> dict[str, str]:
    """Ours, with the package under test first, wherever the program is started."""
    own = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "FORCE_COLOR")}
    return {**own, "PYTHONPATH": PACKAGE, "TERM": "xterm", **more}


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "holdfast", *words]


BATCH = """
import contextlib, io, json, os, sys
from holdfast.cli import main
here = os.getcwd()
for words in json.loads(sys.argv[1]):
    os.chdir(here)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        status = main(words)
    print(json.dumps([status, out.getvalue(), err.getvalue()]))
"""


def forked(directory: Path, words: Sequence[str], stdin: str) -> Ran:
    """One command line in a process of its own, from `main` to the exit status."""
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode("utf-8", "surrogateescape"))
        given.seek(0)
        child = os.fork()
        if child == 0:
            _become(directory, words, (given.fileno(), out.fileno(), err.fileno()))
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return Ran(os.waitstatus_to_exitcode(status), out.read().decode(), err.read().decode())


def _become(directory: Path, words: Sequence[str], files: tuple[int, int, int]) -> None:
    """Never returns: neither pytest nor anything registered at exit may run twice."""
    status = 1
    try:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        for number, file in enumerate(files):
            os.dup2(file, number)
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", errors="backslashreplace")  # noqa: SIM115
        os.chdir(directory)
        wanted = environment()
        os.environ.clear()
        os.environ.update(wanted)
        sys.argv = ["holdfast", *words]
        main()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - what is left over is shown as it would be at the end of a program
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Program:
    """`holdfast` in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def __call__(self, *words: str, stdin: str = "") -> Ran:
        return forked(self.directory, words, stdin)

    def fresh(self, *words: str, stdin: str = "", **more: str) -> Ran:
        """Started as a user starts it, perhaps with more in the environment."""
        return self.run(command(*words), stdin=stdin, **more)

    def run(self, argv: Sequence[str], *, stdin: str = "", **more: str) -> Ran:
        """Another program, in the same place with the same environment."""
        done = subprocess.run(
            argv,
            cwd=self.directory,
            env=environment(more),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def python(self, code: str, *words: str, **more: str) -> Ran:
        return self.run([sys.executable, "-c", code, *words], **more)

    def batch(self, lines: Sequence[Sequence[str]]) -> list[Ran]:
        """Many command lines in one process: for tables, where starting anew each time would prove nothing more."""
        done = self.python(BATCH, json.dumps([list(words) for words in lines]))
        results = [Ran(*json.loads(line)) for line in done.out.splitlines()]
        assert len(results) == len(lines), done
        return results

    def start(
        self, *words: str, stdin: Any = subprocess.DEVNULL, stdout: Any = None, stderr: Any = None, **more: str
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command(*words), cwd=self.directory, env=environment(more), stdin=stdin, stdout=stdout, stderr=stderr
        )

    def apply(self, change: Mapping[str, object], *words: str) -> Ran:
        """Apply a change with consent; the document is the answer."""
        return self("apply", "-", "--yes", "--json", *words, stdin=json.dumps(change))


@pytest.fixture
def program(workspace: Path) -> Program:
    """The program in a directory that is not under guard yet."""
    return Program(workspace)


@pytest.fixture
def guarded(program: Program) -> Program:
    """The program in a guarded directory with a few files."""
    holdfast.init(str(program.directory))
    (program.directory / "conf").mkdir()
    (program.directory / "conf/site.conf").write_text("port = 80\nhost = a\nname = b\n")
    (program.directory / "old.txt").write_text("old\n")
    return program


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], str]:
    """Write a change file outside the workspace; its path is returned."""

    def written(text: str) -> str:
        path = tmp_path / "change.yaml"
        path.write_text(text)
        return str(path)

    return written


def contents(directory: Path) -> dict[str, tuple[int, bytes]]:
    """Everything a person has in a directory: mode and bytes (or link target) by path."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if name.split("/")[0] == ".holdfast":
            continue
        mode = path.lstat().st_mode
        if path.is_symlink():
            found[name] = (mode, os.fsencode(path.readlink()))
        elif path.is_file():
            found[name] = (mode, path.read_bytes() if os.access(path, os.R_OK) else b"")
        else:
            found[name] = (mode, b"")
    return found


@pytest.fixture
def tree(workspace: Path) -> Callable[[], dict[str, tuple[int, bytes]]]:
    """A photograph of the workspace, to compare with a later one."""
    return lambda: contents(workspace)


@pytest.fixture
def people(guarded: Any, tmp_path: Path) -> Iterator[People]:
    """Ann and Ben, who approve besides `me`."""
    found = People(guarded, tmp_path / "people", "ann", "ben")
    yield found
    found.leave()
