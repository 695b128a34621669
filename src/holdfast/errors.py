"""Every exception Holdfast raises on purpose.

    HoldfastError ............................ 1   something we did not foresee
    ├── InvalidInput ......................... 2   what was asked makes no sense; nothing was read as a plan
    │   ├── InvalidPath                            a path leaves the workspace or names protected state
    │   ├── InvalidChangeFile                      the change file is wrong, at a line
    │   ├── NotAWorkspace                          no `.holdfast` here or above
    │   ├── UnknownId                              no such id, or an ambiguous prefix
    │   └── Unsupported                            this host or file system cannot keep the promise
    ├── ApprovalNeeded ....................... 3   a person must say yes
    ├── Denied ............................... 4   policy says no
    ├── Blocked .............................. 5   a precondition or gate failed before anything changed
    │   └── SandboxUnavailable                     this host cannot confine a program as its profile demands
    ├── DiskFull ............................. 5   there is no room to write; no gate said no
    ├── DatabaseAway ......................... 5   the database that machines share does not answer; nothing failed
    ├── VerificationFailed ................... 6   a check failed; rolled back, or never applied
    ├── NeedsHuman ........................... 7   could not be rolled back completely
    ├── Conflict ............................. 8   the workspace is not what was simulated
    ├── Locked ............................... 9   another process is at work
    ├── LimitReached ......................... 10  time or budget
    ├── AgentFailed .......................... 11  an agent did not do what it was asked, whatever it says
    ├── Tampering ............................ 12  ledger, journal or state was edited
    │   └── StateLost                              `.holdfast` is missing where its anchor knows one
    ├── PartlyDone ........................... 13  the files landed, a step under `continue` or `stop` failed
    └── Interrupted .......................... 130 the user pressed Ctrl-C; state is safe

Each class carries its machine code, exit status and a default hint;
an instance says what happened and, truthfully, whether the workspace was changed.
"""

from __future__ import annotations

from typing import ClassVar, Literal

# Of what a budget has too little; "price" is a model of which nobody knows what it costs, beside a budget of money.
Shortage = Literal["", "money", "tokens", "requests", "price"]


class HoldfastError(Exception):
    """Base of all: a message for a person, a code for a program."""

    code: ClassVar[str] = "internal"
    exit_status: ClassVar[int] = 1
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str = "", changed: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.changed = changed


class InvalidInput(HoldfastError):
    code = "invalid_input"
    exit_status = 2


class InvalidPath(InvalidInput):
    code = "invalid_path"
    default_hint = "Paths are relative to the workspace, without '..', and never inside .holdfast or .git."


class InvalidChangeFile(InvalidInput):
    """A change file that cannot become a plan; `line` is 1-based, 0 when unknown."""

    code = "invalid_change_file"

    def __init__(self, message: str, *, source: str = "", line: int = 0, hint: str = "") -> None:
        where = f"{source}:{line}: " if source and line else f"{source}: " if source else ""
        super().__init__(f"{where}{message}", hint=hint)
        self.source = source
        self.line = line


class NotAWorkspace(InvalidInput):
    code = "not_a_workspace"
    default_hint = "Start one here with: holdfast init"


class UnknownId(InvalidInput):
    code = "unknown_id"
    default_hint = "List what there is with: holdfast log"


class Unsupported(InvalidInput):
    code = "unsupported"
    default_hint = "See what this host can do with: holdfast doctor"


class ApprovalNeeded(HoldfastError):
    code = "approval_needed"
    exit_status = 3


class Denied(HoldfastError):
    code = "denied"
    exit_status = 4


class Blocked(HoldfastError):
    code = "blocked"
    exit_status = 5


class SandboxUnavailable(Blocked):
    code = "sandbox_unavailable"
    default_hint = "See what this host enforces, and why not, with: holdfast doctor"


class BranchLost(Blocked):
    """What lands on a branch could not be committed there: the branch or its work tree is gone, or is another one."""

    code = "branch_lost"


class DiskFull(HoldfastError):
    code = "disk_full"
    exit_status = 5
    default_hint = "Make room on the disk, then do it again."


class DatabaseAway(HoldfastError):
    code = "database_away"
    exit_status = 5
    default_hint = "Nothing is lost. Once the database answers again, go on with: holdfast resume"


class VerificationFailed(HoldfastError):
    code = "verification_failed"
    exit_status = 6


class NeedsHuman(HoldfastError):
    code = "needs_human"
    exit_status = 7
    default_hint = "See what is left with: holdfast recover"


class Conflict(HoldfastError):
    code = "conflict"
    exit_status = 8


class Locked(HoldfastError):
    code = "locked"
    exit_status = 9
    default_hint = "Wait for it to end, or give more time with --wait SECONDS."


class LimitReached(HoldfastError):
    """`of_run`: what stopped an agent is what was left of its run's budget, and no limit of its own."""

    code = "limit_reached"
    exit_status = 10

    def __init__(self, message: str, *, hint: str = "", of_run: Shortage = "") -> None:
        super().__init__(message, hint=hint)
        self.of_run = of_run


class AgentFailed(HoldfastError):
    """`ill`: the agent, its model or its key failed, and not its work: another agent may do it.

    `pause_ms`: it was not asked at all, and may be in so long; 0 where it was asked.
    `outage`: the provider of its model served nothing until the deadline; why.
    """

    code = "agent_failed"
    exit_status = 11

    def __init__(self, message: str, *, hint: str = "", ill: bool = False, pause_ms: int = 0, outage: str = "") -> None:
        super().__init__(message, hint=hint)
        self.ill = ill
        self.pause_ms = pause_ms
        self.outage = outage


class Tampering(HoldfastError):
    code = "tampering"
    exit_status = 12


class StateLost(Tampering):
    code = "state_lost"


class PartlyDone(HoldfastError):
    """The change stands, as its plan allows, without everything that was to be done outside the files."""

    code = "partly_done"
    exit_status = 13


class Interrupted(HoldfastError):
    code = "interrupted"
    exit_status = 130
