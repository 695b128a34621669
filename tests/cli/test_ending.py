"""How a change that did not land is told: what stopped it, under its own name."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from guarded import Ground, Refusing, guard, put
from holdfast.cli.ending import elsewhere, telling_failure
from holdfast.cli.landing import land
from holdfast.cli.screen import Screen
from holdfast.errors import Conflict, HoldfastError, PartlyDone, VerificationFailed
from holdfast.model.plan import Call, CommandCheck, Plan, Service
from servers import listening


def _told(workspace: Path, calls: Refusing, *, health: tuple[CommandCheck, ...] = ()) -> HoldfastError:
    ground = guard(workspace, {"a": b"0", "d/b": b"0"}, calls)
    rehearsal = ground.ready(ground.plan(put("a", b"1"), put("d/b", b"1"), health=health))
    calls.armed = True
    with pytest.raises(HoldfastError) as caught, telling_failure(Screen("text", colour=False), ground.hf):
        rehearsal.execute()
    assert (workspace / "a").read_bytes() == b"0"
    return caught.value


def test_a_right_that_is_missing_is_no_matter_of_health(tmp_path: Path) -> None:
    """A directory that we may not write in: the error names the path, and does not speak of health."""
    error = _told(tmp_path, Refusing("exchange", errno.EACCES, lambda name, *rest: name == "b"))
    assert "Permission denied: 'd/b'" in error.message
    assert "Health" not in error.message
    assert error.hint.startswith("Rolled back: 2 paths proven byte for byte as before.")


def test_a_failed_health_check_is_told_as_one(tmp_path: Path) -> None:
    """What failed is the health check, and that is what is said."""
    error = _told(tmp_path, Refusing("exchange", errno.EACCES, lambda *args: False), health=(_FALSE,))
    assert isinstance(error, VerificationFailed)
    assert error.message.startswith("Health: false exited with 1")


def test_a_change_that_landed_unrecorded_is_told_with_its_execution(tmp_path: Path) -> None:
    """It stands, and the ledger cannot be written: exit 1, changed, and the way on; the execution is attached."""
    calls = Refusing("pwrite", errno.EIO, lambda fd, data, offset: b'"kind":"execution"' in bytes(data))
    ground = guard(tmp_path, {"a": b"0"}, calls)
    rehearsal = ground.ready(ground.plan(put("a", b"1")))
    calls.armed = True
    screen = Screen("json", colour=False)
    with pytest.raises(HoldfastError) as caught, telling_failure(screen, ground.hf):
        rehearsal.execute()
    assert (caught.value.exit_status, caught.value.changed) == (1, True)
    assert "the next verb" in caught.value.hint
    assert ground.hf.last is not None and ground.hf.last.status == "COMPLETED"


def test_a_rollback_tells_what_others_changed_elsewhere(tmp_path: Path) -> None:
    """After the proof of its own paths, each path by its name, however many there are."""
    meddler = CommandCheck(("sh", "-c", "for n in 1 2 3 4 5 6 7; do echo x > new$n; done; exit 1"), 100)
    hint = _told(tmp_path, Refusing("exchange", errno.EACCES, lambda *args: False), health=(meddler,)).hint.splitlines()
    assert hint[0] == "Rolled back: 2 paths proven byte for byte as before."
    assert hint[1:6] == [f"  ! new{n} was created meanwhile, not by this change" for n in range(1, 6)]
    assert hint[6].startswith("  and 2 more: holdfast show e-")


def test_a_tree_that_was_not_looked_at_is_told_so(tmp_path: Path) -> None:
    """Nothing is said to be unchanged that nobody looked at."""
    ground = guard(tmp_path / "workspace", {"a": b"0"})
    done = ground.apply(put("a", b"1"))
    assert elsewhere(done) == []
    (line,) = elsewhere(replace(done, not_looked_at="it has more than 200,000 paths"))
    assert line.endswith("what others changed meanwhile was not looked at: it has more than 200,000 paths")


_FALSE = CommandCheck(("false",), 200)


def _landing(ground: Ground, plan: Plan, meanwhile: Callable[[], object] = lambda: None) -> None:
    simulated = ground.hf.simulate(plan)
    verified = ground.hf.verify(simulated)
    decision = ground.hf.evaluate(simulated, verified)
    ground.hf.approve(decision, by="tester")
    meanwhile()
    land(Screen("text", colour=False), ground.hf, simulated, verified, decision)


def test_who_was_overtaken_is_told_to_simulate_again(tmp_path: Path) -> None:
    """Somebody replaced a file after the simulation: nothing was changed, and what to do is said."""
    ground = guard(tmp_path, {"a": b"old"})

    def meanwhile() -> None:
        (ground / "b").write_bytes(b"theirs")
        (ground / "b").rename(ground / "a")

    with pytest.raises(Conflict, match="a was replaced by somebody else") as caught:
        _landing(ground, ground.plan(put("a", b"new")), meanwhile)
    assert caught.value.hint == "Nothing was changed. Simulate again."
    assert (ground / "a").read_bytes() == b"theirs"


def test_what_was_done_to_services_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that only acts on a service did not apply 0 changes: the action is named, beside files where there are."""
    ground = guard(tmp_path, {"a": b"old"})
    with listening() as api:
        call = Service(Call(api.url))
        _landing(ground, ground.plan(call))
        assert f"Applied 1 service action (POST {api.url}) in " in capsys.readouterr().out
        _landing(ground, ground.plan(put("a", b"new"), call))
        assert f"Applied 1 change and 1 service action (POST {api.url}) in " in capsys.readouterr().out


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_failed_step_under_continue_is_told_as_partly_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: Literal["text", "json"]
) -> None:
    """The files landed and a service action failed: exit 13, what failed, how to undo it, and the execution as JSON."""
    ground = guard(tmp_path / "workspace", {"a": b"old"})
    call = Service(Call("http://127.0.0.1:9/x"), Call("http://127.0.0.1:9/y"))
    plan = Plan("go on", (put("a", b"new"), call), on_failure="continue")
    simulated = ground.hf.simulate(plan)
    verified = ground.hf.verify(simulated)
    decision = ground.hf.evaluate(simulated, verified)
    ground.hf.approve(decision, by="tester")
    screen = Screen(form, colour=False)
    with pytest.raises(PartlyDone) as caught:
        land(screen, ground.hf, simulated, verified, decision)
    id = ground.hf.log()[0].id
    assert (caught.value.exit_status, caught.value.changed) == (13, True)
    assert "127.0.0.1:9/x" in caught.value.message
    assert caught.value.hint == f"Undo with: holdfast undo {id}"
    screen.failure(caught.value)
    told = capsys.readouterr().out
    if form == "json":
        document = json.loads(told)
        assert (document["error"]["code"], document["execution"]["status"]) == ("partly_done", "PARTIAL")
        assert (document["execution"]["id"], document["execution"]["undoable"]) == (id, True)
    else:
        assert "Applied 1 change" in told
    assert (ground / "a").read_bytes() == b"new"
