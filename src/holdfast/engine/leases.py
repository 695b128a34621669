"""Leases: which workers live, who is lost, and whose work still counts.

    worker: enlist ──beat, beat, beat──▶ …silence…            (frozen, cut off, gone)
    home:   look ── over? ──a beat later, look again── still over? ──▶ given up: it can never beat again
            its open items: new token each ──▶ back in line ──▶ done again by somebody else

Invariants
  L1  Time is the database's: two machines need not agree about it.
  L2  Being given up is for good, for this life of the worker: the row is compared and set in one statement, and a beat
      of a life that was given up changes nothing and tells the worker so. It may enlist again, as a new life.
  L3  Two lives under one name: the second is refused while the first has its lease, unless both are on this machine,
      where the kernel's lock (see `durable_dbos`) already says that the first is dead.
  L4  A token only grows. An item nobody was given up with has token 1 and no row: the usual road costs no write.
  L5  A new token is durable before the item is put back in line. Killed in between, the old worker's result is stale.
  L6  A database that was away makes everybody look silent. So only a second look gives anybody up, a third of its lease
      later: a lease lasts for three beats at least, so that who lives has beaten meanwhile.
  L7  A name that nobody knows was given up by nobody: a database that took over from another may lack the row. Who
      lives enlists again, as the same life.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.engine.durable import Lease
from holdfast.engine.durable_database import patiently
from holdfast.errors import Locked
from holdfast.store.shared_stock import NOW_MS, make_tables

if TYPE_CHECKING:
    import sqlalchemy as sa

_CHUNK = 500
_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS {}workers(
         name TEXT PRIMARY KEY, life TEXT NOT NULL, host TEXT NOT NULL, beat_ms BIGINT NOT NULL,
         lease_ms BIGINT NOT NULL, given_up INTEGER NOT NULL DEFAULT 0)""",
    "CREATE TABLE IF NOT EXISTS {}tokens(item TEXT PRIMARY KEY, token BIGINT NOT NULL)",
)


class WorkerRow(NamedTuple):
    """A worker as the database knows it. `silent_ms`: since its last beat, by the database's clock."""

    name: str
    life: str
    host: str
    silent_ms: int
    lease_ms: int
    given_up: bool

    @property
    def over(self) -> bool:
        return self.silent_ms > self.lease_ms


class Leases:
    """The two tables. Every call waits for a database that is away, as the engine itself does."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine
        postgresql = engine.dialect.name == "postgresql"
        self._prefix = "holdfast." if postgresql else "holdfast_"
        self._now = NOW_MS[engine.dialect.name]
        # First time that a worker's lease was seen to be over, by name and life (L6).
        self._suspects: dict[tuple[str, str], float] = {}

    def create(self) -> None:
        """Make the tables; whoever launches does, under the lock around launching, which is one of this machine."""
        schema = ["CREATE SCHEMA IF NOT EXISTS holdfast"] if self._engine.dialect.name == "postgresql" else []
        statements = [*schema, *(statement.format(self._prefix) for statement in _SCHEMA)]
        patiently(lambda: make_tables(self._engine, statements))

    # ── a worker's side ──

    def enlist(self, name: str, life: str, host: str, lease: Lease) -> None:
        """Begin a life under this name, or Locked (L3)."""
        done = self._run(
            f"""INSERT INTO {self._prefix}workers AS w (name, life, host, beat_ms, lease_ms, given_up)
                VALUES (:name, :life, :host, {self._now}, :lease, 0)
                ON CONFLICT (name) DO UPDATE SET life = excluded.life, host = excluded.host,
                  beat_ms = excluded.beat_ms, lease_ms = excluded.lease_ms, given_up = 0
                WHERE w.host = excluded.host OR w.given_up = 1 OR w.beat_ms + w.lease_ms < excluded.beat_ms""",
            name=name, life=life, host=host, lease=int(lease.seconds * 1000),
        )  # fmt: skip
        if done != 1:
            raise Locked(
                f"a worker named {name} is at work on another machine",
                hint="Give this one a name of its own, or wait until the other's lease is over.",
            )

    def beat(self, name: str, life: str) -> bool:
        """Say that this life goes on; False when it was given up (L2), or is not known (L7)."""
        statement = f"""UPDATE {self._prefix}workers SET beat_ms = {self._now}
                        WHERE name = :name AND life = :life AND given_up = 0"""
        return self._run(statement, name=name, life=life) == 1

    def knows(self, name: str) -> bool:
        return bool(self._rows(f"SELECT 1 FROM {self._prefix}workers WHERE name = :name", name=name))

    def retire(self, name: str, life: str) -> None:
        """End in order: what it left unfinished can be taken at once, and need not wait for its return."""
        statement = f"UPDATE {self._prefix}workers SET given_up = 1 WHERE name = :name AND life = :life"
        self._run(statement, name=name, life=life)

    # ── the home's side ──

    def workers(self) -> tuple[WorkerRow, ...]:
        rows = self._rows(
            f"""SELECT name, life, host, {self._now} - beat_ms, lease_ms, given_up
                FROM {self._prefix}workers ORDER BY name"""
        )
        return tuple(WorkerRow(name, life, host, ms, lease, bool(gone)) for name, life, host, ms, lease, gone in rows)

    def give_up_the_silent(self) -> tuple[str, ...]:
        """Names of all workers that are given up, those of this look included (L6)."""
        now, found = time.monotonic(), self.workers()
        over = {(row.name, row.life): row.lease_ms / 3_000 for row in found if row.over and not row.given_up}
        self._suspects = {who: self._suspects.get(who, now) for who in over}
        gone = {row.name for row in found if row.given_up}
        for (name, life), since in self._suspects.items():
            if now - since >= over[name, life] and self._give_up(name, life):
                gone.add(name)
        return tuple(sorted(gone))

    def _give_up(self, name: str, life: str) -> bool:
        statement = f"""UPDATE {self._prefix}workers SET given_up = 1
                        WHERE name = :name AND life = :life AND beat_ms + lease_ms < {self._now}"""
        return self._run(statement, name=name, life=life) == 1

    # ── tokens ──

    def renew(self, items: Collection[str]) -> None:
        """A new token for each of them, durably: what was done under the old ones is stale from here on (L4, L5)."""
        statement = f"""INSERT INTO {self._prefix}tokens AS t (item, token) VALUES (:item, 2)
                        ON CONFLICT (item) DO UPDATE SET token = t.token + 1"""
        for item in items:
            self._run(statement, item=item)

    def tokens(self, items: Collection[str]) -> dict[str, int]:
        """The newest token of those that have another than 1."""
        named, found = sorted(set(items)), {}
        for first in range(0, len(named), _CHUNK):
            some = named[first : first + _CHUNK]
            marks = ", ".join(f":i{n}" for n in range(len(some)))
            rows = self._rows(
                f"SELECT item, token FROM {self._prefix}tokens WHERE item IN ({marks})",
                **{f"i{n}": item for n, item in enumerate(some)},
            )
            found.update({str(item): int(token) for item, token in rows})
        return found

    def is_newest(self, item: str, token: int) -> bool:
        return self.tokens([item]).get(item, 1) == token

    def forget(self, items: Collection[str]) -> None:
        for item in items:
            self._run(f"DELETE FROM {self._prefix}tokens WHERE item = :item", item=item)

    # ── the database ──

    def _run(self, statement: str, **values: str | int) -> int:
        """How many rows it changed."""
        from sqlalchemy import text

        def once() -> int:
            with self._engine.begin() as connection:
                return connection.execute(text(statement), values).rowcount

        return patiently(once)

    def _rows(self, statement: str, **values: str | int) -> list[tuple[Any, ...]]:
        from sqlalchemy import text

        def once() -> list[tuple[Any, ...]]:
            with self._engine.connect() as connection:
                return [tuple(row) for row in connection.execute(text(statement), values)]

        return patiently(once)
