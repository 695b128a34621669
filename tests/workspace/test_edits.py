"""The short way of a capture gives the answers of the long one, and opens each directory of the workspace once."""

from __future__ import annotations

import errno
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.disk.calls import Calls
from holdfast.errors import Blocked
from holdfast.model.simulation import ByProduct
from holdfast.store.state import create_state
from holdfast.workspace.edits import AT_ONCE, batches
from holdfast.workspace.shadow import Shadow, open_shadow
from holdfast.workspace.site import Site
from holdfast.workspace.touched import Touch, Touched
from holdfast.workspace.tree import snapshot
from shaded import captured_by, changes, confined, fill, shaded, shell

# More directories than descriptors are kept, and more files than are taken at once.
MANY = {f"d{n:03}/e/f{m}": b"%d\n" % n for n in range(AT_ONCE + 30) for m in range(2)}


class CountingCalls(Calls):
    """The real kernel, and how often each path was opened below a root."""

    def __init__(self) -> None:
        self.opened: Counter[str] = Counter()

    def open_beneath(self, path: str, flags: int, root: int) -> int:  # type: ignore[override]
        self.opened[path] += 1
        return Calls.open_beneath(path, flags, root)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with shaded(tmp_path / "w", {"a": b"one\n", "d/a": b"two\n", "d/e/b": b"three\n"}) as opened:
        yield opened


@pytest.fixture(params=["overlay", "copy"])
def shadow(request: pytest.FixtureRequest, site: Site) -> Iterator[Shadow]:
    with open_shadow(site, request.param) as opened:
        yield opened


def git(place: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(place), *words], check=True, capture_output=True)


def test_each_directory_of_the_workspace_is_opened_once(tmp_path: Path) -> None:
    """Also where there are more of them than descriptors are kept; and no file of the workspace is opened at all."""
    place = tmp_path / "w"
    fill(place, MANY)
    create_state(str(place))
    calls = CountingCalls()
    with Site(str(place), calls) as site, open_shadow(site, "overlay") as shadow:
        shell(shadow, "for f in d*/e/f*; do echo more >> $f; done")
        captured_by(shadow)  # the same answers as without a look
        look = snapshot(site.path, None)
        site.workspace.forget()
        calls.opened.clear()
        assert changes(shadow.capture((), look)) == dict.fromkeys(MANY, "edited")
        directories = {os.path.dirname(path) for path in MANY} | {path.partition("/")[0] for path in MANY}
        assert calls.opened == dict.fromkeys(directories, 1)


@pytest.mark.parametrize(
    "script",
    [
        "echo x >> d/e/b; chmod 700 d",
        "echo x >> d/e/b; chmod 700 d/e",
        "rm -r d; mkdir -p d/e; echo three > d/e/b",
        "rm -r d; mkdir -p d/e; echo x > d/e/b; echo two > d/a",
        "mv d/e x; mkdir d/e; mv x/b d/e/b",
        "echo x >> a; ln a n; echo y >> d/a",
        "echo x >> d/e/b; echo x >> d/a; echo new > d/e/.hidden; echo 1 > 'd/e/odd name'",
        "echo x >> a; chmod 4755 a",
        "echo x >> d/a; mkfifo d/p",
        "head -c 300000 /dev/zero >> a; echo x >> d/a",
        "touch a d/a d/e/b d d/e",
    ],
)
def test_both_ways_say_the_same(shadow: Shadow, script: str) -> None:
    """Whatever else was done beside, above and below an edit, it is told the same with a look and without."""
    shell(shadow, script)
    captured_by(shadow)


def test_edits_in_a_refused_directory_are_refused(site: Site) -> None:
    """A directory that cannot land as it is holds back the edits in it, and not those further down."""
    with open_shadow(site, "overlay") as shadow:
        shell(shadow, "echo x >> d/a; echo x >> d/e/b")
        os.setxattr(os.path.join(shadow.view.layers[0].upper, "d"), "user.note", b"x")
        captured = captured_by(shadow)
    assert [remark.path for remark in captured.refused] == ["d", "d/a"]
    assert changes(captured) == {"d/e/b": "edited"}


def test_a_file_that_the_rules_ignore_is_not_read(tmp_path: Path) -> None:
    """An ignored file that was there before and was changed is a by-product, however large, and nothing opens it."""
    with shaded(tmp_path / "w", {".gitignore": b"*.o\n", "a.o": b"old\n", "src/a.c": b"c\n"}) as site:
        git(tmp_path / "w", "init", "-q")
        with open_shadow(site, "overlay") as shadow:
            shell(shadow, "echo new > a.o; echo x >> src/a.c")
            os.chmod(os.path.join(shadow.view.layers[0].upper, "a.o"), 0)
            captured = captured_by(shadow)
    assert changes(captured) == {"src/a.c": "edited"}
    assert captured.by_products == (ByProduct("a.o", 4),)


def test_an_ignored_directory_that_holds_a_repository_with_an_edit(tmp_path: Path) -> None:
    """What the outer rules ignore is needed where the inner ones do not: the edit lands, and nothing is listed."""
    with shaded(tmp_path / "w", {".gitignore": b"inner/\n", "inner/sub/a": b"a\n", "inner/b": b"b\n"}) as site:
        git(tmp_path / "w", "init", "-q")
        git(tmp_path / "w/inner", "init", "-q")
        for kind, script in (
            ("overlay", "echo x >> inner/b"),
            ("overlay", "touch inner/sub/a"),
            ("copy", "echo > inner/b"),
        ):
            with open_shadow(site, "overlay" if kind == "overlay" else "copy") as shadow:
                shell(shadow, script)
                assert captured_by(shadow).by_products == ()


def test_rules_that_came_after_the_look_count(tmp_path: Path) -> None:
    """A directory that was written to since the look is looked at again for rules of its own."""
    with shaded(tmp_path / "w", {"d/a.o": b"a\n", "d/b": b"b\n"}) as site:
        git(tmp_path / "w", "init", "-q")
        with open_shadow(site, "overlay") as shadow:
            confined(shadow.view, "/bin/sh", "-c", "sleep 0.05; echo x >> d/a.o; echo x >> d/b")
            look = snapshot(site.path, None)
            (tmp_path / "w/d/.gitignore").write_text("*.o\n")
            captured = shadow.capture((), look)
    assert changes(captured) == {"d/b": "edited"}
    assert captured.by_products == (ByProduct("d/a.o", 4),)


@given(st.lists(st.integers(0, 3 * AT_ONCE), max_size=8))
def test_no_more_than_some_are_taken_at_once(amounts: list[int]) -> None:
    """However many files directories hold, a batch has no more of both than are taken at once, and nothing is lost."""
    about = os.lstat("/")
    files = [[(f"d{n}", f"f{m}", f"d{n}/f{m}", about) for m in range(amount)] for n, amount in enumerate(amounts)]
    touched = [Touched(f"d{n}", found, [Touch(f"d{n}", about)]) for n, found in enumerate(files)]
    taken = list(batches(iter(touched)))
    assert all(sum(1 + len(part.files) for part in batch) <= AT_ONCE for batch in taken)
    parts = [part for batch in taken for part in batch]
    assert [found for part in parts for found in part.files] == [found for some in files for found in some]
    assert [touch.path for part in parts for touch in part.others] == [f"d{n}" for n in range(len(amounts))]


class ClosedCalls(Calls):
    """The real kernel, but for one name that may not be looked at once it is closed."""

    closed = ""

    def stat(self, name: str, **where: object) -> os.stat_result:  # type: ignore[override]
        if name == self.closed:
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return os.stat(name, **where)  # type: ignore[arg-type]


def test_a_path_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    """Where the workspace was closed to us meanwhile, the capture is refused with the path and the reason."""
    place, calls = tmp_path / "w", ClosedCalls()
    fill(place, {"d/a": b"one\n"})
    create_state(str(place))
    with Site(str(place), calls) as site, open_shadow(site, "overlay") as shadow:
        shell(shadow, "echo more >> d/a")
        look = snapshot(site.path, None)
        calls.closed = "a"
        for base in (None, look):
            with pytest.raises(Blocked, match="d/a in the workspace cannot be seen: Permission denied"):
                shadow.capture((), base)
