"""A home on the disk: it outlives a run, is written through HOME alone, and is counted as the disk it is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from holdfast.errors import InvalidInput, SandboxUnavailable
from holdfast.sandbox import shown
from holdfast.sandbox.confined import SHIFT, Confined
from holdfast.sandbox.profile import Profile
from sandbox.cell import PLAIN, QUICK, SECRET, Cell, said

MB = 1 << 20


def made(cell: Cell, path: Path) -> Path:
    """A directory that belongs to whoever is inside."""
    path.mkdir(parents=True)
    owner = SHIFT if cell.root else os.lstat(cell.place).st_uid
    os.chown(path, owner, owner)
    path.chmod(0o700)
    return path


@pytest.fixture
def kept(cell: Cell) -> Path:
    return made(cell, cell.place / "kept")


def at_home(home: Path | str) -> Profile:
    return PLAIN._replace(home=str(home))


def test_what_is_written_at_home_is_there_in_the_next_run(cell: Cell, kept: Path) -> None:
    """HOME is the directory itself, private to the program, and keeps what one run left for the next."""
    assert said(cell.run("sh", "-c", "echo $HOME; echo mine > ~/a", profile=at_home(kept))) == f"{shown.HOME}\n"
    assert (kept / "a").read_bytes() == b"mine\n"
    assert said(cell.run("sh", "-c", "cat ~/a; mkdir -p ~/.config/x && stat -c %u ~", profile=at_home(kept))) == (
        f"mine\n{0 if cell.root else os.lstat(cell.place).st_uid}\n"
    )
    assert cell.written() == {}


def test_without_a_home_nothing_is_kept(cell: Cell) -> None:
    """Without one, HOME is scratch space and empty again in the next run."""
    assert cell.run("sh", "-c", "echo x > ~/a; test -s ~/a").succeeded
    assert said(cell.run("sh", "-c", "ls -A ~")) == ""


def test_a_home_is_nowhere_else(cell: Cell, kept: Path) -> None:
    """Its own path does not exist inside; a marker in it is found below HOME only."""
    (kept / "marker-of-home").write_bytes(b"")
    os.chown(kept / "marker-of-home", os.lstat(kept).st_uid, -1)
    roots = "/bin/ls / | grep -v proc"
    ran = cell.run(
        "sh", "-c", f"ls {kept}; cd /; find $({roots}) -name marker-of-home 2>/dev/null", profile=at_home(kept)
    )
    assert "No such file" in said(ran)
    assert [line for line in said(ran).splitlines() if line.endswith("marker-of-home")] == [
        f"{shown.HOME[1:]}/marker-of-home"
    ]


@pytest.mark.parametrize(
    "where", ["in the workspace", "the layer", "around the workspace", "in what is readable", "in what is writable"]
)
def test_a_home_that_would_be_seen_twice_is_refused(cell: Cell, kept: Path, where: str) -> None:
    """Where the same directory would also be part of something else that is shown, nothing is started."""
    tools = made(cell, cell.place / "tools")
    homes = {
        "in the workspace": (made(cell, Path(cell.view.base) / "inner"), {}),
        "the layer": (made(cell, cell.upper / "home"), {}),
        "around the workspace": (cell.place, {}),
        "in what is readable": (made(cell, tools / "home"), {"readable": (str(tools),)}),
        "in what is writable": (tools, {"writable": (str(tools),)}),
    }
    home, more = homes[where]
    with pytest.raises(SandboxUnavailable, match="would be both a home and part of what is shown"):
        cell.run("true", profile=at_home(home)._replace(**more))  # type: ignore[arg-type]


def test_a_home_under_a_cover_is_seen_once(cell: Cell) -> None:
    """A directory of ours in the workspace, which looks empty inside, may hold a home."""
    home = made(cell, cell.workspace / ".holdfast" / "homes" / "one")
    ran = cell.run("sh", "-c", "echo x > ~/a; ls -A .holdfast", profile=at_home(home))
    assert (said(ran), (home / "a").read_bytes()) == ("", b"x\n")


def test_nothing_else_is_shown_inside_a_home(cell: Cell, kept: Path) -> None:
    """A mount in it would leave a directory on the disk."""
    view = cell.view._replace(path=f"{shown.HOME}/workspace")
    with pytest.raises(SandboxUnavailable, match="inside a home"):
        cell.run("true", profile=at_home(kept), view=view)
    assert os.listdir(kept) == []


def test_a_home_that_is_none_is_refused(cell: Cell, kept: Path) -> None:
    """Missing, a file, a link, or a relative path: no program is started with another home instead."""
    os.symlink(kept, cell.place / "link")
    for path in (cell.place / "missing", cell.secret, cell.place / "link"):
        with pytest.raises(SandboxUnavailable, match="no home for a program"):
            cell.run("true", profile=at_home(path))
    with pytest.raises(InvalidInput):
        cell.run("true", profile=at_home("relative"))


@pytest.mark.root
def test_a_home_of_roots_program_belongs_to_the_sandbox(public: Path) -> None:
    """Root's own directory cannot be one: the program would write what root owns."""
    cell = Cell(public / "cell", root=True)
    (cell.place / "roots").mkdir()
    with pytest.raises(SandboxUnavailable, match=f"must belong to uid {SHIFT}"):
        cell.run("true", profile=at_home(cell.place / "roots"))


FILL = "import os, time\nn = 0\nwhile True: n += 1; open({}, 'wb').write(b'x' * (1 << 20)); time.sleep(0.005)"
AT_HOME = "os.environ['HOME'] + f'/f{n}'"
DELETED = (
    "import os, time\nfs = []\nwhile True:\n    p = os.environ['HOME'] + '/f'; f = open(p, 'wb', 0); os.unlink(p)\n"
    "    fs.append(f); f.write(b'x' * (1 << 20)); time.sleep(0.005)"
)
WAYS = {
    "at home": FILL.format(AT_HOME),
    "half of it at home": FILL.format(f"{AT_HOME} if n % 2 else f'f{{n}}'"),
    "deleted and still open": DELETED,
}


@pytest.mark.parametrize("way", WAYS)
def test_what_is_written_at_home_counts_as_disk(cell: Cell, kept: Path, way: str) -> None:
    """Home and workspace share one limit; a home on the disk is not memory."""
    limits = QUICK._replace(disk_bytes=20 * MB)
    ran = cell.python(WAYS[way], profile=at_home(kept)._replace(limits=limits))
    assert ran.limit == "disk", (ran, said(ran))
    size = sum(path.stat().st_size for place in (kept, cell.upper) for path in place.rglob("*") if path.is_file())
    assert size < 300 * MB


def test_a_full_disk_is_not_taken_for_memory(cell: Cell, kept: Path) -> None:
    """With a home on a disk that holds far more than the memory limit, an ordinary program is left alone."""
    about = os.statvfs(kept)
    used = (about.f_blocks - about.f_bfree) * about.f_frsize
    limits = QUICK._replace(memory_bytes=100 * MB)
    if used <= limits.memory_bytes:
        pytest.skip("this disk is too empty to tell")
    ran = cell.run("sleep", "0.3", profile=at_home(kept)._replace(limits=limits))
    assert (ran.limit, ran.finished.exit_code) == ("", 0)


def test_scratch_space_is_still_memory_with_a_home_on_the_disk(cell: Cell, kept: Path) -> None:
    """Temporary files count as memory, wherever HOME is."""
    code = "import time\nf = open('/tmp/x', 'wb')\nwhile True: f.write(b'x' * (2 << 20)); time.sleep(0.002)"
    ran = cell.python(code, profile=at_home(kept)._replace(limits=QUICK._replace(memory_bytes=100 * MB)))
    assert ran.limit == "memory" or "No space left" in said(ran), (ran, said(ran))


def test_what_a_home_held_before_does_not_count(cell: Cell, kept: Path) -> None:
    """The limit is for what this run writes."""
    code = "import os, time; open(os.environ['HOME'] + {!r}, 'wb').write(b'x' * (15 << 20)); time.sleep(0.3)"
    for name in ("/a", "/b"):
        profile = at_home(kept)._replace(limits=QUICK._replace(disk_bytes=20 * MB))
        assert cell.python(code.format(name), profile=profile).limit == ""


# ── programs installed where only their owner may go ──

TOOL = """#!/usr/bin/env node
const words = require('../lib/words.js');
const fs = require('fs');
try { fs.writeFileSync(__dirname + '/planted', 'x'); console.log('ESCAPED'); } catch (e) { console.log(e.code); }
console.log(words(process.argv.slice(2)), process.execPath);
"""


@pytest.fixture
def installed(cell: Cell) -> Path:
    """An npm tree with a chain of links, and a node of its own outside /usr; all of it private to its owner."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    place = cell.place / "x"
    package = place / "node_modules" / "tool"
    for directory in (package / "bin", package / "lib", place / "node_modules" / ".bin", place / "bin", place / "node"):
        directory.mkdir(parents=True)
    (package / "bin" / "tool.js").write_text(TOOL)
    (package / "bin" / "tool.js").chmod(0o700)
    (package / "lib" / "words.js").write_text("module.exports = words => words.join('+');\n")
    (package / "lib" / "words.js").chmod(0o600)
    os.symlink("../tool/bin/tool.js", place / "node_modules" / ".bin" / "tool")
    os.symlink(place / "node_modules" / ".bin" / "tool", place / "bin" / "tool")
    shutil.copy(os.path.realpath(node), place / "node" / "node")
    owner = os.lstat(cell.place).st_uid
    for path in (place, *place.rglob("*")):
        os.lchown(path, owner, owner)
    for path in (place, package, place / "node"):
        path.chmod(0o700)
    return place


def call(cell: Cell, place: Path, readable: tuple[Path, ...]) -> Confined:
    env = {"PATH": f"{place}/node:{place}/bin:/bin"}
    limits = QUICK._replace(memory_bytes=1 << 30, disk_bytes=1 << 30)
    profile = PLAIN._replace(readable=tuple(map(str, readable)), limits=limits)
    return cell.run("tool", "a", "b", profile=profile, env=env)


def test_a_program_in_a_private_directory_runs_when_it_is_readable(cell: Cell, installed: Path) -> None:
    """Links upon links, files of mode 0600, an interpreter of its own: it runs, and cannot change itself."""
    ran = call(cell, installed, (installed,))
    assert said(ran) == f"EROFS\na+b {installed}/node/node\n" or said(ran) == f"EACCES\na+b {installed}/node/node\n"
    assert SECRET.decode() not in said(ran)


def test_the_parts_of_a_program_can_be_named_one_by_one(cell: Cell, installed: Path) -> None:
    """Only what it needs of the directory is named: the packages, the links and the interpreter."""
    parts = (installed / "node_modules", installed / "bin", installed / "node" / "node")
    assert "a+b" in said(call(cell, installed, parts))


def test_a_program_that_is_not_readable_is_not_there(cell: Cell, installed: Path) -> None:
    """Without being named it cannot be started."""
    with pytest.raises(InvalidInput, match="cannot be started"):
        call(cell, installed, ())
