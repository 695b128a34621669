"""holdfast worker: for runs on other machines, and for the triggers of a workspace; real processes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from delegated import configured
from engine.durable.cluster import Cluster
from roadmapped import boxes, commits, git, mapped, script

pytestmark = pytest.mark.long

PATIENCE_S = 90


@contextmanager
def working(directory: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-m", "holdfast", "worker", *words]
    child = subprocess.Popen(argv, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        if child.poll() is None:
            child.kill()
        child.communicate()


@contextmanager
def working_on_a_change(here: Any) -> Iterator[subprocess.Popen[str]]:
    """Somebody attends the workspace, and a task was just added to its roadmap."""
    agents = f'[agents.mine]\ncommand = ["python3", "{script(here)}", "{{task_file}}"]\nnetwork = "none"\n'
    trigger = '[triggers.plan]\nchanged = ["ROADMAP.md"]\nsettle = "100ms"\nroadmap = "ROADMAP.md"\nagent = "mine"\n'
    configured(agents + trigger + '[policy]\nwithout_health = "allow"\n')
    with working(here.directory) as child:
        assert child.stderr is not None
        assert "Attends" in child.stderr.readline()
        time.sleep(1.5)  # it has looked at the file as it is
        with (here.directory / "ROADMAP.md").open("a", encoding="utf-8") as file:
            file.write("- [ ] 1.2 Create b.py\n")
        yield child


def is_heard(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) == 0


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.1)


def test_a_roadmap_that_changes_is_driven(guarded: Any) -> None:
    """With a trigger on the roadmap, adding a task to it is all it takes; SIGTERM ends the attendance in order."""
    here = mapped(guarded, "Create a.py")
    with working_on_a_change(here) as child:
        until(lambda: boxes(here) == "xx")
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=PATIENCE_S)
    assert child.returncode == 0
    assert out.startswith("Stopped.")
    assert commits(here) == ["1.1 Create a.py", "1.2 Create b.py"]


def test_a_run_that_fails_after_it_began_is_told(guarded: Any) -> None:
    """A ledger that is damaged while an attended run goes on is the end of that run, and the person hears of it."""
    here = mapped(guarded, "Create a.py")
    slow = "import time\ntime.sleep(4)\nopen('a.py', 'w').write('x = 1\\n')\n"
    script(here).write_text(slow)
    with working_on_a_change(here) as child:
        assert child.stderr is not None
        lines = [child.stderr.readline(), child.stderr.readline()]
        assert sorted(line.split()[0] for line in lines) == ["EXECUTION_STARTED", "started"]
        with (here.directory / ".holdfast/ledger.jsonl").open("a", encoding="utf-8") as file:
            file.write("garbage\n")
        assert child.stderr.readline().startswith("failed plan: ")
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=PATIENCE_S)


def test_webhooks_are_heard_on_the_port_of_the_configuration(guarded: Any) -> None:
    """[run] webhook_port of the user's configuration; doctor tells it, and a taken one is refused with the key.
    A second worker is refused because of the first one (exit 9), and not because of its port."""
    here = mapped(guarded, "Create a.py")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        configured(f'[run]\nwebhook_port = {port}\n[triggers.hook]\nwebhook = true\nroadmap = "ROADMAP.md"\n')
        refused = here.fresh("worker")
        assert refused.status == 2 and "[run] webhook_port" in refused.err
        assert "Attends" not in refused.err
    told = here("doctor", "--json").document["configuration"]["values"]
    values = {row["key"]: row["value"] for row in told}
    assert values["run.webhook_port"] == port
    with working(here.directory) as child:
        assert child.stderr is not None
        assert "Attends" in child.stderr.readline()
        until(lambda: is_heard(port))
        second = here.fresh("worker")
        assert second.status == 9 and "are being watched already" in second.err, second.err
        assert "Attends" not in second.err and "port" not in second.err
        with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as asked:
            asked.sendall(b"POST /hooks/hook HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
            assert asked.recv(64).startswith(b"HTTP/1.1 4")


def test_without_a_trigger_there_is_nothing_to_attend(guarded: Any) -> None:
    """Exit 5, with what to write where."""
    here = mapped(guarded, "Create a.py")
    done = here.fresh("worker")
    assert done.status == 5
    assert "[triggers.NAME]" in done.err


def test_a_worker_without_a_workspace_does_the_work_of_a_run(guarded: Any, tmp_path: Path) -> None:
    """`run --database --workers-only` lands what `worker --database` made, over a clone and the shared store alone."""
    here = mapped(guarded, "Create a.py", "Create b.py")
    (here.directory / "uncommitted.txt").write_text("mine\n")
    cluster = Cluster()
    try:
        url = cluster.url("verbs")
        clone = tmp_path / "clone"
        subprocess.run(["git", "clone", "-q", str(here.directory), str(clone)], check=True)
        id = here("status", "--json").document["id"]
        words = ("--database", url, "--workspace", id, "--repository", str(clone), "--folder", str(tmp_path / "w"))
        with working(tmp_path, *words, "--name", "far"):
            done = here.fresh("run", "--agent", "mine", "--yes", "--database", url, "--workers-only", "--parallel", "2")
        assert done.status == 0, done.err
    finally:
        cluster.remove()
    assert (boxes(here), sorted(commits(here))) == ("xx", ["1.1 Create a.py", "1.2 Create b.py"])
    assert git(here, "status", "--short") == "?? uncommitted.txt\n"


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("postgresql://u:SECRETPW@127.0.0.1:1/x", 5),
        ("postgresql://u:SECRETPW@127.0.0.1:99999/x", 5),
        ("postgresql://u:SECRETPW@127.0.0.1:1/x?sslmode=SECRETPW", 5),
        ("postgresql://u@127.0.0.1:1/x?password=SECRETPW&SECRETPW=bar", 5),
        ("postgresql://u:SECRETPW@[::1/x", 2),
        ("mysql://u:SECRETPW@h/x", 2),
        ("u:SECRETPW@h", 2),
    ],
)
def test_a_database_of_no_use_is_told_before_anything_is_written_down(guarded: Any, url: str, status: int) -> None:
    """Run and worker say so in our words, without the password; no run is there afterwards, and the next one starts."""
    here = mapped(guarded, "Create a.py")
    verbs = (
        ("run", "--agent", "mine", "--yes"),
        ("worker", "--workspace", "w-x", "--folder", str(here.directory / "w")),
    )
    for words in verbs:
        done = here.fresh(*words, "--database", url)
        assert (done.status, "internal" in done.err, "SECRETPW" in done.out + done.err) == (status, False, False)
        assert "database" in done.err or "PostgreSQL" in done.err
    assert here("resume").status == 2, "there is no run"


@pytest.mark.parametrize("words", [("--database", "postgresql://127.0.0.1:1/none"), ("--lease", "1")])
def test_bad_words_are_refused(guarded: Any, words: tuple[str, ...]) -> None:
    """A worker that does not know whose work to take, or whose lease is too short, does not start: exit 2."""
    assert mapped(guarded, "Create a.py").fresh("worker", *words).status == 2
