"""Who said yes to a change, as its execution tells it: those whose approvals count, and never whoever carries it out.

An approval that does not count is no yes. Where policy asks nobody, a yes that was given in the call itself is one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.engine.governance import Governance
from holdfast.errors import HoldfastError
from holdfast.gates.approvals import Standing
from holdfast.model.approval import Approval
from holdfast.model.decision import Decision


class Assent(NamedTuple):
    """Names, oldest yes first, and when the last of them said it; empty where nobody did."""

    by: str = ""
    at_ns: int = 0


NOBODY = Assent()


def given_now(by: str) -> Assent:
    return Assent(by, time.time_ns()) if by else NOBODY


def counted(decision: Decision, stands: Standing, approvals: Sequence[Approval], said: str) -> Assent:
    """`said` is the name of a person who said yes in this call; unsigned, that counts only where nobody is needed."""
    good = {(each.id, each.by) for each in stands.judged if each.counts and each.answer == "approve"}
    signed = sorted((each for each in approvals if (each.id, each.by) in good), key=lambda each: each.issued_ns)
    now = given_now(said) if decision.verdict == "ALLOW" else NOBODY
    names = dict.fromkeys([*(each.by for each in signed), *([now.by] if now.by else [])])
    return Assent(", ".join(names), now.at_ns or (signed[-1].issued_ns if signed else 0))


def so_far(governance: Governance, decision: Decision | None, said: str) -> Assent:
    """For a change that does not land; what cannot be counted is nobody's yes."""
    if decision is None:
        return NOBODY
    try:
        custody = governance.custody_of(decision.simulation)
        return counted(decision, governance.standing(decision, custody), custody.approvals, said)
    except HoldfastError:
        return NOBODY
