"""What a program printed: the beginning and the end, whatever the length; or line by line, as it comes."""

from __future__ import annotations

from collections.abc import Callable

# Cut rarely: each cut moves what is kept.
_SLACK = 1 << 16


class Capture:
    """The first and the last bytes of a stream of any length; `total` counts them all."""

    def __init__(self, limit: int) -> None:
        self._head_room = (limit + 1) // 2
        self._tail_room = limit // 2
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def add(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._head_room - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._tail_room + _SLACK:
            self._cut()

    def _cut(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_room)]

    @property
    def left_out(self) -> int:
        return max(0, self.total - self._head_room - self._tail_room)

    def text(self) -> bytes:
        self._cut()
        note = b"\n[... %d bytes left out ...]\n" % self.left_out if self.left_out else b""
        return bytes(self._head) + note + bytes(self._tail)


class Lines:
    """Pieces of output as whole lines, without their ends; an `on_output` for those who want an `on_line`.

    A line longer than `most` bytes comes in parts: memory is bounded, whatever is printed. `end` gives what is left.
    """

    def __init__(self, on_line: Callable[[bytes], None], most: int = 1 << 20) -> None:
        assert most > 0
        self._on_line, self._most = on_line, most
        self._begun = bytearray()

    def __call__(self, piece: bytes) -> None:
        first, *others = piece.split(b"\n")
        self._grow(first)
        for line in others:
            self._flush()
            self._grow(line)

    def end(self) -> None:
        if self._begun:
            self._flush()

    def _grow(self, part: bytes) -> None:
        self._begun += part
        while len(self._begun) > self._most:
            self._on_line(bytes(self._begun[: self._most]))
            del self._begun[: self._most]

    def _flush(self) -> None:
        line = bytes(self._begun)
        self._begun.clear()
        self._on_line(line)
