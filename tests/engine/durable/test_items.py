"""The port, on both databases: what a driver, a worker and a desk may rely on."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.engine.durable import Database, Failure, Inside, Left, Queue, StepFailed
from holdfast.engine.durable_dbos import desk
from holdfast.engine.durable_engine import DbosEngine
from holdfast.engine.durable_running import home
from holdfast.errors import Blocked, InvalidInput, UnknownId, VerificationFailed
from holdfast.model.canonical import Json

W = "w-test"


class Book:
    """Functions of items, and what they did."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.release = threading.Event()
        self.at_once, self.most = 0, 0
        self._lock = threading.Lock()

    def echo(self, inside: Inside, argument: Json) -> Json:
        self.lines.append(inside.id)
        return [argument, inside.step("note", lambda value: {"noted": value}, argument)]

    def counted(self, inside: Inside, argument: Json) -> Json:
        with self._lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        time.sleep(0.2)  # long enough for another one to begin, on a busy machine too
        with self._lock:
            self.at_once -= 1
            self.lines.append(inside.id)
        return None

    def refused(self, inside: Inside, argument: Json) -> Json:
        raise VerificationFailed("the tests fail", hint="Look at them.")

    def broken(self, inside: Inside, argument: Json) -> Json:
        def explode() -> Json:
            raise ValueError("no such thing")

        try:
            inside.step("explode", explode)
        except StepFailed as error:
            self.lines.append(error.failure.message)
            raise
        return None

    def foreign(self, inside: Inside, argument: Json) -> Json:
        return inside.step("odd", lambda: {"set": {1}})  # type: ignore[dict-item]

    def held(self, inside: Inside, argument: Json) -> Json:
        inside.step("first", self.lines.append, "first")  # type: ignore[arg-type]
        while not self.release.wait(0.02) and not inside.stopping:
            pass
        return inside.step("second", lambda: "second")

    def agent(self, inside: Inside, argument: Json) -> Json:
        """One long step, which looks whether it is still wanted."""

        def work() -> Json:
            self.lines.append("works")
            while not self.release.wait(0.02):
                if inside.stopping:
                    self.lines.append("leaves")
                    raise Left
            return "worked"

        return inside.step("work", work)

    @contextmanager
    def home(self, database: Database, each: int = 4) -> Iterator[DbosEngine]:
        names = ("echo", "counted", "refused", "broken", "foreign", "held", "agent")
        queues = (Queue("work", each=each), Queue(f"landing:{W}", each=1, total=1))
        with home(database, W, {name: getattr(self, name) for name in names}, queues) as engine:
            yield engine


@pytest.fixture
def book() -> Book:
    return Book()


def test_an_item_ends_with_its_value(book: Book, database: Database) -> None:
    """What the function gives back is told, with the token, and survives the process that made it."""
    with book.home(database) as engine:
        engine.start(f"{W}/1", "echo", {"a": [1, "é\udc80\x00"]}, "work")
        (item,) = engine.wait([f"{W}/1"], 20)
    with desk(database) as other:
        assert other.find(f"{W}/1") == item
        assert other.find(f"{W}/2") is None
    assert (item.state, item.token, item.begun, item.worker) == ("done", 1, 1, f"home:{W}")
    assert item.value == [{"a": [1, "é\udc80\x00"]}, {"noted": {"a": [1, "é\udc80\x00"]}}]


def test_the_same_id_is_the_same_item(book: Book, database: Database) -> None:
    """Starting an id again, open or ended, starts nothing."""
    with book.home(database) as engine:
        for argument in (1, 2):
            engine.start(f"{W}/1", "echo", argument, "work")
        engine.wait([f"{W}/1"], 20)
        engine.start(f"{W}/1", "echo", 3, "work")
        time.sleep(0.3)
        (item,) = engine.wait([f"{W}/1"])
    assert item.value == [1, {"noted": 1}]
    assert book.lines == [f"{W}/1"]


def test_an_item_begun_here_is_one_item_too(book: Book, database: Database) -> None:
    """Begun without a queue, twice: done once; interrupted by the end of its process, it goes on in the next."""
    with book.home(database) as engine:
        engine.start_here(f"{W}/1", "echo", 1)
        engine.start_here(f"{W}/1", "echo", 2)
        (item,) = engine.wait([f"{W}/1"], 20)
        assert (item.state, item.value) == ("done", [1, {"noted": 1}])
        engine.start_here(f"{W}/1", "echo", 3)
        engine.start_here(f"{W}/2", "held", None)
        _until(lambda: "first" in book.lines)
    book.release.set()
    with book.home(database) as engine:
        engine.start_here(f"{W}/1", "echo", 4)
        engine.start_here(f"{W}/2", "held", None)
        (item,) = engine.wait([f"{W}/2"], 20)
    assert (item.value, item.begun) == ("second", 2)
    assert book.lines == [f"{W}/1", "first"]


def test_many_are_put_in_line_at_once(book: Book, database: Database) -> None:
    """Each is the item that `start` would have made; one that there is already is not made again, nor is a bad one."""
    with book.home(database) as engine:
        engine.start(f"{W}/0", "echo", 0, "work")
        _all(engine, [f"{W}/0"])
        engine.start_all("echo", {f"{W}/{number}": number + 10 for number in range(5)}, "work")
        _all(engine, [f"{W}/{number}" for number in range(5)])
        values = {item.id: item.value for item in engine.items(f"{W}/")}
        with pytest.raises(InvalidInput):
            engine.start_all("echo", {f"{W}/9": 9, "no id": 9}, "work")
        assert engine.find(f"{W}/9") is None
    assert [values[f"{W}/{number}"][0] for number in range(5)] == [0, 11, 12, 13, 14]  # type: ignore[index]
    assert sorted(book.lines) == [f"{W}/{number}" for number in range(5)]


def test_the_end_of_what_was_begun_here_is_recorded_before_the_process_ends(book: Book, database: Database) -> None:
    """It is told before that; a desk finds it afterwards, and nobody does it again."""
    with book.home(database) as engine:
        engine.start_here(f"{W}/1", "echo", 1)
        (told,) = engine.wait([f"{W}/1"], 20)
    with desk(database) as other:
        found = other.find(f"{W}/1")
    assert found is not None
    assert (found.state, found.value, found.token, found.worker) == (told.state, told.value, told.token, told.worker)
    with book.home(database) as engine:
        engine.start_here(f"{W}/1", "echo", 2)
        (again,) = engine.wait([f"{W}/1"], 20)
    assert (again.value, book.lines) == (told.value, [f"{W}/1"])


def test_a_failure_keeps_code_and_hint(book: Book, database: Database) -> None:
    """An error of ours is told by its code; any other is internal."""
    with book.home(database) as engine:
        for name in ("refused", "broken", "foreign"):
            engine.start(f"{W}/{name}", name, None, "work")
        ended = {}
        while len(ended) < 3:
            ended |= {item.function: item for item in engine.wait([f"{W}/refused", f"{W}/broken", f"{W}/foreign"], 20)}
    assert {item.state for item in ended.values()} == {"failed"}
    assert ended["refused"].failure == Failure("verification_failed", "the tests fail", "Look at them.")
    assert ended["broken"].failure == Failure("internal", "ValueError: no such thing")
    assert book.lines == ["ValueError: no such thing"]
    foreign = ended["foreign"].failure
    assert foreign is not None and foreign.code == "invalid_input" and "only JSON" in foreign.message


def test_at_most_so_many_at_once(book: Book, database: Database) -> None:
    """A queue's limit holds; a landing queue does one after the other."""
    with book.home(database, each=3) as engine:
        for number in range(9):
            engine.start(f"{W}/{number}", "counted", None, "work")
        _all(engine, [f"{W}/{number}" for number in range(9)])
        assert 1 < book.most <= 3
        book.most = 0
        for number in range(4):
            engine.start(f"{W}/l{number}", "counted", None, f"landing:{W}", priority=number + 1)
        _all(engine, [f"{W}/l{number}" for number in range(4)])
    assert book.most == 1
    assert [line for line in book.lines if "/l" in line] == [f"{W}/l{number}" for number in range(4)]


def test_waiting_returns_with_the_first_end(book: Book, database: Database) -> None:
    """Of many items, those that ended are told at once, without waiting for the others."""
    with book.home(database) as engine:
        engine.start(f"{W}/held", "held", None, "work")
        engine.start(f"{W}/quick", "echo", 1, "work")
        assert [item.id for item in engine.wait([f"{W}/held", f"{W}/quick"], 20)] == [f"{W}/quick"]
        began = time.monotonic()
        assert engine.wait([f"{W}/held"], 0.2) == ()
        assert 0.15 < time.monotonic() - began < 5
        book.release.set()
        (held,) = engine.wait([f"{W}/held"], 20)
    assert held.value == "second"


def test_items_are_listed_by_prefix_and_state(book: Book, database: Database) -> None:
    """A prefix is no pattern, and states choose."""
    with book.home(database) as engine:
        for id in ("r_1/a", "rx1/a", "r_1/b"):
            engine.start(id, "echo", None, "work")
        _all(engine, ["r_1/a", "rx1/a", "r_1/b"])
        engine.start("r_1/c", "echo", None, "nobody-listens")
        assert {item.id for item in engine.items("r_1/")} == {"r_1/a", "r_1/b", "r_1/c"}
        assert [item.id for item in engine.items("r_1/", ("queued",))] == ["r_1/c"]
        assert {item.id for item in engine.items("r_1/", ("done",))} == {"r_1/a", "r_1/b"}
        assert len(engine.items(limit=2)) == 2


def test_cancelling_ends_queued_and_running_ones(book: Book, database: Database) -> None:
    """A queued item never begins; a running one ends at its next step; an ended one stays as it is."""
    with book.home(database) as engine:
        engine.start(f"{W}/done", "echo", 1, "work")
        engine.wait([f"{W}/done"], 20)
        engine.start(f"{W}/queued", "echo", 1, "nobody-listens")
        engine.start(f"{W}/running", "held", None, "work")
        _until(lambda: book.lines.count("first") == 1)
        with desk(database) as other:
            other.cancel([f"{W}/done", f"{W}/queued", f"{W}/running"])
        book.release.set()
        states = {item.id: item.state for item in engine.items(f"{W}/")}
    assert states == {f"{W}/done": "done", f"{W}/queued": "cancelled", f"{W}/running": "cancelled"}


def test_a_wait_survives_the_process_and_ends_with_the_signal(book: Book, database: Database) -> None:
    """Nobody needs to live when a signal is sent; twice with one key is once; a second wait does not see the first."""
    with book.home(database) as engine:
        engine.await_signal(f"{W}/approval", 3_000_000, W)
        engine.await_signal(f"{W}/other", 3_000_000, W)
        _until(lambda: {item.state for item in engine.items(f"{W}/")} == {"running"})
    with desk(database) as other:
        assert {item.state for item in other.items(f"{W}/")} == {"running"}
        for answer in ("yes", "no"):
            other.signal(f"{W}/approval", {"said": answer}, key="1")
        with pytest.raises(UnknownId):
            other.signal(f"{W}/nothing", None)
    with book.home(database) as engine:
        (item,) = engine.wait([f"{W}/approval"], 20)
        assert engine.wait([f"{W}/other"]) == ()
    assert item.value == {"said": "yes"}


def test_a_wait_that_is_over_ends_with_nothing(book: Book, database: Database) -> None:
    """Time that runs out is an answer too."""
    with book.home(database) as engine:
        engine.await_signal(f"{W}/approval", 1, W)
        (item,) = engine.wait([f"{W}/approval"], 20)
    assert (item.state, item.value) == ("done", None)


def test_leaving_in_order_is_no_outcome(book: Book, database: Database) -> None:
    """An item that was at work when the process ended goes on at the next start, after its last recorded step."""
    with book.home(database) as engine:
        engine.start(f"{W}/1", "held", None, "work")
        _until(lambda: book.lines == ["first"])
    with desk(database) as other:
        found = other.find(f"{W}/1")
        assert found is not None and found.state == "running"
    book.release.set()
    with book.home(database) as engine:
        (item,) = engine.wait([f"{W}/1"], 20)
    assert (item.value, item.begun, book.lines) == ("second", 2, ["first"])


def test_a_long_step_is_told_that_its_item_was_cancelled(book: Book, database: Database) -> None:
    """Cancelled from elsewhere, a step learns it within seconds, and leaving then changes nothing."""
    with book.home(database) as engine:
        engine.start(f"{W}/1", "agent", None, "work")
        _until(lambda: book.lines == ["works"])
        with desk(database) as other:
            other.cancel([f"{W}/1"])
        _until(lambda: book.lines == ["works", "leaves"])
        (item,) = engine.wait([f"{W}/1"], 20)
        assert engine.stop(10)
    assert item.state == "cancelled"


def test_a_step_that_leaves_is_done_again(book: Book, database: Database) -> None:
    """Leaving a step records nothing: at the next start the whole step is done."""
    with book.home(database) as engine:
        engine.start(f"{W}/1", "agent", None, "work")
        _until(lambda: book.lines == ["works"])
        assert engine.stop(10)
    book.release.set()
    with book.home(database) as engine:
        (item,) = engine.wait([f"{W}/1"], 20)
    assert (item.value, book.lines) == ("worked", ["works", "leaves", "works"])


@pytest.mark.long
def test_garbage_goes_and_the_rest_stays(book: Book, database: Database) -> None:
    """Only what ended, long enough ago, under the prefix, is deleted."""
    with book.home(database) as engine:
        for id in (f"{W}/1", f"{W}/2", "other/1"):
            engine.start(id, "echo", None, "work")
        _all(engine, [f"{W}/1", f"{W}/2", "other/1"])
        engine.start(f"{W}/open", "echo", None, "nobody-listens")
        assert engine.forget(f"{W}/", 1) == 0
        time.sleep(1.1)
        assert engine.forget(f"{W}/", 0) == 2
        assert {item.id for item in engine.items()} == {f"{W}/open", "other/1"}


def test_one_home_for_a_workspace(book: Book, database: Database) -> None:
    """A second engine in this process is refused."""
    with book.home(database), pytest.raises(Blocked, match="already"), book.home(database):
        pass


def test_a_desk_makes_nothing(sqlite: Database) -> None:
    """Looking where no engine ever ran says so and leaves no file behind."""
    import os

    with pytest.raises(Blocked, match="no run was ever started"), desk(sqlite):
        pass
    assert os.listdir(sqlite.state) == []


def test_a_desk_at_an_empty_postgresql_says_so(postgresql: Database) -> None:
    """A database without an engine's tables is told as such."""
    with pytest.raises(Blocked, match="no run was ever started"), desk(postgresql):
        pass


@pytest.mark.parametrize("url", ["mysql://a@b/c", "sqlite:///x", "nonsense", "postgresql://app:hush@127.0.0.1:1/x"])
def test_a_database_that_cannot_be_used_is_refused(url: str, sqlite: Database) -> None:
    """A wrong URL is refused with a reason that shows no password."""
    with pytest.raises((InvalidInput, Blocked)) as caught, desk(sqlite._replace(url=url)):
        pass
    assert "hush" not in f"{caught.value} {sqlite._replace(url=url)}"


@pytest.mark.parametrize("id", ["", " ", "a b", "../x", "x" * 201, "é"])
def test_odd_ids_are_refused(id: str, book: Book, sqlite: Database) -> None:
    """An id is what can stand in logs and file names."""
    with book.home(sqlite) as engine, pytest.raises(InvalidInput):
        engine.start(id, "echo", None, "work")


def _all(engine: DbosEngine, ids: list[str]) -> None:
    left = set(ids)
    deadline = time.monotonic() + 60
    while left:
        assert time.monotonic() < deadline, left
        left -= {item.id for item in engine.wait(left, 5)}


def _until(true: object, seconds: float = 20) -> None:
    assert callable(true)
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
