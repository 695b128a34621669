"""A disk of one file that remembers, in order, every write and every flush it was asked for.

It is a FUSE file system with a single file `/disk`, served by a process of ours that speaks the kernel's protocol
directly: no library is needed, only /dev/fuse and root.
A loop device over that file is the disk of a real file system.

The log is a file of records [kind u8][offset u64][length u32][bytes]:

    W   bytes written at an offset
    F   a flush: everything written before it is durable when it returns
    M   a mark put in by the test, with a text

Invariants
  B1  One request at a time is answered, so the order in the log is the order that happened.
  B2  The server ends when its control socket closes, so it cannot outlive the test that started it.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

_IN = struct.Struct("<IIQQIIII")
_OUT = struct.Struct("<IiQ")
_ATTR = struct.Struct("<6Q10I")
_RECORD = struct.Struct("<cQI")
_MAX_WRITE = 1 << 17
_ROOT, _DISK = 1, 2
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _WRITE, _STATFS, _RELEASE, _FSYNC, _FLUSH, _INIT, _OPENDIR = (
    1, 2, 3, 14, 15, 16, 17, 18, 20, 25, 26, 27,
)  # fmt: skip
_BATCH_FORGET = 42
_ENOENT, _ENOSYS = 2, 38
_LONG = 3600


class Written(NamedTuple):
    offset: int
    data: bytes


class Flushed(NamedTuple):
    pass


class Marked(NamedTuple):
    text: str


Event = Written | Flushed | Marked


def events(path: str) -> Iterator[Event]:
    """What the disk was asked for."""
    with open(path, "rb") as file:
        while header := file.read(_RECORD.size):
            kind, offset, length = _RECORD.unpack(header)
            data = file.read(length)
            if kind == b"W":
                yield Written(offset, data)
            else:
                yield Flushed() if kind == b"F" else Marked(data.decode())


class Disk:
    """The served disk, mounted at `directory`; `image` holds its bytes, `log` what was asked for."""

    def __init__(self, directory: str, image: str, log: str) -> None:
        self._directory = directory
        self.path = os.path.join(directory, "disk")
        self._fuse = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = f"fd={self._fuse},rootmode=40000,user_id=0,group_id=0"
        command = ["mount", "-i", "-t", "fuse", "-o", options, "holdfast-disk", directory]
        subprocess.run(command, check=True, pass_fds=[self._fuse])
        self._control, theirs = socket.socketpair()
        self._server = os.fork()
        if self._server == 0:
            try:
                self._control.close()
                _Server(self._fuse, image, log, theirs).serve()
            finally:
                os._exit(0)
        theirs.close()
        os.close(self._fuse)

    def mark(self, text: str) -> None:
        """Put a mark into the log, after everything answered so far."""
        self._control.send(text.encode())
        assert self._control.recv(1) == b"!"

    def close(self) -> None:
        subprocess.run(["umount", "-l", self._directory], check=False)
        self._control.close()
        os.waitpid(self._server, 0)


class _Server:
    def __init__(self, fuse: int, image: str, log: str, control: socket.socket) -> None:
        self._fuse = fuse
        self._image = os.open(image, os.O_RDWR)
        self._size = os.fstat(self._image).st_size
        self._log = open(log, "wb", buffering=1 << 20)  # noqa: SIM115 - closed when the process ends
        self._control = control

    def serve(self) -> None:
        while True:
            ready, _, _ = select.select([self._fuse, self._control.fileno()], [], [])
            if self._control.fileno() in ready and not self._listen():
                self._log.close()
                return
            if self._fuse in ready:
                self._answer_one()

    def _listen(self) -> bool:
        text = self._control.recv(4096)
        if text:
            self._remember(b"M", 0, text)
            self._log.flush()
            self._control.send(b"!")
        return bool(text)

    def _answer_one(self) -> None:
        try:
            request = os.read(self._fuse, _MAX_WRITE + (1 << 14))
        except OSError:
            return  # the request was withdrawn, or the mount is gone; then the socket closes next
        _, opcode, unique, node, *_ = _IN.unpack_from(request)
        if opcode in (_FORGET, _BATCH_FORGET):
            return
        error, body = self._answer(opcode, node, request[_IN.size :])
        try:
            os.write(self._fuse, _OUT.pack(_OUT.size + len(body), -error, unique) + body)
        except FileNotFoundError:
            return  # the asker was interrupted and no longer waits

    def _answer(self, opcode: int, node: int, body: bytes) -> tuple[int, bytes]:
        if opcode == _WRITE:
            return 0, self._write(body)
        if opcode == _READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            return 0, os.pread(self._image, size, offset)
        if opcode in (_FSYNC, _FLUSH, _RELEASE):
            if opcode == _FSYNC:
                self._remember(b"F", 0, b"")
            return 0, b""
        if opcode == _LOOKUP:
            if body.rstrip(b"\0") != b"disk":
                return _ENOENT, b""
            return 0, struct.pack("<4Q2I", _DISK, 0, _LONG, _LONG, 0, 0) + self._attributes(_DISK)
        if opcode == _GETATTR:
            return 0, struct.pack("<QII", _LONG, 0, 0) + self._attributes(node)
        if opcode in (_OPEN, _OPENDIR):
            return 0, struct.pack("<QII", 0, 0, 0)
        if opcode == _STATFS:
            return 0, struct.pack("<5Q4I24x", 1 << 30, 1 << 29, 1 << 29, 9, 9, 4096, 255, 4096, 0)
        if opcode == _INIT:
            return 0, struct.pack("<4I2H2I2HI28x", 7, 31, 1 << 17, 0, 12, 10, _MAX_WRITE, 1, 32, 0, 0)
        return _ENOSYS, b""

    def _write(self, body: bytes) -> bytes:
        _, offset, size = struct.unpack_from("<QQI", body)
        data = body[40 : 40 + size]
        os.pwrite(self._image, data, offset)
        self._remember(b"W", offset, data)
        return struct.pack("<II", size, 0)

    def _attributes(self, node: int) -> bytes:
        size, mode = (self._size, stat.S_IFREG | 0o600) if node == _DISK else (0, stat.S_IFDIR | 0o700)
        return _ATTR.pack(node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _remember(self, kind: bytes, offset: int, data: bytes) -> None:
        self._log.write(_RECORD.pack(kind, offset, len(data)) + data)
