"""The heartbeat of a run, for whoever looks from another terminal: is it alive, since when, how far?

    logs/heartbeat.json      replaced every few seconds while the run goes on, and once more when it ends

Invariants
  P1  A reader sees one whole pulse, or none.
  P2  A process is known by pid, start time and boot: a number that was given to somebody else is not the run.
  P3  Nothing is decided from it. Who may drive a run is for the kernel's lock and the ledger.
"""

from __future__ import annotations

import json
from typing import Literal, NamedTuple

from holdfast.disk.confined import Root
from holdfast.model.agent import Usage
from holdfast.model.run import RUN_STATES, RunState
from holdfast.sandbox.daemon import Identity, is_alive
from holdfast.store.exports import read_file, replace_file

VERSION = 1
FILE = "logs/heartbeat.json"
# The driver beats every five seconds; a loaded machine may let it miss some.
SILENT_NS = 30 * 10**9
_LONGEST = 1 << 16

# alive; there, but silent for long (stopped, or its machine is overloaded); it ended; it was killed.
Life = Literal["alive", "silent", "ended", "gone"]


class Pulse(NamedTuple):
    """`since_ns` is when this process began to drive the run; `lost` are lines of logs that could not be written."""

    run: str
    state: RunState
    process: Identity
    since_ns: int
    at_ns: int
    running: int = 0
    landed: int = 0
    usage: Usage = Usage()
    worked_ms: int = 0
    lost: int = 0
    # Begun, and nobody is at work at it.
    waiting: int = 0
    # Since when its database is away, and until when it is waited for; 0 while it answers.
    away_ns: int = 0
    away_until_ns: int = 0

    def life(self, now_ns: int) -> Life:
        """P2. A clock that was set back makes nobody silent."""
        if self.state != "RUNNING":
            return "ended"
        if not is_alive(self.process):
            return "gone"
        return "silent" if now_ns - self.at_ns > SILENT_NS else "alive"

    def worked_at(self, now_ns: int) -> int:
        """How long the run has worked by then: who looks need not wait for the next beat, and all see the same."""
        since_ms = max(0, now_ns - self.at_ns) // 1_000_000
        return self.worked_ms + (since_ms if self.life(now_ns) == "alive" else 0)


def write_pulse(state: Root, pulse: Pulse) -> None:
    """Not synced: after a power cut there is no process either."""
    row = {
        "version": VERSION,
        **pulse._asdict(),
        **pulse.process._asdict(),
        "usage": pulse.usage._asdict(),
    }
    del row["process"]
    replace_file(state, FILE, json.dumps(row, ensure_ascii=True).encode("ascii") + b"\n", durable=False)


def read_pulse(state: Root) -> Pulse | None:
    """The last one; None where there was no run, and where the file is not one of ours."""
    data = read_file(state, FILE, _LONGEST)
    if data is None:
        return None
    try:
        return _pulse(json.loads(data))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # a power cut, or somebody's hand; the next beat puts it right


def _pulse(row: object) -> Pulse:
    if not isinstance(row, dict) or row.pop("version", None) != VERSION or row.get("state") not in RUN_STATES:
        raise ValueError("this is no heartbeat of ours")
    process = Identity(_whole(row.pop("pid")), _whole(row.pop("started")), str(row.pop("boot")))
    usage = row.pop("usage")
    money = usage.pop("micro_usd")
    numbers = {name: _whole(value) for name, value in usage.items()}
    spent = Usage(**numbers, micro_usd=None if money is None else _whole(money))
    run, state = str(row.pop("run")), row.pop("state")
    return Pulse(run, state, process, usage=spent, **{name: _whole(value) for name, value in row.items()})


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a number was expected")
    return value
