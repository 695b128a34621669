"""What holds for every patch: made, read, applied, taken back; and what git makes of the same."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidInput
from holdfast.model.patch import FilePatch, Patch, rendered, reverse
from holdfast.model.patch_apply import Applied, NotApplying, apply
from holdfast.model.patch_make import make
from holdfast.model.patch_rules import validate
from holdfast.model.patch_text import is_patch, parse

# Few different lines, so that places repeat; among them what looks like a header, a signature, an empty line.
LINES = st.sampled_from(
    [b"a", b"b", b"c", b"", b" ", b"-- ", b"--- a/x", b"+++ b/x", b"@@ -1 +1 @@", b"x\r", b"\\ No", b"\xff\xfe", b"```"]
)
TEXTS = st.builds(
    lambda lines, last: b"".join(line + b"\n" for line in lines) + last,
    st.lists(LINES, max_size=30),
    LINES | st.just(b""),
)
NAMES = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="\0/"), min_size=1, max_size=12
).filter(lambda name: name not in (".", ".."))  # fmt: skip
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
MODES = st.sampled_from([0o644, 0o755])
PIECES = st.sampled_from(
    [b"diff --git a/x b/x\n", b"--- a/x\n", b"+++ b/x\n", b"--- /dev/null\n", b"@@ -1,2 +1,2 @@\n", b"@@ -1 +1 @@ f\n",
     b"@@ @@\n", b" a\n", b"-a\n", b"+a\n", b"\n", b"\\ No newline\n", b"rename from x\n", b"rename to y\n", b"-- \n",
     b"old mode 100644\n", b"new mode 100755\n", b"new file mode 100644\n", b"GIT binary patch\n", b"```\n", b"text\n",
     b'+++ "b/\\303\\251"\n', b"\r\n", b"@@ -0,0 +1,3 @@\n", b"@@ -999999999,999999999 +1 @@\n", b"-x"]
)  # fmt: skip


def read_again(file: FilePatch) -> FilePatch:
    (found,) = parse(rendered(Patch((file,)))).files
    return found


def result(data: bytes, file: FilePatch) -> bytes:
    outcome = apply(data, file)
    assert isinstance(outcome, Applied), outcome
    return outcome.data


@given(TEXTS, TEXTS, PATHS, st.integers(0, 4))
def test_made_read_and_applied_it_gives_the_new_text(old: bytes, new: bytes, path: str, context: int) -> None:
    """For all texts and names: make, render, parse, apply is the new text, exactly in place; reversed, the old one."""
    assume(old != new)
    file = read_again(make(old, new, path, context=context))
    outcome = apply(old, file)
    assert isinstance(outcome, Applied) and outcome.exact
    assert outcome.data == new
    assert file.path == path
    (back,) = reverse(Patch((file,))).files
    assert result(new, back) == old
    assert result(new, read_again(back)) == old


@given(TEXTS, PATHS, MODES)
def test_creation_and_deletion_are_each_other_reversed(text: bytes, path: str, mode: int) -> None:
    """A created file's patch, reversed, deletes exactly that file, and the other way round."""
    made = read_again(make(None, text, path, new_mode=mode))
    assert (made.kind, result(b"", made)) == ("create", text)
    gone = read_again(reverse(Patch((made,))).files[0])
    assert (gone.kind, result(text, gone), gone.old_mode) == ("delete", b"", mode)


@given(TEXTS, TEXTS, PATHS, PATHS, MODES, MODES)
def test_a_renamed_file_comes_back_under_its_name(
    old: bytes, new: bytes, path: str, was: str, before: int, after: int
) -> None:
    """Names, modes and content of a renamed file are all taken back."""
    assume(path != was)
    file = read_again(make(old, new, path, old_path=was, old_mode=before, new_mode=after))
    assert (file.kind, file.old_path, file.new_path) == ("rename", was, path)
    back = read_again(reverse(Patch((file,))).files[0])
    assert (back.old_path, back.new_path, result(result(old, file), back)) == (path, was, old)
    assert (back.old_mode, back.new_mode) == (file.new_mode, file.old_mode)


@settings(max_examples=500)
@given(st.lists(PIECES, max_size=14).map(b"".join) | st.binary(max_size=200))
def test_reading_never_fails_but_by_refusing(data: bytes) -> None:
    """Whatever the bytes, there is a patch or InvalidInput; and a patch can be judged, applied and spelled."""
    is_patch(data)
    try:
        patch = parse(data)
    except InvalidInput:
        return
    validate(patch)
    assert len(patch.digest) == 64
    for file in patch.files:
        assert isinstance(apply(b"a\nb\n", file), Applied | NotApplying)
    if all(hunk.old_start >= 0 for file in patch.files for hunk in file.hunks):
        assert parse(rendered(patch)).digest == patch.digest


@given(TEXTS, TEXTS, TEXTS)
def test_what_is_applied_elsewhere_changes_only_its_lines(old: bytes, new: bytes, other: bytes) -> None:
    """Applied to a foreign text, the outcome has as many lines more as the patch adds; or there is no outcome."""
    file = make(old, new, "x")
    outcome = apply(other, file)
    if isinstance(outcome, Applied):
        added = sum((line.sign == "+") - (line.sign == "-") for hunk in file.hunks for line in hunk.lines)
        assert _lines(outcome.data) - _lines(other) == added


def _lines(data: bytes) -> int:
    return data.count(b"\n") + (not data.endswith(b"\n") and bool(data))


# ── git as the judge ──


def by_git(directory: Path, data: bytes, patch: bytes, *options: str) -> bytes | None:
    """What git makes of it, or None where git refuses."""
    (directory / "x").write_bytes(data)
    ran = subprocess.run(
        ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", *options, "-"],
        cwd=directory, input=patch, capture_output=True, check=False,
    )  # fmt: skip
    return (directory / "x").read_bytes() if ran.returncode == 0 and (directory / "x").exists() else None


@settings(max_examples=60)
@given(st.data())
def test_git_applies_what_we_make(data: st.DataObject) -> None:
    """git reads every patch we make, and comes to the same bytes."""
    old, new = data.draw(TEXTS), data.draw(TEXTS)
    assume(old and new and old != new)
    with tempfile.TemporaryDirectory() as name:
        assert by_git(Path(name), old, rendered(Patch((make(old, new, "x"),)))) == new


@settings(max_examples=60)
@given(st.data())
def test_a_moved_place_is_where_git_finds_it(data: st.DataObject) -> None:
    """Where lines were put in or taken out elsewhere, and no line is there twice, git finds the same place."""
    numbers = data.draw(st.lists(st.integers(0, 999), min_size=12, max_size=40, unique=True))
    old = [b"%d\n" % number for number in numbers]
    # From 4: a hunk that begins with the file must begin with it, says git; we and patch(1) look further.
    at = data.draw(st.integers(4, len(old) - 4))
    new = [*old[:at], *data.draw(st.lists(st.sampled_from([b"p\n", b"q\n"]), max_size=3)), *old[at + 1 :]]
    above = [b"above %d\n" % n for n in range(data.draw(st.integers(0, 9)))]
    below = [b"below %d\n" % n for n in range(data.draw(st.integers(0, 9)))]
    gone = data.draw(st.integers(0, at - 4))
    file = make(b"".join(old), b"".join(new), "x")
    moved = b"".join([*above, *old[gone:], *below])
    outcome = apply(moved, file)
    with tempfile.TemporaryDirectory() as name:
        theirs = by_git(Path(name), moved, rendered(Patch((file,))))
    assert isinstance(outcome, Applied)
    assert outcome.data == theirs
    assert outcome.hunks[0].offset == len(above) - gone
    assert outcome.hunks[0].fuzz == 0


@settings(max_examples=100)
@given(st.data())
def test_where_we_find_a_place_git_finds_no_other(data: st.DataObject) -> None:
    """In texts full of repetition we may refuse what git applies; what both apply without fuzz is the same."""
    few = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\n", b"d\n"]), min_size=4, max_size=12)
    old, new = data.draw(few), data.draw(few)
    assume(old != new)
    file = make(b"".join(old), b"".join(new), "x", context=data.draw(st.integers(1, 3)))
    other = b"".join([*data.draw(few)[4:], *old, *data.draw(few)[4:]])
    outcome = apply(other, file, fuzz=0)
    if not isinstance(outcome, Applied):
        return
    with tempfile.TemporaryDirectory() as name:
        theirs = by_git(Path(name), other, rendered(Patch((file,))))
    assert theirs in (None, outcome.data)


CHANGES = [
    ({"a": b"1\n2\n3\n"}, {"a": b"1\n3\n", "d/new": b"x"}),
    ({"a": b"1\n" * 9, "b b": b"x\n"}, {"c": b"1\n" * 9, "b b": b"x\ny"}),
    ({"a": b"", "b": b"x\r\ny\r\n"}, {"b": b"x\r\nY\r\n", "é\t\"q": b"z\n"}),
    ({"d/a": b"one\ntwo\nthree\nfour\nfive\n"}, {"e/f/a": b"one\ntwo\nthree\nfour\nFIVE\n"}),
]  # fmt: skip


@pytest.mark.parametrize("options", [(), ("--no-prefix",), ("-M",), ("-U0",), ("--src-prefix=i/", "--dst-prefix=w/")])
@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_what_git_writes_is_read(
    before: dict[str, bytes], after: dict[str, bytes], options: tuple[str, ...], tmp_path: Path
) -> None:
    """git's own diffs, with every prefix and with renames, lead from the one tree to the other, and back."""
    for files in (before, after):
        for path in [path for path in tmp_path.rglob("*") if path.is_file() and ".git" not in path.parts]:
            path.unlink()
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
        if files is before:
            subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
        subprocess.run(["git", "add", "-A"], cwd=tmp_path, check=True)
        if files is before:
            subprocess.run(["git", "commit", "-qm", "x"], cwd=tmp_path, check=True)
    command = ["git", "diff", "--cached", *options]
    patch = parse(subprocess.run(command, cwd=tmp_path, check=True, capture_output=True).stdout)
    assert patch.repairs == ()
    assert after_patch(before, patch) == after
    assert after_patch(after, reverse(patch)) == before


def after_patch(tree: dict[str, bytes], patch: Patch) -> dict[str, bytes]:
    left = {name: data for name, data in tree.items() if name not in {file.old_path for file in patch.files}}
    for file in patch.files:
        new = result(tree[file.old_path] if file.old_path is not None else b"", file)
        if file.new_path is not None:
            left[file.new_path] = new
    return left
