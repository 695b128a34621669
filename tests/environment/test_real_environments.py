"""Real projects in the environments people have: what passes for their user passes inside, for checks and for agents.

Every environment is made by its own tool. The project needs a package that only its environment has (those of Rust need
a tool alone), so nothing passes with another interpreter by chance. conda and asdf are in no registry of packages, and
are not tried.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.durable.cluster import Cluster
from environment.equipment import Equipment
from environment.people import HOLDFAST, KINDS, MORE, Kind, User, count
from holdfast.store.blobs import Blobs
from holdfast.workspace.site import Site

pytestmark = pytest.mark.long
_TESTS = 3


@pytest.fixture(scope="session")
def equipment() -> Equipment:
    return Equipment()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.remove()


@pytest.mark.parametrize("name", KINDS)
def test_what_passes_for_its_user_passes_inside(
    name: str, tmp_path: Path, equipment: Equipment, cluster: Cluster
) -> None:
    """As many tests as outside, for a check, for an agent, for several agents at once, and for one on another machine.

    A wrong change is seen failing. Over mirrors, which are seen at the workspace's own place, nobody tests the old code
    or that of somebody else."""
    kind = KINDS[name]
    user = at_work(kind, tmp_path / "home", equipment)
    checked(user)

    source = kind.language.source[0]
    user.holdfast("apply", "--agent", "mine", f"Create {source.format(name='one')}", "--yes")
    assert saw(user, "one") == told(_TESTS)

    roadmap(user, "two", "three")
    user.holdfast("run", "ROADMAP.md", "--agent", "mine", "--parallel", "2", "--yes")
    # On a busy machine one may begin when the other has landed; neither ever sees the other's unfinished work.
    both = [told(_TESTS + 1), told(_TESTS + 2)]
    assert sorted((saw(user, "two"), saw(user, "three"))) in (both[:1] * 2, both)

    roadmap(user, "four")
    elsewhere = User(tmp_path / "elsewhere", kind.language, equipment, clone_of=user)
    kind.make(elsewhere)
    worked_on(elsewhere, user, cluster.url(f"matrix{os.getpid()}{''.join(filter(str.isalnum, name))}"))
    assert saw(user, "four") == told(_TESTS + 3)


@pytest.mark.parametrize("name", MORE)
def test_what_passes_for_its_user_is_checked_inside(name: str, tmp_path: Path, equipment: Equipment) -> None:
    """A check runs as many tests as outside, and sees a wrong change fail."""
    checked(at_work(MORE[name], tmp_path / "home", equipment))


def at_work(kind: Kind, home: Path, equipment: Equipment) -> User:
    """A user whose tests pass for them."""
    user = User(home, kind.language, equipment)
    kind.make(user)
    assert count(kind.language.passed, user.run(*kind.tests)) == _TESTS
    user.run("git", "add", "-A")
    user.run("git", "commit", "-qm", "set up", "--allow-empty")
    user.holdfast("init")
    return user


def checked(user: User) -> None:
    language = user.language
    landed = user.holdfast(*change(user, language.good, language.as_good))
    tests = [row for row in landed["receipts"] if row["kind"] == "tests"]  # type: ignore[attr-defined]
    assert [row["passed"] for row in tests] == [True], landed["receipts"]
    with Site(str(user.project)) as site:
        log = Blobs(site.state).get(tests[0]["log_digest"]).decode()
    assert count(language.passed, log) == (_TESTS if language.counted else 0), log
    refused = user.holdfast(*change(user, language.as_good, language.bad), status=6)
    assert "failed" in json.dumps(refused)


def change(user: User, old: str, new: str) -> list[str]:
    file, place = user.home / "change.yaml", user.language.sum
    text = (user.project / place).read_text()
    assert old in text
    step = {"write": place, "content": text.replace(old, new)}
    file.write_text(json.dumps({"intent": "change a sum", "steps": [step], "verify": "Run tests"}))
    return ["apply", str(file), "--yes"]


def roadmap(user: User, *names: str) -> None:
    source = user.language.source[0]
    rows = "".join(f"- [ ] Create {source.format(name=name)}\n" for name in names)
    (user.project / "ROADMAP.md").write_text(f"# Shop\n\n{rows}")


def worked_on(elsewhere: User, home: User, database: str) -> None:
    """The run of `home` done by a worker of somebody else, over a clone of theirs."""
    workspace = str(home.holdfast("status")["id"])
    given = ["worker", "--database", database, "--workspace", workspace, "--name", "elsewhere"]
    said = (elsewhere.home / "worker.out").open("wb")
    with said, subprocess.Popen(
        [HOLDFAST, *given, "--repository", str(elsewhere.project)],
        cwd=elsewhere.home, env=elsewhere.environment(), stdout=said, stderr=said,
    ) as worker:  # fmt: skip
        try:
            run = ["run", "ROADMAP.md", "--agent", "mine", "--workers-only", "--database", database, "--yes"]
            home.holdfast(*run)
        finally:
            worker.send_signal(signal.SIGTERM)
            print((elsewhere.home / "worker.out").read_text())


def saw(user: User, name: str) -> list[str]:
    """What the agent says of the tests in what it made."""
    text = (user.project / user.language.source[0].format(name=name)).read_text()
    return [line.removeprefix(user.language.comment) for line in text.splitlines() if " passed" in line]


def told(passing: int) -> list[str]:
    """Its own test failed and passed, and those of the project passed."""
    return [f"before: 1 failed, {passing} passed", f"after: 0 failed, {passing + 1} passed"]
