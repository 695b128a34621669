"""What a run needs besides its roadmap and its agents, looked at before it is written down.

Invariants
  Q1  What would end the run at its first step is found here: a policy that cannot be understood, a pattern of hidden
      paths that names nothing, an engine that is not installed, a database that cannot be read. Nothing is written.
  Q2  The workspace's own engine database is never repaired or removed by itself: a person is told which file it is,
      that it may go, and what goes with it.
  Q3  Where tests cannot even be collected, nothing that an agent does could be verified: no run begins, unless its
      first task is to mend just that.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from holdfast.checks.baseline import is_about_collecting
from holdfast.engine.distance import require_no_witness
from holdfast.engine.durable import Database
from holdfast.engine.durable_database import FILE, connect, exists, reachable
from holdfast.engine.durable_dbos import library, require_reachable
from holdfast.engine.pipeline import Pipeline
from holdfast.errors import Blocked, SandboxUnavailable, VerificationFailed
from holdfast.model.path import STATE_DIRECTORY, printable
from holdfast.model.run import RunOptions
from holdfast.model.task import Task
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


def looked_ahead(
    pipeline: Pipeline, options: RunOptions, to_do: Sequence[Task], *, stops: bool = True
) -> tuple[str, ...]:
    """Which checks the work will have, a sentence each, after a trial of each, and what the tests say before anything
    is done; VerificationFailed (Q3), unless work waits to land, which may be what mends them: then nothing `stops`."""
    if to_do:
        pipeline.bring_installed()
    if options.unverified_because or options.verify_mode == "agent" or not to_do:
        return ()
    named = tuple(chain.from_iterable(task.files for task in to_do))
    checking, beside = pipeline.simulator.checking, [path for path in named if _is_plain(path)]
    try:
        tried = checking.trial(beside)
    except SandboxUnavailable as error:
        return (f"not tried: {error.message}",)
    for one in tried:
        first = to_do[0]
        words = "\n".join((first.title, first.body, *first.files))
        if stops and one.uncollectable and not is_about_collecting(words, one.files):
            raise VerificationFailed(
                one.detail,
                hint="Nothing was begun, and nothing was spent. Mend it first, or let the first task be to mend it: "
                "holdfast fix",
            )
    ready = any(one.level == "tests" and one.ready for one in tried)
    before = checking.take_baseline(beside) if ready else ()
    return (*(printable(one.detail) for one in tried), *before) or (
        "no check was found: what agents do stays unverified",
    )


def _is_plain(path: str) -> bool:
    """A path inside of the tree, as far as it can be told without looking."""
    return bool(path) and not path.startswith("/") and ".." not in path.split("/")


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
