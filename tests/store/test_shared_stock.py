"""The stock that machines share, on both databases: a digest is there as a whole or not at all, whoever brings it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from blake3 import blake3

from engine.durable.cluster import Cluster
from holdfast.engine.durable import Database
from holdfast.engine.durable_database import connect
from holdfast.errors import InvalidInput, Tampering, UnknownId
from holdfast.store.shared_stock import PIECE, SharedStock

DAY_MS = 86_400_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    found = Cluster()
    yield found
    found.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[sa.Engine]:
    url = ""
    if request.param == "postgresql":
        url = request.getfixturevalue("cluster").url(f"stock{os.urandom(4).hex()}")
    found = connect(Database(str(tmp_path), url))
    yield found
    found.dispose()


@pytest.fixture
def stock(pool: sa.Engine) -> SharedStock:
    found = SharedStock(pool)
    found.create()
    found.create()
    return found


def name_of(data: bytes) -> str:
    return blake3(data).hexdigest()


def rows(pool: sa.Engine) -> list[tuple[str, int, int, bool]]:
    with pool.begin() as connection:
        found = connection.execute(
            sa.text("SELECT digest, piece, length(data), last FROM holdfast_blobs ORDER BY digest, piece")
        )
        return [(row[0], row[1], row[2], bool(row[3])) for row in found]


HOSTILE = {
    "nothing": b"",
    "zeros": b"\0" * 1000,
    "every byte": bytes(range(256)) * 17,
    "SQL": b"'; DROP TABLE holdfast_blobs; --",
    "an escape": b"\\x00\\000\\\\",
    "no text": b"\xff\xfe\xed\xa0\x80",
    "one piece": b"x" * PIECE,
    "one piece and a byte": b"x" * (PIECE + 1),
    "two pieces": b"y" * (2 * PIECE),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_any_bytes_come_back_as_they_were(stock: SharedStock, data: bytes) -> None:
    """However they are cut on the way."""
    stock.take(name_of(data), [data[:7], b"", data[7:]])
    assert stock.has(name_of(data)) and b"".join(stock.pieces(name_of(data))) == data


def test_twenty_megabytes_go_through_in_pieces(stock: SharedStock, pool: sa.Engine) -> None:
    """None larger than a piece, on the way in and out, also from a source that gives crumbs."""
    data = os.urandom(1 << 20) * 20
    stock.take(name_of(data), (data[at : at + 70_000] for at in range(0, len(data), 70_000)))
    sizes = [len(piece) for piece in stock.pieces(name_of(data))]
    assert sizes == [PIECE] * 20 and b"".join(stock.pieces(name_of(data))) == data
    assert [row[2] for row in rows(pool)] == sizes


def test_other_bytes_than_the_digest_says_leave_nothing(stock: SharedStock, pool: sa.Engine) -> None:
    """Not even a piece of them."""
    with pytest.raises(Tampering, match="are others"):
        stock.take(name_of(b"right"), [b"wrong" * PIECE])
    assert not stock.has(name_of(b"right")) and rows(pool) == []
    stock.take(name_of(b"right"), [b"right"])
    assert stock.has(name_of(b"right"))


def test_a_source_that_breaks_off_leaves_nothing(stock: SharedStock, pool: sa.Engine) -> None:
    """Whoever was cut off has brought nothing."""

    def breaking() -> Iterator[bytes]:
        yield b"z" * (3 * PIECE)
        raise ConnectionError("cut off")

    with pytest.raises(ConnectionError):
        stock.take(name_of(b"z"), breaking())
    assert rows(pool) == []


@pytest.mark.parametrize("name", ["", "abc", "../../etc/passwd", "A" * 64, "a" * 65, "' OR 1=1 --"])
def test_what_is_no_digest_is_asked_for_by_nobody(stock: SharedStock, name: str) -> None:
    """Reading, asking and bringing alike."""
    for act in (lambda: stock.has(name), lambda: list(stock.pieces(name)), lambda: stock.take(name, [b""])):
        with pytest.raises(InvalidInput):
            act()


def test_what_is_not_here_is_told(stock: SharedStock) -> None:
    """UnknownId, so that whoever needs it can say so."""
    with pytest.raises(UnknownId):
        list(stock.pieces(name_of(b"never brought")))


def test_whoever_edits_the_database_can_take_away_and_not_change(stock: SharedStock, pool: sa.Engine) -> None:
    """Other bytes under the name are Tampering when they are read; a missing piece is missed."""
    data = os.urandom(PIECE + 5)
    stock.take(name_of(data), [data])
    with pool.begin() as connection:
        connection.execute(sa.text("UPDATE holdfast_blobs SET data=:data WHERE piece=1"), {"data": b"other"})
    with pytest.raises(Tampering, match="does not hold"):
        list(stock.pieces(name_of(data)))
    with pool.begin() as connection:
        connection.execute(sa.text("DELETE FROM holdfast_blobs WHERE piece=0"))
    with pytest.raises(UnknownId):
        list(stock.pieces(name_of(data)))


def test_two_who_bring_the_same_at_once_leave_one(stock: SharedStock, pool: sa.Engine) -> None:
    """Cut differently, at the same time, twenty times over: the rows are those of one of them, and read right."""
    errors: list[BaseException] = []

    def bring(data: bytes, step: int, start: threading.Barrier) -> None:
        try:
            start.wait()
            stock.take(name_of(data), (data[at : at + step] for at in range(0, len(data), step)))
        except BaseException as error:  # noqa: BLE001  (told below)
            errors.append(error)

    for _ in range(20):
        data, start = os.urandom(3 * PIECE + 17), threading.Barrier(2)
        threads = [threading.Thread(target=bring, args=(data, step, start)) for step in (PIECE, 300_001)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        own = [row for row in rows(pool) if row[0] == name_of(data)]
        assert [(row[2], row[3]) for row in own] == [(PIECE, False)] * 3 + [(17, True)]
        assert b"".join(stock.pieces(name_of(data))) == data


def test_what_nobody_asked_for_in_a_long_time_is_forgotten(stock: SharedStock, pool: sa.Engine) -> None:
    """Whoever asks for something keeps it; what was brought lately stays too (Z6)."""
    for data in (b"old", b"old and wanted", b"new"):
        stock.take(name_of(data), [data])
    with pool.begin() as connection:
        for data in (b"old", b"old and wanted"):
            connection.execute(
                sa.text("UPDATE holdfast_blobs SET brought_ms=brought_ms-:age WHERE digest=:digest"),
                {"age": 40 * DAY_MS, "digest": name_of(data)},
            )
    assert stock.has(name_of(b"old and wanted"))
    stock.forget(30)
    assert [stock.has(name_of(data)) for data in (b"old", b"old and wanted", b"new")] == [False, True, True]


def test_ages_are_told_by_the_clock_of_the_database(cluster: Cluster, tmp_path: Path) -> None:
    """A machine whose clock is forty days behind it brings something: it is new all the same (Z6)."""
    url = cluster.url(f"stock{os.urandom(4).hex()}")
    pool = connect(Database(str(tmp_path), url))
    with pool.begin() as connection:
        connection.execute(sa.text("CREATE SCHEMA ahead"))
        connection.execute(
            sa.text(
                "CREATE FUNCTION ahead.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "
                "$$ SELECT pg_catalog.clock_timestamp() + interval '40 days' $$"
            )
        )
        name = url.rpartition("/")[2]
        connection.execute(sa.text(f"ALTER DATABASE {name} SET search_path = ahead, pg_catalog, public"))
    pool.dispose()
    stock = SharedStock(pool)
    stock.create()
    stock.take(name_of(b"new"), [b"new"])
    with pool.begin() as connection:
        age = connection.execute(
            sa.text("SELECT extract(epoch FROM clock_timestamp()) * 1000 - brought_ms FROM holdfast_blobs")
        ).scalar_one()
    assert 0 <= age < 60_000
    stock.forget(30)
    assert stock.has(name_of(b"new"))
    pool.dispose()


def test_tables_are_made_by_many_at_once(cluster: Cluster, tmp_path: Path) -> None:
    """On a fresh database eight who begin at the same moment all begin (Z7)."""
    errors: list[BaseException] = []
    for _ in range(3):
        pool = connect(Database(str(tmp_path), cluster.url(f"stock{os.urandom(4).hex()}")))
        start = threading.Barrier(8)

        def make(pool: sa.Engine = pool, start: threading.Barrier = start) -> None:
            try:
                with pool.connect():
                    start.wait()
                SharedStock(pool).create()
            except BaseException as error:  # noqa: BLE001  (told below)
                errors.append(error)

        threads = [threading.Thread(target=make) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        pool.dispose()
        assert errors == []
