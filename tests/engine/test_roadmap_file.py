"""The roadmap as a file: boxes are ticked in place, and a person who saves at the same moment wins."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from guarded import ME, Ground, Interloper, guard
from holdfast.disk.calls import CALLS, Calls
from holdfast.engine import roadmap_file
from holdfast.engine.roadmap_file import RoadmapFile, find_roadmap
from holdfast.errors import Conflict, HoldfastError, InvalidInput

TEXT = b"# R\n\nWords.\n\n- [ ] One\n- [ ] Two\n"


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    found = guard(tmp_path / "workspace", {"ROADMAP.md": TEXT})
    yield found
    found.hf.close()


def file_of(ground: Ground) -> RoadmapFile:
    return RoadmapFile(ground.hf.site, "ROADMAP.md")


def ids(ground: Ground) -> dict[str, str]:
    return {task.title: task.id for task in file_of(ground).read()[1].tasks}


def test_a_tick_changes_a_box_and_nothing_else(ground: Ground) -> None:
    """Byte for byte; and a second time there is nothing to do."""
    file, done = file_of(ground), {ids(ground)["One"]: True}
    assert file.tick(ground.hf.pipeline, done, ME) and not file.tick(ground.hf.pipeline, done, ME)
    assert (ground / "ROADMAP.md").read_bytes() == TEXT.replace(b"[ ] One", b"[x] One")
    assert file.tick(ground.hf.pipeline, {ids(ground)["One"]: False}, ME)
    assert (ground / "ROADMAP.md").read_bytes() == TEXT


def test_windows_lines_mixed_lines_and_no_end_stay_as_they_are(ground: Ground) -> None:
    """Whatever ends a line, ends it afterwards."""
    text = b"\xef\xbb\xbf# R\r\n\r\n- [ ] One\r\n- [ ] Two\n\tindented\r\n- [ ] Three"
    (ground / "ROADMAP.md").write_bytes(text)
    done = dict.fromkeys(ids(ground).values(), True)
    assert len(done) == 3 and file_of(ground).tick(ground.hf.pipeline, done, ME)
    assert (ground / "ROADMAP.md").read_bytes() == text.replace(b"[ ]", b"[x]")


def test_a_task_that_is_not_there_is_not_ticked(ground: Ground) -> None:
    """It left; the others are ticked."""
    done = {"gone-12345678": True, ids(ground)["Two"]: True}
    assert file_of(ground).tick(ground.hf.pipeline, done, ME)
    assert (ground / "ROADMAP.md").read_bytes() == TEXT.replace(b"[ ] Two", b"[x] Two")
    assert not file_of(ground).tick(ground.hf.pipeline, {"gone-12345678": True}, ME)


@pytest.mark.parametrize("call", ["exchange", "fdatasync"])
def test_a_person_who_saves_at_the_same_moment_wins_and_the_tick_is_made_again(tmp_path: Path, call: str) -> None:
    """Their words are there, and the box is ticked in what they saved (M1)."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"ROADMAP.md": TEXT}, calls)
    theirs = TEXT.replace(b"Words.", b"Other words, just saved.")
    one = ids(ground)["One"]
    calls.arm(call, lambda: (ground / "ROADMAP.md").write_bytes(theirs))
    assert file_of(ground).tick(ground.hf.pipeline, {one: True}, ME)
    assert calls.struck == 1
    assert (ground / "ROADMAP.md").read_bytes() == theirs.replace(b"[ ] One", b"[x] One")
    ground.hf.close()


def test_a_person_who_never_stops_saving_is_never_overwritten(tmp_path: Path) -> None:
    """After some tries it is told, and the file is theirs."""
    calls = Interloper()
    ground = guard(tmp_path / "workspace", {"ROADMAP.md": TEXT}, calls)
    one, saved = ids(ground)["One"], list[bytes]()

    def save() -> None:
        saved.append(TEXT + b"\nsaved %d\n" % len(saved))
        (ground / "ROADMAP.md").write_bytes(saved[-1])
        calls.arm("exchange", save, skip=1)  # the next exchange is the flip back

    calls.arm("exchange", save)
    with pytest.raises(Conflict, match="keeps changing"):
        file_of(ground).tick(ground.hf.pipeline, {one: True}, ME)
    assert len(saved) >= 5 and (ground / "ROADMAP.md").read_bytes() == saved[-1]
    ground.hf.close()


class Coarse(Calls):
    """A file system whose clock stands still: whatever is saved, the stamps are those of the first look."""

    def __init__(self) -> None:
        stamps: dict[int, os.stat_result] = {}

        def fstat(fd: int) -> os.stat_result:
            about = CALLS.fstat(fd)
            return stamps.setdefault(about.st_ino, about)

        self.fstat = fstat  # type: ignore[method-assign,assignment]


def test_two_saves_within_one_tick_of_the_clock_are_both_seen(tmp_path: Path) -> None:
    """The same size, the same inode, the same times: it is read again all the same, for a while."""
    ground = guard(tmp_path / "workspace", {})
    (ground / "ROADMAP.md").write_bytes(TEXT)
    coarse = ground.reopened(Coarse())
    file = file_of(coarse)
    assert [task.done for task in file.read()[1].tasks] == [False, False]
    (ground / "ROADMAP.md").write_bytes(TEXT.replace(b"[ ] Two", b"[x] Two"))
    assert [task.done for task in file.read()[1].tasks] == [False, True]
    coarse.hf.close()


def test_the_same_bytes_are_the_same_roadmap(ground: Ground) -> None:
    """Touched, or saved without a change: nobody has to think again."""
    file = file_of(ground)
    first = file.read()[1]
    (ground / "ROADMAP.md").write_bytes(TEXT)
    assert file.read()[1] is first


def test_an_old_file_is_not_read_again(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn of a run costs a look at its stamps."""
    file = file_of(ground)
    first = file.read()[1]
    monkeypatch.setattr(RoadmapFile, "_whole", lambda *a: pytest.fail("it was read"))
    assert file.read()[1] is first


@pytest.mark.parametrize("what", ["link", "link to outside", "directory", "fifo", "gone", "linked folder"])
def test_what_is_no_file_of_the_workspace_is_not_read(ground: Ground, tmp_path: Path, what: str) -> None:
    """A link is never followed, a pipe never waited for; it is told, and nothing hangs."""
    path, name = ground / "ROADMAP.md", "ROADMAP.md"
    path.unlink()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "R.md").write_bytes(TEXT)
    (ground / "inside.md").write_bytes(TEXT)
    if what == "link":
        path.symlink_to("inside.md")
    elif what == "link to outside":
        path.symlink_to(tmp_path / "outside" / "R.md")
    elif what == "directory":
        path.mkdir()
    elif what == "fifo":
        os.mkfifo(path)
    elif what == "linked folder":
        (ground / "folder").symlink_to(tmp_path / "outside")
        name = "folder/R.md"
    with pytest.raises(InvalidInput):
        RoadmapFile(ground.hf.site, name).read()


def test_a_link_is_called_a_link(ground: Ground) -> None:
    """Whether it was named or is there under a usual name, nobody is told of levels, or that there is none."""
    (ground / "plan.md").write_bytes(TEXT)
    (ground / "ROADMAP.md").unlink()
    (ground / "ROADMAP.md").symlink_to("plan.md")
    with pytest.raises(InvalidInput, match="is a symbolic link") as refused:
        file_of(ground).read()
    assert "Name the file itself" in refused.value.hint
    with pytest.raises(InvalidInput, match="is a symbolic link"):
        find_roadmap(ground.hf.site)


def test_what_is_too_large_is_not_read(ground: Ground) -> None:
    """8 MiB are enough for everybody; a file with holes costs nothing to make."""
    os.truncate(ground / "ROADMAP.md", roadmap_file.MOST_BYTES + 1)
    with pytest.raises(InvalidInput, match="larger than 8 MiB"):
        file_of(ground).read()


@pytest.mark.parametrize("path", ["../R.md", "/etc/passwd", ".holdfast/ledger.jsonl", ".git/config", "a\0b", ""])
def test_a_path_that_is_none_is_refused(ground: Ground, path: str) -> None:
    """Whoever names it."""
    with pytest.raises(HoldfastError):
        RoadmapFile(ground.hf.site, path)


def test_the_usual_names_are_found(ground: Ground) -> None:
    """The first that is there; without any it is told which there could be."""
    assert find_roadmap(ground.hf.site) == "ROADMAP.md"
    (ground / "ROADMAP.md").rename(ground / "TODO.md")
    assert find_roadmap(ground.hf.site) == "TODO.md"
    (ground / "TODO.md").unlink()
    with pytest.raises(InvalidInput, match="no roadmap here"):
        find_roadmap(ground.hf.site)


def test_a_roadmap_outside_of_the_workspace_is_refused(ground: Ground, tmp_path: Path) -> None:
    """A path of the workspace is found from wherever one stands."""
    (tmp_path / "R.md").write_bytes(TEXT)
    with pytest.raises(InvalidInput, match="outside"):
        find_roadmap(ground.hf.site, str(tmp_path / "R.md"))
    assert find_roadmap(ground.hf.site, str(ground / "ROADMAP.md")) == "ROADMAP.md"
    assert find_roadmap(ground.hf.site, "ROADMAP.md") == "ROADMAP.md"
