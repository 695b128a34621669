"""Patches on the ordinary road: planned, simulated, gated, landed, undone; and git's opinion of the outcome."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from guarded import ME, Ground, contents, guard, tree_of
from holdfast.engine.patches import is_patch, plan_of_patch, scope_of
from holdfast.errors import Blocked, InvalidInput, InvalidPath
from holdfast.model.patch import FilePatch, Patch, rendered
from holdfast.model.patch_make import make
from holdfast.model.patch_rules import GRAVE, Objection, Scope, validate
from holdfast.model.patch_text import parse
from holdfast.model.plan import Plan

FILES = {
    "a.txt": b"one\ntwo\nthree\n",
    "d/b.txt": b"".join(b"%d\n" % n for n in range(30)),
    "gone.txt": b"x\n",
    "run.sh": b"#!/bin/sh\n",
    "empty": b"",
}
NEW_B = FILES["d/b.txt"].replace(b"4\n", b"four\n", 1).replace(b"25\n", b"")
PATCH = Patch(
    (
        make(FILES["a.txt"], b"one\nTWO\nthree", "a.txt"),
        make(FILES["d/b.txt"], NEW_B, "e/c.txt", old_path="d/b.txt"),
        make(FILES["gone.txt"], None, "gone.txt"),
        make(None, b"fresh\n", "new/deep/f.txt", new_mode=0o755),
        make(None, b"", "new/empty"),
        FilePatch("run.sh", "run.sh", (), 0o644, 0o755),
        FilePatch("a.txt", "copy.txt", (), copied=True),
        make(b"", None, "empty"),
    )
)
AFTER = {
    "a.txt": b"one\nTWO\nthree",
    "e/c.txt": NEW_B,
    "new/deep/f.txt": b"fresh\n",
    "new/empty": b"",
    "run.sh": FILES["run.sh"],
    "copy.txt": FILES["a.txt"],
}


def planned(ground: Ground, patch: Patch) -> Plan:
    return plan_of_patch(ground.hf.site, patch, "apply a patch")


def landed(ground: Ground, patch: Patch) -> str:
    return ground.ready(planned(ground, patch)).execute().id


def test_every_kind_of_change_lands_and_is_undone(tmp_path: Path) -> None:
    """Changes, renames, copies, creations, deletions and modes land together, and undo gives back the very tree."""
    ground = guard(tmp_path / "w", FILES)
    before = ground.tree()
    execution = landed(ground, PATCH)
    after = ground.tree()
    assert contents(after) == AFTER
    assert (after["run.sh"].mode, after["new/deep/f.txt"].mode) == (0o755, 0o755)
    ground.hf.undo(execution, approved_by=ME)
    assert ground.tree() == before


def test_git_comes_to_the_same_files(tmp_path: Path) -> None:
    """The same patch, applied by git to a copy, gives the same contents and the same executable files."""
    ground = guard(tmp_path / "w", FILES)
    shutil.copytree(tmp_path / "w", tmp_path / "g", ignore=shutil.ignore_patterns(".holdfast"))
    subprocess.run(["git", "apply", "-"], cwd=tmp_path / "g", input=rendered(PATCH), check=True)
    landed(ground, PATCH)
    ours, found = ground.tree(), tree_of(tmp_path / "g")
    assert contents(ours) == contents(found)
    assert {path for path, thing in ours.items() if thing.kind == "file" and thing.mode & 0o100} == {
        path for path, thing in found.items() if thing.kind == "file" and thing.mode & 0o100
    }


def test_names_may_change_hands(tmp_path: Path) -> None:
    """In a chain of renames every file gets its name, in whatever order the patch tells it."""
    ground = guard(tmp_path / "w", {"a": b"A\n", "b": b"B\n"})
    landed(ground, Patch((FilePatch("a", "b"), FilePatch("b", "c"))))
    assert contents(ground.tree()) == {"b": b"A\n", "c": b"B\n"}


def test_a_circle_of_renames_is_refused(tmp_path: Path) -> None:
    """Two files that exchange their names have no order of steps; nothing is planned."""
    ground = guard(tmp_path / "w", {"a": b"A\n", "b": b"B\n"})
    with pytest.raises(Blocked, match="exists already"):
        planned(ground, Patch((FilePatch("a", "b"), FilePatch("b", "a"))))


def test_a_file_may_be_replaced_by_a_renamed_one(tmp_path: Path) -> None:
    """A deletion frees the name for what comes, also where it is told later."""
    ground = guard(tmp_path / "w", {"a": b"A\n", "b": b"B\n"})
    landed(ground, Patch((FilePatch("a", "b"), make(b"B\n", None, "b"))))
    assert contents(ground.tree()) == {"b": b"A\n"}


def test_every_reason_is_told_and_nothing_planned(tmp_path: Path) -> None:
    """All files that do not apply are named, with hunk and line."""
    ground = guard(tmp_path / "w", {"a.txt": b"other\n", "e/c.txt": b"in the way\n"})
    with pytest.raises(Blocked) as caught:
        planned(ground, PATCH)
    message = caught.value.message
    assert "a.txt: hunk 1" in message
    assert "d/b.txt: it is not there" in message
    assert "gone.txt: it is not there" in message


def test_a_new_file_does_not_replace_one(tmp_path: Path) -> None:
    """What the patch creates must not exist."""
    ground = guard(tmp_path / "w", {"n": b"mine\n"})
    with pytest.raises(Blocked, match="exists already: n"):
        planned(ground, Patch((make(None, b"theirs\n", "n"),)))


def test_what_moved_after_the_plan_blocks_the_simulation(tmp_path: Path) -> None:
    """Old contents are part of the plan: a file changed since, deleted ones too, is not overwritten."""
    for patch in (make(b"x\n", None, "f"), make(b"x\n", b"y\n", "f"), FilePatch("f", "g", copied=True)):
        ground = guard(tmp_path / patch.kind, {"f": b"x\n"})
        plan = planned(ground, Patch((patch,)))
        (ground / "f").write_bytes(b"somebody else\n")
        with pytest.raises(Blocked, match="old content"):
            ground.hf.simulate(plan)
    ground = guard(tmp_path / "new", {})
    plan = planned(ground, Patch((make(None, b"x\n", "f"),)))
    (ground / "f").write_bytes(b"somebody else\n")
    with pytest.raises(Blocked, match="exists already"):
        ground.hf.simulate(plan)


def test_what_was_repaired_or_moved_is_in_the_plan(tmp_path: Path) -> None:
    """The notes name repairs of the text, distances and ignored context, so that they can be approved."""
    ground = guard(tmp_path / "w", {"a": b"0\n0\n1\n2\n3\n4\n5\n6\nx\n"})
    text = b"--- a/a\n+++ b/a\n@@ -1,9 +1,9 @@\n 1\n 2\n 3\n-4\n+four\n 5\n 6\n 7\n"
    assert planned(ground, parse(text)).notes == (
        "line 3 of the patch: the hunk says 9 old and 9 new lines; it has 7 and 7",
        "a: hunk 1 applies at line 3, 2 lines further down, with 1 context line ignored at each end",
    )


@pytest.mark.parametrize(
    "path", ["../x", "/etc/x", ".git/config", ".holdfast/format", "a/../../x", ".GIT/hooks/x", "a/"]
)
def test_no_patch_leaves_the_workspace_or_reaches_our_state(path: str, tmp_path: Path) -> None:
    """Such paths are refused before anything is looked at, on either side of a rename."""
    ground = guard(tmp_path / "w", {"a": b"x\n"})
    for file in (make(None, b"x\n", path), make(b"x\n", None, path), FilePatch("a", path), FilePatch(path, "a")):
        assert {one.ground for one in validate(Patch((file,)))} == {"path"}
        with pytest.raises(InvalidInput):
            planned(ground, Patch((file,)))


def test_links_and_directories_are_not_patched(tmp_path: Path) -> None:
    """A symbolic link on the way, at the end, or a directory in place of a file blocks the plan."""
    ground = guard(tmp_path / "w", {"d/f": b"x\n"})
    os.symlink("d", ground / "link")
    os.symlink("d/f", ground / "file-link")
    for path in ("link/f", "file-link", "d"):
        with pytest.raises(Blocked):
            planned(ground, Patch((make(b"x\n", b"y\n", path),)))


def test_a_patch_that_changes_nothing_is_no_plan(tmp_path: Path) -> None:
    """A header without hunk or mode gives no steps, and that is said."""
    ground = guard(tmp_path / "w", {"a": b"x\n"})
    with pytest.raises(Blocked, match="changes nothing"):
        planned(ground, Patch((FilePatch("a", "a"),)))


def test_the_mode_follows_who_may_read(tmp_path: Path) -> None:
    """Executable means executable by those who can read; everything else of the mode stays."""
    ground = guard(tmp_path / "w", {"a": b"x\n"})
    (ground / "a").chmod(0o640)
    landed(ground, Patch((FilePatch("a", "a", (), 0o644, 0o755),)))
    assert ground.tree()["a"].mode == 0o750


# ── scope ──


def grounds(patch: Patch, scope: Scope) -> list[str]:
    return [one.ground for one in validate(patch, scope)]


def test_patterns_of_policies_limit_a_patch() -> None:
    """What is allowed and forbidden is spelled as in policies; the old name of a rename counts too."""
    scope = scope_of(["src/**"], ["src/secret/**"])
    assert grounds(Patch((make(b"a\n", b"b\n", "src/x.py"),)), scope) == []
    assert grounds(Patch((make(b"a\n", b"b\n", "docs/x.md"),)), scope) == ["scope"]
    assert grounds(Patch((FilePatch("src/secret/k", "src/k"),)), scope) == ["forbidden"]
    assert grounds(Patch((FilePatch("docs/k", "src/k"),)), scope) == ["scope"]
    assert "forbidden" in GRAVE


def test_kinds_and_amounts_can_be_forbidden() -> None:
    """Creation, deletion, renaming, modes, binary content and sheer amount each have a limit."""
    big = make(b"", b"x\n" * 11, "big")
    patch = Patch(
        (
            make(None, b"x\n", "n"),
            make(b"x\n", None, "o"),
            FilePatch("p", "q"),
            FilePatch("r", "r", (), 0o644, 0o755),
            big,
        )
    )
    scope = Scope(most_files=4, most_lines=10, may_create=False, may_delete=False, may_rename=False,
                  may_change_modes=False)  # fmt: skip
    assert grounds(patch, scope) == ["limit", "limit", "kind", "kind", "kind", "mode"]
    assert grounds(patch, Scope()) == []
    binary = parse(b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+\0\n")
    assert grounds(binary, Scope()) == ["binary"]


def test_an_executable_creation_is_a_mode() -> None:
    """Where modes must not change, no executable file may be created either."""
    patch = Patch((make(None, b"x\n", "n", new_mode=0o755),))
    assert grounds(patch, Scope(may_change_modes=False)) == ["mode"]


def test_a_file_told_twice_is_refused(tmp_path: Path) -> None:
    """The fate of a file does not depend on the order of the patch."""
    twice = make(b"a\n", b"b\n", "x")
    assert grounds(Patch((twice, twice)), Scope()) == ["twice"]
    with pytest.raises(InvalidInput, match="twice"):
        planned(guard(tmp_path / "w", {"x": b"a\n"}), Patch((twice, twice)))


def test_an_objection_reads_as_a_sentence_with_its_place() -> None:
    """Line, path, reason: as errors in change files do."""
    text = b"text\n--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n"
    (objection,) = validate(parse(text))
    assert objection == Objection("path", "../x", 2, ".. is not allowed in a path")
    assert str(objection) == "line 2: ../x: .. is not allowed in a path"
    assert issubclass(InvalidPath, InvalidInput)


def test_a_patch_is_recognised() -> None:
    """The face that reads files can tell patches from change files."""
    assert is_patch(b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n")
    assert not is_patch(b"intent: x\n")
