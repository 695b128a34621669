"""Kept simulations that were damaged: every field in turn, and what taking them up again makes of it."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from guarded import guard
from holdfast.engine.resuming import resumed
from holdfast.errors import Tampering
from holdfast.model.plan import CommandCheck, Inline, Plan, Update, Write

_GONE = object()
_OTHERS: tuple[object, ...] = (_GONE, None, "x", 7, [None], {})
_PYTHON = ("Error", "__", "unpack", "argument")


def test_a_damaged_simulation_is_tampering_whatever_is_damaged(tmp_path: Path) -> None:
    """Any field gone, or of another type: Tampering in our words, or the very same simulation; never a conflict with
    a workspace that is as it was, and never an error of the interpreter."""
    ground = guard(tmp_path / "workspace", {"a.txt": b"old"})
    steps = (Update("a.txt", b"old", Inline(b"new")), Write("b.txt", Inline(b"b")))
    plan = Plan("Edit", steps, verify=(CommandCheck(("true",)),))
    simulated = ground.hf.simulate(plan)
    simulated = ground.hf.keep(simulated, ground.hf.verify(simulated))
    id = simulated.report.id
    shelf = ground.path / ".holdfast" / "simulations" / id
    whole = (plan.digest, simulated.report.digest, simulated.change_set.digest)
    told: list[str] = []
    for name in ("changes", "report", "plan"):
        text = (shelf / name).read_text()
        for damaged in _damaged(json.loads(text)):
            (shelf / name).write_text(json.dumps(damaged))
            for gated in (False, True):
                try:
                    same = resumed(ground.hf.site, id, gated=gated)[0]
                except Tampering as error:
                    told.append(error.message)
                else:
                    assert gated or (same.plan.digest, same.report.digest, same.change_set.digest) == whole
        (shelf / name).write_text(text)
    assert len(told) > 500 and not [words for words in told if any(word in words for word in _PYTHON)]


def _damaged(document: Any) -> Iterator[Any]:
    for place in _places(document):
        for other in _OTHERS:
            changed = copy.deepcopy(document)
            above = changed
            for key in place[:-1]:
                above = above[key]
            if other is _GONE:
                del above[place[-1]]
            else:
                above[place[-1]] = other
            if changed != document:
                yield changed


def _places(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in rows:
        yield (*above, key)
        yield from _places(item, (*above, key))
