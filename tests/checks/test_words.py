"""Plain words become exactly the checks they name; whatever a rule does not know whole is handed back."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checks.reports import Criteria
from holdfast.checks.words import Understood, acceptance_in, understood
from holdfast.model.check import (
    CommandCheck,
    DatabaseCheck,
    HealthCheck,
    HttpCheck,
    ProcessCheck,
    ServiceCheck,
    TcpCheck,
)

CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("words_cases.yaml").read_text(encoding="utf-8"))
ACCEPTANCE = tomllib.loads(Path(__file__).with_name("acceptance.toml").read_text())["case"]
_KINDS = {
    "http": HttpCheck,
    "tcp": TcpCheck,
    "database": DatabaseCheck,
    "service": ServiceCheck,
    "process": ProcessCheck,
}


def _expected(case: dict[str, Any]) -> Understood:
    commands = tuple(CommandCheck(tuple(argv)) for argv in case.get("command", []))
    if "within" in case:
        commands = tuple(command._replace(within_ms=case["within"]) for command in commands)
    health: list[HealthCheck] = [kind(**row) for name, kind in _KINDS.items() for row in case.get(name, [])]
    return Understood(
        levels=tuple(case.get("levels", [])),
        everything=case.get("everything", False),
        files=tuple(case.get("files", [])),
        commands=commands,
        health=tuple(health),
        wants_health=case.get("wants_health", False),
        criteria=Criteria(
            case.get("coverage"),
            0 if case.get("none_may_fail") else case.get("failures"),
            tuple(case.get("required", [])),
            "failures" in case,
        ),
    )


@pytest.mark.parametrize("case", CASES, ids=[case["say"] for case in CASES])
def test_words_mean_exactly_this(case: dict[str, Any]) -> None:
    """Each sentence gives the checks of its case and no others, and hands back the clauses it did not understand."""
    found = understood([case["say"]])
    assert found._replace(not_understood=()) == _expected(case)
    assert [item.text for item in found.not_understood] == case.get("not", [])
    assert all(item.why for item in found.not_understood)


def test_there_are_many_cases() -> None:
    """At least forty sentences are kept as cases, of both kinds."""
    assert len(CASES) >= 40
    assert sum("not" in case for case in CASES) >= 15


def test_several_texts_add_up() -> None:
    """Words given in several places are one demand; a modifier speaks of the check before it."""
    found = understood(["run tests", "http://h/ answers", "within 3 seconds"])
    assert found.levels == ("tests",)
    assert found.health == (HttpCheck("http://h/", within_ms=3000),)


@given(st.text())
def test_any_text_is_understood_or_handed_back(text: str) -> None:
    """Whatever the text, there is an answer, and it is the same the second time."""
    assert understood([text]) == understood([text])


@given(st.lists(st.sampled_from('run the tests not if lint http://h/ `x` "q" and , ; . port 80 within 5 s'.split(" "))))
def test_a_refusing_word_is_never_understood(words: list[str]) -> None:
    """No clause that says not or if becomes a check, however the words around it stand."""
    found = understood([" ".join(words)])
    wanted = sum(word in ("not", "if") for word in words)
    said = " ".join(item.text for item in found.not_understood).split()
    assert sum(word in ("not", "if") for word in said) == wanted


@pytest.mark.parametrize("case", ACCEPTANCE, ids=[case["text"] for case in ACCEPTANCE])
def test_lines_that_say_when_a_task_is_done_are_commands_or_prose(case: dict[str, Any]) -> None:
    """Only what is surely a program is run: no shell, no word that may be anything, nothing conditional."""
    assert [list(argv) for argv in acceptance_in(case["text"])] == case.get("commands", [])


def test_acceptance_lines_without_end_take_no_longer_than_they_are() -> None:
    """A hostile file is read in the time of a large one."""
    began = time.process_time()
    for piece in ("Verify when once ", "- ", "Verify: `a` and ", "Done when\n", "* _"):
        acceptance_in(piece * (60_000 // len(piece)))
    assert len(ACCEPTANCE) >= 25 and time.process_time() - began < 10
