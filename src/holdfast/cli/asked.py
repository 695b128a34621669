"""What a verb is asked to work on: a change file, words, or the id of something kept."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from holdfast.errors import InvalidInput

if TYPE_CHECKING:
    from holdfast.model.plan import Plan
    from holdfast.planning.words import Understood
    from holdfast.wiring import Holdfast

_ID = re.compile(r"[ps]-[a-z0-9]{2,32}")


def plan_asked(hf: Holdfast, asked: str) -> Plan:
    """The plan of a change file or of plain words; InvalidInput when words are not enough."""
    if not is_words(asked):
        return hf.plan(asked)
    found = hf.understand(asked)
    if found.plan is None:
        raise InvalidInput(
            f"these words alone are no plan ({worded_class(found)}); missing: {'; '.join(found.missing)}",
            hint='Nothing was changed. Write a change file, or see what was understood: holdfast plan "…"',
        )
    return found.plan


def is_words(asked: str) -> bool:
    """A text with blanks is words, unless it is spelled as a path: a file called like a sentence must not decide."""
    return " " in asked.strip() and not asked.startswith(("/", "./", "../"))


def is_id(asked: str) -> bool:
    return _ID.fullmatch(asked) is not None and not os.path.exists(asked)


def worded_class(found: Understood) -> str:
    return found.classified.kind.replace("_", " ")
