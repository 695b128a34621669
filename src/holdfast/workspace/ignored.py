"""Which paths the repository's own rules ignore, and which it tracks, asked of the real git in the workspace.

Invariants
  I1  Git is told where the repository and the work tree are, and only if that place knows this work tree and holds
      nothing that leads elsewhere (`gitplace`): a `.git` from a stranger gets no word from another repository.
      It gets no environment of ours, and no configuration can make it start a program, fetch, or write.
  I2  The rules are read from the workspace, never from a shadow: what an agent wrote into `.gitignore` has no say.
  I3  Tracked paths are never ignored, whatever the rules say.
  I4  Output that is not understood is an error, never an answer.
  I5  Git is spared its index only where none of the paths it is asked about can be tracked (`gitindex`):
      the answer is the same then, and its cost does not grow as git's does with the repository.
  I6  Git is spared altogether where the answer is its own without any doubt: what no rule can match is not ignored,
      and what plain rules ignore (`gitrules`) in a plain repository (`gitplain`) is, if it surely is not tracked.
  I7  Git is not asked where it would wait for something else than a file of rules.

A leading `./` keeps git from reading a meaning into the first characters of a path.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence

from holdfast.errors import Blocked
from holdfast.model.path import ancestors_of, parent_of, printable
from holdfast.sandbox.process import Command, run
from holdfast.workspace.gitindex import surely_untracked
from holdfast.workspace.gitplace import place_of, require_plain_rules
from holdfast.workspace.gitplain import is_plain
from holdfast.workspace.gitrules import Rulebook, Unclear
from holdfast.workspace.plumbing import HARMLESS, QUIET
from holdfast.workspace.site import Site
from holdfast.workspace.touched import joined

_RULES = ".gitignore"
_TIMEOUT_MS = 60_000
_MOST_NAMES = 1 << 22


def ignored_paths(site: Site, paths: Iterable[str], rules: Rulebook | None = None) -> frozenset[str]:
    """Those of `paths` that the rules ignore; a directory is given with a slash at its end, and returned without.

    `rules`: what was read of them a moment ago.
    """
    rules = rules or Rulebook(site.workspace)
    directories: dict[str, dict[str, list[str]]] = {}
    for path in paths:
        above, _, name = path.rstrip("/").rpartition("/")
        directories.setdefault(above, {}).setdefault(name, []).append(path)
    # To start git costs more than a whole capture: it is asked only if it may matter.
    candidates: dict[str, list[str]] = {}
    for above, named in directories.items():
        here = rules.here(above)
        if here.repository is not None:
            some = (path for name in here.may([*named]) for path in named[name])
            candidates.setdefault(here.repository, []).extend(some)
    found = (path for place, some in candidates.items() if some for path in _ignored_in(site, place, some, rules))
    return frozenset(path.rstrip("/") for path in found)


def tracked_paths(site: Site, paths: Sequence[str]) -> tuple[str, ...]:
    """The tracked files at or below these paths, sorted: whoever sees `.git` sees what they held when committed."""
    found: list[str] = []
    rules = Rulebook(site.workspace)
    chosen: dict[str, list[str]] = {}
    for path in paths:
        repository = rules.here(parent_of(path.rstrip("/"))).repository
        if repository is not None:
            chosen.setdefault(repository, []).append(path[len(repository) + 1 :] if repository else path)
    for repository, inner in chosen.items():
        place, start = _place(site, repository)
        words = ("--literal-pathspecs", "ls-files", "-z", "--", *inner)
        found += [start + os.fsdecode(name) for name in _answers(place, words, b"", _MOST_NAMES, good=(0,))]
    return tuple(sorted(found))


def _ignored_in(site: Site, repository: str, candidates: list[str], rules: Rulebook) -> list[str]:
    judged = _judged(site, repository, candidates, rules)
    place, start = _place(site, repository)
    asked = [path[len(start) :] for path in (candidates if judged is None else judged)]
    untracked = bool(asked) and surely_untracked(site.workspace, repository, asked)
    if judged is not None and (untracked or not asked):
        return judged
    _require_rules_are_files(site, start, asked)
    return [start + path for path in _asked(place, asked, untracked=untracked)]


def _require_rules_are_files(site: Site, start: str, paths: Sequence[str]) -> None:
    """I7. What is not there, or behind a link, git finds the words for."""
    directories = {above for path in paths for above in ("", *ancestors_of(path))}
    for directory in sorted(directories):
        path = start + directory
        try:
            folder = site.workspace.directory(path.rstrip("/"))
            found = site.calls.stat(_RULES, dir_fd=folder, follow_symlinks=False)
        except OSError:
            continue
        if stat.S_IFMT(found.st_mode) not in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
            raise Blocked(
                f"{printable(joined(path.rstrip('/'), _RULES))} is no file: git would wait for it",
                hint="Nothing was changed. Remove it, or put a file there.",
            )


def _judged(site: Site, repository: str, candidates: Sequence[str], rules: Rulebook) -> list[str] | None:
    """What the rules alone ignore, tracked or not; None where they do not suffice (I6)."""
    try:
        judged = [path for path in candidates if rules.judged(path)]
    except Unclear:
        return None
    return judged if is_plain(site.workspace, repository) else None


def _place(site: Site, repository: str) -> tuple[str, str]:
    """Where a repository is, and how the paths of the workspace begin that are in it."""
    return (os.path.join(site.path, repository), f"{repository}/") if repository else (site.path, "")


def _asked(place: str, paths: Sequence[str], *, untracked: bool) -> list[str]:
    words = ("check-ignore", *(("--no-index",) if untracked else ()), "--stdin", "-z")
    wanted = {b"./" + os.fsencode(path): path for path in paths}
    asked = b"\0".join(wanted) + b"\0"
    answers = _answers(place, words, asked, len(asked) + (1 << 16), good=(0, 1))
    strange = next((answer for answer in answers if answer not in wanted), None)
    if strange is not None:
        raise _unclear(strange)
    return [wanted[answer] for answer in answers]


def _answers(place: str, words: Sequence[str], asked: bytes, most: int, *, good: tuple[int, ...]) -> list[bytes]:
    """What git lists, each ended by a NUL; Blocked when it fails, or says anything else (I4)."""
    where = place_of(place)  # I1
    if where is None:
        raise Blocked(f"the repository at {printable(place)} is gone", hint="Nothing was changed.")
    require_plain_rules(where)
    start = ("git", f"--git-dir={where.own}", f"--work-tree={where.top}", *HARMLESS)
    done = run(Command((*start, *words), place, QUIET, _TIMEOUT_MS, output_limit=most, stdin=asked))
    if done.exit_code not in good or done.output_truncated or done.output[-1:] not in (b"", b"\0"):
        raise _unclear(b"it took too long" if done.timed_out else done.output)
    return done.output.split(b"\0")[:-1]


def _unclear(output: bytes) -> Blocked:
    said = output[-200:].decode("utf-8", "replace").strip()
    return Blocked(f"git cannot say which paths are ignored or tracked: {printable(said)}")
