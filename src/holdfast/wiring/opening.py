"""The front doors: put a workspace under guard, open it, and open it once more for another thread."""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import Blocked, HoldfastError, InvalidInput, Locked, NotAWorkspace, Tampering
from holdfast.model.canonical import Json
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.store.anchor import anchor_path
from holdfast.store.database import Records
from holdfast.store.keys import key_path, load_key, load_or_create_key
from holdfast.store.ledger import Ledger
from holdfast.store.places import find_workspace, lost_at, note_place, require_known_or_free
from holdfast.store.signing import make_signing_key
from holdfast.store.state import create_state, read_identity
from holdfast.wiring.guard import Holdfast
from holdfast.workspace.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.engine.pipeline import Pipeline, Progress
    from holdfast.engine.worker import Station

_PATIENCE = 60.0


def init(path: str = ".", calls: Calls = CALLS, *, forget: str = "") -> str:
    """Put a workspace under guard; idempotent. The workspace's id is returned.

    StateLost where a workspace was guarded here and its state is gone; `forget` is its id, and gives its history up.
    """
    _require_here(path)
    workspace = os.path.abspath(path)
    require_known_or_free(workspace, forget)
    identity = create_state(workspace, calls)
    ledger = _ledger(workspace, identity.id, calls)
    make_signing_key(calls=calls)
    if ledger.head() is None:
        lost: list[Json] = [*lost_at(workspace)]
        body: dict[str, Json] = {"workspace": identity.id}
        ledger.append("init", {**body, "given_up": lost} if lost else body, time.time_ns())
    note_place(workspace, identity.id, calls)
    open(path, calls=calls).close()  # makes the tables
    return identity.id


def open(  # noqa: A001 (`holdfast.open` is the front door)
    path: str = ".", *, wait: float = 0.0, progress: Progress | None = None, calls: Calls = CALLS
) -> Holdfast:
    """The workspace at or above `path`; the first verb that changes something repairs what a crash left."""
    _require_here(path)
    site = Site(find_workspace(path), calls)
    try:
        identity = read_identity(site.state)
        ledger = Ledger(site.state.path, load_key(key_path(), calls), identity.id, anchor_path(identity.id), calls)
        _note_place(site, identity.id)
        records = Records(site.state.path, refill=lambda records: _catch_up(site, ledger, records))
        _fill_new_tables(site, ledger, records)
        return Holdfast(site, ledger, records, identity.id, wait, progress)
    except (HoldfastError, OSError):
        site.close()
        raise


def open_branch(
    home: Holdfast, name: str, *, begin: bool = False, wait: float = 0.0, progress: Progress | None = None
) -> Holdfast:
    """See `Holdfast.branch`. InvalidInput where the branch is not kept, and is not to begin."""
    from holdfast.workspace.branches import find_branch, keep_branch, repository_of

    if home.site.is_branch:
        raise InvalidInput("this is the work tree of a branch already", hint="Nothing was changed. Work in your own.")
    repository = repository_of(home.path, home.site.calls)
    branch = find_branch(repository, home.site.state.path, name)
    if branch is None:
        if not begin:
            raise InvalidInput(
                f"Holdfast keeps no work tree for a branch {printable(name)}",
                hint=f"Nothing was changed. Begin one with: holdfast run --branch {shlex.quote(name)}",
            )
        branch = keep_branch(repository, home.site.state.path, name)
    calls = home.site.calls
    identity = create_state(branch.workspace, calls)
    ledger = _ledger(branch.workspace, identity.id, calls)
    if ledger.head() is None:
        body: dict[str, Json] = {"workspace": identity.id, "branch": branch.name, "of": home.id}
        ledger.append("init", body, time.time_ns())
    return open(branch.workspace, wait=wait, progress=progress, calls=calls)


def _ledger(workspace: str, id: str, calls: Calls) -> Ledger:
    state = os.path.join(workspace, STATE_DIRECTORY)
    return Ledger(state, load_or_create_key(key_path(), calls), id, anchor_path(id), calls)


def _require_here(path: str) -> None:
    """Taken for a directory of this host an address would be one below here, and so in the workspace that we are in."""
    if os.fspath(path).startswith("ssh://"):
        raise NotAWorkspace(
            f"{printable(path)} is on another host, and Python works on this one",
            hint=f"Have the program do it: holdfast -C {shlex.quote(printable(path))} …",
        )


def _note_place(site: Site, id: str) -> None:
    """So that one which was moved, or made by an older Holdfast, is missed too if its state goes."""
    if STATE_DIRECTORY in site.path.split("/"):
        return  # a copy to work over, made and thrown away by a run
    try:
        note_place(site.path, id, site.calls)
    except OSError:
        return  # looking needs no room; the next verb tries again


def _fill_new_tables(site: Site, ledger: Ledger, records: Records) -> None:
    """A database that was just made knows nothing yet: what it says is true from the first question on."""
    if records.volatile or records.projected:
        return
    from holdfast.disk.lock import Lock

    try:
        with Lock(os.path.join(site.state.path, "lock"), calls=site.calls):
            _catch_up(site, ledger, records)
    except (Locked, Blocked):
        records.use_memory()


def _catch_up(site: Site, ledger: Ledger, records: Records) -> None:
    """As far as the ledger is what was written; a verb that changes something reads it again, and refuses."""
    from holdfast.settlement.record import catch_up  # not for verbs that only look

    with suppress(Tampering):
        catch_up(site, ledger, records)


@contextmanager
def pipeline_at(path: str) -> Iterator[Pipeline]:
    """For another thread: one workspace, opened once more, and patient with those who hold its lock."""
    with open(path, wait=_PATIENCE) as hf:
        yield hf.pipeline


def say(text: str) -> None:
    print(text, file=sys.stderr)


def serve(station: Station, stop: Callable[[], bool], tell: Callable[[str], None]) -> bool:
    """Work for runs on other machines until somebody says stop; False when this worker was given up."""
    from holdfast.engine.worker import serve as serving

    # The ledgers of mirrors are thrown away with them; on a fresh machine there is no key yet that they could have.
    load_or_create_key(key_path())
    return serving(station, pipeline_at, stop, {}, tell)
