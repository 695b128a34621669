"""Holdfast: the safe way to let agents, scripts and people change repositories and hosts.

Nothing lands that was not simulated, gated and verified.
What lands is exactly what was simulated, or nothing. Everything that landed can be undone.

The story of a change, room by room:

    intake       reads a change file into a Plan            (words become a frozen value)
    simulation   rehearses the plan over the workspace      (a ChangeSet: every pre- and post-image; nothing moved)
    checks       runs its checks in a sandboxed shadow      (receipts, bound to the tree they saw)
    gates        judge the change set that will land        (a Decision; where it says so, signed Approvals)
    execution    drives one workspace.Transaction           (stage, log, flip, verify; or roll back)
    checks       asks the real host whether it is healthy
    settlement   ledger, undo material, records
    engine       knows this order; wiring chooses the parts; cli translates

    import holdfast
    hf = holdfast.open(".")
    with hf.transaction("tidy config", approved_by="me") as tx:
        tx.write("a.txt", b"...")
        tx.delete("b.txt")
"""

from __future__ import annotations

__version__ = "0.1.0"

# As good as typing's own for a type checker, and importing `typing` would double the time of `--version`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from holdfast.wiring import Holdfast, init, open  # noqa: A004 (`holdfast.open` is the front door)

__all__ = ["Holdfast", "__version__", "init", "open"]


def __getattr__(name: str) -> object:
    # `holdfast --version` must start like bare Python, so nothing is imported until it is asked for.
    if name in ("Holdfast", "init", "open"):
        from holdfast import wiring

        return getattr(wiring, name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
