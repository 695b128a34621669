"""Dossiers: what belongs to one plan or one simulation, a folder that appears whole.

    plans/p-…/document, <sha256>…          a plan and the bytes it brings
    simulations/s-…/plan, report, changes, <n>…   what a rehearsal found, and the new bytes of the n-th change

Invariants
  E1  A dossier has its name only when it is complete: written aside, then renamed.
  E2  One that is being written is locked by the kernel, so `sweep` takes only what a dead process had begun.
  E3  Nothing in it is believed: whoever reads it checks digests. So it is written without waiting for the disk;
      one that a power cut damaged is refused, and made again.
  E4  Whoever works from a dossier holds it (`InUse`), by a lock of the kernel that ends with the process;
      `collect` leaves it alone until then.
  E5  Holes of a file stay holes: a dossier takes no more room than what it was made of.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Literal

from holdfast.disk.calls import Calls
from holdfast.disk.confined import Root
from holdfast.disk.holes import end_pieces, put_piece
from holdfast.errors import Tampering, UnknownId
from holdfast.store.private import READ, open_regular

Shelf = Literal["plans", "simulations"]
SHELVES: tuple[Shelf, ...] = ("plans", "simulations")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ID = re.compile(r"[a-z]-[a-z0-9]{4,32}")
_LIMIT = 1 << 30
_AGAIN = "Simulate again; nothing was changed."


class InUse:
    """As long as this object lives, nobody removes the dossier (E4)."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self) -> None:
        os.close(self._fd)


class Dossiers:
    """All dossiers of one kind."""

    def __init__(self, state: Root, shelf: Shelf) -> None:
        self._state = state
        self._calls: Calls = state.calls
        self._shelf = shelf

    def write(self, id: str, files: Iterable[tuple[str, Iterable[bytes]]]) -> InUse:
        """Put a dossier on the shelf, in use; one that is there already is the same, by its id."""
        temporary = f"new-{os.getpid()}-{os.urandom(4).hex()}"
        directory = self._begun(temporary)
        try:
            for name, pieces in files:
                self._write_file(directory, name, pieces)
            with self._alone() as shelf:
                self._calls.move(temporary, shelf, id, shelf)
                fcntl.flock(directory, fcntl.LOCK_SH)
            self._state.forget()
            return InUse(os.dup(directory))
        except OSError as error:
            self._remove(temporary)
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            return self.hold(id)
        except BaseException:
            # Ctrl-C too, and whatever the pieces raise while they are read: half a dossier is nobody's.
            self._remove(temporary)
            raise
        finally:
            self._calls.close(directory)
            self._state.forget()

    def hold(self, id: str) -> InUse:
        """Keep it from being removed; UnknownId when there is none, or it is just going."""
        if not _ID.fullmatch(id):
            raise UnknownId(f"{id!r} is not an id")
        with self._alone():
            try:
                directory = self._opened_directory(f"{self._shelf}/{id}")
            except FileNotFoundError:
                raise UnknownId(f"there is no {id} any more", hint=_AGAIN) from None
            fcntl.flock(directory, fcntl.LOCK_SH)
        return InUse(directory)

    def read(self, id: str, name: str) -> bytes:
        """A small file of a dossier; UnknownId when there is no such dossier."""
        fd = self.opened(id, name)
        try:
            size = self._calls.fstat(fd).st_size
            if size > _LIMIT:
                raise Tampering(f"{id}/{name} is larger than any file of ours")
            pieces = []
            while piece := self._calls.read(fd, size + 1):
                pieces.append(piece)
            return b"".join(pieces)
        finally:
            self._calls.close(fd)

    def opened(self, id: str, name: str) -> int:
        if not _ID.fullmatch(id):
            raise UnknownId(f"{id!r} is not an id")
        try:
            return open_regular(name, READ, self._calls, self._directory(f"{self._shelf}/{id}")).fd
        except FileNotFoundError:
            raise UnknownId(f"there is no {id} any more", hint=_AGAIN) from None

    def names(self, id: str) -> list[str]:
        """The files of a dossier."""
        try:
            return self._calls.names(self._directory(f"{self._shelf}/{id}"))
        except FileNotFoundError:
            raise UnknownId(f"there is no {id} any more", hint=_AGAIN) from None

    def ids(self) -> list[str]:
        return sorted(name for name in self._all_names() if _ID.fullmatch(name))

    def made_ns(self, id: str) -> int:
        return self._calls.fstat(self._directory(f"{self._shelf}/{id}")).st_mtime_ns

    def remove(self, id: str) -> int:
        """Of which it is known that nobody needs it any more; the bytes freed."""
        return self._remove(id) if _ID.fullmatch(id) else 0

    def collect(self, id: str) -> int | None:
        """Remove a dossier unless somebody works from it (E4): the bytes freed, or None where it stays."""
        going = f"new-{os.getpid()}-{os.urandom(4).hex()}"
        with self._alone() as shelf:
            try:
                directory = self._opened_directory(f"{self._shelf}/{id}")
            except FileNotFoundError:
                return None
            try:
                fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Under this name a crash leaves something that `sweep` knows.
                self._calls.rename(id, going, src_dir_fd=shelf, dst_dir_fd=shelf)
            except BlockingIOError:
                return None
            finally:
                self._calls.close(directory)
        self._state.forget()
        return self._remove(going)

    def sweep(self) -> None:
        """Remove what a crash left half written (E2)."""
        for name in self._all_names():
            if name.startswith("new-") and self._is_abandoned(name):
                self._remove(name)

    def _directory(self, path: str) -> int:
        with _no_link(path):
            return self._state.directory(path)

    def _opened_directory(self, path: str) -> int:
        with _no_link(path):
            return self._state.open_directory(path)

    def _begun(self, name: str) -> int:
        """A folder of its own, locked from its first moment on; the caller closes it."""
        with self._alone() as shelf:
            self._calls.mkdir(name, 0o700, dir_fd=shelf)
            directory = self._opened_directory(f"{self._shelf}/{name}")
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return directory

    @contextmanager
    def _alone(self) -> Iterator[int]:
        """The shelf, held while a dossier begins, gets its name, comes into use or loses its name."""
        self._folder()  # made, where it is the first
        shelf = self._opened_directory(self._shelf)
        try:
            fcntl.flock(shelf, fcntl.LOCK_EX)
            yield shelf
        finally:
            self._calls.close(shelf)

    def _is_abandoned(self, name: str) -> bool:
        # Whoever begins a dossier holds the shelf until the new folder is locked.
        with self._alone():
            try:
                directory = self._opened_directory(f"{self._shelf}/{name}")
            except FileNotFoundError:
                return False
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            self._calls.close(directory)
        return True

    def _all_names(self) -> list[str]:
        try:
            return self._calls.names(self._directory(self._shelf))
        except FileNotFoundError:
            return []

    def _folder(self) -> int:
        try:
            return self._directory(self._shelf)
        except FileNotFoundError:
            self._calls.mkdir(self._shelf, 0o700, dir_fd=self._state.fd)
            return self._directory(self._shelf)

    def _write_file(self, directory: int, name: str, pieces: Iterable[bytes]) -> None:
        fd = self._calls.open(name, _NEW, 0o600, dir_fd=directory)
        try:
            for piece in pieces:
                put_piece(self._calls, fd, piece)
            end_pieces(self._calls, fd)
        finally:
            self._calls.close(fd)

    def _remove(self, name: str) -> int:
        """The bytes freed, as the disk counts them."""
        try:
            directory = self._directory(f"{self._shelf}/{name}")
        except FileNotFoundError:
            return 0
        freed = 0
        for file in self._calls.names(directory):
            freed += self._calls.stat(file, dir_fd=directory, follow_symlinks=False).st_blocks * 512
            self._calls.unlink(file, dir_fd=directory)
        self._state.forget()
        self._calls.rmdir(name, dir_fd=self._folder())
        return freed


@contextmanager
def _no_link(path: str) -> Iterator[None]:
    """Nothing of ours is a link or on another file system: whoever put one there has others' bytes believed."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENOTDIR, errno.EXDEV):
            raise
        hint = f"Nothing was changed. Take it away, then plan and simulate again: rm .holdfast/{path}"
        raise Tampering(f".holdfast/{path} is a symbolic link or no directory of ours", hint=hint) from error
