"""A person's terminal: a real pseudo-terminal, and its other end."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from typing import Any


class Terminal:
    """The other end of a pseudo-terminal."""

    def __init__(self) -> None:
        self.ours, self.theirs = pty.openpty()
        self.text = ""

    def read_until(self, wanted: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while wanted not in self.text:
            assert time.monotonic() < end, self.text
            self._read(0.1)

    def read_all(self) -> str:
        while self._read(0.2):
            continue
        return self.text

    def type(self, text: str) -> None:
        os.write(self.ours, text.encode())

    def close(self) -> None:
        os.close(self.ours)
        os.close(self.theirs)

    def _read(self, seconds: float) -> bool:
        if not select.select([self.ours], [], [], seconds)[0]:
            return False
        self.text += os.read(self.ours, 65536).decode("utf-8", "replace").replace("\r\n", "\n")
        return True


def start(program: Any, terminal: Terminal, *words: str) -> subprocess.Popen[bytes]:
    end = terminal.theirs
    return program.start(*words, stdin=end, stdout=end, stderr=end)
