"""Changes collected in a `with` block: a plan written in Python instead of YAML."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from holdfast.model.execution import Execution
from holdfast.model.path import checked_path
from holdfast.model.plan import Chmod, Create, Delete, Inline, Move, Plan, Step, Symlink, Update, Write


class Changes:
    """Steps collected in a `with` block; they land together when it ends without an exception.

    `execution` is there after a successful end.
    """

    def __init__(self, intent: str, carry_out: Callable[[Plan], Execution]) -> None:
        self._intent = intent
        self._carry_out = carry_out
        self._steps: list[Step] = []
        self.execution: Execution | None = None

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        self._steps.append(Write(checked_path(path), Inline(data), mode))

    def update(self, path: str, old: bytes, data: bytes, *, mode: int | None = None) -> None:
        self._steps.append(Update(checked_path(path), old, Inline(data), mode))

    def create(self, path: str, *, mode: int | None = None) -> None:
        """An empty file; with a trailing slash, a directory."""
        self._steps.append(Create(checked_path(path), path.endswith("/"), mode))

    def delete(self, path: str, *, recursive: bool = False) -> None:
        self._steps.append(Delete(checked_path(path), recursive))

    def move(self, path: str, to: str) -> None:
        self._steps.append(Move(checked_path(path), checked_path(to)))

    def chmod(self, path: str, mode: int) -> None:
        self._steps.append(Chmod(checked_path(path), mode))

    def symlink(self, path: str, target: str) -> None:
        self._steps.append(Symlink(checked_path(path), target))

    def __enter__(self) -> Changes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self._steps:
            self.execution = self._carry_out(Plan(self._intent, tuple(self._steps)))
