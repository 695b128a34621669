"""Levels of verification, in their order, and what came of them.

    files ─▶ syntax ─▶ imports ─▶ types ─▶ tests ─▶ lint ─▶ acceptance

Modes
  auto   everything that detection finds, and the commands that configuration names
  agent  files and syntax, then the commands an agent proposed; the engine runs them, what the agent says of them is
         kept beside. They are the agent's own choice, so they never make a change `tested`
  skip   nothing, for a reason that is recorded

Invariants
  Y1  A receipt is for a check that ran. What could not run is a NotRun, which never counts as passed.
  Y2  `tested` needs a receipt of the level tests or acceptance that passed, and none that failed.
      A command that only the project's own file names must pass, and proves nothing: it comes with the repository.
  Y3  What was asked for by name and could not run is a failure; what was only detected leaves the change unverified.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from holdfast.checks.baseline import Ran
from holdfast.checks.junit import Case
from holdfast.model.execution import Receipt

Level = Literal["files", "syntax", "imports", "types", "tests", "lint", "acceptance"]
LEVELS: tuple[Level, ...] = ("files", "syntax", "imports", "types", "tests", "lint", "acceptance")
# When one of these fails, the levels above would only say it again, in more words.
FLOOR: frozenset[Level] = frozenset(("files", "syntax"))
# Passed, these are what "verified" means.
PROOF: frozenset[Level] = frozenset(("tests", "acceptance"))

Mode = Literal["auto", "agent", "skip"]
WITHIN_MS = 600_000


class Measured(NamedTuple):
    """Further arguments that make a test run leave this file, and the probe for what they need."""

    file: str
    arguments: tuple[str, ...]
    probe: tuple[str, ...]
    tool: str


class Check(NamedTuple):
    """One command that detection or configuration asks for. `root` is where it runs, relative to the tree.

    `probe` must exit 0 for `tool` to count as installed; empty: starting the command is proof enough.
    `junit` names a file in the private directory of the run (see attempt.REPORTS).
    `coverage` are the means to measure the coverage as well, where it is asked for.
    `nothing` are exit codes that mean that there was nothing to do, and thus nothing proven.
    `shows` is an expression that the output of a run holds if anything was judged: several runners exit with 0
    where there is no test at all.
    """

    level: Level
    root: str
    argv: tuple[str, ...]
    why: str
    tool: str
    probe: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    within_ms: int = WITHIN_MS
    junit: str = ""
    coverage: Measured | None = None
    nothing: tuple[int, ...] = ()
    shows: str = ""
    # Further arguments with which it only finds its tests, and runs none.
    collect: tuple[str, ...] = ()
    # What it is to look at, told after everything else. They change with the tree, and it stays the same command.
    files: tuple[str, ...] = ()


class Tried(NamedTuple):
    """What a trial of one check showed, before anything is done: `detail` is the whole sentence.

    `ready`: as far as was tried, it can run. `uncollectable`: its tests cannot even be collected, and these are the
    files that are to blame, as far as the runner names them.
    """

    level: Level
    root: str
    detail: str
    ready: bool
    uncollectable: bool = False
    files: tuple[str, ...] = ()
    log: bytes = b""


class NotRun(NamedTuple):
    """A check that would have been right and was not made: `detail` is the whole sentence."""

    level: Level
    root: str
    detail: str


class Verification(NamedTuple):
    """Everything one verification showed."""

    mode: Mode
    receipts: tuple[Receipt, ...] = ()
    not_run: tuple[NotRun, ...] = ()
    reason: str = ""
    # The runs of everything that was found in the tree, but for files and syntax.
    ran: tuple[Ran, ...] = ()

    @property
    def cases(self) -> tuple[Case, ...]:
        """Every single test that reports name, of all runs."""
        return tuple(case for run in self.ran for case in run.results.cases)

    @property
    def failed(self) -> tuple[Receipt, ...]:
        return tuple(receipt for receipt in self.receipts if not receipt.passed)

    @property
    def passed(self) -> bool:
        """Nothing failed. Alone this proves little: see `tested`."""
        return not self.failed

    @property
    def tested(self) -> bool:
        proofs = [receipt for receipt in self.receipts if receipt.kind in PROOF and receipt.origin != "project"]
        return self.mode != "agent" and bool(proofs) and self.passed

    @property
    def unverified(self) -> str:
        """Why this is not verified by tests, as a sentence; empty when it is, or when something failed."""
        if self.failed or self.tested:
            return ""
        if self.mode == "skip":
            return f"unverified: checks were skipped ({self.reason})"
        if self.mode == "agent":
            return "unverified by tests: verification was left to the agent"
        if any(receipt.kind in PROOF for receipt in self.receipts):
            return "unverified by tests: only commands that the project itself names were run"
        missing = [item.detail for item in self.not_run if item.level in PROOF]
        return f"unverified by tests: {missing[0] if missing else 'no tests were found'}"


def cannot_run(tool: str, why: str = "is not installed") -> str:
    return f"cannot run here: {tool} {why}"
