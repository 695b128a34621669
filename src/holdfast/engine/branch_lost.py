"""A branch that was deleted below a run, or whose work tree was taken: the run stops, and says how it goes on.

Whoever only reads must start fast: what looks at the branch is imported when there is one.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.errors import BranchLost, HoldfastError
from holdfast.model.run import RunRecord
from holdfast.workspace.site import Site

STOPPED_BECAUSE = "what lands cannot be committed"
_LOOK_S = 1.0


def stopped_for_branch(run: RunRecord) -> bool:
    return run.state == "STOPPED" and run.because.startswith(STOPPED_BECAUSE)


def lost_branch(site: Site) -> str:
    """Why nothing more can land on the branch that this work tree is of, with the way back; empty otherwise."""
    from holdfast.workspace.branches import require_standing

    if not site.is_branch:
        return ""
    try:
        require_standing(site.path, site.calls)
    except HoldfastError as error:
        hint = "; ".join(line.rstrip(".") for line in error.hint.splitlines())
        return f"{STOPPED_BECAUSE}: {error.message}. {hint}"
    return ""


def require_branch(site: Site) -> None:
    """BranchLost says all of it in one sentence, since it becomes why the run stopped."""
    if lost := lost_branch(site):
        raise BranchLost(lost)


def watched_branch(site: Site) -> Callable[[], str]:
    """`lost_branch`, for a loop: it is looked at once a second."""
    found, looked = "", float("-inf")

    def look() -> str:
        nonlocal found, looked
        if time.monotonic() - looked >= _LOOK_S:
            found, looked = lost_branch(site), time.monotonic()
        return found

    return look
