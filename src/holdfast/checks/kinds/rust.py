"""Rust: cargo check, cargo test, and clippy where configured. Offline: dependencies must be vendored or fetched."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.checks.levels import Check
from holdfast.checks.project import Found, Kind, Place, has_section

_PROBE = ("cargo", "--version")
_ENV = (("CARGO_NET_OFFLINE", "true"), ("CARGO_TERM_COLOR", "never"))
# Of each test binary, also with --quiet.
_TESTED = r"^running [1-9]"


def _checks(place: Place) -> Iterator[Found]:
    why = "there is a Cargo.toml"
    yield Check("types", place.root, ("cargo", "check", "--all-targets", "--quiet"), why, "cargo", _PROBE, _ENV)
    yield Check("tests", place.root, ("cargo", "test", "--quiet"), why, "cargo", _PROBE, _ENV, shows=_TESTED)
    where = place.first("clippy.toml", ".clippy.toml")
    if where or has_section(place.text("Cargo.toml"), "lints.clippy"):
        argv = ("cargo", "clippy", "--all-targets", "--quiet", "--", "-D", "warnings")
        probe = ("cargo", "clippy", "--version")
        yield Check("lint", place.root, argv, f"{where or 'Cargo.toml'} configures clippy", "clippy", probe, _ENV)


RUST = Kind("Rust", ("Cargo.toml",), _checks, ("build.rs", ".cargo/config.toml", "clippy.toml", ".clippy.toml"))
