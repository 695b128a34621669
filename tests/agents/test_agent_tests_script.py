"""scripts/agent-tests: what is not tested is never passed over in silence.

The scripts themselves; npm as it is installed, or a stub where it must answer; a registry that is a closed port; a disk
that is too small; only pytest is a stub.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
# What `make` hands over: notes that it was called, leaves a report, and ends as it is told.
PYTEST = """#!/bin/sh
touch {log}
for word in "$@"; do
    case $word in --junitxml=*) cp {report} "${{word#--junitxml=}}" ;; esac
done
{act}
"""
CLEAN = '<testsuites><testsuite><testcase name="a" /></testsuite></testsuites>'
NEEDED = "NOT TESTED"


class Machine:
    """A checkout of its own, in which every program but `missing` is there already."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran = folder / "ran"
        (folder / "scripts").mkdir()
        for name in ("agent-programs", "agent-tests"):
            shutil.copy(SCRIPTS / name, folder / "scripts" / name)
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        self.npmrc("registry=http://127.0.0.1:9/\nfetch-retries=0\n")
        self.tests()
        for name, packages in self._catalogue():
            (folder / ".agent-programs" / name).mkdir(parents=True)
            (folder / ".agent-programs" / name / ".ready").write_text(packages)

    def _catalogue(self) -> list[tuple[str, str]]:
        rows = (line.split("|") for line in (SCRIPTS / "agent-programs").read_text().splitlines())
        return [(row[0].strip(), row[2].strip()) for row in rows if len(row) == 5 and row[1].strip() in ("npm", "pip")]

    def npmrc(self, text: str) -> None:
        (self.folder / "npmrc").write_text(text)
        self.environment["NPM_CONFIG_USERCONFIG"] = str(self.folder / "npmrc")

    def npm(self, text: str) -> None:
        """Another npm than the one that is installed."""
        (self.folder / "bin").mkdir()
        (self.folder / "bin" / "npm").write_text(f"#!/bin/sh\n[ $1 != config ] || exit 0\n{text}\n")
        (self.folder / "bin" / "npm").chmod(0o755)
        self.environment["PATH"] = f"{self.folder / 'bin'}:{os.environ['PATH']}"

    def tests(self, act: str = "true", report: str = CLEAN) -> None:
        (self.folder / "report.xml").write_text(report)
        text = PYTEST.format(log=self.ran, report=self.folder / "report.xml", act=act)
        (self.folder / "pytest").write_text(text)
        (self.folder / "pytest").chmod(0o755)

    def lacks(self, *names: str) -> None:
        for name in names:
            (self.folder / ".agent-programs" / name / ".ready").unlink()

    def run(self, when_missing: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        command = [*before, str(self.folder / "scripts" / "agent-tests"), when_missing, str(self.folder / "pytest")]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=120, check=False, cwd=self.folder
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")


def test_where_everything_is_there_the_tests_decide(machine: Machine) -> None:
    """Passed is exit 0 without a word more; failed is exit 1."""
    done = machine.run("tell")
    assert (done.returncode, NEEDED in done.stderr, machine.ran.exists()) == (0, False, True), done.stderr
    machine.tests("exit 1")
    assert machine.run("tell").returncode == 1


@needs_npm
def test_a_registry_that_does_not_answer_is_told_and_the_rest_is_tested(machine: Machine) -> None:
    """Exit 0, and a block at the end names what was not tested and why; the other programs were."""
    machine.lacks("codex", "gemini")
    done = machine.run("tell")
    assert (done.returncode, machine.ran.exists()) == (0, True), done.stderr
    block = done.stderr[done.stderr.index("#####") :]
    assert NEEDED in block and block.rstrip().endswith("#####")
    for name in ("codex", "gemini"):
        assert f"##  {name} " in block
    assert block.count("the registry of npm does not answer") == 2
    machine.tests("exit 1")
    assert machine.run("tell").returncode == 1, "a test that fails is red all the same"


@needs_npm
def test_a_person_is_told_by_a_failure(machine: Machine) -> None:
    """`make test-agents` without more: something is missing, so exit 1, and nothing is run."""
    machine.lacks("gemini")
    done = machine.run("fail")
    assert (done.returncode, machine.ran.exists()) == (1, False)
    assert NEEDED in done.stderr and "the registry of npm does not answer" in done.stderr


def test_a_machine_without_npm_says_so(machine: Machine) -> None:
    """No npm on PATH is a reason of the machine's."""
    tools = machine.folder / "tools"
    tools.mkdir()
    for name in ("sh", "awk", "cat", "cp", "cut", "df", "dirname", "grep", "mkdir", "mktemp", "rm", "sed", "sort",
                 "tee", "timeout", "touch", "tr", "uname", "uniq", "tail"):  # fmt: skip
        found = shutil.which(name)
        assert found is not None
        (tools / name).symlink_to(found)
    machine.environment["PATH"] = str(tools)
    machine.lacks("gemini")
    done = machine.run("tell")
    assert (done.returncode, machine.ran.exists()) == (0, True), done.stderr
    assert "npm is not installed here" in done.stderr


def test_a_disk_without_room_says_so_before_anything_is_fetched(machine: Machine) -> None:
    """On a file system of 8 MB, which is a real one."""
    place = machine.folder / ".agent-programs"
    mount = f"mount -t tmpfs -o size=8m none '{place}'"
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    machine.npm(f"touch {machine.folder}/asked; exit 1")
    done = machine.run("tell", ("unshare", "-rm", "sh", "-c", f'{mount}; exec "$@"', "sh"))
    assert (done.returncode, machine.ran.exists()) == (0, True), done.stderr
    assert done.stderr.count("no room: ") == len(machine._catalogue())
    assert not (machine.folder / "asked").exists()


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("npm error code ETARGET\nnpm error notarget No matching version found", 1),
        ("npm error code E404", 1),
        ("npm error code E401", 1),
        ("npm error code ERESOLVE", 1),
        ("npm error while fetching from registry after ECONNRESET, trying again\nnpm error code EINTEGRITY", 1),
        ("", 1),
        ("npm error code EAI_AGAIN", 0),
        ("npm error code E503", 0),
        ("npm ERR! code ENOTFOUND", 0),
        ("npm error code EBADPLATFORM", 0),
        ("npm error code ENOSPC", 0),
    ],
)
def test_what_a_registry_answers_is_red_and_what_a_machine_lacks_is_told(
    machine: Machine, said: str, status: int
) -> None:
    """By the last word of npm; what it grumbled about on the way counts for nothing."""
    machine.npm(f"printf '%s\\n' '{said}' >&2; exit 1")
    machine.lacks("gemini")
    done = machine.run("tell")
    assert (done.returncode, machine.ran.exists()) == (status, not status), done.stderr
    assert NEEDED in done.stderr and "##  gemini " in done.stderr


def test_one_broken_package_among_what_a_machine_lacks_is_red(machine: Machine) -> None:
    """A reason that excuses one program excuses no other."""
    machine.npm(
        'case "$*" in *gemini*) echo "npm error code ETARGET" ;; *) echo "npm error code EBADPLATFORM" ;; esac; exit 1'
    )
    machine.lacks("gemini", "goose")
    done = machine.run("tell")
    assert (done.returncode, machine.ran.exists()) == (1, False)


def test_tests_that_are_skipped_though_their_program_is_there_are_red(machine: Machine) -> None:
    """With the reasons. Only what needs root is told instead."""
    machine.tests(report='<testcase><skipped type="pytest.skip" message="odd weather">x</skipped></testcase>')
    done = machine.run("tell")
    assert (done.returncode, "odd weather" in done.stderr) == (1, True)
    machine.tests(report='<testcase><skipped type="pytest.skip" message="needs root">x</skipped></testcase>')
    done = machine.run("tell")
    assert (done.returncode, NEEDED in done.stderr) == (0, True)


def test_an_end_without_a_report_is_red(machine: Machine) -> None:
    """Exit 0 of something that tested nothing."""
    machine.tests(report="")
    done = machine.run("tell")
    assert (done.returncode, "left no report" in done.stderr) == (1, True)


def test_time_is_bounded(machine: Machine) -> None:
    """Installing and testing each have their time; what is over it is ended, and said."""
    machine.environment.update(INSTALL_TIME="1s", TEST_TIME="1s")
    machine.tests("sleep 60")
    done = machine.run("tell")
    assert (done.returncode, "took longer than 1s" in done.stderr) == (1, True)
    machine.npm("sleep 60")
    machine.lacks("gemini")
    done = machine.run("tell")
    assert (done.returncode, "installing the agent programs took longer than 1s" in done.stderr) == (1, True)


def test_continuous_integration_runs_them(machine: Machine) -> None:
    """`.ci/run` calls `make test-agents`, and that calls the script, so that nothing of this is for show."""
    root = SCRIPTS.parent
    assert "make test-agents MISSING=tell" in (root / ".ci" / "run").read_text().splitlines()
    planned = subprocess.run(
        ["make", "--dry-run", "test-agents", "MISSING=tell"], cwd=root, capture_output=True, text=True, check=True
    )
    assert "scripts/agent-tests tell .venv/bin/python -m pytest" in planned.stdout
