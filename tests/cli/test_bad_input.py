"""Bad input of every kind: a clear message, the documented exit status, and not one byte changed."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from typing import Any

import pytest

Tree = Callable[[], dict[str, Any]]


def steps(text: str) -> str:
    return f"intent: x\nsteps:\n  - {text}\n"


# name, change file, exit status, words of the message
BAD = [
    ("empty", "", 2, "empty"),
    ("broken_yaml", "intent: x\nsteps: [\n", 2, "change.yaml:"),
    ("broken_json", '{"intent": "x", "steps": [', 2, "change.yaml:1"),
    ("double_key", "intent: x\nintent: y\nsteps: []\n", 2, "change.yaml:2"),
    ("unknown_key", "intent: x\ncolour: red\nsteps:\n  - read: old.txt\n", 2, "colour"),
    ("unknown_step", steps('wriite: a\n    content: ""'), 2, 'did you mean "write"'),
    ("run_step", steps('run: ["false"]'), 5, "false exited with 1"),
    ("absolute", steps("delete: /etc/passwd"), 2, "absolute"),
    ("dot_dot", steps("delete: ../x"), 2, ".."),
    ("escape_inside", steps("delete: conf/../../x"), 2, ".."),
    ("state", steps("delete: .holdfast/format"), 2, "protected"),
    ("git", steps("write: .GIT/config\n    content: x"), 2, "protected"),
    ("nul", json.dumps({"intent": "x", "steps": [{"delete": "a\0b"}]}), 2, "NUL"),
    ("missing_file", steps("delete: nothing.txt"), 5, "does not exist"),
    ("missing_source", steps("write: a\n    content_from: nothing"), 2, "nothing"),
    ("wrong_old", steps('update: old.txt\n    old: "new"\n    content: x'), 5, "old content"),
    ("exists", steps("create: old.txt"), 5, "exists already"),
    ("through_link", steps("write: link/a\n    content: x"), 5, "symbolic link"),
    ("through_file", steps("write: old.txt/a\n    content: x"), 5, "old.txt"),
    ("fifo", steps("write: pipe\n    content: x"), 5, "FIFO"),
    ("hard_link", steps("write: linked\n    content: x"), 5, "hard links"),
    ("full_directory", steps("delete: conf"), 5, "recursive"),
    ("second_step", steps("write: a\n    content: x\n  - delete: nothing.txt"), 5, "step-2"),
]


@pytest.mark.parametrize(("text", "status", "words"), [pytest.param(*row[1:], id=row[0]) for row in BAD])
def test_a_bad_change_file_changes_nothing(
    guarded: Any, tree: Tree, write: Callable[[str], str], text: str, status: int, words: str
) -> None:
    """Each kind of bad change file is refused with its exit status and a message that names the trouble."""
    outside = guarded.directory.parent / "outside"
    outside.mkdir()
    os.symlink(outside, guarded.directory / "link")
    os.mkfifo(guarded.directory / "pipe")
    os.link(guarded.directory / "old.txt", guarded.directory / "linked")
    before = tree()
    done = guarded("apply", write(text), "--yes")
    assert (done.status, words in done.err) == (status, True), done
    assert "Nothing was changed." in done.err
    assert "Traceback" not in done.err
    assert tree() == before
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("file", ["nothing.yaml", ".", "pipe", "\udcff.yaml"])
def test_what_is_no_file_is_refused(guarded: Any, file: str) -> None:
    """A change file that is missing, a directory or a pipe is refused at once, not waited for."""
    os.mkfifo(guarded.directory / "pipe")
    done = guarded("apply", file, "--yes", "--json")
    assert done.status == 2
    assert done.document["error"]["code"] == "invalid_input"


def test_an_unreadable_file_is_refused(guarded: Any, tree: Tree) -> None:
    """A file that this user may not read cannot be compared and kept, so the change is refused with 5."""
    (guarded.directory / "old.txt").chmod(0)
    before = tree()
    change = json.dumps({"intent": "x", "steps": [{"write": "old.txt", "content": "new"}]})
    argv = [*_without_privileges(), sys.executable, "-m", "holdfast", "apply", "-", "--yes", "--json"]
    done = guarded.run(argv, stdin=change)
    assert done.status == 5, done
    assert "Permission denied" in done.document["error"]["message"]
    assert tree() == before


def _without_privileges() -> list[str]:
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root can read everything, and setpriv is not here to change that")
    # Root without its capabilities is an ordinary user where permissions are concerned.
    return ["setpriv", "--bounding-set=-all", "--inh-caps=-all"]


# arguments, words of the message
USAGE = [
    ((), "Usage"),
    (("statsu",), 'did you mean "status"'),
    (("frobnicate",), "unknown verb"),
    (("apply",), "FILE"),
    (("apply", "a", "b"), "unexpected"),
    (("log", "--limit", "none"), "none"),
    (("log", "--limit", "0"), "0"),
    (("log", "--bogus"), "--bogus"),
    (("--wait", "-1", "log"), "-1"),
    (("gc", "--keep-days", "-1"), "-1"),
    (("restore",), "--at"),
    (("restore", "--at", "sometime"), "not a moment"),
    (("restore", "--at", "2999-01-01"), "future"),
    (("restore", "--at", "e-none"), "e-none"),
    (("show", "e-none"), "e-none"),
    (("show", "../x"), "not an id"),
    (("undo", "e-none"), "e-none"),
    (("diff", "e-none"), "e-none"),
    (("audit",), "Usage"),
    (("-C", "nowhere", "log"), "nowhere"),
]


def test_bad_usage_is_2(guarded: Any) -> None:
    """A command line that makes no sense ends with 2 and a message on standard error that names the trouble."""
    for done, (words, message) in zip(guarded.batch([words for words, _ in USAGE]), USAGE, strict=True):
        assert (done.status, message in done.err, done.out) == (2, True, ""), (words, done)


def test_bad_usage_is_a_document_too(guarded: Any) -> None:
    """With --json, wherever it stands, a usage error is one document with a code, and nothing was changed."""
    lines = [[*words, "--json"] for words, _ in USAGE] + [["--json", *words] for words, _ in USAGE]
    for done, words in zip(guarded.batch(lines), lines, strict=True):
        error = done.document["error"]
        assert (done.status, error["changed"]) == (2, False), words
        assert error["code"] and error["message"]


def test_a_usage_error_ends_the_real_program_with_2(guarded: Any) -> None:
    """The exit status reaches the shell."""
    assert guarded.fresh("statsu").status == 2


def test_outside_a_workspace_every_verb_says_how_to_start(program: Any) -> None:
    """Without a workspace the message names `holdfast init`."""
    verbs = ["log"], ["status"], ["undo", "e-1"], ["recover"], ["gc"], ["audit", "verify"], ["diff", "e-1"]
    for done in program.batch([[*words, "--json"] for words in verbs]):
        assert (done.status, done.document["error"]["code"]) == (2, "not_a_workspace")
        assert "holdfast init" in done.document["error"]["hint"]
