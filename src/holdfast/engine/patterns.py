"""Patterns by name: ours, the user's own, and those that came with the repository; and a plan from one of them.

    built-in   holdfast.planning.patterns
    user       $XDG_CONFIG_HOME/holdfast/patterns/*.toml, *.yaml        the user's own
    project    holdfast-patterns/*.toml, *.yaml in the workspace        untrusted

Invariants
  N1  A name means one pattern. Ours stand above the user's, those above the project's; who comes second is refused.
  N2  A file that is wrong does not hide the others: it is listed as refused, with the reason, and cannot be used.
  N3  The user's folder and files belong to the user, and nobody else may write them.
  N4  Whatever a pattern says, it yields a plan, which is simulated, gated and checked like any other.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from holdfast.checks.tree import read_beneath
from holdfast.disk.calls import CALLS
from holdfast.disk.homes import config_home
from holdfast.errors import InvalidInput, UnknownId
from holdfast.model.canonical import Json
from holdfast.model.path import printable
from holdfast.model.plan import Plan
from holdfast.planning.patterns.catalogue import BUILT_IN
from holdfast.planning.patterns.definition import pattern_from
from holdfast.planning.patterns.pattern import Origin, Pattern, Schema, plan_of
from holdfast.workspace.site import Site

PROJECT_FOLDER = "holdfast-patterns"
USER_FOLDER = "patterns"
MOST_BYTES = 1 << 20
MOST_PATTERNS = 200
_ENDINGS = (".toml", ".yaml", ".yml")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class Refused(NamedTuple):
    """A file that is no pattern, and why."""

    file: str
    why: str


class Listed(NamedTuple):
    patterns: tuple[Pattern, ...]
    refused: tuple[Refused, ...]


def list_patterns(site: Site) -> Listed:
    """Every pattern there is, ours first."""
    known = {pattern.id: pattern for pattern in BUILT_IN}
    refused: list[Refused] = []
    for found in (*_user_patterns(), *_project_patterns(site)):
        if isinstance(found, Pattern) and found.id in known:
            whose = known[found.id].origin
            refused.append(Refused(found.id, f"the {found.origin}'s {found.id} has the name of a {whose} pattern"))
        elif isinstance(found, Pattern):
            known[found.id] = found
        else:
            refused.append(found)
    return Listed(tuple(known.values()), tuple(refused))


def find_pattern(site: Site, id: str) -> Pattern:
    """The pattern with this id; UnknownId names what is near, and what was refused."""
    listed = list_patterns(site)
    for pattern in listed.patterns:
        if pattern.id == id:
            return pattern
    from difflib import get_close_matches  # only on the way to an error

    near = get_close_matches(id, [pattern.id for pattern in listed.patterns], 1)
    wrong = "".join(f"\n  {printable(refused.file)}: {printable(refused.why)}" for refused in listed.refused)
    more = f"; these files are none:{wrong}" if wrong else ""
    hint = f"Did you mean {near[0]}?" if near else "List them with: holdfast patterns"
    raise UnknownId(f"there is no pattern {printable(id)}{more}", hint=hint)


class PatternExecutor:
    """One pattern over one workspace, under the names that other tools use."""

    def __init__(self, site: Site, pattern: Pattern) -> None:
        self._site, self.pattern, self.id = site, pattern, pattern.id

    @property
    def json_schema(self) -> Schema:
        """What its inputs must be: JSON schema, draft 2020-12."""
        return self.pattern.schema

    def validate_inputs(self, context: Mapping[str, Json]) -> list[str]:
        """What is wrong with these inputs, a sentence each; empty where nothing is."""
        from holdfast.engine.pattern_inputs import faults_of

        return faults_of(self.pattern, context)

    def execute(self, context: Mapping[str, Json]) -> Plan:
        """The plan for these inputs over the workspace as it is now (N4); InvalidInput when they are wrong."""
        return plan_from_pattern(self._site, self.id, context)


def plan_from_pattern(site: Site, id: str, inputs: Mapping[str, Json]) -> Plan:
    """The plan that a pattern makes of these inputs over the workspace as it is now."""
    from holdfast.engine.pattern_facts import facts_of
    from holdfast.engine.pattern_inputs import validated  # a tenth of a second, which a list need not cost

    pattern = find_pattern(site, id)
    values = validated(pattern, inputs)
    return plan_of(pattern, values, facts_of(site, pattern, values))


# ── the two folders ──


def _user_patterns() -> Iterator[Pattern | Refused]:
    folder = os.path.join(config_home(), USER_FOLDER)
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        yield Refused(folder, f"cannot be read: {error.strerror}")
        return
    try:
        why = _untrusted(os.fstat(fd))
        if why:
            yield Refused(folder, why)
            return
        names = _names(fd)
        for name in names[:MOST_PATTERNS]:
            why = _untrusted(os.stat(name, dir_fd=fd, follow_symlinks=False))
            yield Refused(os.path.join(folder, name), why) if why else _read(fd, name, folder, "user")
        yield from _too_many(folder, names)
    finally:
        os.close(fd)


def _untrusted(about: os.stat_result) -> str:
    """Why somebody else may have written it; empty when nobody may (N3)."""
    if about.st_uid != os.geteuid():
        return f"belongs to another user (uid {about.st_uid})"
    return "can be written by other users" if about.st_mode & _OTHERS_WRITE and not stat.S_ISLNK(about.st_mode) else ""


def _project_patterns(site: Site) -> Iterator[Pattern | Refused]:
    site.workspace.forget()
    try:
        fd = site.workspace.open_directory(PROJECT_FOLDER)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        yield Refused(PROJECT_FOLDER, f"cannot be read: {error.strerror}")
        return
    try:
        names = _names(fd)
        for name in names[:MOST_PATTERNS]:
            yield _read(fd, name, PROJECT_FOLDER, "project")
        yield from _too_many(PROJECT_FOLDER, names)
    finally:
        site.calls.close(fd)


def _names(fd: int) -> list[str]:
    return sorted(name for name in CALLS.names(fd) if name.endswith(_ENDINGS) and not name.startswith("."))


def _too_many(folder: str, names: list[str]) -> Iterator[Refused]:
    if len(names) > MOST_PATTERNS:
        yield Refused(folder, f"has {len(names)} patterns; those after the first {MOST_PATTERNS} were not read")


def _read(fd: int, name: str, folder: str, origin: Origin) -> Pattern | Refused:
    file = os.path.join(folder, name)
    try:
        return pattern_from(_decoded(read_beneath(fd, name, MOST_BYTES), file), file, origin)
    except InvalidInput as error:
        return Refused(file, error.message.removeprefix(f"{printable(file)}: "))
    except OSError as error:
        return Refused(file, f"cannot be read: {error.strerror}")


def _decoded(data: bytes, file: str) -> Mapping[str, object]:
    try:
        text = data.decode("utf-8")
        if file.endswith(".toml"):
            return tomllib.loads(text)
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"cannot be understood: {error}") from None
    return _decoded_yaml(text)


def _decoded_yaml(text: str) -> Mapping[str, object]:
    from holdfast.intake.values import Fault
    from holdfast.intake.yamltext import load  # only where there is YAML

    try:
        value = load(text)
    except Fault as error:
        raise InvalidInput(f"line {error.line}: {error.message}" if error.line else error.message) from None
    if not isinstance(value, dict):
        raise InvalidInput("must be a table with id, description and files")
    return value
