"""Every file in `cases/` is inputs for a pattern over a tree, and exactly what becomes of them.

A case with `message` must be refused with it; any other lists every file that the plan touches, byte for byte.
"""

from __future__ import annotations

import pytest

from holdfast.errors import HoldfastError
from holdfast.model.plan import Create
from planning.patterns.recipes import BUILT_IN, CASES, case, files_of, joined, pattern_of, planned, tree_of

NAMES = sorted(path.stem for path in CASES.glob("*.json"))
REFUSED = [name for name in NAMES if "message" in case(name)]
ACCEPTED = [name for name in NAMES if name not in REFUSED]


@pytest.mark.parametrize("name", ACCEPTED)
def test_good_inputs_give_exactly_these_files(name: str) -> None:
    """The plan's files, checks and intent are those of the case, and the same inputs give the same plan again."""
    found = case(name)
    pattern, tree = pattern_of(found), tree_of(found)
    plan = planned(pattern, found["inputs"], tree)
    assert files_of(plan, tree) == {path: joined(lines) for path, lines in found["files"].items()}
    assert [list(check.argv) for check in plan.verify] == found["verify"]
    assert (list(plan.words), plan.intent) == (found["words"], found["intent"])
    assert planned(pattern, found["inputs"], dict(reversed(tree.items()))).digest == plan.digest


@pytest.mark.parametrize("name", REFUSED)
def test_bad_inputs_are_refused_with_a_sentence(name: str) -> None:
    """The refusal has the exit status of the case, and names the field and what it must be."""
    found = case(name)
    with pytest.raises(HoldfastError) as caught:
        planned(pattern_of(found), found["inputs"], tree_of(found))
    assert found["message"] in caught.value.message
    assert found.get("hint", "") in caught.value.hint
    assert (caught.value.exit_status, caught.value.changed) == (found["exit_status"], False)


def test_every_pattern_has_cases_of_both_kinds() -> None:
    """Each built-in pattern, and the defined ones, have inputs that are taken and inputs that are not."""
    for names in (ACCEPTED, REFUSED):
        seen = {case(name).get("pattern", "defined") for name in names}
        assert seen == {*(pattern.id for pattern in BUILT_IN), "defined"}
    assert len(ACCEPTED) >= 20
    assert len(REFUSED) >= 50


def test_the_mode_of_a_defined_file_is_kept() -> None:
    """A file gets the mode that its pattern names; one without gets the default."""
    found = case("defined_filled")
    steps = planned(pattern_of(found), found["inputs"], {}).steps
    assert [step.mode for step in steps if isinstance(step, Create)] == [0o600, None]
