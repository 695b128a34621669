"""Work that was done on an earlier tree lands on the tree as it is now: beside what others did, or not at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from delegated import project
from guarded import ME, Ground, contents, guard, put, tree_of
from holdfast.engine.proposal import (
    Proposal,
    name_of,
    packed,
    propose,
    read_proposal,
    require_contents,
    unpacked,
)
from holdfast.engine.rebasing import AlreadyThere, Collided, Outcome, Rebased, rebased
from holdfast.errors import Blocked, Conflict, HoldfastError, InvalidInput, Tampering, UnknownId
from holdfast.model.plan import Agent, Chmod, Create, Delete, Move, Plan, Read, Step, Symlink
from holdfast.store.large_blobs import LargeBlobs, carry
from holdfast.testing import ScriptedAgent
from holdfast.testing.script import EditFile, WriteFile
from holdfast.workspace.laying import lay
from holdfast.workspace.tree import snapshot

TEXT = b"".join(b"line %d\n" % n for n in range(12))
FILES = {"a.txt": TEXT, "b.bin": b"\0\1\2", "d/one": b"1\n", "d/two": b"2\n", "e/only": b"only\n"}


def edited(*lines: int, word: bytes = b"changed") -> bytes:
    """The text with some of its lines changed."""
    rows = TEXT.splitlines(keepends=True)
    for line in lines:
        rows[line] = b"%s %d\n" % (word, line)
    return b"".join(rows)


class Pair(NamedTuple):
    """Home, and a place with the same files where the work is done."""

    home: Ground
    worker: Ground

    def proposed(self, *steps: Step) -> Proposal:
        """The steps tried at the worker's, as home receives them."""
        plan = Plan("a task", steps)
        return self.received(propose(self.worker.hf.site, self.worker.hf.simulate(plan)))

    def received(self, proposal: Proposal) -> Proposal:
        document = packed(proposal)
        here = LargeBlobs(self.home.hf.site.state)
        carry([name_of(document), *proposal.contents], LargeBlobs(self.worker.hf.site.state), here)
        return read_proposal(here, name_of(document), proposal.plan)

    def rebased(self, *steps: Step) -> Outcome:
        return rebased(self.home.hf.pipeline, self.proposed(*steps))


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    found = Pair(guard(tmp_path / "home", FILES), guard(tmp_path / "worker", FILES))
    yield found
    for ground in found:
        ground.hf.close()


def land(ground: Ground, outcome: Outcome) -> None:
    """By the same road as everything: checks, gates, transaction."""
    assert isinstance(outcome, Rebased), outcome
    simulated = outcome.simulated
    done = ground.hf.execute(simulated, approved_by=ME, consent=simulated.plan.id)
    assert done.status == "COMPLETED"
    assert snapshot(str(ground.path), None).digest == simulated.report.predicted_tree


def whys(outcome: Outcome) -> dict[str, str]:
    assert isinstance(outcome, Collided), outcome
    return {collision.path: collision.why for collision in outcome.collisions}


# ── what fits ──


def test_a_path_that_nobody_touched_lands_as_proposed(pair: Pair) -> None:
    """On an unmoved workspace the rebased change set is the proposed one, and so are its digests."""
    proposal = pair.proposed(put("a.txt", b"new\n"), Delete("d/two"), put("x/y/z", b"z\n"), Chmod("d/one", 0o600))
    outcome = rebased(pair.home.hf.pipeline, proposal)
    assert isinstance(outcome, Rebased)
    assert outcome.simulated.change_set == proposal.change_set
    assert (outcome.merged, outcome.already) == ((), ())
    land(pair.home, outcome)
    assert contents(pair.home.tree()) == {
        "a.txt": b"new\n", "b.bin": b"\0\1\2", "d/one": b"1\n", "e/only": b"only\n", "x/y/z": b"z\n"
    }  # fmt: skip


def test_edits_in_different_places_of_a_text_both_land(pair: Pair) -> None:
    """A text changed on both sides, apart, has both changes afterwards, on the pre-image of now."""
    proposal = pair.proposed(put("a.txt", edited(1)))
    pair.home.apply(put("a.txt", edited(9)))
    outcome = rebased(pair.home.hf.pipeline, proposal)
    assert isinstance(outcome, Rebased)
    assert outcome.merged == ("a.txt",)
    land(pair.home, outcome)
    assert (pair.home / "a.txt").read_bytes() == edited(1, 9)


def test_a_mode_and_a_content_are_changed_each_by_itself(pair: Pair) -> None:
    """The proposal's mode and somebody else's content both stand; and the other way round."""
    modes, texts = pair.proposed(Chmod("a.txt", 0o755)), pair.proposed(put("d/one", b"one\n"))
    pair.home.apply(put("a.txt", edited(3)), Chmod("d/one", 0o600))
    land(pair.home, rebased(pair.home.hf.pipeline, modes))
    land(pair.home, rebased(pair.home.hf.pipeline, texts))
    tree = pair.home.tree()
    assert (tree["a.txt"].content, tree["a.txt"].mode) == (edited(3), 0o755)
    assert (tree["d/one"].content, tree["d/one"].mode) == (b"one\n", 0o600)


def test_what_somebody_did_just_so_is_not_done_again(pair: Pair) -> None:
    """A path that stands as proposed is left alone, and told; the rest lands."""
    proposal = pair.proposed(put("new", b"same\n"), Delete("d/two"), put("a.txt", edited(2)))
    pair.home.apply(put("new", b"same\n"), Delete("d/two"))
    outcome = rebased(pair.home.hf.pipeline, proposal)
    assert isinstance(outcome, Rebased)
    assert outcome.already == ("d/two", "new")
    assert list(outcome.simulated.change_set.paths) == ["a.txt"]


def test_an_empty_rest_is_told_as_such(pair: Pair) -> None:
    """When all of it was done by somebody, there is nothing to land, and that is an answer of its own."""
    proposal = pair.proposed(put("a.txt", edited(1)), put("new/file", b"x"))
    pair.home.apply(put("a.txt", edited(1)), put("new/file", b"x"))
    outcome = rebased(pair.home.hf.pipeline, proposal)
    assert outcome == AlreadyThere(pair.home.hf.tree().digest, ("a.txt", "new", "new/file"))


def test_a_move_lands_with_its_bytes(pair: Pair) -> None:
    """A moved file needs no inode of the other machine: it goes here and comes there."""
    land(pair.home, pair.rebased(Move("d/one", "d/three")))
    assert contents(pair.home.tree())["d/three"] == b"1\n"
    assert "d/one" not in pair.home.tree()


def test_large_files_travel_in_pieces(pair: Pair) -> None:
    """A file of many pieces arrives whole; only its digest stands in the document."""
    data = os.urandom(1 << 20) * 9
    proposal = pair.proposed(put("large", data))
    assert len(packed(proposal)) < 1 << 16
    land(pair.home, rebased(pair.home.hf.pipeline, proposal))
    assert (pair.home / "large").read_bytes() == data


# ── what does not fit ──


def test_edits_in_the_same_place_collide_with_the_lines_shown(pair: Pair) -> None:
    """The agent is told the path and the lines: as they are now, as they were, as it left them."""
    proposal = pair.proposed(put("a.txt", edited(5, word=b"mine")))
    pair.home.apply(put("a.txt", edited(5, word=b"theirs")))
    before = pair.home.tree()
    outcome = rebased(pair.home.hf.pipeline, proposal)
    assert isinstance(outcome, Collided)
    (collision,) = outcome.collisions
    assert collision.hunks == (
        "@@ line 6 @@\n<<<<<<< now\ntheirs 5\n||||||| before\nline 5\n=======\nmine 5\n>>>>>>> proposed\n"
    )
    assert "mine 5" in outcome.evidence() and "a.txt was edited since" in outcome.evidence()
    assert (outcome.error().exit_status, outcome.error().changed) == (8, False)
    assert pair.home.tree() == before


# steps of the proposal, steps that landed meanwhile, what collides and why
COLLISIONS: list[tuple[str, tuple[Step, ...], tuple[Step, ...], dict[str, str]]] = [
    ("deleted here, edited there", (Delete("d/one"),), (put("d/one", b"x"),), {"d/one": "was changed since"}),
    ("edited here, deleted there", (put("d/one", b"x"),), (Delete("d/one"),), {"d/one": "was deleted since"}),
    ("made on both sides", (put("n", b"1\n"),), (put("n", b"2\n"),), {"n": "was made since"}),
    ("a file and a directory made", (put("n", b"1\n"),), (Create("n", True),), {"n": "was made since"}),
    ("a binary changed twice", (put("b.bin", b"\0x"),), (put("b.bin", b"\0y"),), {"b.bin": "was changed by both"}),
    ("modes", (Chmod("a.txt", 0o600),), (Chmod("a.txt", 0o755),), {"a.txt": "its mode was changed by both"}),
    (
        "its directory is gone", (put("e/new", b"x"),), (Delete("e", True),), {"e/new": "e, where it shall stand"}
    ),
    (
        "its directory became a file",
        (put("e/new", b"x"),),
        (Delete("e", True), put("e", b"file\n")),
        {"e/new": "e, where it shall stand"},
    ),
    (
        "its directory became a link",
        (put("e/only", b"x"),),
        (Delete("e", True), Symlink("e", "d")),
        {"e/only": "was deleted since"},
    ),
    ("a directory goes and was filled", (Delete("e", True),), (put("e/new", b"x"),), {"e": "holds new"}),
    (
        "a directory becomes a file and was filled",
        (Delete("e", True), put("e", b"file\n")),
        (put("e/new", b"x"),),
        {"e": "holds new"},
    ),
    (
        "a type changed on one side",
        (put("d/one", b"x"),),
        (Delete("d/one"), Symlink("d/one", "two")),
        {"d/one": "was a file, is a symlink now"},
    ),
    ("what it relied on", (Read("d/one"), put("n", b"1")), (put("d/one", b"x"),), {"d/one": "was relied on"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("work", "meanwhile", "expected"), [row[1:] for row in COLLISIONS], ids=[r[0] for r in COLLISIONS]
)
def test_what_cannot_both_stand_collides(
    pair: Pair, work: tuple[Step, ...], meanwhile: tuple[Step, ...], expected: dict[str, str]
) -> None:
    """Every path where two people's work cannot both stand is named with the reason, and nothing is changed."""
    proposal = pair.proposed(*work)
    pair.home.apply(*meanwhile)
    before = pair.home.tree()
    found = whys(rebased(pair.home.hf.pipeline, proposal))
    assert found.keys() == expected.keys()
    assert all(found[path].startswith(why) for path, why in expected.items()), found
    assert pair.home.tree() == before


def test_links_that_were_pointed_elsewhere_collide(tmp_path: Path) -> None:
    """A link changed on both sides has no lines to merge."""
    grounds = [guard(tmp_path / name, {"x": b""}) for name in ("home", "worker")]
    for ground in grounds:
        ground.apply(Symlink("link", "x"))
    pair = Pair(*grounds)
    proposal = pair.proposed(Symlink("link", "there"))
    pair.home.apply(Symlink("link", "elsewhere"))
    assert whys(rebased(pair.home.hf.pipeline, proposal))["link"].startswith("is a link that leads to elsewhere now")


def test_evidence_masks_what_looks_like_a_secret(pair: Pair) -> None:
    """What an agent is told of a collision is masked as everything else that is kept or shown."""
    key = "AKIA" + "Q" * 16
    proposal = pair.proposed(put("a.txt", edited(5, word=b"mine")))
    (pair.home / "a.txt").write_bytes(edited(5, word=key.encode()))
    outcome = rebased(pair.home.hf.pipeline, proposal)
    assert isinstance(outcome, Collided)
    assert key not in outcome.evidence() and "masked" in outcome.evidence()


def test_evidence_is_bounded(pair: Pair) -> None:
    """However much collides, an agent is told no more than it can read."""
    proposal = pair.proposed(*(put(f"n{n}", b"1\n" * 3000) for n in range(9)))
    pair.home.apply(*(put(f"n{n}", b"2\n" * 3000) for n in range(9)))
    outcome = rebased(pair.home.hf.pipeline, proposal)
    assert isinstance(outcome, Collided) and len(outcome.collisions) == 9
    assert len(outcome.evidence()) <= 12_000


# ── what is hidden, ignored or dangerous here ──


def test_a_directory_that_holds_only_ignored_files_stays(tmp_path: Path) -> None:
    """What the repository ignores is nobody's work: the files of the proposal go, their directory stays with it."""
    pair = Pair(guard(tmp_path / "home", FILES), guard(tmp_path / "worker", FILES))
    repository(pair.home.path)
    (pair.home / ".gitignore").write_text("*.pyc\n")
    (pair.home / "e" / "x.pyc").write_bytes(b"cache")
    land(pair.home, pair.rebased(Delete("e", True)))
    assert sorted(os.listdir(pair.home / "e")) == ["x.pyc"]


def test_what_the_repository_ignores_is_a_by_product_here_too(tmp_path: Path) -> None:
    """A worker without the repository's rules proposes caches; they are told, and do not land."""
    pair = Pair(guard(tmp_path / "home", FILES), guard(tmp_path / "worker", FILES))
    repository(pair.home.path)
    (pair.home / ".gitignore").write_text("cache/\n")
    agent = ScriptedAgent(WriteFile("cache/x", "1"), WriteFile("made", "2\n"))
    outcome = rebased(pair.home.hf.pipeline, worked(pair, agent))
    assert isinstance(outcome, Rebased)
    assert list(outcome.simulated.change_set.paths) == ["made"]
    assert {item.path for item in outcome.simulated.report.by_products} == {"cache", "cache/x"}


def test_a_hidden_path_cannot_be_proposed(tmp_path: Path) -> None:
    """Programs do not see hidden paths, so whoever says that one changed there is not believed."""
    pair = Pair(guard(tmp_path / "home", FILES), guard(tmp_path / "worker", FILES))
    (pair.home / "holdfast.toml").write_text('[workspace]\nhidden = ["secrets/**"]\n')
    outcome = rebased(pair.home.hf.pipeline, worked(pair, ScriptedAgent(WriteFile("secrets/key", "x"))))
    assert set(whys(outcome)) == {"secrets", "secrets/key"}


def test_set_id_bits_are_a_danger_whoever_captured_them(pair: Pair) -> None:
    """A proposal that leaves out what capture would have refused is unsafe all the same, and cannot land."""
    proposal = worked(pair, ScriptedAgent(WriteFile("tool", "x\n")))
    (change,) = proposal.change_set.changes
    assert change.post is not None
    forged = forge(proposal, lambda rows: rows["changes"]["changes"][0][2].__setitem__(1, 0o4755))
    outcome = rebased(pair.home.hf.pipeline, forged)
    assert isinstance(outcome, Rebased)
    assert outcome.simulated.report.status == "UNSAFE"
    with pytest.raises(Blocked):
        land(pair.home, outcome)
    assert not (pair.home / "tool").exists()


def test_owners_of_another_machine_become_those_of_the_workspace(pair: Pair) -> None:
    """Where owners could not be kept, a file keeps the owner it has here, and a new one gets ours."""
    simulated = pair.worker.hf.simulate(Plan("a task", (put("a.txt", edited(1)), put("new", b"x\n"))))
    made = pair.received(propose(pair.worker.hf.site, simulated, owner=(os.geteuid(), os.getegid())))
    foreign = forge(made, lambda rows: strange_owner(rows, 4321))
    land(pair.home, rebased(pair.home.hf.pipeline, foreign))
    tree = pair.home.tree()
    assert {tree["a.txt"].owner, tree["new"].owner} == {(os.geteuid(), os.getegid())}


# ── the whole road, with an agent ──


def worked(pair: Pair, agent: ScriptedAgent) -> Proposal:
    """The agent's work at the worker's, received at home with what the ledger there holds about it."""
    plan = Plan("a task", (Agent(agent.name, "Do it.", attempts=1),))
    simulated = pair.worker.hf.simulate(plan, agents={agent.name: agent})
    found = (entry.body for entry in pair.worker.hf.ledger.entries() if entry.kind == "delegation")
    bodies = [{name: body[name] for name in body if name not in ("id", "subject", "objective")} for body in found]
    return pair.received(propose(pair.worker.hf.site, simulated, (), bodies))


def test_an_agents_work_lands_after_somebody_elses(tmp_path: Path) -> None:
    """The agent stays the author, its checks run again over what stands now, and the tree is the predicted one."""
    pair = Pair(project(tmp_path / "home"), project(tmp_path / "worker"))
    agent = ScriptedAgent(EditFile("app.py", "41", "42"))
    proposal = worked(pair, agent)
    pair.home.apply(put("other.txt", b"landed first\n"))
    outcome = rebased(pair.home.hf.pipeline, proposal)
    assert isinstance(outcome, Rebased)
    report = outcome.simulated.report
    (said,) = proposal.delegations
    assert (said["agent"], said["good"]) == (agent.name, True)
    assert (outcome.simulated.plan.agent, report.receipts) == (agent.name, ())
    assert report.enforced == proposal.report.enforced != ()
    verified = pair.home.hf.verify(outcome.simulated)
    assert {receipt.tree_digest for receipt in verified.receipts} == {report.predicted_tree}
    done = pair.home.hf.execute(outcome.simulated, approved_by=ME, verified=verified)
    assert done.status == "COMPLETED"
    assert b"42" in (pair.home / "app.py").read_bytes()
    pair.home.hf.undo(done.id, approved_by="me")
    assert b"41" in (pair.home / "app.py").read_bytes()


def test_a_rebased_change_that_moved_again_does_not_land(pair: Pair) -> None:
    """Between the rebase and the landing the workspace is as guarded as ever."""
    outcome = pair.rebased(put("a.txt", edited(1)))
    assert isinstance(outcome, Rebased)
    (pair.home / "a.txt").write_bytes(edited(2))
    with pytest.raises(Conflict):
        land(pair.home, outcome)
    assert (pair.home / "a.txt").read_bytes() == edited(2)


# ── proposals that lie ──


def forge(proposal: Proposal, change: Any) -> Proposal:
    """A worker that edits the document and makes its digests right again."""
    rows = json.loads(packed(proposal))
    change(rows)
    return unpacked(json.dumps(resealed(rows)).encode(), proposal.plan)


def resealed(rows: dict[str, Any]) -> dict[str, Any]:
    from holdfast.model.saved_simulation import change_set_from

    changes = change_set_from(rows["changes"])
    rows["report"].update(change_set=changes.digest, base=changes.base)
    return rows


def strange_owner(rows: dict[str, Any], owner: int) -> None:
    rows["owner"] = [owner, owner]
    for _, pre, post, _ in rows["changes"]["changes"]:
        for image in (pre, post):
            if image is not None:
                image[2:4] = [owner, owner]


def _image(**fields: Any) -> Any:
    names = ("kind", "mode", "uid", "gid", "size", "digest", "target", "xattrs")

    def change(rows: dict[str, Any]) -> None:
        image = rows["changes"]["changes"][0][2]
        for name, value in fields.items():
            image[names.index(name)] = value

    return change


def _path(text: str) -> Any:
    return lambda rows: rows["changes"]["changes"][0].__setitem__(0, text)


def _top(**fields: Any) -> Any:
    return lambda rows: rows.update(fields)


LIES: list[tuple[str, Any]] = [
    ("a path that leaves", _path("../outside")),
    ("an absolute path", _path("/etc/passwd")),
    ("a path into git", _path(".git/hooks/pre-commit")),
    ("a path into the state", _path("d/.HOLDFAST/x")),
    ("a path with a slash at its end", _path("x/")),
    ("a path with a NUL", _path("a\0b")),
    ("a path that is a number", _path(7)),  # type: ignore[arg-type]
    ("a kind that is none", _image(kind="fifo")),
    ("a mode beyond modes", _image(mode=0o10644)),
    ("a mode that is a truth", _image(mode=True)),
    ("an owner below all", _image(uid=-1)),
    ("a digest that is a path", _image(digest="../../../../etc/passwd".ljust(64, "x"))),
    ("a file without a digest", _image(digest="")),
    ("a file with a target", _image(target="elsewhere")),
    ("a link without a target", _image(kind="symlink", digest="", size=0)),
    ("a size below nothing", _image(size=-1)),
    ("an attribute that is no number", _image(xattrs=[["user.x", "zz"]])),
    ("an origin that leaves", lambda rows: rows["changes"]["changes"][0].__setitem__(3, "../x")),
    ("a field more", _top(more=1)),
    ("a field of the change set more", lambda rows: rows["changes"].update(more=1)),
    ("another version", _top(version=2)),
    ("another plan", lambda rows: rows["plan"].update(intent="something else")),
    ("a plan of its own", lambda rows: rows["plan"].update(digest="0" * 64)),
    ("a report of another plan", lambda rows: rows["report"].update(plan_digest="0" * 64)),
    ("a report without steps", lambda rows: rows["report"].update(steps=[])),
    ("dangers that are numbers", lambda rows: rows["report"].update(dangers=[1])),
    ("a receipt that is none", _top(receipts=[{"passed": True}])),
    ("what another agent said", _top(delegations=[{"agent": "somebody"}])),
    ("an owner that is nobody", _top(owner=["root", "root"])),
    ("no object at all", lambda rows: rows.update(changes=[])),
]  # fmt: skip


@pytest.mark.parametrize("lie", [row[1] for row in LIES], ids=[row[0] for row in LIES])
def test_a_proposal_that_lies_is_refused(pair: Pair, lie: Any) -> None:
    """A document that is no proposal, or disagrees with itself or with the plan, is refused before anything is read."""
    proposal = pair.proposed(put("new", b"x\n"))
    rows = json.loads(packed(proposal))
    lie(rows)
    try:
        rows = resealed(rows)
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeError):
        pass  # digests cannot be made right for what is no change set at all
    with pytest.raises((Tampering, InvalidInput)):
        unpacked(json.dumps(rows).encode(), proposal.plan)


@given(st.binary(max_size=200))
def test_any_bytes_are_no_proposal(data: bytes) -> None:
    """Whatever bytes come, the answer is a refusal and no crash."""
    with pytest.raises((Tampering, InvalidInput)):
        unpacked(data, Plan("x", ()))


def test_a_proposal_for_another_plan_is_refused(pair: Pair) -> None:
    """A worker cannot choose what its work is judged as: neither by a plan of its own, nor by one beside our report."""
    ours, other = pair.proposed(put("new", b"x\n")), pair.proposed(put("new", b"x\n"), Read("d/one"))
    with pytest.raises(Tampering):
        unpacked(packed(other), ours.plan)
    rows = json.loads(packed(ours))
    rows["plan"] = json.loads(packed(other))["plan"]
    with pytest.raises(Tampering):
        unpacked(json.dumps(rows).encode(), ours.plan)


def test_laying_sees_the_tree_of_its_snapshot_or_stops(pair: Pair) -> None:
    """What moved between the snapshot and the look is no base: the prediction would be of a tree that never was."""
    proposal = pair.proposed(put("a.txt", edited(1)))
    base = pair.home.hf.tree()
    (pair.home / "a.txt").write_bytes(edited(9))
    stock = LargeBlobs(pair.home.hf.site.state)
    with pytest.raises(Conflict):
        lay(pair.home.hf.site, proposal.change_set, stock.open, base)
    assert lay(pair.home.hf.site, proposal.change_set, stock.open, pair.home.hf.tree()).merged == ("a.txt",)


def test_no_other_bytes_are_merged(pair: Pair) -> None:
    """A text that is merged is hashed when it is read, whatever was checked before."""
    proposal = pair.proposed(put("a.txt", edited(1)))
    pair.home.apply(put("a.txt", edited(9)))
    with pytest.raises(Tampering):
        lay(pair.home.hf.site, proposal.change_set, lambda digest: other_bytes(), pair.home.hf.tree())


def other_bytes() -> int:
    fd = os.memfd_create("other")
    os.write(fd, edited(4))
    return fd


def test_bytes_that_are_not_what_they_are_called_are_refused(pair: Pair) -> None:
    """A blob that was edited after it came is found before the workspace is looked at."""
    proposal = pair.proposed(put("new", b"x\n"))
    (digest,) = proposal.contents
    blob = pair.home.state / "objects" / digest[:2] / digest[2:]
    blob.write_bytes(b"y\n")
    with pytest.raises(Tampering):
        rebased(pair.home.hf.pipeline, proposal)


def test_bytes_that_are_missing_are_missed(pair: Pair) -> None:
    """Without all its bytes a proposal cannot land, and says so before anything else."""
    proposal = pair.proposed(put("new", b"x\n"))
    LargeBlobs(pair.home.hf.site.state).remove(proposal.contents[0])
    with pytest.raises(UnknownId):
        require_contents(proposal, LargeBlobs(pair.home.hf.site.state))


def test_a_stock_takes_only_what_is_called_right(pair: Pair) -> None:
    """Bytes under another digest are refused on the way in, and leave nothing behind."""
    stock = LargeBlobs(pair.home.hf.site.state)
    digest = name_of(b"right")
    with pytest.raises(Tampering):
        stock.take(digest, [b"wr", b"ong"])
    assert not stock.has(digest)
    assert not [name for name in os.listdir(pair.home.state / "objects" / digest[:2]) if name.startswith("new-")]
    with pytest.raises(InvalidInput):
        stock.has("../" * 20 + "ab")
    stock.take(digest, [b"ri", b"ght"])
    assert b"".join(stock.pieces(digest)) == b"right"


def test_a_torn_blob_is_filled_again(pair: Pair) -> None:
    """A name that lost its bytes in a power cut does not stand in the way of whoever brings them."""
    stock = LargeBlobs(pair.home.hf.site.state)
    digest = name_of(b"whole")
    stock.take(digest, [b"whole"])
    (pair.home.state / "objects" / digest[:2] / digest[2:]).write_bytes(b"")
    stock.take(digest, [b"whole"])
    assert b"".join(stock.pieces(digest)) == b"whole"


def repository(path: Path) -> None:
    import subprocess

    subprocess.run(["git", "init", "-q", str(path)], check=True)


# ── any two change sets ──

_PATHS = ("a.txt", "d/one", "d/two", "e/only", "n", "d/n", "f/n")
# A text is changed line by line, so that everybody can say what a merge must be.
_lines = st.frozensets(st.integers(0, 11), min_size=1, max_size=3)
_act = st.one_of(
    st.tuples(st.just("lines"), _lines, st.sampled_from([b"one", b"other"])),
    st.tuples(st.just("put"), st.sampled_from(_PATHS[1:]), st.sampled_from([b"x\n", b"y\n"])),
    st.tuples(st.just("delete"), st.sampled_from(("a.txt", "d/one", "d/two", "e/only", "e", "d")), st.just(b"")),
    st.tuples(st.just("mode"), st.sampled_from(("a.txt", "d/one", "e/only")), st.sampled_from([b"600", b"755"])),
)
_acts = st.lists(_act, min_size=1, max_size=3)
World = dict[str, tuple[str, int, bytes]]


def outcome_of(acts: list[Any], base: World) -> tuple[list[Step], World]:
    """The steps that can be done, and the tree that they give: by rules that share nothing with the product."""
    world, steps = dict(base), list[Step]()
    for kind, where, what in acts:
        if kind == "lines":
            if "a.txt" in world:
                data = _replaced(world["a.txt"][2], where, what)
                steps.append(put("a.txt", data))
                world["a.txt"] = ("file", world["a.txt"][1], data)
        elif kind == "put":
            if where.partition("/")[0] in ("d", "e") and where.partition("/")[0] not in world:
                continue
            steps.append(put(where, what))
            if "/" in where:
                world.setdefault(where.partition("/")[0], ("directory", 0o755, b""))
            world[where] = ("file", world[where][1] if where in world else 0o644, what)
        elif where in world and kind == "delete":
            steps.append(Delete(where, True))
            world = {path: thing for path, thing in world.items() if path != where and not path.startswith(where + "/")}
        elif where in world and kind == "mode":
            steps.append(Chmod(where, int(what, 8)))
            world[where] = (world[where][0], int(what, 8), world[where][2])
    return steps, world


def _replaced(text: bytes, lines: frozenset[int], word: bytes) -> bytes:
    rows = text.splitlines(keepends=True)
    for line in lines:
        rows[line] = b"%s %d\n" % (word, line)
    return b"".join(rows)


def joined(base: World, one: World, other: World) -> World | None:
    """What both together must give, whoever lands first; None where they cannot both stand."""
    found: World = {}
    for path in base.keys() | one.keys() | other.keys():
        old, a, b = base.get(path), one.get(path), other.get(path)
        thing = a if a == b or b == old else b if a == old else _both(old, a, b)
        if thing == ("", 0, b""):
            return None
        if thing is not None:
            found[path] = thing
    whole = all("/" not in path or found.get(path.rpartition("/")[0], ("",))[0] == "directory" for path in found)
    return found if whole else None


def _both(old: Any, a: Any, b: Any) -> Any:
    """One file that both changed, differently: mode and text each by itself; an empty kind is a collision."""
    collision = ("", 0, b"")
    if None in (old, a, b):
        return collision
    if a[1] not in (old[1], b[1]) and b[1] != old[1]:
        return collision
    mode = b[1] if a[1] == old[1] else a[1]
    if a[2] == b[2] or b[2] == old[2]:
        return old[0], mode, a[2]
    if a[2] == old[2]:
        return old[0], mode, b[2]
    texts = [text.splitlines(keepends=True) for text in (old[2], a[2], b[2])]
    if len(texts[0]) != 12:
        return collision
    mine = {n for n in range(12) if texts[1][n] != texts[0][n]}
    theirs = {n for n in range(12) if texts[2][n] != texts[0][n]}
    if any(abs(m - t) <= 1 for m in mine for t in theirs if not _same_run(mine, theirs, texts, m, t)):
        return collision
    return old[0], mode, b"".join(texts[1][n] if n in mine else texts[2][n] for n in range(12))


def _same_run(mine: set[int], theirs: set[int], texts: list[list[bytes]], m: int, t: int) -> bool:
    """Both made the same edit: the same stretch of lines, with the same words."""
    stretch = _run(mine, m)
    return stretch == _run(theirs, t) and all(texts[1][n] == texts[2][n] for n in stretch)


def _run(lines: set[int], at: int) -> list[int]:
    first = last = at
    while first - 1 in lines:
        first -= 1
    while last + 1 in lines:
        last += 1
    return list(range(first, last + 1))


def world_of(path: Path) -> World:
    return {name: (thing.kind, thing.mode, thing.content) for name, thing in tree_of(path).items()}


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(one=_acts, other=_acts)
def test_two_change_sets_give_one_tree_in_both_orders(one: list[Any], other: list[Any]) -> None:
    """Landed one after the other through rebase, two change sets give what both together must give, in either order;
    where they cannot both stand, the second is refused, and nothing of it is there."""
    memory = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(prefix="holdfast-test-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        _both_orders(place, one, other)
    finally:
        shutil.rmtree(place)


def _both_orders(place: Path, one: list[Any], other: list[Any]) -> None:
    worker = guard(place / "worker", FILES)
    base = world_of(worker.path)
    (steps, first), (more, second) = outcome_of(one, base), outcome_of(other, base)
    if first == base or second == base:
        return
    expected = joined(base, first, second)
    for name, order, alone in (("ab", (steps, more), first), ("ba", (more, steps), second)):
        pair = Pair(guard(place / name, FILES), worker)
        proposals = [pair.proposed(*wanted) for wanted in order]
        land(pair.home, rebased(pair.home.hf.pipeline, proposals[0]))
        assert world_of(pair.home.path) == alone
        outcome = rebased(pair.home.hf.pipeline, proposals[1])
        event(f"{type(outcome).__name__}{', merged' if isinstance(outcome, Rebased) and outcome.merged else ''}")
        if expected is None:
            assert isinstance(outcome, Collided), (outcome, order)
            assert world_of(pair.home.path) == alone
        elif isinstance(outcome, AlreadyThere):
            assert expected == alone
        else:
            land(pair.home, outcome)
            assert world_of(pair.home.path) == expected
        pair.home.hf.close()
    worker.hf.close()


def test_the_error_of_a_collision_is_one_of_ours(pair: Pair) -> None:
    """A collision can be raised as what it is: a conflict, with exit 8 and nothing changed."""
    proposal = pair.proposed(Delete("d/one"))
    pair.home.apply(put("d/one", b"x\n"))
    outcome = rebased(pair.home.hf.pipeline, proposal)
    assert isinstance(outcome, Collided)
    with pytest.raises(HoldfastError, match="d/one was changed since"):
        raise outcome.error()
