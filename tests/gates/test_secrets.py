"""Secrets in added text: what is found, what is passed over, and that nothing leaks."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from gates.building import Case, cases_in, evidence_of, policy_of
from holdfast.gates.evidence import Text, compared
from holdfast.gates.secrets import GUESS, MORE, MOST_FINDINGS, SHAPES, Finding, every_finding, masked
from holdfast.gates.write_gate import decide

CASES = dict(cases_in("secrets"))


def found(case: Case) -> tuple[Finding, ...]:
    data = "".join(case["text"]).encode("latin-1" if case.get("latin") else "utf-8")
    return every_finding([compared(case.get("path", "src/a.txt"), b"", data)])


@pytest.mark.parametrize("name", CASES)
def test_secrets_are_found_and_others_passed_over(name: str) -> None:
    """A text with a secret gives its kind; a text that only looks like one gives nothing."""
    assert [finding.shape for finding in found(CASES[name])] == CASES[name]["finds"]


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["finds"]])
def test_a_finding_never_holds_the_secret(name: str) -> None:
    """No eight characters in a row of what follows the prefix stand in a finding."""
    text = CASES[name]["text"][-1].removesuffix("'").removesuffix('"')
    for finding in found(CASES[name]):
        shown = f"{finding.path} {finding.shape} {finding.masked}"
        body = text[8:]
        assert [body[n : n + 8] for n in range(len(body) - 7) if body[n : n + 8] in shown] == []


def test_a_known_secret_is_passed_over() -> None:
    """A match whose digest the user's policy knows is not held against a change; another digest changes nothing."""
    case: Case = {"changes": [{"edit": "src/a.py", "secret": ["ghp", "_R2d8sK1mQ9vX4tZ7bN3cW6yL0pJ5hG8fUaEo"]}]}
    evidence = evidence_of(case)
    (finding,) = every_finding(evidence.texts)
    verdicts = [
        decide(evidence, policy_of({"policy": {"user": {"known_secrets": [f"sha256:{digest}"]}}}), 1).verdict
        for digest in (finding.digest, "0" * 64)
    ]
    assert verdicts == ["ALLOW", "NEED_APPROVAL"]


@pytest.mark.parametrize("policy", [{}, {"user": {"secrets": "deny"}}, {"user": {"known_secret_paths": ["src"]}}])
def test_findings_stand_in_for_texts_that_are_gone(policy: dict[str, object]) -> None:
    """A replay that has the findings and not the texts comes to the very same decision."""
    case: Case = {"changes": [{"edit": "src/a.py", "secret": ["ghp", "_R2d8sK1mQ9vX4tZ7bN3cW6yL0pJ5hG8fUaEo"]}]}
    evidence, rules = evidence_of(case), policy_of({"policy": policy})
    bare = replace(
        evidence,
        texts=tuple(text._replace(added="") for text in evidence.texts),
        findings=every_finding(evidence.texts),
    )
    assert decide(bare, rules, 2) == decide(evidence, rules, 2)


def _crowd(number: int, of: str = "AKIA") -> str:
    return "".join(f"{of}QWERTYUI{n:08}\n" for n in range(number))


def test_many_findings_are_bounded_and_said_to_be() -> None:
    """Of a text full of secrets so many are listed, and one that says there are more; policy knows all but that."""
    listed = every_finding([Text("a", _crowd(3 * MOST_FINDINGS))])
    assert len(listed) == MOST_FINDINGS + 1
    (more,) = [finding for finding in listed if finding.shape == MORE]
    known = frozenset(finding.digest for finding in listed) - {more.digest}
    case: Case = {"policy": {"user": {"known_secrets": [f"sha256:{digest}" for digest in sorted(known)]}}}
    evidence = replace(evidence_of({}), texts=(Text("src/a.py", _crowd(3 * MOST_FINDINGS)),))
    decision = decide(evidence, policy_of(case), 1)
    assert decision.verdict == "NEED_APPROVAL"
    assert any(MORE in reason.detail for reason in decision.reasons)


def test_a_crowd_of_shapes_and_guesses_costs_no_more_than_its_length() -> None:
    """Twice the text is about twice the work: no guess is compared with every shape."""

    def seconds(number: int) -> float:
        # Placeholders are no findings, so that nothing is cut short; guesses on known shapes are none either.
        text = _crowd(number) + "".join(f"api_key = AKIAQWERTYUI{n:08}\n" for n in range(number))
        started = time.process_time()
        _in_text_only(text)
        return time.process_time() - started

    small = min(seconds(2_000) for _ in range(3))
    large = min(seconds(16_000) for _ in range(3))
    assert large < 8 * 4 * small


def _in_text_only(text: str) -> None:
    from holdfast.gates.secrets import _in_text

    for _ in _in_text(Text("a", text)):
        pass


def test_every_shape_has_a_case() -> None:
    """Each shape of token, and the guess, is found in at least one case."""
    shapes = {shape for case in CASES.values() for shape in case["finds"]}
    assert shapes == {shape.name for shape in SHAPES} | {GUESS}


def test_only_what_is_added_is_searched() -> None:
    """A secret that was there before, also on another line, is not this change's doing."""
    secret = b"token = 'hK3vTq9Lw2Zs8Xc5'\n"
    moved = compared("a", secret + b"x\n", b"x\ny\n" + secret)
    assert (moved.added, moved.lines_added, moved.lines_removed) == ("y", 1, 0)
    assert every_finding([moved]) == ()
    again = compared("a", secret, secret * 2)
    assert len(every_finding([again])) == 1


def test_what_is_not_read_is_said() -> None:
    """Text beyond the bound is not searched, and the facts say so; bytes with NUL are binary."""
    cut = compared("a", b"", b"x\n" * 100 + b"token = 'hK3vTq9Lw2Zs8Xc5'\n", most=100)
    assert (cut.unread, cut.lines_added) == (True, 50)
    assert compared("a", b"", b"\0x") == Text("a", "\0x", 1, 0, binary=True)


@pytest.mark.parametrize("behind", ["", "_x", "x", "-", "x" * 100, "x" * 300, '"', "\n"])
def test_what_is_shown_is_masked_whatever_is_glued_to_it(behind: str) -> None:
    """A test that fails with a key in its message prints more behind it; the key is gone all the same."""
    key = "ghp_" + "a1B2" * 9
    assert key not in masked(f"AssertionError: {key}{behind} is not 3")


@pytest.mark.parametrize("unit", ["token=", "secret:", "password=a1", "AccountKey=a"])
def test_values_in_values_take_no_time(unit: str) -> None:
    """A file made of names and signs has a value at each of them, and is told as one that was not looked at whole."""
    text = Text("a.txt", added=unit * (1_000_000 // len(unit)))
    started = time.monotonic()
    assert MORE in [finding.shape for finding in every_finding([text])]
    assert time.monotonic() - started < 10


def test_a_token_after_an_escape_is_masked() -> None:
    """What is shown or kept masks it as well."""
    token = "ghp" + "_R2d8sK1mQ9vX4tZ7bN3cW6yL0pJ5hG8fUaEo"
    assert token not in masked(f"a\\n{token}") + masked(f"%22{token}%22") + masked(f"\\u0022{token}")
