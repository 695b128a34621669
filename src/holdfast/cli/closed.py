"""The last change, where it is closed as FAILED: nothing waits for anybody, and still not all of it was taken back."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.cli.screen import shown
from holdfast.model.execution import LEFT_SOMETHING
from holdfast.wiring import Holdfast


class Closed(NamedTuple):
    """`errors`: why it failed and what stands, in the words of its record."""

    id: str
    errors: tuple[str, ...]

    def document(self) -> dict[str, object]:
        return self._asdict()

    def lines(self) -> list[str]:
        return [shown(error.replace("\n", "; ")) for error in self.errors]


def closed_as_failed(hf: Holdfast) -> Closed | None:
    """None where the last change landed, was taken back wholly, or still waits for a person."""
    for row in hf.log(limit=1):
        if row.status in LEFT_SOMETHING and not row.landed and row.summary.get("open") is not True:
            errors = row.summary.get("errors")
            return Closed(row.id, tuple(map(str, errors)) if isinstance(errors, list) else ())
    return None
