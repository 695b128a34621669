"""Where git keeps what belongs to a work tree: found, and looked at, before git itself is let near it.

    work tree ──`.git`──▶ own (HEAD, index) ──`commondir`──▶ common (objects, references, settings)

A tree from a stranger brings its `.git` along. Git believes what stands there: it follows links and pointers,
appends to its logs through them, and reads what they lead to. So everybody here asks for the place first.

Invariants
  E1  A `.git` that leads elsewhere counts only if that place knows this work tree, and a common place only if it is
      the one that `own` is a work tree of: otherwise we would commit into another repository of the user,
      or hand its contents to an agent. It does not stand in the work tree itself, where an agent's changes land.
  E2  What git reads or writes for us stands in the two directories themselves: no link, no mount, no FIFO or device,
      nothing of a size that git's files do not have. A log has one name only: git appends to it where it stands.
  E3  Nothing here waits: what is opened is opened without following and without blocking.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.confined import Root
from holdfast.errors import Blocked
from holdfast.model.path import ancestors_of, printable
from holdfast.workspace.gitsettings import read_settings

_GIT = ".git"
_LOOK = os.O_PATH | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_LONGEST_POINTER = 8192
_MOST = 1 << 30
_SYMBOLIC = b"ref:"
_BRANCHES = "refs/heads/"
_MOST_SYMBOLIC = 8
_NOWHERE = (errno.ENOENT, errno.ENOTDIR)
_BEHIND = (errno.ELOOP, errno.EXDEV)
# Whatever of these there is, in either directory.
_KNOWN = (
    "HEAD",
    "config",
    "config.worktree",
    "index",
    "info/attributes",
    "info/grafts",
    "logs/HEAD",
    "packed-refs",
    "refs/heads",
    "shallow",
)
# Of these, whatever is in them too; git writes into each two-digit folder of `objects`, and `pack`.
_FOLDERS = ("objects", "objects/info", "reftable")
_SHARED_INDEX = "sharedindex."
_RULES = "info/exclude"


class Place(NamedTuple):
    """`own` is of this work tree only, `common` is shared by all of one repository; mostly they are the same."""

    top: str
    own: str
    common: str

    @property
    def both(self) -> tuple[str, ...]:
        return (self.own,) if self.own == self.common else (self.own, self.common)


def place_of(work_tree: str, calls: Calls = CALLS) -> Place | None:
    """The repository of this very directory, linked work trees and submodules included; None where it has none.

    Blocked for one that does not know it (E1), or in which git would be led elsewhere (E2).
    """
    top = os.path.realpath(work_tree)
    own = _own(top)
    if own is None:
        return None
    place = Place(top, own, _common(own, top))
    require_plain(place, calls)
    if own != os.path.join(top, _GIT) and place.common == own:
        _require_known(place, calls)
    return place


def require_plain(place: Place, calls: Calls = CALLS) -> None:
    """E2, for what git reads: the known files, what may stand in for them, and each reference on HEAD's way."""
    for directory in place.both:
        with Root(directory, calls) as root:
            for name in (*_KNOWN, *_FOLDERS):
                _looked_at(root, name)
            for folder in _FOLDERS:
                for name in _names(root, folder):
                    _looked_at(root, f"{folder}/{name}")
            for name in _names(root, ""):
                if name.startswith(_SHARED_INDEX):
                    _looked_at(root, name)
    _require_plain_head(place, calls)


def require_plain_rules(place: Place, calls: Calls = CALLS) -> None:
    """E2, for what git reads to say what is ignored; nobody else lets it read that."""
    for directory in place.both:
        with Root(directory, calls) as root:
            _looked_at(root, _RULES)


def require_writable(place: Place, ref: str, calls: Calls = CALLS) -> None:
    """E2, for what git writes when this reference moves."""
    # Git has other names too, of other work trees' references, whose logs are elsewhere than one would look.
    if ref != "HEAD" and not ref.startswith(_BRANCHES):
        raise Blocked(f"what is checked out in {printable(place.top)} is {printable(ref)}, which is no branch")
    log = f"logs/{ref}"
    for directory in place.both:
        with Root(directory, calls) as root:
            for name in (*ancestors_of(ref), ref, *ancestors_of(log)):
                _looked_at(root, name)
            for name in (log, "logs/HEAD"):
                found = _looked_at(root, name)
                if found is not None and stat.S_ISREG(found.st_mode) and found.st_nlink > 1:
                    where = printable(os.path.join(directory, name))
                    raise Blocked(f"{where} has a second name: what git appends to it would stand there too")


def small(root: Root, path: str, most: int) -> bytes | None:
    """A regular file's bytes; None where there is none, and for anything else (E3)."""
    try:
        fd = root.calls.open_beneath(path, _READ, root.fd)
    except OSError as error:
        if error.errno in (*_NOWHERE, *_BEHIND, errno.ENXIO):
            return None
        raise
    try:
        about = root.calls.fstat(fd)
        if not stat.S_ISREG(about.st_mode):
            return None
        if about.st_size > most:
            raise Blocked(f"{printable(os.path.join(root.path, path))} is larger than any such file of git")
        return b"".join(iter(lambda: root.calls.read(fd, 1 << 20), b""))
    finally:
        root.calls.close(fd)


# ── E1 ──


def _own(top: str) -> str | None:
    path = os.path.join(top, _GIT)
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(mode):
        return path
    if not stat.S_ISREG(mode):
        raise Blocked(f"{printable(path)} is neither a directory nor a file; git's data must not be behind a link")
    text = _pointer(top, _GIT) or ""
    if not text.startswith("gitdir: "):
        raise Blocked(f"{printable(path)} does not say where the repository is")
    target = os.path.realpath(os.path.join(top, text.removeprefix("gitdir: ")))
    if not os.path.isdir(target):
        raise Blocked(f"{printable(path)} leads to {printable(target)}, which is not there")
    if f"{target}/".startswith(f"{top}/"):
        raise Blocked(f"{printable(path)} leads to {printable(target)}, a folder that changes land in like any other")
    return target


def _common(own: str, top: str) -> str:
    """Where objects and branches are: elsewhere for a linked work tree, which its repository must know (E1)."""
    if not os.path.lexists(os.path.join(own, "commondir")):
        return own
    if own == os.path.join(top, _GIT):
        raise Blocked(f"{printable(own)} borrows its objects and branches from another place")
    back = _pointer(own, "gitdir")
    if not back or os.path.realpath(os.path.join(own, back)) != os.path.join(top, _GIT):
        raise Blocked(f"{printable(top)} claims to be a work tree of {printable(own)}, which does not know it")
    pointer = _pointer(own, "commondir")
    common = os.path.realpath(os.path.join(own, pointer)) if pointer else ""
    # `own` may be the stranger's as well, and say that it belongs to whom it likes.
    if os.path.dirname(own) != os.path.join(common, "worktrees"):
        raise Blocked(f"{printable(own)} claims to be of {printable(common)}, which has no such work tree")
    return common


def _require_known(place: Place, calls: Calls) -> None:
    named = read_settings(place.own, place.top, calls).work_tree
    if not named:
        top, own = printable(place.top), printable(place.own)
        raise Blocked(
            f"{top} leads to the repository {own}, which does not know this work tree",
            hint=f"If it is yours: git config core.worktree {top}",
        )
    if os.path.realpath(os.path.join(place.own, named)) != place.top:
        raise elsewhere(place.top, named)


def elsewhere(top: str, named: str) -> Blocked:
    return Blocked(f"the repository at {printable(top)} has its work tree elsewhere, in {printable(named)}")


def _pointer(directory: str, name: str) -> str | None:
    with Root(directory) as root:
        data = small(root, name, _LONGEST_POINTER)
    return os.fsdecode(data).rstrip("\n") if data is not None else None


# ── E2 ──


def _require_plain_head(place: Place, calls: Calls) -> None:
    """Each reference that stands between HEAD and its commit: git reads them all, whatever they lead to."""
    with Root(place.own, calls) as own, Root(place.common, calls) as common:
        name = "HEAD"
        for _ in range(_MOST_SYMBOLIC):
            texts = []
            for root in (own, common):
                for part in (*ancestors_of(name), name):
                    _looked_at(root, part)
                texts.append(small(root, name, _LONGEST_POINTER))
            text = next((text for text in texts if text is not None), b"")
            if not text.startswith(_SYMBOLIC):
                return
            name = os.fsdecode(text.removeprefix(_SYMBOLIC).strip(b" \t\r\n").split(b"\0")[0])
    raise Blocked(f"HEAD of {printable(place.own)} leads from reference to reference without end")


def _looked_at(root: Root, name: str) -> os.stat_result | None:
    """What is there, if it is a plain file or a directory; None for nothing."""
    where = printable(os.path.join(root.path, name))
    try:
        fd = root.calls.open_beneath(name, _LOOK, root.fd)
    except OSError as error:
        if error.errno in _NOWHERE:
            return None
        how = "lies behind a link or mount" if error.errno in _BEHIND else "cannot be looked at"
        raise Blocked(f"{where} {how}: {error.strerror}") from error
    try:
        found = root.calls.fstat(fd)
    finally:
        root.calls.close(fd)
    if stat.S_ISLNK(found.st_mode):
        raise Blocked(f"{where} is a symbolic link")
    if not stat.S_ISREG(found.st_mode) and not stat.S_ISDIR(found.st_mode):
        raise Blocked(f"{where} is neither a file nor a directory")
    if stat.S_ISREG(found.st_mode) and found.st_size > _MOST:
        raise Blocked(f"{where} is larger than any such file of git")
    return found


def _names(root: Root, folder: str) -> Iterable[str]:
    try:
        fd = root.open_directory(folder)
    except OSError as error:
        if error.errno in _NOWHERE:
            return ()
        raise Blocked(f"{printable(os.path.join(root.path, folder))} cannot be read: {error.strerror}") from error
    try:
        return root.calls.names(fd)
    finally:
        root.calls.close(fd)
