"""logs/resilience.jsonl: what happened to the breakers and what was escalated, one JSON object a line.

For people and for other tools; a `LineLog`, with its invariants. URLs in it show no password.
"""

from __future__ import annotations

from holdfast.disk.confined import Root
from holdfast.store.line_log import LONGEST as LONGEST
from holdfast.store.line_log import LineLog

FOLDER = "logs"
FILE = "resilience.jsonl"


class ResilienceLog(LineLog):
    """`state` is the state directory; the folder in it is made when it is first needed."""

    def __init__(self, state: Root) -> None:
        super().__init__(state, f"{FOLDER}/{FILE}")
