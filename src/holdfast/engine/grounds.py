"""Where agents work: over the workspace itself, over a mirror of it while others land, or on another machine.

    one at a time ....... the workspace: nothing is copied, and nothing lands meanwhile
    several at once ..... one mirror each, brought to what stands now; a mirror is copied once and then follows
    another machine ..... a mirror of the base that the order names, from git objects and the shared stock; it is seen
                          at the place of the clone, with the packages that are installed there

Invariants
  Q1  A mirror is brought up to date while nobody lands, so it is a tree that stood, never half of a landing.
  Q2  What comes of work over a mirror is carried by digest: bytes, logs, transcripts, and what the agent said.
  Q3  On another machine the database that holds the stock is waited for, before the work and after it: what an agent
      made is kept until it can be sent.
  Q4  A mirror is seen at the place of what it mirrors, and that is not seen beside it: environments that were made
      there (editable installations, absolute paths) mean the mirror.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from typing import NamedTuple

from holdfast.checks.dependencies import changes_dependencies, concerns_dependencies
from holdfast.disk.calls import CALLS
from holdfast.disk.confined import Root
from holdfast.engine.durable_database import patiently
from holdfast.engine.orders import Order
from holdfast.engine.pipeline import Pipeline
from holdfast.errors import Blocked, Locked
from holdfast.model.image import Image
from holdfast.model.path import printable
from holdfast.store.large_blobs import LargeBlobs, Stock, carry
from holdfast.workspace.borrowed import has_commit
from holdfast.workspace.branch_environment import INSTALLED
from holdfast.workspace.manifest import Manifest, manifest_of, unpacked_manifest, with_folders
from holdfast.workspace.mirror import Mirror, looked_at
from holdfast.workspace.origins import FromGit, FromStock, FromTree, Origin
from holdfast.workspace.tree import Snapshot

Opening = Callable[[str], AbstractContextManager[Pipeline]]
FOLDER = "mirrors"
_INDEX = "index-of-clone"
_MOST_TEXT = 1 << 20
_MOST = 256
# Q3. Longer than a driver waits, which finds the work when it goes on.
_PATIENCE_S = 3_600.0


class Place(NamedTuple):
    """`pipeline` is of the tree that is worked over. `stock`: where the work goes, if not to there."""

    pipeline: Pipeline
    stock: Stock | None = None
    # The ledger that shall know of the work; None on another machine, which sends its word along.
    home: Pipeline | None = None
    # Who owns everything there, if owners could not be kept.
    owner: tuple[int, int] | None = None
    # Why what is installed there is not what the tree needs, as a sentence.
    outdated: str = ""

    def carry(self, digests: Iterable[str]) -> None:
        """Bring these bytes to where they are wanted, durable (Q2)."""
        if self.stock is not None:
            named, stock, own = tuple(digests), self.stock, LargeBlobs(self.pipeline.site.state)
            patiently(lambda: carry(named, own, stock), _PATIENCE_S)
            if isinstance(stock, LargeBlobs):
                stock.make_durable()


class Grounds:
    """Of one workspace, by its path."""

    def __init__(self, workspace: str, opening: Opening) -> None:
        self._workspace, self._opening = workspace, opening

    @contextmanager
    def __call__(self, order: Order) -> Iterator[Place]:
        with self._opening(self._workspace) as home:
            if not order.mirrored:
                yield Place(home)
                return
            mirror, owner = self._brought(home)
            with mirror, self._opening(mirror.path) as pipeline:
                pipeline.site.seen_at = home.site.seen_at
                yield Place(pipeline, LargeBlobs(home.site.state), home, owner)

    def _brought(self, home: Pipeline) -> tuple[Mirror, tuple[int, int] | None]:
        """A mirror of what stands now, ours until it is closed (Q1); and who owns all of it, where owners and groups
        cannot be kept: an ordinary user gives files to nobody else, and only to groups of their own."""
        hidden = home.governance.settings().hidden
        with home.locked():
            mirror = _free(os.path.join(home.site.state.path, FOLDER))
            try:
                base = manifest_of(home.site, hidden=hidden)
                owner = None if _can_be_kept(base) else (os.geteuid(), os.getegid())
                base = base if owner is None else base.owned_by(*owner)
                mirror.bring_to(base, FromTree(home.site.workspace))
                mirror.borrow_git(base, home.site.path)
            except BaseException:
                mirror.close()
                raise
        return mirror, owner


def _can_be_kept(base: Manifest) -> bool:
    me = os.geteuid()
    groups = {os.getegid(), *os.getgroups()}
    return me == 0 or all(image.uid == me and image.gid in groups for _, image in base.entries)


class DistantGrounds:
    """On a machine that has no workspace: `folder` is for mirrors, `repository` a clone, or nothing."""

    def __init__(self, folder: str, repository: str, stock: Stock, opening: Opening) -> None:
        self._folder, self._repository, self._stock, self._opening = folder, repository, stock, opening
        # A commit that an order needed and the clone does not have.
        self.lacks = ""

    @contextmanager
    def __call__(self, order: Order) -> Iterator[Place]:
        owner = os.geteuid(), os.getegid()
        data = patiently(lambda: b"".join(self._stock.pieces(order.base)), _PATIENCE_S)
        base = unpacked_manifest(data)
        self._require_commit(base.commit)
        origins: list[Origin] = [FromStock(self._stock)]
        with ExitStack() as held:
            outdated = ""
            if self._repository:
                clone = held.enter_context(closing(Root(self._repository, CALLS)))
                stands = self._of_the_clone()
                # Those of its clone, as its user made them there.
                whole = with_folders(base, INSTALLED, stands)
                installed = {path for path, _ in whole.entries}.difference(path for path, _ in base.entries)
                origins += [FromGit(self._repository, dict(base.names)), FromTree(clone, installed)]
                base = whole
            base = base.owned_by(*owner)
            mirror = held.enter_context(_free(self._folder))
            patiently(lambda: mirror.bring_to(base, *origins), _PATIENCE_S)
            if self._repository and base.commit:
                mirror.borrow_git(base, self._repository, base.commit)
            if self._repository:
                outdated = self._outdated(base, dict(stands.entries()), mirror.site.workspace, clone)
            pipeline = held.enter_context(self._opening(mirror.path))
            pipeline.site.seen_at = self._repository or mirror.path
            yield Place(pipeline, self._stock, None, owner, outdated)

    def _outdated(self, base: Manifest, stands: Mapping[str, Image], tree: Root, clone: Root) -> str:
        """Whether the clone, in which packages were installed, says other dependencies than the base."""
        for path, image in base.entries:
            old = stands.get(path)
            if image.kind != "file" or not concerns_dependencies(path) or (old and old.digest == image.digest):
                continue
            if changes_dependencies(path, _text(clone, path) if old else "", _text(tree, path)):
                return f"what is installed in its clone is for another {printable(path)}"
        return ""

    def _of_the_clone(self) -> Snapshot:
        return looked_at(self._repository, os.path.join(self._folder, _INDEX))

    def _require_commit(self, commit: str) -> None:
        if self._repository and commit and not has_commit(self._repository, commit):
            self.lacks = commit
        self.require_clone()

    def require_clone(self) -> None:
        """Blocked where the clone lacks the commit that was asked for last; it may have been fetched since."""
        if self.lacks and not has_commit(self._repository, self.lacks):
            raise Blocked(
                f"its clone lacks the commit {self.lacks[:12]}, with which the run began",
                hint=f"Run there: git -C {shlex.quote(self._repository)} fetch --all",
            )
        self.lacks = ""


def _text(root: Root, path: str) -> str | None:
    try:
        fd = root.calls.open_beneath(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, root.fd)
    except OSError:
        return None
    try:
        return root.calls.pread(fd, _MOST_TEXT, 0).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        root.calls.close(fd)


def _free(folder: str) -> Mirror:
    """The first that nobody works over; there are never more than work at once."""
    for number in range(1, _MOST):
        try:
            return Mirror.at(os.path.join(folder, str(number)))
        except Locked:
            continue
    raise Locked(f"{_MOST} mirrors are all worked over")
