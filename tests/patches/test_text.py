"""Every file in `cases/` has a twin that says what is read from it; a new case is two new files.

A twin with `message` is of a text that must be refused, at `line` where it is given.
Any other lists the files, optionally the `lines` of the first hunk and the lines of the text that were repaired.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidInput
from holdfast.model.patch import FilePatch, Patch, rendered
from holdfast.model.patch_text import MOST_BYTES, is_patch, parse

CASES = Path(__file__).parent / "cases"
EXPECTED: dict[str, dict[str, Any]] = {
    path.name.removesuffix(".expected.json"): json.loads(path.read_text("utf-8"))
    for path in sorted(CASES.glob("*.expected.json"))
}
REFUSED = [name for name, expected in EXPECTED.items() if "message" in expected]
READ = [name for name in EXPECTED if name not in REFUSED]


def text_of(name: str) -> bytes:
    return (CASES / f"{name}.patch").read_bytes()


def without_places(patch: Patch) -> tuple[FilePatch, ...]:
    """The files, without where in the text they stood."""
    return tuple(
        file._replace(at=0, hunks=tuple(hunk._replace(at=0) for hunk in file.hunks)) for file in patch.files
    )  # fmt: skip


def told(file: FilePatch) -> dict[str, object]:
    found: dict[str, object] = {"kind": file.kind, "path": file.path, "hunks": len(file.hunks)}
    if file.kind in ("rename", "copy"):
        found["old_path"] = file.old_path
    if (file.old_mode, file.new_mode) != (None, None):
        found["modes"] = [file.old_mode, file.new_mode]
    return found


def test_every_patch_has_its_twin() -> None:
    """No case is without an expectation."""
    assert {path.stem for path in CASES.glob("*.patch")} == set(EXPECTED)


@pytest.mark.parametrize("name", READ)
def test_a_patch_is_read_as_its_twin_says(name: str) -> None:
    """Files, kinds, modes, lines and repairs are exactly those that the twin lists."""
    expected, patch = EXPECTED[name], parse(text_of(name))
    assert [told(file) for file in patch.files] == expected["files"]
    assert [repair.line for repair in patch.repairs] == expected.get("repairs", [])
    if "lines" in expected:
        lines = patch.files[0].hunks[0].lines
        assert [line.sign + line.text.decode("latin-1") for line in lines] == expected["lines"]
    assert is_patch(text_of(name))


# A hunk without numbers has none to write.
@pytest.mark.parametrize("name", [name for name in READ if name != "counts_missing"])
def test_what_was_read_is_spelled_in_one_way(name: str) -> None:
    """The rendered patch reads as the same patch, needs no repair, and has the same digest."""
    patch = parse(text_of(name))
    again = parse(rendered(patch), strip=None)
    assert without_places(again) == without_places(patch)
    assert again.repairs == ()
    assert again.digest == patch.digest


@pytest.mark.parametrize("name", REFUSED)
def test_a_patch_that_cannot_be_used_is_refused_at_its_line(name: str) -> None:
    """The refusal is InvalidInput, exit 2, with the line at fault and a sentence."""
    expected = EXPECTED[name]
    with pytest.raises(InvalidInput) as caught:
        parse(text_of(name))
    assert expected["message"] in caught.value.message
    if "line" in expected:
        assert caught.value.message.startswith(f"line {expected['line']}: ")
    assert caught.value.exit_status == 2


def test_the_number_of_directories_can_be_given() -> None:
    """`strip` takes off as many directories as `patch -pN` would; too many are refused."""
    text = b"--- x/y/a.txt\n+++ x/y/a.txt\n@@ -1 +1 @@\n-a\n+b\n"
    assert parse(text).files[0].path == "x/y/a.txt"
    assert parse(text, strip=2).files[0].path == "a.txt"
    with pytest.raises(InvalidInput, match="no 3 directories"):
        parse(text, strip=3)


def test_a_patch_beyond_all_measure_is_refused() -> None:
    """There is a limit to what is read at all."""
    with pytest.raises(InvalidInput, match="larger than"):
        parse(b"+" * (MOST_BYTES + 1))


@pytest.mark.parametrize("text", [b"", b"intent: x\nsteps: []\n", b'{"steps": []}', b"---\nintent: x\n", b"--- a\n"])
def test_a_change_file_is_no_patch(text: bytes) -> None:
    """Change files, YAML document marks among them, are not taken for patches."""
    assert not is_patch(text)


def test_the_digest_is_of_what_the_patch_does() -> None:
    """Text around it and headings of hunks change nothing; a line, a path or a mode does."""
    plain = parse(text_of("git"))
    assert parse(b"Dear all,\n\n" + text_of("git")).digest == plain.digest
    assert parse(text_of("git").replace(b"@@ -1,3 +1,3 @@", b"@@ -1,3 +1,3 @@ def f():")).digest == plain.digest
    assert parse(text_of("git").replace(b"TWO", b"too")).digest != plain.digest
    assert parse(text_of("git").replace(b"a.txt", b"b.txt")).digest != plain.digest
