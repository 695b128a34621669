"""What the rules of a repository say to a path, as far as that can be said without git.

    .git/info/exclude  <  .gitignore  <  d/.gitignore  <  d/e/.gitignore     the last rule of the strongest file decides

To start git costs more than a whole capture, and most changes match no rule. So there is a coarse sieve: a path is
ignored only if the last fixed name of some rule matches a name in the path, and that alone is looked at.
What passes it is judged as git does where every rule that could matter is plain: fixed names, `*`, `?`, sets of
letters, and `**` for directories.

Invariants
  E2  The sieve never holds back a path that git would ignore. What it does not understand it lets through:
      rules that are no plain files, settings that name more of them, a `.git` that is no directory.
      Meant is what git adds or leaves out: `git check-ignore` alone sees an empty name after the slash of a directory
      that it is asked about, and lets rules of nothing (blanks, a slash) and the directory's own `*` match that.
  E4  A judgement is what `git check-ignore --no-index` says, or there is none: for a rule that is not plain and might
      matter, for one whose answer depends on what stands in the workspace, and where nothing is clear to the sieve.
      Whether the repository itself is one that git would answer for is asked of `gitplain`.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from holdfast.disk.confined import Root

_LOOK = os.O_PATH | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_LIMIT = 1 << 20
_MORE_RULES = re.compile(rb"excludesfile|include", re.IGNORECASE)
_WILD = re.compile(rb"[*?\[\]\\]")
_STARS = re.compile(rb"\*+")
_PIECE = re.compile(rb"(\*+)|(\?)|(\[[A-Za-z0-9]+\])|([^*?\[\]\\]+)")
# What git matches with more or fewer slashes than are written: `a**/b` also `ab`, and a set may hold one. So no name in
# a path must be like one in the pattern.
_UNNAMED = re.compile(rb"[^/]\*\*+/|\[[^/]*/", re.DOTALL)
# Each may try every place in a name: more of them take longer than git is given.
_MOST_STARS = 3
_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_PLAIN_INDEX = b"DIRC\0\0\0\2"
_BOM = b"\xef\xbb\xbf"
_ANY_DIRECTORIES = b"**"


class Unclear(Exception):
    """Only git can tell."""


class Rule(NamedTuple):
    """One line. `whole`: it speaks about paths below its file, not about single names.

    `start` and `end` are those of its last fixed name in small letters; what matches the rule has a name like that.
    """

    pattern: bytes
    takes_back: bool
    only_directories: bool
    whole: bool
    fixed: bool
    start: bytes
    end: bytes

    def may(self, names: Iterable[bytes]) -> bool:
        if self.fixed:
            return self.start in names
        return any(name.startswith(self.start) and name.endswith(self.end) for name in names)


class _File(NamedTuple):
    """The rules of one file, for what is below the directory it speaks for."""

    base: bytes
    rules: tuple[Rule, ...]


class Here(NamedTuple):
    """What holds in one directory of the workspace.

    `repository` is the innermost one that holds the directory, None for none and for what lies behind a link.
    `inside`: the names of the directory itself passed the sieve. `names` is None where nothing is clear.
    """

    repository: str | None
    files: tuple[_File, ...]
    names: Names | None
    inside: bool

    def may(self, names: Sequence[str]) -> Sequence[str]:
        """Those of some names here that a rule could ignore."""
        if self.repository is None:
            return ()
        return names if self.names is None or self.inside else self.names.among(names)


class Names:
    """What the last fixed names of some rules say to single names."""

    def __init__(self, files: Iterable[_File]) -> None:
        # What takes something back makes nothing ignored.
        rules = [rule for file in files for rule in file.rules if not rule.takes_back]
        self._exact = frozenset(_text(rule.start) for rule in rules if rule.fixed)
        wild = {(_text(rule.start), _text(rule.end)) for rule in rules if not rule.fixed}
        # Most have a fixed end and nothing before it, and are tried at once.
        self._ends = tuple(end for start, end in wild if not start)
        self._wild = [(start, end) for start, end in wild if start]
        self._starts = tuple(start for start, _ in self._wild)

    def among(self, names: Iterable[str]) -> list[str]:
        exact, ends, starts = self._exact, self._ends, self._starts
        found = []
        for name in names:
            text = name.lower() if name.isascii() else _text(os.fsencode(name).lower())
            if text in exact or text.endswith(ends) or (text.startswith(starts) and self._is_wild(text)):
                found.append(name)
        return found

    def _is_wild(self, text: str) -> bool:
        return any(text.startswith(start) and text.endswith(end) for start, end in self._wild)


def _text(raw: bytes) -> str:
    """Byte by byte, so that parts of names are compared as git does."""
    return raw.decode("latin-1")


_NOWHERE = Here(None, (), None, inside=False)


class Rulebook:
    """The rules of all repositories in a workspace, read as they are asked about, each file once.

    `at_hand`: the directories that the workspace's root keeps open were opened for this work, and not long ago.
    """

    def __init__(self, workspace: Root, *, at_hand: bool = False) -> None:
        self._workspace, self._at_hand = workspace, at_hand
        self._here: dict[str, Here] = {}
        self._excluded: dict[str, bool] = {}

    def here(self, directory: str) -> Here:
        """The rules for what is in a directory; without recursion, since a tree may be deeper than that."""
        found = self._here.get(directory)
        if found is not None:
            return found
        unknown = [directory]
        while unknown[-1] and (above := unknown[-1].rpartition("/")[0]) not in self._here:
            unknown.append(above)
        for path in reversed(unknown):
            above, _, name = path.rpartition("/")
            found = self._here[path] = self._entered(path, name, self._here[above] if path else _NOWHERE)
        assert found is not None
        return found

    def enter(self, directory: str, *, has_rules: bool) -> None:
        """A directory is known to have a file of rules, or none; what is above it is known."""
        above, _, name = directory.rpartition("/")
        around = self._here.get(above)
        if around is None or directory in self._here:
            return
        try:
            own = self._has(self._workspace.directory(directory), ".git")
        except OSError:
            return
        if not own and around.repository is not None:
            self._here[directory] = self._read_below(directory, name, around, has_rules=has_rules)

    def judged(self, path: str) -> bool:
        """Whether the rules ignore a path, which ends in a slash if it is a directory; Unclear where git must tell."""
        above, _, name = path.rpartition("/")
        here = self.here(above)
        if not name and here.repository != self.here(above.rpartition("/")[0]).repository:
            raise Unclear  # a repository of its own, asked about in the one around it
        return self._is_excluded(above) or _decides(here, path, name, is_directory=False)

    def _is_excluded(self, directory: str) -> bool:
        """Git stops at the first directory that is ignored, and takes nothing below it back."""
        start = self.here(directory).repository or ""
        unknown: list[str] = []
        while directory != start and directory not in self._excluded:
            unknown.append(directory)
            directory = directory.rpartition("/")[0]
        excluded = directory != start and self._excluded[directory]
        for path in reversed(unknown):
            above, _, name = path.rpartition("/")
            excluded = excluded or _decides(self.here(above), path, name, is_directory=True)
            self._excluded[path] = excluded
        return excluded

    # ── reading ──

    def _entered(self, path: str, name: str, above: Here) -> Here:
        """What holds in `path`, a directory that is called `name` in one where `above` holds."""
        own = rules = True  # perhaps: the whole path tells
        if self._at_hand:
            try:
                folder = self._workspace.directory(path)
                own, rules = self._has(folder, ".git"), above.repository is not None and self._has(folder, ".gitignore")
            except OSError as error:
                own = rules = error.errno not in _ABSENT  # new in the shadow; or closed to us, or behind a link
        repository = self._nearest(path, above.repository) if own else above.repository
        if repository is None:
            return _NOWHERE
        if repository != path:
            return self._read_below(path, name, above, has_rules=rules)
        try:
            return self._of_its_own(path)
        except Unclear:
            return Here(repository, (), None, inside=False)

    def _read_below(self, path: str, name: str, above: Here, *, has_rules: bool) -> Here:
        try:
            return self._below(path, name, above, has_rules=has_rules)
        except Unclear:
            return Here(above.repository, (), None, inside=False)

    def _has(self, folder: int, name: str) -> bool:
        try:
            self._workspace.calls.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def _nearest(self, path: str, above: str | None) -> str | None:
        calls, root = self._workspace.calls, self._workspace.fd
        try:
            fd = calls.open_beneath(_joined(path, ".git"), _LOOK, root)
        except (FileNotFoundError, NotADirectoryError):
            return above
        except OSError:
            return None  # a link or a mount in the workspace: git would refuse the path too
        calls.close(fd)
        return path

    def _of_its_own(self, path: str) -> Here:
        """A repository begins here: nothing that holds above it counts."""
        place = _joined(path, ".git")
        if _MORE_RULES.search(self._read(place, "config") + self._read(place, "config.worktree")):
            raise Unclear
        if self._may_leave_out(place):
            raise Unclear
        texts = self._read(_joined(place, "info"), "exclude"), self._read(path, ".gitignore")
        files = tuple(_File(b"", rules) for rules in map(parsed, texts) if rules)
        return Here(path, files, Names(files), inside=False)

    def _may_leave_out(self, place: str) -> bool:
        """Whether rules may stand in the index alone, as in a sparse checkout; only its later versions can say so."""
        calls = self._workspace.calls
        try:
            fd = calls.open_beneath(_joined(place, "index"), _READ, self._workspace.fd)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            return calls.read(fd, len(_PLAIN_INDEX)) != _PLAIN_INDEX
        except OSError:
            return True
        finally:
            calls.close(fd)

    def _below(self, path: str, name: str, above: Here, *, has_rules: bool) -> Here:
        if above.names is None:
            raise Unclear
        inside = above.inside or bool(above.names.among([name]))
        found = parsed(self._read(path, ".gitignore")) if has_rules else ()
        if not found:
            return above if inside == above.inside else above._replace(inside=inside)
        files = (*above.files, _File(_inner(above, path), found))
        return Here(above.repository, files, Names(files), inside)

    def _read(self, directory: str, name: str) -> bytes:
        calls = self._workspace.calls
        try:
            fd = calls.open_beneath(_joined(directory, name), _READ, self._workspace.fd)
        except OSError as error:
            # A `.git` that is no directory is a linked work tree, whose rules are elsewhere.
            if error.errno == errno.ENOENT or (error.errno in _ABSENT and name == ".gitignore"):
                return b""
            raise Unclear from error
        try:
            about = calls.fstat(fd)
            if not stat.S_ISREG(about.st_mode) or about.st_size > _LIMIT:
                raise Unclear
            return calls.read(fd, about.st_size)
        except OSError as error:
            raise Unclear from error
        finally:
            calls.close(fd)


# ── judging, as git does ──


def _decides(here: Here, path: str, name: str, *, is_directory: bool) -> bool:
    """Whether the last rule that matches ignores the path; `is_directory`: known to be one."""
    if here.names is None:
        raise Unclear
    inner = _inner(here, path)
    names = inner.lower().split(b"/")
    for base, rules in reversed(here.files):
        below = inner[len(base) + 1 :] if base else inner
        for rule in reversed(rules):
            if _matches(rule, below if rule.whole else os.fsencode(name), names):
                if rule.only_directories and not is_directory:
                    raise Unclear  # git looks what the workspace has there
                return not rule.takes_back
    return False


def _matches(rule: Rule, text: bytes, names: list[bytes]) -> bool:
    pattern = rule.pattern
    if _WILD.search(pattern) is None:
        return text == pattern
    if text and not rule.may(names):
        return False
    form = _form(pattern, rule.whole)
    if form is None:
        raise Unclear
    return form.fullmatch(text) is not None


@lru_cache(maxsize=512)
def _form(pattern: bytes, whole: bool) -> re.Pattern[bytes] | None:
    """A plain pattern as an expression; None for any other."""
    if len(_STARS.findall(pattern)) > _MOST_STARS:
        return None
    parts = pattern.split(b"/") if whole else [pattern]
    spelled: list[bytes] = []
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if whole and part == _ANY_DIRECTORIES:
            spelled.append(b".*" if last else b"(?:.*/)?")
            continue
        one = _spelled(part, whole=whole)
        if one is None:
            return None
        spelled.append(one if last else one + b"/")
    return re.compile(b"".join(spelled), re.DOTALL)


def _spelled(part: bytes, *, whole: bool) -> bytes | None:
    """One name of a pattern. `**` within a name of a path has a meaning that depends on what stands before it."""
    pieces = _PIECE.findall(part)
    if not part or b"".join(b"".join(piece) for piece in pieces) != part or (whole and _ANY_DIRECTORIES in part):
        return None
    spelling = []
    for stars, mark, letters, text in pieces:
        spelling.append(b"[^/]*" if stars else b"[^/]" if mark else letters or re.escape(text))
    return b"".join(spelling)


@lru_cache(maxsize=64)
def parsed(text: bytes) -> tuple[Rule, ...]:
    """The rules of a file, in order."""
    lines = (line for line in text.removeprefix(_BOM).split(b"\n") if line and not line.startswith(b"#"))
    # Git reads a line as far as a zero, and takes blanks away at the end of it, but no other white space.
    return tuple(_rule(line.removesuffix(b"\r").partition(b"\0")[0].rstrip(b" ")) for line in lines)


def _rule(line: bytes) -> Rule:
    takes_back = line.startswith(b"!")
    pattern = line[1:] if takes_back else line
    only_directories = pattern.endswith(b"/")
    pattern = pattern.removesuffix(b"/")
    whole = b"/" in pattern
    if _UNNAMED.search(pattern) is not None:
        return Rule(pattern.removeprefix(b"/"), takes_back, only_directories, whole, False, b"", b"")
    fixed = [name for name in pattern.lower().split(b"/") if name.strip(b"*")]
    last = fixed[-1] if fixed else b"*" if pattern else b""
    specials = [match.end() for match in _WILD.finditer(last)]
    if not specials:
        return Rule(pattern.removeprefix(b"/"), takes_back, only_directories, whole, True, last, b"")
    end = last[specials[-1] :]
    # The character after a backslash stands for itself, and may be a blank that was cut off above.
    end = end[1:] if last[specials[-1] - 1 : specials[-1]] == b"\\" else end
    start = last[: specials[0] - 1]
    return Rule(pattern.removeprefix(b"/"), takes_back, only_directories, whole, False, start, end)


def _inner(here: Here, path: str) -> bytes:
    """A path as it is below its repository."""
    return os.fsencode(path[len(here.repository) + 1 :] if here.repository else path)


def _joined(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name
