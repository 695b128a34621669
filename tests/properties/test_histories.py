"""Random histories: changes, strangers, undo in any order, crashes, recovery, gc; checked after every step.

What must hold (design.md, invariants 3, 6, 7 and the promise of the ledger):
  a change lands exactly as a dictionary predicts, or not at all
  a crash leaves the old tree or the new one, and the record says which
  an undo restores exactly, keeps what others did since, or refuses with nothing changed
  where only texts were edited, and others edited them elsewhere since, it does not refuse: it merges
  the bytes of others are never lost
  tables and ledger agree, the ledger verifies, and the journal is empty when nobody is at work
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from blake3 import blake3
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from guarded import Ground, Tree, guard, in_child, put
from holdfast.engine.history import collect
from holdfast.errors import Blocked, Conflict, HoldfastError, InvalidInput
from holdfast.model.plan import Chmod, Create, Delete, Move, Plan, Step, Symlink
from holdfast.testing import FaultyCalls, Kill
from properties.dictionary_model import Impossible, Node, World, outcome

_PATHS = ("a", "b", "d", "d/a", "d/b", "e/c")
_DAY_NS = 86_400 * 10**9
_TEXT = "".join(f"line {n}\n" for n in range(12)).encode()

_path = st.sampled_from(_PATHS)
_data = st.sampled_from([b"", b"one\n", b"two\n", _TEXT, _TEXT.replace(b"line 5", b"changed"), b"\0binary"])
_step: st.SearchStrategy[Step] = st.one_of(
    st.builds(put, _path, _data, st.sampled_from([None, 0o600, 0o755])),
    st.builds(Delete, _path, st.just(True)),
    st.builds(Move, _path, _path),
    st.builds(Chmod, _path, st.sampled_from([0o644, 0o700])),
    st.builds(Symlink, _path, st.sampled_from(["a", "nowhere"])),
    st.builds(Create, _path, st.booleans(), st.none()),
)
_steps = st.lists(_step, min_size=3, max_size=9).map(tuple)


class Done(NamedTuple):
    """An execution that landed: the trees around it, and what number the history had then."""

    id: str
    plan: Plan | None
    before: Tree
    after: Tree
    number: int
    started_ns: int


class Histories(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        memory = Path("/dev/shm")
        self.place = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=memory if os.access(memory, os.W_OK) else None))
        self.ground = guard(self.place / "workspace", {"a": _TEXT, "d/a": b"da\n", "d/b": _TEXT})
        self.done: list[Done] = []
        self.number = 0
        self.tokens: dict[bytes, int] = {}  # what strangers wrote, and when
        self.taken_back: set[str] = set()  # what was undone at some time, whether or not it was brought back since

    def teardown(self) -> None:
        if hasattr(self, "place"):
            self._tables_can_be_rebuilt()
            self.ground.hf.close()
            shutil.rmtree(self.place)

    # ── we ──

    @rule(steps=_steps)
    def apply(self, steps: tuple[Step, ...]) -> None:
        """A plan lands as predicted."""
        before = self.ground.tree()
        chosen, predicted = _possible(before, steps)
        plan, started = self.ground.plan(*chosen), time.time_ns()
        done = self.ground.hf.execute(self.ground.hf.simulate(plan), approved_by="me")
        after = self.ground.tree()
        assert _world(after) == predicted
        self._note(done.id, plan, before, after, started)

    @rule(data=st.data(), kept=st.booleans())
    def edit_one_line(self, data: st.DataObject, kept: bool) -> None:
        """A line of a text is replaced, by a plan at once or by a simulation that was kept."""
        before = self.ground.tree()
        if not _texts(before):
            return
        self.number += 1
        path, text = _with_line(data, before, b"ours %d\n" % self.number)
        plan, started = self.ground.plan(put(path, text)), time.time_ns()
        simulated = self.ground.hf.simulate(plan)
        if kept:
            simulated = self.ground.hf.keep(simulated, self.ground.hf.verify(simulated))
        done = self.ground.hf.execute(simulated, approved_by="me")
        after = self.ground.tree()
        assert after[path].content == text
        self._note(done.id, plan, before, after, started)

    @precondition(lambda self: any(done.id not in self.taken_back for done in self.done))
    @rule(data=st.data())
    def undo_an_edit_after_a_stranger(self, data: st.DataObject) -> None:
        """Somebody edits a line, and what we changed last is undone: that merges, or the edits met."""
        last = next(done for done in reversed(self.done) if done.id not in self.taken_back)
        self.stranger_edits_one_line(data)
        self._undo(last)

    @rule(steps=_steps)
    def apply_what_is_impossible(self, steps: tuple[Step, ...]) -> None:
        """A plan with an impossible step is blocked, and nothing changes."""
        before = self.ground.tree()
        if not _is_possible(before, steps):
            with pytest.raises(Blocked):
                self.ground.hf.simulate(self.ground.plan(*steps))
            assert self.ground.tree() == before

    @precondition(lambda self: self.done)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        """Any execution may be asked to be undone."""
        self._undo(data.draw(st.sampled_from(self.done), label="execution"))

    def _undo(self, chosen: Done) -> None:
        before, started = self.ground.tree(), time.time_ns()
        newest = self._newest_row() == chosen.id and before == chosen.after
        merged = self._merged(chosen, before)
        try:
            done = self.ground.hf.undo(chosen.id, approved_by="me")
        except (Conflict, InvalidInput, Blocked) as error:
            self._refused(error, before)
            # What nobody touched since can always be taken back, if it changed anything and was not taken back before.
            if newest and chosen.before != chosen.after and self._is_live_and_kept(chosen.id):
                raise
            # And so can an edit of texts that others edited since, elsewhere.
            if merged is not None:
                raise
            return
        after = self.ground.tree()
        if newest:
            assert after == chosen.before
        if merged is not None:
            assert {path: after[path].content for path in merged} == merged
        self.taken_back.add(chosen.id)
        self._strangers_kept(before, after, chosen.number)
        self._note(done.id, None, before, after, started)

    @precondition(lambda self: self.done)
    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        """Back to a moment before some execution."""
        chosen = data.draw(st.sampled_from(self.done), label="moment before")
        before, started = self.ground.tree(), time.time_ns()
        alone = not any(number > chosen.number for number in self.tokens.values())
        try:
            done = self.ground.hf.restore(chosen.started_ns, approved_by="me")
        except (Conflict, InvalidInput, Blocked) as error:
            self._refused(error, before)
            return
        self.taken_back |= {done.id for done in self.done if done.number >= chosen.number}
        after = self.ground.tree()
        if alone and not self._somebody_since(chosen):
            assert _world(after) == _world(chosen.before)
        self._strangers_kept(before, after, chosen.number)
        self._note(done.id, None, before, after, started)

    @rule(forget=st.booleans())
    def gc(self, forget: bool) -> None:
        """Packing and forgetting change nothing in the workspace."""
        before = self.ground.tree()
        now = time.time_ns() + 2 * _DAY_NS
        collect(self.ground.hf.pipeline, keep_ns=0 if forget else 1000 * _DAY_NS, now_ns=now)
        assert self.ground.tree() == before

    @precondition(lambda self: self.done and self.done[-1].plan)
    @rule()
    def ask_again(self) -> None:
        """A plan whose effect stands untouched is known as done; one that somebody touched is not."""
        last = self.done[-1]
        assert last.plan is not None
        if self._newest_row() != last.id or last.before == last.after:
            return
        row = self.ground.hf.already_done(last.plan)
        if self.ground.tree() == last.after and self._is_live_and_kept(last.id):
            assert row is not None and row.id == last.id

    # ── strangers ──

    @rule(path=_path, how=st.sampled_from(["append", "prepend", "replace", "rename over"]))
    def stranger_writes(self, path: str, how: str) -> None:
        """Somebody writes a file of their own, or into one of ours."""
        target = self.ground / path
        if target.is_dir() or target.is_symlink() or not target.parent.is_dir() or target.parent.is_symlink():
            return
        self.number += 1
        token = b"stranger %d\n" % self.number
        old = target.read_bytes() if target.exists() else b""
        new = {"append": old + token, "prepend": token + old}.get(how, token)
        if how == "rename over":
            (self.place / "temporary").write_bytes(new)
            os.rename(self.place / "temporary", target)
        else:
            target.write_bytes(new)
        self.tokens[token] = self.number

    @rule(data=st.data())
    def stranger_edits_one_line(self, data: st.DataObject) -> None:
        """Somebody replaces one line of a text, with whatever stood in it."""
        before = self.ground.tree()
        if _texts(before):
            self.number += 1
            token = b"stranger %d\n" % self.number
            path, text = _with_line(data, before, token)
            (self.ground / path).write_bytes(text)
            self.tokens[token] = self.number

    @rule(path=_path, mode=st.sampled_from([0o640, 0o711]))
    def stranger_chmods(self, path: str, mode: int) -> None:
        """Somebody changes permissions."""
        if (self.ground / path).exists() and not (self.ground / path).is_symlink():
            self.number += 1
            (self.ground / path).chmod(mode)
            self.tokens[b"(a mode, in no file) %d" % self.number] = self.number

    @rule(path=_path)
    def stranger_deletes(self, path: str) -> None:
        """Somebody deletes something, with all their own bytes in it."""
        target = self.ground / path
        if not os.path.lexists(target):
            return
        self.number += 1
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()
        self.tokens[b"(a deletion, in no file) %d" % self.number] = self.number

    # ── crashes ──

    @rule(steps=_steps, at=st.integers(1, 260))
    def crash_in_apply(self, steps: tuple[Step, ...], at: int) -> None:
        """Killed at some system call: after recovery it is the old tree or the new one, and the record says which."""
        before = self.ground.tree()
        chosen, predicted = _possible(before, steps)
        rows, started = len(self.ground.statuses()), time.time_ns()
        plan = self.ground.plan(*chosen)

        def child() -> None:
            calls = FaultyCalls()
            mine = Ground(self.ground.path, calls)
            rehearsal = mine.ready(plan)
            calls.arm(Kill(at))
            rehearsal.execute()

        assert in_child(child) in (0, -9)
        self._recovered(before, _hashed(predicted), rows, plan, started)

    @precondition(lambda self: self.done)
    @rule(data=st.data(), at=st.integers(1, 260), again=st.integers(1, 120))
    def crash_in_undo_and_in_recovery(self, data: st.DataObject, at: int, again: int) -> None:
        """Killed in an undo, and then in the recovery from that: still the old tree or the new one."""
        chosen = data.draw(st.sampled_from(self.done), label="execution")
        before, rows, started = self.ground.tree(), len(self.ground.statuses()), time.time_ns()
        try:
            predicted = _undone(self.ground, chosen.id)
        except HoldfastError:
            return
        self.taken_back.add(chosen.id)

        def child() -> None:
            calls = FaultyCalls()
            mine = Ground(self.ground.path, calls)
            way = mine.hf.preview_undo(chosen.id)
            calls.arm(Kill(at))
            mine.hf.go_back(way, approved_by="me")

        def recovering() -> None:
            calls = FaultyCalls()
            mine = Ground(self.ground.path, calls)
            calls.arm(Kill(again))
            mine.hf.recover()

        assert in_child(child) in (0, -9)
        assert in_child(recovering) in (0, -9)
        self._recovered(before, predicted, rows, None, started)

    def _recovered(self, before: Tree, predicted: World, rows: int, plan: Plan | None, started: int) -> None:
        self.ground.hf.recover()
        after, statuses = self.ground.tree(), self.ground.statuses()[rows:]
        if statuses == ["COMPLETED"]:
            assert _hashed(_world(after)) == predicted
            self._note(self._newest_row(), plan, before, after, started)
        else:
            assert statuses in ([], ["ROLLED_BACK"], ["ABORTED"])
            assert after == before

    # ── what always holds ──

    @invariant()
    def the_books_are_right(self) -> None:
        """Journal empty, tables and ledger in agreement, every line of the ledger as written."""
        if not hasattr(self, "place"):
            return
        assert self.ground.journal() == []
        assert self.ground.statuses() == self.ground.ledger_statuses()
        assert self.ground.hf.audit().ok

    def _refused(self, error: HoldfastError, before: Tree) -> None:
        assert self.ground.tree() == before
        assert not error.changed

    def _note(self, id: str, plan: Plan | None, before: Tree, after: Tree, started: int) -> None:
        self.number += 1
        self.done.append(Done(id, plan, before, after, self.number, started))

    def _merged(self, chosen: Done, now: Tree) -> dict[str, bytes] | None:
        """What an undo must make of each path, where the execution only edited texts and everything is apart."""
        if chosen.id in self.taken_back or not self._is_live_and_kept(chosen.id):
            return None
        old, new = _world(chosen.before), _world(chosen.after)
        found = {}
        for path in (path for path in {*old, *new} if old.get(path) != new.get(path)):
            sides = [world[path] for world in (new, _world(now), old) if path in world and world[path].kind == "file"]
            text = _woven(*(node.content for node in sides)) if len(sides) == 3 else None
            if text is None:
                return None
            found[path] = text
        return found

    def _strangers_kept(self, before: Tree, after: Tree, since: int) -> None:
        """What strangers wrote after the execution that was undone, and what stood, still stands."""
        for token, number in self.tokens.items():
            if number > since and _holds(before, token):
                assert _holds(after, token), f"{token!r} was lost"

    def _somebody_since(self, chosen: Done) -> bool:
        """Did the tree change between two executions after the chosen one, without us?"""
        mine = [done for done in self.done if done.number >= chosen.number]
        gaps = [one.after != two.before for one, two in zip(mine, mine[1:], strict=False)]
        return any(gaps)

    def _newest_row(self) -> str:
        rows = [row for row in self.ground.hf.log(limit=-1) if row.status == "COMPLETED"]
        return rows[0].id if rows else ""

    def _is_live_and_kept(self, id: str) -> bool:
        return any(row.id == id and row.live and row.kept for row in self.ground.hf.log(limit=-1))

    def _tables_can_be_rebuilt(self) -> None:
        """The ledger alone gives the same rows; only what gc has thrown away is not in it."""
        rows = [row._replace(kept=True) for row in self.ground.hf.log(limit=-1)]
        self.ground.hf.close()
        for path in self.ground.state.glob("holdfast.db*"):
            path.unlink()
        self.ground = Ground(self.ground.path)
        self.ground.hf.recover()
        assert [row._replace(kept=True) for row in self.ground.hf.log(limit=-1)] == rows


def _world(tree: Tree) -> World:
    return {
        path: Node(thing.kind, 0o777 if thing.kind == "symlink" else thing.mode, thing.content)
        for path, thing in tree.items()
    }


def _texts(tree: Tree) -> list[str]:
    return sorted(path for path, thing in tree.items() if thing.kind == "file" and b"\n" in thing.content)


def _with_line(data: st.DataObject, tree: Tree, line: bytes) -> tuple[str, bytes]:
    """A text, and what it is with one of its lines replaced."""
    path = data.draw(st.sampled_from(_texts(tree)), label="text")
    lines = tree[path].content.splitlines(keepends=True)
    place = data.draw(st.integers(0, len(lines) - 1), label="line")
    return path, b"".join([*lines[:place], line, *lines[place + 1 :]])


def _woven(new: bytes, now: bytes, old: bytes) -> bytes | None:
    """A merge that shares nothing with ours: between lines that all three have, only one side may differ.

    None where both differ, and where lines moved or are there twice: then nothing is demanded.
    """
    texts = [text.splitlines(keepends=True) for text in (new, now, old)]
    if any(len(set(lines)) != len(lines) for lines in texts) or any(b"\0" in text for text in (new, now, old)):
        return None
    common = set(texts[0]) & set(texts[1]) & set(texts[2])
    anchors = [[line for line in lines if line in common] for lines in texts]
    if anchors[0] != anchors[1] or anchors[0] != anchors[2]:
        return None
    woven: list[bytes] = []
    for line in (*anchors[0], None):
        ends = [len(lines) if line is None else lines.index(line) for lines in texts]
        wrote, stands, before = (lines[:end] for lines, end in zip(texts, ends, strict=True))
        if wrote != stands and wrote != before and stands != before:
            return None
        woven += before if wrote == stands else stands
        woven += [line] if line is not None else []
        texts = [lines[end + 1 :] for lines, end in zip(texts, ends, strict=True)]
    return b"".join(woven)


def _possible(before: Tree, steps: tuple[Step, ...]) -> tuple[tuple[Step, ...], World]:
    """Up to three of the steps that can be done one after the other, and what they lead to."""
    chosen: list[Step] = []
    world = _world(before)
    for step in steps:
        try:
            world = outcome(world, (step,))
        except Impossible:
            continue
        chosen.append(step)
        if len(chosen) == 3:
            break
    return tuple(chosen), world


def _is_possible(before: Tree, steps: tuple[Step, ...]) -> bool:
    try:
        outcome(_world(before), steps)
    except Impossible:
        return False
    return True


def _holds(tree: Tree, token: bytes) -> bool:
    return any(token in thing.content for thing in tree.values())


def _hashed(world: World) -> World:
    """The same world with digests for contents, as previews have them."""
    return {
        path: node._replace(content=blake3(node.content).digest()) if node.kind == "file" else node
        for path, node in world.items()
    }


def _undone(ground: Ground, id: str) -> World:
    """What an undo would make of the tree, by its own preview."""
    world = _hashed(_world(ground.tree()))
    for change in ground.hf.preview_undo(id).changes:
        world.pop(change.path, None)
        post = change.post
        if post is not None:
            content = bytes.fromhex(post.digest) if post.kind == "file" else post.target.encode()
            world[change.path] = Node(post.kind, post.mode, content)
    return world


# No shrinking: a history costs about half a second, and a failing one would only become a little shorter in minutes.
_settings = settings(
    deadline=None,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
TestHistories = Histories.TestCase
TestHistories.settings = settings(_settings, max_examples=25, stateful_step_count=30)


@pytest.mark.long
def test_more_histories() -> None:
    """The same, three times as often."""
    run_state_machine_as_test(Histories, settings=settings(_settings, max_examples=80, stateful_step_count=30))


@pytest.mark.crash_full
def test_long_histories() -> None:
    """The same holds over many more and much longer histories."""
    run_state_machine_as_test(Histories, settings=settings(_settings, max_examples=400, stateful_step_count=50))
