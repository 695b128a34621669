"""The durable port: work that outlives the process that does it.

    home process ──start(id, function, argument)──▶ queue ──▶ home, or a worker elsewhere ──▶ ended: value or failure
        ▲                                                        │ step, step, step: each done once it is recorded
        └────────── wait(ids): whatever has ended ◀──────────────┘ killed at any point: goes on after the last of them

Three ways in. The **home** of a workspace starts items, runs them, lands. A **worker** runs what stands in the queues
it listens to. A **desk** (`status`, `stop`, `approve`) lists, cancels and signals, and never runs anything.

Invariants
  D1  An item is its id: starting one that there is already starts nothing, whatever its argument.
  D2  A step that was recorded is never done again; one that was not may be. So every step must bear to be done twice.
  D3  An item that was taken from a lost worker has a new token. Whatever was done under an older one is "stale": it is
      never told as "done", and must never land.
  D4  What goes in and out is JSON, and the same on the first run as on a replay. Nothing else is stored, nothing is
      unpickled.
  D5  Nobody waits inside an item: a wait is an item of its own, on a queue without a limit (`await_signal`). It holds
      no slot and no thread, and survives restarts for weeks.
  D6  Stopping is no outcome: an item whose process ends, in order or not, is unfinished and goes on at the next start.
  D7  Deadlines and bounded attempts are not here: they are in the task records, which survive a hand-over.
      The engine never gives an item up because it was begun too often.

Deliberately absent: retries (the driver decides), rate limits (the budget of the proxy counts), pickles, a server.
`durable_dbos` is the one implementation. Another engine is put here by writing these three protocols again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple, Protocol, TypeAlias

from holdfast.model.canonical import Json

# Raised when what is stored by one release cannot be continued by the next: a function is renamed, takes another
# argument, or has its steps in another order. `Engine.outdated` then names what older releases left unfinished; the
# driver cancels it and starts the attempt again under a new id. Everything else keeps the number, and golden histories
# (tests/engine/durable/golden) prove that it may.
ENGINE_VERSION = "holdfast-1"

State = Literal["queued", "running", "done", "failed", "cancelled", "stale"]
OPEN: tuple[State, ...] = ("queued", "running")
ENDED: tuple[State, ...] = ("done", "failed", "cancelled", "stale")

# Ids become parts of addresses, logs and file names.
ITEM_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+=-]{0,199}")


class Database(NamedTuple):
    """Where the engine keeps what it must not forget.

    `state` is a private directory of this machine: locks, and `engine.db` when there is no `url` of a PostgreSQL.
    """

    state: str
    url: str = ""

    def __repr__(self) -> str:
        """Without the URL, which may hold a password."""
        return f"Database({self.state!r}, {'PostgreSQL' if self.url else 'SQLite'})"


class Queue(NamedTuple):
    """Items stand in line here. `each`: how many at once in one process; `total`: in all processes. None: no limit."""

    name: str
    each: int | None = None
    total: int | None = None


class Lease(NamedTuple):
    """A worker that was silent for `seconds` is lost; it says that it lives every `beat` seconds."""

    seconds: float = 30.0
    beat: float = 5.0


class Failure(NamedTuple):
    """Why an item or a step failed: the code of a HoldfastError, or "internal"."""

    code: str
    message: str
    hint: str = ""


class Item(NamedTuple):
    """What is known of a piece of work. `value` is there when done, `failure` when failed."""

    id: str
    function: str
    state: State
    queue: str = ""
    # Who runs it, or did: the home, or the name of a worker.
    worker: str = ""
    token: int = 1
    # How often it was begun; more than once after a kill.
    begun: int = 0
    value: Json = None
    failure: Failure | None = None
    made_ms: int = 0
    ended_ms: int = 0
    version: str = ENGINE_VERSION

    @property
    def over(self) -> bool:
        return self.state in ENDED


class StepFailed(Exception):
    """A step raised. The same on the first run and on a replay, which has only the record."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class Left(BaseException):
    """This run of an item ends here, and the item does not (D6): raised by `step` when the process stops.

    A long step that sees `stopping` raises it too: then nothing is recorded, and the step is done again. No Exception,
    so that nobody takes it for a failure.
    """


class Inside(Protocol):
    """What a function sees of the engine while it carries out an item."""

    @property
    def id(self) -> str: ...
    @property
    def token(self) -> int:
        """Under which this run of the item works; it goes with everything that leaves it (D3)."""

    @property
    def stopping(self) -> bool:
        """The process wants to end, the item was cancelled, or this worker was given up: a long step raises Left."""

    def step(self, name: str, function: Callable[..., Json], *arguments: object) -> Json:
        """Do it now, or tell what it gave when it was done before this process began (D2). Raises StepFailed."""


Function: TypeAlias = Callable[[Inside, Json], Json]
Registry: TypeAlias = Mapping[str, Function]


class Desk(Protocol):
    """Everything that needs no running engine."""

    def start(self, id: str, function: str, argument: Json, queue: str, *, priority: int = 0) -> None:
        """Put an item in line: smaller priorities first, then older ones. The same id twice is the same item (D1).

        Give priorities where the order matters: SQLite tells age in whole seconds.
        """

    def start_all(self, function: str, arguments: Mapping[str, Json], queue: str) -> None:
        """Put items in line, by their ids, with one commit for all of them: none of them, or each as with `start`."""

    def await_signal(self, id: str, within_s: float, home: str) -> None:
        """An item that ends with the first thing signalled to it, or with null when the time is over (D5).

        `home` is the id of the workspace that waits.
        """

    def signal(self, id: str, message: Json, *, key: str = "") -> None:
        """Tell a waiting item something; twice with the same key is once. UnknownId when there is no such item."""

    def items(self, prefix: str = "", states: Collection[State] = (), *, limit: int = 0) -> tuple[Item, ...]:
        """What there is, oldest first; without values of what is still open."""

    def find(self, id: str) -> Item | None: ...
    def wait(self, ids: Collection[str], within_s: float = 0.0) -> tuple[Item, ...]:
        """Some of `ids` that have ended, at least one as soon as there is one; nothing when the time is over.

        Without time it is a look at all of them. Blocked where the database refuses for long what an end needs.
        """

    def cancel(self, ids: Collection[str]) -> None:
        """They end as cancelled, at once; a running one is told (`Inside.stopping`). Ended ones stay as they are."""

    def states(self, ids: Collection[str]) -> dict[str, State]:
        """How those of them stand that there are. One that was started and is not among them was lost: a database that
        takes over from another may lack the newest rows."""

    def is_newest(self, id: str, token: int) -> bool:
        """Whether what was done under this token still counts (D3)."""

    def forget(self, prefix: str, older_than_days: float) -> int:
        """Delete what ended so long ago; how many. Its ids can then be started anew: only the ledger knows better."""

    def close(self) -> None: ...


class Engine(Desk, Protocol):
    """A desk that also runs items: the home, or a worker."""

    @property
    def executor(self) -> str: ...
    @property
    def lost(self) -> bool:
        """This worker was given up. It begins nothing more, what it still does is refused, and it should end."""

    def start_here(self, id: str, function: str, argument: Json) -> None:
        """Begin it in this process at once, without standing in line; the same id twice is the same item (D1).

        Killed, it goes on where this process is started again. For the one process that starts it, and nobody else.
        `wait` may tell its end a moment before it is recorded; killed in between, it is done once more (D2).
        """

    def start_again_here(self, id: str, function: str, argument: Json) -> None:
        """As `start_here`, for one that was lost; one that runs in this process is not begun twice."""

    def make_queues(self) -> None:
        """Make the queues of this home once more, where rows were lost."""

    def rest(self, seconds: float) -> bool:
        """Wait so long, without the database, for what was begun by `start_here`; whether none of it is under way."""

    def outdated(self, prefix: str) -> tuple[Item, ...]:
        """Open items of other releases of the engine: nobody will ever run them here."""

    def take_from_the_lost(self, prefix: str) -> tuple[Item, ...]:
        """Put items of workers whose lease is over back in line, under new tokens; those that were moved.

        To be called again and again by the home: a worker is lost when it was found silent twice.
        """

    def remarks(self) -> tuple[str, ...]:
        """What the engine complained about, newest last; bounded. Failures of items are in the items."""

    def stop(self, grace_s: float) -> bool:
        """Begin nothing more, and wait so long for what runs; whether all of it came to rest (D6)."""
