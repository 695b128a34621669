"""What a step result says of a change that did not land: never begun, done and taken back, or done and it stands."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from guarded import ME, Ground, Interloper, guard, in_child, put
from holdfast.errors import HoldfastError, NeedsHuman, VerificationFailed
from holdfast.model.plan import Call, CommandCheck, Launch, Plan, Read, Service, Step
from holdfast.testing import At, FaultyCalls, KillAt
from servers import Api, listening

_UNWELL = CommandCheck(("false",), 1_000)
_STAYS = Service(Launch(("sleep", "300")))
_TAKEN_BACK = "done, and taken back, because the whole change failed"
_NEVER_BEGUN = "not done, because something before it failed"
_AFTER_A_CRASH = "taken back, as far as it was done before the process ended"
_UNRECORDED = "its outcome was not recorded before the process ended"
_RECORDED = "the journal says so"


class Told(NamedTuple):
    """The fields that tell one ending of a step from another."""

    success: bool
    matches: bool
    change: str
    invoked: bool
    succeeded: bool
    error: str


_FILE_BACK = Told(False, False, "none; rolled back", True, True, _TAKEN_BACK)
_FILE_AFTER_A_CRASH = _FILE_BACK._replace(error=_AFTER_A_CRASH)
_UNTOUCHED = Told(False, False, "none", False, False, _NEVER_BEGUN)


_FIELDS = (
    "success",
    "expected_vs_actual_match",
    "actual_state_change",
    "rollback_invoked",
    "rollback_succeeded",
    "error_message",
)


@pytest.fixture
def api() -> Iterator[Api]:
    with listening() as found:
        yield found


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", {"a": b"old a", "b": b"old b"})
    yield found
    found.hf.close()


def _failed(
    ground: Ground, *steps: Step, kind: type[BaseException] = VerificationFailed, well: bool = True
) -> list[Told]:
    with pytest.raises(kind):
        ground.apply(*steps, health=() if well else (_UNWELL,))
    return _results(ground)


def _press() -> None:
    raise KeyboardInterrupt


def _break() -> None:
    raise OSError(errno.EIO, "the disk is broken")


def _results(ground: Ground) -> list[Told]:
    """Of the newest execution, as it was recorded."""
    _, document = ground.hf.show(ground.hf.log()[0].id)
    assert document is not None
    steps: list[dict[str, Any]] = document["steps"]  # type: ignore[assignment]
    return [Told(*(step[name] for name in _FIELDS)) for step in steps]


def test_a_call_that_cannot_be_taken_back_is_told_as_made(ground: Ground, api: Api) -> None:
    """The server received and answered it: the step was done, and it stands."""
    api.answers |= {"POST /fail": 503, "POST /unfail": 503}
    drain, fail = Service(Call(f"{api.url}/drain")), Service(Call(f"{api.url}/fail"), Call(f"{api.url}/unfail"))
    after = Service(Call(f"{api.url}/after"))
    written, drained, failed, never = _failed(ground, put("a", b"new"), drain, fail, after, kind=NeedsHuman)
    assert api.lines == ["POST /drain", "POST /fail", "POST /unfail"]
    assert written == _FILE_BACK
    made = f"POST {api.url}/drain"
    assert drained == Told(True, True, made, True, False, "done, and it stands: cannot be taken back")
    why = f"POST {api.url}/fail answered 503; what it did, if anything, stands: "
    assert failed[:5] == (False, False, "not known: it was begun and failed", True, False)
    assert failed.error == f"{why}could not be taken back: POST {api.url}/unfail answered 503"
    assert never == _UNTOUCHED


def test_what_was_done_and_taken_back_says_so(ground: Ground, api: Api) -> None:
    """File steps and services alike; a step that only read is none that was never begun."""
    call = Service(Call(f"{api.url}/a"), Call(f"{api.url}/a", "DELETE"))
    written, read, called, launched = _failed(ground, put("a", b"new"), Read("b"), call, _STAYS, well=False)
    assert (written, read) == (_FILE_BACK, _FILE_BACK)
    made = f"POST {api.url}/a, then taken back: DELETE {api.url}/a made"
    assert called == Told(False, False, made, True, True, _TAKEN_BACK)
    assert launched == called._replace(change="launch sleep 300, then taken back: ended sleep 300")


def test_a_failed_action_that_was_taken_back_keeps_its_reason(ground: Ground, api: Api) -> None:
    """Its way back was taken all the same, since it may have had an effect."""
    api.answers["POST /a"] = 500
    (called,) = _failed(ground, Service(Call(f"{api.url}/a"), Call(f"{api.url}/a", "DELETE")))
    change = f"not known: it was begun and failed, then taken back: DELETE {api.url}/a made"
    assert called == Told(False, False, change, True, True, f"POST {api.url}/a answered 500")


def test_steps_after_the_one_that_failed_were_never_begun(tmp_path: Path) -> None:
    """Interrupted at the second of three paths: one is done and taken back, one was begun, and one was not."""
    ground = guard(tmp_path / "workspace", {"a": b"1", "b": b"1", "c": b"1", "d": b"1"}, calls := Interloper())

    ready = ground.ready(ground.plan(Read("d"), put("a", b"2"), put("b", b"2"), put("c", b"2"), Read("d")))
    calls.arm("exchange", _press, skip=1)
    with pytest.raises(KeyboardInterrupt):
        ready.execute()
    begun = _FILE_BACK._replace(error="begun, and taken back, because the whole change failed")
    assert _results(ground) == [_FILE_BACK, _FILE_BACK, begun, _UNTOUCHED, _UNTOUCHED]


def test_a_file_that_could_not_be_taken_back_is_told_as_done(tmp_path: Path) -> None:
    """The disk fails on the way back: what stands as it was planned was done, and stands."""
    ground = guard(tmp_path / "workspace", {"a": b"1"}, calls := Interloper())
    ready = ground.ready(ground.plan(put("a", b"2"), health=(_UNWELL,)))
    calls.arm("exchange", _break, skip=1)
    with pytest.raises(NeedsHuman):
        ready.execute()
    change = "not as before: file, 1 byte, mode 0644"
    assert _results(ground) == [Told(True, True, change, True, False, "done, and it stands: it was not taken back")]


def test_a_file_that_others_changed_since_was_done(ground: Ground) -> None:
    """Their change is left alone and named; the step on another path was taken back all the same."""
    meddler = CommandCheck(("sh", "-c", "echo theirs > b; exit 1"), 5_000)
    with pytest.raises(NeedsHuman):
        ground.apply(put("b", b"new"), put("a", b"new"), health=(meddler,))
    error = "done, but b was changed by somebody else (other content); left as it is"
    left = Told(False, False, "not as before: file, 7 bytes, mode 0644", True, False, error)
    assert _results(ground) == [left, _FILE_BACK]


def test_of_a_change_that_was_refused_nothing_was_begun(ground: Ground) -> None:
    """Before the first path moves there is nothing to take back, and no step says that there was."""
    ready = ground.ready(ground.plan(put("a", b"2"), put("b", b"2")))
    (ground / "a").write_bytes(b"theirs")
    with pytest.raises(HoldfastError):
        ready.execute()
    first, second = _results(ground)
    assert (first.change, first.invoked, first.succeeded, "a" in first.error) == ("none", False, False, True)
    assert second == _UNTOUCHED._replace(error="not done, because the whole change failed")


def _counted(ground: Ground) -> tuple[object, ...]:
    """Executed, succeeded, failed; and for each step whether it has times."""
    _, document = ground.hf.show(ground.hf.log()[0].id)
    assert document is not None
    steps: list[dict[str, Any]] = document["steps"]  # type: ignore[assignment]
    timed = [[step[name] is not None for name in ("started_ns", "completed_ns", "duration_ms")] for step in steps]
    assert all(len(set(each)) == 1 for each in timed)
    counts = [document[f"steps_{name}"] for name in ("executed", "succeeded", "failed")]
    return *counts, [each[0] for each in timed]


def test_a_step_that_never_began_is_not_executed(ground: Ground) -> None:
    """After `on_failure: stop` what comes later has no times, and neither succeeded nor failed."""
    plan = Plan("stop", (put("a", b"new"), Service(Call("http://127.0.0.1:9/x")), _STAYS), on_failure="stop")
    done = ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id)
    assert done.status == "PARTIAL"
    assert _results(ground)[2] == _UNTOUCHED
    assert _counted(ground) == (2, 1, 1, [True, True, False])


def test_what_was_taken_back_was_executed_and_failed(tmp_path: Path) -> None:
    """Interrupted at the second of three paths: the third never moved, and has no times."""
    ground = guard(tmp_path / "workspace", {"a": b"1", "b": b"1", "c": b"1"}, calls := Interloper())
    ready = ground.ready(ground.plan(put("a", b"2"), put("b", b"2"), put("c", b"2")))
    calls.arm("exchange", _press, skip=1)
    with pytest.raises(KeyboardInterrupt):
        ready.execute()
    assert _counted(ground) == (2, 0, 2, [True, True, False])


def test_nothing_of_a_refused_change_was_executed(ground: Ground) -> None:
    """No step of an aborted execution has times."""
    ready = ground.ready(ground.plan(put("a", b"2"), put("b", b"2")))
    (ground / "a").write_bytes(b"theirs")
    with pytest.raises(HoldfastError):
        ready.execute()
    assert _counted(ground) == (0, 0, 0, [False, False])


@pytest.mark.parametrize("point", ["action-begun", "action-done"])
def test_an_action_that_was_broken_off_was_begun(tmp_path: Path, api: Api, point: str) -> None:
    """Ctrl-C in the middle of an action: it may have had its effect, so it was begun, and was taken back."""
    ground = guard(tmp_path / "workspace", {"a": b"old"}, calls := FaultyCalls())
    call = Service(Call(f"{api.url}/a"), Call(f"{api.url}/a", "DELETE"))
    ready = ground.ready(ground.plan(put("a", b"new"), call, call))
    calls.arm(At(point, _press))
    with pytest.raises(KeyboardInterrupt):
        ready.execute()
    change, error = f"POST {api.url}/a", _TAKEN_BACK
    if point == "action-begun":
        change, error = "not known: it was begun and failed", "it was broken off"
    called = Told(False, False, f"{change}, then taken back: DELETE {api.url}/a made", True, True, error)
    assert _results(ground) == [_FILE_BACK, called, _UNTOUCHED]


@pytest.mark.parametrize(
    ("point", "expected"),
    [
        ("prepared", [_UNTOUCHED._replace(error="not done, because the whole change failed"), _UNTOUCHED, _UNTOUCHED]),
        ("flipped", [_FILE_AFTER_A_CRASH, _UNTOUCHED, _UNTOUCHED]),
        (
            "action-begun",
            [
                _FILE_BACK,
                Told(
                    False,
                    False,
                    f"not known: it was begun and failed, then taken back: {_RECORDED}",
                    True,
                    True,
                    _UNRECORDED,
                ),
                _UNTOUCHED,
            ],
        ),
        (
            "action-done",
            [
                _FILE_BACK,
                Told(False, False, f"launch sleep 300, then taken back: {_RECORDED}", True, True, _TAKEN_BACK),
                _UNTOUCHED,
            ],
        ),
    ],
)
def test_recovery_tells_each_step_as_far_as_the_disk_proves_it(
    ground: Ground, point: str, expected: list[Told]
) -> None:
    """Killed, and taken back by the next process: an action that the journal does not know was never begun."""
    plan = Plan("stay", (put("a", b"new"), _STAYS, _STAYS))

    def die() -> None:
        there = Ground(ground.path, calls := FaultyCalls())
        ready = there.ready(plan)
        calls.arm(KillAt(point))
        ready.execute()

    assert in_child(die) == -9
    ground.hf.recover()
    assert _results(ground) == expected
