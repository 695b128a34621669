"""Any image, stamp or change there could be, for properties: every field, and every name that a disk can hold.

A name on a disk is bytes. Those that are not UTF-8 travel as surrogate escapes (U+DC80 to U+DCFF);
so nothing here has a high surrogate, and everything else may stand next to everything else.
"""

from __future__ import annotations

from hypothesis import strategies as st

from holdfast.model.image import Image, Seen, Stamp

_ESCAPED_BYTES = st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF, categories=["Cs"])
_CONTROLS = st.characters(max_codepoint=0xA0, categories=["Cc"]) | st.sampled_from('"\\/\u2028\u2029\ufeff\uffff')
_CHARACTERS = st.characters(exclude_categories=["Cs"]) | _ESCAPED_BYTES | _CONTROLS

texts = st.text(_CHARACTERS, max_size=20) | st.binary(max_size=20).map(
    lambda raw: raw.decode("utf-8", "surrogateescape")
)
numbers = st.integers(0, 2**64 - 1)
times = st.integers(-(2**63), 2**63 - 1)
xattrs = st.lists(st.tuples(texts, st.binary(max_size=8).map(bytes.hex)), max_size=3).map(tuple)
images = st.builds(
    Image,
    kind=st.sampled_from(["file", "directory", "symlink"]),
    mode=st.integers(0, 0o7777),
    uid=numbers,
    gid=numbers,
    size=numbers,
    digest=st.just("") | st.binary(min_size=32, max_size=32).map(bytes.hex),
    target=texts,
    xattrs=xattrs,
)
stamps = st.builds(Stamp, inode=numbers, size=numbers, mtime_ns=times, ctime_ns=times, links=numbers)
seens = st.builds(Seen, images, stamps)
