"""What is known of each agent's adapter: the state of its breaker, and how its work went before.

One row a name. What a change means is for the caller (`engine.breaker`); this room keeps it whole.

Invariants
  R1  A change reads the row and writes it in one transaction that nobody else can enter: of two processes that
      see the same row, one sees it first.
  R2  A change that raises leaves the row as it was.
  R3  A row that cannot be believed (unknown state, negative count) is tampering, never a closed breaker.

The rows are written without waiting for the disk: a killed process loses nothing, a power cut may lose the last ones.
They are no projection of the ledger. Losing them costs history, and nothing that landed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeVar

from holdfast.errors import Tampering
from holdfast.model.path import printable
from holdfast.store.database import Tables, dependable

BreakerState = Literal["CLOSED", "OPEN", "HALF_OPEN"]
BREAKER_STATES: tuple[BreakerState, ...] = ("CLOSED", "OPEN", "HALF_OPEN")

_SCHEMA = """
CREATE TABLE IF NOT EXISTS adapters(
  name TEXT PRIMARY KEY, state TEXT NOT NULL, failures INTEGER NOT NULL, openings INTEGER NOT NULL,
  opened_ns INTEGER NOT NULL, unwell_ns INTEGER NOT NULL, probe TEXT NOT NULL,
  attempts INTEGER NOT NULL, successes INTEGER NOT NULL, recent_attempts REAL NOT NULL, recent_successes REAL NOT NULL,
  micro_usd INTEGER NOT NULL, priced INTEGER NOT NULL, duration_ms INTEGER NOT NULL, at_ns INTEGER NOT NULL
) WITHOUT ROWID
"""
_Told = TypeVar("_Told")


class Adapter(NamedTuple):
    """One row.

    `failures` are those in a row; `openings` how often the breaker opened since it was last closed.
    `opened_ns` is when it opened last, `unwell_ns` since when it is not closed; 0 while it is.
    `probe` names the one attempt that a half-open breaker lets through, and the process that makes it.
    `recent_*` count like `attempts` and `successes`, but fade; they are true at `at_ns`, which is the last change.
    `micro_usd` is what the `priced` attempts cost together.
    """

    name: str
    state: BreakerState = "CLOSED"
    failures: int = 0
    openings: int = 0
    opened_ns: int = 0
    unwell_ns: int = 0
    probe: str = ""
    attempts: int = 0
    successes: int = 0
    recent_attempts: float = 0.0
    recent_successes: float = 0.0
    micro_usd: int = 0
    priced: int = 0
    duration_ms: int = 0
    at_ns: int = 0


class Adapters(Tables):
    """The table, on the connection of the records."""

    @dependable
    def all(self) -> tuple[Adapter, ...]:
        """Every adapter that was ever used, by name."""
        if not self._there():
            return ()
        return tuple(_believed(row) for row in self._db.execute(f"{_SELECT} ORDER BY name"))

    @dependable
    def get(self, name: str) -> Adapter:
        """What is known of it; a fresh one for a name that was never used."""
        return self._row(name) if self._there() else Adapter(name)

    @dependable
    def change(self, name: str, change: Callable[[Adapter], tuple[Adapter, _Told]]) -> _Told:
        """Replace the row by what `change` makes of it, and return what `change` tells (R1, R2)."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            self._db.execute(_SCHEMA)
            after, told = change(self._row(name))
            assert after.name == name
            self._db.execute(_REPLACE, after)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # where there is no room, SQLite may have rolled it back itself
                self._db.execute("ROLLBACK")
            raise
        return told

    def _row(self, name: str) -> Adapter:
        found = self._db.execute(f"{_SELECT} WHERE name=?", (name,)).fetchone()
        return Adapter(name) if found is None else _believed(found)

    def _there(self) -> bool:
        """A look must not make the table: it may be a look at a disk that is full or read-only."""
        found = self._db.execute("SELECT 1 FROM sqlite_master WHERE type='table' AND name='adapters'").fetchone()
        return found is not None


_SELECT = f"SELECT {','.join(Adapter._fields)} FROM adapters"
_REPLACE = f"INSERT OR REPLACE INTO adapters VALUES({','.join('?' * len(Adapter._fields))})"
_TEXTS = frozenset({"name", "state", "probe"})
_FADING = frozenset({"recent_attempts", "recent_successes"})


def _believed(values: tuple[object, ...]) -> Adapter:
    """The row, if it can be one of ours (R3)."""
    row = Adapter(*values)  # type: ignore[arg-type]
    for field, value in zip(Adapter._fields, values, strict=True):
        kind = str if field in _TEXTS else float if field in _FADING else int
        if not isinstance(value, kind) or (not isinstance(value, str) and not 0 <= value < 2**63):
            raise _strange(row, field)
    if row.state not in BREAKER_STATES:
        raise _strange(row, "state")
    if row.successes > row.attempts or row.priced > row.attempts:
        raise _strange(row, "attempts")
    return row


def _strange(row: Adapter, field: str) -> Tampering:
    return Tampering(
        f".holdfast/holdfast.db: the {field} of the agent {printable(str(row.name))} cannot be true",
        hint="The database can be rebuilt: move it away and run 'holdfast recover'. Nothing else was changed.",
    )
