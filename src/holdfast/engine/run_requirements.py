"""What a run needs besides its roadmap and its agents, looked at before it is written down.

Invariants
  Q1  What would end the run at its first step is found here: a policy that cannot be understood, a pattern of hidden
      paths that names nothing, an engine that is not installed, a database that cannot be read. Nothing is written.
  Q2  The workspace's own engine database is never repaired or removed by itself: a person is told which file it is,
      that it may go, and what goes with it.
"""

from __future__ import annotations

from holdfast.engine.distance import require_no_witness
from holdfast.engine.durable import Database
from holdfast.engine.durable_database import FILE, connect, exists, reachable
from holdfast.engine.durable_dbos import library, require_reachable
from holdfast.engine.pipeline import Pipeline
from holdfast.errors import Blocked
from holdfast.model.path import STATE_DIRECTORY
from holdfast.workspace.hidden import require_patterns

LOST_WITH_IT = (
    f"Delete {STATE_DIRECTORY}/{FILE}, with {FILE}-wal and {FILE}-shm, and try again. Only the orders that are under "
    "way stand in it: what an agent had not finished begins anew. Tasks, landings and approvals are in the ledger, "
    "and stay."
)


def require_startable(pipeline: Pipeline, database: Database) -> None:
    """InvalidInput, Unsupported or Blocked, with the reason (Q1)."""
    require_understood(pipeline)
    library()
    if database.url:
        require_no_witness(pipeline)
        require_reachable(database)
    else:
        _require_own(database)


def require_understood(pipeline: Pipeline) -> None:
    """What people wrote for the run: a preview needs that as well, and starts no engine."""
    settings = pipeline.governance.settings()
    pipeline.governance.policy(settings)
    require_patterns(settings.hidden)


def _require_own(database: Database) -> None:
    """Q2. Where there is none yet, it is made when the engine begins."""
    if not exists(database):
        return
    pool = connect(database)
    try:
        reachable(pool)
    except Blocked as error:
        raise Blocked(error.message, hint=LOST_WITH_IT) from None
    finally:
        pool.dispose()
