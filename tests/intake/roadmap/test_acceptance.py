"""Acceptance commands: taken as a whole, or refused; what a shell would have done with them is never left out."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidInput
from holdfast.intake.roadmap import parse
from holdfast.intake.roadmap.acceptance import command_of

CASES = [json.loads(line) for line in Path(__file__).with_name("commands.jsonl").read_text("ascii").splitlines()]


@pytest.mark.parametrize("case", [case for case in CASES if "words" in case], ids=lambda case: repr(case["accept"]))
def test_a_plain_command_is_its_words(case: dict[str, Any]) -> None:
    """As a shell would give them to the program; no text is no command."""
    assert list(command_of(case["accept"])) == case["words"]


@pytest.mark.parametrize("case", [case for case in CASES if "wrong" in case], ids=lambda case: repr(case["accept"]))
def test_what_needs_more_than_one_program_is_refused(case: dict[str, Any]) -> None:
    """The reason names what is in the way (Q1); a remark says so to whoever only reads the roadmap."""
    with pytest.raises(InvalidInput) as refused:
        command_of(case["accept"])
    assert case["wrong"] in refused.value.message
    rows = [{"title": "One", "accept": case["accept"]}, {"title": "Two", "accept": "make"}]
    found = parse(json.dumps(rows).encode(), "task_queue.json")
    (remark,) = found.remarks
    assert (remark.line, case["wrong"] in remark.text) == (1, True)


def test_a_task_that_is_done_has_no_remark_about_its_command() -> None:
    """It will not begin anyway."""
    rows = [{"title": "One", "accept": "true && false", "status": "done"}]
    assert parse(json.dumps(rows).encode(), "task_queue.json").remarks == ()


@pytest.mark.parametrize("value", [["make", "test"], {"run": "make"}, [["make"]], True, 5], ids=repr)
@pytest.mark.parametrize("key", ["accept", "acceptance_test", "verify"])
def test_a_command_that_is_no_text_is_refused_and_not_left_out(key: str, value: object) -> None:
    """A list of words is none, since it may be a list of commands; `true` is no program (Q2)."""
    (task,) = parse(json.dumps([{"title": "One", key: value}]).encode(), "task_queue.json").tasks
    with pytest.raises(InvalidInput, match="one command, as text"):
        command_of(task.accept)


@pytest.mark.parametrize("value", [None, "", " ", [], {}], ids=repr)
def test_an_empty_command_is_none(value: object) -> None:
    """Another key may still give one."""
    (task,) = parse(json.dumps([{"title": "One", "accept": value, "verify": "make"}]).encode(), "q.json").tasks
    assert task.accept == "make"


@pytest.mark.parametrize(
    "text", ["x {" + "," * 100_000, "x {" + ".," * 50_000, "x " + "{a" * 50_000, "x {" + "." * 99_999]
)
def test_a_long_command_takes_no_time(text: str) -> None:
    """A line that nobody typed is read in time that is linear in it."""
    started = time.process_time()
    with contextlib.suppress(InvalidInput):
        command_of(text)
    assert time.process_time() - started < 10
