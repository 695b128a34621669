"""Make: the targets test or check, and lint, where the Makefile has them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.checks.levels import Check
from holdfast.checks.project import Found, Kind, Place

_FILES = ("GNUmakefile", "makefile", "Makefile")


def _checks(place: Place) -> Iterator[Found]:
    name = place.first(*_FILES)
    targets = set(re.findall(r"(?m)^([A-Za-z0-9_.-]+)\s*::?(?!=)", place.text(name)))
    if target := next((target for target in ("test", "tests", "check") if target in targets), ""):
        yield Check("tests", place.root, ("make", target), f"{name} has the target {target}", "make")
    if "lint" in targets:
        yield Check("lint", place.root, ("make", "lint"), f"{name} has the target lint", "make")


MAKE = Kind("Make", _FILES, _checks)
