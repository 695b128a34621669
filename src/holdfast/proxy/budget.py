"""The purse: what may be spent, what was, and what requests under way may still cost.

    admit ──▶ Grant (a part of what is left is set aside) ──request──▶ settle (what was used instead)

Invariants
  W1  Nothing is forwarded once as much was spent as the budget allows, in any of its three measures.
  W2  What requests under way have set aside is not given twice: near the end they wait for each other, so that many
      at once overshoot no further than one alone.
  W3  A limit that a request sets to its answer is lowered to what is left. A request without one gets one when less is
      left than it is expected to use. When not even its question and a short answer can be paid, it is refused.
  W4  With a budget of money, a model without a price is refused: it could cost anything.
  W5  What was not reported is estimated, and then the total says so for ever. An answer of which the end was not seen
      is charged as it was set aside: whoever hangs up on it has bought it all the same.
  W6  A request counts when it asks a model for an answer; lists of models and counts of tokens do not. Once the budget
      is spent, they are refused like everything else.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from holdfast.errors import Shortage
from holdfast.model.agent import Usage
from holdfast.model.path import printable
from holdfast.proxy.asked import LEAST_OUTPUT, Asked, lowered
from holdfast.proxy.refusals import Refused
from holdfast.proxy.upstream import MILLION, Price, Tokens

_LOOK_AGAIN = 0.25


class Spending(NamedTuple):
    """The most that may be spent; None is no limit."""

    micro_usd: int | None = None
    tokens: int | None = None
    requests: int | None = None


NO_LIMIT = Spending()


class Grant(NamedTuple):
    """Leave to send one request, perhaps with a lower limit. `tokens` and `micro_usd` are set aside for it."""

    asked: Asked | None
    price: Price | None
    tokens: int
    micro_usd: int

    @property
    def output(self) -> int:
        """The part that is set aside for the answer."""
        return self.tokens - self.asked.input_estimate if self.asked else 0


class Purse:
    def __init__(self, budget: Spending, price_of: Callable[[str], Price | None]) -> None:
        self._budget, self._price_of = budget, price_of
        self._changed = threading.Condition()
        self._spent = Usage()
        self._under_way: list[Grant] = []
        self._exhausted = ""
        self._short_of: Shortage = ""
        self._estimated = False
        self._closed = False

    @property
    def spent(self) -> Usage:
        return self._spent

    @property
    def estimated(self) -> bool:
        return self._estimated

    @property
    def exhausted(self) -> str:
        """Why requests are refused for the budget; empty as long as none was."""
        return self._exhausted

    @property
    def short_of(self) -> Shortage:
        """Of what there was too little, when `exhausted` first said so."""
        return self._short_of

    @property
    def spent_up(self) -> Shortage:
        """Of what nothing is left; empty as long as there is some of everything."""
        budget, spent = self._budget, self._spent
        if budget.requests is not None and spent.requests >= budget.requests:
            return "requests"
        if budget.tokens is not None and spent.input_tokens + spent.output_tokens >= budget.tokens:
            return "tokens"
        if budget.micro_usd is not None and (spent.micro_usd or 0) >= budget.micro_usd:
            return "money"
        return ""

    def admit(self, asked: Asked | None, deadline: float) -> Grant:
        """Leave to send this (None: something that costs no tokens), or Refused. Waits for others under way (W2)."""
        price = self._priced(asked)
        with self._changed:
            while True:
                self._refuse_when_spent()
                grant = None if self._closed else self._granted(asked, price)
                if grant is not None:
                    self._under_way.append(grant)
                    return grant
                if self._closed or time.monotonic() > deadline:
                    raise Refused("busy", 503, "other requests under way may use up what is left of the budget")
                self._changed.wait(_LOOK_AGAIN)

    def settle(self, grant: Grant, tokens: Tokens, *, estimated: bool = False) -> Usage:
        """What one request used, instead of what was set aside for it; of none, where no model was asked (W6)."""
        money = grant.price.of(tokens) if grant.price else (None if grant.asked else 0)
        usage = Usage(1 if grant.asked else 0, tokens.input, tokens.output, money)
        with self._changed:
            self._under_way.remove(grant)
            self._spent = self._spent.plus(usage)
            self._estimated = self._estimated or estimated
            self._changed.notify_all()
        return usage

    def wait_settled(self, deadline: float) -> None:
        """Until nothing is under way: an answer that was just hung up on is charged a moment later."""
        with self._changed:
            while self._under_way and time.monotonic() < deadline:
                self._changed.wait(_LOOK_AGAIN)

    def close(self) -> None:
        """Nobody waits any longer, and nobody is let through: what the closed requests set aside goes to no other."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _priced(self, asked: Asked | None) -> Price | None:
        price = self._price_of(asked.model) if asked else None
        if asked and price is None and self._budget.micro_usd is not None:
            name = printable(asked.model)[:80]
            raise Refused("price", 403, f"no price is known for {name}, and there is a budget of money")
        return price

    def _refuse_when_spent(self) -> None:
        budget, spent = self._budget, self._spent
        asking = sum(grant.asked is not None for grant in self._under_way)
        if budget.requests is not None and spent.requests + asking >= budget.requests:
            self._refuse("requests", f"all {budget.requests} requests of the budget were made")
        if budget.tokens is not None and spent.input_tokens + spent.output_tokens >= budget.tokens:
            used = spent.input_tokens + spent.output_tokens
            self._refuse("tokens", f"{used:,} tokens were used of {budget.tokens:,} in the budget")
        if budget.micro_usd is not None and (spent.micro_usd or 0) >= budget.micro_usd:
            self._refuse("money", f"{_usd(spent.micro_usd or 0)} were spent of {_usd(budget.micro_usd)} in the budget")

    def _refuse(self, short_of: Shortage, why: str) -> NoReturn:
        if not self._exhausted:
            self._exhausted, self._short_of = why, short_of
        raise Refused("budget", 429, f"budget reached: {why}")

    def _granted(self, asked: Asked | None, price: Price | None) -> Grant | None:
        """None: what others have set aside may come back, so ask again."""
        if asked is None:
            return Grant(None, None, 0, 0)
        room, short_of = self._room(asked, price)
        wanted = asked.output_wanted
        if room is not None and room < wanted:
            if any(grant.asked for grant in self._under_way):
                return None
            asked, wanted = self._fitted(asked, room, short_of), min(room, wanted)
        tokens = Tokens(asked.input_estimate, wanted)
        return Grant(asked, price, tokens.input + tokens.output, price.of(tokens) if price else 0)

    def _fitted(self, asked: Asked, room: int, short_of: Shortage) -> Asked:
        """The request as what is left can pay it (W3)."""
        each = room // asked.answers
        fitting = lowered(asked, each) if each >= LEAST_OUTPUT else None
        if fitting is None:
            self._refuse(short_of, "what is left of the budget does not pay for this request")
        return fitting

    def _room(self, asked: Asked, price: Price | None) -> tuple[int | None, Shortage]:
        """How many tokens of answer are left beside the question, and what bounds them; None is no limit."""
        rooms: list[tuple[int, Shortage]] = []
        if self._budget.tokens is not None:
            used = self._spent.input_tokens + self._spent.output_tokens + sum(g.tokens for g in self._under_way)
            rooms.append((self._budget.tokens - used - asked.input_estimate, "tokens"))
        if self._budget.micro_usd is not None and price is not None:
            used = (self._spent.micro_usd or 0) + sum(g.micro_usd for g in self._under_way)
            left = self._budget.micro_usd - used - price.of(Tokens(asked.input_estimate))
            if price.output:
                rooms.append((left * MILLION // price.output, "money"))
            elif left < 0:
                rooms.append((left, "money"))
        return min(rooms, default=(None, "tokens"))


def _usd(micro: int) -> str:
    return f"{micro / MILLION:.4f} USD"
