"""What the driver sends to whoever works and to whoever lands, and what comes back: the wire of the durable engine.

    Order ──work──▶ Worked | Unworked | Returned       LandOrder ──landing──▶ Landed | Asked | Unlanded

Everything is JSON with a version, because an engine may hand it over after a restart, to another release or machine.
An answer that does not read as one of these, field by field, is refused, never guessed at: it may be a worker's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from holdfast.engine.durable import Item
from holdfast.errors import Shortage, Tampering
from holdfast.gates.secrets import masked
from holdfast.model.agent import Usage
from holdfast.model.canonical import Json
from holdfast.model.fitting import fits, is_digest
from holdfast.model.fix import Category
from holdfast.model.plan import Agent, CommandCheck, Plan, VerifyMode
from holdfast.model.task import TaskRecord
from holdfast.settlement.log_rows import objective_of

VERSION = 1
# What a ledger can hold as a number, on every machine.
_MOST = 1 << 53
_Made = TypeVar("_Made", bound=tuple[Any, ...])


class Order(NamedTuple):
    """One attempt at one task (or at a group of them), for one agent. `token` fences: only the newest one may land."""

    run: str
    task: str
    attempt: int
    token: int
    agent: str
    intent: str
    words: str
    files: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    # Commands that tell whether it is done, besides every check that is found.
    accept: tuple[tuple[str, ...], ...] = ()
    mends: int = 2
    within_ms: int = 1_200_000
    unverified_because: str = ""
    # Work over a mirror of the base, because something may land meanwhile.
    mirrored: bool = False
    # The base as a manifest in the shared stock, for whoever works on another machine.
    base: str = ""
    # Other tasks that the words ask for too: when this lands, each is done by its own evidence, and no others are.
    together: tuple[str, ...] = ()
    # The model by the name its provider knows; empty leaves the agent's own.
    model: str = ""
    verify_mode: VerifyMode = "auto"
    # The agent writes a plan first, in a shadow that is thrown away.
    plan_first: bool = False
    # Tests ran where the run began: a machine that cannot run them lacks something.
    tested: bool = False
    # How often the newest attempts of this agent failed in the same way.
    repeats: int = 0

    @property
    def id(self) -> str:
        return f"{self.run}.{self.task}.{self.attempt}.{self.token}"


class Worked(NamedTuple):
    """Good work that has not landed: where to find it. Nothing in it is believed without its digests."""

    proposal: str
    agent: str
    files: int
    # How often the agent was sent back to mend it, and once more.
    tries: int = 1
    usage: Usage = Usage()
    duration_ms: int = 0
    kind: Literal["worked"] = "worked"


class Unworked(NamedTuple):
    """An attempt that came to nothing. `evidence` is measured, masked and bounded."""

    category: Category
    because: str
    evidence: str
    agent: str = ""
    usage: Usage = Usage()
    duration_ms: int = 0
    # A limit, or policy, or a broken host: another attempt would meet the same.
    final: bool = False
    # What a worker elsewhere would have written into the ledger: delegations, as JSON.
    said: str = ""
    # The agent was not asked at all, since its breaker is open, and may be in so long: that is no attempt.
    pause_ms: int = 0
    # The budget of the run had too little of this for it: that is no attempt, and nothing else begins.
    short_of: Shortage = ""
    # The provider of its model served nothing until the deadline, and why: that is no attempt.
    outage: str = ""
    # How often the agent worked, and how many of the newest rounds in a row finished and did not pass.
    rounds: int = 0
    unpassed: int = 0
    kind: Literal["unworked"] = "unworked"


class Returned(NamedTuple):
    """The machine that took the order could not work on it, for a reason of its own: nobody tried anything."""

    because: str
    kind: Literal["returned"] = "returned"


class LandOrder(NamedTuple):
    """Land this proposal; `turn` tells one try at landing from the next, as after an approval."""

    order: Order
    proposal: str
    turn: int
    by: str
    yes: bool = False
    # A person is asked before it lands, whatever policy says; or if it deletes.
    ask_after: bool = False
    ask_destructive: bool = False
    # What a person was asked about, and the name of who said yes to what policy does not ask.
    simulation: str = ""
    cleared_by: str = ""
    checkpoint: bool = True
    # Tasks of the roadmap to be ticked with it; none where more parts of the task follow.
    tick: tuple[str, ...] = ()
    roadmap: str = ""
    # Why nothing verified what the person was asked about.
    unverified: str = ""

    @property
    def id(self) -> str:
        return f"{self.order.id}.land.{self.turn}"


class Landed(NamedTuple):
    execution: str
    commit: str
    files: int
    # What could not be done beside the landing, in words: a commit, a tick.
    remarks: tuple[str, ...] = ()
    # The other tasks of its order that are done by it.
    together: tuple[str, ...] = ()
    # Tasks of its order that nothing in the change is about: they are still to do.
    open: tuple[str, ...] = ()
    # Why no check says that it works; empty where one does.
    unverified: str = ""
    kind: Literal["landed"] = "landed"


class Asked(NamedTuple):
    """A person must say yes to this simulation."""

    simulation: str
    because: str
    # Policy asks, so that only a signed approval of the simulation counts.
    signed: bool = True
    # As in `Landed`.
    unverified: str = ""
    kind: Literal["asked"] = "asked"


class Unlanded(NamedTuple):
    category: Category
    because: str
    evidence: str
    final: bool = False
    # It had landed, and somebody took it back: this proposal is not landed again, whoever says yes.
    taken_back: bool = False
    kind: Literal["unlanded"] = "unlanded"


Answer: TypeAlias = Worked | Unworked
WorkAnswer: TypeAlias = Worked | Unworked | Returned
LandAnswer: TypeAlias = Landed | Asked | Unlanded
_KINDS: dict[str, type[tuple[Any, ...]]] = {
    "worked": Worked, "unworked": Unworked, "returned": Returned, "landed": Landed, "asked": Asked,
    "unlanded": Unlanded,
}  # fmt: skip


def packed(item: Order | LandOrder | WorkAnswer | LandAnswer) -> dict[str, Json]:
    named = {**item._asdict(), "version": VERSION}
    if isinstance(item, (Worked, Unworked)):
        named["usage"] = item.usage._asdict()
    if isinstance(item, LandOrder):
        named["order"] = packed(item.order)
    fields: dict[str, Json] = json.loads(json.dumps(named))
    return fields


def order_from(document: Mapping[str, Json]) -> Order:
    return _read(Order, document)


def land_order_from(document: Mapping[str, Json]) -> LandOrder:
    inner = document.get("order")
    if not isinstance(inner, dict):
        raise Tampering("landing needs the order that was worked on")
    return _read(LandOrder, {**document, "order": order_from(inner)})


def answer_from(document: Mapping[str, Json]) -> WorkAnswer | LandAnswer:
    kind = _KINDS.get(str(document.get("kind")))
    if kind is None:
        raise Tampering(f"the engine returned a {document.get('kind')!r}, which is no answer")
    found = _read(kind, document)
    if isinstance(found, Worked) and not is_digest(found.proposal):
        raise Tampering("work is kept under no digest")
    return found  # type: ignore[return-value]


def answer_of(item: Item, *, landing: bool) -> WorkAnswer | LandAnswer | str:
    """What an item that ended says, if that answers what was asked; otherwise what is wrong with it, fit to be told."""
    if item.state != "done":
        return masked(item.failure.message if item.failure is not None else f"the engine says {item.state}")
    try:
        answer = answer_from(item.value if isinstance(item.value, dict) else {})
    except Tampering as error:
        return masked(error.message)
    fitting = isinstance(answer, (Landed, Asked, Unlanded) if landing else (Worked, Unworked, Returned))
    return answer if fitting else f"{answer.kind!r} is no answer to what was asked"


def _read(kind: type[_Made], document: Mapping[str, Any]) -> _Made:
    fields = {name: _frozen(value) for name, value in document.items() if name != "version"}
    if document.get("version") != VERSION:
        raise Tampering(f"an order of version {document.get('version')!r}; this Holdfast reads {VERSION}")
    try:
        if isinstance(fields.get("usage"), dict):
            fields["usage"] = Usage(**fields["usage"])
        made = kind(**fields)
    except TypeError as error:
        raise Tampering(f"that is no {kind.__name__}: {error}") from error
    if not fits(made, kind) or not all(0 <= number <= _MOST for number in _numbers(made)):
        raise Tampering(f"that is no {kind.__name__}: a value of it is none of ours")
    return made


def _numbers(value: Any) -> Iterator[int]:
    """All the way down. None of ours is below zero: nobody gives a budget back."""
    if isinstance(value, tuple):
        for item in value:
            yield from _numbers(item)
    elif type(value) is int:
        yield value


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def order_id(record: TaskRecord) -> str:
    return f"{record.run}.{record.task}.{record.attempt}.{record.token}"


def item_id(record: TaskRecord) -> str:
    """Of what is under way for it, which is one thing at most."""
    return f"{order_id(record)}.land.{record.turn}" if record.landing else order_id(record)


def plan_of(order: Order) -> Plan:
    """The plan that an order is; the same order is the same plan, digest for digest, on every machine."""
    step = Agent(order.agent, order.words, order.files, order.expected, order.mends, order.within_ms)
    return Plan(
        order.intent,
        (step,),
        objective=objective_of(order.task, order.attempt, order.token, order.run),
        verify=tuple(CommandCheck(argv) for argv in order.accept),
        unverified_because=order.unverified_because,
        verify_mode=order.verify_mode,
    )
