"""Data files are parsed and relative imports followed without starting anything, whatever is in them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checks.plainfiles import expected_files, parsed_files, resolved_imports
from holdfast.checks.tree import Tree


def tree_of(files: dict[str, bytes]) -> Tree:
    def names(directory: str) -> frozenset[str]:
        prefix = f"{directory}/" if directory else ""
        below = [path.removeprefix(prefix) for path in files if path.startswith(prefix)]
        return frozenset(path.partition("/")[0] + ("/" if "/" in path else "") for path in below)

    return Tree(names, files.__getitem__)


def _complaints(name: str, data: bytes) -> tuple[str, ...]:
    return parsed_files(tree_of({name: data}), [name]).complaints


@pytest.mark.parametrize(
    ("name", "data", "complaint"),
    [
        ("a.json", b'{"a": [1, 2]}', ""),
        ("a.json", b'{"a": [1, 2}', "line 1"),
        ("a.json", b"\xff\xfe\xfd", "not JSON"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.json", b"9" * 10_000, "not JSON"),
        ("a.toml", b"a = 1\n[b]\n", ""),
        ("a.toml", b"a = \n", "not TOML"),
        ("a.toml", b"a = " + b"[" * 50_000, "not TOML"),
        ("a.yaml", b"a: [1, 2]\n---\nb: !Ref x\n", ""),
        ("a.yml", b"a: [1, 2\n", "not YAML: line"),
        ("a.yaml", b"\tb: 1", "not YAML"),
        ("a.yaml", b"- " * 50_000, "nested too deeply"),
        ("a.yaml", b"[" * 4_000_000, "nested too deeply"),
        ("README.md", b"{", ""),
    ],
)
def test_data_files_are_parsed(name: str, data: bytes, complaint: str) -> None:
    """A wrong file is named with the line where it can be; a right one is not complained about."""
    complaints = _complaints(name, data)
    assert len(complaints) == bool(complaint)
    assert complaint in "".join(complaints)


@pytest.mark.parametrize(
    "name", ["tests/fixtures/broken.json", "tsconfig.json", ".vscode/settings.json", "cases/a.yaml", "chart/x.yaml"]
)
def test_what_is_not_looked_at_is_named(name: str) -> None:
    """Fixtures, templates and JSON with comments are passed over, each with the reason."""
    looked = parsed_files(tree_of({name: b"a: {{ .Values.x }\n"}), [name])
    assert (looked.looked, looked.complaints) == ((), ())
    assert looked.passed_over[0].startswith(f"{name}: ")


@given(st.sampled_from(["a.json", "a.toml", "a.yaml"]), st.binary())
def test_any_bytes_are_a_complaint_or_none(name: str, data: bytes) -> None:
    """Whatever the bytes, parsing them ends with at most one complaint."""
    assert len(_complaints(name, data)) <= 1


SOURCE = b"""import a from './a';
import './style.css?inline';
export { b } from "../lib/b.js";
const c = require('./dir');
const d = await import('./gone');
import out from '../../elsewhere';
import bare from 'react';
// import x from './commented';
 * const y = require('./in-a-comment')
import type { T } from './types';
"""


def test_relative_imports_must_lead_somewhere() -> None:
    """Only an import that begins with a dot and leads to no file is complained about, with its line."""
    files = {
        "src/x.ts": SOURCE, "src/a.ts": b"", "src/style.css": b"", "lib/b.ts": b"", "src/dir/index.js": b"",
        "src/types.d.ts": b"",
    }  # fmt: skip
    looked = resolved_imports(tree_of(files), ["src/x.ts"])
    assert looked.complaints == ("src/x.ts:5: ./gone leads to no file",)


def test_expected_files_must_be_there() -> None:
    """What a change should leave and did not is named; a trailing slash asks for a directory."""
    tree = tree_of({"a/b": b"", "c": b""})
    assert expected_files(tree, ["a/b", "a/", "c"]).complaints == ()
    assert expected_files(tree, ["c/", "a", "d", "a/x"]).complaints == (
        "c/ is missing", "a is missing", "d is missing", "a/x is missing",
    )  # fmt: skip
