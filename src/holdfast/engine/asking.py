"""Words become a plan only by what is known: the planner's rules, and the files they speak of."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

from holdfast.checks.detect import detect
from holdfast.checks.viewed import tree_in
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.model.path import checked_path, parent_of
from holdfast.model.plan import Agent, Plan
from holdfast.planning.classify import classify
from holdfast.planning.expected import expected_files, mentioned_files
from holdfast.planning.requests import Eyes
from holdfast.planning.shape import shape
from holdfast.planning.words import Understood
from holdfast.planning.words import understand as understand_words
from holdfast.sandbox.view import View
from holdfast.workspace.observe import look
from holdfast.workspace.site import Site

_MOST = 1 << 20
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


def understand(site: Site, words: str) -> Understood:
    site.workspace.forget()
    eyes = Eyes(lambda path: _content(site, path), lambda path: _mode(site, path))
    return understand_words(words, eyes, lambda paths: _checks_for(site, paths))


def _checks_for(site: Site, paths: Sequence[str]) -> frozenset[str]:
    """The levels for which the workspace has a check of these paths; none where it cannot be looked at."""
    try:
        with tree_in(View(site.path, site.path)) as tree:
            return frozenset(check.level for check in detect(tree, paths).checks)
    except OSError:
        return frozenset()


def _content(site: Site, path: str) -> bytes | None:
    """The text of a small file; None for everything else."""
    found = _found(site, path)
    if found is None or not stat.S_ISREG(found.st_mode) or found.st_size > _MOST:
        return None
    fd = site.calls.open_beneath(path, _READ, site.workspace.fd)
    try:
        return site.calls.pread(fd, _MOST, 0)
    finally:
        site.calls.close(fd)


def _mode(site: Site, path: str) -> int | None:
    found = _found(site, path)
    return None if found is None else stat.S_IMODE(found.st_mode)


def _found(site: Site, path: str) -> os.stat_result | None:
    try:
        plain = checked_path(path)
        return look(site.calls, site.workspace.directory(parent_of(plain)), plain.rpartition("/")[2])
    except (HoldfastError, OSError):
        return None  # whatever cannot be looked at, words cannot speak of


def task_plan(words: str, agent: str, expected: tuple[str, ...], attempts: int, within_ms: int) -> Plan:
    """The words as a task for an agent; what they ask to be made is expected, what they mention is worth a look."""
    task = words.strip()
    if not task or not agent:
        raise InvalidInput("a task needs words, and an agent")
    paths = tuple(dict.fromkeys((*map(checked_path, expected), *expected_files(task))))
    files = tuple(path for path in mentioned_files(task) if path not in paths)
    step = Agent(agent, task, files, paths, attempts, within_ms)
    return shape(Plan(task, (step,)), classify(task)).plan
