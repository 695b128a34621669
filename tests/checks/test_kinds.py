"""A project of each kind whose tool is here, verified as the product does it: in a shadow, in the sandbox."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from guarded import guard, put
from holdfast.engine.checking import Verified
from holdfast.errors import SandboxUnavailable
from holdfast.model.plan import Plan
from projects import MAVEN, NODE, PYTHON, REAL_HOME, RUST, need, need_maven

MAKE = {"Makefile": "test:\n\t@test $$(cat sum.txt) = 4\n", "sum.txt": "4\n"}
# The files of a right project; the one that is changed, what of it becomes something else; and its tool.
Kind = tuple[dict[str, str], str, str, str, str]
KINDS: dict[str, Kind] = {
    "Python": (PYTHON, "app/core.py", "2 * x", "3 * x", "python3"),
    "Node": (NODE, "lib.js", "2 * x", "3 * x", "npm"),
    "Make": (MAKE, "sum.txt", "4", "5", "make"),
    "Rust": (RUST, "src/lib.rs", "2 * x", "3 * x", "cargo"),
    "Maven": (MAVEN, "src/main/java/Sum.java", "a + b", "a - b", "mvn"),
}


@pytest.fixture
def verified(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[dict[str, str], str, str], Verified]:
    """The receipts for one file of a project that is written anew; the toolchains are the real user's."""
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", REAL_HOME)

    def asked(files: dict[str, str], name: str, text: str) -> Verified:
        ground = guard(workspace, {path: data.encode() for path, data in files.items()})
        plan = Plan("a test", (put(name, text.encode()),), words=("Run tests",))
        try:
            return ground.hf.verify(ground.hf.simulate(plan))
        except SandboxUnavailable as error:
            pytest.skip(f"there is no sandbox here: {error}")
        finally:
            ground.hf.close()

    return asked


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_a_project_is_tested_in_the_sandbox(
    verified: Callable[[dict[str, str], str, str], Verified], tmp_path: Path, kind: str, right: bool
) -> None:
    """A change that keeps the tests right passes them, one that breaks them does not; the kind is found by itself."""
    files, name, old, new, tool = KINDS[kind]
    need(tool)
    if kind == "Maven":
        need_maven(tmp_path)
    text = files[name] if right else files[name].replace(old, new)
    found = verified(files, name, text + "\n")
    tests = [receipt for receipt in found.receipts if receipt.kind == "tests"]
    assert [receipt.passed for receipt in tests] == [right], [receipt.detail for receipt in found.receipts]
    assert found.unverified == ""
