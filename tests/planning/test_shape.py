"""Safety fields and risk of plans that came from anywhere: filled in by rules, never lowered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.check import CommandCheck, HttpCheck, ServiceCheck
from holdfast.model.plan import (
    RISKS,
    Call,
    Chmod,
    Create,
    Delete,
    Inline,
    Launch,
    Move,
    Plan,
    Read,
    Risk,
    Run,
    Service,
    Signal,
    Step,
    Symlink,
    Write,
)
from holdfast.planning.classify import classify
from holdfast.planning.shape import Shaped, shape, with_health

PYTEST = CommandCheck(("python3", "-m", "pytest", "-q"))
RESTART = Service(Signal("restart", "nginx"), compensation=Signal("restart", "nginx"))
FINAL = Service(Call("http://127.0.0.1:1/deploy"))


def shaped(*steps: Step, intent: str = "a change", **fields: object) -> Shaped:
    return shape(Plan(intent, steps, **fields), classify(intent))  # type: ignore[arg-type]


def put(path: str, mode: int | None = None) -> Write:
    return Write(path, Inline(b"x"), mode)


@pytest.mark.parametrize(
    ("steps", "risk", "detail"),
    [
        ((put("a.txt"),), "low", ""),
        ((Read("a.txt"),), "low", ""),
        ((Delete("a.txt"),), "medium", "something is deleted"),
        ((Delete("a", recursive=True),), "high", "a directory and all in it is deleted"),
        (tuple(Delete(f"f{n}") for n in range(19)), "medium", "something is deleted"),
        (tuple(Delete(f"f{n}") for n in range(20)), "high", "20 paths are deleted"),
        (tuple(put(f"f{n}") for n in range(100)), "low", ""),
        (tuple(put(f"f{n}") for n in range(101)), "medium", "101 paths change"),
        (tuple(put(f"f{n}") for n in range(1001)), "high", "1001 paths change"),
        ((put(".bashrc"),), "high", "start-up files change"),
        ((put("etc/systemd/system/x.service"),), "high", "start-up files change"),
        ((put("etc/cron.d/job"),), "high", "start-up files change"),
        ((put(".github/workflows/ci.yml"),), "high", "CI files change"),
        ((put("deploy/id_ed25519"),), "high", "key files change"),
        ((put(".env"),), "high", "key files change"),
        ((put("CLAUDE.md"),), "high", "agent settings files change"),
        ((put("holdfast.toml"),), "high", "policy files change"),
        ((put("pyproject.toml"),), "medium", "dependencies files change"),
        ((put("conf/site.conf"),), "medium", "configuration files change"),
        ((put("tests/test_a.py"),), "medium", "test files change"),
        ((Move("a.txt", ".profile"),), "high", "start-up files change"),
        ((Chmod("a.txt", 0o666),), "high", "everybody may write"),
        ((Chmod("a.bin", 0o755),), "medium", "a file may be run as a program"),
        ((Create("d", directory=True, mode=0o755),), "low", ""),
        ((Symlink("a/b", "../c"),), "low", ""),
        ((Symlink("a/b", "../../c"),), "high", "a link points out of the workspace"),
        ((Symlink("b", "x/../../c"),), "high", "a link points out of the workspace"),
        ((Symlink("b", "/etc"),), "high", "a link points out of the workspace"),
        ((Run(("make",)),), "medium", "what a program changes is known only after it was rehearsed"),
        ((RESTART,), "medium", "something outside the files is touched"),
        ((FINAL,), "high", "an effect on the host has no way back"),
        ((Service(Signal("restart", "nginx")),), "high", "an effect on the host has no way back"),
        ((put("src/a.py"),), "medium", "code changes and no check is named"),
    ],
)
def test_operations_and_paths_raise_the_risk(steps: tuple[Step, ...], risk: Risk, detail: str) -> None:
    """Each rule raises to its own level and says why; what no rule speaks about stays as proposed."""
    found = shaped(*steps)
    assert found.risk == risk
    assert (detail in [reason.detail for reason in found.reasons]) == bool(detail)
    assert found.plan.risk == risk


_STEPS = st.lists(
    st.sampled_from([put("a.txt"), Delete("a.txt"), put(".bashrc"), Run(("make",)), RESTART, FINAL, Read("x")]),
    min_size=1, max_size=5,
)  # fmt: skip


@given(_STEPS, st.sampled_from(RISKS))
def test_the_risk_never_falls(steps: list[Step], proposed: Risk) -> None:
    """Whatever the author proposed, it is raised or kept; and one step more never makes a plan safer."""
    found = shaped(*steps, risk=proposed)
    assert RISKS.index(found.risk) >= RISKS.index(proposed)
    assert RISKS.index(shaped(*steps, Delete("z"), risk=proposed).risk) >= RISKS.index(found.risk)


@given(_STEPS)
def test_fields_are_the_same_every_time(steps: list[Step]) -> None:
    """Shaping is a function: the same plan, the same fields, and a shaped plan is not shaped any further."""
    found = shaped(*steps)
    assert found == shaped(*steps)
    assert shape(found.plan, classify("a change")).plan == found.plan


def test_rollback_says_what_cannot_be_taken_back() -> None:
    """Files come back from the journal, a service by its compensation; what has none is named as such."""
    launch = Service(Launch(("/usr/bin/worker",)), compensation=Signal("stop", "worker"))
    assert shaped(put("a"), RESTART, launch, FINAL).rollback == (
        "restore every touched path from the journal, then prove it by digest",
        "restart nginx: then restart nginx, with the old files",
        "start /usr/bin/worker: then stop worker, with the old files",
        "POST http://127.0.0.1:1/deploy: cannot be taken back",
    )
    assert shaped(Read("a")).rollback == ("nothing is changed, so nothing is taken back",)


def test_health_is_wanted_where_a_service_is_touched() -> None:
    """A restarted service, a launched program and a call each want a check; a stopped service wants none."""
    assert shaped(put("a")).health == ()
    assert shaped(Service(Signal("stop", "x"), compensation=Signal("start", "x"))).health == ()
    wanted = shaped(RESTART, Service(Launch(("worker",))), FINAL)
    assert [(item.kind, item.present) for item in wanted.health] == [
        ("service", False),
        ("process", False),
        ("command", False),
    ]
    assert "health: service (restart nginx must end with a service that answers)" in wanted.gaps
    healthy = shaped(RESTART, FINAL, health=(HttpCheck("http://127.0.0.1/health"),))
    assert [item.present for item in healthy.health] == [True, True]


@pytest.mark.parametrize(
    ("fields", "present"),
    [
        ({}, []),
        ({"verify": (PYTEST,)}, ["tests"]),
        ({"verify": (CommandCheck(("ruff", "check")), PYTEST)}, ["tests", "lint"]),
        ({"verify": (CommandCheck(("./accept",)),)}, []),
        ({"words": ("Run tests",)}, ["tests"]),
    ],
)
def test_checks_that_are_named_are_no_gap(fields: dict[str, object], present: list[str]) -> None:
    """Code wants syntax, tests and lint; those that the plan names are present, the others are gaps."""
    found = shaped(put("src/a.py"), **fields)
    assert [item.kind for item in found.verification] == ["files", "syntax", "tests", "lint"]
    assert [item.kind for item in found.verification if item.present and item.kind != "files"] == present
    assert len(found.gaps) == 3 - len(present)


def test_an_investigation_that_changes_something_is_noticed() -> None:
    """Words that ask to look and steps that change do not go together."""
    found = shaped(put("a"), intent="Why does the build fail?")
    assert "the words ask to look, the steps change" in [reason.detail for reason in found.reasons]
    assert shaped(Read("a"), intent="Why does the build fail?").risk == "low"


def test_effects_that_go_on_after_a_failure_are_high() -> None:
    """A plan that touches services and does not roll back when one fails is no ordinary plan."""
    health = (HttpCheck("http://127.0.0.1/"),)
    assert shaped(RESTART, health=health).risk == "medium"
    assert shaped(RESTART, health=health, on_failure="continue").risk == "high"


def test_a_restarted_service_is_asked_how_it_is() -> None:
    """The user's words for a service count, then systemd's; what the plan says itself, or ends by a stop, is left."""
    plan = Plan("a change", (put("a.conf"), RESTART))
    words = "http://127.0.0.1/ answers 200"
    assert with_health(plan, {}, has_units=True).health == (ServiceCheck("nginx"),)
    assert with_health(plan, {}, has_units=False) is plan
    assert with_health(plan, {"nginx": ""}, has_units=True) is plan
    told = with_health(plan, {"nginx": words, "other": "port 1 is open"}, has_units=True)
    assert (told.health, told.health_words) == ((), (words,))
    named = Plan("a change", (put("a.conf"), RESTART), health_words=("port 80 is open",))
    assert with_health(named, {"nginx": words}, has_units=True) is named
    stopped = Plan("a change", (RESTART, Service(Signal("stop", "nginx"), Signal("start", "nginx"))))
    assert with_health(stopped, {"nginx": words}, has_units=True) is stopped
