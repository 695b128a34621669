"""A transaction written in Python: what is wrong with an argument is said at once, and nothing lands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from guarded import guard
from holdfast.errors import InvalidInput

# `Any`: these are the calls of somebody who has no type checker.
Wrong = Callable[[Any], object]
_WRONG: dict[str, tuple[Wrong, str, str]] = {
    "text for bytes": (
        lambda tx: tx.write("a", "str"),
        "content is bytes, not str",
        'Give bytes: text.encode("utf-8").',
    ),
    "a number for bytes": (lambda tx: tx.write("a", 3), "content is bytes, not int", "Give bytes."),
    "old text": (lambda tx: tx.update("a", "old", b"new"), "content is bytes, not str", "encode"),
    "new text": (lambda tx: tx.update("a", b"old", "new"), "content is bytes, not str", "encode"),
    "a mode as text": (lambda tx: tx.chmod("a", "0644"), "a mode is a number, not str", "0o644"),
    "no mode": (lambda tx: tx.chmod("a", None), "a mode is a number, not NoneType", "0o644"),
    "a mode of a write": (lambda tx: tx.write("a", b"", mode="0644"), "a mode is a number, not str", "0o644"),
    "a mode of an update": (
        lambda tx: tx.update("a", b"old", b"", mode=6.44),
        "a mode is a number, not float",
        "0o644",
    ),
    "a mode that is a truth": (lambda tx: tx.create("b", mode=True), "a mode is a number, not bool", "0o644"),
    "a path as bytes": (lambda tx: tx.delete(b"a"), "a path is text, not bytes", "os.fsdecode"),
    "a Path": (lambda tx: tx.create(Path("b")), "a path is text, not PosixPath", "str()"),
    "where to": (lambda tx: tx.move("a", Path("b")), "a path is text, not PosixPath", "str()"),
    "a link": (lambda tx: tx.symlink("b", b"a"), "what a link says is text, not bytes", "os.fsdecode"),
}


@pytest.mark.parametrize("name", _WRONG)
def test_an_argument_of_another_kind_is_refused(tmp_path: Path, name: str) -> None:
    """It is invalid input with a hint, where it is written; what the block asked for before it does not land."""
    call, message, hint = _WRONG[name]
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    before = ground.tree()

    def change() -> None:
        with ground.hf.transaction("try", approved_by="me") as tx:
            tx.write("first", b"1")
            call(tx)

    with pytest.raises(InvalidInput) as caught:
        change()
    assert caught.value.message == message
    assert hint in caught.value.hint
    assert ground.tree() == before


def test_an_intent_is_text(tmp_path: Path) -> None:
    """Without words about what it is for, no transaction is begun."""
    ground = guard(tmp_path / "workspace")
    intent: Any = None
    with pytest.raises(InvalidInput, match="the intent is text, not NoneType"):
        ground.hf.transaction(intent)


def test_bytes_that_can_change_are_taken_as_they_are(tmp_path: Path) -> None:
    """A bytearray that is used again after the call does not change what was asked for."""
    ground = guard(tmp_path / "workspace")
    data = bytearray(b"one")
    with ground.hf.transaction("try", approved_by="me") as tx:
        tx.write("a", data)
        data[:] = b"two"
    assert (ground / "a").read_bytes() == b"one"
