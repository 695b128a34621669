"""Databases for the durable engine: a fresh SQLite file, or a fresh database in one PostgreSQL for the whole run."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.engine.durable import Database

if TYPE_CHECKING:
    from engine.durable.cluster import Cluster

pytest.importorskip("dbos", reason="the extra `run` is not installed")
_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    pytest.importorskip("psycopg")
    from engine.durable.cluster import Cluster

    found = Cluster()
    yield found
    found.remove()


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The private directory of a workspace, or of a worker."""
    directory = tmp_path / "state"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def sqlite(state: Path) -> Database:
    return Database(str(state))


@pytest.fixture
def postgresql(cluster: Cluster, state: Path) -> Database:
    return Database(str(state), cluster.url(f"d{next(_numbers)}"))


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.long)])
def database(request: pytest.FixtureRequest) -> Database:
    """Both, one after the other."""
    found: Database = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def effects(tmp_path: Path) -> Callable[[], list[str]]:
    """Lines that steps of child processes wrote (see `child.py`)."""
    file = tmp_path / "effects"
    file.touch()
    return lambda: file.read_text().splitlines()
