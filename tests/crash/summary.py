"""What the crash tests tried, in one line each, at the end of a run.

The tests say their numbers as properties, which also travel from the workers of a parallel run.
"""

from __future__ import annotations

from collections import Counter

from _pytest.terminal import TerminalReporter

KINDS = ("kill points", "errors injected", "power cuts", "damaged journals")


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    totals: Counter[str] = Counter()
    for report in terminalreporter.getreports("passed"):
        if report.when == "call":
            totals.update({name: count for name, count in report.user_properties if name in KINDS})
    if totals:
        told = ", ".join(f"{totals[kind]} {kind}" for kind in KINDS if totals[kind])
        terminalreporter.write_line(f"crash suite: {told}; old tree or new after each")
