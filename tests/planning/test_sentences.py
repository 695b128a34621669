"""Every case in `sentences.toml`: the class, the states, the steps, the safety fields and the risk of words.

The workspace is real, and looked at with the eyes the product would use: `os.lstat` and a read.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guarded import at_most
from holdfast.model.path import checked_path
from holdfast.model.plan import Chmod, Create, Delete, Inline, Move, Step, Symlink, Update, Write
from holdfast.planning.requests import Eyes
from holdfast.planning.states import STATES
from holdfast.planning.words import Understood, understand

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "sentences.toml").read_text("utf-8"))["case"]
PIECES = (
    "delete ",
    "write ",
    "'x' ",
    "to ",
    "a.txt ",
    "../b ",
    "/etc ",
    "and ",
    "link ",
    "; ",
    "make ",
    "executable ",
    "\n",
)
FILES = {
    "conf/site.conf": "port = 80\nhost = a\n",
    "conf/old.conf": "",
    "a.txt": "one\ntwo\ntwo\n",
    "b.md": "",
    "run.sh": "",
    "src/app.py": "import os\n",
    "tmp/x": "",
    "releases/2/x": "",
    "my file.txt": "",
    ".github/workflows/ci.yml": "",
    "files": "",
}


def eyes_on(root: Path) -> Eyes:
    def content(path: str) -> bytes | None:
        return (root / path).read_bytes() if (root / path).is_file() else None

    def mode(path: str) -> int | None:
        return os.lstat(root / path).st_mode & 0o777 if os.path.lexists(root / path) else None

    return Eyes(content, mode)


@pytest.fixture(scope="module")
def eyes(tmp_path_factory: pytest.TempPathFactory) -> Eyes:
    root = tmp_path_factory.mktemp("workspace")
    (root / "empty").mkdir()
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        (root / name).chmod(0o640 if name == "run.sh" else 0o644)
    return eyes_on(root)


def spelt(step: Step) -> str:
    """A step in one line, as the cases write it."""
    match step:
        case Create(path, directory):
            return f"create {path}" + ("/" if directory else "")
        case Delete(path, recursive):
            return f"delete {path}" + (" recursive" if recursive else "")
        case Move(path, to):
            return f"move {path} {to}"
        case Chmod(path, mode):
            return f"chmod {path} {mode:04o}"
        case Symlink(path, target):
            return f"symlink {path} {target}"
        case Write(path, Inline(data)):
            return f"write {path} {data.decode()}"
        case Update(path, _, Inline(data)):
            return f"update {path} {data.decode()}"
    raise AssertionError(step)


def states_to(end: str) -> tuple[str, ...]:
    return STATES[: STATES.index(end) + 1]  # type: ignore[arg-type]


@pytest.mark.parametrize("case", CASES, ids=[case["text"][:60] for case in CASES])
def test_words_become_exactly_what_their_case_says(case: dict[str, Any], eyes: Eyes) -> None:
    """A sentence has the class, states, steps, checks and risk of its case, and says what is missing."""
    found = understand(case["text"], eyes)
    checks = [item.kind for item in found.shaped.verification if item.kind != "files"]
    steps = [spelt(step) for step in found.plan.steps] if found.plan is not None else []
    assert (found.classified.kind, found.road.states, found.shaped.risk, checks, steps) == (
        case["class"],
        states_to(case["ends"]),
        case["risk"],
        case["verify"],
        case.get("steps", []),
    )
    assert any(case.get("missing", "") in sentence for sentence in (*found.missing, "")), found.missing
    assert any(case.get("odd", "") in sentence for sentence in (*found.classified.suspicions, ""))
    assert bool(found.classified.suspicions) == ("odd" in case)


def test_there_are_enough_cases_of_every_kind() -> None:
    """More than a hundred sentences, at least nine of each class, and of each way to end."""
    assert len(CASES) >= 150
    assert len({case["text"] for case in CASES}) == len(CASES)
    for key, least in (("class", 9), ("ends", 20), ("risk", 10)):
        values = [case[key] for case in CASES]
        assert [value for value in set(values) if values.count(value) < least] == []


@pytest.mark.parametrize("case", CASES, ids=[case["text"][:60] for case in CASES])
def test_the_answer_is_complete_and_repeatable(case: dict[str, Any], eyes: Eyes) -> None:
    """Steps or a reason, never neither; a rollback for every plan; the same words give the same answer."""
    found = understand(case["text"], eyes)
    assert found == understand(case["text"], eyes)
    if found.plan is None:
        assert found.missing
        assert found.shaped.rollback == ()
    else:
        assert found.plan.risk == found.shaped.risk
        assert found.shaped.rollback == ("restore every touched path from the journal, then prove it by digest",)
    assert (found.classified.confidence == 0) == (found.classified.kind == "unknown")
    assert sum(item.weight for item in found.classified.evidence) >= 3 or found.classified.kind == "unknown"
    assert _plain(found.document())


def _plain(value: object) -> bool:
    """Only what JSON can say."""
    if isinstance(value, dict):
        return all(isinstance(key, str) and _plain(item) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return value is None or isinstance(value, (str, int, bool))


def test_evidence_names_the_words(eyes: Eyes) -> None:
    """Who asks why gets the words that counted, with their weight and what they speak for."""
    found: Understood = understand("Add caching to speed up the dashboard", eyes)
    assert [tuple(item) for item in found.classified.evidence] == [
        ("speed up", "optimise", 6),
        ("add", "add_feature", 4),
    ]
    assert found.classified.confidence == 60


def test_a_very_long_text_is_unknown_and_quick(eyes: Eyes) -> None:
    """A megabyte of words is an intent for a person, not a reason to compute for long."""
    found = understand("fix the bug " * 90_000, eyes)
    assert (found.classified.kind, found.plan, found.road.state) == ("unknown", None, "INTENT")
    assert "longer than" in found.classified.suspicions[0]


@given(st.text(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=12).map("".join))
def test_any_text_at_all_has_an_answer(text: str) -> None:
    """Whatever is typed: an answer, quickly; and a plan holds only steps whose paths are inside the workspace."""
    found = understand(text, Eyes(lambda path: b"one two", lambda path: 0o644))
    for path in found.plan.affected_paths if found.plan is not None else ():
        assert checked_path(path) == path
    assert (found.plan is None) == (found.road.state != "PLAN_GENERATION")
    assert not (found.plan and found.classified.suspicions)


@pytest.mark.parametrize("unit", [" ", "\t", "'", "“", "./", "a and ", "a-", ", ", "delete ", "\n;"])
def test_no_text_takes_long(unit: str, eyes: Eyes) -> None:
    """The longest text that is read at all is read in a moment, also one made to be looked through again and again."""
    text = "delete" + (unit * 4000)[:3980] + "x"
    with at_most(2):
        assert understand(text, eyes).plan is None


def test_nothing_is_looked_up_for_words_that_are_not_understood() -> None:
    """A sentence that goes on after a request, or a suspicious one, makes nobody open a file."""

    def never(path: str) -> None:
        raise AssertionError(path)

    blind = Eyes(never, never)
    for words in ("delete a.txt and make coffee", "delete a.txt; rm -rf b", "Fix the bug in a.txt", "delete ../a"):
        assert understand(words, blind).plan is None
