"""A change of what has to be installed is checked with what the user's own command installs, or proves nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from delegated import configured
from guarded import Ground, guard, put
from holdfast.engine.checking import Verified
from holdfast.model.plan import Plan

# Installs what requirements.txt names: a module with an `answer` for each.
BUILD = """\
import os, subprocess, sys

subprocess.run(["python3", "-m", "venv", "--without-pip", ".venv"], check=True)
site, = [p for p, _, _ in os.walk(".venv") if p.endswith("site-packages")]
for name in open("requirements.txt").read().split():
    if name == "nowhere":
        sys.exit("there is no package nowhere")
    with open(f"{site}/{name}.py", "w") as file:
        file.write("answer = 42\\n")
"""
FILES = {
    "requirements.txt": b"",
    "shop.py": b"total = sum\n",
    "tests/__init__.py": b"",
    "tests/test_shop.py": b"import unittest\nimport shop\n\n\nclass Shop(unittest.TestCase):\n    def test_it(self):\n"
    b"        self.assertEqual(shop.total([1, 2]), 3)\n",
}
USES = b"import beta\n\n\ndef total(prices):\n    assert beta.answer == 42\n    return sum(prices)\n"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return guard(tmp_path / "workspace", FILES)


def with_command(tmp_path: Path) -> None:
    script = tmp_path / "build.py"
    script.write_text(BUILD)
    argv = json.dumps(["python3", str(script)])
    configured(f'[environment]\nbuild = {argv}\nreadable = ["{script}"]\n')


def checked(ground: Ground, **files: bytes) -> Verified:
    steps = tuple(put(name.replace("_", "."), data) for name, data in files.items())
    return ground.hf.verify(ground.hf.simulate(Plan("a test", steps, words=("Run tests",))))


def test_without_a_command_it_is_unverified(ground: Ground) -> None:
    """The tests pass with what was installed before, and are no receipt for the tree; the reason says what to do."""
    verified = checked(ground, requirements_txt=b"beta\n")
    tests = [receipt for receipt in verified.receipts if receipt.kind == "tests"]
    assert [(receipt.passed, receipt.tree_digest) for receipt in tests] == [(True, "")]
    assert verified.unverified.startswith("requirements.txt changes what has to be installed")
    assert "[environment] build = " in verified.unverified


def test_the_command_builds_what_the_checks_run_with(ground: Ground, tmp_path: Path) -> None:
    """What it installed is there for them, bound to the tree that would land; the workspace has none of it."""
    with_command(tmp_path)
    verified = checked(ground, requirements_txt=b"beta\n", shop_py=USES)
    assert [r.kind for r in verified.receipts if r.kind in ("environment", "tests")] == ["environment", "tests"]
    assert all(receipt.passed and receipt.tree_digest == verified.lands_as for receipt in verified.receipts)
    assert verified.unverified == ""
    assert not (ground.path / ".venv").exists()


def test_a_build_that_fails_fails_the_change(ground: Ground, tmp_path: Path) -> None:
    """Its last words are told, and no check runs with half of an environment."""
    with_command(tmp_path)
    verified = checked(ground, requirements_txt=b"nowhere\n")
    (failed,) = verified.receipts
    assert (failed.kind, failed.passed) == ("environment", False)
    assert "there is no package nowhere" in failed.detail


def test_other_changes_build_nothing(ground: Ground, tmp_path: Path) -> None:
    """The command costs its time only where something else has to be installed."""
    with_command(tmp_path)
    verified = checked(ground, shop_py=b"total = sum  # of prices\n", requirements_txt=b"# none\n")
    assert "environment" not in [receipt.kind for receipt in verified.receipts]
    assert verified.proofs
