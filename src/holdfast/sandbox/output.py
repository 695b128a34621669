"""What a program printed: the beginning and the end, whatever the length."""

from __future__ import annotations

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
