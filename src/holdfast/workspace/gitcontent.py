"""What a landed change is to git: a mode and a content, or nothing any more.

The bytes are those that landed, proven by digest: from the work tree while they stand there,
else from where the landing kept them.

Invariants
  X1  A file is committed only if its bytes have the digest that landed.
  X2  What a person did to a path after the landing is never undone in the history: where the work tree moved on,
      the landed bytes are committed only on top of what they replaced; otherwise the path is left to the person.
  X3  Line ends and encodings are turned by git itself, so that its `status` agrees with the commit.
      A clean filter is a program, and is not run; committing without it would put large files, or texts that
      the filter would have encrypted, into the history for good. Such a path is refused before anything changes.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from blake3 import blake3

from holdfast.disk.confined import Root
from holdfast.disk.holes import CHUNK, pieces
from holdfast.errors import Blocked, Conflict
from holdfast.model.changeset import Change
from holdfast.model.image import Image
from holdfast.model.path import parent_of, printable
from holdfast.workspace.gitobjects import Digests, Written, content_digests, of_bytes, write_objects
from holdfast.workspace.gittree import LINK, Entry, object_id
from holdfast.workspace.observe import look
from holdfast.workspace.plumbing import Git
from holdfast.workspace.repository import Repository

# Opens the bytes that landed at this change's path; None where they are not kept. The caller closes.
Kept: TypeAlias = Callable[[Change], int | None]

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_ATTRIBUTES = ("filter", "text", "ident", "working-tree-encoding")
_NO = ("unspecified", "unset")
_ELSE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EXDEV)


def nothing_kept(change: Change) -> int | None:
    return None


class Landed(NamedTuple):
    """A change, under its path in the repository, beside what is checked out there."""

    path: str
    change: Change
    head: Entry | None
    # Whether what was checked out is what the landing replaced.
    is_base: bool


class Content(NamedTuple):
    """What a path becomes. Without `source` it is gone; `crlf`: it has line ends that git may turn."""

    path: str
    mode: str = ""
    source: Written | None = None
    crlf: bool = False


class _Facts(NamedTuple):
    id: str
    crlf: bool


def landed(git: Git, repository: Repository, changes: Sequence[Change], heads: Mapping[str, Entry]) -> list[Landed]:
    """Each change beside what is checked out; `heads` holds the files and links of these paths."""
    paths = [repository.prefix + change.path for change in changes]
    blobs = sorted({heads[path].id for path in paths if path in heads})
    digests = dict(zip(blobs, content_digests(git, blobs), strict=True))
    rows = []
    for path, change in zip(paths, changes, strict=True):
        head = heads.get(path)
        known = digests.get(head.id) if head else None
        rows.append(Landed(path, change, head, _is_base(change.pre, head, known, repository)))
    return rows


def _is_base(pre: Image | None, head: Entry | None, known: Digests | None, repository: Repository) -> bool:
    if pre is None or pre.kind == "directory" or head is None:
        return head is None and (pre is None or pre.kind == "directory")
    if pre.kind == "symlink":
        return head == Entry(LINK, object_id(repository.hashing, "blob", os.fsencode(pre.target)))
    same_mode = head.mode == _mode(pre, head, repository)
    return same_mode and known is not None and pre.digest in known


def contents(repository: Repository, rows: Sequence[Landed], kept: Kept) -> Iterator[Content | None]:
    """For each row what it becomes; None for a path that is left to the person (X2)."""
    with Root(repository.top, repository.calls) as root:
        for row in rows:
            yield _content(repository, root, row, kept)


def _content(repository: Repository, root: Root, row: Landed, kept: Kept) -> Content | None:
    post = row.change.post
    if post is not None and post.kind == "file":
        return _file(repository, row, post, kept)
    if not row.is_base and not _stands(root, row.path, post):
        return None
    if post is None or post.kind == "directory":
        return Content(row.path)
    target = os.fsencode(post.target)
    id = object_id(repository.hashing, "blob", target)
    return Content(row.path, LINK, Written(id, of_bytes(target), row.path))


def _stands(root: Root, path: str, post: Image | None) -> bool:
    """Whether the work tree still holds the link, the folder or the nothing that landed."""
    name = path.rsplit("/", 1)[-1]
    try:
        directory = root.directory(parent_of(path))
    except (FileNotFoundError, NotADirectoryError):
        return post is None
    if post is not None and post.kind == "symlink":
        try:
            return root.calls.readlink(name, dir_fd=directory) == post.target
        except OSError:
            return False
    found = look(root.calls, directory, name)
    return (found is None) == (post is None)


def _file(repository: Repository, row: Landed, post: Image, kept: Kept) -> Content | None:
    def from_kept() -> int:
        fd = kept(row.change)
        if fd is None:
            raise Conflict(
                f"{printable(row.path)} is no longer what landed, and the landed bytes are not at hand",
                hint="Nothing was committed.",
            )
        return fd

    mode = _mode(post, row.head, repository)
    from_tree = _opening(repository, row.path)
    facts = _facts(repository, from_tree, post)
    if facts is not None:
        return Content(row.path, mode, Written(facts.id, from_tree, row.path), facts.crlf)
    if not row.is_base:
        return None
    facts = _facts(repository, from_kept, post)
    if facts is None:
        raise Conflict(f"the bytes kept for {printable(row.path)} are not those that landed")
    return Content(row.path, mode, Written(facts.id, from_kept, row.path), facts.crlf)


def _opening(repository: Repository, path: str) -> Callable[[], int]:
    def opened() -> int:
        with Root(repository.top, repository.calls) as root:
            return repository.calls.open_beneath(path, _READ, root.fd)

    return opened


def _mode(image: Image, head: Entry | None, repository: Repository) -> str:
    if not repository.settings.file_modes:
        return head.mode if head and head.mode != LINK else "100644"
    return "100755" if image.mode & 0o100 else "100644"


def _facts(repository: Repository, opened: Callable[[], int], post: Image) -> _Facts | None:
    """Git's name for it, if these are the bytes that landed (X1)."""
    try:
        fd = opened()
    except OSError as error:
        if error.errno not in _ELSE:
            raise Blocked(f"the bytes that landed cannot be read: {error.strerror}") from error
        return None  # gone, or behind a link by now: for the caller the same as other bytes
    try:
        proof, name = blake3(), hashlib.new(repository.hashing, usedforsecurity=False)
        name.update(f"blob {post.size}\0".encode("ascii"))
        crlf, last = False, b""
        for piece in pieces(repository.calls, fd):
            proof.update(piece)
            name.update(piece)
            crlf = crlf or b"\r\n" in piece or (last == b"\r" and piece[:1] == b"\n")
            last = piece[-1:]
        return _Facts(name.hexdigest(), crlf) if proof.hexdigest() == post.digest else None
    except IsADirectoryError:
        return None
    finally:
        repository.calls.close(fd)


def attributes_of(git: Git, paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """The attributes that decide about conversions, by path."""
    if not paths:
        return {}
    asked = b"".join(os.fsencode(path) + b"\0" for path in paths)
    rows = git.listed("check-attr", "-z", "--stdin", *_ATTRIBUTES, stdin=asked)
    found: dict[str, dict[str, str]] = {path: {} for path in paths}
    for path, name, value in zip(rows[::3], rows[1::3], rows[2::3], strict=True):
        found[os.fsdecode(path)][os.fsdecode(name)] = os.fsdecode(value)
    if any(set(each) != set(_ATTRIBUTES) for each in found.values()):
        raise Blocked("git check-attr gave an answer that is not understood")
    return found


def refuse_filters(git: Git, paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """The attributes of these files; Blocked when one of them is to go through a filter program (X3)."""
    found = attributes_of(git, paths)
    for path, values in found.items():
        if values["filter"] not in _NO:
            raise Blocked(
                f"{printable(path)} goes through the filter {printable(values['filter'])} before it is committed; "
                "that is a program, and checkpoints run none",
                hint="Commit it yourself, or leave such files out of what agents may change.",
            )
    return found


def written(git: Git, rows: Sequence[Content]) -> dict[str, Entry | None]:
    """Write every content, and say what each path becomes."""
    files = [row.path for row in rows if row.source is not None and row.mode != LINK]
    attributes = refuse_filters(git, files)
    entries: dict[str, Entry | None] = {}
    plain: list[Written] = []
    for row in rows:
        if row.source is None:
            entries[row.path] = None
        elif _is_turned(row, attributes.get(row.path)):
            entries[row.path] = Entry(row.mode, _turned(git, row, row.source))
        else:
            plain.append(row.source)
            entries[row.path] = Entry(row.mode, row.source.id)
    write_objects(git, "blob", plain)
    return entries


def _is_turned(row: Content, values: Mapping[str, str] | None) -> bool:
    if values is None:
        return False
    special = values["working-tree-encoding"] not in _NO or values["ident"] == "set"
    return special or (row.crlf and values["text"] != "unset")


def _turned(git: Git, row: Content, source: Written) -> str:
    """Git's name for the content as git wants it in a commit; written."""
    fd = source.opened()
    try:
        data = b"".join(iter(lambda: os.read(fd, CHUNK), b""))
    finally:
        os.close(fd)
    if object_id("sha256" if len(source.id) == 64 else "sha1", "blob", data) != source.id:
        raise Conflict(f"{printable(row.path)} changed while it was read; nothing was committed")
    answer = git.asked("hash-object", "-w", f"--path={row.path}", "--stdin", stdin=data)
    id = answer.decode("ascii", "replace").removesuffix("\n")
    if len(id) != len(source.id) or not set(id) <= set("0123456789abcdef"):
        raise Blocked(f"git hash-object gave an answer that is not understood: {printable(id[:200])}")
    return id
