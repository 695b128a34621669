"""Reading a roadmap of 10,000 tasks (1 MB): goals ≤ 1.0× pyromark and ≤ 0.05× markdown-it-py.

    pip install pyromark markdown-it-py      the contestants; without them there is nothing to compare with
    python benchmarks/roadmap.py

The contestants only find the structure of the Markdown and hand it over as Python objects, all of which are taken;
we go on to tasks, ids, files and dependencies, and put nothing off: each task is whole.
Processor time counts, the contestants take turns, medians are compared.
Python's garbage collector rests while we read, and is on for the others, as it is for whoever calls them.
It looks at our tasks once they are read, if they are kept until then: that look is shown beside, as "kept".
Shown as well: pyromark with the collector off, that twice the file takes twice the time, a million lines, and ticking.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable

from _measure import Verdict, milliseconds, on_the_processor, turns

from holdfast.intake.roadmap import parse, ticked

try:
    import pyromark
    from markdown_it import MarkdownIt
except ImportError as error:
    sys.exit(f"{error.name} is missing: pip install pyromark markdown-it-py")

TASKS = 10_000
ROUNDS = 21
# One of these takes a second.
SLOW_ROUNDS = 5


def roadmap(tasks: int) -> str:
    """A hundred tasks a phase, ten a section; with prose, and now and then code, subtasks and dependencies."""
    parts = ["# Roadmap\n\n"]
    for number in range(tasks):
        phase, section = divmod(number // 10, 10)
        if number % 100 == 0:
            parts.append(
                f"## Phase {phase + 1}: Part {phase + 1} of the work\n\n"
                f"**Goal**: everything of part {phase + 1} works\n**Priority**: high\n**Effort**: 3 days\n\n"
            )
        if number % 10 == 0:
            parts.append(f"### {phase + 1}.{section + 1} Area {section + 1}\n\n**Files**: `part_{phase}/area.py`\n\n")
        box = "x" if number % 3 == 0 else " "
        parts.append(f"- [{box}] Add case {number} to the table of `part_{phase}`\n  The case is read from the file.\n")
        if number % 10 == 5:
            parts.append("  ```python\n  assert read(1) == 2\n  ```\n  - [ ] with a test\n")
        if number % 10 == 7:
            parts.append(f"  Depends on **Add case {number - 1} to the table of `part_{phase}`**\n")
    return "".join(parts)


def without_collector(work: Callable[[], object]) -> None:
    gc.disable()
    try:
        work()
    finally:
        gc.enable()


def collected(data: bytes) -> None:
    """Read, and looked at by the collector as what is young."""
    found = parse(data)
    gc.collect(0)
    del found


def main() -> None:
    text, twice = roadmap(TASKS), roadmap(2 * TASKS)
    data = text.encode()
    found = parse(data)
    assert len(found.tasks) == TASKS and not found.remarks
    assert sum(len(task.after) for task in found.tasks) == TASKS // 10
    options = pyromark.Options.ENABLE_TASKLISTS
    markdown = MarkdownIt()
    done = {task.id: not task.done for task in found.tasks}

    def events() -> object:
        return list(pyromark.events(text, options=options))

    medians = turns(
        ROUNDS,
        {
            "holdfast": on_the_processor(lambda: parse(data)),
            "pyromark": on_the_processor(events),
            "pyromark without collector": on_the_processor(lambda: without_collector(events)),
            "kept": on_the_processor(lambda: collected(data)),
            "twice": on_the_processor(lambda: parse(twice.encode())),
            "ticked": on_the_processor(lambda: ticked(data, "ROADMAP.md", done)),
        },
    )
    slow = turns(
        SLOW_ROUNDS,
        {
            "beside it": on_the_processor(lambda: parse(data)),
            "markdown-it-py": on_the_processor(lambda: markdown.parse(text)),
        },
    )
    print(
        f"  {TASKS:,} tasks, {len(data) / 1e6:.2f} MB: "
        + ", ".join(f"{k} {milliseconds(v)} ms" for k, v in (medians | slow).items())
    )
    print(Verdict("parse, against pyromark's events", medians["holdfast"] / medians["pyromark"], 1.0).line())
    print(Verdict("parse, against markdown-it-py's tokens", slow["beside it"] / slow["markdown-it-py"], 0.05).line())
    print(Verdict("twice the file", medians["twice"] / medians["holdfast"], 2.5).line())
    million = b"".join(b"- [ ] Task %d of the list\n" % number for number in range(1_000_000))
    print(f"  a million lines, each a task: {on_the_processor(lambda: parse(million))():.1f} s")


if __name__ == "__main__":
    main()
