"""Go: gofmt for syntax, vet for types, test; golangci-lint where configured. Always offline."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.checks.levels import Check
from holdfast.checks.project import Found, Kind, Place

_PROBE = ("go", "version")
_ENV = (("GOFLAGS", "-mod=readonly"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local"))
# -count=1: a result that Go remembers is of a run that was no check.
# `ok  package  0.02s`; a package without tests says `? package [no test files]`, or `ok … [no tests to run]`.
_TESTED = r"^ok[ \t]++\S++[ \t]++(?!.*\[no tests to run\])"
_LINT = (".golangci.yml", ".golangci.yaml", ".golangci.toml")


def _checks(place: Place) -> Iterator[Found]:
    why = "there is a go.mod"
    for files in place.batches(".go"):
        argv = ("gofmt", "-l", "-e", *(f"./{path}" for path in files))
        yield Check("syntax", place.root, argv, f"{len(files)} touched Go files", "gofmt")
    yield Check("types", place.root, ("go", "vet", "./..."), why, "go", _PROBE, _ENV)
    yield Check("tests", place.root, ("go", "test", "-count=1", "./..."), why, "go", _PROBE, _ENV, shows=_TESTED)
    if name := place.first(*_LINT):
        argv = ("golangci-lint", "run")
        yield Check("lint", place.root, argv, f"there is a {name}", "golangci-lint", (argv[0], "--version"), _ENV)


GO = Kind("Go", ("go.mod",), _checks, _LINT)
