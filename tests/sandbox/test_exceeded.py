"""Limits in words: what was done too much of, with the amount as the configuration states it."""

from __future__ import annotations

import pytest

from holdfast.sandbox.exceeded import exceeded
from holdfast.sandbox.profile import Limits

WORDS = {
    "output": ("wrote more than 50 MB of output", Limits()),
    "memory": ("held more than 4 GB of memory", Limits()),
    "disk": ("put more than 1,500 KB on the disk", Limits(disk_bytes=1_500_000)),
    "processes": ("had more than 1,200 processes at once", Limits(processes=1200)),
}


@pytest.mark.parametrize("limit", WORDS)
def test_a_limit_is_told_with_its_amount(limit: str) -> None:
    """A person reads how much was too much, exactly."""
    words, limits = WORDS[limit]
    assert exceeded(limit, limits) == words


@pytest.mark.parametrize("limit", ["", "time", "budget", "turns", "stopped"])
def test_what_is_counted_elsewhere_is_told_there(limit: str) -> None:
    """No amount is made up for a limit that is none of the sandbox's."""
    assert exceeded(limit, Limits()) == ""


def test_an_uneven_amount_is_told_to_the_byte() -> None:
    """It is not rounded: what was configured can be found again."""
    assert exceeded("output", Limits(output_bytes=1_001)) == "wrote more than 1,001 bytes of output"
