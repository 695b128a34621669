"""Checks of a shadow run in the sandbox: they see what would land, and nothing they do gets out."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from guarded import Ground as Guarded
from guarded import guard, put
from holdfast.checks.confine import confined, written_to
from holdfast.checks.gather import Ground, Wanted, gather
from holdfast.checks.levels import Verification
from holdfast.checks.tree import Tree
from holdfast.checks.verify import verify
from holdfast.checks.viewed import tree_in
from holdfast.errors import SandboxUnavailable
from holdfast.model.check import SuiteCheck
from holdfast.model.plan import Delete, Step
from holdfast.planning.failures import understood
from holdfast.sandbox.confined import run_confined
from holdfast.sandbox.process import Command
from holdfast.sandbox.profile import Limits, Profile
from holdfast.sandbox.view import View
from holdfast.simulation.rehearsal import rehearse
from holdfast.workspace.shadow import open_shadow

PROFILE = Profile(limits=Limits(time_ms=60_000, memory_bytes=1 << 30, disk_bytes=256 << 20))
BASE = {
    "setup.cfg": b"[tool:pytest]\n",
    "app/__init__.py": b"",
    "app/core.py": b"VALUE = 1\n",
    "tests/test_core.py": b"from app.core import VALUE\n\n\ndef test_value():\n    assert VALUE == 2\n",
    "old.json": b"{",
    "secret.env": b"TOKEN=hunter2",
}


@pytest.fixture(params=["overlay", "copy"])
def layer(
    request: pytest.FixtureRequest, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Iterator[View]]:
    """The view of a change in a fresh layer, of either kind."""
    monkeypatch.setenv("PATH", f"{os.path.dirname(sys.executable)}:/usr/bin:/bin")
    ground = guard(workspace, BASE)

    def opened(*steps: Step) -> Iterator[View]:
        rehearsal = rehearse(ground.hf.site, Guarded.plan(ground, *steps))
        with (
            open_shadow(ground.hf.site, request.param, ["secret.env"]) as shadow,
            shadow.layer(rehearsal.change_set, rehearsal.seen, rehearsal.sources) as view,
        ):
            yield view

    return opened


@pytest.fixture
def check(layer: Callable[..., Iterator[View]], save_log: Callable[[bytes], str]) -> Callable[..., Verification]:
    def verified(*steps: Step, wanted: Wanted = AUTO) -> Verification:
        for view in layer(*steps):
            with tree_in(view) as tree:
                ground = Ground(tree, view.path, "tree-3", confined(view, PROFILE), save_log)
                return gather(ground, [step.path for step in steps], wanted)
        raise AssertionError("there was no view")

    return verified


AUTO = Wanted()


@pytest.fixture(scope="module", autouse=True)
def _sandboxed(tmp_path_factory: pytest.TempPathFactory) -> None:
    place = str(tmp_path_factory.mktemp("probe"))
    try:
        run_confined(Command(("true",), place, {"PATH": "/usr/bin:/bin"}, 10_000), View(place, place), PROFILE)
    except SandboxUnavailable as error:
        pytest.skip(f"there is no sandbox here: {error}")


def test_what_would_land_is_tested(check: Callable[..., Verification], workspace: Path) -> None:
    """A right change passes its tests in the sandbox, a wrong one fails; the workspace never sees either."""
    right = check(put("app/core.py", b"VALUE = 2\n"))
    assert right.tested, (right.failed, right.not_run)
    assert any("1 passed" in receipt.detail for receipt in right.receipts)
    wrong = check(put("app/core.py", b"VALUE = 3\n"))
    assert [receipt.kind for receipt in wrong.failed] == ["tests"]
    assert (workspace / "app/core.py").read_bytes() == b"VALUE = 1\n"
    assert list(workspace.rglob("__pycache__")) == list(workspace.rglob(".pytest_cache")) == []


def test_a_check_cannot_reach_out(check: Callable[..., Verification], logs: dict[str, bytes]) -> None:
    """No network, not even the host's loopback, and no hidden file."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2); print('ESCAPED')"
        commands = (("python3", "-c", code), ("sh", "-c", "cat secret.env; test ! -s secret.env"))
        verification = check(put("a.txt", b""), wanted=Wanted(commands=commands))
    outcomes = [receipt.passed for receipt in verification.receipts if receipt.kind == "acceptance"]
    assert outcomes == [False, True]
    assert not any(b"ESCAPED" in log or b"hunter2" in log for log in logs.values())


def test_a_suites_reports_are_read_from_the_layer(
    layer: Callable[..., Iterator[View]], save_log: Callable[[bytes], str], workspace: Path
) -> None:
    """The report a test run wrote in its layer is found and judged; it does not appear in the workspace."""
    script = "echo '<testsuite><testcase name=\"a\"/></testsuite>' > r.xml"
    for view in layer(put("a.txt", b"")):
        (receipt,) = verify(
            [SuiteCheck(("sh", "-c", script), junit="r.xml")],
            directory=view.path,
            tree_digest="t",
            save_log=save_log,
            run=confined(view, PROFILE),
            written=written_to(view),
        )
        assert receipt.passed, receipt.detail
    assert not (workspace / "r.xml").exists()


def test_a_limit_is_never_a_success(check: Callable[..., Verification]) -> None:
    """A check that a limit of the sandbox ended has failed."""
    code = "import time; x = b'x' * (3 << 30); time.sleep(20)"
    verification = check(put("a.txt", b""), wanted=Wanted(commands=(("python3", "-c", code),)))
    assert not verification.passed


def test_a_check_that_used_too_much_says_of_what(
    layer: Callable[..., Iterator[View]], save_log: Callable[[bytes], str], logs: dict[str, bytes]
) -> None:
    """The amount stands in its log, and is understood as a limit; without it, it was killed by somebody unknown."""
    small = PROFILE._replace(limits=PROFILE.limits._replace(output_bytes=100_000))
    flood = SuiteCheck(("sh", "-c", "while :; do echo flood; done"))
    for view in layer(put("a.txt", b"")):
        (receipt,) = verify([flood], directory=view.path, tree_digest="t", save_log=save_log, run=confined(view, small))
    log = logs[receipt.log_digest]
    assert not receipt.passed and b"[ended by a limit of the sandbox: it wrote more than 100 KB of output]" in log
    assert understood(receipt, log).category == "limit"


def test_a_view_is_seen_as_it_would_be_inside(layer: Callable[..., Iterator[View]]) -> None:
    """Written, deleted and replaced paths look from outside as they do to a program in the sandbox."""
    steps = (
        put("app/new/deep.txt", b"d"),
        put("app/core.py", b"VALUE = 2\n"),
        Delete("old.json"),
        Delete("tests", recursive=True),
        put("tests", b"a file now"),
    )
    for view in layer(*steps):
        with tree_in(view) as tree:
            assert _paths(tree) == _inside(view)
            assert tree.read("app/core.py") == b"VALUE = 2\n"
            assert tree.read("setup.cfg") == BASE["setup.cfg"]
            for path in ("old.json", "tests/test_core.py", "secret.env", "app", "none"):
                with pytest.raises(OSError, match=r".+"):
                    tree.read(path)


def _paths(tree: Tree, directory: str = "") -> set[str]:
    found: set[str] = set()
    for name in tree.names(directory):
        path = f"{directory}/{name}" if directory else name
        found |= {path} | (_paths(tree, path.rstrip("/")) if name.endswith("/") else set())
    return found


def _inside(view: View) -> set[str]:
    """The same paths, as `find` sees them in the sandbox; hidden ones are empty there, and not counted."""
    argv = ("find", ".", "-mindepth", "1", "(", "-type", "d", "-printf", "%P/\\n", "-o", "-printf", "%P\\n", ")")
    done = run_confined(Command(argv, view.path, {"PATH": "/usr/bin:/bin"}, 20_000), view, PROFILE)
    lines = set(done.finished.output.decode().split())
    return {line for line in lines if line.rstrip("/") not in view.masked}
