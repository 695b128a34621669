"""What a check proves, and for how long: for the tree it saw, the checks that are wanted, and nobody's own word."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from engine.papers import Case, configure, execute, kept_case, nothing_changes, refused, refuses_to_execute
from guarded import ME, Ground, guard, put, rewritten
from holdfast.engine.checking import Verified
from holdfast.engine.replay import replay_all
from holdfast.errors import ApprovalNeeded, Denied, VerificationFailed
from holdfast.gates.secrets import every_finding
from holdfast.model.decision import Decision
from holdfast.model.plan import Call, CommandCheck, Plan, Service, Symlink

_TESTS = {
    "calc.py": b"def add(a, b):\n    return a + b\n",
    "tests/test_calc.py": b"from calc import add\n\n\ndef test_add():\n    assert add(1, 1) == 2\n",
    "pyproject.toml": b"[tool.pytest.ini_options]\npythonpath = ['.']\n",
    "conf/app.ini": b"port = 1\n",
}
_EASY = '[policy]\nwithout_health = "allow"\n'
_DENY = f'{_EASY}without_verification = "deny"\n'
_TRUE = CommandCheck(("true",), 10_000)
_FALSE = '[checks]\nrun = [["false"]]\n'
_UNVERIFIED = "Asks where nothing was verified"


@pytest.fixture
def ground(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ground]:
    """Where `python3` is the one that has pytest."""
    monkeypatch.setenv("PATH", os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]))
    ground = guard(tmp_path / "workspace", _TESTS)
    yield ground
    ground.hf.close()


def _rules(decision: Decision) -> dict[str, str]:
    return {reason.rule: reason.verdict for reason in decision.reasons}


# ── whose word counts ──


def test_a_plan_does_not_vouch_for_itself_where_policy_denies(ground: Ground) -> None:
    """`verify: true` in a plan satisfies a policy that asks, and not one that denies."""
    configure(_EASY)
    assert kept_case(ground, put("n", b"1"), verify=(_TRUE,)).decision.verdict == "ALLOW"
    configure(_DENY)
    case = kept_case(ground, put("n", b"1"), verify=(_TRUE,))
    assert (case.decision.verdict, _rules(case.decision)) == ("DENY", {_UNVERIFIED: "DENY"})


def test_a_project_does_not_vouch_for_itself(ground: Ground) -> None:
    """A command in holdfast.toml runs and must pass; it verifies nothing. The user's own does."""
    (ground / "holdfast.toml").write_text('[checks]\nrun = [["true"]]\n')
    configure(f"{_EASY}[checks]\ndetect = false\n")
    case = kept_case(ground, put("n", b"1"))
    assert [receipt.origin for receipt in case.verified.receipts] == ["project"]
    assert _rules(case.decision) == {_UNVERIFIED: "NEED_APPROVAL"}
    configure(f'{_EASY}[checks]\ndetect = false\nrun = [["true"]]\n')
    assert kept_case(ground, put("n", b"1")).decision.verdict == "ALLOW"
    (ground / "holdfast.toml").write_text(_FALSE)
    assert kept_case(ground, put("n", b"1")).decision.verdict == "DENY"


def test_a_plan_that_lets_tests_fail_has_judged_them_itself(ground: Ground) -> None:
    """Failures that only the plan allows leave a change unverified where policy denies; those of the user do not."""
    (ground / "tests/test_bad.py").write_text("def test_bad():\n    assert False\n")
    configure(_DENY)
    words = ("run the tests; at most 2 failures",)
    assert kept_case(ground, put("n", b"1"), words=words).decision.verdict == "DENY"
    configure(f"{_DENY}[checks]\nfailures = 1\n")
    assert kept_case(ground, put("n", b"1"), words=("run the tests",)).decision.verdict == "ALLOW"


@pytest.mark.parametrize(
    ("configured", "words", "passes"),
    [
        # It failed before this change as well.
        ("", "run the tests", True),
        ("", "run the tests; at most 1 failure", True),
        ("failures = 5", "run the tests", True),
        ("failures = 5", "run the tests; no failures", False),
        ("failures = 0", "run the tests; at most 5 failures", False),
    ],
)
def test_the_lowest_number_of_failures_that_somebody_said_holds(
    ground: Ground, configured: str, words: str, passes: bool
) -> None:
    """One who allows failures is heard where nobody says less; where nobody does, old failures are forgiven."""
    (ground / "tests/test_bad.py").write_text("def test_bad():\n    assert False\n")
    configure(f"[checks]\n{configured}\n")
    found = ground.hf.verify(ground.hf.simulate(Plan("a test", (put("n", b"1"),), words=(words,))))
    assert all(receipt.passed for receipt in found.receipts) is passes


# ── what configuration asks for ──


def test_a_plan_skips_only_its_own_checks(ground: Ground) -> None:
    """With `verify: {skip: …}` the configured checks run, and fail; the reason is told with what is asked."""
    configure(f"{_EASY}{_FALSE}")
    plan = Plan("a test", (put("n", b"1"),), verify=(_TRUE,), unverified_because="it is only a comment")
    with refused(ground, VerificationFailed, 6, "false exited with 1"):
        ground.hf.execute(ground.hf.simulate(plan), approved_by=ME)
    configure(_EASY)
    simulated = ground.hf.simulate(plan)
    (reason,) = ground.hf.evaluate(simulated).reasons
    assert (reason.rule, "it is only a comment" in reason.detail) == (_UNVERIFIED, True)


@pytest.mark.parametrize("skips", ["", "no need"])
@pytest.mark.parametrize(
    ("asked", "says"),
    [('required = ["test_of_nobody"]', "test_of_nobody was not run"), ("coverage = 100", "cov")],
)
def test_a_required_test_or_a_coverage_asks_for_tests(ground: Ground, asked: str, says: str, skips: str) -> None:
    """Without [checks] run, and whatever a plan verifies or skips, the tests run and are held to it."""
    (ground / "calc.py").write_bytes(b"def add(a, b):\n    return a + b\n\n\ndef never():\n    return 1\n")
    configure(f"[checks]\n{asked}\n")
    plan = Plan("a test", (put("n", b"1"),), verify=(_TRUE,), unverified_because=skips)
    found = ground.hf.verify(ground.hf.simulate(plan))
    told = [receipt.detail for receipt in found.receipts if not receipt.passed] or [found.unverified]
    assert any(says in text for text in told), found


# ── when it stops being true ──


def test_a_change_that_is_verified_again_is_judged_again(ground: Ground) -> None:
    """Tests that are gone when it is to land verify nothing: what was allowed is denied (exit 4)."""
    configure(_DENY)
    case = kept_case(ground, put("notes.txt", b"y\n"), words=("all checks pass",))
    assert case.decision.verdict == "ALLOW"
    _remove_tests(ground)
    refuses_to_execute(ground, case, 4, "policy denies it")
    with refused(ground, Denied, 4):
        ground.hf.execute(case.simulated, verified=case.verified, decision=case.decision)


def test_nobody_is_taken_to_have_approved_what_came_later(ground: Ground) -> None:
    """An approval of a tested change does not carry it untested: what nobody was asked about is asked (exit 3)."""
    case = kept_case(ground, put("notes.txt", b"y\n"), words=("all checks pass",))
    assert _rules(case.decision) == {"Asks where nothing watches the health": "NEED_APPROVAL"}
    ground.hf.approve(case.decision, by=ME)
    _remove_tests(ground)
    refuses_to_execute(ground, case, 3, "there is more to approve: Asks where nothing was verified")


def test_a_change_whose_checks_pass_again_lands(ground: Ground) -> None:
    """The tree moved elsewhere, the checks ran again and show the same: the same decision carries it."""
    configure(_DENY)
    case = kept_case(ground, put("notes.txt", b"y\n"), words=("all checks pass",))
    (ground / "elsewhere").write_bytes(b"1")
    execute(ground, case)
    assert (ground / "notes.txt").read_bytes() == b"y\n"


def _remove_tests(ground: Ground) -> None:
    os.unlink(ground / "tests/test_calc.py")


def test_other_checks_make_receipts_stale(ground: Ground) -> None:
    """A check that the user configures after the simulation runs before anything lands (exit 6)."""
    configure(f'{_EASY}[checks]\nrun = [["true"]]\n')
    case = kept_case(ground, put("n", b"1"))
    assert case.decision.verdict == "ALLOW"
    configure(f"{_EASY}{_FALSE}")
    assert _UNVERIFIED in _rules(ground.hf.evaluate(case.simulated, case.verified))
    refuses_to_execute(ground, case, 6, "false exited with 1")


def test_checks_that_were_added_run_before_it_lands(ground: Ground) -> None:
    """Also where there was nothing to check when it was simulated (exit 6)."""
    configure(f'{_EASY}without_verification = "allow"\n')
    case = kept_case(ground, put("n", b"1"))
    assert case.verified.receipts == ()
    configure(f'{_EASY}without_verification = "allow"\n{_FALSE}')
    refuses_to_execute(ground, case, 6, "false exited with 1")


def test_checks_that_were_taken_away_prove_nothing_any_more(ground: Ground) -> None:
    """Receipts of checks that nobody wants now do not carry a change (exit 4)."""
    configure(f'{_DENY}[checks]\nrun = [["true"]]\n')
    case = kept_case(ground, put("n", b"1"))
    assert case.decision.verdict == "ALLOW"
    configure(_DENY)
    with refused(ground, Denied, 4):
        ground.hf.execute(case.simulated, verified=case.verified, decision=case.decision)


def _flickering(ground: Ground, path: Path, other: bytes) -> Verified:
    """Somebody edits a file while a check waits for that, and puts it back before it ends."""
    before = path.read_bytes()
    check = CommandCheck(("sh", "-c", f"until grep -q {other.decode()} {path.name}; do sleep 0.05; done"), 20_000)
    simulated = ground.hf.simulate(Plan("a test", (put("n", b"1"),), verify=(check,)))

    def flicker() -> None:
        time.sleep(1)
        rewritten(path, other)
        time.sleep(1)
        rewritten(path, before)

    somebody = Thread(target=flicker)
    somebody.start()
    try:
        return ground.hf.verify(simulated)
    finally:
        somebody.join()


def test_a_check_that_saw_another_tree_proves_nothing(ground: Ground) -> None:
    """An edit during the check that is taken back, times and all, leaves a receipt for no tree."""
    (ground / "flag").write_bytes(b"no")
    found = _flickering(ground, ground / "flag", b"ok")
    assert [(receipt.passed, receipt.tree_digest) for receipt in found.receipts] == [(True, "")]
    assert (found.base_tree, found.unverified) == ("", "the workspace was written to while the checks ran")


@pytest.mark.long
def test_a_file_that_came_and_went_is_noticed(ground: Ground) -> None:
    """What was made beside the tree's files and removed again was part of what the check saw."""
    check = CommandCheck(("sh", "-c", "until test -e here; do sleep 0.05; done"), 20_000)
    simulated = ground.hf.simulate(Plan("a test", (put("n", b"1"),), verify=(check,)))

    def come_and_go() -> None:
        time.sleep(1)
        (ground / "here").write_bytes(b"")
        time.sleep(1)
        os.unlink(ground / "here")

    somebody = Thread(target=come_and_go)
    somebody.start()
    found = ground.hf.verify(simulated)
    somebody.join()
    assert [receipt.tree_digest for receipt in found.receipts] == [""]


def test_a_quiet_workspace_gives_receipts_for_its_tree(ground: Ground) -> None:
    """The control: nobody writes, just written files included, and the receipt names the predicted tree."""
    (ground / "fresh").write_bytes(b"1")
    simulated = ground.hf.simulate(Plan("a test", (put("n", b"1"),), verify=(_TRUE,)))
    (receipt,) = ground.hf.verify(simulated).receipts
    assert (receipt.tree_digest, receipt.origin) == (simulated.report.predicted_tree, "plan")


def test_a_check_that_cannot_see_the_change_proves_nothing(ground: Ground) -> None:
    """A changed file under a hidden pattern looks empty to the check: its receipt is for no tree."""
    (ground / "holdfast.toml").write_text('[workspace]\nhidden = ["conf/**"]\n')
    configure(_EASY)
    check = CommandCheck(("sh", "-c", "! grep -rq broken ."), 10_000)
    case = kept_case(ground, put("conf/app.ini", b"port = broken\n"), verify=(check,))
    assert [(receipt.passed, receipt.tree_digest) for receipt in case.verified.receipts] == [(True, "")]
    assert _rules(case.decision) == {_UNVERIFIED: "NEED_APPROVAL"}
    assert kept_case(ground, put("n", b"1"), verify=(check,)).decision.verdict == "ALLOW"


def test_kept_receipts_stand_on_the_tree_they_were_made_on(ground: Ground) -> None:
    """A tree that moved between rehearsal and checks is not taken for the one of the rehearsal."""
    simulated = ground.hf.simulate(Plan("a test", (put("n", b"1"),), verify=(_TRUE,)))
    (ground / "elsewhere").write_bytes(b"1")
    verified = ground.hf.verify(simulated)
    kept = ground.hf.keep(simulated, verified)
    _, again = ground.hf.kept(kept.report.id)
    assert again.base_tree == verified.base_tree != kept.report.base_tree
    assert (again.receipts, again.checks) == (verified.receipts, verified.checks)


# ── consent that is spelled out ──


def test_a_transaction_does_not_approve_a_high_risk_by_itself(ground: Ground) -> None:
    """From high on a block needs a name and the plan's id; below that it lands as it is written."""
    with ground.hf.transaction("tidy", approved_by="me") as tx:
        tx.write("a.txt", b"1")
        tx.delete("conf/app.ini")
    with refused(ground, ApprovalNeeded, 3, ""):
        _risky(ground)
    with refused(ground, ApprovalNeeded, 3, "needs explicit consent: it must be spelled out"):
        _risky(ground, approved_by=ME)
    with refused(ground, ApprovalNeeded, 3, "that is not this plan's id"):
        _risky(ground, approved_by=ME, consent="p-nothing")
    last = ground.hf.last
    assert last is not None
    with refused(ground, ApprovalNeeded, 3, ""):
        _risky(ground, consent=last.plan_id)
    _risky(ground, approved_by=ME, consent=last.plan_id)
    assert (ground / ".github/workflows/x.yml").read_bytes() == b"on: push\n"


def test_nobody_s_consent_is_assumed(ground: Ground) -> None:
    """Without a name a block, an execute and an undo are refused where a yes is needed, and no approval is signed."""
    with refused(ground, ApprovalNeeded, 3, ""), ground.hf.transaction("tidy") as tx:
        tx.write("a.txt", b"1")
    with refused(ground, ApprovalNeeded, 3, ""):
        ground.hf.execute(ground.hf.simulate(ground.plan(put("a.txt", b"1"))))
    assert not any(entry.kind == "approval" for entry in ground.hf.ledger.entries())
    with ground.hf.transaction("tidy", approved_by="me") as tx:
        tx.write("a.txt", b"1")
    landed = tx.execution
    assert landed is not None
    assert landed.approved_by == "me"
    for go_back in (lambda: ground.hf.undo(landed.id), lambda: ground.hf.restore(0)):
        with refused(ground, ApprovalNeeded, 3, "needs somebody's consent", ending=""):
            go_back()
    assert ground.hf.undo(landed.id, approved_by="me").approved_by == "me"


@pytest.mark.parametrize("name", [" ", "\t\n", "\u200b", "\u3164 \u00ad", "\x00"])
def test_a_name_that_shows_nothing_is_nobody_s(ground: Ground, name: str) -> None:
    """Such a name approves nothing, signs nothing, and does not become the login's: it is as if none was given."""
    with refused(ground, ApprovalNeeded, 3, ""), ground.hf.transaction("tidy", approved_by=name) as tx:
        tx.write("a.txt", b"1")
    simulated = ground.hf.simulate(ground.plan(put("a.txt", b"1")))
    decision = ground.hf.evaluate(simulated)
    with pytest.raises(ApprovalNeeded, match="nobody's name"):
        ground.hf.approve(decision, by=name)
    assert not any(entry.kind == "approval" for entry in ground.hf.ledger.entries())
    landed = ground.hf.execute(simulated, approved_by=f" {ME}\n")
    assert landed.approved_by == ME
    with refused(ground, ApprovalNeeded, 3, "needs somebody's consent", ending=""):
        ground.hf.undo(landed.id, approved_by=name)


def test_the_refusal_of_a_block_says_what_can_be_done_about_it(ground: Ground) -> None:
    """No command can approve what was not kept, so it is `approved_by` that is named, or `keep` where that is not
    enough; of what was kept the command is named."""
    with pytest.raises(ApprovalNeeded) as caught, ground.hf.transaction("tidy") as tx:
        tx.write("a.txt", b"1")
    assert 'approved_by="' in caught.value.hint
    simulated = ground.hf.simulate(ground.plan(put("a.txt", b"1")))
    kept = ground.hf.keep(simulated, ground.hf.verify(simulated))
    with pytest.raises(ApprovalNeeded) as caught:
        ground.hf.execute(kept)
    assert f"holdfast approve {kept.report.id}" in caught.value.hint


def _risky(ground: Ground, **said: str) -> None:
    with ground.hf.transaction("continuous integration", **said) as tx:
        tx.write(".github/workflows/x.yml", b"on: push\n")


def test_execute_does_not_approve_a_high_risk_by_a_name_alone(ground: Ground) -> None:
    """`approved_by` is as much as --yes: enough below high, and nothing from there on."""
    plan = ground.plan(put(".bashrc", b"true\n"))
    with refused(ground, ApprovalNeeded, 3, "needs explicit consent"):
        ground.hf.execute(ground.hf.simulate(plan), approved_by=ME)
    assert ground.hf.execute(ground.hf.simulate(plan), approved_by=ME, consent=plan.id).status == "COMPLETED"


# ── what the gate is shown ──


def test_a_link_of_the_tree_gives_a_change_another_name(ground: Ground) -> None:
    """A link that is there already is evidence, in this command and in the next; it is replayed like the rest."""
    os.symlink("vs", ground / ".vscode")
    case = kept_case(ground, put("vs/tasks.json", b"{}\n"))
    assert case.decision.risk_effective == "high"
    assert any(".vscode/tasks.json" in reason.paths for reason in case.decision.reasons)
    there = ground.reopened()
    assert there.hf.evaluate(*there.hf.kept(case.id)).digest == case.decision.digest
    ground.hf = there.hf


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be"])
def test_a_secret_in_a_binary_is_found(ground: Ground, encoding: str) -> None:
    """Bytes that are no text are searched too; what was in them before is not this change's doing."""
    key = "AKIA" + "QWERTYUIOP" + "ASDFGH"
    case = kept_case(ground, put("n.bin", f"{key}\n".encode(encoding)))
    assert "Asks about secrets in what is added" in _rules(case.decision)
    (ground / "n.bin").write_bytes(f"{key}\n".encode(encoding))
    case = kept_case(ground, put("n.bin", f"{key}\nmore\n".encode(encoding)))
    assert "Asks about secrets in what is added" not in _rules(case.decision)


def test_a_change_that_is_judged_twice_is_searched_once(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second decision about a change set takes what was found for the first."""
    searched: list[str] = []

    def counting(texts: tuple[object, ...]) -> object:
        searched.extend(text.path for text in texts)  # type: ignore[attr-defined]
        return every_finding(texts)  # type: ignore[arg-type]

    monkeypatch.setattr("holdfast.engine.evidence.every_finding", counting)
    simulated = ground.hf.simulate(ground.plan(put("a.txt", b"password = 'hK3vTq9Lw2Zs8Xc5'\n")))
    first, second = ground.hf.evaluate(simulated), ground.hf.evaluate(simulated)
    assert (searched, first.digest) == (["a.txt"], second.digest)
    assert "Asks about secrets in what is added" in _rules(second)


def test_a_declared_undo_of_a_call_lowers_no_risk(ground: Ground) -> None:
    """The report calls it CRITICAL with and without, and a person is shown what it declares."""
    wipe, noop = Call("http://127.0.0.1:9/wipe", "DELETE"), Call("http://127.0.0.1:9/noop", "GET")
    cases = [kept_case(ground, Service(wipe)), kept_case(ground, Service(wipe, noop))]
    assert [case.decision.risk_effective for case in cases] == ["critical", "critical"]
    assert [case.simulated.report.irreversible for case in cases] == [("step-1",), ("step-1",)]
    assert any("GET http://127.0.0.1:9/noop" in reason.detail for reason in cases[1].decision.reasons)


def test_a_token_in_an_address_is_not_told(ground: Ground) -> None:
    """Neither the report nor the decision holds what stands in the address of a call."""
    case: Case = kept_case(ground, Service(Call("http://127.0.0.1:9/deploy?token=not-for-the-ledger")))
    told = f"{case.simulated.report.document()} {case.decision.document()}"
    assert ("not-for-the-ledger" in told, "token=***" in told) == (False, True)


def test_a_link_that_is_a_door_asks_by_the_rule_it_opens(ground: Ground) -> None:
    """Nothing is changed by asking, and the reason names the link."""
    with nothing_changes(ground):
        case = kept_case(ground, Symlink(".github", "conf"))
    (paths,) = [reason.paths for reason in case.decision.reasons if reason.rule == "Reviews continuous integration"]
    assert paths == (".github",)


def test_what_was_checked_in_another_environment_says_so(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looked at from a shell without the virtual environment, the receipts prove nothing, and the reason names both;
    other settings are told as that; `audit replay` says the same."""
    configure(_EASY)
    (tmp_path / "env/bin").mkdir(parents=True)
    (tmp_path / "env/pyvenv.cfg").write_text(f"home = {sys.base_prefix}/bin\n")
    for name in ("python", "python3"):
        (tmp_path / "env/bin" / name).symlink_to(os.path.realpath(sys.executable))
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    case = kept_case(ground, put("n", b"1"), verify=(_TRUE,))
    assert case.decision.verdict == "ALLOW"
    with monkeypatch.context() as elsewhere:
        elsewhere.delenv("VIRTUAL_ENV")
        elsewhere.setenv("PATH", "/usr/bin:/bin")
        again = ground.hf.evaluate(*ground.hf.kept(case.simulated.report.id))
    (reason,) = (one.detail for one in again.reasons if one.rule == _UNVERIFIED)
    assert reason == f"checked in another environment: VIRTUAL_ENV was {tmp_path / 'env'}, is unset"
    assert {replay.verdict for replay in replay_all(ground.hf.site, ground.hf.ledger)} == {"same"}
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    configure(f'{_EASY}[checks]\ntime = "4m"\n')
    again = ground.hf.evaluate(*ground.hf.kept(case.simulated.report.id))
    (reason,) = (one.detail for one in again.reasons if one.rule == _UNVERIFIED)
    assert reason == "checked with other settings than those of now"
