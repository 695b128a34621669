"""Files that change start a run: real files, real changes, and no more looking than needed."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from guarded import fill, guard
from holdfast.disk.calls import Calls
from holdfast.engine import trigger_sources
from triggers.posted import NOON, PLANS, watchman

FILES = {
    "ROADMAP.md": b"- [ ] a",
    "plans/one.md": b"1",
    "plans/deep/two.md": b"2",
    "src/main.py": b"x",
    "other.md": b"",
}


def change(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


CHANGES = {
    "written": lambda place: change(place / "ROADMAP.md", b"- [ ] b"),
    "written through another name": lambda place: (
        change(place / "new", b"- [ ] b"),
        os.replace(place / "new", place / "ROADMAP.md"),
    ),
    "made": lambda place: change(place / "plans/deep/er/three.md", b"3"),
    "removed": lambda place: (place / "plans/one.md").unlink(),
    "moved": lambda place: (place / "plans/one.md").rename(place / "plans/uno.md"),
    "same size, same time": lambda place: (
        change(place / "plans/one.md", b"9"),
        os.utime(place / "plans/one.md", ns=(0, 0)),
    ),
}
NO_CHANGES = {
    "elsewhere": lambda place: change(place / "src/main.py", b"y"),
    "touched": lambda place: os.utime(place / "ROADMAP.md"),
    "mode": lambda place: (place / "ROADMAP.md").chmod(0o600),
    "same name deeper": lambda place: change(place / "src/ROADMAP.md", b"y"),
    "link to elsewhere": lambda place: (place / "plans/link").symlink_to("../src"),
    "pipe": lambda place: os.mkfifo(place / "plans/pipe"),
    "rewritten with the same": lambda place: change(place / "ROADMAP.md", FILES["ROADMAP.md"]),
    "state": lambda place: change(place / "plans/.git/index", b"y"),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_starts_one_run_when_it_has_settled(how: str, workspace: Path) -> None:
    """Whatever way a watched file changes, one run starts after it was left alone for the time to settle."""
    guard(workspace, FILES).hf.close()
    with watchman(workspace, PLANS) as man:
        assert man.after(seconds=1) == man.after(seconds=60) == []
        CHANGES[how](workspace)
        assert man.after(seconds=1) == man.after(seconds=4) == []
        (firing,) = man.after(seconds=1)
        assert (firing.trigger, firing.kind) == ("plans", "changed")
        assert "ROADMAP.md" in firing.what or "plans/" in firing.what
        assert man.after(seconds=60) == []


@pytest.mark.parametrize("how", NO_CHANGES)
def test_what_is_no_change_of_content_starts_nothing(how: str, workspace: Path) -> None:
    """Other files, a touch, a mode, a link, a pipe, or the same bytes again start no run."""
    guard(workspace, FILES).hf.close()
    with watchman(workspace, PLANS) as man:
        man.after(seconds=1)
        NO_CHANGES[how](workspace)
        assert man.after(seconds=1) == man.after(seconds=10) == []
        assert man.told == []


def test_who_keeps_writing_is_waited_for(workspace: Path) -> None:
    """While a file changes again and again nothing starts; what was changed back starts nothing at all."""
    guard(workspace, FILES).hf.close()
    with watchman(workspace, PLANS) as man:
        man.after(seconds=1)
        for n in range(10):
            change(workspace / "ROADMAP.md", b"draft %d" % n)
            assert man.after(seconds=4) == []
        change(workspace / "ROADMAP.md", FILES["ROADMAP.md"])
        assert man.after(seconds=4) == man.after(seconds=60) == []


def test_there_and_back_and_there_again_are_two_runs(workspace: Path) -> None:
    """A content that was seen before starts a run again when it comes back."""
    guard(workspace, FILES).hf.close()
    with watchman(workspace, PLANS) as man:
        man.after(seconds=1)
        for data in (b"B", FILES["ROADMAP.md"], b"B"):
            change(workspace / "ROADMAP.md", data)
            assert man.after(seconds=1) == []
            assert len(man.after(seconds=5)) == 1


def test_what_changed_while_nobody_watched_is_seen(workspace: Path) -> None:
    """A change between two watches starts one run in the second; a first watch starts none for what it finds."""
    guard(workspace, FILES).hf.close()
    with watchman(workspace, PLANS) as man:
        man.after(seconds=1)
    change(workspace / "plans/one.md", b"later")
    with watchman(workspace, PLANS, now=NOON + timedelta(days=1)) as man:
        assert man.after(seconds=0) == []
        assert len(man.after(seconds=5)) == 1
    other = PLANS._replace(changed=("plans",))
    with watchman(workspace, other, now=NOON + timedelta(days=2)) as man:
        assert man.after(seconds=0) == man.after(seconds=60) == []


def test_a_second_change_in_the_same_tick_is_seen(workspace: Path) -> None:
    """A change that leaves inode, size and times as they were is seen as long as the file is fresh."""
    guard(workspace, FILES).hf.close()
    with watchman(workspace, PLANS) as man:
        change(workspace / "ROADMAP.md", b"- [ ] b")
        man.after(seconds=1)
        source = man.watch._sources["plans"]
        assert isinstance(source, trigger_sources.ChangedFiles)
        before = source._known["ROADMAP.md"]
        assert not before.sure
        (workspace / "ROADMAP.md").write_bytes(b"- [ ] c")
        # As if the clock had not ticked in between.
        source._known["ROADMAP.md"] = before._replace(row=trigger_sources._row(os.stat(workspace / "ROADMAP.md")))
        man.after(seconds=1)
        assert len(man.after(seconds=5)) == 1


class Counting(Calls):
    """The real kernel, counting what is opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []

        def open_beneath(path: str, flags: int, root: int) -> int:
            self.opened.append(path)
            return Calls.open_beneath(path, flags, root)

        self.open_beneath = open_beneath  # type: ignore[method-assign]


def test_a_look_costs_what_is_watched_and_reads_what_is_new(workspace: Path) -> None:
    """A look opens the directories that the patterns begin with, and a file only when it is new or was changed."""
    fill(workspace, {**FILES, **{f"src/{n}/{n}.py": b"x" for n in range(50)}})
    guard(workspace, {}).hf.close()
    calls = Counting()
    with watchman(workspace, PLANS, calls=calls) as man:
        # Files that were made just now are read again for two seconds; these are old.
        man.after(seconds=1)
        source = man.watch._sources["plans"]
        assert isinstance(source, trigger_sources.ChangedFiles)
        source._known = {path: seen._replace(sure=True) for path, seen in source._known.items()}
        calls.opened.clear()
        man.after(seconds=1)
        assert sorted(calls.opened) == ["", "", "plans", "plans/deep"]
        change(workspace / "plans/deep/two.md", b"other")
        calls.opened.clear()
        man.after(seconds=1)
        assert sorted(calls.opened) == ["", "", "plans", "plans/deep", "plans/deep/two.md"]


def test_links_are_not_followed_out_of_the_workspace(workspace: Path, tmp_path: Path) -> None:
    """A watched directory that becomes a link leads nowhere: what is behind it is not seen."""
    guard(workspace, FILES).hf.close()
    (tmp_path / "outside").mkdir()
    with watchman(workspace, PLANS) as man:
        man.after(seconds=1)
        (workspace / "plans").rename(tmp_path / "away")
        (workspace / "plans").symlink_to(tmp_path / "outside")
        man.after(seconds=1)
        assert len(man.after(seconds=5)) == 1  # the plans are gone
        change(tmp_path / "outside/new.md", b"x")
        assert man.after(seconds=1) == man.after(seconds=60) == []


def test_too_many_files_are_told_once_and_stop_no_other_trigger(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pattern that covers too much is told, once; the others go on."""
    guard(workspace, {"ROADMAP.md": b"old", **{f"plans/{n}": b"" for n in range(12)}}).hf.close()
    monkeypatch.setattr(trigger_sources, "MOST_FILES", 10)
    few = PLANS._replace(name="few", changed=("ROADMAP.md",))
    with watchman(workspace, PLANS, few) as man:
        man.after(seconds=1)
        change(workspace / "ROADMAP.md", b"new")
        man.after(seconds=1)
        assert [firing.trigger for firing in man.after(seconds=10)] == ["few"]
        assert [told.trigger for told in man.told if told.tale == "left"] == ["plans"]


@pytest.mark.parametrize(
    ("pattern", "path", "seen"),
    [
        ("*.md", "new.md", True),
        ("*.md", "src/new.md", False),
        ("plans/*.md", "plans/new.md", True),
        ("plans/*.md", "plans/new.txt", False),
        ("plans/**/two.md", "plans/x/y/two.md", True),
        ("plans", "plans/x/y.md", True),
        ("plans/one.md", "plans/one.md", True),
        ("nowhere/**", "nowhere/x", True),
    ],
)
def test_patterns_say_which_files_count(pattern: str, path: str, seen: bool, workspace: Path) -> None:
    """A pattern is read from the top of the workspace; a name alone means that file there."""
    guard(workspace, FILES).hf.close()
    with watchman(workspace, PLANS._replace(changed=(pattern,))) as man:
        man.after(seconds=1)
        change(workspace / path, b"something new")
        man.after(seconds=1)
        assert len(man.after(seconds=10)) == seen
