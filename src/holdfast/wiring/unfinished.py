"""Is something unfinished here? What every verb asks before it looks, in a few small reads."""

from __future__ import annotations

from holdfast.store.database import Records
from holdfast.store.journal import read_head
from holdfast.store.ledger import Ledger
from holdfast.workspace.site import Site


def is_unfinished(site: Site, ledger: Ledger, records: Records) -> bool:
    """A transaction in the journal, or an entry of the ledger that the tables do not have yet."""
    journal = site.journal()
    head = read_head(site.calls, journal)
    if (head is not None and head.state == "PREPARED") or set(site.calls.names(journal)) - {"head"}:
        return True
    newest = ledger.head()
    return newest is not None and newest.seq > records.projected
