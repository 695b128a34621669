"""The agent that behaves by a schedule, in a real shadow and the real sandbox."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import holdfast.testing
from holdfast.errors import InvalidInput
from holdfast.model.agent import Request
from holdfast.testing.agents import Exit
from holdfast.testing.schedule import ScheduledAgent
from holdfast.testing.script import WriteFile
from holdfast.workspace.site import Site
from shaded import changes, shaded
from testing.small_bench import working


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with shaded(tmp_path / "workspace", {"app.py": b"1\n"}) as found:
        yield found


def test_each_asking_does_what_is_scheduled_for_it(site: Site) -> None:
    """The first fails and the second works, task by task, and whoever looks is told what each was given."""
    agent = ScheduledAgent({"the cart": [(Exit(3),), (WriteFile("cart.py", "2\n"),)], "a page": [(Exit(4),)]})
    with working(site) as (bench, shadow):
        first = agent.work(Request("Mend the cart"), bench)
        other = agent.work(Request("Write a page"), bench)
        second = agent.work(Request("Mend the cart", evidence="it failed"), bench)
        assert changes(shadow.capture()) == {"cart.py": "new"}
    assert [(row.ending, row.exit_code) for row in (first, other, second)] == [
        ("failed", 3),
        ("failed", 4),
        ("finished", 0),
    ]
    assert [(row.task, row.number, "it failed" in row.text) for row in agent.asked] == [
        ("the cart", 1, False),
        ("a page", 1, False),
        ("the cart", 2, True),
    ]


def test_the_task_that_is_named_first_is_meant(site: Site) -> None:
    """A text may speak of other tasks too, as the tasks around it."""
    agent = ScheduledAgent({"a page": [(Exit(4),)], "the cart": [(Exit(3),)]})
    with working(site) as (bench, _):
        assert agent.work(Request("Mend the cart. Around it: Write a page"), bench).exit_code == 3


def test_what_is_not_on_the_schedule_is_refused(site: Site) -> None:
    """Neither a task that nobody scheduled nor one asking too many is guessed at; nothing is done."""
    agent = ScheduledAgent({"the cart": [(WriteFile("cart.py", "2\n"),)]})
    with working(site) as (bench, shadow):
        with pytest.raises(InvalidInput, match="nothing is scheduled for this"):
            agent.work(Request("Write a page"), bench)
        assert changes(shadow.capture()) == {}
        agent.work(Request("Mend the cart"), bench)
        with pytest.raises(InvalidInput, match="was asked 2 times, 1 are scheduled"):
            agent.work(Request("Mend the cart"), bench)
    assert ScheduledAgent({"the cart": []}, name="idle").validate() == ("idle: nothing is scheduled for 'the cart'",)


def test_many_who_ask_at_once_are_counted_once_each(site: Site) -> None:
    """No asking is lost and none is answered twice, in however many threads (X3)."""
    agent = ScheduledAgent({"the cart": [(Exit(number),) for number in range(1, 5)]})
    with working(site) as (bench, _), ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: agent.work(Request("Mend the cart"), bench), range(4)))
    assert sorted(result.exit_code or 0 for result in results) == [1, 2, 3, 4]
    assert [row.number for row in agent.asked] == [1, 2, 3, 4]


def test_it_is_shipped_with_the_other_fakes() -> None:
    """Users import it from `holdfast.testing`, as we do."""
    assert holdfast.testing.ScheduledAgent is ScheduledAgent
    assert "ScheduledAgent" in holdfast.testing.__all__
