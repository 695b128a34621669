"""The first prompt: what an agent is told besides its task, found before it begins. The same for every agent.

    checks ....... the commands that check the work, those whose tools are there
    failing ...... what fails now: the line that decides first, then the end of what the check printed
    files ........ those that the task names, and those that a failure names; else those that its words lead to
    map .......... where no file is named: a short map of the repository
    conventions .. what AGENTS.md and the like say, in the root and beside the files
    protected .... what a change of this agent may not touch

Each part can be switched off by the user's configuration (`[prompt]`).

Invariants
  G1  Everything is read from the view of the shadow: hidden paths are not there, no symbolic link is followed, and only
      files that are code, tests or words are opened. Known shapes of secrets are masked.
  G2  Every part is bounded, whatever the repository holds.
  G3  What cannot be looked at is left out: no part is a condition of the work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast.checks.tree import Tree
from holdfast.checks.viewed import tree_in
from holdfast.context.outline import repository_map
from holdfast.context.relevance import Document, ranked
from holdfast.engine.checking import Checking, Landable, Standing
from holdfast.errors import HoldfastError, Interrupted
from holdfast.gates.layers import layered
from holdfast.gates.secrets import masked
from holdfast.model.agent import Request
from holdfast.model.configuration import Settings
from holdfast.model.execution import Receipt
from holdfast.model.path import TOOL_DIRECTORIES, is_ordinary, parent_of, printable
from holdfast.model.plan import Plan
from holdfast.planning.failures import understood
from holdfast.planning.filekinds import kind_of_file
from holdfast.store.blobs import Blobs
from holdfast.workspace.shadow import Shadow
from holdfast.workspace.site import Site

CONVENTION_FILES = ("AGENTS.md", "CLAUDE.md", "CONVENTIONS.md")
_MOST_COMMANDS, _MOST_PROTECTED = 8, 40
_MOST_FAILURES, _FAILURE_BYTES, _FAILING_BYTES = 3, 2_500, 6_000
_CONVENTION_BYTES, _CONVENTIONS_BYTES = 4_000, 6_000
# Of a repository: files that are listed, bytes of one that is read, bytes of all.
_MOST_FILES, _READ_BYTES, _ALL_BYTES = 5_000, 200_000, 4_000_000
_FOUND_BY_WORDS, _MAPPED = 5, 12
_NUMBER, _LEAST_TITLE = re.compile(r"\A[A-Z]{0,3}\d[\w.]*:\s+"), 12
_FOREIGN = frozenset("vendor third_party bower_components target dist build".split())
_READ = ("code", "test", "documentation")


class _Seen(NamedTuple):
    """The files of a repository, and the texts of those that were read."""

    paths: tuple[str, ...]
    texts: dict[str, str]


class FirstPrompt:
    """Of one plan; made where its agent is about to begin."""

    def __init__(self, site: Site, settings: Settings, checking: Checking, plan: Plan) -> None:
        self._site, self._settings, self._checking, self._plan = site, settings, checking, plan
        self._parts = settings.prompt

    def filled(self, request: Request, shadow: Shadow, landable: Landable, agent: str) -> Request:
        """The request with everything that is switched on. `landable` is what earlier steps of the plan did."""
        standing = self._standing(request, shadow, landable)
        if self._parts.protected:
            request = request._replace(protected=protected_for(self._settings, agent))
        if self._parts.checks:
            request = request._replace(checks=tuple(map(masked, standing.commands[:_MOST_COMMANDS])))
        request = request._replace(failing=self._failing(standing.failed))
        try:
            with tree_in(shadow.view) as tree:
                return self._with_files(request, tree, standing.failed)
        except OSError:
            return request  # G3

    def _standing(self, request: Request, shadow: Shadow, landable: Landable) -> Standing:
        if not self._parts.checks and not self._parts.failing:
            return Standing()
        # Without any path nothing would be looked at, so the root stands for all.
        paths = (*request.files, *request.expected) or (".",)
        beside = landable._replace(beside=(*landable.beside, *paths))
        try:
            return self._checking.standing(shadow, self._plan, beside, run=self._parts.failing)
        except Interrupted:
            raise
        except (HoldfastError, OSError):
            return Standing()  # G3; the same checks are asked again after the work, and then it counts

    def _failing(self, failed: Sequence[Receipt]) -> str:
        told = "\n\n".join(self._failure(receipt) for receipt in failed[:_MOST_FAILURES])
        return _cut(told, _FAILING_BYTES)

    def _failure(self, receipt: Receipt) -> str:
        """What decides first, and then the end of what was printed."""
        log = masked(self._log(receipt))
        found = understood(receipt, log.encode("utf-8", "replace"), root=self._site.seen_at)
        end = log[-_FAILURE_BYTES // 2 :].strip()
        first = f"{found.around}\n" if found.around and found.around not in end else ""
        return _cut(f"{masked(self._plain(receipt.detail))}\n{first}[…]\n{end}", _FAILURE_BYTES)

    def _log(self, receipt: Receipt) -> str:
        log = Blobs(self._site.state).get(receipt.log_digest) if receipt.log_digest else b""
        return self._plain(log.decode("utf-8", "replace"))

    def _plain(self, text: str) -> str:
        """Paths as the workspace has them."""
        return text.replace(f"{self._site.seen_at}/", "")

    # ── files ──

    def _with_files(self, request: Request, tree: Tree, failed: Sequence[Receipt]) -> Request:
        named = (*request.files, *request.expected)
        if self._parts.conventions:
            request = request._replace(conventions=_conventions(tree, named))
        if not self._parts.files and not self._parts.map:
            return request
        seen = _seen_in(tree)
        reported = self._reported(failed, frozenset(seen.paths)) if self._parts.files else ()
        if named:
            return request._replace(files=tuple(dict.fromkeys((*request.files, *reported))))
        texts = ((path, text) for path, text in seen.texts.items() if not _states(path, text, request.task))
        found = ranked(request.task, (Document(path, text) for path, text in texts))
        if self._parts.files:
            request = request._replace(files=tuple(dict.fromkeys((*found[:_FOUND_BY_WORDS], *reported))))
        if self._parts.map:
            mapped = tuple(dict.fromkeys((*request.files, *found)))[:_MAPPED]
            request = request._replace(outline=masked(repository_map(mapped, seen.texts, seen.paths)))
        return request

    def _reported(self, failed: Sequence[Receipt], known: frozenset[str]) -> tuple[str, ...]:
        """The files that failures name; a runner also names those of others."""
        places = (
            place.path
            for receipt in failed[:_MOST_FAILURES]
            for place in understood(receipt, self._log(receipt).encode("utf-8", "replace"), known).places
        )
        return tuple(dict.fromkeys(path for path in places if path in known))[:_FOUND_BY_WORDS]


def protected_for(settings: Settings, agent: str) -> tuple[str, ...]:
    """Patterns that the policy forbids to this agent, as sentences where they are more than a pattern."""
    try:
        policy = layered(settings.policy)
    except HoldfastError:
        return ()  # G3; nothing will be decided with such a policy, and whoever decides says so
    reaches = [reach for reach in policy.reaches if reach.agent == agent]
    allowed = (reach.may_change for reach in reaches if reach.may_change is not None)
    only = (f"everything but {', '.join(paths[:_MOST_PROTECTED])}" for paths in allowed)
    denying = (rule.paths for rule in policy.rules if rule.verdict == "DENY" and not rule.operations)
    forbidden = (path for paths in (*(reach.must_not_change for reach in reaches), *denying) for path in paths)
    return tuple(dict.fromkeys((*only, *forbidden)))[:_MOST_PROTECTED]


def _states(path: str, text: str, task: str) -> bool:
    """Is this where the task is written down? A roadmap has all of its words, and is not where it is to be done."""
    title = _NUMBER.sub("", task.partition("\n")[0]).strip()
    return kind_of_file(path) == "documentation" and len(title) >= _LEAST_TITLE and title in text


def _conventions(tree: Tree, named: Sequence[str]) -> str:
    """Of the root, and of every folder above a named file, the outermost first."""
    folders = dict.fromkeys(("", *sorted({above for path in named for above in _above(path)}, key=len)))
    told: dict[str, str] = {}
    for path in (f"{folder}/{name}" if folder else name for folder in folders for name in CONVENTION_FILES):
        text = _text_of(tree, path).strip()
        if text and text not in told.values():
            told[path] = text
    parts = (f"{printable(path)}:\n{_cut(text, _CONVENTION_BYTES)}" for path, text in told.items())
    return _cut(masked("\n\n".join(parts)), _CONVENTIONS_BYTES)


def _above(path: str) -> Iterator[str]:
    while path := parent_of(path):
        yield path


def _seen_in(tree: Tree) -> _Seen:
    """Folder by folder, the outermost first; code is read before tests and words, until enough is read."""
    paths: list[str] = []
    folders = [""]
    for folder in folders:
        for name in sorted(tree.names(folder)):
            path = f"{folder}/{name}" if folder else name
            if name.endswith("/"):
                if _is_of_the_project(name[:-1]):
                    folders.append(path[:-1])
            elif is_ordinary(path) and kind_of_file(path) != "key":
                paths.append(path)
        if len(paths) >= _MOST_FILES:
            break
    texts: dict[str, str] = {}
    room = _ALL_BYTES
    for path in (path for kind in _READ for path in paths[:_MOST_FILES] if kind_of_file(path) == kind):
        if room <= 0:
            break
        texts[path] = _text_of(tree, path)
        room -= len(texts[path])
    return _Seen(tuple(paths[:_MOST_FILES]), texts)


def _is_of_the_project(name: str) -> bool:
    return not name.startswith(".") and name not in TOOL_DIRECTORIES and name not in _FOREIGN


def _text_of(tree: Tree, path: str, most: int = _READ_BYTES) -> str:
    """Empty where there is no plain file, or none of text."""
    try:
        data = tree.read(path)[:most]
    except OSError:
        return ""
    return "" if b"\0" in data else data.decode("utf-8", "replace")


def _cut(text: str, most: int) -> str:
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= most else f"{raw[:most].decode('utf-8', 'ignore')}\n[… cut]"
