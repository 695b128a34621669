"""Checks name themselves for people, and no rendering of them shows a password."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.check import (
    CommandCheck,
    DatabaseCheck,
    HealthCheck,
    HttpCheck,
    ProcessCheck,
    ServiceCheck,
    SuiteCheck,
    TcpCheck,
    command_of,
    document,
    masked,
    masked_words,
    subject,
)
from holdfast.model.plan import Create, Plan, described
from holdfast.model.saved_plan import plan_from

SUBJECTS: list[tuple[HealthCheck, str]] = [
    (CommandCheck(("echo", "a b")), "echo 'a b'"),
    (HttpCheck("http://h/x"), "GET http://h/x"),
    (TcpCheck("::1", 80), "TCP [::1]:80"),
    (DatabaseCheck("postgresql://a:pw@h/d"), "database postgresql://a:***@h/d"),
    (DatabaseCheck("sqlite:a\x1b.db"), "database sqlite:a\\x1b.db"),
    (ServiceCheck("nginx"), "service nginx"),
    (ProcessCheck("app", "run/app.pid"), "process app of run/app.pid"),
    (ProcessCheck(pid_file="run/app.pid"), "process of run/app.pid"),
]


@pytest.mark.parametrize(("check", "said"), SUBJECTS, ids=[said for _, said in SUBJECTS])
def test_a_check_names_itself(check: HealthCheck, said: str) -> None:
    """Each kind has a name on one line, harmless on a terminal; its receipt's command says the same."""
    assert subject(check) == said
    assert " ".join(command_of(check)) == said or command_of(check) == ("echo", "a b")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://:pw@h/0", "redis://:***@h/0"),
        ("postgresql://u:p/w@h/d", "postgresql://u:***@h/d"),
        ("postgresql://u:p@w@h/d", "postgresql://u:***@h/d"),
        ("postgresql://h/d?user=u&password=pw&x=1", "postgresql://h/d?user=u&password=***&x=1"),
        ("https://h/?api_key=pw#f", "https://h/?api_key=***#f"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
        ("http://h:80/a", "http://h:80/a"),
    ],
)
def test_a_password_is_masked_wherever_it_stands(url: str, shown: str) -> None:
    """Also one that was not percent-encoded, and one among the parameters."""
    assert masked(url) == shown


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="*"), min_size=3))
def test_no_password_is_ever_shown(word: str) -> None:
    """Whatever the password is made of, neither the check nor the plan's document repeats it."""
    password = f"<<{word}>>"
    check = DatabaseCheck(f"postgresql://user:{password}@host/db")
    plan = Plan("x", (Create("a", False),), health=(check,), words=(f"{check.url} answers",))
    shown = json.dumps(plan.document()) + subject(check) + repr(document(check)) + masked_words(f"see {check.url}")
    assert password not in shown
    assert json.dumps(password)[1:-1] not in shown


def test_every_kind_of_check_survives_its_document() -> None:
    """A plan with checks of all kinds, with words and with a reason is read back from its document as the same plan."""
    health = tuple(check for check, _ in SUBJECTS if "pw" not in repr(check))
    suite = SuiteCheck(("pytest",), "j.xml", "c.xml", 8250, 2, ("a", "b"), 5)
    plan = Plan(
        "x",
        (Create("a", False),),
        verify=(suite,),
        health=health,
        words=("lint",),
        unverified_because="no reason",
        health_words=("port 80 is open",),
    )
    document = {**plan.document(), "steps": [described(step) for step in plan.steps]}
    assert plan_from(json.loads(json.dumps(document))) == plan


def test_another_password_is_another_plan() -> None:
    """Approving a plan approves its password too: the digest covers what the document masks."""
    plans = [Plan("x", (Create("a", False),), health=(DatabaseCheck(f"redis://:{word}@h"),)) for word in ("one", "two")]
    assert plans[0].digest != plans[1].digest
    assert plans[0].document()["health_checks"] == plans[1].document()["health_checks"]
