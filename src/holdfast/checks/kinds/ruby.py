"""Ruby: syntax of touched files, rspec or rake test, rubocop where configured."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.checks.levels import Check, Level
from holdfast.checks.project import Found, Kind, Place

_SYNTAX = "ARGV.each { |path| RubyVM::InstructionSequence.compile(File.read(path), path) }"


def _checks(place: Place) -> Iterator[Found]:
    for files in place.batches(".rb", ".rake", ".gemspec"):
        argv = ("ruby", "-e", _SYNTAX, "--", *files)
        yield Check("syntax", place.root, argv, f"{len(files)} touched Ruby files", "ruby")
    bundle = ("bundle", "exec") if "Gemfile" in place.names else ()
    if ".rspec" in place.names or "spec/" in place.names:
        yield _tool(place, "rspec", (*bundle, "rspec"), "tests", "there are specs")
    elif re.search(r"(?i)\btest", place.text("Rakefile")):
        yield _tool(place, "rake", (*bundle, "rake", "test"), "tests", "the Rakefile has tests")
    for files in place.batches(".rb") if ".rubocop.yml" in place.names else ():
        yield _tool(place, "rubocop", (*bundle, "rubocop", "--", *files), "lint", "there is a .rubocop.yml")


def _tool(place: Place, name: str, argv: tuple[str, ...], level: Level, why: str) -> Check:
    probe = (*argv[: argv.index(name) + 1], "--version")
    return Check(level, place.root, argv, why, name, probe)


RUBY = Kind("Ruby", ("Gemfile", "Rakefile", "*.gemspec"), _checks, (".rspec", ".rubocop.yml", "spec/spec_helper.rb"))
