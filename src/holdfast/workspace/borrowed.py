"""A repository for a tree that was made elsewhere: the objects of another one, and none of its settings.

    objects/…                   hard links (copies where that is another file system): immutable, only new ones are made
    HEAD, refs, index, exclude  copied, so that git tells the same about the same tree, and ignores the same
    config                      written here: no remotes, no filters, no programs, no credentials
    hooks, logs, stash          absent

Invariants
  B1  The other repository is only read; git is asked without its configuration being able to start a program.
  B2  Whatever else stands in this one goes: it is exactly what is described here, however it was left.
  B3  Interrupted anywhere, the next call finishes; no file has its name before it is whole.
  B4  Only what the work tree's own repository holds is borrowed: it is found as for a checkpoint (`gitplace`), and
      everything in it is opened beneath its directory. A link in a stranger's `.git` gives an agent nothing.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence

from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.disk.holes import copy_pieces
from holdfast.errors import Blocked, Conflict
from holdfast.model.path import printable
from holdfast.sandbox.process import Command, run
from holdfast.workspace.gitplace import Place, place_of, small
from holdfast.workspace.plumbing import HARMLESS, QUIET
from holdfast.workspace.removal import remove
from holdfast.workspace.staging import write_all

_TIMEOUT_MS = 120_000
_MOST_NAMES = 1 << 28
_MOST_SMALL = 1 << 28
_GIT = ".git"
_STATE = ("HEAD", "index")  # of one work tree
_SHARED = ("packed-refs", "shallow", "info/exclude", "info/sparse-checkout")
_TREES = ("refs", "reftable")
_ALWAYS = ("objects", "objects/info", "objects/pack", "refs", "refs/heads", "refs/tags", "info")
_STASH = re.compile(r"refs/stash$")
_LOOSE = re.compile(r"[0-9a-f]{2}")
_TRIES = 5
_TEMPORARY = ("tmp_", ".tmp-")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOTSUP)
_NAME = re.compile(rb"\b(?:[0-9a-f]{64}|[0-9a-f]{40})\b")


def head_of(work_tree: str) -> str:
    """The commit that is checked out; the empty string before the first one."""
    done = _git(work_tree, ("rev-parse", "--verify", "--quiet", "HEAD^{commit}"), good=(0, 1))
    return done.decode("ascii", "replace").strip()


def has_commit(work_tree: str, commit: str) -> bool:
    """Whether the repository has this commit; its objects may still be incomplete."""
    if not _NAME.fullmatch(commit.encode("utf-8", "replace")):
        return False
    return bool(_git(work_tree, ("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"), good=(0, 1)))


def blobs_of_head(work_tree: str, commit: str) -> frozenset[str]:
    """The names of all contents of a commit's tree."""
    listed = _git(work_tree, ("ls-tree", "-r", "-z", "--full-tree", commit), good=(0,))
    rows = (row.partition(b"\t")[0].split() for row in listed.split(b"\0") if row)
    return frozenset(row[2].decode("ascii") for row in rows if row[1] == b"blob")


def objects_of(work_tree: str, names: Sequence[str], take: Callable[[bytes], None]) -> None:
    """The objects of these names, as `cat-file --batch` tells them, piece by piece."""
    asked = "".join(f"{name}\n" for name in names).encode("ascii")
    command = _command(work_tree, ("cat-file", "--batch"))._replace(stdin=asked, output_limit=1 << 16)
    done = run(command, on_output=take)
    if not done.succeeded:
        raise Blocked(f"git cannot give the objects of a base: {_told(done.output)}")


def borrow(work_tree: str, target: Root, path: str, scratch: int, commit: str = "") -> bool:
    """Give the directory `path` of the target a repository like that of `work_tree`; False where that has none.

    `scratch` is a directory of ours on the target's file system. With `commit` that is what is checked out,
    whatever the other repository stands on: it is a clone, and only has to have the objects.
    """
    place = place_of(work_tree)
    if place is None:
        return False
    borrow_from(place, target, path, scratch, commit)
    if commit:
        _git(os.path.join(target.path, path), ("read-tree", commit), good=(0,))
    return True


def borrow_from(place: Place, target: Root, path: str, scratch: int, commit: str = "", objects: str = "") -> None:
    """As `borrow`, from a place that was looked at. `objects`: where its objects are seen; then none is linked."""
    git = _opened_folder(target, path, scratch)
    try:
        with Root(place.common) as common, Root(place.own) as own:
            borrowing = _Borrowing(git, scratch)
            if not objects:
                borrowing.link_objects(common)
            borrowing.write(_files_of(own, common, commit, objects))
    finally:
        os.close(git)


def _opened_folder(target: Root, path: str, scratch: int) -> int:
    above = target.open_directory(path)
    try:
        try:
            found: os.stat_result | None = os.stat(_GIT, dir_fd=above, follow_symlinks=False)
        except FileNotFoundError:
            found = None
        if found is not None and not stat.S_ISDIR(found.st_mode):
            remove(scratch, above, _GIT)
            found = None
        if found is None:
            os.mkdir(_GIT, 0o755, dir_fd=above)
        os.chmod(_GIT, 0o755, dir_fd=above)
        return os.open(_GIT, _DIRECTORY, dir_fd=above)
    finally:
        os.close(above)


class _Borrowing:
    """One repository on its way; `git` is its directory."""

    def __init__(self, git: int, scratch: int) -> None:
        self._git, self._scratch = git, scratch
        self._count = 0

    def link_objects(self, source: Root) -> None:
        for folder in _ALWAYS:
            self._folder(folder)
        # Loose ones first: git removes an object, or a pack, only when the pack that holds it now is in place.
        for name in sorted(name for name, _ in _listed(source, "objects") if _LOOSE.fullmatch(name)):
            self._folder(f"objects/{name}")
            self._link_all(source, f"objects/{name}")
        for _ in range(_TRIES):
            if self._link_all(source, "objects/pack"):
                return
        raise Conflict("the repository is being repacked again and again", hint="Nothing was changed.")

    def write(self, files: Mapping[str, bytes]) -> None:
        """Make these files, and remove everything else but objects (B2)."""
        for folder in _ALWAYS:
            self._folder(folder)
        for path in self._others(files):
            above, _, name = path.rpartition("/")
            self._within(above, lambda fd, name=name: remove(self._scratch, fd, name))  # type: ignore[misc]
        for path, data in files.items():
            above, _, name = path.rpartition("/")
            for depth in range(above.count("/") + 1 if above else 0):
                self._folder("/".join(above.split("/")[: depth + 1]))
            self._within(above, lambda fd, name=name, data=data: self._put(fd, name, data))  # type: ignore[misc]

    def _link_all(self, source: Root, folder: str) -> bool:
        """Every object of a folder; False when one was gone when its turn came."""
        try:
            reading = source.open_directory(folder)
        except (FileNotFoundError, NotADirectoryError):
            return False
        target = os.open(folder, _DIRECTORY, dir_fd=self._git)
        try:
            with CALLS.entries(target) as entries:
                here = {entry.name: entry.stat(follow_symlinks=False) for entry in entries}
            names = sorted(CALLS.names(reading), key=lambda name: (name.endswith(".idx"), name))
            wanted = [name for name in names if not name.startswith(_TEMPORARY)]
            linked = [self._link(reading, target, name, here.get(name)) for name in wanted]
            return all(linked)
        finally:
            os.close(target)
            os.close(reading)

    def _link(self, source: int, target: int, name: str, there: os.stat_result | None) -> bool:
        try:
            found = os.stat(name, dir_fd=source, follow_symlinks=False)
            if not stat.S_ISREG(found.st_mode):
                return True
            # The same inode, or a copy that was whole when it got its name; objects do not change.
            if there is not None and stat.S_ISREG(there.st_mode) and there.st_size == found.st_size:
                return True
            remove(self._scratch, target, name)
            self._link_or_copy(source, target, name)
        except FileNotFoundError:
            return False
        return True

    def _link_or_copy(self, source: int, target: int, name: str) -> None:
        try:
            os.link(name, name, src_dir_fd=source, dst_dir_fd=target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            self._copy(source, target, name)

    def _copy(self, source: int, target: int, name: str) -> None:
        reading = os.open(name, _READ, dir_fd=source)
        temporary = self._fresh()
        try:
            writing = os.open(temporary, _NEW, 0o444, dir_fd=self._scratch)
            try:
                copy_pieces(CALLS, reading, writing)
            finally:
                os.close(writing)
        finally:
            os.close(reading)
        os.rename(temporary, name, src_dir_fd=self._scratch, dst_dir_fd=target)

    def _put(self, folder: int, name: str, data: bytes) -> None:
        if _same(folder, name, data):
            return
        remove(self._scratch, folder, name)
        temporary = self._fresh()
        fd = os.open(temporary, _NEW, 0o644, dir_fd=self._scratch)
        try:
            write_all(CALLS, fd, data)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=self._scratch, dst_dir_fd=folder)

    def _others(self, files: Mapping[str, bytes]) -> Iterator[str]:
        """Paths to remove: neither wanted, nor a folder of something wanted, nor of objects."""
        kept = {"objects", "refs", "refs/heads", "refs/tags", "info"}
        for path in files:
            kept.update("/".join(path.split("/")[: n + 1]) for n in range(path.count("/") + 1))
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            for name, is_folder in self._listed(folder):
                path = f"{folder}/{name}" if folder else name
                if path not in kept or (is_folder and path in files):
                    yield path
                elif is_folder and path != "objects":
                    waiting.append(path)

    def _listed(self, folder: str) -> list[tuple[str, bool]]:
        fd = os.open(folder or ".", _DIRECTORY, dir_fd=self._git)
        try:
            with CALLS.entries(fd) as entries:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(fd)

    def _folder(self, path: str) -> None:
        try:
            os.mkdir(path, 0o755, dir_fd=self._git)
        except FileExistsError:
            if stat.S_ISDIR(os.stat(path, dir_fd=self._git, follow_symlinks=False).st_mode):
                return
            above, _, name = path.rpartition("/")
            self._within(above, lambda fd: remove(self._scratch, fd, name))
            os.mkdir(path, 0o755, dir_fd=self._git)

    def _within(self, folder: str, act: Callable[[int], None]) -> None:
        fd = os.open(folder or ".", _DIRECTORY, dir_fd=self._git)
        try:
            act(fd)
        finally:
            os.close(fd)

    def _fresh(self) -> str:
        self._count += 1
        return f"git-{os.getpid()}-{self._count}-{os.urandom(4).hex()}"


def _files_of(own: Root, common: Root, commit: str, seen_objects: str) -> dict[str, bytes]:
    """Every small file that the borrowed repository shall have."""
    files: dict[str, bytes] = {}
    for name, root in (*((name, own) for name in _STATE), *((name, common) for name in _SHARED)):
        data = small(root, name, _MOST_SMALL)
        if data is not None:
            files[name] = data
    for tree in _TREES:
        files.update(_tree_of(common, tree))
    if commit:
        files["HEAD"] = commit.encode("ascii") + b"\n"
        files.pop("index", None)
    alternates = small(common, "objects/info/alternates", _MOST_SMALL)
    if alternates is not None:
        objects = os.path.join(common.path, "objects")
        lines = [os.path.normpath(os.path.join(objects, os.fsdecode(line))) for line in alternates.splitlines() if line]
        files["objects/info/alternates"] = os.fsencode("".join(f"{line}\n" for line in lines))
    if seen_objects:  # and what they stand on themselves, git finds there
        files["objects/info/alternates"] = os.fsencode(f"{seen_objects}\n")
    files["config"] = _config(files, has_tables=any(path.startswith("reftable/") for path in files))
    return files


def _tree_of(common: Root, tree: str) -> Iterator[tuple[str, bytes]]:
    waiting = [tree]
    while waiting:
        folder = waiting.pop()
        for name, is_folder in _listed(common, folder):
            path = f"{folder}/{name}"
            if is_folder:
                waiting.append(path)
            elif not _STASH.search(path) and not name.endswith(".lock"):
                data = small(common, path, _MOST_SMALL)
                if data is not None:
                    yield path, data


def _listed(root: Root, folder: str) -> list[tuple[str, bool]]:
    """The names in a folder, each with whether it is a folder itself; none where there is no such folder."""
    try:
        fd = root.open_directory(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []
    try:
        with CALLS.entries(fd) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    finally:
        os.close(fd)


def _config(files: Mapping[str, bytes], *, has_tables: bool) -> bytes:
    texts = (data for path, data in files.items() if path.startswith("refs/") or path in ("HEAD", "packed-refs"))
    names = (match.group() for text in texts for match in _NAME.finditer(text))
    is_long = len(next(names, b"")) == 64
    extensions = [*(["objectformat = sha256"] if is_long else []), *(["refstorage = reftable"] if has_tables else [])]
    lines = ["[core]", f"repositoryformatversion = {1 if extensions else 0}", "filemode = true", "bare = false"]
    return "\n".join([*lines, *(["[extensions]", *extensions] if extensions else []), ""]).encode("ascii")


def _same(folder: int, name: str, data: bytes) -> bool:
    try:
        fd = os.open(name, _READ, dir_fd=folder)
    except OSError:
        return False  # nothing, or something else: it is made anew
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_size != len(data):
            return False
        return os.pread(fd, len(data) + 1, 0) == data
    finally:
        os.close(fd)


def _git(work_tree: str, words: tuple[str, ...], *, good: tuple[int, ...]) -> bytes:
    done = run(_command(work_tree, words))
    if done.exit_code not in good or done.output_truncated:
        raise Blocked(f"git cannot tell about this repository: {_told(done.output)}")
    return done.output


def _command(work_tree: str, words: tuple[str, ...]) -> Command:
    """B1."""
    place = place_of(work_tree)
    if place is None:
        raise Blocked(f"{printable(work_tree)} has no repository")
    argv = ("git", f"--git-dir={place.own}", f"--work-tree={place.top}", *HARMLESS, *words)
    return Command(argv, work_tree, QUIET, _TIMEOUT_MS, output_limit=_MOST_NAMES)


def _told(output: bytes) -> str:
    return printable(output[-200:].decode("utf-8", "replace"))
