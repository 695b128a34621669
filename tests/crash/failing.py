"""Errors instead of kills: the process lives on, must tell the truth at once, and must be able to go on.

What may be said, and what must then be true of the tree before any recovery:

    nothing is raised .................... the change is there (or, for an unhealthy one, taken back)
    an error that says `changed=False` ... exactly the old tree
    NeedsHuman with `changed=True` ....... anything, until recovery has run
    any other error ...................... exactly the old or exactly the new tree
"""

from __future__ import annotations

import os
from collections.abc import Callable

from crash.driver import Outcome, Start, judge, judge_life_goes_on
from crash.scenarios import Scenario, act
from crash.walker import differences, undated, walk
from holdfast.errors import HoldfastError, NeedsHuman
from holdfast.testing import ALL, Fault, FaultyCalls


def faulty(
    begun: Start, outcome: Outcome, scenario: Scenario, fault: Fault, counted: frozenset[str] = ALL
) -> list[str]:
    """Run the scenario with one fault in a process of its own (it may leak descriptors), and judge there."""
    return in_child(lambda: _faulty(begun, outcome, scenario, fault, counted))


def in_child(work: Callable[[], list[str]]) -> list[str]:
    """The sentences that `work` returns, made in a forked process."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _send(writing, "\n".join(work()))
        except BaseException as error:  # noqa: BLE001 - the parent must hear of it, whatever it is
            _send(writing, f"{type(error).__name__}: {error}")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    os.waitpid(child, 0)
    return said.split("\n") if said else []


def _send(writing: int, text: str) -> None:
    rest = text.encode("utf-8", "replace")
    while rest:
        rest = rest[os.write(writing, rest) :]


def _faulty(begun: Start, outcome: Outcome, scenario: Scenario, fault: Fault, counted: frozenset[str]) -> list[str]:
    calls = FaultyCalls(counted=counted)
    raised: Exception | None = None
    with begun.place.open(calls) as hf:
        calls.arm(fault)
        try:
            act(scenario, hf)
        except (HoldfastError, OSError) as error:
            raised = error
        calls.disarm()
    verdict = _judge_words(begun, outcome, scenario, raised)
    verdict += judge(begun, outcome, scenario, acknowledged=raised is None)
    if not verdict:
        verdict += judge_life_goes_on(begun)
    return [f"{fault}: {what} [said: {raised!r}]" for what in verdict]


def _judge_words(begun: Start, outcome: Outcome, scenario: Scenario, raised: Exception | None) -> list[str]:
    found = walk(begun.place.workspace)
    is_old, is_new = found == begun.old, undated(found) == outcome.new
    if raised is None:
        return [] if is_new or (is_old and not scenario.ends_new) else ["nothing was raised, and it is not done"]
    if isinstance(raised, NeedsHuman) and raised.changed:
        return []
    if isinstance(raised, HoldfastError) and not raised.changed and not is_old:
        return [f"it says that nothing was changed, but {differences(found, begun.old)}"]
    return [] if is_old or is_new else [f"a mixed tree before recovery: {differences(found, begun.old)}"]
