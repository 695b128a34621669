"""Gathering evidence: the checks of a change, level by level, each with a receipt bound to the tree it ran on.

    files ─▶ syntax ─┬▶ failed: the rest is not run, and said to be so
                     └▶ passed ─▶ imports ─▶ types ─▶ tests ─▶ lint ─▶ acceptance, all of them

Commands go through `run`, which isolates them from the workspace, the network and the user's secrets.
What a change or an agent says about itself is no part of this.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from holdfast.checks import plainfiles
from holdfast.checks.attempt import (
    Attempt,
    Progress,
    Run,
    duration,
    plural,
    shown,
    silent,
    try_command,
    without_reports,
)
from holdfast.checks.baseline import Ran
from holdfast.checks.detect import Detected, detect
from holdfast.checks.junit import Results, read_junit
from holdfast.checks.levels import (
    FLOOR,
    LEVELS,
    WITHIN_MS,
    Check,
    Level,
    Mode,
    NotRun,
    Tried,
    Verification,
    cannot_run,
)
from holdfast.checks.linecoverage import read_coverage
from holdfast.checks.reports import Criteria, Ended, judged
from holdfast.checks.tree import Tree, present
from holdfast.checks.xmltext import BadReport
from holdfast.errors import InvalidInput
from holdfast.model.execution import CheckOrigin, Receipt
from holdfast.model.path import printable

_PROBE_MS = 30_000
_ARGUMENTS = 40
_LONG = 200
_NAMED = 5
_COLLECTED = re.compile(r"(?m)^={0,200} {0,4}(\d{1,9})(?:/\d{1,9})? tests? collected\b")
_COUNTED = re.compile(r"(?m)^\S.*: (\d+)$")
_BROKEN_FILE = re.compile(r"(?m)^ERROR (?:collecting )?(\S+?\.py)\b")
_BROKEN_CONFTEST = re.compile(r"(?m)\bwhile loading conftest '([^'\n]+)'")
_REASON = re.compile(r"(?m)^(?:E  +|ERROR: )(\S.*)$")
_Report = TypeVar("_Report")


class Wanted(NamedTuple):
    """What is asked for besides, or instead of, what detection finds.

    `levels`: only these, and each by name (Y3); empty: all that are detected.
    `expected`: files that must be there. `commands`: of the configuration or, in the mode `agent`, of the agent;
    `of_the_project` are those among them that only the project's own file names, which is trusted by nobody.
    `tests_by`: whose word decides whether tests passed; a plan that lets some fail has judged them itself.
    `detect`: look for projects and their checks at all.
    `among`: no other levels than these; that they are among them asks for none by name.
    """

    mode: Mode = "auto"
    reason: str = ""
    levels: tuple[Level, ...] = ()
    expected: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    of_the_project: frozenset[tuple[str, ...]] = frozenset()
    tests_by: CheckOrigin = "detected"
    criteria: Criteria = Criteria(needs_results=False)
    within_ms: int = WITHIN_MS
    detect: bool = True
    among: tuple[Level, ...] = LEVELS


class Ground(NamedTuple):
    """Where checks run: the tree to look at, the directory commands see it at, its digest, and how to run them."""

    tree: Tree
    directory: str
    tree_digest: str
    run: Run
    save_log: Callable[[bytes], str]
    env: tuple[tuple[str, str], ...] = ()
    # Which Python is first on PATH, and what stood in the way of another one.
    python: str = ""
    # By root and command: what ran on this very tree before is not run again.
    known: Mapping[object, Receipt] = {}


def gather(ground: Ground, touched: Iterable[str], wanted: Wanted, progress: Progress = silent) -> Verification:
    """All the evidence there is for a change that touched these paths."""
    if wanted.mode == "skip":
        if not wanted.reason.strip():
            raise InvalidInput("skipping the checks needs a reason")
        return Verification("skip", reason=wanted.reason)
    paths = tuple(sorted(set(touched)))
    detected = detect(ground.tree, paths, wanted.commands, wanted.within_ms, projects_too=wanted.detect)
    work = _Gathering(ground, wanted, _narrowed(detected, wanted), progress)
    for level in wanted.among:
        work.level(level, paths)
    return Verification(wanted.mode, tuple(work.receipts), tuple(work.not_run), wanted.reason, tuple(work.ran))


def tried(ground: Ground, touched: Iterable[str], wanted: Wanted, within_ms: int) -> tuple[Tried, ...]:
    """Which checks a change of these paths would have, and whether each can run; none is run. All of it ends in time.

    What finds its tests without running them is asked to; of everything else only the tool is looked for.
    """
    detected = _narrowed(detect(ground.tree, touched, wanted.commands, projects_too=wanted.detect), wanted)
    work, end = _Gathering(ground, wanted, detected, silent), time.monotonic() + within_ms / 1000
    found = [
        work.trial(check, max(1, int((end - time.monotonic()) * 1000)))
        for check in detected.checks
        if check.level not in FLOOR
    ]
    return (*found, *(Tried(item.level, item.root, item.detail, ready=False) for item in detected.not_run))


def finds_none(tree: Tree, touched: Iterable[str], wanted: Wanted) -> bool:
    """Is there no command at all that `gather` would run? It is not asked whether one could be run."""
    detected = detect(tree, touched, wanted.commands, wanted.within_ms, projects_too=wanted.detect)
    return not _narrowed(detected, wanted).checks


def commands_for(ground: Ground, touched: Iterable[str], wanted: Wanted) -> tuple[str, ...]:
    """The commands that `gather` would run and whose tools are there, as a person would type them; none is run."""
    detected = detect(ground.tree, touched, wanted.commands, wanted.within_ms, projects_too=wanted.detect)
    narrowed = _narrowed(detected, wanted)
    work = _Gathering(ground, wanted, narrowed, silent)
    return tuple(
        _named(check)
        for check in narrowed.checks
        if check.level not in FLOOR and not _is_ours(check) and not work.missing(check)
    )


def _narrowed(detected: Detected, wanted: Wanted) -> Detected:
    levels: tuple[Level, ...] = wanted.levels or LEVELS
    if wanted.mode == "agent":
        # What configuration asks of the tests is not the agent's to leave out.
        levels = ("files", "syntax", "acceptance", *wanted.levels)
    keep = {*levels, "acceptance"} & {*wanted.among}
    return detected._replace(
        checks=tuple(check for check in detected.checks if check.level in keep),
        not_run=tuple(item for item in detected.not_run if item.level in keep),
    )


class _Gathering:
    """The receipts so far."""

    def __init__(self, ground: Ground, wanted: Wanted, detected: Detected, progress: Progress) -> None:
        self.receipts: list[Receipt] = []
        self.not_run: list[NotRun] = []
        self._ground, self._wanted, self._detected, self._progress = ground, wanted, detected, progress
        self._done = 0
        self._installed: dict[tuple[str, tuple[str, ...]], str] = {}
        self.ran: list[Ran] = []

    def level(self, level: Level, touched: Sequence[str]) -> None:
        before = len(self.receipts)
        broken = any(not receipt.passed and receipt.kind in FLOOR for receipt in self.receipts)
        checks = [check for check in self._detected.checks if check.level == level]
        if broken and level not in FLOOR:
            self.not_run += [
                NotRun(level, check.root, f"{_named(check)} was not run: the files are broken") for check in checks
            ]
            return
        if not self._wanted.levels or level in self._wanted.levels:
            self._look(level, touched)
        for check in checks:
            self._progress(self._done, len(self._detected.checks), _named(check))
            self._done += 1
            self._command(check)
        for item in self._detected.not_run:
            if item.level == level:
                self._could_not(item)
        if level == "tests":
            self._required()
        if level in self._wanted.levels and len(self.receipts) == before and not self._said(level):
            self._could_not(NotRun(level, "", f"cannot run here: no check of the level {level} was found"))

    def _said(self, level: Level) -> bool:
        return any(item.level == level for item in self.not_run)

    def _look(self, level: Level, touched: Sequence[str]) -> None:
        tree = self._ground.tree
        there = present(tree, touched)
        if level == "files" and self._wanted.expected:
            self._looked(level, "files", plainfiles.expected_files(tree, self._wanted.expected))
        elif level == "syntax":
            self._looked(level, "data files", plainfiles.parsed_files(tree, there))
        elif level == "imports":
            self._looked(level, "relative imports", plainfiles.resolved_imports(tree, there))

    def _looked(self, level: Level, what: str, looked: plainfiles.Looked) -> None:
        self.not_run += [NotRun(level, "", f"not looked at: {item}") for item in looked.passed_over]
        if not looked.looked:
            return
        lines = looked.complaints or (f"{plural(len(looked.looked), 'file', 'files')} looked at, no complaint",)
        more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
        self._keep(
            level,
            ("holdfast", level, *looked.looked[:_ARGUMENTS]),
            Attempt(not looked.complaints, "", "\n".join((*lines, "")).encode("utf-8", "surrogateescape")),
            0,
            f"{what}: {lines[0]}{more}",
        )

    def _command(self, check: Check) -> None:
        measured = check.coverage if self._wanted.criteria.minimum_coverage is not None else None
        missing = self.missing(check)
        if not missing and measured:
            missing = self._missing(measured.tool, measured.probe, check.root)
        if missing:
            self._could_not(NotRun(check.level, check.root, missing))
            return
        argv = (*check.argv, *(measured.arguments if measured else ()))
        if (check.root, argv) in self._ground.known:
            self.receipts.append(self._ground.known[check.root, argv])
            return
        started = time.monotonic()
        reports = tuple(name for name in (check.junit, measured.file if measured else "") if name)
        attempt = self._try((*argv, *check.files), check.root, check.within_ms, check.env, reports)
        took_ms = int((time.monotonic() - started) * 1000)
        if attempt.hopeless:
            why = f"cannot be started ({attempt.said})"
            self._could_not(NotRun(check.level, check.root, cannot_run(check.tool, why)))
        elif _judged_nothing(check, attempt):
            last = attempt.log.decode("utf-8", "replace").strip().splitlines()[-1:]
            self._could_not(NotRun(check.level, check.root, f"{_named(check)} had nothing to judge{_after(last)}"))
        else:
            attempt, note = self._judged(check, argv, attempt)
            if check.level not in (*FLOOR, "acceptance"):
                if not self.ran or self.ran[-1].number != len(self.receipts):
                    is_open = self._is_open(check, attempt)
                    self.ran.append(Ran(len(self.receipts), check.root, argv, Results(()), is_open, report=False))
                self.ran[-1] = self.ran[-1]._replace(passed=attempt.passed, level=check.level, name=_named(check))
            said = f"{_named(check)} {attempt.said} ({duration(took_ms)}){note}{attempt.remarks}"
            self._keep(check.level, argv, attempt, took_ms, said, self._origin(check))
            if check.level not in (*FLOOR, "acceptance"):
                self.ran[-1] = self.ran[-1]._replace(receipt=self.receipts[-1])

    def _is_open(self, check: Check, attempt: Attempt) -> bool:
        """Was it merely found, and did it come to its own end? It should not have left a report: then it broke."""
        criteria = self._wanted.criteria
        asked = check.level in self._wanted.levels or bool(check.junit)
        bounded = criteria.minimum_coverage is not None or criteria.maximum_failures is not None
        ended = attempt.exit_code is not None and not attempt.timed_out and not attempt.survived
        return ended and not asked and not (bounded and check.level == "tests")

    def trial(self, check: Check, within_ms: int) -> Tried:
        """At least once around what is left of the time, each probe has a bound of its own."""
        name = _named(check)
        if missing := self._missing(check.tool, check.probe, check.root):
            return Tried(check.level, check.root, f"{name}: {missing}", ready=False)
        if not check.collect:
            return Tried(check.level, check.root, name, ready=True)
        started = time.monotonic()
        argv = (*without_reports(check.argv), *check.collect, *check.files)
        attempt = self._try(argv, check.root, within_ms, check.env)
        took = duration(int((time.monotonic() - started) * 1000))
        if attempt.timed_out:
            return Tried(check.level, check.root, f"{name} was still collecting after {took}", ready=True)
        if attempt.exit_code in check.nothing:
            return Tried(check.level, check.root, f"{name} collects no tests", ready=False)
        if not attempt.passed:
            files, why = not_collected(attempt.log)
            said = f"{name} cannot collect its tests: {why or attempt.said}"
            return Tried(check.level, check.root, said, ready=False, uncollectable=True, files=files, log=attempt.log)
        counted = plural(_collected(attempt.log), "test", "tests")
        return Tried(check.level, check.root, f"{name} collects {counted} in {took}", ready=True)

    def _origin(self, check: Check) -> CheckOrigin:
        """Acceptance is what was named by somebody; all else was found in the tree."""
        if check.level != "acceptance":
            return self._wanted.tests_by if check.level == "tests" else "detected"
        if self._wanted.mode == "agent":
            return "agent"
        return "project" if check.argv in self._wanted.of_the_project else "configured"

    def _judged(self, check: Check, argv: tuple[str, ...], attempt: Attempt) -> tuple[Attempt, str]:
        """Tests are judged by their reports where there are some, and always by how they ended."""
        if check.level != "tests":
            return attempt, ""
        problems: list[str] = []
        results = _read(attempt, check.junit, read_junit, problems)
        coverage = _read(attempt, check.coverage.file if check.coverage else "", read_coverage, problems)
        ended = Ended(attempt.exit_code, timed_out=attempt.timed_out)
        # Required tests may be any project's; they are looked for when all projects have run.
        criteria = self._wanted.criteria._replace(required=())
        if check.junit:
            criteria = criteria._replace(needs_results=True)  # our own reporter was asked for it, and writes it always
        verdict = judged(criteria, ended, results, coverage)
        if results is not None:
            lenient = criteria._replace(maximum_failures=len(results.failed))
            is_open = criteria.maximum_failures is None and not attempt.survived
            otherwise_good = is_open and judged(lenient, ended, results, coverage).passed
            collected = not check.collect or attempt.exit_code in (0, 1)
            ran = Ran(len(self.receipts), check.root, argv, results, otherwise_good, collected=collected)
            self.ran.append(ran)
        words = [verdict.summary, *problems, *(verdict.reasons if attempt.passed or results else ())]
        passed = verdict.passed and not attempt.survived
        return attempt._replace(passed=passed), "".join(f"; {word}" for word in words if word)

    def _required(self) -> None:
        required = self._wanted.criteria.required
        if not required:
            return
        results = Results(tuple(case for run in self.ran for case in run.results.cases))
        states = {name: results.state_of(name) for name in required}
        bad = [f"{printable(name)} {state or 'was not run'}" for name, state in states.items() if state != "passed"]
        detail = f"required tests: {', '.join(bad) or 'all passed'}"
        attempt = Attempt(not bad, "", detail.encode())
        self._keep("tests", ("holdfast", "tests", *required), attempt, 0, detail, self._wanted.tests_by)

    def missing(self, check: Check) -> str:
        """Why its tool cannot be used; empty when it can."""
        return self._missing(check.tool, check.probe, check.root)

    def _missing(self, tool: str, probe: tuple[str, ...], root: str) -> str:
        """Why a tool cannot be used here; empty when it can. Asked once for every tool and project."""
        if not probe:
            return ""
        if (root, probe) not in self._installed:
            asked = self._try(probe, root, _PROBE_MS)
            of_python = self._ground.python and os.path.basename(probe[0]) in ("python", "python3")
            where = f" in {self._ground.python}" if of_python else ""
            said = "" if asked.passed else cannot_run(tool, f"is not installed{where}")
            if not asked.passed and not asked.hopeless and asked.log.strip():
                first = asked.log.decode("utf-8", "replace").strip().splitlines()[0]
                said = cannot_run(tool, f"does not start: {printable(first[:_LONG])}")
            self._installed[root, probe] = said
        return self._installed[root, probe]

    def _try(
        self,
        argv: tuple[str, ...],
        root: str,
        within_ms: int,
        env: tuple[tuple[str, str], ...] = (),
        reports: tuple[str, ...] = (),
    ) -> Attempt:
        directory = os.path.join(self._ground.directory, root) if root else self._ground.directory
        whole = (*self._ground.env, *env)
        return try_command(argv, directory, within_ms, run=self._ground.run, env=whole, reports=reports)

    def _could_not(self, item: NotRun) -> None:
        self.not_run.append(item)
        if item.level in self._wanted.levels:  # Y3
            self._keep(item.level, ("holdfast", item.level), Attempt(False, "", item.detail.encode()), 0, item.detail)

    def _keep(
        self,
        level: Level,
        command: tuple[str, ...],
        attempt: Attempt,
        took_ms: int,
        detail: str,
        origin: CheckOrigin = "detected",
    ) -> None:
        self.receipts.append(
            Receipt(
                command=command,
                kind=level,
                passed=attempt.passed,
                exit_code=attempt.exit_code,
                duration_ms=took_ms,
                log_digest=self._ground.save_log(attempt.log),
                tree_digest=self._ground.tree_digest,
                detail=detail,
                origin=origin,
            )
        )


def _collected(log: bytes) -> int:
    """How many tests pytest names: in its last line, or, where it is told to be quieter, a number for each file."""
    text = log.decode("utf-8", "replace")
    if found := _COLLECTED.search(text):
        return int(found[1])
    return sum(int(number) for number in _COUNTED.findall(text)) or text.count("::")


def not_collected(log: bytes) -> tuple[tuple[str, ...], str]:
    """The files that pytest could not collect, and its first reason."""
    text = log.decode("utf-8", "replace")
    files = tuple(dict.fromkeys([*_BROKEN_FILE.findall(text), *_BROKEN_CONFTEST.findall(text)]))
    why = _REASON.search(text)
    words = [", ".join(map(printable, files[:_NAMED])), printable(why[1][:_LONG]) if why else ""]
    return files, ": ".join(filter(None, words))


def _judged_nothing(check: Check, attempt: Attempt) -> bool:
    """Did the command run without looking at anything? A run that failed has found something."""
    if attempt.exit_code is not None and attempt.exit_code in check.nothing:
        return True
    log = attempt.log.decode("utf-8", "replace")
    return bool(check.shows) and attempt.passed and re.search(check.shows, log, re.MULTILINE) is None


def _read(attempt: Attempt, name: str, read: Callable[[bytes], _Report], problems: list[str]) -> _Report | None:
    data = dict(attempt.reports).get(name)
    if data is None:
        return None
    try:
        return read(data)
    except BadReport as error:
        problems.append(f"{name} cannot be read: {error}")
        return None


def _after(lines: Sequence[str]) -> str:
    return f": {printable(lines[0][:_LONG])}" if lines else ""


def _is_ours(check: Check) -> bool:
    """A driver of ours, which nobody would type."""
    return "-c" in check.argv[:3] or "-e" in check.argv[:2] or "-r" in check.argv[:2]


def _named(check: Check) -> str:
    """The command as a person would say it; our own drivers are named by what they look at."""
    if _is_ours(check):
        return f"{check.level} of {check.why}"
    text = shown((*(without_reports(check.argv) if check.junit else check.argv), *check.files))
    where = f" in {printable(check.root)}" if check.root else ""
    return (text if len(text) <= _LONG else f"{text[:_LONG]}…") + where
