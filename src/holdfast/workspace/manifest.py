"""The manifest of a tree: every path with its image, so that the same tree can be made somewhere else, exactly.

    site ──snapshot──▶ entries, less what is hidden, less what is ignored where that is asked for
         ──bytes─────▶ contents that a commit has are named by their git object, for whoever has a clone;
                       all others are put into a stock

Invariants
  M1  `tree` is the digest that a tree with exactly these entries has, computed from them, here and when read back.
  M2  Every entry stands in a directory that is an entry too; no path leaves the tree.
  M3  Nothing hidden is in it. Nothing that cannot be read is left out silently: then there is no manifest.
  M4  A content has a git name only if its bytes were hashed as git does, and the commit has such an object:
      what git would make of a file on checkout (line ends, filters) plays no part.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.disk.confined import Root
from holdfast.disk.holes import pieces
from holdfast.errors import Blocked, HoldfastError, InvalidInput, Tampering
from holdfast.model.changeset import Change
from holdfast.model.fitting import is_digest, is_real
from holdfast.model.image import Image
from holdfast.model.path import checked_path, parent_of, printable
from holdfast.store.documents import packed_lists
from holdfast.store.large_blobs import Stock
from holdfast.workspace.block import sealed
from holdfast.workspace.borrowed import blobs_of_head, head_of
from holdfast.workspace.hidden import Roots, masked_paths
from holdfast.workspace.ignored import ignored_paths
from holdfast.workspace.site import Site
from holdfast.workspace.tree import Snapshot, snapshot

VERSION = 1
_FIELDS = frozenset(("version", "tree", "workspace_tree", "commit", "entries", "names", "repositories"))
_MOST = 1 << 30
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_NAME_SIZES = {40: "sha1", 64: "sha256"}


class Manifest(NamedTuple):
    """`workspace_tree` is the digest of the whole workspace then, with what is not in here."""

    tree: str
    workspace_tree: str
    entries: tuple[tuple[str, Image], ...]
    # Directories with a repository of their own; the empty path is the tree itself.
    repositories: tuple[str, ...] = ()
    # What the outermost repository has checked out, and from digests to names of its objects.
    commit: str = ""
    names: tuple[tuple[str, str], ...] = ()

    @property
    def contents(self) -> tuple[str, ...]:
        """The digests of all bytes that no git object has, sorted."""
        named = {digest for digest, _ in self.names}
        files = (image for _, image in self.entries if image.kind == "file" and image.size)
        return tuple(sorted({image.digest for image in files} - named))

    def owned_by(self, uid: int, gid: int) -> Manifest:
        """The same tree where one user owns everything: a machine that does not know the others' numbers."""
        entries = tuple((path, image._replace(uid=uid, gid=gid)) for path, image in self.entries)
        return self._replace(tree=tree_digest(entries), entries=entries)


def manifest_of(site: Site, *, hidden: Sequence[str] = (), ignored: bool = True) -> Manifest:
    """The workspace as it is now. `ignored`: with what the repository's rules ignore, such as installed packages."""
    tree = snapshot(site.path, site.state.path)
    entries = _entries(site, tree, hidden)
    if not ignored:
        left_out = ignored_paths(site, [f"{p}/" if image.kind == "directory" else p for p, image in entries])
        entries = tuple(entry for entry in entries if entry[0] not in left_out)
    places = ("", *(path for path, image in entries if image.kind == "directory"))
    repositories = tuple(path for path in places if os.path.lexists(os.path.join(site.path, path, ".git")))
    whole = tree_digest(entries)
    return Manifest(whole, tree.digest, entries, repositories, head_of(site.path) if "" in repositories else "")


def stocked(site: Site, manifest: Manifest, stock: Stock, before: Manifest | None = None) -> Manifest:
    """The manifest with git names, and every other content in the stock.

    `before` is an earlier manifest of this workspace: what it names is not hashed again.
    """
    held = blobs_of_head(site.path, manifest.commit) if manifest.commit else frozenset()
    known = dict(before.names) if before is not None else {}
    names: dict[str, str] = {}
    for path, image in manifest.entries:
        if image.kind != "file" or not image.size or image.digest in names:
            continue
        name = known.get(image.digest) or (_git_name(site.workspace, path, image, manifest.commit) if held else "")
        if name in held:
            names[image.digest] = name
        elif not stock.has(image.digest):
            stock.take(image.digest, _read(site.workspace, path))
    return manifest._replace(names=tuple(sorted(names.items())))


def with_folders(manifest: Manifest, names: frozenset[str], other: Snapshot) -> Manifest:
    """The tree with all folders of these names that another one has, but for those that it has itself."""
    entries, added = dict(manifest.entries), set[str]()
    for path, image in other.entries():
        above, name = parent_of(path), path.rpartition("/")[2]
        if path in entries:
            continue
        begins = name in names and image.kind == "directory" and (not above or _is_directory(entries.get(above)))
        if (begins or above in added) and (image.kind != "file" or image.digest):
            entries[path] = image
            added.add(path)
    found = tuple(sorted(entries.items(), key=lambda entry: os.fsencode(entry[0])))
    return manifest._replace(tree=tree_digest(found), entries=found)


def _is_directory(image: Image | None) -> bool:
    return image is not None and image.kind == "directory"


def tree_digest(entries: Iterable[tuple[str, Image]]) -> str:
    """The digest of the tree that holds exactly these (M1)."""
    empty = Snapshot(sealed([], [], {}))
    return empty.digest_after(Change(path, None, image) for path, image in entries)


# ── on its way ──


def packed_manifest(manifest: Manifest) -> bytes:
    head = {
        "version": VERSION,
        "tree": manifest.tree,
        "workspace_tree": manifest.workspace_tree,
        "commit": manifest.commit,
        "repositories": manifest.repositories,
    }
    return packed_lists(head, {"entries": manifest.entries, "names": manifest.names})


def unpacked_manifest(data: bytes) -> Manifest:
    """What was packed; Tampering when it is something else or contradicts itself, InvalidInput for another version."""
    try:
        rows = json.loads(_inflated(data))
    except (ValueError, RecursionError, zlib.error) as error:
        raise Tampering(f"the manifest is damaged: {error}") from error
    if not isinstance(rows, dict) or rows.get("version") != VERSION:
        raise InvalidInput(f"this is no manifest of version {VERSION}")
    if rows.keys() != _FIELDS:
        raise Tampering("the manifest has other fields than a manifest has")
    try:
        manifest = Manifest(
            str(rows["tree"]),
            str(rows["workspace_tree"]),
            tuple(_entry(row) for row in rows["entries"]),
            tuple(_repository(path) for path in rows["repositories"]),
            _object_name(rows["commit"]) if rows["commit"] else "",
            tuple((_digest(digest), _object_name(name)) for digest, name in rows["names"]),
        )
        _require_directories(manifest)
    except (HoldfastError, ValueError, TypeError, AttributeError) as error:
        raise Tampering(f"the manifest is damaged or was edited: {error}") from error
    if tree_digest(manifest.entries) != manifest.tree:
        raise Tampering("the manifest is of another tree than it says")
    return manifest


def _inflated(data: bytes) -> bytes:
    """A small text can be squeezed out of a very large one; what is left over then is none of ours."""
    squeezed = zlib.decompressobj()
    text = squeezed.decompress(data, _MOST)
    if not squeezed.eof:
        raise ValueError("longer than any manifest of ours, or cut off")
    return text


def _entry(row: Any) -> tuple[str, Image]:
    path, (*plain, xattrs) = row
    image = Image._make((*plain, tuple((name, value) for name, value in xattrs)))
    if not isinstance(path, str) or checked_path(path) != path or not is_real(image):
        raise ValueError("an entry that cannot stand on a disk")
    return path, image


def _repository(path: object) -> str:
    if not isinstance(path, str) or (path and checked_path(path) != path):
        raise ValueError("a repository that is no path")
    return path


def _digest(text: object) -> str:
    if not isinstance(text, str) or not is_digest(text):
        raise ValueError("a content without a digest")
    return text


def _object_name(text: object) -> str:
    if not isinstance(text, str) or len(text) not in _NAME_SIZES or not set(text) <= set("0123456789abcdef"):
        raise ValueError("a name that no git object has")
    return text


def _require_directories(manifest: Manifest) -> None:
    """M2; and each path once."""
    found = dict(manifest.entries)
    if len(found) != len(manifest.entries):
        raise ValueError("two entries for one path")
    for path in (*found, *(f"{path}/.git" for path in manifest.repositories if path)):
        above = parent_of(path)
        if above and (above not in found or found[above].kind != "directory"):
            raise ValueError("an entry in something that is no directory")


# ── the workspace ──


def _entries(site: Site, tree: Snapshot, hidden: Sequence[str]) -> tuple[tuple[str, Image], ...]:
    """M3."""
    unseen = Roots(masked_paths(site.workspace, hidden))
    for problem in tree.problems():
        if not unseen.cover(problem.path):
            raise Blocked(f"{printable(problem.path)}: {problem.detail}, so the tree cannot be had elsewhere")
    return tuple((path, image) for path, image in tree.entries() if not unseen.cover(path))


def _git_name(workspace: Root, path: str, image: Image, commit: str) -> str:
    """What git calls exactly these bytes."""
    hasher = hashlib.new(_NAME_SIZES[len(commit)], b"blob %d\0" % image.size)
    for piece in _read(workspace, path):
        hasher.update(piece)
    return hasher.hexdigest()


def _read(workspace: Root, path: str) -> Iterator[bytes]:
    fd = workspace.calls.open_beneath(path, _READ, workspace.fd)
    try:
        yield from pieces(workspace.calls, fd)
    finally:
        workspace.calls.close(fd)
