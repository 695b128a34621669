"""What is installed in the person's checkout, in the work tree of a branch: a copy that programs there can use.

    checkout: .venv, venv, node_modules, .tox, .nox ──what differs──▶ the same places in the branch's work tree

Git does not track these folders, so a work tree that git made is without them, and no check could run there. Mirrors
of the work tree have them from it. Programs see the copy at the person's place, which the installed files name.

Invariants
  BE1  The person's folders are only read.
  BE2  A folder is brought only where the branch has the directory around it and does not track anything in it, and
       where git ignores it: it never lands, is never committed, and leaves the work tree clean.
  BE3  Only folders that were brought are changed or removed; their names are durable before the first byte.
  BE4  Interrupted anywhere, the next call finishes. What differs is found by looking.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import NamedTuple

from holdfast.disk.calls import CALLS
from holdfast.errors import Conflict
from holdfast.model.changeset import Change, ChangeSet, change_set
from holdfast.model.image import Image
from holdfast.model.path import parent_of, printable
from holdfast.store.exports import replace_file
from holdfast.store.large_blobs import LargeBlobs
from holdfast.workspace.filling import Bench, Filling
from holdfast.workspace.gitplace import small
from holdfast.workspace.hidden import Roots, masked_paths
from holdfast.workspace.ignored import ignored_paths, tracked_paths
from holdfast.workspace.origins import Depot, FromTree
from holdfast.workspace.removal import remove_whole
from holdfast.workspace.site import Site, home_of
from holdfast.workspace.tree import snapshot

# Folders of installed packages.
INSTALLED = frozenset((".venv", "venv", "node_modules", ".tox", ".nox"))
PLACE = "installed"
_FOLDERS = f"{PLACE}/folders"
_MOST = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Difference(NamedTuple):
    """`folders` are those that stand there afterwards, and are ours."""

    folders: frozenset[str]
    changes: ChangeSet


def bring_installed(site: Site, hidden: Sequence[str], alone: Callable[[], AbstractContextManager[None]]) -> int:
    """How many paths of the branch's work tree had to change; `alone` is entered if any has to."""
    with Site(home_of(site.path), site.calls) as home:
        before = _brought(site)
        found = _difference(home, site, hidden, before)
        if not found.changes.changes and found.folders == before:
            return 0
        with alone():
            before = _brought(site)
            found = _difference(home, site, hidden, before)
            _note(site, before | found.folders)
            _fill(home, site, found.changes)
            _note(site, found.folders)
        return len(found.changes.changes)


def _difference(home: Site, site: Site, hidden: Sequence[str], brought: frozenset[str]) -> _Difference:
    standing = dict(snapshot(site.path, site.state.path).entries())
    unseen = Roots(masked_paths(home.workspace, hidden))
    found: dict[str, dict[str, Image]] = {}
    # The folder that each directory of an installed one belongs to.
    of: dict[str, str] = {}
    for path, image in snapshot(home.path, home.state.path).entries():
        above, name = parent_of(path), path.rpartition("/")[2]
        if unseen.cover(path) or (image.kind == "file" and not image.digest):
            continue
        if above in of:
            folder = of[above]
        elif name in INSTALLED and image.kind == "directory" and _can_stand(path, standing, brought):
            folder = path
        else:
            continue
        found.setdefault(folder, {})[path] = _as_can_be_owned(image)
        if image.kind == "directory":
            of[path] = folder
    tracked = _with_tracked(site, {*found, *brought})
    chosen = _ignored(home, site, found) - tracked
    wanted = {path: image for folder in chosen for path, image in found[folder].items()}
    ours = Roots(brought - tracked)
    gone = [Change(path, image, None) for path, image in standing.items() if ours.cover(path) and path not in wanted]
    made = (Change(path, standing.get(path), image) for path, image in wanted.items())
    return _Difference(chosen, change_set([*gone, *(change for change in made if change.pre != change.post)]))


def _can_stand(path: str, standing: Mapping[str, Image], brought: frozenset[str]) -> bool:
    """Nobody else has something there, and the directory around it is there (BE2, BE3)."""
    around = standing.get(parent_of(path))
    is_within = not parent_of(path) or (around is not None and around.kind == "directory")
    return is_within and (path in brought or path not in standing)


def _with_tracked(site: Site, folders: Iterable[str]) -> frozenset[str]:
    asked = sorted(folders)
    paths = tracked_paths(site, asked) if asked else ()
    return frozenset(folder for folder in asked if any(f"{path}/".startswith(f"{folder}/") for path in paths))


def _ignored(home: Site, site: Site, folders: Iterable[str]) -> frozenset[str]:
    """By the branch's rules, or as some tools make them: with rules of their own that ignore all that is in them."""
    asked = tuple(folders)
    by_rules = ignored_paths(site, [f"{folder}/" for folder in asked])
    return frozenset(folder for folder in asked if folder in by_rules or _ignores_itself(home, folder))


def _ignores_itself(home: Site, folder: str) -> bool:
    try:
        rules = small(home.workspace, f"{folder}/.gitignore", _MOST) or b""
    except OSError:
        return False
    return [line.strip() for line in rules.splitlines() if line.strip() and not line.startswith(b"#")] == [b"*"]


def _as_can_be_owned(image: Image) -> Image:
    """An ordinary user gives files to nobody else."""
    me = os.geteuid()
    if me == 0 or (image.uid == me and image.gid in (os.getegid(), *os.getgroups())):
        return image
    return image._replace(uid=me, gid=os.getegid())


def _fill(home: Site, site: Site, changes: ChangeSet) -> None:
    with ExitStack() as stack:
        folder = site.state.open_directory(PLACE)
        stack.callback(os.close, folder)
        if "bench" in CALLS.names(folder):
            remove_whole(folder, "bench")
        os.mkdir("bench", 0o700, dir_fd=folder)
        stack.callback(remove_whole, folder, "bench")
        bench = Bench(site, os.path.join(site.state.path, PLACE, "bench"))
        stack.callback(bench.close)
        files = {c.path: c.post for c in changes.changes if c.post is not None and c.post.kind == "file"}
        sources = FromTree(home.workspace).sources(files, Depot(LargeBlobs(site.state), bench.slots))
        gone = next((path for path in files if path not in sources), None)
        if gone is not None:
            raise _changed(gone)
        try:
            Filling(site, site.workspace, bench, 0, over=False).put(changes, {}, sources)
        except FileNotFoundError as error:
            raise _changed(str(error.filename)) from error
        finally:
            site.workspace.forget()


def _changed(path: str) -> Conflict:
    return Conflict(
        f"what is installed changed while it was copied for the branch: {printable(path)} is gone",
        hint="Nothing was begun. Try again when nobody installs anything.",
    )


# ── which are ours ──


def _brought(site: Site) -> frozenset[str]:
    """BE3. A list that cannot be read names nothing, and nothing is touched."""
    try:
        data = small(site.state, _FOLDERS, _MOST)
        names = json.loads(data) if data else []
    except (OSError, ValueError):
        return frozenset()
    return frozenset(name for name in names if isinstance(name, str) and name.rpartition("/")[2] in INSTALLED)


def _note(site: Site, folders: frozenset[str]) -> None:
    replace_file(site.state, _FOLDERS, json.dumps(sorted(folders)).encode())
