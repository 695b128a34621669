"""A night on a branch: agents work while the person edits, commits, rebases, stashes and switches branches.

The driver is killed twenty times at moments that nobody chose. The person's repository has a twin, in which the same is
done and no Holdfast ever was: afterwards both are the same, down to the names of the commits.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from branched import kept, titles
from cli.conftest import Program
from roadmapped import agents_alive, git, mapped, script, wait_until

pytestmark = pytest.mark.long

TASKS = 24
KILLS = 20
_LONGEST_S = 400
NAMES = [f"part{number:02}" for number in range(TASKS)]
# The last task is not done before the last kill, so that there is always something to kill.
AGENT = """
import re, sys, time
name = re.search(r"Create (\\w+)\\.py", open(sys.argv[1]).read()).group(1)
time.sleep({last} if name == {held!r} else 0.2)
open(name + ".py", "w").write("NAME = " + repr(name) + "\\n")
"""


class Someone:
    """Does to a repository what people do, the same in each; every moment is told to git, so commits have one name."""

    def __init__(self, top: Path) -> None:
        self.top, self.done = top, 0

    def git(self, *words: str) -> str:
        moment = f"{1_700_000_000 + self.done} +0000"
        dates = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        done = subprocess.run(
            ["git", *words], cwd=self.top, capture_output=True, text=True, check=False, env={**os.environ, **dates}
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def write(self, name: str) -> None:
        (self.top / name).write_text(f"# {name} {self.done}\n")

    def a_day(self, main: str) -> Iterator[None]:
        """One thing after another: edit, commit, switch, rebase, stash, drop what they stashed into a file."""
        topic = f"topic-{self.done}"
        yield self.write("old.py")
        self.git("commit", "-qam", f"edit {self.done}")
        yield self.git("checkout", "-q", "-b", topic) and None
        self.write("topic.txt")
        self.git("add", "topic.txt")
        yield self.git("commit", "-qm", f"on {topic}") and None
        yield self.git("checkout", "-q", main) and None
        self.write("main.txt")
        self.git("add", "main.txt")
        yield self.git("commit", "-qm", f"main {self.done}") and None
        yield self.git("rebase", "-q", main, topic) and None
        yield self.git("checkout", "-q", main) and None
        self.write("old.py")
        yield self.git("stash", "push", "-q") and None
        yield self.git("stash", "pop", "-q") and None
        self.git("commit", "-qam", f"popped {self.done}")
        self.git("branch", "-q", "-D", topic)
        self.write("staged.txt")
        self.git("add", "staged.txt")
        yield self.git("commit", "-qm", f"staged {self.done}") and None

    def state(self) -> tuple[object, ...]:
        refs = self.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        own = [row for row in refs if "refs/heads/night" not in row]
        index = self.git("ls-files", "-s")
        files = {
            str(name): path.read_bytes()
            for path in sorted(self.top.rglob("*"))
            if path.is_file() and (name := path.relative_to(self.top)).parts[0] not in (".git", ".holdfast")
        }
        return (
            own,
            self.git("symbolic-ref", "HEAD"),
            index,
            self.git("status", "--short"),
            self.git("stash", "list"),
            files,
        )


def both(mine: Someone, twin: Someone, main: str, stop: threading.Event, failed: list[BaseException]) -> None:
    try:
        while not stop.is_set():
            for _ in zip(mine.a_day(main), twin.a_day(main), strict=True):
                mine.done += 1
                twin.done += 1
                stop.wait(0.1)
    except BaseException as error:  # noqa: BLE001 - told by the thread that waits for this one
        failed.append(error)


@pytest.fixture
def here(workspace: Path) -> Program:
    holdfast.init(str(workspace))
    program: Program = mapped(Program(workspace), *(f"Create {name}.py" for name in NAMES))
    script(program).write_text(AGENT.format(last=_LONGEST_S, held=NAMES[-1]))
    return program


def killed_again_and_again(here: Program, chance: random.Random) -> None:
    """Where a kill came before the run was begun, the next one begins it."""
    for _ in range(KILLS):
        begun = here("tasks", "--branch", "night", "--json")
        started = begun.status == 0 and begun.document["kind"] == "run"
        words = ("resume", "--branch", "night", "--yes") if started else _RUN
        process = here.start(*words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert process.stderr is not None
        # So many lines are told first, from none (it opens, repairs, makes the work tree) to a landing or two.
        _read_lines(process.stderr.fileno(), chance.randint(0, 7), within=20)
        try:
            process.wait(chance.uniform(0.0, 1.5))
        except subprocess.TimeoutExpired:
            process.kill()
        said = process.communicate()[1]
        assert process.returncode == -signal.SIGKILL, said


def _read_lines(descriptor: int, lines: int, *, within: float) -> None:
    """Until so many lines were told, or for as long: nothing is told while the last agent is held."""
    end = time.monotonic() + within
    while lines > 0 and select.select([descriptor], [], [], max(0, end - time.monotonic()))[0]:
        told = os.read(descriptor, 4096)
        lines = lines - told.count(b"\n") if told else 0


_RUN = ("run", "--branch", "night", "--agent", "mine", "--yes", "--parallel", "2")


def test_a_night_on_a_branch(here: Program, tmp_path: Path) -> None:
    """Every task landed once, as one commit with its box, on a clean branch; nothing of the person's was touched; and
    in the morning the branch is landed once."""
    main = git(here, "branch", "--show-current").strip()
    twin = tmp_path / "twin"
    subprocess.run(["cp", "-a", str(here.directory), str(twin)], check=True)
    mine, other = Someone(here.directory), Someone(twin)
    stop, failed = threading.Event(), list[BaseException]()
    working = threading.Thread(target=both, args=(mine, other, main, stop, failed))
    working.start()
    try:
        killed_again_and_again(here, random.Random(20_261_119))
        script(here).write_text(AGENT.format(last=0.2, held=NAMES[-1]))
        last = here.start("resume", "--branch", "night", "--yes", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said = last.communicate(timeout=_LONGEST_S)[0]
    finally:
        stop.set()
        working.join()
    assert not failed, failed
    assert last.returncode == 0, said
    wait_until(lambda: not agents_alive(here))
    assert mine.done > 20
    assert mine.state() == other.state()
    _check_branch(here)
    assert here("land", "night", "--yes").status == 0
    assert git(here, "status", "--short") == ""
    assert all((here.directory / f"{name}.py").read_text() == f"NAME = {name!r}\n" for name in NAMES)
    assert git(here, "log", "--merges", "--format=%s").splitlines() == ["Merge branch 'night'"]
    git(here, "fsck", "--strict")


def _check_branch(here: Program) -> None:
    landed = sorted(title for title in titles(here, "night") if title.startswith("1."))
    assert landed == sorted(f"1.{number} Create {name}.py" for number, name in enumerate(NAMES, 1))
    assert git(here, "show", "night:ROADMAP.md").count("- [x]") == TASKS
    assert git(here, "-C", str(kept(here)), "status", "--short") == ""
    executions = git(here, "log", "--format=%(trailers:key=Holdfast-Execution,valueonly)", "night").split()
    assert len(executions) == len(set(executions)) == TASKS
    for index in (here.directory / ".git").rglob("index.lock"):
        raise AssertionError(f"{index} was left")
