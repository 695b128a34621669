"""A project of each kind whose tool is here, verified as the product does it: in a shadow, in the sandbox."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from guarded import guard, put
from holdfast.engine.checking import Verified
from holdfast.errors import SandboxUnavailable
from holdfast.model.check import CommandCheck, SuiteCheck
from holdfast.model.plan import Plan
from projects import GO, GRADLE, MAKE, MAVEN, NODE, PYTHON, REAL_HOME, RUBY, RUST, need, need_maven

Verify = Callable[[dict[str, str], str, str, str], Verified]


class Kind(NamedTuple):
    """A right project; the file that is changed, and what in it becomes something wrong; its tool, and who notices."""

    files: dict[str, str]
    name: str
    old: str
    new: str
    tool: str
    level: str = "tests"


KINDS = {
    "Python": Kind(PYTHON, "app/core.py", "2 * x", "3 * x", "python3"),
    "Node": Kind(NODE, "lib.js", "2 * x", "3 * x", "npm"),
    "Make": Kind(MAKE, "sum.txt", "4", "5", "make"),
    "Rust": Kind(RUST, "src/lib.rs", "2 * x", "3 * x", "cargo"),
    "Maven": Kind(MAVEN, "src/main/java/Sum.java", "a + b", "a - b", "mvn"),
    "Gradle": Kind(GRADLE, "src/main/java/Sum.java", "a + b", '"four"', "gradle", "types"),
    "Go": Kind(GO, "double.go", "2 * x", "3 * x", "go"),
    "Ruby": Kind(RUBY, "lib/twice.rb", "2 * x", "3 * x", "rspec"),
}
WORDS = {"tests": "Run tests", "types": "Check the types"}
# Talks to a server of its own, and must not find the host's.
TALK = """import socket, sys
with socket.create_server(("127.0.0.1", 0)) as own:
    socket.create_connection(own.getsockname(), 5).close()
assert socket.gethostbyname(socket.gethostname()).startswith("127.")
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
except ConnectionRefusedError:
    sys.exit(0)
sys.exit("the host's loopback answered")
"""


@pytest.fixture
def verified(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Verify:
    """The receipts for one file of a project that is written anew; the toolchains are the real user's."""
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", REAL_HOME)

    def asked(files: dict[str, str], name: str, text: str, level: str) -> Verified:
        ground = guard(workspace, {path: data.encode() for path, data in files.items()})
        plan = Plan("a test", (put(name, text.encode()),), words=(WORDS[level],))
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
def test_a_project_is_verified_in_the_sandbox(verified: Verify, tmp_path: Path, kind: str, right: bool) -> None:
    """A change that keeps it right passes, one that breaks it does not; the kind is found by itself."""
    files, name, old, new, tool, level = KINDS[kind]
    need(tool)
    if kind == "Maven":
        need_maven(tmp_path)
    text = files[name] if right else files[name].replace(old, new)
    found = verified(files, name, text + "\n", level)
    outcomes = [receipt.passed for receipt in found.receipts if receipt.kind == level]
    assert outcomes == [right], [receipt.detail for receipt in found.receipts]
    if level == "tests":
        assert found.unverified == ""


@pytest.mark.long
def test_a_command_of_the_plan_finds_the_same_toolchain(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is found for a project that was detected is there for a command that somebody wrote down, too."""
    need("cargo")
    monkeypatch.setenv("HOME", REAL_HOME)
    ground = guard(workspace, {path: data.encode() for path, data in RUST.items()})
    checks = CommandCheck(("cargo", "test", "--offline")), SuiteCheck(("cargo", "check", "--offline"))
    plan = Plan("a test", (put("README", b"x\n"),), verify=checks)
    found = ground.hf.verify(ground.hf.simulate(plan))
    ground.hf.close()
    assert [receipt.passed for receipt in found.receipts] == [True, True], [one.detail for one in found.receipts]


def test_tests_may_talk_to_their_own_server_and_to_no_other(verified: Verify) -> None:
    """A loopback of its own is there, with the name of the host in it; what listens on the host is out of reach."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        files = {"Makefile": f"test:\n\t@python3 talk.py {port}\n", "talk.py": TALK}
        found = verified(files, "talk.py", TALK + "\n", "tests")
    assert [receipt.passed for receipt in found.receipts] == [True], [receipt.detail for receipt in found.receipts]
