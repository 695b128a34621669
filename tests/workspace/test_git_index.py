"""What git surely does not track: never wrong, and worth asking."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.disk.confined import Root
from holdfast.store.state import create_state
from holdfast.workspace.gitindex import surely_untracked
from holdfast.workspace.ignored import ignored_paths
from holdfast.workspace.site import Site

RULES = "*.o\n/build/\nout/\n__pycache__/\nsub\n!keep.o\n"


def git(place: Path, *words: str, stdin: bytes = b"") -> bytes:
    """Also without an identity; the commands of this file make no commits."""
    return subprocess.run(["git", "-C", str(place), *words], check=True, capture_output=True, input=stdin).stdout


def tracking(place: Path, paths: Sequence[str], *, modes: Sequence[str] = ()) -> None:
    """A repository whose index holds these paths; none of them is on the disk."""
    git(place, "init", "-q")
    (place / ".gitignore").write_text(RULES, encoding="utf-8")
    blob = git(place, "hash-object", "-w", "--stdin", stdin=b"x").decode().strip()
    modes = [*modes, *["100644"] * (len(paths) - len(modes))]
    rows = [f"{mode} {blob}\t".encode() + os.fsencode(path) for mode, path in zip(modes, paths, strict=True)]
    git(place, "update-index", "-z", "--index-info", stdin=b"".join(row + b"\0" for row in rows))


def told_by_git(place: Path, asked: Sequence[str]) -> frozenset[str]:
    """With its index, and every path by itself, so that one that git dies of says nothing about the others."""
    words = ["git", "-C", str(place), "check-ignore", "-q", "--"]
    return frozenset(
        path.rstrip("/")
        for path in asked
        if subprocess.run([*words, f"./{path}"], capture_output=True, check=False).returncode == 0
    )


def untracked(place: Path, *asked: str) -> bool:
    with Root(str(place)) as root:
        return surely_untracked(root, "", asked)


names = st.sampled_from(["a", "b.o", "build", "rebuild", "out", "__pycache__", "keep.o", "x", "out.o"])
one = st.lists(names, min_size=1, max_size=3).map("/".join)


def _fit(paths: list[str]) -> list[str]:
    """No path is both a file and a directory."""
    kept: list[str] = []
    for path in dict.fromkeys(paths):
        if not any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in kept):
            kept.append(path)
    return kept


@pytest.mark.long
@settings(max_examples=80)
@given(
    tracked=st.lists(one, max_size=5).map(_fit),
    asked=st.lists(st.tuples(one, st.sampled_from(["", "/"])).map("".join), min_size=1, max_size=4, unique=True),
    version=st.sampled_from([2, 2, 2, 4]),
)
def test_the_answers_are_those_of_git_with_its_index(tracked: list[str], asked: list[str], version: int) -> None:
    """Which paths are ignored is the same as git says that reads its whole index, whatever it tracks."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tracking(place, tracked)
        git(place, "update-index", f"--index-version={version}")
        create_state(folder)
        with Site(folder) as site:
            assert ignored_paths(site, asked) == told_by_git(place, asked)


@pytest.mark.parametrize(
    ("tracked", "asked"),
    [
        (["made.o"], "made.o"),
        (["src/made.o"], "src/made.o"),
        (["made.o/inside"], "made.o"),
        (["build/deep/file"], "build/"),
        (["a/build"], "a/build/"),
        ([f"{'d' * 200}/{'e' * 200}/made.o"], f"{'d' * 200}/{'e' * 200}/made.o"),
        (["/".join(["d" * 250] * 15) + "/made.o"], "/".join(["d" * 250] * 15) + "/made.o"),
        (["/".join(["d" * 250] * 17) + "/made.o"], "/".join(["d" * 250] * 17) + "/made.o"),
        (["\udcff.o"], "\udcff.o"),
    ],
)
def test_what_is_tracked_is_never_called_untracked(tmp_path: Path, tracked: list[str], asked: str) -> None:
    """A path that git tracks, also one that is gone from the disk, or one above or below it."""
    tracking(tmp_path, ["first", *tracked, "zlast"])
    assert not untracked(tmp_path, asked)


def test_a_submodule_counts_as_tracked(tmp_path: Path) -> None:
    """The directory of a submodule is one entry of the index, without a slash at its end."""
    tracking(tmp_path, ["sub"], modes=["160000"])
    assert not untracked(tmp_path, "sub/")


def test_what_is_not_there_is_known_without_git(tmp_path: Path) -> None:
    """New by-products, also of names that only resemble tracked ones, and whole directories of them."""
    tracking(tmp_path, ["rebuild/x", "made.of", "src/remade.o", "a/b", "builds"])
    assert untracked(tmp_path, "made.o", "build/", *(f"build/{n}" for n in range(1000)))


def test_a_repository_without_an_index_tracks_nothing(tmp_path: Path) -> None:
    """A fresh one has none."""
    git(tmp_path, "init", "-q")
    assert untracked(tmp_path, "made.o")


def _split(place: Path) -> None:
    git(place, "update-index", "--split-index")


def _fourth(place: Path) -> None:
    git(place, "update-index", "--index-version=4")


def _left_out(place: Path) -> None:
    git(place, "update-index", "--skip-worktree", "a")


def _linked(place: Path) -> None:
    (place / ".git/index").rename(place / ".git/other")
    os.symlink("other", place / ".git/index")


def _damaged(place: Path) -> None:
    (place / ".git/index").write_bytes(b"nonsense")


@pytest.mark.parametrize("made", [_split, _fourth, _left_out, _linked, _damaged])
def test_an_index_of_another_kind_is_left_to_git(tmp_path: Path, made: Callable[[Path], None]) -> None:
    """Split, shortened, with paths left out, behind a link, or damaged: nothing is sure."""
    tracking(tmp_path, ["a", "b"])
    assert untracked(tmp_path, "made.o")
    made(tmp_path)
    assert not untracked(tmp_path, "made.o")


def test_many_paths_are_left_to_git(tmp_path: Path) -> None:
    """In a small repository git reads its index faster than many paths are looked up; a directory is one path."""
    tracking(tmp_path, ["a"])
    assert untracked(tmp_path, "build/", *(f"build/made{n}.o" for n in range(100)))
    assert not untracked(tmp_path, *(f"made{n}.o" for n in range(100)))


def _spread(number: int) -> str:
    """Paths of many lengths, in an order of their own."""
    return f"d{number * 7919 % 97:02}/{'e' * (1 + number % 23)}/f{number * 104729 % 10007}{'-x' * (number % 5)}.o"


@pytest.mark.parametrize("number", [1, 50, 500, 6000])
def test_each_path_of_a_large_index_is_found(tmp_path: Path, number: int) -> None:
    """Wherever it stands among the others, every tracked path is found, and none that is not tracked."""
    tracked = sorted({_spread(n) for n in range(number)}, key=os.fsencode)
    tracking(tmp_path, tracked)
    looked_at = tracked[:: max(1, number // 150)]
    assert [path for path in looked_at if untracked(tmp_path, path)] == []
    assert [path for path in looked_at if untracked(tmp_path, path.rpartition("/")[0] + "/")] == []
    others = [near for path in looked_at for near in (f"{path}x", f"{path}/below", path[:-1], f"!{path}", f"~{path}")]
    assert [path for path in others if not untracked(tmp_path, path)] == []


def test_names_between_a_path_and_what_is_below_it(tmp_path: Path) -> None:
    """`a.o-1` and `a.o.x` come before `a.o/below` in an index: few are read over, for very many git is asked."""
    few, many = [f"a.o-{n:03}" for n in range(200)], [f"b.o-{n:04}" for n in range(3000)]
    tracking(tmp_path, [*few, "a.o/below", *many, "b.o/below", "c"])
    assert not untracked(tmp_path, "a.o")
    assert not untracked(tmp_path, "b.o")
    assert untracked(tmp_path, "a.o-2000", "c.o", "A.o")


def test_an_index_that_is_not_sorted_is_left_to_git(tmp_path: Path) -> None:
    """Halving finds nothing in what has no order: where that shows, nothing is sure."""
    tracking(tmp_path, ["aaaa", "bbbb", "cccc"])
    index = tmp_path / ".git/index"
    index.write_bytes(index.read_bytes().replace(b"bbbb", b"0000"))
    assert not untracked(tmp_path, "dddd")
