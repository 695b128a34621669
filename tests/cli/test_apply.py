"""holdfast apply: from a change file to a changed workspace, or to an unchanged one."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Tree = Callable[[], dict[str, Any]]

EVERYTHING = """\
intent: Switch the site to release 2
steps:
  - write: conf/site.conf
    content: "port = 8080\\nhost = a\\nname = b\\n"
  - delete: old.txt
  - symlink: {path: current, to: releases/2}
  - create: logs/
  - write: run.sh
    content: "#!/bin/sh\\n"
    mode: "0755"
risk: medium
"""


def port(number: int, **more: object) -> dict[str, object]:
    step = {"write": "conf/site.conf", "content": f"port = {number}\n"}
    return {"intent": f"Use port {number}", "steps": [step], **more}


def test_a_change_lands_and_says_how_to_undo_it(guarded: Any, write: Callable[[str], str]) -> None:
    """Everything in the file happens, each change has its line, and the last line is the way back."""
    done = guarded.fresh("apply", write(EVERYTHING), "--yes")
    assert done.status == 0, done.err
    assert (guarded.directory / "conf/site.conf").read_text().startswith("port = 8080")
    assert os.readlink(guarded.directory / "current") == "releases/2"
    assert (guarded.directory / "run.sh").stat().st_mode & 0o777 == 0o755
    assert not (guarded.directory / "old.txt").exists()
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "~ conf/site.conf 1 line changed" in lines
    assert "- old.txt removed (kept for undo)" in lines
    assert "> current → releases/2" in lines
    assert "+ logs/ new directory" in lines
    assert lines[-1].startswith("Undo with: holdfast undo e-")
    assert "risk medium" in lines[0]
    assert done.err == ""


def test_without_a_terminal_there_is_no_consent(guarded: Any, write: Callable[[str], str], tree: Tree) -> None:
    """Without a terminal and without --yes nothing happens, checks leave nothing, and the exit status is 3."""
    before = tree()
    mark = guarded.directory.parent / "ran"
    done = guarded("apply", write(EVERYTHING + f"verify:\n  - run: [touch, {mark}]\n"))
    assert done.status == 3
    assert "--yes" in done.err
    assert "Nothing was changed." in done.err
    assert tree() == before
    assert not mark.exists()


def test_no_environment_variable_gives_consent(guarded: Any, write: Callable[[str], str]) -> None:
    """HOLDFAST_YES does not exist."""
    assert guarded.fresh("apply", write(EVERYTHING), HOLDFAST_YES="1").status == 3


def test_a_preview_changes_nothing(guarded: Any, write: Callable[[str], str], tree: Tree) -> None:
    """--preview shows the same summary, and neither changes a file nor runs a check."""
    before = tree()
    mark = guarded.directory.parent / "ran"
    done = guarded("apply", write(EVERYTHING + f"verify:\n  - run: [touch, {mark}]\n"), "--preview")
    assert done.status == 0
    assert "conf/site.conf" in done.out
    assert tree() == before
    assert not mark.exists()


def test_the_same_plan_is_applied_once(guarded: Any) -> None:
    """Applying the same file again finds its effect in place, names the execution and does nothing."""
    first = guarded.apply(port(81)).document
    again = guarded.apply(port(81))
    assert again.status == 0
    assert again.document["id"] == first["id"]
    assert again.document["already_applied"] is True
    assert len(guarded("log", "--json").document["items"]) == 1


def test_a_plan_with_health_that_stands_already_is_told_so(guarded: Any) -> None:
    """Health is about now, so the plan is tried again; where it no longer fits, the advice is not to correct it."""
    health = [{"run": ["grep", "-q", "port = 81", "conf/site.conf"], "within": "5s"}]
    update = {"update": "conf/site.conf", "old": "port = 80\nhost = a\nname = b\n", "content": "port = 81\n"}
    plan = {"intent": "Use port 81", "steps": [update], "health": health}
    first = guarded.apply(plan).document
    again = guarded.apply(plan)
    assert (again.status, again.document["error"]["changed"]) == (5, False)
    assert again.document["error"]["message"].startswith(f"Already applied as {first['id']}; ")
    assert "Of its health nothing was done again" in again.document["error"]["hint"]
    assert "Correct" not in again.document["error"]["hint"]
    asked = guarded.apply({"intent": "Ask", "steps": [{"read": "conf/site.conf"}], "health": health})
    assert (asked.status, [receipt["passed"] for receipt in asked.document["receipts"]]) == (0, [True])
    (guarded.directory / "conf/site.conf").write_text("port = 82\n")
    assert "Correct the plan" in guarded.apply(plan).document["error"]["hint"]


def test_a_plan_with_a_command_that_stands_already_is_told_so(guarded: Any) -> None:
    """The execution is named while all its files stand, also those the command made; not where the command fails."""
    update = {"update": "old.txt", "old": "old\n", "content": "new\n"}
    plan = {"intent": "Count", "steps": [update, {"run": ["sh", "-c", "wc -l < old.txt > lines"]}]}
    first = guarded.apply(plan).document
    again = guarded.apply(plan)
    assert (again.status, again.document["error"]["changed"]) == (5, False)
    assert again.document["error"]["message"].startswith(f"Already applied as {first['id']}; ")
    assert "Of its commands nothing was done again" in again.document["error"]["hint"]
    failing = {"intent": "Fail later", "steps": [{"run": ["sh", "-c", "test ! -e stop && echo 1 > one"]}]}
    guarded.apply(failing)
    (guarded.directory / "stop").touch()
    failed = guarded.apply(failing)
    assert (failed.status, "Already applied" in failed.document["error"]["message"]) == (5, False)
    (guarded.directory / "lines").write_text("another\n")
    assert "Already applied" not in guarded.apply(plan).document["error"]["message"]


SET_ID = {
    "written": ({"write": "run.sh", "content": "x"}, 5, "special rights"),
    "chmod": ({"chmod": {"path": "run.sh", "mode": "0755"}}, 5, "special rights"),
    "moved": ({"move": {"from": "run.sh", "to": "go.sh"}}, 3, "explicit consent"),
    "deleted": ({"delete": "run.sh"}, 0, ""),
}


@pytest.mark.parametrize("what", SET_ID)
def test_what_may_become_of_a_set_id_file(guarded: Any, what: str) -> None:
    """Rewriting it is refused, moving it is asked about, and it can be deleted: as the change file's reference says."""
    step, status, said = SET_ID[what]
    path = guarded.directory / "run.sh"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o4755)
    done = guarded.apply({"intent": "Change it", "steps": [step]}, "--yes")
    assert done.status == status
    assert said in done.out
    assert path.exists() == (what != "deleted")


def test_a_plan_that_changes_nothing_says_so(guarded: Any) -> None:
    """When the workspace is already as the plan wants it, nothing is recorded."""
    same = {"intent": "same", "steps": [{"write": "old.txt", "content": "old\n"}]}
    assert guarded.apply(same).document["status"] == "UNCHANGED"
    assert guarded("log", "--json").document["items"] == []


def test_a_command_that_changed_nothing_is_told_as_that(guarded: Any, write: Callable[[str], str]) -> None:
    """sed without a match says nothing about whether the workspace is as somebody wants it."""
    (guarded.directory / "a.txt").write_text("one\n")
    done = guarded("apply", write("intent: three\nsteps:\n- run: [sed, -i, s/two/three/, a.txt]\n"))
    assert done.status == 0, done.err
    assert "The command changed nothing" in done.out and "s/two/three/" in done.out
    assert "already as the plan wants it" not in done.out


def test_a_failing_verification_changes_nothing(guarded: Any, tree: Tree) -> None:
    """A check that fails in the scratch copy ends with 6; the record says ABORTED, and the log of the check is kept."""
    before = tree()
    check = {"run": ["sh", "-c", "cat conf/site.conf; exit 3"]}
    done = guarded.apply(port(81, verify=[check]))
    assert done.status == 6
    assert done.document["error"]["code"] == "verification_failed"
    assert done.document["error"]["changed"] is False
    assert done.document["execution"]["status"] == "ABORTED"
    assert tree() == before
    logs = guarded("show", done.document["execution"]["id"], "--log").out
    assert "port = 81" in logs, "the check must have seen the change"


def test_a_failing_health_check_is_rolled_back(guarded: Any, write: Callable[[str], str], tree: Tree) -> None:
    """The words say what failed, that everything is as before, how many paths prove it, and where to look."""
    before = tree()
    done = guarded("apply", write(EVERYTHING + 'health:\n  - run: ["false"]\n    within: 200ms\n'), "--yes")
    assert done.status == 6
    assert tree() == before
    assert "Health: false exited with 1" in done.err
    assert "Rolled back: 5 paths proven byte for byte as before." in done.err
    assert "holdfast show e-" in done.err


def test_a_health_check_sees_the_new_files(guarded: Any) -> None:
    """Health checks run in the workspace itself, after the change."""
    done = guarded.apply(port(81, health=[{"run": ["grep", "-q", "port = 81", "conf/site.conf"], "within": "5s"}]))
    assert done.status == 0
    assert [receipt["passed"] for receipt in done.document["receipts"]] == [True]


def test_ctrl_c_during_a_health_check_rolls_back(guarded: Any, tree: Tree) -> None:
    """Ctrl-C while the new files are in place: exit 130, everything as before, recorded as rolled back."""
    before = tree()
    site = guarded.directory / "conf/site.conf"
    change = port(81, health=[{"run": ["sleep", "30"], "within": "60s"}])
    file = guarded.directory.parent / "change.json"
    file.write_text(json.dumps(change))
    process = guarded.start("apply", str(file), "--yes", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    wait_until(lambda: site.read_text() == "port = 81\n")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"was rolled back: 1 path proven byte for byte as before." in error
    assert tree() == before
    assert guarded("log", "--json").document["items"][0]["status"] == "ROLLED_BACK"
    assert guarded("audit", "verify").status == 0


def test_a_file_taken_by_somebody_else_needs_a_human(guarded: Any) -> None:
    """When a touched file is changed while the change is in place, rolling back leaves it alone: exit 7, named."""
    spoil = {"run": ["sh", "-c", "echo mine > conf/site.conf; exit 1"], "within": "100ms"}
    done = guarded.apply(port(81, health=[spoil]))
    assert done.status == 7, done
    assert "conf/site.conf" in done.document["error"]["message"]
    assert done.document["error"]["changed"] is True
    assert (guarded.directory / "conf/site.conf").read_text() == "mine\n"
    assert guarded.apply(port(82)).status == 7, "no new work while that is open"
    assert guarded("recover", "--accept").status == 0
    assert guarded.apply(port(82)).status == 0


def test_a_second_process_is_kept_out(guarded: Any, tree: Tree) -> None:
    """While another process holds the lock, apply ends with 9 and says who holds it; --wait waits that long."""
    from holdfast.disk.lock import Lock

    before = tree()
    with Lock(str(guarded.directory / ".holdfast/lock")):
        done = guarded.apply(port(81))
        assert done.status == 9
        assert f"pid {os.getpid()}" in done.document["error"]["message"]
        started = time.monotonic()
        assert guarded.apply(port(81), "--wait", "0.5").status == 9
        assert time.monotonic() - started > 0.5
    assert tree() == before
    assert guarded.apply(port(81)).status == 0


def test_a_reader_that_leaves_does_not_stop_the_work(guarded: Any) -> None:
    """A closed standard output (| head) changes neither the outcome nor the exit status, and nobody complains."""
    reading, writing = os.pipe()
    os.close(reading)
    change = json.dumps(port(81)).encode()
    process = guarded.start("apply", "-", "--yes", stdin=subprocess.PIPE, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    _, error = process.communicate(change, timeout=30)
    assert (process.returncode, error) == (0, b"")
    assert (guarded.directory / "conf/site.conf").read_text() == "port = 81\n"


def test_an_answer_that_cannot_be_written_is_a_failure(guarded: Any) -> None:
    """Standard output on a full disk: the answer is lost, so the exit status is not 0."""
    with open("/dev/full", "wb") as full:
        process = guarded.start("log", stdout=full, stderr=subprocess.PIPE)
        _, error = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"could not be written" in error
    assert b"what was asked is done" in error


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_stop_nothing(guarded: Any, closed: str) -> None:
    """Started with closed streams, as some services are: the change lands and is recorded."""
    change = guarded.directory.parent / "change.json"
    change.write_text(json.dumps({"intent": "x", "steps": [{"write": "new.txt", "content": "1"}]}))
    line = shlex.join([sys.executable, "-m", "holdfast", "apply", str(change), "--yes", "--json"])
    done = guarded.run(["/bin/sh", "-c", f"{line} {closed}"])
    assert (done.status, done.err) == (0, "")
    assert (guarded.directory / "new.txt").read_text() == "1"
    assert guarded("log").out.count("applied") == 1
    assert ">&-" in closed.replace("2>&-", "") or done.document["status"] == "SUCCESS"


def test_names_and_contents_cannot_deceive_the_reader(guarded: Any, tmp_path: Path) -> None:
    """Escape sequences, bidi controls and bytes that are no text are shown as escapes, in names and in contents."""
    name = "a\x1b[2Jb\u202e\udcff.txt"
    change = {"intent": "odd names", "steps": [{"write": name, "content": "\x1b[31mred\u202e\n"}]}
    path = tmp_path / "odd.json"
    path.write_text(json.dumps(change))
    shown = "".join(guarded(*words).out for words in (("diff", str(path)), ("apply", str(path), "--yes"), ("log",)))
    shown += guarded("show", guarded("log", "--json").document["items"][0]["id"]).out
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert "a\\x1b[2Jb\\u202e\\xff.txt" in shown
    assert "+\\x1b[31mred\\u202e" in shown


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.01)
