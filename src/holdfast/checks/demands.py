"""Phrases that ask for a level, for something of the tests, for files, for health or for everything.

A rule knows every word of the clause it takes, or takes nothing.
"""

from __future__ import annotations

import re

from holdfast.checks.clauses import COMMAND, QUOTE, Clause
from holdfast.checks.levels import Level
from holdfast.checks.phrases import words_of
from holdfast.checks.reports import Criteria

_COMMON = frozenset(
    "the a an is are be was it its must should still to that can all of our up ok run rerun execute do perform".split()
)


def _known(subjects: str, others: str) -> tuple[frozenset[str], frozenset[str]]:
    return frozenset(subjects.split()), _COMMON | frozenset(f"{subjects} {others}".split())


# Words of which one must be there, and all words that may be there.
_LEVELS: dict[Level, tuple[frozenset[str], frozenset[str]]] = {
    "tests": _known(
        "tests test testing testsuite suite suites",
        """unit integration regression functional end-to-end e2e automated project existing whole full every pass
        passes passing passed succeed succeeds green runs again complete entire""",
    ),
    "lint": _known(
        "lint linter linters linting lints style",
        "code checks check checker pass passes clean happy complaints no errors warnings nothing has finds",
    ),
    "types": _known(
        "types type typecheck typechecks type-check type-checks typechecker typing type-checker type-checking",
        "check checks checker checking static pass passes correct clean no errors hints annotations",
    ),
    "syntax": _known(
        "syntax parse parses",
        "check checks valid correct fine files file code errors no every python javascript json yaml toml",
    ),
    "imports": _known(
        "imports import imported importable",
        "check checks resolve resolves work works modules module fine correct errors no broken every",
    ),
}

_LEAST = r"(?: at least| above| over| minimum| of| no less than| >=)*"
_PERCENT_FIRST = re.compile(
    r"(?:(?:the|line|test|code|minimum|at least|above|over|no less than) )*"
    r"(\d{1,3})(?:\.(\d{1,2}))? ?% (?:line |test |code )?coverage"
)
_COVERAGE_FIRST = re.compile(
    r"(?:the )?(?:minimum )?(?:line |test |code )?coverage(?: is| of| must be| should be| stays| remains)?"
    rf"{_LEAST} (\d{{1,3}})(?:\.(\d{{1,2}}))? ?(?:%|percent)"
)
_FAILURES = re.compile(
    r"(?:at most|no more than|up to|maximum) (\d{1,6}) (?:failures?|(?:failing|failed) tests?|tests? (?:may )?fail)"
)
_NO_FAILURES = re.compile(r"(?:there are )?no (?:failures?|(?:failing|failed) tests?|tests? fails?)")
# A name that no ordinary word has: with an underscore, a colon, a dot or a slash in it.
_REQUIRED = re.compile(
    r"(?:run )?(?:the )?test ((?=[^ ]*[_:./])[A-Za-z0-9_./:\[\]-]+)(?: (?:must |should )?(?:pass|passes|succeeds))?"
)
_FILE = re.compile(
    r"(?:the )?(?:expected )?(?:file |directory |folder )?((?=[^ ]*[./])[A-Za-z0-9_.@+/-]+)"
    r" (?:still )?(?:exists|is there|is present|was created|is created)"
)
_QUOTED_FILE = re.compile(
    rf"(?:the )?(?:file |directory )?[{QUOTE}{COMMAND}] (?:still )?(?:exists|is there|is present)"
)
_HEALTH = re.compile(
    r"(?:(?:run|do|perform) )?(?:the |its |all |our )*(?:service |application |app |system )?health(?:[- ]?checks?)?"
    r"(?: (?:is|are|must|should|still|stays?|be|ok|good|green|fine|pass|passes|passing|endpoint|status))*"
    r"|(?:the )?(?:service|services|application|app|site|server|system|it|everything)"
    r" (?:is|are|stays?|remains?) (?:still )?healthy"
)
_EVERYTHING = re.compile(
    r"(?:(?:run|do|perform|verify|check) )?(?:auto(?:matic(?:ally)?)?|everything"
    r"|all(?: of)?(?: the)?(?: usual| standard)? (?:checks|verification(?: steps)?)"
    r"|the usual(?: checks)?|(?:the )?(?:usual|standard|default|detected) checks)(?: (?:pass|passes))?"
)


def level_in(clause: Clause) -> set[Level]:
    words = set(words_of(clause.plain))
    if not clause.bare:
        return set()
    return next(({level} for level, (subjects, known) in _LEVELS.items() if words & subjects and words <= known), set())


def criteria_in(clause: Clause, so_far: Criteria) -> Criteria | None:
    if not clause.bare:
        return None
    if found := _PERCENT_FIRST.fullmatch(clause.plain) or _COVERAGE_FIRST.fullmatch(clause.plain):
        hundredths = int(found[1]) * 100 + int((found[2] or "").ljust(2, "0"))
        return so_far._replace(minimum_coverage=hundredths) if hundredths <= 10_000 else None
    if found := _FAILURES.fullmatch(clause.plain):
        return so_far._replace(maximum_failures=int(found[1]), needs_results=True)
    if _NO_FAILURES.fullmatch(clause.plain):
        return so_far._replace(maximum_failures=0)
    if found := _REQUIRED.fullmatch(clause.original):
        return so_far._replace(required=(*so_far.required, found[1]))
    return None


def files_in(clause: Clause) -> tuple[str, ...]:
    if _QUOTED_FILE.fullmatch(clause.plain):
        name = (*clause.quotes, *clause.commands)[0]
    elif found := _FILE.fullmatch(clause.original):
        name = found[1]
    else:
        return ()
    return () if name.startswith("/") or {"..", ""} & set(name.rstrip("/").split("/")) else (name,)


def is_about_health(clause: Clause) -> bool:
    return clause.bare and _HEALTH.fullmatch(clause.plain) is not None


def means_everything(clause: Clause) -> bool:
    return clause.bare and _EVERYTHING.fullmatch(clause.plain) is not None
