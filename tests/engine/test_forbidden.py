"""What this user has no right to change is found in the rehearsal, with its path and a way out; nothing was changed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from guarded import USER, as_user, guard, put
from holdfast.errors import Blocked
from holdfast.model.plan import Chmod, Create, Delete, Move, Step

pytestmark = pytest.mark.root
IN_RO = "cannot change: this user may not write in the directory ro"
STEPS: dict[str, tuple[tuple[Step, ...], str]] = {
    "made": ((put("ro/new", b"1"),), f"ro/new {IN_RO}"),
    "replaced": ((put("ro/x", b"1"),), f"ro/x {IN_RO}"),
    "removed": ((Delete("ro/x"),), f"ro/x {IN_RO}"),
    "moved in": ((Move("a", "ro/a"),), f"ro/a {IN_RO}"),
    "moved out": ((Move("ro/x", "x"),), f"ro/x {IN_RO}"),
    "below something new": ((put("ro/n/new", b"1"),), f"ro/n {IN_RO}"),
    "closed again": ((Chmod("ro", 0o500), put("ro/x", b"1")), f"ro/x {IN_RO}"),
    "of root": ((put("theirs", b"1"),), "theirs belongs to root; only root can make another that does"),
    "mode of root's": ((Chmod("theirs", 0o600),), "theirs belongs to root; only its owner can change its mode"),
    "a directory of root": ((Delete("their", True),), "their belongs to root; this user may not move it"),
    "another of root": ((Move("open", "other"),), "other would belong to root, and only root can make it so"),
    "sticky": ((Delete("shared/theirs"),), "shared/theirs belongs to root, and in the directory shared only owners"),
}


@pytest.fixture
def furnished(public: Path) -> Path:
    place = public / "workspace"
    for name in ("theirs", "shared/theirs"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(b"0")
        (place / name).chmod(0o666)
    (place / "their").mkdir(mode=0o755)
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    (place / "shared").chmod(0o1777)
    return public


@pytest.mark.parametrize("name", STEPS)
def test_what_is_forbidden_is_found_in_the_rehearsal(furnished: Path, name: str) -> None:
    """Blocked before anything is kept or asked, naming the path and what to do; the tree is as it was."""
    steps, why = STEPS[name]

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"ro/x": b"0", "a": b"0"})
        (workspace / "ro").chmod(0o555)
        before = ground.tree()
        with pytest.raises(Blocked) as caught:
            ground.hf.simulate(ground.plan(*steps))
        assert why in caught.value.message
        assert caught.value.hint.startswith("Nothing was changed. Have it applied by whoever may.")
        assert "other" not in caught.value.hint  # what is not there cannot be copied
        assert ground.tree() == before

    as_user(furnished, act)


OWN = "Or take that right: chmod u+wx ro"
ASK = "Or ask root, who owns that directory, to let you write there, or run it as that user."
COPY = "Or make it your own: cp theirs theirs.new && mv theirs.new theirs"
HINTS: dict[str, tuple[Step, str]] = {
    "a directory of mine": (put("ro/x", b"1"), OWN),
    "a directory of root": (put("their/new", b"1"), ASK),
    "a file of root": (put("theirs", b"1"), COPY),
    "a file of root in a directory of mine that is closed": (put("ro/theirs", b"1"), ""),
    "a file of root in a directory of root": (put("their/theirs", b"1"), ""),
    "a file of root in a sticky directory": (put("shared/theirs", b"1"), ""),
}


@pytest.mark.parametrize("name", HINTS)
def test_a_hint_is_one_that_this_user_can_follow(furnished: Path, name: str) -> None:
    """Only an owner changes the mode of a directory, and only who may write there replaces a file by a copy."""
    step, way = HINTS[name]
    for place in ("ro", "their"):
        (furnished / "workspace" / place).mkdir(exist_ok=True)
        (furnished / "workspace" / place / "theirs").write_bytes(b"0")
    os.chown(furnished / "workspace" / "ro", USER, USER)

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"ro/x": b"0"})
        (workspace / "ro").chmod(0o555)
        with pytest.raises(Blocked) as caught:
            ground.hf.simulate(ground.plan(step))
        said = "Nothing was changed. Have it applied by whoever may."
        assert caught.value.hint.partition("\n")[0] == f"{said} {way}".strip()

    as_user(furnished, act)


def test_what_is_allowed_is_not_refused(furnished: Path) -> None:
    """A plan that opens the directory first, a group of the directory, and what root owns but may go: all land."""
    os.chown(furnished / "workspace", -1, 54321)
    (furnished / "workspace").chmod(0o2755)

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"ro/x": b"0", "a": b"0"})
        (workspace / "ro").chmod(0o555)
        before = ground.tree()
        steps = (Chmod("ro", 0o755), put("ro/x", b"1"), put("new", b"1"), Delete("theirs"))
        ground.hf.undo(ground.apply(*steps).id, approved_by="me")
        assert ground.tree() == before
        ground.apply(Delete("ro", True), Move("theirs", "new"))
        with pytest.raises(Blocked, match="n passes group 54321 on, and only a member of it can set that"):
            ground.apply(Create("n", True))

    as_user(furnished, act)


def test_a_right_that_is_lost_after_the_rehearsal(furnished: Path) -> None:
    """It is asked again just before the first path moves: refused with the path, and nothing moved."""

    def act(workspace: Path) -> None:
        ground = guard(workspace, {"d/x": b"0", "e/x": b"0"})
        simulated = ground.hf.simulate(ground.plan(put("d/x", b"1"), put("e/x", b"1")))
        (workspace / "e").chmod(0o555)
        before = ground.tree()
        with pytest.raises(Blocked, match="e/x cannot change: this user may not write in the directory e"):
            ground.hf.execute(simulated, approved_by="me")
        assert ground.tree() == before
        assert ground.statuses() == ["ABORTED"]

    as_user(furnished, act)
