"""The patch ledger: legal moves only, durable, and whole again after a crash at any call."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from guarded import in_child
from holdfast.disk.calls import CALLS, Calls
from holdfast.disk.confined import Root
from holdfast.errors import Blocked, HoldfastError, Tampering, UnknownId
from holdfast.model.patch_state import MOST_FAILURES, MOVES, STATES, Standing, State, failed, moved, patch_id
from holdfast.store.database import Records
from holdfast.store.patch_history import FILE, PatchHistory, whole_lines
from holdfast.testing import CHANGES, At, Fail, FaultyCalls, Kill

AT = 1_700_000_000_000_000_000
ROAD: tuple[State, ...] = ("validated", "queued", "applied", "verified", "committed")


def digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def state_directory(path: Path) -> Path:
    (path / "objects").mkdir(parents=True)
    return path


@contextmanager
def history_at(path: Path, calls: Calls = CALLS) -> Iterator[PatchHistory]:
    records = Records(str(path))
    try:
        with Root(str(path), calls) as state:
            yield PatchHistory(state, records)
    finally:
        records.close()


def rows(path: Path) -> list[dict[str, object]]:
    """The file as any other tool would read it."""
    return [json.loads(line) for line in (path / FILE).read_bytes().splitlines()]


# ── the table of states ──


def test_every_state_has_its_row_and_its_way_in() -> None:
    """The table is closed: no move leads out of it, and every state can be reached from the first."""
    assert set(STATES) == set(MOVES)
    reached, waiting = {"created"}, ["created"]
    while waiting:
        for state in MOVES[waiting.pop()]:  # type: ignore[index]
            if state not in reached:
                reached.add(state)
                waiting.append(state)
    assert reached == set(STATES)


@pytest.mark.parametrize("to", STATES)
@pytest.mark.parametrize("state", STATES)
def test_a_move_is_in_the_table_or_refused(state: State, to: State) -> None:
    """For all pairs of states: the move is made when the table has it, and Blocked otherwise."""
    standing = Standing(patch_id(digest("x")), digest("x"), "", state)
    if to in MOVES[state]:
        assert moved(standing, to, AT, by="ann").state == to
    else:
        with pytest.raises(Blocked, match="does not lead to"):
            moved(standing, to, AT, by="ann")


def test_nothing_is_applied_out_of_quarantine() -> None:
    """From quarantine to applied there is no way but through a person, validation and the queue."""
    assert MOVES["quarantined"] == ("created", "dropped")
    assert [state for state in STATES if "applied" in MOVES[state]] == ["queued"]
    standing = Standing(patch_id(digest("x")), digest("x"), "", "quarantined", failures=9, reason="bad")
    with pytest.raises(Blocked, match="only a person"):
        moved(standing, "created", AT, by=" ")
    assert moved(standing, "created", AT, by="ann").failures == 0


def test_failures_add_up_to_quarantine() -> None:
    """One failure too many, or a grave one at once, is a quarantine, with the reason."""
    standing = Standing(patch_id(digest("x")), digest("x"), "", "created")
    for number in range(1, MOST_FAILURES):
        (standing,) = failed(standing, "validation", "wrong", AT)
        assert (standing.state, standing.failures) == ("created", number)
    *_, last = failed(standing, "validation", "wrong again", AT)
    assert (last.state, last.reason) == ("quarantined", f"{MOST_FAILURES} failures, the last: wrong again")
    queued = Standing(patch_id(digest("x")), digest("x"), "", "queued")
    assert [one.state for one in failed(queued, "apply", "reaches .git", AT, grave=True)] == [
        "apply_failed",
        "quarantined",
    ]


# ── on disk ──


def test_a_patch_goes_its_way_and_the_file_tells_it(tmp_path: Path) -> None:
    """Every move is a line with version, number, state and time; bytes and history are kept."""
    with history_at(state_directory(tmp_path / "s")) as history:
        patch = history.create(b"--- a\n", digest("p"), AT, source="claude", paths=("a.py",)).patch
        for number, state in enumerate(ROAD, 1):
            history.move(patch, state, AT + number, execution="e-1" if state == "applied" else "")
        assert [one.state for one in history.history(patch)] == ["created", *ROAD]
        assert history.standing(patch).execution == "e-1"
        assert history.text(patch) == b"--- a\n"
        assert history.texts() == {history.standing(patch).text}
    lines = rows(tmp_path / "s")
    assert [(line["version"], line["seq"], line["state"]) for line in lines] == [
        (1, number, state) for number, state in enumerate(("created", *ROAD), 1)
    ]
    assert os.stat(tmp_path / "s" / FILE).st_mode & 0o777 == 0o600


def test_the_same_patch_sent_again_stands_where_it_stood(tmp_path: Path) -> None:
    """A quarantined patch is not made new by being sent again; it takes a person, by name."""
    with history_at(state_directory(tmp_path / "s")) as history:
        patch = history.create(b"x", digest("p"), AT).patch
        history.fail(patch, "validation", "touches .git", AT, grave=True)
        assert history.create(b"x", digest("p"), AT + 1).state == "quarantined"
        with pytest.raises(Blocked, match="touches"):
            history.require_applicable(patch)
        with pytest.raises(Blocked):
            history.move(patch, "queued", AT)
        with pytest.raises(Blocked, match="by name"):
            history.release(patch, "", AT)
        assert history.release(patch, "ann", AT, reason="looked at it").state == "created"
        with pytest.raises(Blocked, match="not quarantined"):
            history.release(patch, "ann", AT)
        for state in ("validated", "queued"):
            history.move(patch, state, AT)  # type: ignore[arg-type]
        assert history.require_applicable(patch).by == ""
    assert [line["by"] for line in rows(tmp_path / "s") if line["by"]] == ["ann"]


def test_an_unknown_patch_is_unknown(tmp_path: Path) -> None:
    """Looking makes nothing; moving what nobody knows is refused and leaves no line."""
    with history_at(state_directory(tmp_path / "s")) as history:
        with pytest.raises(UnknownId) as caught:
            history.standing("x-nothing")
        assert "holdfast patches" in caught.value.hint
        assert history.standings() == ()
        assert not (tmp_path / "s" / FILE).exists()
        with pytest.raises(UnknownId):
            history.move("x-nothing", "validated", AT)
        assert (tmp_path / "s" / FILE).read_bytes() == b""


@pytest.mark.parametrize(
    "rest", [b'{"version":1,"seq":3', b"\0" * 100, b'{"vers\0\0\0\n{"version":1}\n', b"{", b"\0" * 9_000, b"x" * 9_000]
)
def test_a_torn_end_is_not_seen_and_is_cut_off(tmp_path: Path, rest: bytes) -> None:
    """What a crash left of the last write counts for nothing, and is gone after the next move."""
    path = state_directory(tmp_path / "s")
    with history_at(path) as history:
        patch = history.create(b"x", digest("p"), AT).patch
        history.move(patch, "validated", AT)
        with (path / FILE).open("ab") as file:
            file.write(rest)
        assert history.standing(patch).state == "validated"
        assert history.move(patch, "queued", AT).state == "queued"
    assert [row["state"] for row in rows(path)] == ["created", "validated", "queued"]


def test_the_table_is_made_again_from_the_file(tmp_path: Path) -> None:
    """The database may be lost: the file is the truth."""
    path = state_directory(tmp_path / "s")
    with history_at(path) as history:
        patch = history.create(b"x", digest("p"), AT).patch
        history.move(patch, "validated", AT)
    for part in path.glob("holdfast.db*"):
        part.unlink()
    with history_at(path) as history:
        assert history.standings("validated") == (history.standing(patch),)
        assert history.standings("created") == ()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data.replace(b'"state":"quarantined"', b'"state":"validated"'),
        lambda data: data + b'{"version":1}\n',
        lambda data: data + b"[1]\n",
        lambda data: data + data.splitlines(keepends=True)[0],
        lambda data: (
            data + data.splitlines(keepends=True)[-1].replace(b"quarantined", b"applied").replace(b":2,", b":3,")
        ),
        lambda data: data + data.splitlines(keepends=True)[-1].replace(b'"version":1', b'"version":2'),
    ],
)
def test_lines_that_were_edited_are_tampering(tmp_path: Path, damage: object) -> None:
    """A file that was cut, rewritten, or continued by a move that the states do not have is not believed."""
    path = state_directory(tmp_path / "s")
    with history_at(path) as history:
        patch = history.create(b"x", digest("p"), AT).patch
        history.move(patch, "quarantined", AT, reason="bad")
        (path / FILE).write_bytes(damage((path / FILE).read_bytes()))  # type: ignore[operator]
        with pytest.raises(Tampering):
            history.standing(patch)
        with pytest.raises(Tampering):
            history.move(patch, "dropped", AT)


def test_the_line_that_was_edited_is_named(tmp_path: Path) -> None:
    """Not the last one, which only stands elsewhere now; and the way out is told."""
    path = state_directory(tmp_path / "s")
    with history_at(path) as history:
        patches = [history.create(name.encode(), digest(name), AT, source="mail").patch for name in "abcdef"]
        lines = (path / FILE).read_bytes().splitlines(keepends=True)
        lines[2] = lines[2].replace(b"mail", b"a longer one")
        (path / FILE).write_bytes(b"".join(lines))
        with pytest.raises(Tampering, match="does not hold line 3 as it was written") as caught:
            history.standing(patches[5])
        assert "backup" in caught.value.hint and "holdfast.db" in caught.value.hint
        (path / FILE).write_bytes(b"".join(lines[:2]))
        with pytest.raises(Tampering, match="does not hold line 3 as it was written"):
            history.standing(patches[0])


def test_a_file_that_is_gone_is_tampering(tmp_path: Path) -> None:
    """Removing the file does not release what was quarantined."""
    path = state_directory(tmp_path / "s")
    with history_at(path) as history:
        patch = history.create(b"x", digest("p"), AT).patch
        (path / FILE).unlink()
        with pytest.raises(Tampering, match="is gone"):
            history.standing(patch)


def test_a_link_in_place_of_the_file_is_tampering(tmp_path: Path) -> None:
    """Nothing is written through a symbolic link."""
    path = state_directory(tmp_path / "s")
    (tmp_path / "elsewhere").write_bytes(b"")
    os.symlink(tmp_path / "elsewhere", path / FILE)
    with history_at(path) as history, pytest.raises(Tampering):
        history.create(b"x", digest("p"), AT)
    assert (tmp_path / "elsewhere").read_bytes() == b""


def test_long_reasons_are_bounded(tmp_path: Path) -> None:
    """A line has room for a reason, not for a log."""
    path = state_directory(tmp_path / "s")
    with history_at(path) as history:
        patch = history.create(b"x", digest("p"), AT, source="y" * 10**6, paths=("p",) * 10**5).patch
        history.fail(patch, "validation", "x" * 10**6 + "\ud800", AT)
    assert all(len(line) < 10_000 for line in (path / FILE).read_bytes().splitlines())


def test_a_ledger_of_the_first_version_is_read_for_ever(tmp_path: Path) -> None:
    """The file as version 1 wrote it still tells where its patches stand, and goes on."""
    path = state_directory(tmp_path / "s")
    shutil.copy(Path(__file__).parent / "golden" / "patch_ledger.v1.jsonl", path / FILE)
    with history_at(path) as history:
        found = {
            one.source: (one.state, one.failures, one.reason, one.by, one.execution) for one in history.standings()
        }
        assert found == {
            "claude": ("committed", 0, "", "", "e-7f3k"),
            "mail": ("quarantined", 1, "line 2: .git/config: .git is protected", "", ""),
        }
        (quarantined,) = history.standings("quarantined")
        assert history.release(quarantined.patch, "ann", AT).state == "created"


# ── crashes ──


def _work(path: Path, calls: Calls, done: list[str] | None = None) -> None:
    """A patch that fails, is quarantined, released and goes through: every kind of line there is.

    `done` gets what each call that returned has made true.
    """
    told = done if done is not None else []
    with history_at(path, calls) as history:
        first = history.create(b"first", digest("first"), AT).patch
        told.append("created")
        history.fail(first, "validation", "grave", AT, grave=True)
        told += ("created", "quarantined")
        history.release(first, "ann", AT)
        told.append("created")
        for state in ROAD:
            history.move(first, state, AT)
            told.append(state)


EXPECTED: list[str] = ["created", "created", "quarantined", "created", *ROAD]


@pytest.mark.crash
@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.long)])
def test_killed_at_every_call_the_ledger_goes_on(tmp_path: Path, when: str) -> None:
    """Killed before or after any system call, the moves are a first part of those intended, and work goes on.

    A failure and its quarantine are never told apart: they are one write.
    """
    counting = FaultyCalls()
    _work(state_directory(tmp_path / "count"), counting)
    assert counting.count > 50
    killed = 0
    for number in range(1, counting.count + 1):
        path = state_directory(tmp_path / "s")
        fault = FaultyCalls(Kill(number, when))  # type: ignore[arg-type]
        status = in_child(lambda: _work(path, fault))  # noqa: B023  runs before the next
        # After a call that raised (a folder that was not there yet) nobody is killed.
        assert status == -9 or (when, status) == ("after", 0)
        killed += status == -9
        with history_at(path) as history:
            states: list[str] = []
            if standings := history.standings():
                states = [one.state for one in history.history(standings[0].patch)]
            assert states == EXPECTED[: len(states)]
            assert len(states) != 2  # the failure alone
            other = history.create(b"second", digest("second"), AT).patch
            assert history.move(other, "validated", AT).state == "validated"
            assert history.text(other) == b"second"
        assert len(rows(path)) == len(states) + 2
        shutil.rmtree(path)
    assert killed >= counting.count - 3


def test_a_move_is_synced_before_anybody_relies_on_it(tmp_path: Path) -> None:
    """Bytes of the patch first, then the line, then its sync, then the table; a torn end is cut off durably before."""
    path = state_directory(tmp_path / "s")
    calls = FaultyCalls(counted={"pwrite", "fdatasync", "fsync", "truncate"})
    seen: list[list[str]] = []
    with history_at(path, calls) as history:
        calls.arm(At("patch-ledger.durable", lambda: seen.append([*calls.trace])))
        patch = history.create(b"x", digest("p"), AT).patch
        with (path / FILE).open("ab") as file:
            file.write(b"{")
        calls.arm(At("patch-ledger.durable", lambda: seen.append([*calls.trace])))
        history.move(patch, "validated", AT)
    # The patch, its two folders; the line; the name of the file.
    assert seen[0] == ["fsync", "fsync", "fsync", "pwrite", "fdatasync", "fsync"]
    assert seen[1] == ["truncate", "fdatasync", "pwrite", "fdatasync"]


@pytest.mark.crash
def test_a_call_that_fails_leaves_the_move_made_or_not_made(tmp_path: Path) -> None:
    """With a full disk at any call, what was told as done is there, what raised is not, and work goes on."""
    counting = FaultyCalls(counted=CHANGES)
    _work(state_directory(tmp_path / "count"), counting)
    for number in range(1, counting.count + 1):
        path = state_directory(tmp_path / "s")
        done: list[str] = []
        with pytest.raises(OSError):
            _work(path, FaultyCalls(Fail(number, errno.ENOSPC), counted=CHANGES), done)
        with history_at(path) as history:
            known = [one.patch for one in history.standings()]
            assert [one.state for patch in known for one in history.history(patch)] == done
            assert history.create(b"second", digest("second"), AT).state == "created"
        shutil.rmtree(path)


@pytest.mark.crash
def test_a_write_torn_at_any_byte_is_whole_lines_and_nothing_else(tmp_path: Path) -> None:
    """However much of two lines reached the disk, whole ones count, the rest is cut off, the next move is sound."""
    path = state_directory(tmp_path / "s")
    _work(path, CALLS)
    data = (path / FILE).read_bytes()
    for part in path.glob("holdfast.db*"):
        part.unlink()
    for size in range(0, len(data), 53):
        (path / FILE).write_bytes(data[:size])
        with history_at(path) as history:
            whole = data[:size].count(b"\n")
            assert len(whole_lines(data[:size])) == whole
            patch = history.create(b"second", digest("second"), AT).patch
            assert len(history.history(patch)) == 1
        assert len(rows(path)) == whole + 1
        for part in path.glob("holdfast.db*"):
            part.unlink()


# ── any order of events ──


class Machine(RuleBasedStateMachine):
    """Any moves in any order, with reopening, lost tables and torn ends, against a dictionary."""

    patches = Bundle("patches")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = state_directory(self.folder / "s")
        self.model: dict[str, list[tuple[str, int]]] = {}
        self._open()

    def _open(self) -> None:
        self.records = Records(str(self.path))
        self.root = Root(str(self.path))
        self.history = PatchHistory(self.root, self.records)

    def _close(self) -> None:
        self.root.close()
        self.records.close()

    @rule(target=patches, name=st.sampled_from("abcd"))
    def create(self, name: str) -> str:
        patch = self.history.create(name.encode(), digest(name), AT).patch
        self.model.setdefault(patch, [("created", 0)])
        return patch

    @rule(patch=patches, to=st.sampled_from(STATES), by=st.sampled_from(["", "ann"]))
    def move(self, patch: str, to: State, by: str) -> None:
        state, failures = self.model[patch][-1]
        released = state == "quarantined" and to == "created"
        legal = to in MOVES[state] and (by or not released)  # type: ignore[index]
        try:
            self.history.move(patch, to, AT, by=by)
            assert legal
            self.model[patch].append((to, 0 if released else failures))
        except Blocked:
            assert not legal

    @rule(patch=patches, stage=st.sampled_from(["validation", "apply", "verification"]), grave=st.booleans())
    def fail(self, patch: str, stage: str, grave: bool) -> None:
        state, failures = self.model[patch][-1]
        to = {"validation": "created", "apply": "apply_failed", "verification": "rolled_back"}[stage]
        try:
            self.history.fail(patch, stage, "why", AT, grave=grave)  # type: ignore[arg-type]
        except HoldfastError:
            # From quarantine a failed validation would lead to created: that way is for persons.
            assert to not in MOVES[state] or state == "quarantined"  # type: ignore[index]
            return
        self.model[patch].append((to, failures + 1))
        if grave or failures + 1 >= MOST_FAILURES:
            self.model[patch].append(("quarantined", failures + 1))

    @rule(torn=st.sampled_from([b"", b"{", b'{"version":1,', b"\0\0\0"]), lost=st.booleans())
    def crash(self, torn: bytes, lost: bool) -> None:
        self._close()
        if torn and (self.path / FILE).exists():
            with (self.path / FILE).open("ab") as file:
                file.write(torn)
        if lost:
            for part in self.path.glob("holdfast.db*"):
                part.unlink()
        self._open()

    @invariant()
    def the_history_is_the_model(self) -> None:
        found = {
            one.patch: [(move.state, move.failures) for move in self.history.history(one.patch)]
            for one in self.history.standings()
        }
        assert found == self.model

    def teardown(self) -> None:
        self._close()
        shutil.rmtree(self.folder)


Machine.TestCase.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)


class TestAnyOrder(Machine.TestCase):
    """Whatever happens in whatever order, the file, the table and the dictionary agree."""
