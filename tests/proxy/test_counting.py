"""Counting: the same bytes give the same count, however they are cut; nonsense is survived."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.proxy.counting import LARGEST, MOST, Counted, Counter, Events
from holdfast.proxy.upstream import Price, Tokens
from proxy.answers import ANTHROPIC, CASES, GEMINI, OPENAI, RESPONSES, Case

EACH = pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])


def counted(case: Case, pieces: list[bytes], *, sse: bool = True) -> Counted:
    counter = Counter(case.api, sse=sse)
    for piece in pieces:
        counter.feed(piece)
    return counter.end()


def cut(data: bytes, places: list[int]) -> list[bytes]:
    marks = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in zip(marks, marks[1:], strict=False)]


@EACH
@given(places=st.lists(st.integers(0, 10_000), max_size=60), ending=st.sampled_from(["\n", "\r\n", "\r"]))
def test_the_cut_does_not_matter(case: Case, places: list[int], ending: str) -> None:
    """Any cut of a stream, with any of the three ends of line, gives the tokens and the words of the whole."""
    data = b"".join(case.pieces()).replace(b"\n", ending.encode())
    found = counted(case, cut(data, places))
    assert (found.tokens, found.spoken, found.size, found.final) == (case.tokens, "Hello there", len(data), True)


LINES = st.lists(
    st.binary(min_size=1, max_size=30).filter(lambda b: not set(b) & set(b"\r\n ")), min_size=1, max_size=3
)


@given(
    events=st.lists(LINES, max_size=8),
    places=st.lists(st.integers(0, 10_000)),
    ending=st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
@example([[b"a", b"b"]], [8], b"\r\n")
def test_events_survive_any_cut(events: list[list[bytes]], places: list[int], ending: bytes) -> None:
    """Events of several lines come out as they went in, comments and names between them left out."""
    rows = [[b": note", b"event: x", *(b"data: " + line for line in lines), b""] for lines in events]
    data = b"".join(row + ending for lines in rows for row in lines)
    # Also between the two bytes of each line's end.
    inside = [place + 1 for place in range(len(data)) if data[place : place + 2] == b"\r\n"]
    for cuts in (places, inside):
        reading = Events()
        found = [event for piece in cut(data, cuts) for event in reading.feed(piece)]
        assert found + list(reading.end()) == [b"\n".join(lines) for lines in events]


@EACH
@given(data=st.binary(max_size=400), sse=st.booleans())
def test_nonsense_counts_nothing(case: Case, data: bytes, sse: bool) -> None:
    """Arbitrary bytes are survived, and what is not a report is not taken for one."""
    found = counted(case, [data], sse=sse)
    assert found.tokens is None and found.size == len(data)


@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "usage",
                        "input_tokens",
                        "output_tokens",
                        "response",
                        "message",
                        "prompt_tokens",
                        "usageMetadata",
                        "x",
                    ]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
@EACH
def test_reports_of_any_shape_are_survived(case: Case, value: object) -> None:
    """Whatever JSON stands where a report should be, counts are whole numbers in a sane range."""
    found = counted(case, [b"data: " + json.dumps(value).encode() + b"\n\n"])
    for number in found.tokens or ():
        assert 0 <= number <= 3 * MOST


def test_totals_do_not_fall() -> None:
    """A later report that says less does not take back an earlier one."""
    events = [{"usage": {"prompt_tokens": 9, "completion_tokens": 5}}, {"usage": {"completion_tokens": 0}}]
    found = counted(OPENAI, [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events])
    assert found.tokens == Tokens(9, 5)


def test_a_list_streamed_by_gemini_is_counted() -> None:
    """Without alt=sse gemini streams a JSON list; its last total counts."""
    found = counted(GEMINI, [json.dumps(list(GEMINI.events)).encode()], sse=False)
    assert (found.tokens, found.spoken) == (GEMINI.tokens, "Hello there")


def test_the_first_report_of_anthropic_is_not_final() -> None:
    """A stream that ends after its beginning has not told what it used."""
    found = counted(ANTHROPIC, list(ANTHROPIC.pieces()[:4]))
    assert (found.tokens, found.final) == (Tokens(20, 1, 100, 5, 3), False)


def test_an_endless_event_is_given_up() -> None:
    """An event or a document beyond the limit is not kept in memory, and counts as unreported."""
    for sse in (True, False):
        counter = Counter("openai", sse=sse)
        counter.feed(b"data: {" if sse else b"{")
        for _ in range(LARGEST // (1 << 20) + 1):
            counter.feed(b" " * (1 << 20))
        counter.feed(b'"usage": {"prompt_tokens": 1}}\n\n')
        assert counter.end().tokens is None
    lines = Events()
    assert [event for _ in range(40) for event in lines.feed(b"data: " + b"x" * (1 << 19) + b"\n")] == []
    assert lines.overflowed


def test_a_tool_call_of_any_depth_is_survived() -> None:
    """A model may nest what it gives to a tool until nobody can read it any more; nothing is raised at any depth."""
    for depth in range(900, 1010):
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        call = b'{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":' + deep + b"}}]}}],"
        counted(GEMINI, [call + b'"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":9}}'], sse=False)


def test_small_servers_say_all_at_the_end() -> None:
    """A `responses` stream without pieces is heard from its last event."""
    found = counted(RESPONSES, [RESPONSES.pieces()[0], RESPONSES.pieces()[-1]])
    assert (found.spoken, found.tokens) == ("Hello there", RESPONSES.tokens)


@given(st.builds(Tokens, *[st.integers(0, 10**7)] * 5), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_price_is_never_rounded_down(tokens: Tokens, taken: int, given_: int) -> None:
    """What is charged is at least what it costs, and less than one millionth of a dollar more."""
    exact = tokens.fresh * taken + tokens.cached * taken + tokens.output * given_
    exact += taken * (1.25 * tokens.written + 2 * tokens.kept) if taken < 2**20 else 0
    price = Price("", taken, given_)
    if taken < 2**20:
        assert 0 <= price.of(tokens) * 10**6 - exact < 10**6
    assert price._replace(cached=0).of(tokens) <= price.of(tokens)
