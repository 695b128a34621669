"""The engine that runs nothing is an engine to whoever uses it."""

from __future__ import annotations

import pytest

from holdfast.engine.durable import Engine
from holdfast.errors import InvalidInput, UnknownId
from holdfast.testing import HandEngine


def test_an_item_is_its_id(engine: HandEngine) -> None:
    """Started twice it is one item, with the argument it had first."""
    engine.start("a", "work", {"n": 1}, "q")
    engine.start("a", "work", {"n": 2}, "q")
    assert [asked.id for asked in engine.asked] == ["a"] and engine.argument("a") == {"n": 1}
    with pytest.raises(InvalidInput):
        engine.start("not an id", "work", None, "q")


def test_what_ended_stays_as_it_ended(engine: HandEngine) -> None:
    """The first end counts, also against a cancellation."""
    for id in ("a", "b", "c"):
        engine.start(id, "work", None, "q")
    engine.end("a", 1)
    engine.fail("b", "broken")
    engine.take_away("c")
    engine.cancel(["a", "b", "c", "unknown"])
    engine.end("b", 2)
    assert [item.state for item in engine.items()] == ["done", "failed", "stale"]
    assert engine.find("c").value is None  # type: ignore[union-attr]
    with pytest.raises(UnknownId):
        engine.end("nobody", 1)


def test_whoever_waits_in_vain_is_told(engine: HandEngine) -> None:
    """By default the test fails; otherwise it may decide now."""
    engine.start("a", "work", None, "q")
    assert engine.wait(["a"]) == ()
    with pytest.raises(AssertionError, match="no item will ever end"):
        engine.wait(["a"], 0.1)
    engine.on_pause = lambda: engine.end("a", "now")
    assert [item.value for item in engine.wait(["a"], 0.1)] == ["now"]


def test_signals_and_forgetting(engine: HandEngine) -> None:
    """The rest of the port."""
    engine.await_signal("w", 60)
    engine.signal("w", "yes", key="k")
    engine.signal("w", "no", key="k")
    assert engine.find("w").value == "yes"  # type: ignore[union-attr]
    assert engine.forget("w", 1) == 0 and engine.forget("w", 0) == 1
    assert engine.find("w") is None


def test_items_of_another_release_are_told(engine: HandEngine) -> None:
    """As long as they are open."""
    engine.start("u-1.a", "work", None, "q")
    assert engine.outdated("u-1.") == ()
    engine.age("u-1.a")
    assert [item.id for item in engine.outdated("u-1.")] == ["u-1.a"] and engine.outdated("u-2.") == ()


@pytest.fixture
def engine() -> HandEngine:
    found = HandEngine()
    used: Engine = found
    assert used.executor == "hand" and not used.lost and used.stop(1.0) and used.remarks() == ()
    return found
