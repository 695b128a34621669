"""PHP: syntax of touched files, PHPUnit from vendor, PHPStan where configured."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.checks.levels import Check, NotRun, cannot_run
from holdfast.checks.project import Found, Kind, Place

_SYNTAX = "foreach (array_slice($argv, 1) as $path) { token_get_all(file_get_contents($path), TOKEN_PARSE); }"
_PHPUNIT = ("phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml")
_PHPSTAN = ("phpstan.neon", "phpstan.neon.dist", "phpstan.dist.neon")


def _checks(place: Place) -> Iterator[Found]:
    for files in place.batches(".php"):
        argv = ("php", "-r", _SYNTAX, "--", *files)
        yield Check("syntax", place.root, argv, f"{len(files)} touched PHP files", "php")
    programs = place.inside("vendor/bin")
    if name := place.first(*_PHPSTAN):
        yield _vendored(place, programs, Check("types", place.root, ("vendor/bin/phpstan", "analyse"),
                                               f"there is a {name}", "phpstan"))  # fmt: skip
    if name := place.first(*_PHPUNIT):
        yield _vendored(place, programs, Check("tests", place.root, ("vendor/bin/phpunit",),
                                               f"there is a {name}", "phpunit"))  # fmt: skip


def _vendored(place: Place, programs: frozenset[str], check: Check) -> Found:
    if check.tool in programs:
        return check
    return NotRun(check.level, place.root, cannot_run(check.tool, "is not in vendor/bin"))


PHP = Kind("PHP", ("composer.json",), _checks, (*_PHPUNIT, *_PHPSTAN))
