"""Patches and repairs from the command line: apply, plan, patches, fix."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import holdfast
from delegated import FILES, FIXED, PYTHON, configured
from guarded import fill

PATCH = """\
From: somebody
Subject: Another port

--- a/conf/site.conf
+++ b/conf/site.conf
@@ -1,3 +1,3 @@
-port = 80
+port = 8080
 host = a
 name = b
"""
STALE = PATCH.replace("port = 80\n", "port = 81\n")
OUTSIDE = "--- /dev/null\n+++ b/../out\n@@ -0,0 +1 @@\n+x\n"


def ids(ran: Any) -> list[str]:
    return [item["id"] for item in ran.document["items"]]


def test_a_patch_is_applied_listed_and_reversed(guarded: Any, tmp_path: Path) -> None:
    """`apply` takes a patch by its content, `patches` tells where it stands, `--reverse` takes it back."""
    file = tmp_path / "any.name"
    file.write_text(PATCH)
    done = guarded.fresh("apply", str(file), "--yes", "--json")
    assert (done.status, done.document["status"]) == (0, "SUCCESS")
    conf = guarded.directory / "conf/site.conf"
    assert conf.read_text().startswith("port = 8080\n")
    again = guarded("apply", str(file), "--yes", "--json")
    assert again.document["already_applied"] is True
    (item,) = guarded.fresh("patches", "--json").document["items"]
    assert (item["status"], item["execution"]) == ("COMMITTED", done.document["id"])
    elsewhere = guarded("evaluate", item["id"], "--json")
    assert (elsewhere.status, "holdfast patches show" in elsewhere.document["error"]["hint"]) == (2, True)
    for words in (("patches", "show"), ("show",)):
        shown = guarded(*words, item["id"][:6])
        assert "+port = 8080" in shown.out
        assert "committed" in shown.out
    assert guarded("apply", str(file), "--reverse", "--yes").status == 0
    assert conf.read_text().startswith("port = 80\n")


def test_an_edited_ledger_of_patches_can_be_put_away(guarded: Any, tmp_path: Path) -> None:
    """Exit 12 with the line; the way out that is told works, and nothing else is forgotten by it."""
    (tmp_path / "fix.patch").write_text(PATCH)
    assert guarded("apply", str(tmp_path / "fix.patch"), "--yes").status == 0
    state = guarded.directory / ".holdfast"
    ledger = state / "patch_ledger.jsonl"
    lines = ledger.read_bytes().splitlines(keepends=True)
    ledger.write_bytes(b"".join([lines[0], lines[1].replace(b"fix.patch", b"another.patch"), *lines[2:]]))
    told = guarded.fresh("patches")
    assert (told.status, "does not hold line 2" in told.err) == (12, True)
    for name in ("patch_ledger.jsonl", "holdfast.db"):
        assert name in told.err
        (state / name).rename(tmp_path / name)
    assert guarded.fresh("patches").status == 0
    assert guarded.fresh("patches", "--json").document["items"] == []
    assert len(guarded.fresh("log", "--json").document["items"]) == 1


@pytest.mark.parametrize("id", ["x-nope", "nope"])
@pytest.mark.parametrize("action", ["show", "release", "drop"])
def test_a_patch_that_is_not_known_is_looked_for_among_patches(guarded: Any, action: str, id: str) -> None:
    """The hint names the list that has patches, which the log has not."""
    done = guarded("patches", action, id, "--yes", "--json")
    assert (done.status, done.document["error"]["hint"]) == (2, "List them with: holdfast patches")
    assert "holdfast patches" in guarded("show", "x-nope").err


def test_a_patch_comes_on_standard_input_and_so_does_a_change_file(guarded: Any) -> None:
    """`-` is read once, and is what it is."""
    assert guarded("apply", "-", "--yes", stdin=PATCH).status == 0
    change = json.dumps({"intent": "x", "steps": [{"write": "n.txt", "content": "--- a\n+++ b\n@@ -1 +1 @@\n"}]})
    assert guarded("apply", "-", "--yes", stdin=change).status == 0
    yaml = "intent: y\nsteps:\n  - write: m.txt\n    content: |\n      --- a\n      +++ b\n      @@ -1 +1 @@\n"
    assert guarded("apply", "-", "--yes", stdin=yaml).status == 0
    assert (guarded.directory / "m.txt").read_text() == "--- a\n+++ b\n@@ -1 +1 @@\n"
    assert len(ids(guarded("patches", "--json"))) == 1


def test_plan_simulate_execute_carry_a_patch_along(guarded: Any, tmp_path: Path) -> None:
    """Stage by stage, with the plan's id: the patch is queued by the plan, and committed at the end."""
    (tmp_path / "fix.patch").write_text(PATCH)
    plan = guarded("plan", str(tmp_path / "fix.patch"), "--json").document["id"]
    (item,) = guarded("patches", "--json").document["items"]
    assert item["status"] == "QUEUED"
    simulation = guarded("simulate", plan, "--json").document["id"]
    assert guarded("approve", simulation).status == 0
    assert guarded("execute", simulation).status == 0
    (item,) = guarded("patches", "--json").document["items"]
    assert item["status"] == "COMMITTED"


def test_a_preview_of_a_patch_changes_nothing_and_wants_nothing(guarded: Any, tree: Any) -> None:
    """It is validated and shown; nobody wants it applied yet."""
    before = tree()
    assert guarded("apply", "-", "--preview", stdin=PATCH).status == 0
    assert tree() == before
    (item,) = guarded("patches", "--json").document["items"]
    assert item["status"] == "VALIDATED"


def test_quarantine_and_the_way_out(guarded: Any, tree: Any) -> None:
    """Three failures, exit 4 with the way out, a release with consent and this user's name, and it is tried again."""
    before = tree()
    statuses = [guarded("apply", "-", "--yes", stdin=STALE).status for _ in range(4)]
    assert statuses == [5, 5, 5, 4]
    assert tree() == before
    denied = guarded("apply", "-", "--yes", "--json", stdin=STALE)
    (patch,) = ids(guarded("patches", "--json"))
    assert f"holdfast patches release {patch}" in denied.document["error"]["hint"]
    unasked = guarded("patches", "release", patch, "--json")
    assert (unasked.status, unasked.document["error"]["code"]) == (3, "approval_needed")
    released = guarded.fresh("patches", "release", patch, "--yes", "--reason", "looked at", "--json").document
    assert (released["status"], released["reason"]) == ("CREATED", "looked at")
    assert released["by"]
    assert guarded("apply", "-", "--yes", stdin=STALE).status == 5
    assert guarded("patches", "drop", patch, "--yes").status == 0
    assert guarded("apply", "-", "--yes", stdin=STALE).status == 4


def test_an_agent_at_the_keyboard_releases_nothing(guarded: Any) -> None:
    """Where this user goes by an agent's name, the answer is exit 4."""
    configured('[me]\nname = "mine"\n\n[agents.mine]\ncommand = ["/usr/bin/true"]\n')
    assert guarded("apply", "-", "--yes", stdin=OUTSIDE).status == 4
    (patch,) = ids(guarded("patches", "--json"))
    refused = guarded("patches", "release", patch, "--yes", "--json")
    assert (refused.status, refused.document["error"]["code"]) == (4, "denied")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (("patches", "list", "x-1"), 2),
        (("patches", "show"), 2),
        (("patches", "release"), 2),
        (("patches", "show", "x-nothing"), 2),
        (("patches", "burn"), 2),
        (("apply", "-", "--reverse"), 2),
        (("apply", "make a directory b", "--reverse"), 2),
        (("apply", "make b", "--agent", "mine", "--unverified", "x"), 2),
        (("plan", "make a directory b", "--reverse"), 2),
        (("fix",), 2),
        (("fix", "--agent", "nobody", "--expect", "a"), 2),
    ],
)
def test_what_makes_no_sense_is_refused(guarded: Any, words: tuple[str, ...], status: int) -> None:
    """Missing ids, unknown actions, options of patches on what is none: exit 2, nothing changed."""
    ran = guarded(*words, "--json", stdin="intent: x\nsteps: [{create: a/}]\n")
    assert (ran.status, ran.document["error"]["changed"]) == (status, False)


# ── fix ──

REPAIR = "import pathlib; p = pathlib.Path('app.py'); p.write_text(p.read_text().replace('41', '42'))"
# Its tests cannot run: what they need is not installed.
UNINSTALLED = b'{"scripts": {"test": "jest"}, "devDependencies": {"jest": "1"}}'


def prepared(program: Any, files: Mapping[str, bytes]) -> Any:
    """The program in a guarded project, and an agent `mine` that repairs what `FILES` has broken."""
    fill(program.directory, files)
    holdfast.init(str(program.directory))
    configured(f'[agents.mine]\ncommand = ["{PYTHON}", "-c", "{REPAIR}"]\n')
    return program


@pytest.fixture
def broken(program: Any) -> Any:
    """A project whose one test fails."""
    return prepared(program, FILES)


def test_fix_repairs_records_and_can_be_undone(broken: Any, tree: Any) -> None:
    """One command: checks, agent, proof, consent, landing; the patch is committed, and undo takes it all back."""
    before = tree()
    ran = broken.fresh("fix", "--agent", "mine", "--attempts", "1", "--yes")
    assert ran.status == 0, ran
    assert "Broken: " in ran.out
    assert "fails without the fix" in ran.out
    assert (broken.directory / "app.py").read_bytes() == FIXED
    (item,) = broken("patches", "--json").document["items"]
    assert item["status"] == "COMMITTED"
    assert broken("fix", "--agent", "mine", "--json").document["status"] == "NOTHING_BROKEN"
    assert broken("undo", item["execution"], "--yes").status == 0
    assert tree() == before
    (total,) = broken("fix", "--past", "--json").document["items"]
    assert (total["category"], total["attempts"], total["fixed"], total["rolled_back"]) == ("test", 1, 0, 1)
    plan = broken("show", item["execution"], "--json").document["plan_id"]
    kinds = [link["kind"] for link in broken("trace", plan, "--json").document["items"]]
    assert kinds[:2] == ["delegation", "fix"]
    assert "good, attempt 1 by mine at test" in broken("trace", plan).out


def test_fix_without_consent_lands_nothing(broken: Any, tree: Any) -> None:
    """Nobody to ask and no --yes: exit 3, the work is kept for approval, the patch stays queued."""
    before = tree()
    ran = broken("fix", "--agent", "mine", "--attempts", "1", "--json")
    assert ran.status == 3
    assert tree() == before
    (item,) = broken("patches", "--json").document["items"]
    assert item["status"] == "QUEUED"


def test_fix_by_an_agent_that_removes_the_test_is_refused(broken: Any, tree: Any) -> None:
    """Exit 6, with what was seen; nothing lands."""
    cheat = "import os; os.remove('tests/test_app.py'); open('n.txt', 'w').write('x')"
    configured(f'[agents.mine]\ncommand = ["{PYTHON}", "-c", "{cheat}"]\n')
    before = tree()
    ran = broken("fix", "--agent", "mine", "--attempts", "1", "--yes", "--json")
    assert ran.status == 6
    assert "removes tests/test_app.py" in ran.document["error"]["message"]
    assert tree() == before


def test_fix_says_what_did_not_run(program: Any) -> None:
    """Where a check could not run, not every check passes: the answer names it and why, in words and JSON."""
    prepared(program, {**FILES, "app.py": FIXED, "web/package.json": UNINSTALLED})
    ran = program("fix", "--agent", "mine")
    assert (ran.status, "Every check passes" in ran.out) == (0, False), ran
    said, _, named = ran.out.partition("\n")
    assert said == "Every check that could run passes. Not run:"
    assert named.startswith("  ! ") and "node_modules" in named
    document = program("fix", "--agent", "mine", "--json").document
    assert document["status"] == "NOTHING_BROKEN"
    assert ["node_modules" in line for line in document["not_run"]] == [True]


def test_fix_where_no_check_could_run_repairs_nothing(program: Any) -> None:
    """Exit 5, with why; nothing is told to pass."""
    prepared(program, {"package.json": UNINSTALLED})
    ran = program("fix", "--agent", "mine")
    assert (ran.status, "no check could run here" in ran.err) == (5, True), ran
    assert "passes" not in ran.out + ran.err


def test_diff_of_a_patch_is_a_preview_that_leaves_nothing(guarded: Any, tmp_path: Path, tree: Any) -> None:
    """The same lines as the patch has, from a file and from standard input; nothing changes, no patch is kept."""
    file = tmp_path / "fix.patch"
    file.write_text(PATCH)
    before = tree()
    done = guarded.fresh("diff", str(file))
    assert done.status == 0, done.err
    assert [line for line in done.out.splitlines() if "port" in line] == ["-port = 80", "+port = 8080"]
    document = guarded("diff", "-", "--json", stdin=PATCH).document
    assert (document["kind"], document["status"]) == ("diff", "REHEARSED")
    assert [change["path"] for change in document["changes"]] == ["conf/site.conf"]
    assert tree() == before
    assert ids(guarded("patches", "--json")) == []
    assert guarded("apply", str(file), "--yes").status == 0
    back = guarded("diff", str(file), "--reverse")
    assert [line for line in back.out.splitlines() if "port" in line] == ["-port = 8080", "+port = 80"]


@pytest.mark.parametrize(("text", "status"), [(STALE, 5), (OUTSIDE, 4), (PATCH + "@@ -9 +9,\n", 2)])
def test_diff_refuses_a_patch_as_apply_does(guarded: Any, tmp_path: Path, tree: Any, text: str, status: int) -> None:
    """One that does not apply, leads outside or is damaged: the same exit code, and nothing is held against it."""
    file = tmp_path / "bad.patch"
    file.write_text(text)
    before = tree()
    assert guarded("diff", str(file)).status == status
    assert (ids(guarded("patches", "--json")), tree()) == ([], before)
    assert guarded("apply", str(file), "--yes").status == status


def test_diff_takes_an_option_of_patches_for_patches_only(guarded: Any, tmp_path: Path) -> None:
    """--reverse of a change file or of something that happened is refused, exit 2."""
    file = tmp_path / "change.yaml"
    file.write_text("intent: x\nsteps:\n  - write: n.txt\n    content: x\n")
    assert guarded("diff", str(file), "--reverse").status == 2
    id = guarded("apply", str(file), "--yes", "--json").document["id"]
    assert guarded("diff", id, "--reverse").status == 2
    assert guarded("diff", id).status == 0


MOVED = PATCH.replace("@@ -1,3 +1,3 @@", "@@ -4,3 +4,3 @@")
MOVED_NOTE = "conf/site.conf: hunk 1 applies at line 1, 3 lines further up"


def test_a_hunk_that_applies_elsewhere_is_shown_wherever_the_change_is(guarded: Any, tmp_path: Path) -> None:
    """Preview, diff, the output of `apply`, and each stage until the approval say it, in words and JSON."""
    (tmp_path / "moved.patch").write_text(MOVED)
    file = str(tmp_path / "moved.patch")
    plan = guarded("plan", file, "--json").document["id"]
    simulation = guarded("simulate", plan, "--json").document
    assert simulation["notes"] == [MOVED_NOTE]
    for words in (
        ("apply", file, "--preview"),
        ("diff", file),
        ("diff", simulation["id"]),
        ("show", plan),
        ("show", simulation["id"]),
        ("simulate", plan),
        ("approve", simulation["id"]),
    ):
        assert f"  ! {MOVED_NOTE}\n" in guarded(*words).out, words
    for words in (("apply", file, "--preview"), ("diff", file)):
        assert guarded(*words, "--json").document["notes"] == [MOVED_NOTE]
    assert f"  ! {MOVED_NOTE}\n" in guarded("apply", file, "--yes").out


def test_a_hunk_with_less_context_is_shown(guarded: Any, tmp_path: Path) -> None:
    """A context line that is not there is ignored, and said."""
    (tmp_path / "fuzz.patch").write_text(PATCH.replace(" name = b\n", " name = other\n"))
    shown = guarded("diff", str(tmp_path / "fuzz.patch")).out
    assert "  ! conf/site.conf: hunk 1 applies at line 1, with 1 context line ignored at each end\n" in shown
