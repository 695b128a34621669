"""The baseline: what failed before a change is known, and is not its fault.

    tests ran ─▶ the same run on the untouched base ─▶ each failed test: known, or new; what is not run any more
                                                                  └─ new ones: run everything once more ─▶ flaky, or new

Invariants
  N1  Only tests that a report names are forgiven, by name, and only those that failed on the base in the same run.
      A run that broke and a check that a plan, a task or the configuration names are never forgiven; nor is anything
      where somebody said how many tests may fail.
  N2  What a task was to mend is not forgiven: a test that its words name, and every test where they speak of failing
      ones; a command that they name, whose level they speak of, or whose output has a test or a call that they name.
  N3  A test is flaky if it failed and then passed over the same tree. Everything is run again, never the test alone:
      alone it would pass although another test breaks it.
  N4  A test that passed on the base and is not run any more is missed, by name (its parameters may have other values,
      but not fewer of them), unless the change edits the file that it stood in: then the gate asks a person.
  N5  Where the base's tests could not be collected, collecting them is the check: what fails then never ran before.
  N6  A command without a report that failed on the base and fails now, as the same command, is not held against the
      change and proves nothing: what it stands on makes the whole change unverified.
  N7  A run in which no test passed proves nothing, and is unverified like N6; so is one whose tests could not be
      collected before and fail now, unless the task is to have them collected.
  N8  Where a command that ran passing tests on the base is not run any more, the commands that run tests in the same
      project prove nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from holdfast.checks.attempt import REPORTS, plural, shown
from holdfast.checks.junit import Case, Results
from holdfast.model.execution import Receipt
from holdfast.model.path import printable

# More than these at once are no accident, and running them again would only cost time.
MOST_FLAKY = 10
_FLAKY = "flaky, failed once and passed when everything was run again: "
_NAMED = 5
_ABOUT_COLLECTING = re.compile(
    r"(?i)\b(?:collect(?:s|ed|ing|ion|able)?|import(?:s|ing)?\s+errors?|ImportError|ModuleNotFoundError)\b"
)
# What `blamed` says, and how pytest heads and sums up failures.
_BLAMED = re.compile(r"; new: (?P<names>[^;]+); \d+ tests? failed before this change too: ")
_AND_MORE = re.compile(r" and \d+ more\Z")
_HEADED = re.compile(r"_{3,} (?:ERROR at (?:setup|teardown) of )?(?P<test>\S{1,500}) _{3,}\s*\Z")
_SAID = re.compile(r"(?:FAILED|ERROR) (?P<test>\S{1,400}\.py\S{0,400})")
_PARAMETERS = re.compile(r"\[.*\]\Z", re.DOTALL)
_ABOUT_FAILURES = re.compile(
    r"(?i)\b(?:fail(?:s|ed|ing|ures?)?|broken|red|fix|repair|pass|green)\b[^.;\n]{0,60}\btests?\b"
    r"|\btests?\b[^.;\n]{0,60}\b(?:fail(?:s|ed|ing|ures?)?|broken|red|pass(?:es)?|green)\b"
)

# `answer()`, `test_answer`, `TestAnswer`
_NAMED_IN_CODE = re.compile(r"\b(?:\w+(?=\(\))|test_\w+|Test[A-Z]\w*)")
_ABOUT_LEVEL = {
    "imports": re.compile(r"(?i)\b(?:import errors?|broken imports?|ImportError|ModuleNotFoundError)\b"),
    "types": re.compile(r"(?i)\btyp(?:e|ing)[ -]?(?:check\w*|errors?|hints?|annotations?)\b"),
    "tests": _ABOUT_FAILURES,
    "lint": re.compile(r"(?i)\b(?:lint\w*|code style|style (?:errors?|warnings?|checks?))\b"),
}


class Ran(NamedTuple):
    """One run of tests, or of another check that was found in the tree: of the `number`-th receipt.

    `otherwise_good`: it would have passed but for the tests that failed, and nobody said how many may.
    `collected`: it got as far as running tests.
    Without a `report` there are no results, only whether it passed; `otherwise_good` then says that it ended by itself
    and that nobody asked for it by name. `name` is the command as a person would say it.
    """

    number: int
    root: str
    command: tuple[str, ...]
    results: Results
    otherwise_good: bool
    passed: bool = False
    collected: bool = True
    report: bool = True
    level: str = "tests"
    name: str = ""
    # As it came, before it was compared with anything.
    receipt: Receipt | None = None

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        return self.root, self.command


class Compared(NamedTuple):
    """The failed tests of a run, by their full names."""

    new: tuple[str, ...]
    known: tuple[str, ...]


def compared(after: Results, before: Ran | None, words: str) -> Compared:
    """`words` are those of the task (N2)."""
    failed = Counter(after.failed)
    if before is not None and not before.collected:
        spoken = {*_spoken_of(words, after.cases), *before.results.passed}
        known = Counter({name: count for name, count in failed.items() if name not in spoken})  # N5
    else:
        spoken = set(named_in(words, after.cases))
        earlier = before.results.failed if before is not None else ()
        known = Counter(name for name in earlier if name not in spoken)
    # Several tests may have one name: as many may fail as failed before.
    new = tuple(name for name, count in failed.items() if count > known[name])
    return Compared(new, tuple(name for name in failed if name not in new))


def without_failures(results: Results, flaky: Collection[str]) -> Results:
    """What is remembered of a run: a flaky test counts as one that passes, so that it is not forgiven later on."""
    return Results(tuple(case._replace(state="passed") if case.full_name in flaky else case for case in results.cases))


def named_in(words: str, cases: Iterable[Case]) -> tuple[str, ...]:
    """Tests that the words of a task are about (N2)."""
    if _ABOUT_FAILURES.search(words):
        return tuple(case.full_name for case in cases)
    return _spoken_of(words, cases)


def missing(after: Results, before: Results) -> tuple[str, ...]:
    """Tests that passed before and are not run any more (N4)."""
    passed = Counter(_function_of(case) for case in before.cases if case.state == "passed")
    ran = Counter(_function_of(case) for case in after.cases if case.state != "skipped")
    fewer = ((name, ran[name], count) for name, count in passed.items() if ran[name] < count)
    return tuple(f"{name} ({left} of {count} cases)" if left else name for name, left, count in fewer)


def is_edited(name: str, each: Ran, touched: Iterable[str]) -> bool:
    """Does a test, by its full name, stand in one of these files? A runner that names no files may mean any of them."""
    prefix = f"{each.root}/" if each.root else ""
    below = [path.removeprefix(prefix) for path in touched if path.startswith(prefix)]
    if "pytest" not in each.command:
        return bool(below)
    modules = (path.removesuffix(".py").replace("/", ".") for path in below if path.endswith(".py"))
    return any(f"{name}.".startswith(f"{module}.") for module in modules)


def missed(receipt: Receipt, gone: tuple[str, ...]) -> Receipt:
    """One that failed, for tests that are not run any more."""
    return receipt._replace(passed=False, detail=f"{receipt.detail}; no longer run: {_names(gone)}")


def told_gone(receipt: Receipt, gone: tuple[str, ...]) -> Receipt:
    """One that passed, and names what the change itself took out of the tests."""
    return receipt._replace(detail=f"{receipt.detail}; no longer run, in files that are edited: {_names(gone)}")


def _function_of(case: Case) -> str:
    return _PARAMETERS.sub("", case.full_name)


def _spoken_of(words: str, cases: Iterable[Case]) -> tuple[str, ...]:
    spoken = set(re.findall(r"\w+", words))
    return tuple(case.full_name for case in cases if _PARAMETERS.sub("", case.name) in spoken)


def is_about_collecting(words: str, files: Iterable[str]) -> bool:
    """Is a task to mend just that tests cannot be collected? It says so, speaks of failing tests, or names the file."""
    if _ABOUT_COLLECTING.search(words) or _ABOUT_FAILURES.search(words):
        return True
    return any(name in words for path in files for name in (path, path.rpartition("/")[2]))


def forgiven(
    receipt: Receipt, after: Results, known: tuple[str, ...], flaky: tuple[str, ...], before: Ran, words: str
) -> Receipt:
    """A receipt that passed, and says what it passed over, instead of why it did not pass.

    It proves nothing (N7) where no test passed, or where tests fail that never ran before and collecting them was not
    what the task is about.
    """
    command, _, _ = receipt.detail.partition("; ")
    said = "; ".join((command, after.summary, *_passed_over(known, flaky, collected=before.collected)))
    why = ""
    if known and not before.collected and not is_about_collecting(words, ()):
        failing = plural(len(known), "test fails", "tests fail")
        why = f"the tests could not be collected before this change, and {failing} now"
    elif not after.passed:
        why = "no test passed, before this change or after it"
    return receipt._replace(passed=True, detail=said, unverified=why)


def blamed(receipt: Receipt, new: tuple[str, ...], known: tuple[str, ...]) -> Receipt:
    """One that failed, and says which failures are new."""
    words = (f"new: {_names(new)}", *_passed_over(known, ())) if known else ()
    return receipt._replace(detail="; ".join((receipt.detail, *words)))


def unproven(receipt: Receipt, after: Ran, before: Ran, words: str, log: bytes) -> Receipt:
    """One without a report that failed: let pass as proof of nothing where it failed before too (N6)."""
    if before.passed or not before.otherwise_good or _is_about(words, after, log):
        return receipt
    why = f"`{printable(after.name)}` failed before this change too"
    return receipt._replace(passed=True, detail=f"{receipt.detail}; it failed before this change too", unverified=why)


def is_unreported(receipt: Receipt) -> bool:
    """Of a check that was found in the tree, names no tests, and came to its own end?"""
    found = receipt.origin == "detected" and receipt.kind in _ABOUT_LEVEL and receipt.exit_code is not None
    return found and not any(REPORTS in word for word in receipt.command)


def _is_about(words: str, ran: Ran, log: bytes) -> bool:
    """N2, for a command."""
    if set(_NAMED_IN_CODE.findall(words)).intersection(re.findall(r"\w+", log.decode("utf-8", "replace"))):
        return True
    modules = [name for option, name in zip(ran.command, ran.command[1:], strict=False) if option == "-m"]
    if ran.name in words or any(re.search(rf"\b{re.escape(name)}\b", words) for name in modules):
        return True
    about = _ABOUT_LEVEL.get(ran.level)
    return about is not None and about.search(words) is not None


def about_new_failures(detail: str, log: str) -> str:
    """The log of pytest without what it says of tests that failed before too; as it is where they cannot be told apart.

    Whoever mends a change, or asks why it failed, is not led astray by failures that are not its fault.
    """
    blame = _BLAMED.search(detail)
    if blame is None or _AND_MORE.search(blame["names"]):
        return log
    new = blame["names"].split(", ")
    kept, found, inside = [], set[str](), True
    for line in log.splitlines(keepends=True):
        headed, said = _HEADED.match(line), _SAID.match(line)
        if headed is not None or line.startswith("==="):
            inside = headed is None
        if (told := headed or said) is not None:
            mine = [name for name in new if _is_of(name, told["test"])]
            found.update(mine)
            inside = inside or bool(mine)
            if said is not None and not mine:
                continue
        if inside:
            kept.append(line)
    return "".join(kept) if found.issuperset(new) else log


def _is_of(name: str, told: str) -> bool:
    """`told` is a node of pytest, or the end of a full name."""
    path, of_file, rest = told.partition(".py")
    dotted = f"{path.replace('/', '.')}{rest.replace('::', '.')}" if of_file else told
    return f".{name}".endswith(f".{dotted}")


def as_before(ran: Ran) -> str:
    """How the tests stand before anything is done, as a sentence."""
    if not ran.report:
        how = "pass" if ran.passed else "fail, and name none: while they do, they verify nothing"
        return f"before anything is done: the tests of {shown(ran.command)} {how}"
    failed = f": {_names(ran.results.failed)}" if ran.results.failed else ""
    return f"before anything is done: {ran.results.summary}{failed}"


def _passed_over(known: tuple[str, ...], flaky: tuple[str, ...], *, collected: bool = True) -> tuple[str, ...]:
    said = []
    if known and not collected:
        said.append(f"{plural(len(known), 'test', 'tests')} failed that could not be collected before: {_names(known)}")
    elif known:
        said.append(f"{plural(len(known), 'test', 'tests')} failed before this change too: {_names(known)}")
    if flaky:
        said.append(f"{_FLAKY}{_names(flaky)}")
    return tuple(said)


def flaky_told(detail: str) -> str:
    """What a receipt says of flaky tests, out of its words; empty where it says nothing of any."""
    _, found, names = detail.partition(_FLAKY)
    return f"{found}{names.partition('; ')[0]}" if found else ""


def _names(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(map(printable, names[:_NAMED]))}{more}"
