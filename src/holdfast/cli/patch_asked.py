"""A file that a verb is asked to work on: a change file, or a patch, which is followed to its end.

    with Asked(hf, face.screen) as asked:
        found = asked.plan(file)          # and whatever becomes of it in this block is written into the patch's ledger

Which of both a file is, its content says. One that begins with a brace is JSON: a patch holds lines that no JSON can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import click

from holdfast.cli.screen import Screen
from holdfast.errors import Blocked, HoldfastError, InvalidInput

if TYPE_CHECKING:
    from holdfast.engine.patching import Planned, Sent
    from holdfast.model.plan import Plan
    from holdfast.store.database import Row
    from holdfast.wiring import Holdfast

_STANDARD_INPUT = "-"
_LOOK = 256
_Command = TypeVar("_Command", bound=Callable[..., Any])


class AskedOfPatch(TypedDict):
    """What click hands over."""

    reverse: bool
    unverified: str


def patch_options(command: _Command) -> _Command:
    for option in (
        click.option(
            "--unverified", default="", metavar="WHY", help="FILE is a patch: run none of the checks that are found."
        ),
        click.option("--reverse", is_flag=True, help="FILE is a patch: take back what it does."),
    ):
        command = option(command)
    return command


class Asked:
    """`wanted`: the patch shall be applied, and not only be looked at."""

    def __init__(
        self, hf: Holdfast, screen: Screen, *, reverse: bool = False, unverified: str = "", wanted: bool = True
    ) -> None:
        self._hf, self._screen = hf, screen
        self._reverse, self._unverified, self._wanted = reverse, unverified, wanted
        self._patch = ""

    @classmethod
    def of(cls, hf: Holdfast, screen: Screen, asked: AskedOfPatch, *, wanted: bool) -> Asked:
        return cls(hf, screen, reverse=asked["reverse"], unverified=asked["unverified"], wanted=wanted)

    def require_none(self) -> None:
        """InvalidInput where options of patches are given with what is no file."""
        if self._reverse or self._unverified:
            raise InvalidInput("--reverse and --unverified are for patches, and this is none")

    def plan_or_done(self, file: str) -> Plan | Row:
        """The plan; of a patch whose effect stands already, the execution that applied it."""
        found = self._patch_plan(file)
        return self._change_file(file) if found is None else found.plan or found.done or _impossible()

    def plan(self, file: str) -> Plan:
        """Blocked when it is a patch that stands already."""
        found = self._patch_plan(file)
        if found is None:
            return self._change_file(file)
        if found.plan is None:
            id = found.done.id if found.done is not None else ""
            hint = f"Nothing was changed. See: holdfast show {id}"
            raise Blocked(f"the patch is applied already, as {id}", hint=hint)
        return found.plan

    def looked_at(self, file: str) -> Plan:
        """The plan for somebody who only looks; nothing of it is written down."""
        sent = self._sent(file)
        return self._change_file(file) if sent is None else self._hf.patches.looked_at(sent)

    def __enter__(self) -> Asked:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """An interruption says nothing about the patch; the next look at patches sees what came of it."""
        if self._patch and (error is None or isinstance(error, HoldfastError)):
            _tell_ended(self._hf, self._screen, self._patch, error)

    def _patch_plan(self, file: str) -> Planned | None:
        sent = self._sent(file)
        if sent is None:
            return None
        found = self._hf.patches.planned(sent, wanted=self._wanted)
        if found.plan is not None and self._wanted:
            self._patch = found.patch
        return found

    def _sent(self, file: str) -> Sent | None:
        """None where it is no patch; a change file from standard input is kept then."""
        data = self._bytes(file)
        from holdfast.model.patch_text import is_patch

        if data is None or not is_patch(data):
            self._input = data
            self.require_none()
            return None
        from holdfast.engine.patching import Sent

        source = "a patch from standard input" if file == _STANDARD_INPUT else file
        return Sent(data, source, self._reverse, self._unverified)

    _input: bytes | None = None

    def _bytes(self, file: str) -> bytes | None:
        """All of it; None for a file that begins as JSON, which is then read by whoever parses it."""
        from holdfast.intake.changefile import read_bytes

        return None if file != _STANDARD_INPUT and _begins_as_json(file) else read_bytes(file)

    def _change_file(self, file: str) -> Plan:
        if file != _STANDARD_INPUT or self._input is None:
            return self._hf.plan(file)
        from holdfast.engine.change_files import plan_of_input

        data, self._input = self._input, None
        return plan_of_input(self._hf.site, self._hf.pipeline.governance.settings, data)


@contextmanager
def following(hf: Holdfast, screen: Screen, patch: str) -> Iterator[None]:
    """Whatever becomes of this patch in the block is written into its ledger."""
    try:
        yield
    except HoldfastError as error:
        _tell_ended(hf, screen, patch, error)
        raise
    _tell_ended(hf, screen, patch, None)


def _tell_ended(hf: Holdfast, screen: Screen, patch: str, error: HoldfastError | None) -> None:
    try:
        hf.patches.ended(patch, error)
    except (OSError, HoldfastError) as second:
        # What landed has landed, and what was refused was refused: that is the answer.
        screen.note(f"The ledger of patches will be caught up later; it cannot be written now: {second}")


def _begins_as_json(file: str) -> bool:
    import os
    import stat

    try:
        if not stat.S_ISREG(os.stat(file).st_mode):
            return False
        with open(file, "rb") as opened:
            return opened.read(_LOOK).lstrip()[:1] == b"{"
    except (OSError, ValueError):
        return False  # whoever reads it says what is wrong with it


def _impossible() -> Plan:
    raise AssertionError("a patch has a plan, or stands")
