"""A stock that machines share: bytes by their digest, in the database of the durable engine.

Invariants
  Z1, Z2 of `large_blobs` hold here too: what goes in is hashed on the way, what comes out is hashed on the way.
  Z4  A digest is there only when all of its pieces are: they are written in one transaction.
  Z5  Nothing stands in memory as a whole; a piece is a mebibyte, and only the last one is less. So the rows of a digest
      are the same whoever writes them, and two who bring it at once cannot mix theirs.
  Z6  What nobody brought or asked for in a long time can be forgotten: whoever needs it brings it again. How long that
      is, the database's clock says: those of the machines may be wrong.
  Z7  Tables are made by one process at a time: two that make the same one at once would fail, `IF NOT EXISTS` or not.

Whoever can write to the database can take bytes away, and never change what a digest names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from blake3 import blake3

from holdfast.errors import Tampering, UnknownId
from holdfast.store.large_blobs import checked_digest

if TYPE_CHECKING:
    import sqlalchemy as sa

PIECE = 1 << 20
_DAY_MS = 86_400_000
_TABLE = "holdfast_blobs"
# Milliseconds since 1970 as the database tells them, by its dialect.
NOW_MS = {
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)",
    "postgresql": "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)",
}
# A number that nobody else is likely to lock: "holdfast" in ASCII.
_MAKING = 0x686F6C6466617374
_SCHEMA = (
    f"CREATE TABLE IF NOT EXISTS {_TABLE}(digest TEXT NOT NULL, piece INTEGER NOT NULL, data {{bytes}} NOT NULL, "
    "last BOOLEAN NOT NULL, brought_ms BIGINT NOT NULL, PRIMARY KEY(digest, piece))"
)


def make_tables(pool: sa.Engine, statements: Iterable[str]) -> None:
    """All of them, or none (Z7)."""
    import sqlalchemy as sa

    with pool.begin() as connection:
        if pool.dialect.name == "postgresql":
            connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({_MAKING})"))
        for statement in statements:
            connection.execute(sa.text(statement))


class SharedStock:
    """`pool` is a SQLAlchemy engine."""

    def __init__(self, pool: sa.Engine) -> None:
        self._pool = pool
        self._now = NOW_MS[pool.dialect.name]

    def create(self) -> None:
        kind = "BLOB" if self._pool.dialect.name == "sqlite" else "BYTEA"
        make_tables(self._pool, [_SCHEMA.format(bytes=kind)])

    def has(self, digest: str) -> bool:
        """Whoever asks needs it, so it stays for a while (Z6)."""
        found = self._run(
            f"SELECT {self._now} - brought_ms FROM {_TABLE} WHERE digest=:digest AND last",
            digest=checked_digest(digest),
        )
        if found and found[0][0] > _DAY_MS:
            self._run(f"UPDATE {_TABLE} SET brought_ms={self._now} WHERE digest=:digest", digest=digest)
        return bool(found)

    def pieces(self, digest: str) -> Iterator[bytes]:
        """Z2; UnknownId when it is not here."""
        hasher, number = blake3(), 0
        while True:
            rows = self._run(
                f"SELECT data, last FROM {_TABLE} WHERE digest=:digest AND piece=:piece",
                digest=checked_digest(digest), piece=number,
            )  # fmt: skip
            if not rows:
                raise UnknownId(f"blob {digest[:12]} is not in the shared store")
            data, last = bytes(rows[0][0]), bool(rows[0][1])
            hasher.update(data)
            yield data
            if last:
                break
            number += 1
        if hasher.hexdigest() != digest:
            raise Tampering(f"blob {digest[:12]} of the shared store does not hold what its name says")

    def take(self, digest: str, pieces: Iterable[bytes]) -> None:
        """Z1: other bytes than the digest says are refused, and nothing of them stays."""
        import sqlalchemy as sa

        if self.has(digest):
            return
        hasher = blake3()
        statement = sa.text(
            f"INSERT INTO {_TABLE}(digest, piece, data, last, brought_ms) "
            f"VALUES(:digest, :piece, :data, :last, {self._now}) ON CONFLICT(digest, piece) DO NOTHING"
        )
        with self._pool.begin() as connection:
            for number, (data, last) in enumerate(_marked(_cut(pieces))):
                hasher.update(data)
                row = {"digest": digest, "piece": number, "data": data, "last": last}
                connection.execute(statement, row)
            if hasher.hexdigest() != checked_digest(digest):
                raise Tampering(f"bytes that were brought as {digest[:12]} are others")

    def forget(self, older_than_days: float) -> None:
        """Z6."""
        age = int(older_than_days * _DAY_MS)
        self._run(f"DELETE FROM {_TABLE} WHERE brought_ms < {self._now} - :age", age=age)

    def _run(self, statement: str, **values: object) -> list[tuple[Any, ...]]:
        import sqlalchemy as sa

        with self._pool.begin() as connection:
            found = connection.execute(sa.text(statement), values)
            return [tuple(row) for row in found] if found.returns_rows else []


def _cut(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """All of PIECE but for the last, which may be empty where it is the only one (Z5)."""
    waiting = bytearray()
    for piece in pieces:
        for start in range(0, len(piece), PIECE):
            waiting += piece[start : start + PIECE]
            if len(waiting) > PIECE:
                yield bytes(waiting[:PIECE])
                del waiting[:PIECE]
    yield bytes(waiting)


def _marked(pieces: Iterator[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Each with whether it is the last one."""
    before = next(pieces)
    for piece in pieces:
        yield before, False
        before = piece
    yield before, True
