"""A plan read back from its document is the plan that was written, or is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.plan import (
    Call,
    Chmod,
    CommandCheck,
    Create,
    Delete,
    HttpCheck,
    Inline,
    Launch,
    Move,
    Plan,
    Read,
    Run,
    Service,
    Signal,
    Symlink,
    Update,
    Write,
    described,
)
from holdfast.model.saved_plan import plan_from

WORDS = st.text(st.characters(blacklist_categories=("Cs",)), max_size=8)
ARGV = st.lists(WORDS.filter(bool), min_size=1, max_size=3).map(tuple)
BYTES = st.binary(max_size=8)
MODE = st.none() | st.integers(0, 0o777)
EFFECT = st.one_of(
    st.builds(Signal, st.sampled_from(["restart", "reload", "start", "stop"]), WORDS),
    st.builds(Launch, ARGV),
    st.builds(Call, WORDS, WORDS, WORDS),
)
STEP = st.one_of(
    st.builds(Write, WORDS, BYTES.map(Inline), MODE),
    st.builds(Update, WORDS, BYTES, BYTES.map(Inline), MODE),
    st.builds(Create, WORDS, st.booleans(), MODE),
    st.builds(Delete, WORDS, st.booleans()),
    st.builds(Move, WORDS, WORDS),
    st.builds(Chmod, WORDS, st.integers(0, 0o777)),
    st.builds(Symlink, WORDS, WORDS),
    st.builds(Read, WORDS),
    st.builds(Run, ARGV, st.integers(1, 10**6)),
    st.builds(Service, EFFECT, st.none() | EFFECT, st.integers(1, 10**6)),
)
PLAN = st.builds(
    Plan,
    intent=WORDS,
    steps=st.lists(STEP, max_size=4).map(tuple),
    objective=WORDS,
    rationale=WORDS,
    risk=st.sampled_from(["low", "medium", "high", "critical"]),
    verify=st.lists(st.builds(CommandCheck, ARGV), max_size=2).map(tuple),
    health=st.lists(st.builds(HttpCheck, WORDS) | st.builds(CommandCheck, ARGV), max_size=2).map(tuple),
    on_failure=st.sampled_from(["rollback", "stop", "continue"]),
)


def _document(plan: Plan) -> dict[str, Any]:
    written = json.dumps({**plan.document(), "steps": [described(step) for step in plan.steps]})
    document: dict[str, Any] = json.loads(written)
    return document


@given(PLAN)
def test_a_plan_comes_back_with_the_same_digest(plan: Plan) -> None:
    """Written as JSON and read again, with bytes by digest only, a plan has the digest and the id it had."""
    again = plan_from(_document(plan))
    assert (again.digest, again.id, len(again.steps)) == (plan.digest, plan.id, len(plan.steps))


@pytest.mark.parametrize("change", ["intent", "mode", "argv", "sha256", "unknown", "missing", "digest", "check"])
def test_an_edited_document_is_refused(change: str) -> None:
    """Whatever is edited in the document of a plan, it is not taken for the plan any more."""
    plan = Plan("x", (Write("a", Inline(b"1"), 0o644), Run(("make",))))
    document = _document(plan)
    write, run = document["steps"]
    match change:
        case "intent":
            document["intent"] = "y"
        case "mode":
            write["mode"] = 0o755
        case "argv":
            run["argv"] = ["rm", "-r"]
        case "sha256":
            write["content"]["sha256"] = "0" * 64
        case "unknown":
            run["network"] = "full"
        case "missing":
            del run["within_ms"]
        case "digest":
            del document["digest"]
        case "check":
            document["verification_plan"] = [HttpCheck("http://127.0.0.1/")._asdict()]
    with pytest.raises(ValueError, match="document"):
        plan_from(document)
