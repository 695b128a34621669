"""The HOME of an agent: what we write gets there whatever stands in the way, and what we read is never led astray."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from guarded import as_user, at_most
from holdfast.disk.confined import Root
from holdfast.errors import Blocked
from holdfast.workspace.home import Home, give_back

SECRET = b"of the host\n"


@contextmanager
def home_at(place: Path, shift: int = 0) -> Iterator[Home]:
    place.mkdir(mode=0o700, exist_ok=True)
    (place.parent / "outside.txt").write_bytes(SECRET)
    (place.parent / "outside").mkdir(exist_ok=True)
    with Root(str(place)) as root:
        yield Home(root, shift)


def _fifo(place: Path) -> None:
    os.mkfifo(place)


def _socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/cwd/{os.path.relpath(place)}" if len(str(place)) > 100 else str(place))


def _full_directory(place: Path) -> None:
    (place / "deep/er").mkdir(parents=True)
    (place / "deep/er/file").write_text("x")


def _closed_directory(place: Path) -> None:
    _full_directory(place)
    (place / "deep").chmod(0)
    place.chmod(0)


def _deep_directory(place: Path) -> None:
    """Deeper than a path can be long."""
    here = os.open(place.parent, os.O_RDONLY)
    name = place.name
    for _ in range(1200):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here, name = inner, "deeper"
    os.close(here)


# What an agent may have put where we want to write a file, or the folder of one.
IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "a file": lambda place: place.write_text("old"),
    "a closed file": lambda place: (place.write_text("old"), place.chmod(0)),
    "a link to a file of the host": lambda place: place.symlink_to("../outside.txt"),
    "a link to a folder of the host": lambda place: place.symlink_to("../outside"),
    "a link to nothing": lambda place: place.symlink_to("/nonexistent/x"),
    "a link to itself": lambda place: place.symlink_to(place.name),
    "a hard link": lambda place: os.link(place.parent.parent / "outside.txt", place),
    "a fifo": _fifo,
    "a socket": _socket,
    "an empty folder": lambda place: place.mkdir(),
    "a full folder": _full_directory,
    "a closed folder": _closed_directory,
}


def _outside(place: Path) -> dict[str, bytes]:
    """The files beside a home."""
    beside = [path for path in place.parent.iterdir() if path != place]
    return {path.name: path.read_bytes() for path in beside if path.is_file()}


def _put_all(place: Path) -> None:
    """Every obstacle in turn, as a file's place and as a folder's."""
    for number, (what, make) in enumerate(IN_THE_WAY.items()):
        here = place / str(number)
        with home_at(here / "home") as home, at_most(20):
            before = _outside(here / "home")
            for path in (f"{number}.file", f"{number}.folder/settings.json"):
                make(here / "home" / path.split("/")[0])
                home.put(path, b"ours\n")
                assert (here / "home" / path).read_bytes() == b"ours\n", what
                assert not (here / "home" / path).is_symlink()
                assert (here / "home" / path).stat().st_mode & 0o777 == 0o600
            assert _outside(here / "home") == before, what
            assert os.listdir(here / "outside") == []


def test_what_we_write_replaces_whatever_stands_there(tmp_path: Path) -> None:
    """Links, FIFOs, sockets, folders, closed or full: our file is there afterwards, and nothing outside was touched."""
    for number in range(len(IN_THE_WAY)):
        (tmp_path / str(number)).mkdir()
    _put_all(tmp_path)


def test_a_folder_deeper_than_a_path_is_long_is_no_obstacle(tmp_path: Path) -> None:
    """It goes like any other."""
    with home_at(tmp_path / "home") as home, at_most(20):
        _deep_directory(tmp_path / "home/settings.json")
        home.put("settings.json", b"ours")
        assert home.read("settings.json", 10) == b"ours"


def test_the_same_without_the_rights_of_root(public: Path) -> None:
    """Root passes every closed folder; an ordinary user must open it first."""

    def act(workspace: Path) -> None:
        for number in range(len(IN_THE_WAY)):
            (workspace / str(number)).mkdir()
        _put_all(workspace)

    as_user(public, act)


def test_a_home_that_was_closed_is_opened_again(public: Path) -> None:
    """An agent that takes the rights to its own HOME away does not keep us out of it."""

    def act(workspace: Path) -> None:
        with home_at(workspace / "home") as home:
            home.put("a/b.txt", b"1")
            (workspace / "home/a").chmod(0)
            (workspace / "home").chmod(0)
            home.put("a/b.txt", b"2")
            assert (workspace / "home/a/b.txt").read_bytes() == b"2"

    as_user(public, act)


@pytest.mark.parametrize("path", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/.", "a/..", "a\0b"])
def test_a_path_that_is_no_place_in_a_home_is_refused(path: str, tmp_path: Path) -> None:
    """The names of files come from adapters; a mistake there ends here."""
    with home_at(tmp_path / "home") as home, pytest.raises(Blocked):
        home.put(path, b"x")
    assert sorted(os.listdir(tmp_path)) == ["home", "outside", "outside.txt"]


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    """What cannot be written is no defect of ours: Blocked, with the path."""
    with home_at(tmp_path / "home") as home, pytest.raises(Blocked, match="cannot be written"):
        home.put("x" * 300, b"x")


UNREADABLE: dict[str, Callable[[Path], object]] = {
    what: IN_THE_WAY[what] for what in IN_THE_WAY if what not in ("a file", "a closed file", "a hard link")
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_only_a_plain_file_is_read(what: str, tmp_path: Path) -> None:
    """A link is not followed, a FIFO not waited for, a folder not read: there is nothing."""
    with home_at(tmp_path / "home") as home, at_most(20):
        UNREADABLE[what](tmp_path / "home/session.json")
        assert home.read("session.json", 100) is None
        assert home.read("session.json/x", 100) is None


@pytest.mark.parametrize("path", ["", "missing", "../outside.txt", "/etc/passwd", "a\0b", "x" * 5000])
def test_a_name_that_leads_nowhere_gives_nothing(path: str, tmp_path: Path) -> None:
    """A name may be made of what an agent said."""
    with home_at(tmp_path / "home") as home:
        assert home.read(path, 100) is None


def test_a_link_on_the_way_is_not_followed(tmp_path: Path) -> None:
    """A folder that is a link leads nowhere."""
    with home_at(tmp_path / "home") as home:
        (tmp_path / "outside/session.json").write_bytes(SECRET)
        (tmp_path / "home/logs").symlink_to("../outside")
        assert home.read("logs/session.json", 100) is None


def test_reading_is_bounded(tmp_path: Path) -> None:
    """Of a huge file only so much is read, also where it has holes."""
    with home_at(tmp_path / "home") as home, at_most(20):
        with open(tmp_path / "home/huge", "wb") as file:
            file.write(b"begin")
            file.truncate(1 << 40)
        found = home.read("huge", 3 << 20)
        assert found is not None and len(found) == 3 << 20 and found.startswith(b"begin")


def test_what_we_write_is_found_again(tmp_path: Path) -> None:
    """Twice the same place: the newest counts."""
    with home_at(tmp_path / "home") as home:
        home.put(".config/agent/settings.json", b"1")
        home.put(".config/agent/settings.json", b"22", 0o644)
        assert home.read(".config/agent/settings.json", 100) == b"22"
        assert home.read(".config/agent/settings.json", 1) == b"2"


def test_nothing_is_left_open(tmp_path: Path) -> None:
    """Neither success nor failure keeps a descriptor."""
    with home_at(tmp_path / "home") as home:
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            home.put("a/b/c.txt", b"x")
            home.read("a/b/c.txt", 10)
            home.read("a/b", 10)
            with pytest.raises(Blocked):
                home.put(f"a/{'x' * 300}/c", b"x")
        assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.root
def test_for_root_a_home_belongs_to_the_stranger_inside(tmp_path: Path) -> None:
    """Owners on the disk are higher by the shift, for folders and files, also where the agent gave them away."""
    with home_at(tmp_path / "home", shift=100_000) as home:
        home.put("a/b.txt", b"x")
        os.chown(tmp_path / "home/a", 0, 0)
        home.put("a/c.txt", b"x")
        for path in ("home", "home/a", "home/a/b.txt", "home/a/c.txt"):
            about = (tmp_path / path).stat()
            assert (about.st_uid, about.st_gid) == (100_000, 100_000), path


@pytest.mark.root
def test_what_a_person_makes_in_a_copy_becomes_the_stranger_s(tmp_path: Path) -> None:
    """Root's files and links belong to whom programs inside see; links are not followed; others stay as they are."""
    (tmp_path / "copy/inner").mkdir(parents=True)
    (tmp_path / "copy/inner/made.txt").write_text("x")
    (tmp_path / "outside.txt").write_text("x")
    (tmp_path / "copy/link").symlink_to("../outside.txt")
    (tmp_path / "copy/kept.txt").write_text("x")
    os.chown(tmp_path / "copy/kept.txt", 100_012, 100_034)
    (tmp_path / "copy/half.txt").write_text("x")
    os.chown(tmp_path / "copy/half.txt", 7, 100_034)
    give_back(str(tmp_path / "copy"), 100_000)
    owners = {
        name: (os.lstat(tmp_path / name).st_uid, os.lstat(tmp_path / name).st_gid)
        for name in ("copy/inner", "copy/inner/made.txt", "copy/link", "copy/kept.txt", "copy/half.txt", "outside.txt")
    }
    assert owners == {
        "copy/inner": (100_000, 100_000),
        "copy/inner/made.txt": (100_000, 100_000),
        "copy/link": (100_000, 100_000),
        "copy/kept.txt": (100_012, 100_034),
        "copy/half.txt": (100_007, 100_034),
        "outside.txt": (0, 0),
    }
