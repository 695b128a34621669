"""Both kinds of shadow give the same results, and what lands is what stood in them, whatever programs did."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guarded import tree_of
from holdfast.workspace.shadow import open_shadow
from shaded import Act, captured_by, land, perform, shaded, standing

FILES = {
    "a": b"one\n",
    "b": b"two\n",
    "d/a": b"three\n",
    "d/e/a": b"four\n",
    "d/e/b": b"",
    "f/": b"",
    "g/x/y/z": b"deep\n",
}
PATHS = "a b c d d/a d/c d/e d/e/a d/e/b d/n d/n/a f f/a g g/x g/x/y g/x/y/z".split()
path = st.sampled_from(PATHS)
text = st.sampled_from(["one\n", "new\n", "", "longer than before\n"])
kinds: st.SearchStrategy[Literal["overlay", "copy"]] = st.sampled_from(["overlay", "copy"])
bits = st.sampled_from([0o644, 0o600, 0o755, 0o700, 0o500, 0o444])
act: st.SearchStrategy[Act] = st.one_of(
    st.tuples(st.sampled_from(["write", "append", "replace"]), path, text),
    st.tuples(st.sampled_from(["remove", "again", "mkdir", "rewrite", "touch"]), path),
    st.tuples(st.just("rename"), path, path),
    st.tuples(st.just("symlink"), path, st.sampled_from(["a", "d", "e/a", "/etc/passwd", "nowhere"])),
    st.tuples(st.just("mode"), path, bits),
    st.tuples(st.just("attribute"), path, text),
)


# Most do without a second program: each costs a tenth of a second.
seldom = st.one_of([st.just(list[Act]())] * 4 + [st.lists(act, min_size=1, max_size=5)])


@pytest.mark.long
@settings(max_examples=100)
@given(first=st.lists(act, min_size=1, max_size=8), second=seldom, lands=st.sampled_from([0, 1]))
def test_both_kinds_capture_the_same_and_land_what_stood(first: list[Act], second: list[Act], lands: int) -> None:
    """Programs do the same in an overlay and in a copy: equal views, equal change sets; landed, the tree equals them.

    A second program works on what the first one left; the workspace is untouched until the landing.
    """
    with tempfile.TemporaryDirectory() as place, shaded(Path(place) / "workspace", FILES) as site:
        before = tree_of(Path(site.path))
        with open_shadow(site, "overlay") as over, open_shadow(site, "copy") as copy:
            stood = [perform(shadow.view, first) for shadow in (over, copy)]
            if second:
                stood = [perform(shadow.view, second) for shadow in (over, copy)]
            assert stood[0] == stood[1]
            captured = [captured_by(shadow) for shadow in (over, copy)]
            assert captured[0].change_set == captured[1].change_set
            assert captured[0][3:] == captured[1][3:] == ((), (), (), ())
            assert tree_of(Path(site.path)) == before
            land(site, captured[lands])
            assert standing(site) == stood[0]
            again = [captured_by(shadow).change_set.changes for shadow in (over, copy)]
            assert again == [(), ()]


@pytest.mark.long
@settings(max_examples=15)
@given(acts=st.lists(act, min_size=1, max_size=8), target=kinds)
def test_a_change_set_put_into_a_shadow_stands_there(acts: list[Act], target: Literal["overlay", "copy"]) -> None:
    """What was captured in one shadow and put into another looks the same there to a program, and is captured again
    as the same change set; put a second time it changes nothing.
    """
    with (
        tempfile.TemporaryDirectory() as place,
        shaded(Path(place) / "workspace", FILES) as site,
        open_shadow(site, "overlay") as first,
        open_shadow(site, target) as second,
    ):
        stood = perform(first.view, acts)
        captured = captured_by(first)
        for _ in range(2):
            second.put(captured.change_set, captured.seen, captured.sources)
            assert captured_by(second).change_set == captured.change_set
        with second.layer(captured.change_set, captured.seen, captured.sources) as checks:
            assert perform(checks, []) == stood
        assert perform(second.view, []) == stood
