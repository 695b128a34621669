"""What a verb is asked to work on: a change file, words, or the id of something kept."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from holdfast.errors import HoldfastError, InvalidInput

if TYPE_CHECKING:
    from holdfast.model.plan import Plan
    from holdfast.planning.words import Understood
    from holdfast.store.database import Table
    from holdfast.wiring import Holdfast

_ABOUT_SIMULATIONS: dict[str, Table] = {"d-": "decisions", "a-": "approvals"}
_Read = TypeVar("_Read")
_ID = re.compile(r"[ps]-[a-z0-9]{2,32}")


def plan_asked(hf: Holdfast, asked: str, read: Callable[[str], _Read]) -> Plan | _Read:
    """The plan of plain words, or of a file, which is for `read`; InvalidInput when words are not enough."""
    if not is_words(asked):
        return read(asked)
    found = hf.understand(asked)
    if found.plan is None:
        raise InvalidInput(
            f"these words alone are no plan ({worded_class(found)}); missing: {'; '.join(found.missing)}",
            hint="Nothing was changed. Give them to an agent with --agent NAME, write a change file, "
            'or see what was understood: holdfast plan "…"',
        )
    return found.plan


def is_words(asked: str) -> bool:
    """A text with blanks is words, unless it is spelled as a path: a file called like a sentence must not decide."""
    return " " in asked.strip() and not asked.startswith(("/", "./", "../"))


def is_id(asked: str) -> bool:
    return _ID.fullmatch(asked) is not None and not os.path.exists(asked)


def kept_plan_asked(hf: Holdfast, asked: str) -> Plan:
    """The plan of an id; InvalidInput, with the way on, for that of a simulation."""
    id = hf.resolve(asked)
    if not id.startswith("s-"):
        return hf.kept_plan(id)
    plan = hf.records.paper("simulations", id).subject
    ways = [f"Nothing was changed. Decide with: holdfast evaluate {id}", f"See it with: holdfast show {id}"]
    try:
        hf.kept_plan(plan)
        ways.append(f"Simulate its plan once more: holdfast simulate {plan}")
    except HoldfastError:
        pass  # one that `apply` made is kept as a simulation only
    raise InvalidInput(f"{id} is a simulation already, of {plan}", hint="\n".join(ways))


def simulation_asked(hf: Holdfast, asked: str) -> str:
    """The id of a simulation, also by a decision or an answer about it; InvalidInput, with the way on, for others."""
    id = hf.resolve(asked)
    if id.startswith("s-"):
        return id
    if id[:2] in _ABOUT_SIMULATIONS:
        return hf.records.paper(_ABOUT_SIMULATIONS[id[:2]], id).subject
    if id.startswith("p-"):
        raise InvalidInput(f"{id} is a plan; only a simulation of it can be decided on",
                           hint=f"Nothing was changed. Simulate it: holdfast simulate {id}")  # fmt: skip
    if id.startswith("x-"):
        raise InvalidInput(f"{id} is a patch, not a simulation", hint=f"See it with: holdfast patches show {id}")
    raise InvalidInput(f"{id} is an execution, not a simulation", hint=f"Nothing was changed. See: holdfast trace {id}")


def worded_class(found: Understood) -> str:
    return found.classified.kind.replace("_", " ")
