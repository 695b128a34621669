"""What is text in the shared database, whatever its encoding and that of the environment."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from engine.durable.cluster import Cluster, program
from holdfast.engine.durable import Database, Inside, Queue
from holdfast.engine.durable_dbos import desk, require_reachable
from holdfast.engine.durable_running import home, worker
from holdfast.errors import Unsupported
from holdfast.model.canonical import Json

pytestmark = pytest.mark.long

W = "w-test"


def echo(inside: Inside, argument: Json) -> Json:
    return inside.step("note", lambda: argument)


def _works(database: Database) -> bool:
    with home(database, W, {"echo": echo}, (Queue("work"),)) as engine:
        engine.start(f"{W}/1", "echo", ["größer", "日本"], "work")
        (item,) = engine.wait([f"{W}/1"], 30)
        return item.value == ["größer", "日本"]


def test_a_database_without_an_encoding_is_refused(cluster: Cluster, state: Path) -> None:
    """Everybody who opens it is told so, and what the hint says makes one that can be used."""
    database = Database(str(state), cluster.url("anything", "SQL_ASCII"))
    with pytest.raises(Unsupported, match="anything has the encoding SQL_ASCII") as caught:
        require_reachable(database)
    with pytest.raises(Unsupported), desk(database):
        pass
    with pytest.raises(Unsupported), home(database, W, {"echo": echo}, (Queue("work"),)):
        pass
    with pytest.raises(Unsupported), worker(database, "far", {"echo": echo}, ("work",)):
        pass
    words = shlex.split(caught.value.hint.partition(": ")[2])
    assert words[0] == "createdb" and words[-1] == "anything_utf8"
    subprocess.run([program(words[0]) or words[0], *words[1:]], check=True)
    assert _works(database._replace(url=f"{database.url}_utf8"))


@pytest.mark.parametrize("way", ["environment", "URL", "encoding of the database"])
def test_other_encodings_hold_nobody_up(
    cluster: Cluster, state: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """A client that is told to take bytes for text, and a database in Latin 1, are used like any other."""
    url = cluster.url(f"e{len(way)}", "LATIN1" if way == "encoding of the database" else "")
    if way == "environment":
        monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    assert _works(Database(str(state), f"{url}?client_encoding=SQL_ASCII" if way == "URL" else url))
