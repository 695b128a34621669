"""Files: what is hidden cannot be read, what is outside cannot be written, what is written lands in the layer."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import pytest

from guarded import USER
from holdfast.errors import InvalidInput, SandboxUnavailable, Unsupported
from holdfast.sandbox.confined import SHIFT, is_real_root
from sandbox.cell import PLAIN, SECRET, Cell, attempt, contents, said, stayed_in


def test_a_hidden_file_cannot_be_read(cell: Cell) -> None:
    """Hidden files are empty and hidden directories have nothing in them, by every road that leads there."""
    os.symlink(".env", cell.workspace / "link")
    ran = cell.python(
        "import os\n"
        "for path in ('.env', 'link', './/.env', os.getcwd() + '/.env', '/proc/self/cwd/.env'):\n"
        "    print(path, open(path).read())\n"
        "print(os.listdir('.holdfast'), 'TRIED')"
    )
    stayed_in(ran)
    assert SECRET.decode() not in said(ran)
    assert "[] TRIED" in said(ran)


@pytest.mark.parametrize(
    "statement",
    [
        "open('.env', 'w').write('x')",
        "os.unlink('.env')",
        "os.rename('.env', 'other')",
        "os.rename('file', '.env')",
        "os.rmdir('.holdfast')",
        "open('.holdfast/new', 'w')",
        "os.rename('.holdfast', 'other')",
        "os.link('.env', 'other')",
    ],
)
def test_a_hidden_path_cannot_be_changed(cell: Cell, statement: str) -> None:
    """What is hidden can neither be written, replaced, moved nor linked."""
    stayed_in(cell.python(attempt(statement)))
    assert cell.written() == {}


def test_a_link_that_is_to_be_hidden_hides_what_it_names(cell: Cell) -> None:
    """When a hidden path is a link into the workspace, its target is covered; one that leads out leads nowhere."""
    (cell.workspace / "deep").mkdir()
    (cell.workspace / "deep" / "real").write_bytes(SECRET)
    os.symlink("deep/real", cell.workspace / "inwards")
    os.symlink(str(cell.workspace / "deep" / "real"), cell.workspace / "absolute")
    os.symlink(str(cell.secret), cell.workspace / "outwards")
    view = cell.view._replace(masked=("inwards", "outwards"))
    ran = cell.run("cat", "deep/real", "absolute", "inwards", "outwards", view=view)
    assert SECRET.decode() not in said(ran)
    assert "outwards: No such file" in said(ran)


def test_a_hidden_path_that_is_not_there_changes_nothing(cell: Cell) -> None:
    """Nothing is made in the layer for a path that could be hidden but does not exist."""
    before = os.listdir(cell.view.base if cell.copied else cell.upper)
    ran = cell.run("true", view=cell.view._replace(masked=("absent", "not/there", ".env")))
    assert ran.succeeded
    assert os.listdir(cell.upper) == before


def test_the_profile_hides_too(cell: Cell) -> None:
    """Absolute paths hidden by the profile are covered, inside the workspace and in what else is shown."""
    (cell.place / "tools").mkdir()
    (cell.place / "tools" / "token").write_bytes(SECRET)
    (cell.place / "tools" / "tool").write_bytes(b"useful")
    tools = str(cell.place / "tools")
    hidden = (f"{tools}/token", f"{cell.workspace}/file", "/usr/include")
    ran = cell.run(
        "cat", f"{tools}/tool", f"{tools}/token", "file", profile=PLAIN._replace(readable=(tools,), hidden=hidden)
    )
    assert said(ran) == "useful"
    assert ran.finished.exit_code == 0


def test_nothing_of_the_host_is_there_that_was_not_named(cell: Cell) -> None:
    """Homes, keys, sockets, other workspaces and the host's own state do not exist inside."""
    places = [str(cell.secret), "/etc/shadow", "/etc/ssh", "/home", "/root/.ssh", "/var/lib", "/var/run/docker.sock"]
    places += [
        "/run/docker.sock",
        "/sys/kernel",
        "/boot",
        "/mnt",
        str(cell.place / "layer0"),
        "/proc/kcore.x",
        "/run/user",
    ]
    stayed_in(cell.python(attempt(*(f"os.stat({place!r})" for place in places))))


@pytest.mark.parametrize(
    "path", ["/usr/bin/planted", "/etc/passwd", "/etc/planted", "/planted", "/run/planted", "/dev/planted"]
)
def test_writing_outside_is_refused(cell: Cell, path: str) -> None:
    """Outside the workspace and scratch space everything is read-only."""
    before = Path("/etc/passwd").read_bytes()
    stayed_in(cell.python(attempt(f"open({path!r}, 'a').write('x')")))
    assert Path("/etc/passwd").read_bytes() == before
    assert path == "/etc/passwd" or not os.path.exists(path)


def test_writing_beside_the_workspace_stays_inside(cell: Cell) -> None:
    """A file written beside the workspace, where scratch space shows, is not there outside."""
    cell.run("sh", "-c", f"echo x > {cell.place}/planted; echo x > /tmp/holdfast-planted; echo x > ~/planted")
    assert not (cell.place / "planted").exists()
    assert not Path("/tmp/holdfast-planted").exists()


def test_what_is_written_lands_in_the_layer(cell: Cell) -> None:
    """New, changed and deleted files are found in the layer, or the copy; the workspace keeps every byte."""
    (cell.workspace / "gone").write_bytes(b"x")
    before = {path: path.read_bytes() for path in cell.workspace.iterdir() if path.is_file()}
    ran = cell.run("sh", "-c", "echo new > new; echo more >> file; rm gone; mkdir d; echo x > d/e")
    assert ran.succeeded, said(ran)
    assert cell.written() == {"new": b"new\n", "file": b"old\nmore\n", "d/e": b"x\n"}
    if cell.copied:
        assert not os.path.lexists(cell.upper / "gone")
    else:
        about = os.lstat(cell.upper / "gone")
        assert stat.S_ISCHR(about.st_mode) and about.st_rdev == 0
    assert {path: path.read_bytes() for path in cell.workspace.iterdir() if path.is_file()} == before
    owner = SHIFT if cell.root else os.lstat(cell.workspace).st_uid
    assert {os.lstat(cell.upper / name).st_uid for name in cell.written()} == {owner}


def test_a_layer_is_used_by_one_run_after_another(cell: Cell) -> None:
    """The second run sees what the first one wrote, and adds to it."""
    for number in range(3):
        assert cell.run("sh", "-c", f"cat log* | wc -l; echo x >> log{number}").succeeded
    assert sorted(cell.written()) == ["log0", "log1", "log2"]


def test_a_second_layer_leaves_the_first_alone(public: Path) -> None:
    """With two layers, both are seen and only the second is written."""
    cell = Cell(public / "cell", root=is_real_root(), layers=2)
    first = cell.view._replace(layers=cell.view.layers[:1])
    assert cell.run("sh", "-c", "echo one > one; rm file", view=first).succeeded
    before = contents(Path(first.layers[0].upper))
    ran = cell.run("sh", "-c", "cat one; ls file; echo two > two; echo changed >> one; rm -f one; echo again > file")
    assert said(ran).startswith("one\n") and "ls:" in said(ran)
    assert contents(Path(first.layers[0].upper)) == before
    assert contents(cell.upper) == {"two": b"two\n", "file": b"again\n"}


def test_layers_can_be_removed_by_ordinary_means(cell: Cell) -> None:
    """After a run nothing of a layer, or of a copy, resists its owner."""
    cell.run("touch", "x")
    place = cell.upper if cell.copied else cell.place / "layer0"
    cell.act(lambda: shutil.rmtree(place))
    assert not place.exists()


def test_a_view_without_layers_is_written_itself(public: Path) -> None:
    """A copy made for the purpose takes the writes directly, with hidden paths still covered."""
    cell = Cell(public / "cell", root=False, layers=0)
    ran = cell.run("sh", "-c", "echo x > new; cat .env")
    assert said(ran) == ""
    assert (cell.workspace / "new").read_bytes() == b"x\n"


@pytest.mark.root
def test_a_copy_of_root_can_be_shown_with_its_owners(public: Path) -> None:
    """A copy that belongs to root is written by the program inside, and still belongs to root."""
    cell = Cell(public / "cell", root=True, layers=0)
    ran = cell.run("sh", "-c", "id -u; stat -c %u file; echo x > new", view=cell.view._replace(shift=0))
    assert said(ran) == "0\n0\n"
    assert os.lstat(cell.workspace / "new").st_uid == 0


@pytest.mark.parametrize("name", ["with space", "a,b:c\\d", "quo'te\"s", "line\nbreak", "ü\udcff", "-x"])
def test_odd_names_are_just_names(public: Path, name: str) -> None:
    """No character in the path of a workspace or of its layers means anything to the kernel's options."""
    cell = Cell(public / name, root=is_real_root())
    ran = cell.run("sh", "-c", "echo new > file; cat .env")
    assert ran.succeeded, said(ran)
    assert contents(cell.upper) == {"file": b"new\n"}


def test_named_files_are_readable_by_their_owner_only_as_named(cell: Cell) -> None:
    """A private file that the profile names can be read, not written; its neighbour is not there."""
    cell.secret.chmod(0o600)
    ran = cell.run(
        "sh", "-c", f"cat {cell.secret}; echo x > {cell.secret}", profile=PLAIN._replace(readable=(str(cell.secret),))
    )
    assert SECRET.decode() in said(ran)
    assert "cannot create" in said(ran)
    assert cell.secret.read_bytes() == SECRET


def test_a_cache_can_be_written_to_and_stays_as_it_is(cell: Cell) -> None:
    """A program sees what is in it, adds to it and changes it; the next one, and the host, see none of that."""
    cache = cell.place / "ca,che:x" / "cache"
    (cache / "00").mkdir(parents=True)
    (cache / "00" / "built").write_bytes(b"before\n")
    if not cell.root and os.geteuid() == 0:
        for path in (cache.parent, cache, *cache.rglob("*")):
            os.chown(path, USER, USER)
    profile = PLAIN._replace(overlaid=(str(cache),))
    words = f"cd '{cache}' && cat 00/built && echo poisoned > 00/built && mkdir 01 && echo new > 01/new && cat */*"
    for _ in range(2):
        ran = cell.run("sh", "-ec", words, profile=profile)
        assert ran.succeeded and said(ran) == "before\npoisoned\nnew\n"
        assert contents(cache) == {"00/built": b"before\n"}
    assert cell.written() == {}


def test_a_writable_directory_is_the_real_one(cell: Cell) -> None:
    """What the profile makes writable is written on the host; as root only when it belongs to the sandbox's uid."""
    shared = cell.place / "shared"
    shared.mkdir()
    os.chown(shared, *((SHIFT, SHIFT) if cell.root else (os.lstat(cell.place).st_uid,) * 2))
    profile = PLAIN._replace(writable=(str(shared),))
    assert cell.run("touch", f"{shared}/made", profile=profile).succeeded
    assert os.listdir(shared) == ["made"]
    if cell.root:
        os.chown(shared, 0, 0)
        with pytest.raises(SandboxUnavailable):
            cell.run("true", profile=profile)


def test_a_view_that_would_replace_the_sandbox_itself_is_refused(cell: Cell) -> None:
    """A workspace that contains /proc, /dev or our own corner cannot be shown."""
    for path in ("/", "/run", "/dev", "/proc/sys"):
        with pytest.raises(Unsupported):
            cell.run("true", view=cell.view._replace(path=path))


def test_a_program_that_is_not_there_is_named(cell: Cell) -> None:
    """A command that does not exist inside is invalid input, not a failed run."""
    for name in ("no-such-program", "./file", str(cell.secret)):
        with pytest.raises(InvalidInput, match="cannot be started"):
            cell.run(name)


def test_a_link_among_what_is_covered_stops_no_program(cell: Cell) -> None:
    """One that leads nowhere, or to what is not shown, stays as it is; what is shown behind one is covered, under each
    of its names."""
    tools = cell.place / "tools"
    (tools / "etc").mkdir(parents=True)
    (tools / "etc" / "token").write_bytes(SECRET)
    (tools / "tool").write_bytes(b"a tool")
    (tools / ".env").symlink_to("/nowhere/at/all")
    (tools / ".netrc").symlink_to(cell.secret)
    (tools / ".npmrc").symlink_to("etc/token")
    (cell.place / "other-name").symlink_to("tools")
    if not cell.root and os.geteuid() == 0:
        for path in (tools, *tools.rglob("*")):
            os.chown(path, USER, USER, follow_symlinks=False)
    names = (str(tools), str(cell.place / "other-name"))
    hidden = tuple(f"{tools}/{name}" for name in (".env", ".netrc", ".npmrc"))
    files = [f"{name}/{file}" for name in names for file in (".netrc", ".npmrc", "etc/token", "tool")]
    ran = cell.run("cat", *files, profile=PLAIN._replace(readable=names, hidden=hidden))
    assert said(ran).count("a tool") == 2
    assert SECRET.decode() not in said(ran)
