"""undo, restore and recover, as typed."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from guarded import put
from holdfast.errors import NeedsHuman
from holdfast.model.plan import Call, Plan, Service
from servers import listening

Tree = Callable[[], dict[str, Any]]

# A process that dies at a named point; its arguments are the workspace and the point.
KILLED = """
import sys, holdfast
from holdfast.testing import FaultyCalls, KillAt
hf = holdfast.open(sys.argv[1], calls=FaultyCalls(KillAt(sys.argv[2])))
with hf.transaction("Interrupted work", approved_by="me") as tx:
    tx.write("old.txt", b"new")
    tx.write("more.txt", b"more")
"""


def change(path: str, content: str) -> dict[str, object]:
    return {"intent": f"Write {path}", "steps": [{"write": path, "content": content}]}


def kill_at(program: Any, point: str) -> None:
    done = program.python(KILLED, str(program.directory), point)
    assert done.status == -signal.SIGKILL, done


def test_undo_brings_back_and_can_be_undone(guarded: Any, tree: Tree) -> None:
    """An undo restores the bytes of before; undoing the undo restores the change."""
    before = tree()
    id = guarded.apply(change("old.txt", "new")).document["id"]
    after = tree()
    undone = guarded.fresh("undo", id, "--yes", "--json").document
    assert tree() == before
    assert undone["undoes"] == [id]
    assert guarded("log").out.splitlines()[1].split()[3] == "undone"
    assert guarded("undo", undone["id"], "--yes").status == 0
    assert tree() == after


def test_undo_needs_consent(guarded: Any, tree: Tree) -> None:
    """Without --yes and without a terminal: exit 3 and nothing changed; --preview: exit 0 and nothing changed."""
    id = guarded.apply(change("old.txt", "new")).document["id"]
    before = tree()
    asked = guarded("undo", id)
    assert asked.status == 3
    assert "~ old.txt" in asked.out
    assert guarded("undo", id, "--preview").status == 0
    assert tree() == before


def test_undo_keeps_a_later_edit_and_says_so(guarded: Any) -> None:
    """A file edited since is merged, and named as merged."""
    id = guarded.apply(change("conf/site.conf", "port = 81\nhost = a\nname = b\n")).document["id"]
    path = guarded.directory / "conf/site.conf"
    path.write_text(path.read_text() + "more = c\n")
    done = guarded("undo", id, "--yes")
    assert done.status == 0
    assert "= conf/site.conf  edited since" in done.out
    assert path.read_text() == "port = 80\nhost = a\nname = b\nmore = c\n"


def test_undo_in_the_way_of_an_edit_is_a_conflict(guarded: Any, tree: Tree) -> None:
    """An edit in the same place: exit 8, the file is named, nothing is changed."""
    id = guarded.apply(change("old.txt", "new\n")).document["id"]
    (guarded.directory / "old.txt").write_text("newer\n")
    before = tree()
    done = guarded("undo", id, "--yes", "--json")
    assert done.status == 8
    assert "old.txt" in done.document["error"]["message"]
    assert done.document["error"]["changed"] is False
    assert tree() == before


def test_undo_twice_is_refused(guarded: Any) -> None:
    """What is undone cannot be undone again: exit 2."""
    id = guarded.apply(change("old.txt", "new")).document["id"]
    assert guarded("undo", id, "--yes").status == 0
    assert guarded("undo", id, "--yes").status == 2


def test_restore_goes_back_to_before_an_execution(guarded: Any, tree: Tree) -> None:
    """An id means just before it; everything from there on is taken back in one execution."""
    before = tree()
    first = guarded.apply(change("old.txt", "1")).document["id"]
    guarded.apply(change("b.txt", "2"))
    guarded.apply(change("old.txt", "3"))
    done = guarded.fresh("restore", "--at", first, "--yes", "--json")
    assert done.document["status"] == "SUCCESS"
    assert len(done.document["undoes"]) == 3
    assert tree() == before
    looked = guarded("restore", "--at", "an hour ago", "--preview")
    assert looked.status == 0
    assert looked.out.startswith("As it stood on ")  # whatever was understood by those words


def test_restore_with_nothing_to_do_is_0(guarded: Any) -> None:
    """When nothing happened since the moment, that is no error."""
    guarded.apply(change("old.txt", "1"))
    done = guarded("restore", "--at", "now", "--yes")
    assert done.status == 0
    assert "nothing to do" in done.out


def test_a_crash_is_repaired_by_the_next_verb(guarded: Any, tree: Tree) -> None:
    """Killed with the new files in place: even a verb that only looks rolls back first, and says so on stderr."""
    before = tree()
    kill_at(guarded, "flipped")
    assert tree() != before
    done = guarded("log")
    assert done.status == 0
    assert "was not finished; rolled back: 2 paths proven byte for byte as before." in done.err
    assert "rolled back" in done.out
    assert tree() == before
    assert guarded("recover").out.startswith("Nothing to recover")


def test_a_crash_after_the_commit_is_completed(guarded: Any) -> None:
    """Killed after the commit point: the change stands, and recover completes its records."""
    kill_at(guarded, "committed")
    done = guarded.fresh("recover", "--json").document
    assert done["status"] == "finished"
    assert (guarded.directory / "more.txt").read_text() == "more"
    assert guarded("log", "--json").document["items"][0]["status"] == "SUCCESS"


def test_looking_during_a_lock_does_not_repair(guarded: Any) -> None:
    """When somebody holds the lock, what looks unfinished is his: the reader goes on and repairs nothing."""
    from holdfast.disk.lock import Lock

    kill_at(guarded, "flipped")
    with Lock(str(guarded.directory / ".holdfast/lock")):
        done = guarded("log")
    assert (done.status, done.err) == (0, "")
    assert (guarded.directory / "old.txt").read_text() == "new"


def test_an_edit_after_a_crash_needs_a_human(guarded: Any) -> None:
    """What somebody changed after the crash is left alone: exit 7 names it, status shows it, --accept closes it."""
    kill_at(guarded, "flipped")
    time.sleep(0.02)
    (guarded.directory / "old.txt").write_text("mine\n")
    done = guarded.apply(change("b.txt", "x"))
    assert done.status == 7
    assert "old.txt" in done.document["error"]["message"]
    assert done.document["error"]["changed"] is True
    assert "old.txt" in guarded("status", "--json").document["trouble"][0]["message"]
    closed = guarded("recover", "--accept", "--json")
    assert closed.status == 0, closed
    assert closed.document["status"] == "accepted"
    assert (guarded.directory / "old.txt").read_text() == "mine\n"
    assert not (guarded.directory / "more.txt").exists()
    assert guarded.apply(change("b.txt", "x")).status == 0


def _refused_as_status_says(guarded: Any, exit_status: int, code: str, *named: str) -> None:
    """A change and a recovery are refused, and status gives their reason, in words and in JSON."""
    refused = [guarded.apply(change("b.txt", "x")), guarded("recover", "--json")]
    assert [done.status for done in refused] == [exit_status] * 2
    told = guarded("status", "--json")
    assert (told.status, told.document["status"]) == (0, "trouble")
    (trouble,) = told.document["trouble"]
    reason = refused[1].document["error"]
    assert trouble == {name: reason[name] for name in ("code", "message", "hint")}
    assert trouble["code"] == code
    words = guarded("status").out
    assert "Nothing is open" not in words
    for name in named:
        assert name in trouble["message"] and name in words


def test_status_names_directories_that_cannot_go_back(guarded: Any) -> None:
    """A new directory with somebody's file in it stays, like a file that somebody edited: status names all of them."""
    for meddling, named in (("touch n/mine", ["n"]), ("touch n/mine; echo x > old.txt", ["n", "old.txt"])):
        plan = {"intent": "Try", "steps": [{"write": "n/a", "content": "1"}, {"write": "old.txt", "content": "1"}]}
        health = [{"run": ["sh", "-c", f"{meddling}; exit 1"], "within": "1s"}]
        assert guarded.apply({**plan, "health": health}).status == 7
        _refused_as_status_says(guarded, 7, "needs_human", *named)
        with holdfast.open(str(guarded.directory)) as hf:
            assert sorted(item.path for item in hf.open_divergence()) == named
        assert guarded("recover", "--accept").status == 0
        assert "Trouble" not in guarded("status").out
        (guarded.directory / "n/mine").unlink()
        (guarded.directory / "n").rmdir()


@pytest.mark.parametrize("point", ["flipped", "committed"])
def test_status_tells_of_a_damaged_journal(guarded: Any, point: str) -> None:
    """Killed, and one byte of the journal written over: nothing goes on before somebody looked, and status says so."""
    kill_at(guarded, point)
    (log,) = (guarded.directory / ".holdfast/journal").glob("*/log")
    data = bytearray(log.read_bytes())
    data[700] ^= 1
    log.write_bytes(data)
    _refused_as_status_says(guarded, 12, "tampering", "the journal is damaged at byte 8")


def test_status_tells_of_what_is_not_ours_in_the_journal(guarded: Any) -> None:
    """A file that somebody put into the journal is not cleaned away, and keeps every change away."""
    (guarded.directory / ".holdfast/journal/planted").write_text("x")
    _refused_as_status_says(guarded, 12, "tampering", "planted")


def test_what_a_closed_failure_left_is_named(guarded: Any) -> None:
    """A service action that stands after exit 7 waits for nobody; recover and status name the execution and the action.

    With the next change that is history; so it is after `--accept`, which names what others changed.
    """
    with listening() as api, holdfast.open(str(guarded.directory)) as hf:
        api.answers |= {"POST /fail": 503, "POST /unfail": 503}
        drain = Service(Call(f"{api.url}/drain"))
        plan = Plan("try", (put("n", b"1"), drain, Service(Call(f"{api.url}/fail"), Call(f"{api.url}/unfail"))))
        with pytest.raises(NeedsHuman):
            hf.execute(hf.simulate(plan), approved_by="me", consent=plan.id)
        (row,) = hf.log()
        stands = f"POST {api.url}/drain cannot be taken back"
    for verb in ("recover", "status"):
        told = guarded(verb)
        assert told.status == 0 and row.id in told.out and stands in told.out
        assert "is closed" in told.out and "ended properly" not in told.out and "Nothing is open" not in told.out
        document = guarded(verb, "--json").document
        assert (document["status"], document["closed_as_failed"]["id"]) == ("clean", row.id)
        assert stands in document["closed_as_failed"]["errors"]
    assert guarded.apply(change("b.txt", "x")).status == 0
    assert guarded("recover").out == "Nothing to recover: the last change ended properly.\n"
    assert guarded("status", "--json").document["closed_as_failed"] is None
    kill_at(guarded, "flipped")
    (guarded.directory / "old.txt").write_text("mine\n")
    assert "is closed" not in guarded("status").out
    assert guarded("recover", "--accept").status == 0
    assert "old.txt was changed by somebody else" in guarded("recover").out


def _other_mode(path: Path) -> None:
    path.chmod(0o600)


def _other_content(path: Path) -> None:
    path.write_text("mine\n")


def _a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _both(path: Path) -> None:
    _other_content(path)
    _other_mode(path)


@pytest.mark.parametrize(
    ("meddle", "how"),
    [
        (_other_mode, "(mode 0600 instead of 0644)"),
        (_other_content, "(other content)"),
        (_both, "(mode 0600 instead of 0644, other content)"),
        (_a_directory, "(a directory is there instead of a file)"),
    ],
)
def test_recover_says_what_differs_at_a_path(guarded: Any, meddle: Callable[[Path], None], how: str) -> None:
    """What somebody changed is told by what it is: mode, content, kind; when it is found, and when it is accepted."""
    kill_at(guarded, "flipped")
    meddle(guarded.directory / "old.txt")
    found = guarded("recover")
    assert (found.status, f"old.txt was changed by somebody else {how}" in found.err) == (7, True), found.err
    accepted = guarded("recover", "--accept", "--json")
    (left,) = accepted.document["left"]
    assert (left["path"], how in left["detail"]) == ("old.txt", True)


def test_going_back_shows_a_mass_removal_and_is_not_refused(guarded: Any, tree: Tree) -> None:
    """Undoing the creation of most of the tree says how much goes, in words and JSON; --yes carries it out."""
    before = tree()
    steps = [{"write": f"page-{n:02}", "content": str(n)} for n in range(30)]
    id = guarded.apply({"intent": "Write pages", "steps": steps}).document["id"]
    files = len([path for path in guarded.directory.rglob("*") if path.is_file() and ".holdfast" not in path.parts])
    for words in (("undo", id), ("restore", "--at", "2020-01-01 00:00")):
        assert f"  ! removes 30 of {files} files in this workspace\n" in guarded(*words, "--preview").out
        document = guarded(*words, "--preview", "--json").document
        assert document["mass_removal"] == {"files": 30, "of": files}
    assert guarded("undo", id, "--yes").status == 0
    assert tree() == before
