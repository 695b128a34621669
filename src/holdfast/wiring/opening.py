"""The front doors: put a workspace under guard, open it, and open it once more for another thread."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.disk.calls import CALLS, Calls
from holdfast.errors import HoldfastError
from holdfast.model.canonical import Json
from holdfast.model.path import STATE_DIRECTORY
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
    workspace = os.path.abspath(path)
    require_known_or_free(workspace, forget)
    identity = create_state(workspace, calls)
    key = load_or_create_key(key_path(), calls)
    make_signing_key(calls=calls)
    state = os.path.join(workspace, STATE_DIRECTORY)
    ledger = Ledger(state, key, identity.id, anchor_path(identity.id), calls)
    if ledger.head() is None:
        lost: list[Json] = [*lost_at(workspace)]
        body: dict[str, Json] = {"workspace": identity.id}
        ledger.append("init", {**body, "given_up": lost} if lost else body, time.time_ns())
    note_place(workspace, identity.id, calls)
    from holdfast.settlement.record import catch_up

    records = Records(state)
    try:
        catch_up(ledger, records)
    finally:
        records.close()
    return identity.id


def open(  # noqa: A001 (`holdfast.open` is the front door)
    path: str = ".", *, wait: float = 0.0, progress: Progress | None = None, calls: Calls = CALLS
) -> Holdfast:
    """The workspace at or above `path`; the first verb that changes something repairs what a crash left."""
    site = Site(find_workspace(path), calls)
    try:
        identity = read_identity(site.state)
        ledger = Ledger(site.state.path, load_key(key_path(), calls), identity.id, anchor_path(identity.id), calls)
        _note_place(site, identity.id)
        records = Records(site.state.path)
        if records.volatile:
            from holdfast.settlement.record import catch_up

            catch_up(ledger, records)
        return Holdfast(site, ledger, records, identity.id, wait, progress)
    except (HoldfastError, OSError):
        site.close()
        raise


def _note_place(site: Site, id: str) -> None:
    """So that one which was moved, or made by an older Holdfast, is missed too if its state goes."""
    if STATE_DIRECTORY in site.path.split("/"):
        return  # a copy to work over, made and thrown away by a run
    try:
        note_place(site.path, id, site.calls)
    except OSError:
        return  # looking needs no room; the next verb tries again


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
