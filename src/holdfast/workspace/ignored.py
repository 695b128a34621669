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

A leading `./` keeps git from reading a meaning into the first characters of a path.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from holdfast.errors import Blocked
from holdfast.model.path import ancestors_of, parent_of, printable
from holdfast.sandbox.process import Command, run
from holdfast.workspace.gitindex import surely_untracked
from holdfast.workspace.gitplace import place_of, require_plain_rules
from holdfast.workspace.plumbing import HARMLESS, QUIET
from holdfast.workspace.sieve import sifted
from holdfast.workspace.site import Site

_LOOK = os.O_PATH | os.O_NOFOLLOW
_TIMEOUT_MS = 60_000
_MOST_NAMES = 1 << 22


def ignored_paths(site: Site, paths: Iterable[str]) -> frozenset[str]:
    """Those of `paths` that the rules ignore; a directory is given with a slash at its end, and returned without."""
    found: set[str] = set()
    for repository, inner in _by_repository(site, paths).items():
        place = os.path.join(site.path, repository) if repository else site.path
        start = f"{repository}/" if repository else ""
        # To start git costs more than a whole capture: it is asked only if it may matter.
        candidates = sifted(site.workspace, repository, inner)
        untracked = bool(candidates) and surely_untracked(site.workspace, repository, candidates)
        answers = _asked(place, candidates, untracked=untracked) if candidates else []
        found.update(start + path.rstrip("/") for path in answers)
    return frozenset(found)


def tracked_paths(site: Site, paths: Sequence[str]) -> tuple[str, ...]:
    """The tracked files at or below these paths, sorted: whoever sees `.git` sees what they held when committed."""
    found: list[str] = []
    for repository, inner in _by_repository(site, paths).items():
        place = os.path.join(site.path, repository) if repository else site.path
        start = f"{repository}/" if repository else ""
        words = ("--literal-pathspecs", "ls-files", "-z", "--", *inner)
        found += [start + os.fsdecode(name) for name in _answers(place, words, b"", _MOST_NAMES, good=(0,))]
    return tuple(sorted(found))


def _by_repository(site: Site, paths: Iterable[str]) -> dict[str, list[str]]:
    """The paths by the innermost repository of the workspace that holds them; those in none are left out."""
    known: dict[str, str | None] = {}
    chosen: dict[str, list[str]] = {}
    for path in paths:
        directory = parent_of(path.rstrip("/"))
        repository = known[directory] if directory in known else _repository(site, directory, known)
        if repository is not None:
            inner = path[len(repository) + 1 :] if repository else path
            chosen.setdefault(repository, []).append(inner)
    return chosen


def _repository(site: Site, directory: str, known: dict[str, str | None]) -> str | None:
    """The nearest directory at or above that has a `.git`; None for none, and for what lies behind a link."""
    for path in ["", *ancestors_of(f"{directory}/x")] if directory else [""]:
        if path not in known:
            known[path] = _nearest(site, path, known.get(parent_of(path)) if path else None)
    return known[directory]


def _nearest(site: Site, path: str, above: str | None) -> str | None:
    try:
        fd = site.calls.open_beneath(f"{path}/.git" if path else ".git", _LOOK, site.workspace.fd)
    except (FileNotFoundError, NotADirectoryError):
        return above  # no repository of its own, or new in the shadow
    except OSError:
        return None  # a link or a mount in the workspace: git would refuse the path too
    site.calls.close(fd)
    return path


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
        raise _unclear(done.output)
    return done.output.split(b"\0")[:-1]


def _unclear(output: bytes) -> Blocked:
    said = output[-200:].decode("utf-8", "replace").strip()
    return Blocked(f"git cannot say which paths are ignored or tracked: {printable(said)}")
