"""Services through the whole road: a real site, restarted, found unwell, rolled back with its files, undone, redone."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from execution.little_site import LittleSite, little_site, put_away, wait_for
from guarded import ME, Ground, Refusing, guard, in_child, put
from holdfast.engine.history import collect
from holdfast.errors import ApprovalNeeded, Blocked, InvalidInput, NeedsHuman, VerificationFailed
from holdfast.model.execution import Execution
from holdfast.model.plan import Call, CommandCheck, Effect, HealthCheck, HttpCheck, Launch, Plan, Service, Signal, Step
from holdfast.sandbox.daemon import is_alive
from holdfast.store.running import launched_name
from holdfast.testing import At, FaultyCalls, KillAt
from servers import Api, listening

RESTART = Service(Signal("restart", "site"), Signal("restart", "site"), 5000)
STAYS = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)")


@pytest.fixture
def api() -> Iterator[Api]:
    with listening() as found:
        yield found


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", {"site.conf": b"one"})
    yield found
    found.hf.close()


@pytest.fixture
def site(ground: Ground, home: Path) -> Iterator[LittleSite]:
    made = little_site(ground.path)
    made.configure(home / "xdg_config_home")
    made.start()
    yield made
    made.stop()


def healthy(site: LittleSite, within_ms: int = 3000) -> HealthCheck:
    return HttpCheck(site.url, 200, within_ms=within_ms)


def failing(site: LittleSite) -> tuple[Step, ...]:
    return put("site.conf", b"bad two"), RESTART


def record(ground: Ground, execution: Execution) -> dict[str, object]:
    document = ground.hf.show(execution.id)[1]
    assert document is not None
    return document


# ── forwards, and back when it is unwell ──


def test_a_plan_without_health_gets_what_the_user_says_of_the_service(
    ground: Ground, site: LittleSite, home: Path
) -> None:
    """`[services.site] health` is asked where a change file names none: a bad release goes back by itself."""
    site.configure(home / "xdg_config_home", f'health = "{site.url} answers 200 within 3s"\n')
    file = ground.path.parent / "change.yaml"
    file.write_text(
        "intent: release\nsteps:\n  - write: site.conf\n    content: bad two\n  - service: {restart: site}\n"
    )
    with pytest.raises(VerificationFailed, match="answered 500"):
        ground.hf.execute(ground.hf.simulate(ground.hf.plan(str(file))), approved_by=ME)
    assert (site.answer(), ground.statuses()) == ((200, b"one"), ["ROLLED_BACK"])
    site.configure(home / "xdg_config_home", 'health = "it feels well"\n')
    with pytest.raises(InvalidInput, match=r"\[services.site\] health: 'it feels well' is not understood"):
        ground.hf.plan(str(file))


def test_a_restarted_site_serves_the_new_files(ground: Ground, site: LittleSite) -> None:
    """The service is restarted after the files are in place, and its health is asked after that."""
    before = site.daemon()
    execution = ground.apply(put("site.conf", b"two"), RESTART, health=(healthy(site),))
    assert site.answer() == (200, b"two")
    assert before is not None and not is_alive(before.identity)
    assert (execution.status, execution.errors, len(site.processes())) == ("COMPLETED", (), 1)
    assert ground.hf.log()[0].summary["services"] == 1


def test_an_unhealthy_site_gets_its_old_files_and_is_well_again(ground: Ground, site: LittleSite) -> None:
    """Health fails: files go back, the site is restarted with them, its health is asked once more, and all is told."""
    before = ground.tree()
    with pytest.raises(VerificationFailed, match="500") as caught:
        ground.apply(*failing(site), health=(healthy(site, 600),))
    execution = ground.hf.last
    assert execution is not None
    assert (execution.status, ground.tree()) == ("ROLLED_BACK", before)
    assert site.answer() == (200, b"one")
    assert execution.taken_back == ("site restarted with the old files", "healthy again")
    assert caught.value.hint.startswith("site restarted with the old files, healthy again.")
    told = record(ground, execution)
    assert told["services_taken_back"] == list(execution.taken_back)
    assert [receipt.passed for receipt in execution.receipts] == [False, True]
    assert execution.receipts[1].tree_digest == execution.before_digest
    assert ground.hf.log()[0].summary["taken_back"] == list(execution.taken_back)
    assert ground.journal() == []


def test_a_site_that_falls_over_is_told_with_its_last_words(ground: Ground, site: LittleSite) -> None:
    """A service that ends as soon as it is started fails the change at once, in its own words."""
    with pytest.raises(VerificationFailed, match="fatal indeed"):
        ground.apply(put("site.conf", b"fatal"), RESTART)
    assert (ground.statuses(), site.answer()) == (["ROLLED_BACK"], (200, b"one"))


def test_a_site_that_is_not_well_afterwards_is_told_so(ground: Ground, site: LittleSite) -> None:
    """What is found after the rollback is told, also when it is bad; the files are proven as before all the same."""
    nowhere = HttpCheck(site.url, 204, within_ms=300)
    with pytest.raises(VerificationFailed) as caught:
        ground.apply(put("site.conf", b"two"), RESTART, health=(nowhere,))
    execution = ground.hf.last
    assert execution is not None and execution.status == "ROLLED_BACK"
    assert "not healthy" in caught.value.hint
    assert any(error.startswith("after the rollback:") for error in execution.errors)


def test_a_site_that_did_not_run_does_not_run_after_a_rollback(ground: Ground, site: LittleSite) -> None:
    """Restarting what did not run starts it; the rollback stops it again."""
    site.stop()
    with pytest.raises(VerificationFailed):
        ground.apply(*failing(site), health=(healthy(site, 300),))
    assert (site.processes(), ground.statuses()) == ([], ["ROLLED_BACK"])


def test_a_launched_program_ends_with_the_rollback(ground: Ground, site: LittleSite) -> None:
    """What a plan launched is ended when the plan fails, and nothing of it is left."""
    with pytest.raises(VerificationFailed):
        ground.apply(
            put("site.conf", b"two"), Service(Launch(STAYS)), health=(HttpCheck(site.url, 204, within_ms=200),)
        )
    execution = ground.hf.last
    assert execution is not None
    assert execution.taken_back[0].startswith("ended ")
    assert site.daemon(launched_name(f"{execution.id}-0")) is None
    assert ground.statuses() == ["ROLLED_BACK"]


@pytest.fixture
def no_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.engine.actions._SYSTEMD", "/nonexistent")


@pytest.mark.usefixtures("no_systemd")
def test_a_service_that_nobody_knows_is_refused_in_the_rehearsal(ground: Ground) -> None:
    """Neither systemd nor the configuration has it: the plan is blocked before anybody is asked, with what to do."""
    before = ground.tree()
    with pytest.raises(Blocked, match=r"step-2 \(service\): restart site: there is no systemd here") as caught:
        ground.apply(put("site.conf", b"two"), RESTART)
    assert "[services.site] start" in caught.value.message
    assert (ground.tree(), ground.statuses()) == (before, [])


@pytest.mark.usefixtures("no_systemd")
def test_a_service_that_is_no_longer_known_needs_no_person(ground: Ground, site: LittleSite, home: Path) -> None:
    """The configuration lost it after the simulation: nothing was begun, so the files go back and that is all."""
    before = ground.tree()
    found = ground.hf.simulate(Plan("restart", (put("site.conf", b"two"), RESTART)))
    (home / "xdg_config_home" / "holdfast" / "config.toml").unlink()
    with pytest.raises(VerificationFailed, match="no systemd here"):
        ground.hf.execute(found, approved_by=ME)
    assert (ground.tree(), ground.statuses(), ground.journal()) == (before, ["ROLLED_BACK"], [])
    assert ground.hf.last is not None and ground.hf.last.taken_back == ()


@pytest.mark.usefixtures("no_systemd")
def test_an_execution_whose_only_action_could_not_begin_is_undone(ground: Ground, site: LittleSite, home: Path) -> None:
    """The plan goes on without it; what was never begun is known as that, and the undo is about the files."""
    before = ground.tree()
    found = ground.hf.simulate(Plan("restart", (put("site.conf", b"two"), RESTART), on_failure="continue"))
    (home / "xdg_config_home" / "holdfast" / "config.toml").unlink()
    done = ground.hf.execute(found, approved_by=ME)
    assert (done.status, len(done.errors)) == ("PARTIAL", 1)
    ground.hf.undo(done.id, approved_by="me")
    assert ground.tree() == before


def test_a_service_alone_is_a_change_too(ground: Ground, site: LittleSite) -> None:
    """A plan without files restarts a service, each time it is applied, and is recorded."""
    plan = Plan("only restart", (RESTART,))
    for _ in range(2):
        before = site.daemon()
        assert ground.hf.already_done(plan) is None
        ground.hf.execute(ground.hf.simulate(plan), approved_by=ME)
        assert site.daemon() != before
    assert ground.statuses() == ["COMPLETED", "COMPLETED"]


# ── what cannot be taken back ──


def test_a_call_without_a_way_back_needs_an_explicit_yes(ground: Ground, api: Api) -> None:
    """The report calls it critical, the gate asks for approval with that reason, and without it nothing is done."""
    simulated = ground.hf.simulate(ground.plan(put("site.conf", b"two"), Service(Call(f"{api.url}/publish"))))
    assert simulated.report.steps[1].risk == "CRITICAL"
    assert simulated.report.steps[1].confirmations == (f"POST {api.url}/publish cannot be taken back",)
    decision = ground.hf.evaluate(simulated)
    assert decision.verdict == "NEED_APPROVAL"
    assert any("cannot be taken back: step-2" in reason.detail for reason in decision.reasons)
    with pytest.raises(ApprovalNeeded):
        ground.hf.execute(simulated, decision=decision)
    assert (api.lines, (ground / "site.conf").read_bytes()) == ([], b"one")
    ground.hf.execute(simulated, ground.hf.approve(decision), decision=decision)
    assert (api.lines, (ground / "site.conf").read_bytes()) == (["POST /publish"], b"two")


def test_what_was_called_stands_when_something_later_fails(ground: Ground, site: LittleSite, api: Api) -> None:
    """The files go back, the record says what stands outside, and a person is needed: FAILED, exit 7."""
    before = ground.tree()
    with pytest.raises(NeedsHuman, match=r"POST .*/publish cannot be taken back") as caught:
        ground.apply(
            put("site.conf", b"two"),
            Service(Call(f"{api.url}/publish")),
            health=(HttpCheck(site.url, 204, within_ms=200),),
        )
    execution = ground.hf.last
    assert execution is not None
    assert (execution.status, caught.value.exit_status, caught.value.changed) == ("FAILED", 7, True)
    assert ground.tree() == before
    assert f"POST {api.url}/publish cannot be taken back" in ground.hf.log()[0].summary["errors"]  # type: ignore[operator]
    assert f"holdfast show {execution.id}" in caught.value.hint
    assert ground.ledger_statuses() == ["FAILED"]
    assert ground.reopened().hf.recover() is None, "it is recorded, and nothing waits"


def test_a_compensation_that_fails_needs_a_person(ground: Ground, site: LittleSite, api: Api) -> None:
    """Declared and failed is as good as not declared: FAILED, and the record says why; the others are taken back."""
    api.answers["DELETE /b"] = 500
    steps = (
        put("site.conf", b"two"),
        Service(Call(f"{api.url}/a"), Call(f"{api.url}/a", "DELETE")),
        Service(Call(f"{api.url}/b"), Call(f"{api.url}/b", "DELETE")),
    )
    with pytest.raises(NeedsHuman, match="answered 500"):
        ground.apply(*steps, health=(HttpCheck(site.url, 204, within_ms=200),))
    assert ground.statuses() == ["FAILED"]
    assert api.lines == ["POST /a", "POST /b", "DELETE /b", "DELETE /a"]


def test_an_action_that_may_fail_is_in_the_record(ground: Ground, api: Api) -> None:
    """With `on_failure: continue` the change stands as PARTIAL, what failed is among its errors, and undo takes it."""
    api.answers["POST /a"] = 500
    plan = Plan("go on", (put("site.conf", b"two"), Service(Call(f"{api.url}/a"), Call(f"{api.url}/a", "DELETE"))),
                on_failure="continue")  # fmt: skip
    execution = ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id)
    assert (execution.status, len(execution.errors)) == ("PARTIAL", 1)
    assert ground.hf.log()[0].summary["errors"] == list(execution.errors)
    assert [(step.success, step.error_message) for step in execution.steps] == [
        (True, ""),
        (False, execution.errors[0]),
    ]
    assert not any(step.rollback_invoked for step in execution.steps)
    assert ground.hf.log()[0].landed
    ground.hf.undo(execution.id, approved_by="me")
    assert (ground / "site.conf").read_bytes() == b"one"


# ── interruptions ──


@pytest.mark.parametrize("point", ["action-begun", "action-done"])
def test_interrupted_during_an_action_everything_goes_back(ground: Ground, site: LittleSite, point: str) -> None:
    """Ctrl-C around the restart of a service: files and service are as before, and the next verb records it."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    before = ground.tree()
    calls = FaultyCalls(At(point, interrupt))
    there = ground.reopened(calls)
    with pytest.raises(KeyboardInterrupt):
        there.apply(put("site.conf", b"two"), RESTART)
    assert (there.tree(), site.answer()) == (before, (200, b"one"))
    there.hf.recover()
    assert (there.statuses(), there.journal()) == (["ROLLED_BACK"], [])
    there.hf.close()


@pytest.mark.parametrize("fact", ["begun", "done"])
def test_a_full_disk_during_the_actions_rolls_back(ground: Ground, site: LittleSite, fact: str) -> None:
    """What cannot be noted fails: the change is rolled back with its services, and not left in doubt."""
    calls = Refusing("pwrite", 28, lambda fd, data, at: fact.encode() in data)
    there = ground.reopened(calls)
    before = there.tree()
    calls.armed = True
    with pytest.raises(VerificationFailed, match="could not be noted"):
        there.apply(put("site.conf", b"two"), RESTART)
    assert calls.refused == 1
    assert (there.tree(), there.statuses(), site.answer()) == (before, ["ROLLED_BACK"], (200, b"one"))
    there.hf.close()


def _die(ground: Ground, point: str, *steps: Step, health: tuple[HealthCheck, ...] = ()) -> None:
    def act() -> None:
        calls = FaultyCalls()
        there = Ground(ground.path, calls)
        simulated = there.hf.simulate(there.plan(*steps, health=health))
        calls.arm(KillAt(point))
        there.hf.execute(simulated, approved_by=ME, consent=simulated.plan.id)

    ground.hf.close()
    assert in_child(act) == -9
    ground.hf = Ground(ground.path).hf


@pytest.mark.parametrize(("point", "between"), [("applied", ["APPLYING"]), ("commit", ["APPLYING", "VERIFYING"])])
def test_a_killed_one_tells_whether_it_came_to_its_actions(
    ground: Ground, site: LittleSite, point: str, between: list[str]
) -> None:
    """A service action that was done comes after the files were verified, and the history says so."""
    _die(ground, point, put("site.conf", b"two"), RESTART)
    ground.hf.recover()
    (row,) = ground.hf.log()
    history = [moment[0] for moment in row.summary["history"]]  # type: ignore[index,union-attr]
    assert history == ["PENDING", "VALIDATING", "BACKING_UP", *between, "FAILED", "ROLLED_BACK"]
    assert site.answer() == (200, b"one")


def test_accepting_leaves_what_cannot_be_taken_back_and_says_so(ground: Ground, api: Api) -> None:
    """After a crash recovery asks for a person; `--accept` closes it as FAILED with what stands, and life goes on."""
    before = ground.tree()
    _die(ground, "commit", put("site.conf", b"two"), Service(Call(f"{api.url}/publish")))
    for _ in range(2):
        with pytest.raises(NeedsHuman, match="cannot be taken back") as caught:
            ground.hf.recover()
        assert caught.value.hint.startswith("Not all of that can be taken back")  # so trying again is not what helps
    assert ground.tree() == before
    found = ground.hf.recover(accept=True)
    assert found is not None and [item.path for item in found.left] == [f"POST {api.url}/publish"]
    assert ground.statuses() == ground.ledger_statuses() == ["FAILED"]
    assert f"POST {api.url}/publish cannot be taken back" in ground.hf.log()[0].summary["errors"]  # type: ignore[operator]
    assert (api.lines, ground.journal()) == (["POST /publish"], [])
    ground.apply(put("site.conf", b"three"))


@pytest.mark.parametrize("point", ["ledger.durable", "in-ledger", "in-tables", "put-away"])
def test_an_interrupted_acceptance_is_not_asked_again(ground: Ground, api: Api, point: str) -> None:
    """Killed while it was being recorded, an acceptance ends as FAILED at the next verb, with the same words."""
    _die(ground, "commit", put("site.conf", b"two"), Service(Call(f"{api.url}/publish")))
    ground.hf.close()
    assert in_child(lambda: Ground(ground.path, FaultyCalls(KillAt(point))).hf.recover(accept=True)) == -9
    ground.hf = Ground(ground.path).hf
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == ["FAILED"]
    assert f"POST {api.url}/publish cannot be taken back" in ground.hf.log()[0].summary["errors"]  # type: ignore[operator]
    assert ground.journal() == []


def test_a_recorded_failure_is_not_asked_again(ground: Ground, api: Api) -> None:
    """Killed between the ledger entry that says what stands and the tidying up, recovery asks nobody again."""
    health = (HttpCheck("http://127.0.0.1:9/", 200, within_ms=100),)
    _die(ground, "in-ledger", put("site.conf", b"two"), Service(Call(f"{api.url}/publish")), health=health)
    ground.hf.recover()
    assert ground.statuses() == ground.ledger_statuses() == ["FAILED"]
    assert (api.lines, ground.journal()) == (["POST /publish"], [])


def test_files_first_then_services_when_a_person_decides(ground: Ground, site: LittleSite) -> None:
    """With somebody's edit in the way, the site is restarted when that is settled, with the files that stand then."""
    _die(ground, "commit", put("site.conf", b"two"), put("other", b"x"), RESTART)
    assert site.answer() == (200, b"two")
    (ground / "site.conf").write_bytes(b"mine")
    with pytest.raises(NeedsHuman):
        ground.hf.recover()
    assert site.answer() == (200, b"two")
    ground.hf.recover(accept=True)
    assert ((ground / "site.conf").read_bytes(), site.answer()) == (b"mine", (200, b"mine"))
    assert ground.statuses() == ["FAILED"]


def test_an_edit_during_the_health_check_restarts_with_what_stands(ground: Ground, site: LittleSite) -> None:
    """A rollback that meets somebody's edit tells the site at once, and again when a person has decided."""
    edit = (sys.executable, "-c", "import sys; open('site.conf','wb').write(b'mine'); sys.exit(1)")
    with pytest.raises(NeedsHuman):
        ground.apply(put("site.conf", b"two"), RESTART, health=(CommandCheck(edit, 2000),))
    assert site.answer() == (200, b"mine")
    (ground / "site.conf").write_bytes(b"settled")
    ground.hf.recover(accept=True)
    assert site.answer() == (200, b"settled")


# ── undo, redo, restore ──


def test_undo_restarts_with_the_old_files_and_redo_with_the_new(ground: Ground, site: LittleSite) -> None:
    """What was done outside the files goes with an undo, is listed in its preview, and comes back with a redo."""
    done = ground.apply(put("site.conf", b"two"), RESTART)
    way = ground.hf.preview_undo(done.id)
    assert way.services == ("restart site with the old files",)
    assert site.answer() == (200, b"two"), "a preview does nothing"
    for _ in range(2):
        undone = ground.hf.undo(done.id, approved_by="me")
        assert site.answer() == (200, b"one")
        assert ground.hf.preview_undo(undone.id).services == ("restart site",)
        ground.hf.undo(undone.id, approved_by="me")
        assert site.answer() == (200, b"two")
    assert ground.hf.audit().ok
    assert len(site.processes()) == 1


def redo(ground: Ground, id: str) -> None:
    """Undo an undo, with the consent that the risk of its service actions asks for."""
    way = ground.hf.preview_undo(id)
    ground.hf.go_back(way, approved_by=ME, consent=ground.hf.again(way).plan.id)


def test_undo_of_a_launch_ends_it_and_redo_launches_it(ground: Ground, site: LittleSite) -> None:
    """The program launched by a plan ends with its undo, runs again after a redo, and ends with the second undo."""
    site.stop()
    done = ground.apply(put("x", b"1"), Service(Launch(site.argv)))
    name = launched_name(f"{done.id}-0")
    assert ground.hf.preview_undo(done.id).services[0].startswith("end ")
    first = site.daemon(name)
    assert first is not None and is_alive(first.identity)
    for _ in range(2):
        undone = ground.hf.undo(done.id, approved_by="me")
        assert (site.processes(), site.daemon(name)) == ([], None)
        redo(ground, undone.id)
        wait_for(lambda: len(site.processes()) == 1)
    put_away(site.daemon(name))


def test_undo_leaves_a_service_that_ran_before(ground: Ground, site: LittleSite) -> None:
    """Undoing the start of a service that ran already does not stop it; of one that did not, it does."""
    start = Service(Signal("start", "site"), Signal("stop", "site"), 5000)
    way = ground.hf.preview_undo(ground.apply(put("x", b"1"), start).id)
    assert way.services == ("leave site running",)
    ground.hf.go_back(way, approved_by=ME)
    assert site.is_up()
    site.stop()
    ground.hf.undo(ground.apply(put("x", b"2"), start).id, approved_by="me")
    assert not site.processes()


def test_undo_names_what_it_cannot_take_back(ground: Ground, api: Api) -> None:
    """A call without compensation stays, and the preview says so; calls with one are taken back newest first."""
    steps: tuple[Effect, ...] = (Call(f"{api.url}/a"), Call(f"{api.url}/b"), Call(f"{api.url}/c"))
    backs = (Call(f"{api.url}/a", "DELETE"), None, Call(f"{api.url}/c", "DELETE"))
    done = ground.apply(put("x", b"1"), *(Service(*pair) for pair in zip(steps, backs, strict=True)))
    way = ground.hf.preview_undo(done.id)
    assert [(item.path, item.detail) for item in way.left] == [
        (f"POST {api.url}/b", "was done and cannot be taken back; it stays")
    ]
    ground.hf.go_back(way, approved_by=ME)
    assert api.lines == ["POST /a", "POST /b", "POST /c", "DELETE /c", "DELETE /a"]


def test_undo_says_of_no_failed_call_that_it_was_done(ground: Ground) -> None:
    """What failed under `continue` may have had its effect, or none: that is what is told, and the rest goes back."""
    plan = Plan("go on", (put("x", b"1"), Service(Call("http://127.0.0.1:9/x"))), on_failure="continue")
    done = ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id)
    assert done.status == "PARTIAL"
    way = ground.hf.preview_undo(done.id)
    told = "was begun and failed; what it did, if anything, cannot be taken back; it stays"
    assert [(item.path, item.detail) for item in way.left] == [("POST http://127.0.0.1:9/x", told)]
    ground.hf.go_back(way, approved_by=ME)
    assert not (ground / "x").exists()


def test_a_simulation_that_landed_in_part_is_spent(ground: Ground) -> None:
    """gc removes it at once, as any that landed, however young it is."""
    plan = Plan("go on", (put("x", b"1"), Service(Call("http://127.0.0.1:9/x"))), on_failure="continue")
    simulated = ground.hf.simulate(plan)
    kept = ground.hf.keep(simulated, ground.hf.verify(simulated))
    assert ground.hf.execute(kept, approved_by=ME, consent=plan.id).status == "PARTIAL"
    ground.hf.gc()
    assert not list((ground.state / "simulations").glob("s-*"))


def test_an_undo_that_fails_leaves_what_it_was_undoing(ground: Ground, site: LittleSite, api: Api) -> None:
    """A failing compensation rolls the undo back: new files, and the service runs with them."""
    api.answers["DELETE /a"] = 500
    done = ground.apply(
        put("site.conf", b"two"), Service(Call(f"{api.url}/a"), Call(f"{api.url}/a", "DELETE")), RESTART
    )
    with pytest.raises(VerificationFailed, match="answered 500"):
        ground.hf.undo(done.id, approved_by="me")
    assert ((ground / "site.conf").read_bytes(), site.answer()) == (b"two", (200, b"two"))
    assert ground.statuses() == ["COMPLETED", "ROLLED_BACK"]
    assert api.lines == ["POST /a", "DELETE /a", "POST /a"]


def test_restore_takes_back_what_stands_newest_first(ground: Ground, api: Api) -> None:
    """Over several executions each one that stands is taken back once; what was undone already is not."""
    moment = ground.apply(put("x", b"0")).id
    at_ns = ground.hf.show(moment)[0].at_ns
    for name in ("a", "b", "c"):
        done = ground.apply(
            put("x", name.encode()), Service(Call(f"{api.url}/{name}"), Call(f"{api.url}/{name}", "DELETE"))
        )
    ground.hf.undo(done.id, approved_by="me")
    api.seen.clear()
    undone = ground.hf.restore(at_ns, approved_by="me")
    assert api.lines == ["DELETE /b", "DELETE /a"]
    assert (ground / "x").read_bytes() == b"0"
    api.seen.clear()
    redo(ground, undone.id)
    assert api.lines == ["POST /a", "POST /b"]
    assert (ground / "x").read_bytes() == b"b"


def test_a_service_alone_is_undone(ground: Ground, api: Api) -> None:
    """An execution without files has a way back too, and it is taken."""
    done = ground.apply(Service(Call(f"{api.url}/a"), Call(f"{api.url}/a", "DELETE")))
    ground.hf.undo(done.id, approved_by="me")
    assert api.lines == ["POST /a", "DELETE /a"]
    assert not ground.hf.show(done.id)[0].live


def test_only_what_was_begun_is_undone(ground: Ground, api: Api) -> None:
    """After `on_failure: stop` the undo compensates what was reached, and not what never was."""
    api.answers["POST /a"] = 500
    services = [Service(Call(f"{api.url}/{name}"), Call(f"{api.url}/{name}", "DELETE")) for name in ("a", "b")]
    plan = Plan("stop there", (put("x", b"1"), *services), on_failure="stop")
    done = ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id)
    assert [step.success for step in done.steps] == [True, False, False]
    assert done.steps[2].error_message == "not done, because something before it failed"
    ground.hf.undo(done.id, approved_by="me")
    assert api.lines == ["POST /a", "DELETE /a"]


def test_gc_forgets_what_launches_said(ground: Ground) -> None:
    """The log of a launched program goes with the old files of its execution."""
    done = ground.apply(put("x", b"1"), Service(Launch(STAYS)))
    ground.hf.undo(done.id, approved_by="me")
    log = ground.state / "services" / f"{launched_name(f'{done.id}-0')}.log"
    assert log.exists()
    for number in range(12):
        ground.apply(put("y", b"%d" % number))
    collect(ground.hf.pipeline, keep_ns=0, now_ns=2**62)
    assert not log.exists()


def test_signals_of_ours_do_not_reach_a_service(ground: Ground, site: LittleSite) -> None:
    """Ctrl-C at the terminal goes to our process group; a service is in a session of its own."""
    daemon = site.daemon()
    assert daemon is not None
    assert os.getsid(daemon.identity.pid) != os.getsid(0)
