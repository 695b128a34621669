"""Changes collected in a `with` block: a plan written in Python instead of YAML."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from holdfast.errors import InvalidInput
from holdfast.model.execution import Execution
from holdfast.model.path import checked_path
from holdfast.model.plan import Chmod, Create, Delete, Inline, Move, Plan, Step, Symlink, Update, Write


class Changes:
    """Steps collected in a `with` block; they land together when it ends without an exception.

    `execution` is there after a successful end.
    """

    def __init__(self, intent: str, carry_out: Callable[[Plan], Execution]) -> None:
        self._intent = _text(intent, "the intent")
        self._carry_out = carry_out
        self._steps: list[Step] = []
        self.execution: Execution | None = None

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self._steps.append(Write(_path(path), Inline(_bytes(data)), _mode(mode)))

    def update(self, path: str, old: bytes, data: bytes, *, mode: int | None = None) -> None:
        self._steps.append(Update(_path(path), _bytes(old), Inline(_bytes(data)), _mode(mode)))

    def create(self, path: str, *, mode: int | None = None) -> None:
        """An empty file; with a trailing slash, a directory."""
        self._steps.append(Create(_path(path), path.endswith("/"), _mode(mode)))

    def delete(self, path: str, *, recursive: bool = False) -> None:
        self._steps.append(Delete(_path(path), recursive))

    def move(self, path: str, to: str) -> None:
        self._steps.append(Move(_path(path), _path(to)))

    def chmod(self, path: str, mode: int) -> None:
        self._steps.append(Chmod(_path(path), _number(mode)))

    def symlink(self, path: str, target: str) -> None:
        self._steps.append(Symlink(_path(path), _text(target, "what a link says")))

    def __enter__(self) -> Changes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._steps:
            self.execution = self._carry_out(Plan(self._intent, tuple(self._steps)))


# Whoever calls from Python may have no type checker: what is wrong is said where it is written, not when it lands.


def _path(value: object) -> str:
    return checked_path(_text(value, "a path"))


def _text(value: object, what: str) -> str:
    if isinstance(value, str):
        return value
    way = "os.fsdecode makes text of bytes" if isinstance(value, bytes) else "str() makes text of a Path"
    raise InvalidInput(f"{what} is text, not {_kind(value)}", hint=f"Give a str; {way}.")


def _bytes(value: object) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)  # a copy of what could still change before it lands
    hint = 'Give bytes: text.encode("utf-8").' if isinstance(value, str) else "Give bytes."
    raise InvalidInput(f"content is bytes, not {_kind(value)}", hint=hint)


def _mode(value: object) -> int | None:
    return None if value is None else _number(value)


def _number(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise InvalidInput(f"a mode is a number, not {_kind(value)}", hint="Give the permission bits, such as 0o644.")


def _kind(value: object) -> str:
    return type(value).__name__
