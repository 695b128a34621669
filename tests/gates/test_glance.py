"""The glance over many texts: nothing that would be found is passed over, and it is worth its name."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gates.building import cases_in
from holdfast.gates import secrets
from holdfast.gates.evidence import Text
from holdfast.gates.glance import suspects
from holdfast.gates.secrets import SHAPES, every_finding

KNOWN = ["".join(case["text"]) for _, case in cases_in("secrets")]
# What stands between: also characters that are no ASCII, which may be letters, digits or neither.
BETWEEN = ["", " ", "\n", "\t", "?", "é", "—", "٣", ".", "/", "=", ":", ":=", "=>", '"', "'", "@", "\0", "\x1c", "x"]
TOKENS = st.text("AZaz09_-é٣", min_size=11, max_size=70)
NAMES = st.sampled_from(["api_key", "token", "Password", "pwd_1", "credentials", "x", "secret" + "é" * 40, "k" * 41])
SIGNS = st.sampled_from(["=", ": ", ' := "', "' => `", "        =        '", '"]]:', "=="])
VALUES = st.text("aB3xQz9=:/+é٣?-$", min_size=11, max_size=80)

pieces = st.one_of(
    st.sampled_from(KNOWN),
    st.sampled_from([literal for shape in SHAPES for literal in shape.literals]),
    st.sampled_from(BETWEEN),
    st.builds(lambda *parts: "".join(parts), NAMES, SIGNS, VALUES),
    st.builds(lambda a, b: f"eyJ{a}.eyJ{a}.{b}", TOKENS, TOKENS),
    st.builds(lambda a, b: f"hooks.slack.com/services/T{a}/B{a}/{b}", TOKENS, TOKENS),
    st.builds(lambda user, word: f"ftp://{user}:{word}@host", st.text("ab9é", min_size=1, max_size=66), VALUES),
    st.builds("AccountKey={}==".format, st.text("aZ+/", min_size=85, max_size=87)),
    TOKENS,
)
texts = st.lists(pieces, max_size=12).map("".join)


def looked_at_closely(added: list[Text]) -> tuple[secrets.Finding, ...]:
    """Every text, without a glance before."""
    return tuple(sorted({finding for text in added if text.added for finding in secrets._bounded(text)}))


@settings(max_examples=400)
@given(st.lists(texts, min_size=1, max_size=6))
def test_a_glance_passes_over_nothing(written: list[str]) -> None:
    """Many texts at once give exactly what a close look at each of them gives."""
    added = [Text(f"a{number}.txt", text) for number, text in enumerate(written)]
    assert every_finding(added) == looked_at_closely(added)


@pytest.mark.parametrize("name", [name for name, case in cases_in("secrets") if case["finds"]])
@pytest.mark.parametrize("around", ["", "x" * 300_000, "é" * 10, "plain text\n" * 5])
def test_each_known_secret_is_seen_among_others(name: str, around: str) -> None:
    """Wherever it stands: alone, between large texts that make batches of their own, beside what is no ASCII."""
    case = dict(cases_in("secrets"))[name]
    secret = Text(case.get("path", "src/a.txt"), "".join(case["text"]))
    others = [Text(f"other{number}", around) for number in range(2)]
    assert list(suspects([others[0], secret, others[1]])) == [secret]


def test_ordinary_code_raises_no_suspicion() -> None:
    """Words that secrets have too, long names, addresses and assignments of plain values."""
    code = (
        "def token_of(self, password_policy: Policy, key: str = 'name') -> str:\n"
        "    self.a_rather_long_attribute_name = settings.secret_of_the_application(keys[0])\n"
        "    # see https://docs.example.invalid/a/page, or write to somebody@example.invalid\n"
        "    return compute(table[10], api_key=None, credential=self.credential)\n"
    )
    assert list(suspects([Text("a.py", code)])) == []


@pytest.mark.parametrize("what", ["=", "@", "a=", "://", "key=", "a" * 19 + " ", "a" * 20 + "/", "x@://", "é=", "?"])
def test_the_cost_grows_with_the_text(what: str) -> None:
    """Eight times the text takes about eight times as long, whatever it repeats."""

    def seconds(size: int) -> float:
        text = Text("a", what * (size // len(what)))
        started = time.process_time()
        list(suspects([text]))
        return time.process_time() - started

    small = min(seconds(10_000) for _ in range(3))
    large = min(seconds(80_000) for _ in range(3))
    assert large < 8 * 4 * max(small, 0.0002)
