"""The verbs that only look: log, show, trace, status, diff, audit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

Tree = Callable[[], dict[str, Any]]


def change(path: str, content: str, intent: str = "") -> dict[str, object]:
    return {"intent": intent or f"Write {path}", "steps": [{"write": path, "content": content}]}


@pytest.fixture
def changed(guarded: Any) -> tuple[Any, list[str]]:
    """A workspace in which two things happened, and their ids, oldest first."""
    first = guarded.apply(change("conf/site.conf", "port = 81\nhost = a\nname = b\n", "Use port 81")).document["id"]
    second = guarded.apply(change("new.txt", "hello\n", "Say 100% hello_")).document["id"]
    return guarded, [first, second]


def test_log_lists_the_newest_first(changed: tuple[Any, list[str]]) -> None:
    """Every execution has a line with id, state and intent."""
    program, ids = changed
    lines = program.fresh("log").out.splitlines()
    assert [line.split()[0] for line in lines] == ids[::-1]
    assert "applied" in lines[1] and lines[1].endswith("Use port 81")


def test_log_searches_and_limits(changed: tuple[Any, list[str]]) -> None:
    """--search looks in intents and ids, % and _ mean themselves; --limit cuts."""
    program, ids = changed

    def found(*words: str) -> list[str]:
        return [item["id"] for item in program("log", "--json", *words).document["items"]]

    assert found("--search", "PORT") == [ids[0]]
    assert found("--search", "100%") == [ids[1]]
    assert found("--search", "hell__") == []
    assert found("--search", ids[0]) == [ids[0]]
    assert found("--limit", "1") == [ids[1]]


def test_show_tells_all_about_an_execution(changed: tuple[Any, list[str]]) -> None:
    """Any unique beginning of an id is enough; steps, approver and the way back are shown."""
    program, ids = changed
    text = program.fresh("show", ids[0][:6]).out
    for words in ("Use port 81", "✓ write conf/site.conf", "Approved  by", f"holdfast undo {ids[0]}"):
        assert words in text
    document = program("show", ids[0], "--json").document
    assert (document["kind"], document["id"], document["status"]) == ("execution", ids[0], "SUCCESS")


def test_show_tells_about_a_plan_without_its_contents(changed: tuple[Any, list[str]]) -> None:
    """A plan shows its steps; contents, which may be secret, are there by digest only."""
    program, ids = changed
    plan_id = program("show", ids[1], "--json").document["plan_id"]
    told = program("show", plan_id, "--json")
    assert told.document["kind"] == "plan"
    assert "sha256" in told.out and "hello\\n" not in told.out
    assert "write new.txt" in program("show", plan_id).out


def test_diff_of_an_execution_shows_both_sides(changed: tuple[Any, list[str]]) -> None:
    """Old and new lines are there, also after the execution was undone and after the file was changed again."""
    program, ids = changed
    expected = ["-port = 80", "+port = 81"]
    assert [line for line in program("diff", ids[0]).out.splitlines() if "port" in line] == expected
    program.apply(change("conf/site.conf", "port = 82\nhost = a\nname = b\n"))
    assert [line for line in program("diff", ids[0]).out.splitlines() if "port" in line] == expected
    assert program("undo", ids[1], "--yes").status == 0
    assert "+hello" in program("diff", ids[1]).out


def test_diff_says_when_new_content_is_no_longer_kept(guarded: Any) -> None:
    """New texts are kept without a sync; when a power cut took them and the file was edited since, diff says so."""
    id = guarded.apply(change("old.txt", "new\n")).document["id"]
    (guarded.directory / ".holdfast/kept" / id / "contents").unlink()
    assert "+new" in guarded("diff", id).out
    (guarded.directory / "old.txt").write_text("edited\n")
    assert "new content no longer kept" in guarded("diff", id).out
    (item,) = guarded("diff", id, "--json").document["changes"]
    assert (item["diff"], item["note"]) == (None, "no longer kept")


def test_diff_of_a_change_file_is_a_preview(guarded: Any, write: Callable[[str], str], tree: Tree) -> None:
    """diff FILE shows what would change, line by line, and changes nothing."""
    before = tree()
    text = "intent: x\nsteps:\n  - move: {from: old.txt, to: b/new.txt}\n  - write: bin\n    content_base64: AAEC\n"
    done = guarded.fresh("diff", write(text))
    assert done.status == 0
    assert "moved old.txt → b/new.txt" in done.out
    assert "new content binary" in done.out
    assert tree() == before


def test_diff_of_what_changed_nothing_is_refused(guarded: Any) -> None:
    """A rolled back execution left nothing to compare, and the plan's contents are not kept: exit 2."""
    failing = {**change("a", "b"), "health": [{"run": ["false"], "within": "100ms"}]}
    execution = guarded.apply(failing).document["execution"]
    assert guarded("diff", execution["id"]).status == 2
    assert "change file" in guarded("diff", execution["plan_id"]).err


def test_status_gives_digest_and_count(guarded: Any) -> None:
    """The digest is a function of the tree: it moves with an edit and comes back with it."""
    first = guarded.fresh("status", "--json").document
    assert first["status"] == "clean"
    assert first["tree"]["entries"] == 3
    path = guarded.directory / "old.txt"
    path.write_text("edited\n")
    assert guarded("status", "--json").document["tree"]["digest"] != first["tree"]["digest"]
    path.write_text("old\n")
    assert guarded("status", "--json").document["tree"] == first["tree"]
    assert first["tree"]["digest"][:16] in guarded("status").out


def test_looking_works_while_another_process_is_at_work(changed: tuple[Any, list[str]]) -> None:
    """log, show, diff, status and audit need no lock; status says who is at work."""
    from holdfast.disk.lock import Lock

    program, ids = changed
    with Lock(str(program.directory / ".holdfast/lock")):
        for words in (("log",), ("show", ids[0]), ("diff", ids[0]), ("audit", "verify")):
            assert program(*words).status == 0
        told = program("status", "--json").document
    assert told["status"] == "busy"
    assert "pid" in told["at_work"]


def test_audit_finds_a_flipped_bit(changed: tuple[Any, list[str]]) -> None:
    """A ledger as written is exit 0; with one bit flipped it is exit 12, with the line."""
    program, _ = changed
    good = program.fresh("audit", "verify", "--json")
    assert (good.status, good.document["count"]) == (0, 9)  # init; report, decision, approval, execution of each
    path = program.directory / ".holdfast/ledger.jsonl"
    data = bytearray(path.read_bytes())
    data[data.index(b"port 81")] ^= 1
    path.write_bytes(data)
    bad = program("audit", "verify", "--json")
    assert bad.status == 12
    assert bad.document["error"]["code"] == "tampering"
    assert bad.document["verification"]["line"] == 5
    assert "line 5" in program("audit", "verify").err


def test_status_tells_of_tampering(changed: tuple[Any, list[str]]) -> None:
    """A ledger whose end was cut off shows as trouble in status, and no verb changes anything any more."""
    program, ids = changed
    path = program.directory / ".holdfast/ledger.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    told = program("status", "--json").document
    assert (told["status"], told["trouble"][0]["code"]) == ("trouble", "tampering")
    assert program("undo", ids[0], "--yes").status == 12
    told = program("log")
    assert told.status == 0
    assert ids[0] in told.out
    assert "the ledger" in told.err
    assert "holdfast audit accept" in told.err


def _edited(program: Any) -> None:
    """An old record says something else; the file has the length and the modification time that it had."""
    path = program.directory / ".holdfast/ledger.jsonl"
    about, lines = path.stat(), path.read_bytes().splitlines(keepends=True)
    lines[1] = lines[1].replace(b'"at":1', b'"at":2', 1)
    path.write_bytes(b"".join(lines))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def test_an_old_record_that_was_edited_stops_every_change(changed: tuple[Any, list[str]]) -> None:
    """status and doctor tell; whatever changes something ends with 12, and nothing is changed."""
    program, ids = changed
    before = (program.directory / ".holdfast/ledger.jsonl").stat().st_size
    _edited(program)
    told = program("status", "--json").document
    assert (told["status"], told["trouble"][0]["code"]) == ("trouble", "tampering")
    assert "the ledger is broken: line 2" in program("doctor").out
    for words in (
        ("undo", ids[0], "--yes"),
        ("gc",),
        ("restore", "--at", "2020-01-01", "--yes"),
        ("run", "--agent", "manual"),
    ):
        assert program(*words).status == 12, words
    assert (program.directory / ".holdfast/ledger.jsonl").stat().st_size == before


def test_a_break_is_accepted_by_typing_its_id(changed: tuple[Any, list[str]]) -> None:
    """Without the id it is shown and refused (3), with another one too; with it the ledger is whole, and undo works."""
    program, ids = changed
    assert program("audit", "accept").out == "The ledger is whole: there is nothing to accept.\n"
    _edited(program)
    shown = program("audit", "accept")
    assert shown.status == 3
    assert "Broken     the ledger is broken: line 2: record 2 is not what was written" in shown.out
    id = shown.err.split("--break ")[1].split()[0]
    assert program("audit", "accept", "--break", "b-aaaaaaaa").status == 3
    assert program("audit", "accept", "--yes").status == 2
    done = program("audit", "accept", "--break", id, "--json").document
    assert (done["status"], done["id"]) == ("accepted", id)
    assert program("audit", "verify").status == 0
    assert program("undo", ids[0], "--yes").status == 0


def test_gc_says_what_it_forgot(changed: tuple[Any, list[str]]) -> None:
    """The ten newest executions are kept whatever their age."""
    program, ids = changed
    done = program.fresh("gc", "--keep-days", "0", "--json").document
    assert (done["kind"], done["forgotten"]) == ("gc", [])
    assert program("undo", ids[0], "--yes").status == 0


def test_every_answer_is_one_document(changed: tuple[Any, list[str]]) -> None:
    """--json prints one JSON document with schema, kind, id and status (lists: items), and nothing else."""
    program, ids = changed
    lines = [
        ["init"], ["doctor"], ["log"], ["show", ids[0]], ["diff", ids[0]], ["status"], ["audit", "verify"],
        ["recover"], ["gc"], ["undo", ids[0], "--preview"], ["restore", "--at", ids[0], "--preview"],
        ["restore", "--at", "now"], ["undo", ids[0], "--yes"],
    ]  # fmt: skip
    for words, done in zip(lines, program.batch([[*words, "--json"] for words in lines]), strict=True):
        assert (done.status, done.err) == (0, ""), (words, done)
        assert done.document["kind"] == "list" or {"id", "status"} <= done.document.keys(), words
    assert program("--version", "--json").document["kind"] == "version"


def test_a_stream_ends_with_the_document(guarded: Any, write: Callable[[str], str]) -> None:
    """--stream-json prints one event a line while it works, and the document last."""
    file = write(json.dumps({**change("a", "b"), "verify": [{"run": ["true"]}]}))
    done = guarded.fresh("--stream-json", "apply", file, "--yes")
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert {"simulation", "progress", "receipt"} <= {line.get("event") for line in lines[:-1]}
    assert all(line["schema"] == "holdfast/1" for line in lines)
    assert (lines[-1]["kind"], lines[-1]["status"]) == ("execution", "SUCCESS")
    failed = guarded("--stream-json", "undo", "e-none")
    assert json.loads(failed.out.splitlines()[-1])["error"]["code"] == "unknown_id"


def test_log_says_that_there_is_more(guarded: Any) -> None:
    """A list that ends at its limit says how to see the rest; one that is whole does not."""
    for name in ("a", "b"):
        assert guarded.apply({"intent": name, "steps": [{"write": name, "content": name}]}).status == 0
    assert "holdfast log --limit 10" in guarded("log", "--limit", "1").err
    assert guarded("log", "--limit", "2").err == ""


def test_a_result_that_the_tables_lost_has_its_names(guarded: Any, write: Any) -> None:
    """Without steps, which only the tables had, an execution shows its ids, its consent and its lineage."""
    done = guarded("apply", write("intent: x\nsteps:\n  - write: a.txt\n    content: x\n"), "--yes", "--json").document
    for path in (guarded.directory / ".holdfast").glob("holdfast.db*"):
        path.unlink()
    shown = guarded("show", done["id"], "--json").document
    names = (
        "result_id",
        "intent_id",
        "plan_id",
        "simulation_id",
        "decision_id",
        "approval_ids",
        "user_approved",
        "lineage",
    )
    assert {name: shown[name] for name in names} == {name: done[name] for name in names}
    assert "steps" not in shown


def test_trace_tells_what_came_from_what(guarded: Any) -> None:
    """The lineage of an execution, in JSON and in words: the plan it goes back to, what it undoes, what undid it."""
    done = guarded.apply(change("a.txt", "x")).document
    undone = guarded("undo", done["id"], "--yes", "--json").document
    assert guarded("trace", undone["id"], "--json").document["lineage"] == {
        "correlation_id": done["plan_id"],
        "parent_execution": done["id"],
        "trigger_kind": "undo",
        "run_id": None,
        "ancestors": [done["id"]],
        "descendants": [],
        "siblings": [],
    }
    assert guarded("trace", done["id"], "--json").document["lineage"]["descendants"] == [undone["id"]]
    assert f"Came from  {done['id']}\n" in guarded("trace", undone["id"]).out
    assert f"Led to     {undone['id']}\n" in guarded("trace", done["id"]).out


def test_what_was_aborted_executed_no_step(guarded: Any, write: Any) -> None:
    """No step of an execution that a gate refused was executed, and so none failed."""
    file = write("intent: x\nsteps:\n  - write: a.txt\n    content: x\n  - delete: nothing\n")
    report = guarded("simulate", file, "--json").document["simulation"]
    assert guarded("execute", report["id"]).status == 5
    (row,) = guarded("log", "--json").document["items"]
    shown = guarded("show", row["id"], "--json").document
    assert (shown["status"], shown["steps_executed"], shown["steps_failed"]) == ("ABORTED", 0, 0)
