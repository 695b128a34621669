"""The way to a model for one task: a proxy of ours that holds the key, and what the sandbox needs to reach it."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from holdfast.agents.protocol import Agent, ModelAccess
from holdfast.agents.providers import key_of, provider_for, require_price
from holdfast.disk.confined import Root
from holdfast.engine.outage import Away
from holdfast.errors import InvalidInput, Shortage
from holdfast.model.agent import Ending, Result, Usage
from holdfast.model.agent_settings import AgentSettings
from holdfast.model.configuration import Network, Settings
from holdfast.store.blobs import Blobs

if TYPE_CHECKING:
    from holdfast.proxy.refusals import Kind
    from holdfast.proxy.server import ModelProxy
    from holdfast.proxy.tape import Tape

# Any would do: the loopback inside is the sandbox's own.
_PORT = 8731
# The limit's name when money, tokens or requests are used up.
BUDGET = "budget"
# And when an agent says that it may not ask again.
TURNS = "turns"
# Seconds; answers that were hung up on are charged at once, or heard out for a moment.
_SETTLING = 5.0
# A tape is asked in place of the provider, who is told nothing.
_NO_KEY = "none"


class Mark(NamedTuple):
    """How far things had gone at some moment."""

    usage: Usage = Usage()
    failures: Mapping[Kind, int] = {}


class Access(NamedTuple):
    """`network`, `socket` and `port` are for the sandbox's profile."""

    network: Network
    model: ModelAccess | None = None
    socket: str = ""
    port: int = 0
    proxy: ModelProxy | None = None
    provider: str = ""

    def away(self) -> Away | None:
        """Why the provider served nothing when it was asked last; None where it answered, or nobody was asked."""
        silence = self.proxy.silence if self.proxy is not None else None
        return None if silence is None else Away(silence.why, silence.asked_ms)

    def spent(self) -> Usage:
        return self.proxy.usage if self.proxy is not None else Usage()

    def stopped(self) -> str:
        """The word for a limit when the budget is used up, so that the run ends at once."""
        return BUDGET if self.proxy is not None and self.proxy.exhausted else ""

    def short_of(self, result: Result) -> Shortage:
        """Of what the budget had too little, where that ended the agent; a program may also count for itself."""
        if self.proxy is None or result.ending == "finished" or result.limit not in ("", BUDGET, TURNS):
            return ""
        if result.limit == TURNS:
            return "requests"
        if self.proxy.short_of or result.limit == BUDGET:
            return self.proxy.short_of or "price"
        return self.proxy.spent_up

    def mark(self) -> Mark:
        return Mark(self.spent(), self.proxy.failures) if self.proxy is not None else Mark()

    def explained(self, result: Result, since: Mark) -> Result:
        """With what was spent since, and why it ended, when the proxy knows better than the program tells."""
        if self.proxy is not None:
            self.proxy.settle(_SETTLING)  # the program has ended, and with it whoever waited for an answer
        result = result._replace(usage=self.spent().since(since.usage))
        if self.proxy is None:
            return result._replace(ending="limit") if result.limit else result
        if result.limit or self.proxy.exhausted:
            why = self.proxy.exhausted if result.limit in ("", BUDGET) else ""
            return result._replace(ending="limit", limit=result.limit or BUDGET, detail=why or result.detail)
        if result.ending == "killed":
            return result
        ending, why = self._trouble(Counter(self.proxy.failures) - Counter(since.failures), result)
        if ending is None:
            return result
        return result._replace(ending=ending, detail=why, limit=BUDGET if ending == "limit" else "")

    def _trouble(self, failures: Mapping[Kind, int], result: Result) -> tuple[Ending | None, str]:
        assert self.proxy is not None
        # A side question may be another one each time. Nobody recorded what a program does after its last one had no
        # answer.
        answered = result.usage.output_tokens and result.ending != "failed"
        if failures.get("tape") and (self.proxy.refused_by_tape or not answered):
            return "failed", self._said("tape")
        if failures.get("price"):
            return "limit", self._said("price")
        if answered:
            return None, ""  # a model answered; what else went wrong on the way is the program's to tell
        if failures.get("auth"):
            return "unauthorized", "the provider refused the key"
        if failures.get("model_error"):
            return "model_error", "the model answered with errors"
        if failures.get("unreachable"):
            return "model_error", "no model answered"
        return None, ""

    def _said(self, kind: Kind) -> str:
        """The newest refusal of this kind."""
        assert self.proxy is not None
        return next(each.message for each in reversed(self.proxy.refusals) if each.kind == kind)


class Recorded:
    """The digest of what was asked and answered, once the way to the model is closed."""

    digest = ""


@contextmanager
def model_access(
    agent: Agent, own: AgentSettings, settings: Settings, mask: Callable[[str], str], state: Root, record: Recorded
) -> Iterator[Access]:
    """As long as the task lasts. InvalidInput when there is no provider or no key."""
    network: Network = own.network or ("proxy" if agent.api is not None else "none")
    if agent.api is not None and network != "proxy":
        raise InvalidInput(
            f"{agent.name} needs its model, and its network is {network}",
            hint=f'Set network = "proxy" under [agents.{agent.name}]; more hosts are allowed by name with: hosts',
        )
    if network != "proxy":
        yield Access(network)
        return
    from holdfast.proxy.budget import Spending
    from holdfast.proxy.server import ModelProxy
    from holdfast.proxy.upstream import Price, Secret, Upstream
    from holdfast.store.sockets import socket_place
    from holdfast.store.transcripts import Transcript

    provider = provider_for(settings, own.provider, agent.api)
    require_price(provider, own)
    key = Secret(_NO_KEY if own.replay else key_of(provider))
    prices = tuple(Price(*price) for price in provider.prices)
    upstream = Upstream(provider.url, provider.apis, key, prices, own.model)
    token = "hf-" + secrets.token_hex(24)
    budget = Spending(own.micro_usd, own.tokens, own.turns)
    name = f"m-{secrets.token_hex(6)}"
    transcript = Transcript(state, name)
    try:
        with (
            _tape_of(own, name) as tape,
            socket_place(name) as socket,
            ModelProxy(
                socket, upstream, token, budget, hosts=own.hosts, transcript=transcript.write, mask=mask, tape=tape
            ) as proxy,
        ):
            url = f"http://127.0.0.1:{_PORT}"
            yield Access("proxy", ModelAccess(url, token, own.model), socket, _PORT, proxy, provider.name)
    finally:
        record.digest = transcript.keep(Blobs(state))


@contextmanager
def _tape_of(own: AgentSettings, name: str) -> Iterator[Tape | None]:
    """The one that is recorded on, or answers; None where the provider is simply asked."""
    if not own.record and not own.replay:
        yield None
        return
    from holdfast.proxy.tape import Tape
    from holdfast.store.tapes import new_tape, tape_lines

    if own.replay:
        try:
            tape = Tape.replaying(tape_lines(own.replay))
        except InvalidInput as error:
            raise InvalidInput(f"[agents.{own.name}] replay: {error.message}", hint=error.hint) from None
        yield tape
        return
    with new_tape(own.record, name) as lines:
        yield Tape.recording(lines.write)
