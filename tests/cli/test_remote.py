"""Workspaces on another host: real ssh to a real sshd, and the real program on both sides."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli.address import Address, address_of
from holdfast.cli.remote import OUR_STATUSES
from holdfast.errors import HoldfastError, InvalidInput, NotAWorkspace
from holdfast.intake.changefile import read_change_file
from ssh_host import SshHost, host_or_skip


@pytest.fixture(scope="module")
def host() -> Iterator[SshHost]:
    made = host_or_skip()
    yield made
    made.close()


class There:
    """`holdfast -C ssh://…` for one workspace over there, which is under guard over there."""

    def __init__(self, program: Any, host: SshHost, workspace: Path) -> None:
        self.program, self.host, self.workspace = program, host, workspace
        self.address = host.address(workspace)

    def __call__(self, *words: str, stdin: str = "") -> Any:
        return self.program.fresh("-C", self.address, *words, stdin=stdin, **self.host.environment)

    def statuses(self) -> list[str]:
        return [row["status"] for row in self("log", "--json").document["items"]]


@pytest.fixture
def there(program: Any, host: SshHost, tmp_path: Path) -> Iterator[There]:
    """The program stands in a directory that is not the workspace, which could not be told apart otherwise."""
    workspace = tmp_path / "workspace there"
    workspace.mkdir()
    (workspace / "old.txt").write_text("old\n")
    host.run_there("-C", str(workspace), "init")
    yield There(program, host, workspace)
    host.real_program()


def change(directory: Path, *steps: dict[str, Any], **more: Any) -> str:
    path = directory / "change.json"
    path.write_text(json.dumps({"intent": "a change", "steps": list(steps), **more}))
    return str(path)


# ── verbs ──


def test_every_verb_is_carried_out_over_there(there: There) -> None:
    """A look, a change and the way back are those of the other workspace; output and status come through."""
    file = change(there.program.directory, {"delete": "old.txt"})
    done = there("apply", file, "--yes", "--json")
    assert (done.status, done.document["status"]) == (0, "SUCCESS")
    assert not (there.workspace / "old.txt").exists()
    assert there.statuses() == ["SUCCESS"]
    assert there("undo", done.document["id"], "--yes").status == 0
    assert (there.workspace / "old.txt").read_text() == "old\n"
    assert not (there.program.directory / ".holdfast").exists()


def test_a_change_that_landed_in_part_over_there_is_told_as_that(there: There) -> None:
    """Files landed and a step under `continue` failed: exit 13 and what failed, and no word of a lost connection."""
    write = {"write": "new.txt", "content": "1"}
    call = {"service": {"call": "http://127.0.0.1:9/x"}, "undo": {"call": "http://127.0.0.1:9/y"}}
    file = change(there.program.directory, write, call, on_failure="continue")
    kept = there("simulate", file, "--json").document
    assert there("approve", kept["id"], "--plan", kept["plan_id"]).status == 0
    done = there("execute", kept["id"])
    assert (done.status, "not every step was done" in done.err) == (13, True)
    assert "lost" not in done.err
    assert (there.workspace / "new.txt").read_text() == "1"


def test_every_error_of_ours_has_a_status_that_is_known_over_ssh() -> None:
    """A status that the other side gives is never taken for one of ssh."""
    kinds, known = [HoldfastError], set[int]()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        known.add(kind.exit_status)
    assert known <= OUR_STATUSES


def test_doctor_speaks_of_the_other_host(there: There) -> None:
    """doctor is a verb like any other, with its document and its status."""
    done = there("doctor", "--json")
    assert (done.status, done.document["kind"]) == (0, "doctor")


def test_files_named_by_content_from_go_along(there: There) -> None:
    """What the change file names on this side arrives over there, small, large and not UTF-8; the plan keeps its id."""
    here = there.program.directory
    large = os.urandom(1 << 20) + b"\xff\0"
    (here / "large.bin").write_bytes(large)
    (here / "small.txt").write_bytes(b"small \xe4\n")
    steps = [{"write": f"new/{name}", "content_from": name} for name in ("large.bin", "small.txt")]
    done = there("apply", change(here, *steps), "--yes", "--json")
    assert done.status == 0, done
    assert (there.workspace / "new/large.bin").read_bytes() == large
    assert (there.workspace / "new/small.txt").read_bytes() == b"small \xe4\n"
    assert done.document["plan_id"] == read_change_file(str(here / "change.json")).id


def test_a_change_file_may_come_on_standard_input(there: There) -> None:
    """`-` is read on this side."""
    given = "intent: x\nsteps:\n- write: new.txt\n  content: 'yes'\n"
    assert there("apply", "-", "--yes", stdin=given).status == 0
    assert (there.workspace / "new.txt").read_text() == "yes"


def test_diff_takes_a_file_of_this_side_and_an_id_of_the_other(there: There) -> None:
    """A change file is sent, an id is asked for over there."""
    file = change(there.program.directory, {"delete": "old.txt"})
    planned = there("diff", file)
    assert (planned.status, "-old" in planned.out) == (0, True)
    id = there("apply", file, "--yes", "--json").document["id"]
    assert "-old" in there("diff", id).out


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("apply", "{}"), 3, "no terminal to ask on"),
        (("apply", "{}", "--yes"), 5, "none.txt"),
        (("show", "e-nothing"), 2, "e-nothing"),
        (
            ("show", "$(cd;touch pwned)`cd;touch pwned`;cd;touch pwned"),
            2,
            "$(cd;touch pwned)`cd;touch pwned`;cd;touch pwned",
        ),
        (("show", "`cd;touch pwned`\ncd;touch pwned", "--json"), 2, '"error"'),
    ],
)
def test_statuses_words_and_streams_come_through(there: There, words: tuple[str, ...], status: int, said: str) -> None:
    """Failures over there end here with their status and sentence; no word ever means anything to a shell."""
    step = {"delete": "old.txt"} if status == 3 else {"delete": "none.txt"}
    file = change(there.program.directory, step)
    filled = [word.format(file) if word == "{}" else word for word in words]
    done = there(*filled)
    assert (done.status, said in done.err + done.out) == (status, True)
    assert not list(there.host.place.rglob("pwned"))  # `cd` leads to the home over there, which is below that place


@pytest.mark.parametrize("name", ["-rf", "it's \"$HOME\" 'ä'", "$(cd;touch pwned);&", "line\nbreak 100%25"])
def test_any_path_over_there_is_taken_as_it_is(program: Any, host: SshHost, tmp_path: Path, name: str) -> None:
    """Blanks, quotes and marks in the path of the workspace mean nothing to the shell over there."""
    workspace = tmp_path / name.replace("%25", "%")
    workspace.mkdir()
    done = program.fresh("-C", host.address(tmp_path / name), "init", "--json", **host.environment)
    assert (done.status, done.document["path"]) == (0, str(workspace))
    assert sorted(os.listdir(tmp_path)) == sorted([workspace.name, "workspace"])
    assert not list(host.place.rglob("pwned"))


def test_an_address_may_name_user_and_port(there: There) -> None:
    """ssh://user@host:port/path says all that the configuration would; the later of two -C counts."""
    import pwd

    user = pwd.getpwuid(os.geteuid()).pw_name
    full = f"-Cssh://{user}@there:{there.host.port}{there.workspace}"
    done = there.program.fresh("-C", "/", "status", full, "--json", **there.host.environment)
    assert (done.status, done.document["kind"]) == (0, "status")


# ── refusals, before anything is sent ──


@pytest.mark.parametrize(
    "address",
    [
        "ssh://-oProxyCommand=touch/tmp",
        "ssh://-l@there/tmp",
        "ssh://-x@there/tmp",
        "ssh://there;id/tmp",
        "ssh://$(id)/tmp",
        "ssh://th ere/tmp",
        "ssh://`id`@there/tmp",
        "ssh://me:secret@there/tmp",
        "ssh://me@you@there/tmp",
        "ssh:///tmp",
        "ssh://there",
        "ssh://there/~/site",
        "ssh://there:0/tmp",
        "ssh://there:65536/tmp",
        "ssh://there:-1/tmp",
        "ssh://there:22x/tmp",
        "ssh://there/a%zz",
        "ssh://there/a%00b",
        "ssh://there/a?b",
        "ssh://[::1/tmp",
        "ssh://[-o]/tmp",
    ],
)
def test_a_doubtful_address_is_refused(address: str) -> None:
    """Options in disguise, passwords, shell marks and half addresses are invalid input, and no secret is repeated."""
    with pytest.raises(InvalidInput) as caught:
        address_of(address)
    assert "secret" not in f"{caught.value.message} {caught.value.hint}"


def test_ssh_never_sees_a_doubtful_address(program: Any, host: SshHost) -> None:
    """It ends with 2 before ssh is started, in the form that was asked for."""
    before = host.calls()
    done = program.fresh("-C", "ssh://-oProxyCommand=id/tmp", "log", "--json", **host.environment)
    assert (done.status, done.document["error"]["code"], host.calls()) == (2, "invalid_input", before)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ssh://web1/srv/site", Address("", "web1", 0, "/srv/site")),
        ("ssh://me@web1.example:2222/", Address("me", "web1.example", 2222, "/")),
        ("ssh://[2001:db8::1]:22/a%20b", Address("", "2001:db8::1", 22, "/a b")),
        ("ssh://[fe80::1%eth0]/x@y:z", Address("", "fe80::1%eth0", 0, "/x@y:z")),
        ("ssh://svc$@web1/x", Address("svc$", "web1", 0, "/x")),
    ],
)
def test_an_address_has_its_parts(text: str, expected: Address) -> None:
    """User, host, port and path are taken apart as a URL has them, and put together again."""
    assert address_of(text) == expected
    assert address_of(expected.shown.replace(" ", "%20")) == expected


def test_a_change_file_that_is_not_here_is_refused(there: There) -> None:
    """A name is never looked for over there, where another file may have it."""
    (there.workspace / "change.yaml").write_text("intent: x\nsteps:\n- delete: old.txt\n")
    before = there.host.calls()
    done = there("apply", "change.yaml", "--yes")
    assert (done.status, "no such file here" in done.err, there.host.calls()) == (2, True, before)
    assert (there.workspace / "old.txt").exists()


def test_a_wrong_change_file_is_refused_here_with_its_line(there: There) -> None:
    """What is wrong with a change file is said with its own name and line, and nothing is sent."""
    path = there.program.directory / "typo.yaml"
    path.write_text("intent: x\nsteps:\n- wriite: a\n")
    before = there.host.calls()
    done = there("apply", str(path), "--yes")
    assert (done.status, f"{path}:3:" in done.err, there.host.calls()) == (2, True, before)


def test_verbs_are_known_here_too(there: There) -> None:
    """A verb that does not exist is a usage error on this side."""
    done = there("aply", "x")
    assert (done.status, 'did you mean "apply"?' in done.err) == (2, True)


def test_the_last_directory_decides_who_works(guarded: Any, host: SshHost) -> None:
    """An ssh address that is overruled by a later -C starts no ssh."""
    before = host.calls()
    done = guarded.fresh("-C", "ssh://there/x", "log", "-C", str(guarded.directory), "--json", **host.environment)
    assert (done.status, host.calls()) == (0, before)


# ── the other side is not what it should be ──


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 127", "there is no holdfast on there"),
        ("echo 'unknown verb' >&2; exit 2", "does not speak protocol 1"),
        ("echo hello; exit 0", "does not speak protocol 1"),
        ("""echo '{"schema": "holdfast/1", "protocol": 2}'""", "does not speak protocol 1"),
        ("""echo '[1]'""", "does not speak protocol 1"),
    ],
)
def test_a_side_that_speaks_otherwise_is_refused(there: There, script: str, said: str) -> None:
    """No Holdfast over there, an older one, or something else by that name: exit 2, and the verb is never sent."""
    there.host.program(f'[ "$1" = over-ssh ] || touch {there.workspace}/reached\n{script}')
    done = there("apply", change(there.program.directory, {"delete": "old.txt"}), "--yes", "--json")
    assert (done.status, said in done.document["error"]["message"]) == (2, True)
    assert set(os.listdir(there.workspace)) == {"old.txt", ".holdfast"}


def test_a_missing_program_is_said_so(there: There) -> None:
    """Where the shell over there finds no holdfast at all, that is what is said."""
    there.host.there.unlink()
    done = there("log")
    assert (done.status, "there is no holdfast on there" in done.err) == (2, True)


def test_a_directory_that_is_no_workspace_is_refused_over_there(program: Any, host: SshHost, tmp_path: Path) -> None:
    """Its own sentence and status come back, before and after the handshake."""
    bare = tmp_path / "bare"
    bare.mkdir()
    file = change(program.directory, {"create": "x"})
    for words in (("log",), ("apply", file, "--yes")):
        done = program.fresh("-C", host.address(bare), *words, "--json", **host.environment)
        assert (done.status, done.document["error"]["code"]) == (2, "not_a_workspace")


def test_another_host_key_is_refused(there: There) -> None:
    """Checking the host is never turned off: with another key nothing is sent, and it ends with 5."""
    right = there.host.known_hosts.read_text()
    wrong = (there.host.place / "other_key.pub").read_text()
    there.host.known_hosts.write_text(f"[127.0.0.1]:{there.host.port} {wrong}")
    try:
        done = there("log")
    finally:
        there.host.known_hosts.write_text(right)
    assert (done.status, "cannot be reached" in done.err, "Nothing was changed" in done.err) == (5, True, True)


def test_without_a_key_nobody_is_asked(there: There) -> None:
    """Where ssh would have to ask and there is no terminal, it fails at once instead of waiting."""
    shutil.move(there.host.identity, there.host.place / "aside")
    try:
        done = there("log", "--json")
    finally:
        shutil.move(there.host.place / "aside", there.host.identity)
    assert (done.status, done.document["error"]["code"]) == (5, "blocked")


# ── the connection is lost ──


def test_a_lost_connection_leaves_the_outcome_open_and_the_change_whole(there: There) -> None:
    """Cut off in the middle of a change: exit 7, the outcome is not known, and how to ask; over there it ends well."""
    ready, go = there.workspace.parent / "ready", there.workspace.parent / "go"
    waiting = ["sh", "-c", f"touch '{ready}'; until [ -e '{go}' ]; do sleep 0.05; done"]
    file = change(there.program.directory, {"delete": "old.txt"}, health=[{"run": waiting}])
    words = ("-C", there.address, "apply", file, "--yes", "--json")
    started = there.program.start(*words, stdout=subprocess.PIPE, **there.host.environment)
    until(ready.exists)
    os.kill(child_of(started.pid), signal.SIGKILL)
    out, _ = started.communicate(timeout=30)
    error = json.loads(out)["error"]
    assert (started.returncode, error["code"], error["changed"]) == (7, "needs_human", True)
    assert "how it ended is not known" in error["message"]
    assert "log" in error["hint"]
    go.touch()
    until(lambda: there.statuses() == ["SUCCESS"])
    assert not (there.workspace / "old.txt").exists()


@pytest.mark.parametrize(("verb", "status"), [("log", 5), ("gc", 7)])
def test_what_a_lost_connection_means_depends_on_the_verb(there: There, verb: str, status: int) -> None:
    """A verb that only looks changed nothing; of any other the outcome is not known."""
    hello = f'[ "$1" = over-ssh ] && exec {sys.executable} -m holdfast "$@"'
    there.host.program(f"{hello}\nkill -9 $$")
    done = there(verb)
    assert (done.status, "was lost" in done.err, "Nothing was changed" in done.err) == (status, True, status == 5)


# ── a person at a terminal ──


@pytest.mark.parametrize(("reply", "status", "stays"), [("y", 0, False), ("n", 3, True)])
def test_a_person_here_is_asked_from_over_there(there: There, reply: str, status: int, stays: bool) -> None:
    """With a terminal on this side the question comes over, and so does the answer."""
    file = change(there.program.directory, {"delete": "old.txt"})
    ours, theirs = pty.openpty()
    started = there.program.start(
        "-C", there.address, "apply", file, stdin=theirs, stdout=theirs, stderr=theirs, **there.host.environment
    )
    os.close(theirs)
    said = read_until(ours, "Apply exactly this?")
    os.write(ours, f"{reply}\n".encode())
    said += read_until(ours, "")
    assert (started.wait(30), (there.workspace / "old.txt").exists()) == (status, stays), said
    os.close(ours)


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def child_of(pid: int) -> int:
    """The ssh that a program started: our wrapper became it."""
    found = subprocess.run(["pgrep", "-P", str(pid), "-x", "ssh"], capture_output=True, text=True, check=True)
    return int(found.stdout.split()[0])


def read_until(terminal: int, wanted: str, seconds: float = 30) -> str:
    """What a terminal shows, until a text is there; until its end for the empty text."""
    said, end = "", time.monotonic() + seconds
    while not (wanted and wanted in said) and time.monotonic() < end:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            said += os.read(terminal, 65536).decode("utf-8", "replace")
        except OSError:  # the last holder of the other end is gone
            break
    assert wanted in said, said
    return said


def test_python_takes_no_address_for_a_directory(guarded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside a workspace an address does not open that one: Python has no way to another host, and says who has."""
    monkeypatch.chdir(guarded.directory)
    for door in (holdfast.open, holdfast.init):
        with pytest.raises(NotAWorkspace, match="is on another host") as caught:
            door("ssh://example.org/srv/site")
        assert "holdfast -C ssh://example.org/srv/site" in caught.value.hint
