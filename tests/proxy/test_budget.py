"""Money, tokens and requests: nothing is sent once they are spent, and one answer cannot overshoot by much."""

from __future__ import annotations

import json
import threading
import time

import pytest

from holdfast.model.agent import Usage
from holdfast.proxy.budget import Spending
from proxy.answers import ANTHROPIC, CASES, GEMINI, OPENAI, RESPONSES, Case, event_bytes
from proxy.asking import PRICES, TOKEN, asking, proxied, upstream
from proxy.provider import Reply, providing, streamed

# OPENAI's answer: 120 tokens in, 30 out; 120 + 60 millionths of a dollar.
QUESTION = {**OPENAI.body, "max_tokens": 30}


@pytest.mark.parametrize("case", CASES, ids=[case.api for case in CASES])
@pytest.mark.parametrize("budget", [Spending(requests=2), Spending(tokens=300), Spending(micro_usd=350)])
def test_a_spent_budget_ends_all_requests(case: Case, budget: Spending) -> None:
    """As soon as the budget is spent, each further request gets a 429 as the provider says it, and none is sent."""
    path, body = case.asking(stream=False)
    text = json.dumps(body).replace("500", "30")
    with providing(lambda _: case.reply(stream=False)) as provider, proxied(provider.url, budget) as (proxy, client):
        answers = [client.ask(path, text.encode()) for _ in range(5)]
        assert [answer.status for answer in answers] == [200, 200, 429, 429, 429]
        assert (len(provider.seen), proxy.usage.requests) == (2, 2)
        assert answers[2].words.startswith("holdfast: budget reached: ")
        assert answers[2].headers["x-should-retry"] == "false"
        assert proxy.exhausted and proxy.failures == {"budget": 3}


def test_a_budget_is_not_exhausted_before_something_was_refused() -> None:
    """Work that ends with the last cent ends well."""
    with (
        providing(lambda _: OPENAI.reply(stream=False)) as provider,
        proxied(provider.url, Spending(requests=1)) as (proxy, client),
    ):
        assert client.ask(OPENAI.path, OPENAI.body).status == 200
        assert proxy.exhausted == ""
        assert client.ask(OPENAI.path, OPENAI.body).status == 429
        assert proxy.exhausted == "all 1 requests of the budget were made"


def test_free_endpoints_use_nothing_up_and_end_with_the_budget() -> None:
    """Looking which models there are costs no request; when the budget is spent, nothing passes any more."""
    with (
        providing(
            lambda seen: Reply((b"{}",)) if seen.path == "/v1/models" else OPENAI.reply(stream=False)
        ) as provider,
        proxied(provider.url, Spending(requests=1)) as (proxy, client),
    ):
        assert [client.ask("/v1/models").status for _ in range(3)] == [200] * 3
        assert client.ask(OPENAI.path, OPENAI.body).status == 200
        assert client.ask("/v1/models").status == 429
        assert (proxy.usage.requests, len(provider.seen)) == (1, 4)


LIMITS = [
    (OPENAI, {"max_tokens": 9000}, lambda body: body["max_tokens"]),
    (OPENAI, {"max_tokens": None, "max_completion_tokens": 9000}, lambda body: body["max_completion_tokens"]),
    (RESPONSES, {"max_output_tokens": 9000}, lambda body: body["max_output_tokens"]),
    (ANTHROPIC, {"max_tokens": 9000}, lambda body: body["max_tokens"]),
    (GEMINI, {"generationConfig": {"maxOutputTokens": 9000}}, lambda body: body["generationConfig"]["maxOutputTokens"]),
    (GEMINI, {"generation_config": {"max_output_tokens": 9000}, "generationConfig": None},
     lambda body: body["generation_config"]["max_output_tokens"]),
]  # fmt: skip


@pytest.mark.parametrize(("case", "more", "limit_of"), LIMITS)
@pytest.mark.parametrize("budget", [Spending(tokens=1000), Spending(micro_usd=2000)])
def test_a_limit_is_lowered_to_what_is_left(case: Case, more: dict[str, object], limit_of, budget: Spending) -> None:  # type: ignore[no-untyped-def]
    """A request that allows its answer more than the budget affords is sent with less, and that is recorded."""
    lines: list[dict[str, object]] = []
    path, body = case.asking(stream=False)
    body = {name: value for name, value in {**body, **more}.items() if value is not None}
    with (
        providing(lambda _: case.reply(stream=False)) as provider,
        proxied(provider.url, budget, transcript=lines.append) as (_, client),
    ):
        assert client.ask(path, body).status == 200
        sent = limit_of(json.loads(provider.seen[0].body))
        estimate = -(-len(json.dumps(body)) // 3)
        assert sent == (1000 - estimate if budget.tokens else (2000 - estimate) // 2)
    assert f"lowered from 9000 to {sent} tokens" in str(lines[0]["notes"])


WITHOUT_LIMIT = [
    (OPENAI, {"max_tokens": None}, lambda body: body["max_completion_tokens"]),
    (RESPONSES, {"max_output_tokens": None}, lambda body: body["max_output_tokens"]),
    (ANTHROPIC, {"max_tokens": None}, lambda body: body["max_tokens"]),
    (GEMINI, {"generationConfig": None}, lambda body: body["generationConfig"]["maxOutputTokens"]),
    (GEMINI, {"generationConfig": None, "generation_config": {"top_k": 1}},
     lambda body: body["generation_config"]["maxOutputTokens"]),
]  # fmt: skip


@pytest.mark.parametrize(("case", "more", "limit_of"), WITHOUT_LIMIT)
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_a_limit_gets_one_near_the_end(  # type: ignore[no-untyped-def]
    case: Case, more: dict[str, object], limit_of, stream: bool
) -> None:
    """With less left than such an answer is expected to have, it may have what is left; before, it goes as it is."""
    path, body = case.asking(stream=stream)
    body = {name: value for name, value in {**body, **more}.items() if value is not None}
    with providing(lambda _: case.reply(stream=stream)) as provider:
        with proxied(provider.url, Spending(tokens=1000)) as (_, client):
            assert client.ask(path, body).status == 200
            assert 900 < limit_of(json.loads(provider.seen[0].body)) < 1000
        with proxied(provider.url, Spending(tokens=100_000)) as (_, client):
            assert client.ask(path, body).status == 200
            sent = json.loads(provider.seen[1].body)
            assert {name: value for name, value in sent.items() if name != "stream_options"} == body


def test_several_answers_share_what_is_left() -> None:
    """`n` answers are allowed a part of the rest each."""
    with (
        providing(lambda _: OPENAI.reply(stream=False)) as provider,
        proxied(provider.url, Spending(tokens=1000)) as (_, client),
    ):
        client.ask(OPENAI.path, {**OPENAI.body, "n": 10})
        assert json.loads(provider.seen[0].body)["max_tokens"] < 100


def test_thinking_shrinks_with_the_limit() -> None:
    """Where thinking has a part of the limit, it gets half of the lower one; too little for it is refused."""
    body = {**ANTHROPIC.body, "max_tokens": 32000, "thinking": {"type": "enabled", "budget_tokens": 31999}}
    with providing(lambda _: ANTHROPIC.reply(stream=False)) as provider:
        with proxied(provider.url, Spending(tokens=5000)) as (_, client):
            assert client.ask(ANTHROPIC.path, body).status == 200
            sent = json.loads(provider.seen[0].body)
            assert 4900 < sent["max_tokens"] < 5000 and sent["thinking"]["budget_tokens"] == sent["max_tokens"] // 2
        with proxied(provider.url, Spending(tokens=1500)) as (_, client):
            assert client.ask(ANTHROPIC.path, body).status == 429
        assert len(provider.seen) == 1


def test_a_question_that_cannot_be_paid_is_not_asked() -> None:
    """When the rest does not pay for the question itself, nothing is sent, and the reason says so."""
    with (
        providing(lambda _: OPENAI.reply(stream=False)) as provider,
        proxied(provider.url, Spending(micro_usd=1000)) as (proxy, client),
    ):
        long = {**OPENAI.body, "messages": [{"role": "user", "content": "word " * 2000}]}
        assert client.ask(OPENAI.path, long).status == 429
        assert (provider.seen, proxy.usage) == ([], Usage())
        assert proxy.exhausted == "what is left of the budget does not pay for this request"


PACKED = "QUJD" * 1_000_000
DATA = "data:image/png;base64," + PACKED
PICTURES: list[tuple[Case, dict[str, object]]] = [
    (OPENAI, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": DATA}}]}]}),
    (RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": DATA}]}]}),
    (RESPONSES, {"input": [{"type": "function_call_output", "call_id": "c", "output": [
        {"type": "input_image", "image_url": DATA}]}]}),
    (ANTHROPIC, {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PACKED}}]}]}]}),
    (GEMINI, {"contents": [{"parts": [{"inlineData": {"mimeType": "image/png", "data": PACKED}}]}]}),
]  # fmt: skip
TEXTS: list[tuple[Case, dict[str, object]]] = [
    (OPENAI, {"messages": [{"role": "user", "content": PACKED}]}),
    (OPENAI, {"messages": [{"role": "user", "content": DATA}]}),
    (OPENAI, {"messages": [{"role": "tool", "tool_call_id": "t", "content": [{"type": "text", "text": PACKED}]}]}),
    (OPENAI, {"messages": [{"role": "user", "content": [
        {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64," + PACKED}}]}]}),
    (OPENAI, {"tools": [{"type": "function", "function": {"name": "f", "description": DATA}}]}),
    (RESPONSES, {"input": PACKED}),
    (RESPONSES, {"instructions": DATA}),
    (ANTHROPIC, {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {
        "content": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PACKED}}]}}]}]}),
    (ANTHROPIC, {"system": PACKED}),
    (GEMINI, {"contents": [{"parts": [{"inlineData": {"mimeType": "text/plain", "data": PACKED}}]}]}),
    (GEMINI, {"contents": [{"parts": [{"functionResponse": {"name": "f", "response": {
        "inlineData": {"mimeType": "image/png", "data": PACKED}}}}]}]}),
]  # fmt: skip


@pytest.mark.parametrize(("case", "more"), PICTURES)
def test_a_picture_is_not_taken_for_its_letters(case: Case, more: dict[str, object]) -> None:
    """Where a wire says that this is a picture, four megabytes of it fit into a budget of a few thousand tokens."""
    with (
        providing(lambda _: case.reply(stream=False)) as provider,
        proxied(provider.url, Spending(tokens=5000)) as (_, client),
    ):
        assert client.ask(case.path, {**case.body, **more}).status == 200


@pytest.mark.parametrize(("case", "more"), TEXTS)
def test_packed_text_is_counted_by_its_letters(case: Case, more: dict[str, object]) -> None:
    """The same letters anywhere else are read by the model as text: they cost what text costs, or are not sent."""
    with (
        providing(lambda _: case.reply(stream=False)) as provider,
        proxied(provider.url, Spending(tokens=100_000)) as (proxy, client),
    ):
        assert client.ask(case.path, {**case.body, **more}).status == 429
        assert (provider.seen, proxy.usage) == ([], Usage())


def test_without_a_price_no_money_is_spent() -> None:
    """A model without a price is refused where money is limited; elsewhere it passes, and its cost is unknown."""
    with providing(lambda _: OPENAI.reply(stream=False)) as provider:
        with proxied(provider.url, Spending(micro_usd=10**9)) as (proxy, client):
            answer = client.ask(OPENAI.path, {**OPENAI.body, "model": "x-1"})
            assert (answer.status, proxy.failures, provider.seen) == (403, {"price": 1}, [])
            assert "no price is known for x-1" in answer.words
        with proxied(provider.url, Spending(tokens=10**6)) as (proxy, client):
            assert client.ask(OPENAI.path, {**OPENAI.body, "model": "x-1"}).status == 200
            assert proxy.usage == Usage(1, 120, 30, None)


def test_the_longest_prefix_is_the_price() -> None:
    """A price for a family and one for a member: the member's counts."""
    prices = (*PRICES, PRICES[0]._replace(prefix="m-1-large", input=5_000_000))
    found = upstream("https://a.example", prices=prices)
    assert [price and price.input for price in map(found.price, ("m-1", "m-1-large-2", "other"))] == [
        1_000_000, 5_000_000, None,
    ]  # fmt: skip


def test_many_at_once_overshoot_no_further_than_one() -> None:
    """Twenty requests at the same moment, a budget for three: three are sent, one after another near the end."""
    lock, under_way, most = threading.Lock(), [0], [0]

    def answer(_: object) -> Reply:
        with lock:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
        time.sleep(0.05)
        with lock:
            under_way[0] -= 1
        return OPENAI.reply(stream=False)

    budget = Spending(tokens=401)  # after three answers 450
    statuses: list[int] = []
    with providing(answer) as provider, proxied(provider.url, budget) as (proxy, client):

        def work() -> None:
            with asking(client._path) as mine:
                statuses.append(mine.ask(OPENAI.path, {**OPENAI.body, "max_tokens": 300}).status)

        threads = [threading.Thread(target=work) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(statuses) == [200] * len(provider.seen) + [429] * (20 - len(provider.seen))
        assert len(provider.seen) in (2, 3) and most[0] == 1
        assert proxy.usage.requests == len(provider.seen)


def test_who_waits_for_the_purse_is_woken_at_the_end() -> None:
    """A request that waits for another one's change does not hold up the end of the proxy."""
    hold = threading.Event()
    with providing(lambda _: streamed(OPENAI.pieces()[0], hold)) as provider:
        with proxied(provider.url, Spending(tokens=600)) as (proxy, client):
            headers = {"authorization": f"Bearer {TOKEN}"}
            client.request("POST", OPENAI.path, json.dumps({**OPENAI.body, "stream": True}), headers)
            client.getresponse().read1(5)
            with asking(client._path) as second:
                second.request("POST", OPENAI.path, json.dumps(OPENAI.body), headers)
                time.sleep(0.2)
                start = time.monotonic()
                proxy.close()
                assert time.monotonic() - start < 10
                assert len(provider.seen) == 1
        hold.set()


SAID = "x" * 3000
REPORTS: dict[str, object] = {
    "negative": {"prompt_tokens": -120, "completion_tokens": -30},
    "a negative answer": {"prompt_tokens": 120, "completion_tokens": -30},
    "huge": {"prompt_tokens": 120, "completion_tokens": 10**12},
    "infinite": {"prompt_tokens": 120, "completion_tokens": float("inf")},
    "half a token": {"prompt_tokens": 120, "completion_tokens": 0.5},
    "words": {"prompt_tokens": "120", "completion_tokens": "30"},
    "nothing for something": {"prompt_tokens": 120, "completion_tokens": 0},
    "nothing at all": {"prompt_tokens": 0, "completion_tokens": 0},
    "no answer": {"prompt_tokens": 120},
    "no question": {"completion_tokens": 30},
    "missing": None,
}


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_wrong_report_of_the_provider_makes_nothing_free(report: object, stream: bool) -> None:
    """Numbers that cannot be are not believed, and what they leave out is estimated from what was said; never less."""
    document = {"choices": [{"message": {"content": SAID}}], "usage": report}
    events = [{"choices": [{"delta": {"content": SAID}}], "usage": None}, {"choices": [], "usage": report}]
    reply = streamed(*map(event_bytes, events)) if stream else Reply((json.dumps(document).encode(),))
    path, body = OPENAI.asking(stream=stream)
    with providing(lambda _: reply) as provider, proxied(provider.url) as (proxy, client):
        assert client.ask(path, body).status == 200
        assert proxy.estimated and proxy.usage.requests == 1
        assert proxy.usage.input_tokens >= len(json.dumps(body)) // 3
        assert 1000 <= proxy.usage.output_tokens < 10**6


def test_what_else_a_report_says_is_no_count() -> None:
    """Prices and times that a provider puts beside its count, whatever their size, do not make it an estimate."""
    usage = {"prompt_tokens": 120, "completion_tokens": 30, "cost": 0.0021, "cost_in_ticks": 10**15, "queue_time": -1}
    reply = Reply((json.dumps({"choices": [{"message": {"content": "Hello"}}], "usage": usage}).encode(),))
    with providing(lambda _: reply) as provider, proxied(provider.url) as (proxy, client):
        assert client.ask(OPENAI.path, OPENAI.body).status == 200
        assert (proxy.usage[:3], proxy.estimated) == ((1, 120, 30), False)


def test_an_answer_that_is_too_long_to_be_kept_is_heard_to_its_end() -> None:
    """Three megabytes without a report are estimated as three megabytes, though only one is written down."""
    events = [{"choices": [{"delta": {"content": "x" * 100_000}}]}] * 30
    with (
        providing(lambda _: streamed(*map(event_bytes, events))) as provider,
        proxied(provider.url) as (proxy, client),
    ):
        assert client.ask(*OPENAI.asking(stream=True)).status == 200
        assert proxy.usage.output_tokens == 1_000_000
